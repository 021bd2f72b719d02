/*
 * DevDax provider: memory of a DAX device (/dev/dax0.0). The device is mapped as a whole at
 * creation and divided; see shared/carve.h for the rules. Other processes open the memory by the
 * path of the device (locator.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <umf/providers/provider_devdax_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/file/opened.h"
#include "providers/file/path.h"
#include "providers/shared/carve_ops.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"
#include "system/os.h"

#define DEVDAX_PREFIX "/dev/dax"
#define DEVDAX_PAGE ((size_t)2 << 20)

#define UMF_PARAMS umf_devdax_params
#define UMF_PARAMS_TABLE "providers/file/devdax_params.def"
typedef struct umf_devdax_memory_provider_params_t {
#include "ctl/params_members.h"
} umf_devdax_params_t;
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetDeviceDax(
    umf_devdax_memory_provider_params_handle_t hParams, const char *path, size_t size) {
    umf_result_t result = umf_params_set(&umf_devdax_params_kind, hParams, "path", path, __func__);
    if (result == UMF_RESULT_SUCCESS) {
        hParams->size = size;
    }
    return result;
}

UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsCreate(
    const char *path, size_t size, umf_devdax_memory_provider_params_handle_t *hParams) {
    void *made;
    umf_result_t result = umf_params_create(&umf_devdax_params_kind, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfDevDaxMemoryProviderParamsSetDeviceDax(made, path, size);
    }
    return umf_params_give(&umf_devdax_params_kind, made, result, hParams, __func__);
}

typedef struct devdax_provider_t {
    umf_carve_t carve;
    umf_opened_t opened;
    umf_window_t window; /* Immutable after create, as all members below */
    size_t size;         /* whole pages */
    umf_os_dax_t device;
    unsigned protection;
    umf_path_t path;
    umf_name_t name;
} devdax_provider_t;
UMF_CARVE_FIRST(devdax_provider_t, carve);

UMF_PROVIDER_NATIVE(devdax, {UMF_DEVDAX_RESULT_SUCCESS, "success"},
                    {UMF_DEVDAX_RESULT_ERROR_ALLOC_FAILED, "memory allocation failed"},
                    {UMF_DEVDAX_RESULT_ERROR_ADDRESS_NOT_ALIGNED,
                     "allocated address is not aligned"},
                    {UMF_DEVDAX_RESULT_ERROR_FREE_FAILED, "memory deallocation failed"},
                    {UMF_DEVDAX_RESULT_ERROR_PURGE_FORCE_FAILED, "force purging failed"})

/* --- the device ------------------------------------------------------------------------------- */

static bool devdax_path_is_valid(const char *path) {
    return strncmp(path, DEVDAX_PREFIX, strlen(DEVDAX_PREFIX)) == 0 && !umf_path_is_too_long(path);
}

/* The larger of the device's page size and the system's. */
static size_t devdax_granule(const umf_os_dax_t *device) {
    bool is_larger = umf_is_pow2((size_t)device->align) && device->align > DEVDAX_PAGE &&
                     device->align <= UMF_LOCATOR_GRANULE_MAX;
    return is_larger ? (size_t)device->align : DEVDAX_PAGE;
}

static int devdax_open(const char *path, unsigned protection, umf_os_dax_t *device,
                       umf_window_file_t *file) {
    int fd = -1;
    int access = protection & UMF_PROTECTION_WRITE ? O_RDWR : O_RDONLY;
    int error = umf_os_dax_open(path, access | O_NOCTTY | O_NONBLOCK, &fd);
    if (error) {
        return error;
    }
    error = umf_os_dax_info(fd, device);
    if (error) {
        umf_os_close(fd);
        return error;
    }
    *file = (umf_window_file_t){
        .fd = fd,
        .prot = umf_protection_bits(protection),
        .how = UMF_WINDOW_SYNC,
    };
    return 0;
}

static void devdax_log_open(const char *path, int error) {
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "opening the DAX device \"%s\" failed%s",
                  path,
                  error == ENODEV   ? " (it is not a character device)"
                  : error == ENOENT ? " (daxctl list shows the devices there are)"
                                    : "");
}

static void devdax_log_map(const char *path, uint64_t size, int error) {
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                  "mapping %llu bytes of \"%s\" shared and synchronously failed%s",
                  (unsigned long long)size, path,
                  error == EOPNOTSUPP ? " (it is not a DAX device, or the kernel is too old)" : "");
}

/* --- creation --------------------------------------------------------------------------------- */

static umf_result_t devdax_check_params(const umf_devdax_params_t *params) {
    if (!umf_handle_check(params, &umf_devdax_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!devdax_path_is_valid(params->path)) {
        UMF_LOG_ERROR("\"%s\" is no DAX device: their paths begin with " DEVDAX_PREFIX,
                      params->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->size == 0) {
        UMF_LOG_ERROR("0 bytes of \"%s\" are of no use: set the size of the device", params->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_check_size(devdax_provider_t *devdax, size_t requested) {
    if (devdax->device.size != 0 && requested > devdax->device.size) {
        UMF_LOG_ERROR("\"%s\" has %llu bytes, %zu are wanted", devdax->path,
                      (unsigned long long)devdax->device.size, requested);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    devdax->size = requested / devdax_granule(&devdax->device) * devdax_granule(&devdax->device);
    if (devdax->size == 0) {
        UMF_LOG_ERROR("%zu bytes are less than a page of \"%s\", which has %zu", requested,
                      devdax->path, devdax_granule(&devdax->device));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_map(devdax_provider_t *devdax, const umf_window_file_t *file) {
    int error = umf_window_open(&devdax->window, devdax->size, devdax_granule(&devdax->device));
    if (!error) {
        error = umf_window_map(&devdax->window, 0, devdax->size, file, 0);
        if (error) {
            umf_window_close(&devdax->window);
        }
    }
    if (error) {
        devdax_log_map(devdax->path, devdax->size, error);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_divide(devdax_provider_t *devdax) {
    umf_result_t result = umf_carve_init(&devdax->carve, DEVDAX_PAGE);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_carve_add(&devdax->carve, devdax->window.base, devdax->size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_carve_fini(&devdax->carve);
    }
    return result;
}

/* The file is closed after the mapping, which does not need it. */
static umf_result_t devdax_set_up(devdax_provider_t *devdax, size_t requested) {
    umf_window_file_t file;
    int error = devdax_open(devdax->path, devdax->protection, &devdax->device, &file);
    if (error) {
        devdax_log_open(devdax->path, error);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = devdax_check_size(devdax, requested);
    if (result == UMF_RESULT_SUCCESS) {
        result = devdax_map(devdax, &file);
    }
    umf_os_close(file.fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = devdax_divide(devdax);
    if (result != UMF_RESULT_SUCCESS) {
        umf_window_close(&devdax->window);
    }
    return result;
}

static umf_result_t devdax_init(devdax_provider_t *devdax, const umf_devdax_params_t *requested) {
    umf_result_t result = devdax_check_params(requested);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    devdax->protection = requested->protection;
    umf_path_copy(devdax->path, requested->path);
    umf_name_copy(devdax->name, requested->name);
    result = devdax_set_up(devdax, requested->size);
    if (result == UMF_RESULT_SUCCESS) {
        umf_opened_init(&devdax->opened);
    }
    return result;
}

UMF_PROVIDER_INITIALIZE(devdax, devdax_provider_t)

static umf_result_t devdax_finalize(void *provider) {
    devdax_provider_t *devdax = provider;
    umf_opened_fini(&devdax->opened);
    umf_carve_fini(&devdax->carve);
    umf_window_close(&devdax->window);
    umf_meta_free(devdax, sizeof(*devdax));
    return UMF_RESULT_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

static umf_result_t devdax_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    devdax_provider_t *devdax = provider;
    umf_result_t result = size > devdax->size
                              ? UMF_RESULT_ERROR_OUT_OF_RESOURCES
                              : umf_carve_alloc(&devdax->carve, size, alignment, ptr);
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        UMF_LOG_ERROR("no free %zu bytes aligned to %zu in the %zu bytes of \"%s\"", size,
                      alignment, devdax->size, devdax->path);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return result;
}

/* Drops this process's references to the pages. The content stays on the device, whose memory
 * cannot be given to others. */
static umf_result_t devdax_purge_force(void *provider, void *ptr, size_t size) {
    const devdax_provider_t *devdax = provider;
    uintptr_t at = (uintptr_t)ptr - devdax->window.base;
    int error = at > devdax->size || size > devdax->size - at
                    ? EINVAL
                    : umf_os_advise(ptr, size, MADV_DONTNEED);
    if (error) {
        return umf_native_fail_at(&devdax_native, "devdax_provider",
                                  UMF_DEVDAX_RESULT_ERROR_PURGE_FORCE_FAILED, error,
                                  "dropping the contents of", ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- facts ------------------------------------------------------------------------------------ */

UMF_PROVIDER_GET_NAME(devdax, devdax_provider_t, umf_devdax_params)

/* --- sharing ---------------------------------------------------------------------------------- */

static umf_result_t devdax_get_ipc_handle_size(void *provider, size_t *size) {
    *size = umf_locator_size(((const devdax_provider_t *)provider)->path);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_get_ipc_handle(void *provider, const void *ptr, size_t size,
                                          void *data) {
    devdax_provider_t *devdax = provider;
    umf_locator_t locator = {
        .kind = UMF_LOCATOR_DEVICE,
        .dev = devdax->device.dev,
        .offset = (uintptr_t)ptr - devdax->window.base,
        .size = umf_carve_size(&devdax->carve, ptr),
        .granule = devdax_granule(&devdax->device),
        .protection = devdax->protection,
        .visibility = UMF_MEM_MAP_SHARED,
    };
    if (locator.size == 0 || size > locator.size) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes of this provider", ptr, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_locator_write(&locator, devdax->path, data);
    return UMF_RESULT_SUCCESS;
}

/* Nothing to release: a handle holds no resource. */
static umf_result_t devdax_put_ipc_handle(void *provider, void *data) {
    return umf_locator_check_path(data, UMF_LOCATOR_DEVICE,
                                  ((const devdax_provider_t *)provider)->path);
}

static umf_result_t devdax_read(const void *data, umf_locator_t *locator, const char **path) {
    umf_result_t result = umf_locator_read(data, UMF_LOCATOR_DEVICE, locator, path);
    if (result == UMF_RESULT_SUCCESS && !devdax_path_is_valid(*path)) {
        UMF_LOG_ERROR("\"%s\" in a description of memory is no DAX device", *path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

/* Checks that this is the producer's device, and that it is large enough. */
static umf_result_t devdax_check_described(const umf_locator_t *locator, const char *path,
                                           const umf_os_dax_t *device) {
    umf_locator_extent_t extent = umf_locator_extent(locator);
    uint64_t end = extent.offset + extent.size;
    if (locator->dev != device->dev || (device->size != 0 && end > device->size)) {
        UMF_LOG_ERROR(
            "\"%s\" is not the device that was described, or too small: it has %llu bytes, "
            "%llu were described",
            path, (unsigned long long)device->size, (unsigned long long)end);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_map_described(devdax_provider_t *devdax, const umf_locator_t *locator,
                                         const char *path, const umf_window_file_t *file,
                                         void **ptr) {
    int error = umf_opened_map(&devdax->opened, locator, file, ptr);
    if (error) {
        devdax_log_map(path, locator->size, error);
        return error == EOPNOTSUPP
                   ? UMF_RESULT_ERROR_UNKNOWN
                   : umf_native_fail(&devdax_native, UMF_DEVDAX_RESULT_ERROR_ALLOC_FAILED, error);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_open_ipc_handle(void *provider, void *data, void **ptr) {
    devdax_provider_t *devdax = provider;
    umf_locator_t locator;
    const char *path;
    umf_os_dax_t device;
    umf_window_file_t file;
    umf_result_t result = devdax_read(data, &locator, &path);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = devdax_open(path, locator.protection, &device, &file);
    if (error) {
        devdax_log_open(path, error);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    result = devdax_check_described(&locator, path, &device);
    if (result == UMF_RESULT_SUCCESS) {
        result = devdax_map_described(devdax, &locator, path, &file, ptr);
    }
    umf_os_close(file.fd);
    return result;
}

static umf_result_t devdax_close_ipc_handle(void *provider, void *ptr, size_t size) {
    devdax_provider_t *devdax = provider;
    int error = umf_opened_unmap(&devdax->opened, ptr, size);
    if (error) {
        return umf_native_fail_at(&devdax_native, "devdax_provider",
                                  UMF_DEVDAX_RESULT_ERROR_FREE_FAILED, error, "closing", ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t devdax_ipc_check(void *provider, const void *data, size_t size) {
    (void)provider;
    umf_locator_t locator;
    const char *path;
    umf_result_t result = devdax_read(data, &locator, &path);
    return result ? result : umf_locator_check_size(&locator, size);
}

/* --- tables ----------------------------------------------------------------------------------- */

static umf_result_t devdax_probe(char *why, size_t why_size) {
    if (umf_os_dax_probe() == 0) {
        return UMF_RESULT_SUCCESS;
    }
    snprintf(
        why, why_size,
        "this machine has no DAX device; one is made with ndctl create-namespace --mode=devdax "
        "or daxctl reconfigure-device --mode=devdax");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static const umf_memory_provider_ops_t devdax_ops = {
    UMF_PROVIDER_OPS(devdax),    UMF_CARVE_OPS,
    .alloc = devdax_alloc,       .get_last_native_error = devdax_get_last_native_error,
    .get_name = devdax_get_name, .ext_purge_force = devdax_purge_force,
    UMF_IPC_OPS(devdax),
};

static const umf_memory_provider_ext_ops_t devdax_ext_ops = {
    .struct_size = sizeof(devdax_ext_ops),
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE,
    .ipc_check = devdax_ipc_check,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfDevDaxMemoryProviderOps(void) {
    return &devdax_ops;
}

UMF_PROVIDER_DESCRIPTOR(devdax, umf_devdax_params, .ops = &devdax_ops, .ext = &devdax_ext_ops,
                        .probe = devdax_probe);
