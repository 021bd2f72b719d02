/*
 * The Level Zero loader, libze_loader.so.1 or what UMF_ZE_LOADER_LIB_NAME names: found at run time,
 * never linked. Its functions come from one list (level_zero_driver.def) and are typed by ze_api.h.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_DRIVER_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_DRIVER_H

#include <stdbool.h>

#include <level_zero/ze_api.h>

#include <umf/base.h>

#include "base/native.h"

/* Not in the headers of loader 1.8. */
ZE_APIEXPORT ze_result_t ZE_APICALL zeMemPutIpcHandle(ze_context_handle_t context,
                                                      ze_ipc_mem_handle_t handle);

/* Of loader/ze_loader.h, which not every copy of the headers has; `type` is its
 * zel_handle_type_t. */
ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderTranslateHandle(int type, void *loaders,
                                                             void **drivers);

typedef struct umf_ze_driver_t {
#define UMF_ZE(function, optional) __typeof__(function) *function;
#include "providers/level_zero/driver.def"
#undef UMF_ZE
} umf_ze_driver_t;

/*
 * Looks the loader up once: among the libraries the process has loaded, then on the system. NULL if
 * it or a function that cannot be missed is not there; `why` (may be NULL) then receives the reason
 * and what to do.
 */
const umf_ze_driver_t *umf_ze_driver(char *why, size_t why_size);

/*
 * Result of a call, ZE_RESULT_SUCCESS included. A failure is kept for the thread and
 * logged with `what` was tried; a driver that is shutting down is no news and logged as debug only.
 */
umf_result_t umf_ze_result(ze_result_t result, const char *what);

/* The same for a call that gives something back: a driver that is shutting down has it already. */
umf_result_t umf_ze_given_back(ze_result_t result, const char *what);

/* For both kinds of provider over the driver: thread-local memory is dear. */
extern __thread umf_native_t umf_ze_native;

/* The operation get_last_native_error: "<name>: <description>". */
umf_result_t umf_ze_native_error(void *provider, const char **message, int32_t *code);

#endif
