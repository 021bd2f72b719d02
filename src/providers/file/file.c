/*
 * File provider: memory in a file that grows on demand (store.h). Other processes open shared
 * memory by the path of the file (locator.h).
 */
#include <errno.h>
#include <fcntl.h>

#include <umf/providers/provider_file_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/file/opened.h"
#include "providers/file/path.h"
#include "providers/file/store.h"
#include "providers/shared/carve_ops.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"
#include "system/os.h"

#define UMF_PARAMS umf_file_params
#define UMF_PARAMS_TABLE "providers/file/file_params.def"
typedef struct umf_file_memory_provider_params_t {
#include "ctl/params_members.h"
} umf_file_params_t;
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsCreate(
    const char *path, umf_file_memory_provider_params_handle_t *hParams) {
    void *made;
    umf_result_t result = umf_params_create(&umf_file_params_kind, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfFileMemoryProviderParamsSetPath(made, path);
    }
    return umf_params_give(&umf_file_params_kind, made, result, hParams, __func__);
}

typedef struct file_provider_t {
    umf_file_store_t store;
    umf_opened_t opened;
    unsigned protection; /* Immutable after create, as all members below */
    bool is_shared;
    umf_name_t name;
} file_provider_t;
UMF_CARVE_FIRST(file_provider_t, store.carve);

UMF_PROVIDER_NATIVE(file, {UMF_FILE_RESULT_SUCCESS, "success"},
                    {UMF_FILE_RESULT_ERROR_ALLOC_FAILED, "memory allocation failed"},
                    {UMF_FILE_RESULT_ERROR_FREE_FAILED, "memory deallocation failed"},
                    {UMF_FILE_RESULT_ERROR_PURGE_FORCE_FAILED, "force purging failed"})

/* --- creation --------------------------------------------------------------------------------- */

static umf_result_t file_check_params(const umf_file_params_t *params) {
    if (!umf_handle_check(params, &umf_file_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!*params->path) {
        UMF_LOG_ERROR("the file provider needs a path, as in file:path=/mnt/fast/memory");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_access_check(params->protection, params->visibility);
}

static umf_result_t file_init(file_provider_t *file, const umf_file_params_t *requested) {
    umf_result_t result = file_check_params(requested);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_file_store_init(&file->store, requested->path, requested->protection,
                                 requested->visibility);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_opened_init(&file->opened);
    file->protection = requested->protection;
    file->is_shared = requested->visibility == UMF_MEM_MAP_SHARED;
    umf_name_copy(file->name, requested->name);
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_INITIALIZE(file, file_provider_t)

static umf_result_t file_finalize(void *provider) {
    file_provider_t *file = provider;
    umf_opened_fini(&file->opened);
    umf_file_store_fini(&file->store);
    umf_meta_free(file, sizeof(*file));
    return UMF_RESULT_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

static umf_result_t file_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    int error = 0;
    umf_result_t result =
        umf_file_store_alloc(&((file_provider_t *)provider)->store, size, alignment, ptr, &error);
    if (error) {
        umf_native_fail(&file_native, UMF_FILE_RESULT_ERROR_ALLOC_FAILED, error);
    }
    return result;
}

/* A full disk is UNKNOWN, with a native error. */
static int file_is_shortage(void *provider, umf_result_t result) {
    (void)provider;
    return result == UMF_RESULT_ERROR_UNKNOWN &&
           file_native.code == UMF_FILE_RESULT_ERROR_ALLOC_FAILED &&
           umf_errno_is_shortage(file_native.errnum);
}

static umf_result_t file_purge_force(void *provider, void *ptr, size_t size) {
    file_provider_t *file = provider;
    int error = umf_file_store_purge(&file->store, ptr, size);
    if (error) {
        return umf_native_fail_at(&file_native, "file_provider",
                                  UMF_FILE_RESULT_ERROR_PURGE_FORCE_FAILED, error,
                                  "dropping the contents of", ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- facts ------------------------------------------------------------------------------------ */

UMF_PROVIDER_GET_NAME(file, file_provider_t, umf_file_params)

/* --- sharing ---------------------------------------------------------------------------------- */

static umf_result_t file_get_ipc_handle_size(void *provider, size_t *size) {
    const file_provider_t *file = provider;
    if (!umf_access_can_share(file->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = umf_locator_size(file->store.path);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_ipc_handle(void *provider, const void *ptr, size_t size, void *data) {
    file_provider_t *file = provider;
    if (!umf_access_can_share(file->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_locator_t locator = {
        .kind = UMF_LOCATOR_FILE,
        .dev = file->store.kept.identity.dev,
        .ino = file->store.kept.identity.ino,
        .size = umf_carve_size(&file->store.carve, ptr),
        .granule = file->store.carve.page_size,
        .protection = file->protection,
        .visibility = UMF_MEM_MAP_SHARED,
    };
    if (locator.size == 0 || size > locator.size ||
        !umf_file_store_locate(&file->store, ptr, (size_t)locator.size, &locator.offset)) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes of this provider", ptr, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_locator_write(&locator, file->store.path, data);
    return UMF_RESULT_SUCCESS;
}

/* Nothing to release: a handle holds no resource. */
static umf_result_t file_put_ipc_handle(void *provider, void *data) {
    const file_provider_t *file = provider;
    return umf_access_can_share(file->is_shared)
               ? umf_locator_check_path(data, UMF_LOCATOR_FILE, file->store.path)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* A mapping beyond the end of a file succeeds, but an access there ends the process. So the size is
 * checked first. */
static int file_check_described(int fd, const umf_locator_t *locator) {
    umf_locator_extent_t extent = umf_locator_extent(locator);
    uint64_t dev, ino, size;
    int error = umf_os_check_regular(fd);
    if (!error) {
        error = umf_os_file_id(fd, &dev, &ino, &size);
    }
    if (error) {
        return error;
    }
    if (dev != locator->dev || ino != locator->ino) {
        return ESTALE;
    }
    return extent.offset + extent.size > size ? ERANGE : 0;
}

static int file_open_described(const umf_locator_t *locator, const char *path, int *fd) {
    int opened;
    int access = locator->protection & UMF_PROTECTION_WRITE ? O_RDWR : O_RDONLY;
    int error = umf_os_open(path, access | O_NOCTTY | O_NONBLOCK, 0, &opened);
    if (error) {
        return error;
    }
    error = file_check_described(opened, locator);
    if (error) {
        umf_os_close(opened);
        return error;
    }
    *fd = opened;
    return 0;
}

static void file_log_described(const umf_locator_t *locator, const char *path, int error) {
    if (error == ESTALE) {
        UMF_LOG_ERROR("\"%s\" is not the file that was described: it was replaced since, or the "
                      "producer sees other folders",
                      path);
    } else if (error == ERANGE) {
        UMF_LOG_ERROR("the description reaches to byte %llu of \"%s\", behind the end of the file",
                      (unsigned long long)(locator->offset + locator->size), path);
    } else {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "opening the file \"%s\" of another process failed", path);
    }
}

/* Maps the memory as the producer has mapped it, so that both see the same pages. */
static int file_map_described(file_provider_t *file, const umf_locator_t *locator, int fd,
                              void **ptr) {
    umf_window_file_t source = {
        .fd = fd,
        .prot = umf_protection_bits(locator->protection),
        .how = locator->granule > umf_os_page_size() ? UMF_WINDOW_SYNC : UMF_WINDOW_SHARED,
    };
    return umf_opened_map(&file->opened, locator, &source, ptr);
}

static umf_result_t file_open_ipc_handle(void *provider, void *data, void **ptr) {
    file_provider_t *file = provider;
    umf_locator_t locator;
    const char *path;
    int fd;
    if (!umf_access_can_share(file->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_locator_read(data, UMF_LOCATOR_FILE, &locator, &path);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = file_open_described(&locator, path, &fd);
    if (error) {
        file_log_described(&locator, path, error);
        return error == EMFILE || error == ENFILE || error == ENOMEM
                   ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                   : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    error = file_map_described(file, &locator, fd, ptr);
    umf_os_close(fd);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "mapping %llu bytes of \"%s\" failed",
                      (unsigned long long)locator.size, path);
        return umf_native_fail(&file_native, UMF_FILE_RESULT_ERROR_ALLOC_FAILED, error);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_close_ipc_handle(void *provider, void *ptr, size_t size) {
    file_provider_t *file = provider;
    if (!umf_access_can_share(file->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int error = umf_opened_unmap(&file->opened, ptr, size);
    if (error) {
        return umf_native_fail_at(&file_native, "file_provider", UMF_FILE_RESULT_ERROR_FREE_FAILED,
                                  error, "closing", ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_ipc_check(void *provider, const void *data, size_t size) {
    const file_provider_t *file = provider;
    umf_locator_t locator;
    const char *path;
    if (!umf_access_can_share(file->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_locator_read(data, UMF_LOCATOR_FILE, &locator, &path);
    return result ? result : umf_locator_check_size(&locator, size);
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t file_ops = {
    UMF_PROVIDER_OPS(file),    UMF_CARVE_OPS,
    .alloc = file_alloc,       .get_last_native_error = file_get_last_native_error,
    .get_name = file_get_name, .ext_purge_force = file_purge_force,
    UMF_IPC_OPS(file),
};

static const umf_memory_provider_ext_ops_t file_ext_ops = {
    .struct_size = sizeof(file_ext_ops),
    .is_shortage = file_is_shortage,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE,
    .ipc_check = file_ipc_check,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfFileMemoryProviderOps(void) {
    return &file_ops;
}

UMF_PROVIDER_DESCRIPTOR(file, umf_file_params, .ops = &file_ops, .ext = &file_ext_ops);
