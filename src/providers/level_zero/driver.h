/*
 * The Level Zero loader, libze_loader.so.1 or the library that UMF_ZE_LOADER_LIB_NAME names: found
 * at run time, never linked. One list (driver.def) names its functions; ze_api.h gives their types.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_DRIVER_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_DRIVER_H

#include <stdbool.h>

#include <level_zero/ze_api.h>

#include <umf/base.h>

#include "base/native.h"

/* The headers of loader 1.8 do not declare it. */
ZE_APIEXPORT ze_result_t ZE_APICALL zeMemPutIpcHandle(ze_context_handle_t context,
                                                      ze_ipc_mem_handle_t handle);

/* Declared in loader/ze_loader.h, which some copies of the headers lack; `type` is its
 * zel_handle_type_t. */
ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderTranslateHandle(int type, void *loaders,
                                                             void **drivers);

typedef struct umf_ze_driver_t {
#define UMF_ZE(function, optional) __typeof__(function) *function;
#include "providers/level_zero/driver.def"
#undef UMF_ZE
} umf_ze_driver_t;

/* The loader's functions. Valid after umf_ze_is_there has found it. */
extern umf_ze_driver_t umf_ze;

/*
 * Looks the loader up once: among the libraries that the process has loaded, then on the system.
 * false: the loader or a required function is missing; `why` (may be NULL) then receives the reason
 * and what to do.
 */
bool umf_ze_is_there(char *why, size_t why_size);

/*
 * Converts the result of a call, ZE_RESULT_SUCCESS included. A failure is stored for the thread and
 * logged with `what` was tried. While the driver shuts down, it is logged at level debug only.
 */
umf_result_t umf_ze_result(ze_result_t result, const char *what);

/* Converts the result of a call that gives something back. A driver that shuts down has released it
 * already, so that is a success. */
umf_result_t umf_ze_given_back(ze_result_t result, const char *what);

/* The driver's last error. One for both kinds of provider, because thread-local memory is scarce.
 */
extern __thread int32_t umf_ze_native;

/* The operation is_shortage. */
int umf_ze_is_shortage(void *provider, umf_result_t result);

/* The operation get_last_native_error: "<name>: <description>". */
umf_result_t umf_ze_native_error(void *provider, const char **message, int32_t *code);

#endif
