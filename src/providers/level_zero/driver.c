/* The Level Zero loader: its functions and its errors. */
#include "providers/level_zero/driver.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/dl.h"
#include "base/log.h"
#include "providers/gpu/library.h"
#include "system/common.h"

static const umf_dl_symbol_t ze_symbols[] = {
#define UMF_ZE(function, optional) {#function, offsetof(umf_ze_driver_t, function), optional},
#include "providers/level_zero/driver.def"
#undef UMF_ZE
};

static pthread_once_t ze_once = PTHREAD_ONCE_INIT;
umf_ze_driver_t umf_ze; /* Immutable after ze_load, as all variables below */

__thread int32_t umf_ze_native;

static const char *ze_fill(void *library) {
    return umf_dl_fill(library, ze_symbols, UMF_COUNT_OF(ze_symbols), &umf_ze);
}

static umf_gpu_library_t ze_library = {
    .what = "Level Zero loader",
    .name = "libze_loader.so.1",
    .install = "install it (libze1) and a driver, or name another one in "
               "UMF_ZE_LOADER_LIB_NAME",
    .update = "install a newer Level Zero loader (libze1), or name another one in "
              "UMF_ZE_LOADER_LIB_NAME",
    .fill = ze_fill,
};

static void ze_load(void) {
    const char *other = secure_getenv("UMF_ZE_LOADER_LIB_NAME");
    if (other && *other) {
        ze_library.name = other;
    }
    umf_gpu_library_load(&ze_library);
}

bool umf_ze_is_there(char *why, size_t why_size) {
    pthread_once(&ze_once, ze_load);
    return umf_gpu_library_is_there(&ze_library, why, why_size);
}

/* --- errors ----------------------------------------------------------------------------------- */

#define ZE_TEXT(code, text)                                                                        \
    { (int32_t)(code), #code ": " text }

static const umf_native_text_t ze_texts[] = {
    ZE_TEXT(ZE_RESULT_SUCCESS, "no error"),
    ZE_TEXT(ZE_RESULT_NOT_READY, "it is not done yet"),
    ZE_TEXT(ZE_RESULT_ERROR_DEVICE_LOST, "the device hung, was reset or removed, or its driver was "
                                         "updated; start the program again"),
    ZE_TEXT(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "the host has too little memory"),
    ZE_TEXT(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "the device has too little memory"),
    ZE_TEXT(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, "the device must be reset"),
    ZE_TEXT(ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE, "the device sleeps to save power"),
    ZE_TEXT(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, "permission is missing"),
    ZE_TEXT(ZE_RESULT_ERROR_NOT_AVAILABLE, "it is in use by another process, or was removed"),
    ZE_TEXT(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, "the driver misses a library"),
    ZE_TEXT(ZE_RESULT_ERROR_UNINITIALIZED,
            "there is no driver, or zeInit has not been called, or the process ends"),
    ZE_TEXT(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, "the driver is of a version without this"),
    ZE_TEXT(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver or the device cannot do this"),
    ZE_TEXT(ZE_RESULT_ERROR_INVALID_ARGUMENT, "an argument is wrong"),
    ZE_TEXT(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "a handle is not valid"),
    ZE_TEXT(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "the device still uses the object"),
    ZE_TEXT(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "a pointer is NULL"),
    ZE_TEXT(ZE_RESULT_ERROR_INVALID_SIZE, "a size is not valid"),
    ZE_TEXT(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "the device cannot do this size"),
    ZE_TEXT(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "the device cannot do this alignment"),
    ZE_TEXT(ZE_RESULT_ERROR_INVALID_ENUMERATION, "a choice or a flag is not valid"),
    ZE_TEXT(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, "the device does not support a flag"),
    ZE_TEXT(ZE_RESULT_ERROR_OVERLAPPING_REGIONS, "the source and the target of a copy overlap"),
    ZE_TEXT(ZE_RESULT_ERROR_UNKNOWN, "the driver does not say what failed"),
};

static const char *ze_text(ze_result_t result) {
    for (size_t i = 0; i < UMF_COUNT_OF(ze_texts); i++) {
        if (ze_texts[i].code == (int32_t)result) {
            return ze_texts[i].text;
        }
    }
    return "an error of Level Zero, see ze_result_t in ze_api.h";
}

static umf_result_t ze_map(ze_result_t result) {
    switch (result) {
    case ZE_RESULT_SUCCESS:
        return UMF_RESULT_SUCCESS;
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case ZE_RESULT_ERROR_INVALID_ARGUMENT:
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    default:
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    }
}

/* Whether the driver shuts down: after a first success, "uninitialised" can mean nothing else. */
static bool ze_is_gone(ze_result_t result) {
    static bool has_worked; /* Sync: atomic, relaxed */
    if (result == ZE_RESULT_SUCCESS && !__atomic_load_n(&has_worked, __ATOMIC_RELAXED)) {
        __atomic_store_n(&has_worked, true, __ATOMIC_RELAXED);
    }
    return result == ZE_RESULT_ERROR_UNINITIALIZED &&
           __atomic_load_n(&has_worked, __ATOMIC_RELAXED);
}

umf_result_t umf_ze_result(ze_result_t result, const char *what) {
    bool is_gone = ze_is_gone(result);
    if (result != ZE_RESULT_SUCCESS) {
        umf_ze_native = (int32_t)result;
        umf_log_write(is_gone ? UMF_LOG_LEVEL_DEBUG : UMF_LOG_LEVEL_ERROR, 0, __func__,
                      "%s failed: %s (0x%x)", what, ze_text(result), (unsigned)result);
    }
    return ze_map(result);
}

umf_result_t umf_ze_given_back(ze_result_t result, const char *what) {
    umf_result_t logged = umf_ze_result(result, what);
    return ze_is_gone(result) ? UMF_RESULT_SUCCESS : logged;
}

int umf_ze_is_shortage(void *provider, umf_result_t result) {
    (void)provider;
    return result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
           (ze_result_t)umf_ze_native == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

umf_result_t umf_ze_native_error(void *provider, const char **message, int32_t *code) {
    (void)provider;
    if (!umf_native_has_places(message, code)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *message = ze_text((ze_result_t)umf_ze_native);
    *code = umf_ze_native;
    return UMF_RESULT_SUCCESS;
}
