/* Sharing memory of a Level Zero provider. */
#include "providers/level_zero/ipc.h"

#include <string.h>

#include "base/log.h"
#include "peer/transport.h"
#include "providers/level_zero/resident.h"
#include "providers/shared/table.h"
#include "system/checksum.h"
#include "system/os.h"

#define HANDLE_MAGIC UINT32_C(0x5A464D55) /* "UMFZ" */
#define HANDLE_VERSION 3

typedef enum ze_way_t {
    ZE_WAY_DRIVER = 1, /* a handle of the driver, whose first bytes are a descriptor */
    ZE_WAY_EXPORT = 2, /* no handle: an exported descriptor of the memory */
} ze_way_t;

/* Fixed width, nothing is padding. */
typedef struct ze_handle_t {
    uint32_t magic;
    uint16_t version;
    uint16_t way;   /* ze_way_t */
    uint64_t check; /* sum of all other fields */
    umf_fd_ticket_t ticket;
    uint64_t size; /* of the allocation */
    ze_ipc_mem_handle_t driver;
} ze_handle_t;

_Static_assert(sizeof(ze_handle_t) == 16 + 96 + 8 + ZE_MAX_IPC_HANDLE_SIZE, "handles travel");

/* --- the bytes -------------------------------------------------------------------------------- */

umf_result_t umf_ze_get_ipc_handle_size(void *provider, size_t *size) {
    (void)provider;
    *size = sizeof(ze_handle_t);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t handle_read(const void *data, ze_handle_t *handle) {
    memcpy(handle, data, sizeof(*handle));
    if (handle->magic != HANDLE_MAGIC || handle->version != HANDLE_VERSION ||
        handle->way < ZE_WAY_DRIVER || handle->way > ZE_WAY_EXPORT ||
        handle->check != umf_sum_of_fields(handle, sizeof(*handle), &handle->check)) {
        UMF_LOG_ERROR("this is not a description of memory by a Level Zero provider, it is of "
                      "another version, or it is damaged");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (handle->size == 0 || handle->size > PTRDIFF_MAX) {
        UMF_LOG_ERROR("a description of %llu bytes cannot be right",
                      (unsigned long long)handle->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static void handle_write(ze_handle_t *handle, void *data) {
    handle->magic = HANDLE_MAGIC;
    handle->version = HANDLE_VERSION;
    handle->check = umf_sum_of_fields(handle, sizeof(*handle), &handle->check);
    memcpy(data, handle, sizeof(*handle));
}

umf_result_t umf_ze_ipc_check(void *provider, const void *data, size_t size) {
    (void)provider;
    ze_handle_t handle;
    umf_result_t result = handle_read(data, &handle);
    if (result == UMF_RESULT_SUCCESS && handle.size != size) {
        UMF_LOG_ERROR("%zu bytes are to be opened, but %llu were described", size,
                      (unsigned long long)handle.size);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

/* --- descriptors ------------------------------------------------------------------------------ */

static int driver_fd(const ze_ipc_mem_handle_t *handle) {
    int fd;
    memcpy(&fd, handle->data, sizeof(fd));
    return fd;
}

/* Whether this process made the ticket and the descriptor still names the same file. The broker is
 * not called. */
static bool ticket_is_own(const umf_fd_ticket_t *ticket) {
    umf_fd_ticket_t now;
    return ticket->pid == (uint32_t)umf_os_pid() &&
           umf_ticket_check_file(ticket, ticket->fd) == 0 &&
           umf_ticket_make(ticket->fd, &now) == UMF_RESULT_SUCCESS &&
           memcmp(&now, ticket, offsetof(umf_fd_ticket_t, address_kind)) == 0;
}

/* --- the producer's side ---------------------------------------------------------------------- */

/* Older loaders have no such function; the descriptor is closed when the memory is freed. */
static umf_result_t driver_put(const umf_ze_provider_t *ze, ze_ipc_mem_handle_t handle) {
    if (!umf_ze.zeMemPutIpcHandle) {
        return UMF_RESULT_SUCCESS;
    }
    return umf_ze_result(umf_ze.zeMemPutIpcHandle(ze->memory.context, handle),
                         "putting an IPC handle");
}

static umf_result_t get_driver_handle(const umf_ze_provider_t *ze, const void *ptr,
                                      ze_handle_t *handle) {
    umf_result_t result =
        umf_ze_result(umf_ze.zeMemGetIpcHandle(ze->memory.context, ptr, &handle->driver),
                      "getting an IPC handle");
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    handle->way = ZE_WAY_DRIVER;
    result = umf_ticket_make(driver_fd(&handle->driver), &handle->ticket);
    if (result != UMF_RESULT_SUCCESS) {
        driver_put(ze, handle->driver);
    }
    return result;
}

/*
 * Who owns the descriptor in ze_external_memory_export_fd_t? The specification calls it "the
 * exported file descriptor handle representing the allocation" and does not say who closes it. By
 * the usual convention each export makes a new one that belongs to the caller. But a driver may
 * keep one for each allocation, return it at every query and close it with the memory. If the
 * caller closes that one, the driver closes its number a second time, which by then may be any
 * other file.
 *
 * Two queries distinguish the cases. A number that both return while it is open belongs to the
 * driver, because otherwise two callers would each close it. A number that is new at each query
 * belongs to the caller, because no other code has it. So the first export makes two queries. The
 * number that is kept and closed here is a copy in either case. The copy is not inherited by
 * programs that this process starts, which would keep the memory.
 */
static umf_result_t query_export(const umf_ze_provider_t *ze, const void *ptr, int *fd) {
    ze_external_memory_export_fd_t exported = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
        .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
        .fd = -1,
    };
    ze_memory_allocation_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
        .pNext = &exported,
    };
    umf_result_t result =
        umf_ze_result(umf_ze.zeMemGetAllocProperties(ze->memory.context, ptr, &properties, NULL),
                      "exporting memory (it must be memory of a device, allocated while "
                      "params.use_import_export_for_IPC was 1)");
    if (result == UMF_RESULT_SUCCESS && exported.fd < 0) {
        UMF_LOG_ERROR("the driver exported %p without a descriptor", ptr);
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    }
    *fd = exported.fd;
    return result;
}

/* Finds the owner by a second query; `fd` was just exported. A failure leaves `fd` open, because
 * its owner is unknown. */
static umf_result_t find_export_owner(umf_ze_provider_t *ze, const void *ptr, int fd,
                                      umf_ze_export_owner_t *owner) {
    *owner = (umf_ze_export_owner_t)__atomic_load_n(&ze->export_owner, __ATOMIC_RELAXED);
    if (*owner != UMF_ZE_EXPORT_OF_NOBODY_YET) {
        return UMF_RESULT_SUCCESS;
    }
    int again;
    umf_result_t result = query_export(ze, ptr, &again);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *owner = again == fd ? UMF_ZE_EXPORT_OF_DRIVER : UMF_ZE_EXPORT_OF_CALLER;
    if (*owner == UMF_ZE_EXPORT_OF_CALLER) {
        umf_os_close(again);
    }
    __atomic_store_n(&ze->export_owner, (int)*owner, __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

/* A descriptor of the memory that this provider owns. */
static umf_result_t export_copy(umf_ze_provider_t *ze, const void *ptr, int *fd) {
    int made;
    umf_ze_export_owner_t owner;
    umf_result_t result = query_export(ze, ptr, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = find_export_owner(ze, ptr, made, &owner);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = umf_os_dup(made, fd);
    if (owner == UMF_ZE_EXPORT_OF_CALLER) {
        umf_os_close(made);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no descriptor to share memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_ze_dmabuf(void *provider, const void *ptr, size_t begin, size_t size, int *fd,
                           size_t *offset) {
    umf_ze_provider_t *ze = provider;
    (void)size;
    if (ze->memory.memory_type != UMF_MEMORY_TYPE_DEVICE ||
        !__atomic_load_n(&ze->exports, __ATOMIC_RELAXED)) {
        UMF_LOG_ERROR("the driver exports memory of a device, allocated while "
                      "params.use_import_export_for_IPC was 1");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!umf_ze_alloc_is_listed(ze, ptr)) {
        UMF_LOG_ERROR("%p is not an allocation of this provider, or freed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = export_copy(ze, ptr, fd);
    if (result == UMF_RESULT_SUCCESS) {
        *offset = begin;
    }
    return result;
}

static umf_result_t get_export(umf_ze_provider_t *ze, const void *ptr, ze_handle_t *handle) {
    int fd;
    umf_result_t result = export_copy(ze, ptr, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    handle->way = ZE_WAY_EXPORT;
    result = umf_ticket_make(fd, &handle->ticket);
    if (result != UMF_RESULT_SUCCESS) {
        umf_os_close(fd);
    }
    return result;
}

umf_result_t umf_ze_get_ipc_handle(void *provider, const void *ptr, size_t size, void *data) {
    umf_ze_provider_t *ze = provider;
    if (!umf_ze_alloc_is_listed(ze, ptr)) {
        UMF_LOG_ERROR("%p is not an allocation of this provider, or freed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    ze_handle_t handle;
    memset(&handle, 0, sizeof(handle));
    handle.size = size;
    umf_ticket_prepare();
    umf_result_t result = __atomic_load_n(&ze->exports, __ATOMIC_RELAXED)
                              ? get_export(ze, ptr, &handle)
                              : get_driver_handle(ze, ptr, &handle);
    if (result == UMF_RESULT_SUCCESS) {
        umf_ticket_publish(&handle.ticket);
        handle_write(&handle, data);
    }
    return result;
}

umf_result_t umf_ze_put_ipc_handle(void *provider, void *data) {
    ze_handle_t handle;
    umf_result_t result = handle_read(data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!ticket_is_own(&handle.ticket)) {
        UMF_LOG_ERROR("process %u made this description, or it was put already", handle.ticket.pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_ticket_drop(&handle.ticket);
    if (handle.way == ZE_WAY_EXPORT) {
        umf_os_close(handle.ticket.fd); /* the copy of export_copy */
        return UMF_RESULT_SUCCESS;
    }
    return driver_put(provider, handle.driver);
}

/* --- the consumer's side ---------------------------------------------------------------------- */

static ze_result_t open_import(const umf_ze_provider_t *ze, int fd, size_t size, void **ptr) {
    ze_external_memory_import_fd_t import = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD,
        .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
        .fd = fd,
    };
    ze_device_mem_alloc_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
        .pNext = &import,
        .ordinal = ze->ordinal,
    };
    return umf_ze.zeMemAllocDevice(ze->memory.context, &desc, size, 0, ze->memory.device, ptr);
}

/* Opens the memory; `fd` is a descriptor of this process for the file that the ticket names. */
static ze_result_t open_with(const umf_ze_provider_t *ze, const ze_handle_t *handle, int fd,
                             void **ptr) {
    if (handle->way == ZE_WAY_EXPORT) {
        return open_import(ze, fd, (size_t)handle->size, ptr);
    }
    ze_ipc_mem_handle_t local = handle->driver;
    memcpy(local.data, &fd, sizeof(fd));
    return umf_ze.zeMemOpenIpcHandle(ze->memory.context, ze->memory.device, local, 0, ptr);
}

static umf_result_t open_any(const umf_ze_provider_t *ze, const ze_handle_t *handle, void **ptr) {
    int fd = handle->ticket.fd;
    bool is_own = ticket_is_own(&handle->ticket);
    if (!is_own) {
        umf_result_t result = umf_ticket_redeem_copy(&handle->ticket, &fd);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    ze_result_t opened = open_with(ze, handle, fd, ptr);
    if (!is_own) {
        umf_os_close(fd);
    }
    return umf_ze_result(opened, "opening shared memory");
}

static ze_result_t close_any(const umf_ze_provider_t *ze, ze_way_t way, void *ptr) {
    return way == ZE_WAY_EXPORT ? umf_ze.zeMemFree(ze->memory.context, ptr)
                                : umf_ze.zeMemCloseIpcHandle(ze->memory.context, ptr);
}

umf_result_t umf_ze_open_ipc_handle(void *provider, void *data, void **ptr) {
    umf_ze_provider_t *ze = provider;
    ze_handle_t handle;
    void *made = NULL;
    umf_result_t result = handle_read(data, &handle);
    if (result == UMF_RESULT_SUCCESS && !ze->memory.device) {
        UMF_LOG_ERROR("a provider of host memory has no device to open shared memory on");
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = open_any(ze, &handle, &made);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!umf_table_put(&ze->lock, &ze->opened, made, (void *)(uintptr_t)handle.way)) {
        UMF_LOG_ERROR("no memory to open shared memory");
        close_any(ze, (ze_way_t)handle.way, made);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *ptr = made;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_ze_close_ipc_handle(void *provider, void *ptr, size_t size) {
    umf_ze_provider_t *ze = provider;
    (void)size;
    void *way = umf_table_take(&ze->lock, &ze->opened, ptr);
    if (!way) {
        UMF_LOG_ERROR("%p was not opened by this provider, or is closed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result =
        umf_ze_given_back(close_any(ze, (ze_way_t)(uintptr_t)way, ptr), "closing shared memory");
    if (result != UMF_RESULT_SUCCESS) {
        umf_table_put(&ze->lock, &ze->opened, ptr, way);
    }
    return result;
}
