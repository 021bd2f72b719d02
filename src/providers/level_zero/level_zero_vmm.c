/* Level_zero_vmm provider: virtual memory of Level Zero. See vmm/vmm.h. */
#include <stdio.h>

#include "base/aligned_map.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"
#include "providers/gpu/capture.h"
#include "providers/level_zero/copy.h"
#include "providers/level_zero/level_zero_vmm_params.h"
#include "providers/level_zero/machine.h"
#include "providers/level_zero/wait.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/shared/table.h"
#include "providers/vmm/ops.h"
#include "system/os.h"

/* The page size grows with the size of the memory; that of large memory fits any size. */
#define LARGE_SIZE ((size_t)1 << 30)

typedef struct ze_vmm_t {
    union {
        umf_vmm_t vmm;
        umf_ze_memory_t memory; /* in the head of vmm */
    };
    /* Immutable after create, as all members without a note. Numbers of peer devices count devices
     * that are no GPUs, too. */
    bool any_type;
    umf_level_zero_vmm_free_policy_t free_policy;
    umf_ze_wait_t wait;
    char name[UMF_NAME_MAX];
    umf_lock_t lock;  /* UMF_RANK_PROVIDER */
    umf_hash_t wider; /* ze_vmm_range_t by aligned address. Sync: lock */
} ze_vmm_t;
UMF_VMM_FIRST(ze_vmm_t);
UMF_VMM_HEAD_FITS(umf_ze_memory_t);
UMF_ZE_MEMORY_FIRST(ze_vmm_t);

/* A reservation that is larger than the range in use, so that it contains an aligned one. */
typedef struct ze_vmm_range_t {
    void *start;
    size_t size;
} ze_vmm_range_t;

/* A lost device holds no memory, so giving back has succeeded. */
static umf_result_t ze_vmm_given_back(ze_result_t result, const char *what) {
    umf_result_t logged = umf_ze_given_back(result, what);
    return result == ZE_RESULT_ERROR_DEVICE_LOST ? UMF_RESULT_SUCCESS : logged;
}

/* --- addresses -------------------------------------------------------------------------------- */

/* An aligned address with room behind it. Drivers try to reserve the requested address, and the
 * loader's validation insists on a request. NULL: there is none. */
static void *ze_vmm_request(size_t size, size_t alignment) {
    void *start;
    if (umf_os_reserve_aligned(size, alignment, &start)) {
        return NULL;
    }
    umf_os_unmap(start, size);
    return start;
}

/* Reserves a larger range that contains an aligned one. All of it stays reserved until the aligned
 * range is given back. */
static umf_result_t ze_vmm_reserve_wider(ze_vmm_t *ze, size_t size, size_t alignment,
                                         uintptr_t *base) {
    ze_vmm_range_t *range = umf_meta_alloc(sizeof(*range));
    if (!range) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!umf_add(size, alignment, &range->size)) {
        umf_meta_free(range, sizeof(*range));
        UMF_LOG_ERROR("%zu bytes cannot be aligned to %zu", size, alignment);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_ze_result(
        umf_ze.zeVirtualMemReserve(ze->memory.context, ze_vmm_request(range->size, alignment),
                                   range->size, &range->start),
        "reserving addresses");
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(range, sizeof(*range));
        return result;
    }
    uintptr_t aligned = umf_align_up((uintptr_t)range->start, alignment);
    if (!umf_table_put(&ze->lock, &ze->wider, (void *)aligned, range)) {
        umf_ze.zeVirtualMemFree(ze->memory.context, range->start, range->size);
        umf_meta_free(range, sizeof(*range));
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *base = aligned;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_vmm_reserve(void *backend, size_t size, size_t alignment, uintptr_t *base) {
    ze_vmm_t *ze = backend;
    void *start = NULL;
    umf_result_t result =
        umf_ze_result(umf_ze.zeVirtualMemReserve(ze->memory.context,
                                                 ze_vmm_request(size, alignment), size, &start),
                      "reserving addresses");
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if ((uintptr_t)start % alignment == 0) {
        *base = (uintptr_t)start;
        return UMF_RESULT_SUCCESS;
    }
    result = ze_vmm_given_back(umf_ze.zeVirtualMemFree(ze->memory.context, start, size),
                               "giving back addresses");
    return result ? result : ze_vmm_reserve_wider(ze, size, alignment, base);
}

static umf_result_t ze_vmm_unreserve(void *backend, uintptr_t base, size_t size) {
    ze_vmm_t *ze = backend;
    ze_vmm_range_t *wider = umf_table_take(&ze->lock, &ze->wider, (void *)base);
    ze_result_t result =
        wider ? umf_ze.zeVirtualMemFree(ze->memory.context, wider->start, wider->size)
              : umf_ze.zeVirtualMemFree(ze->memory.context, (void *)base, size);
    umf_meta_free(wider, sizeof(*wider));
    return ze_vmm_given_back(result, "giving back addresses");
}

/* --- physical memory -------------------------------------------------------------------------- */

/* A lack of device memory has its own result, as with other GPUs and unlike the Level Zero
 * provider: the caller of a resume must learn that memory is missing. */
static umf_result_t ze_vmm_create(void *backend, size_t size, umf_physical_t *physical) {
    const ze_vmm_t *ze = backend;
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
    ze_physical_mem_handle_t handle = NULL;
    ze_result_t made =
        umf_ze.zePhysicalMemCreate(ze->memory.context, ze->memory.device, &desc, &handle);
    umf_result_t result = umf_ze_result(made, "making physical memory");
    if (made == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (result == UMF_RESULT_SUCCESS) {
        *physical = (umf_physical_t)(uintptr_t)handle;
    }
    return result;
}

static ze_physical_mem_handle_t ze_vmm_handle(umf_physical_t physical) {
    return (ze_physical_mem_handle_t)(uintptr_t)physical;
}

static umf_result_t ze_vmm_destroy(void *backend, umf_physical_t physical) {
    const ze_vmm_t *ze = backend;
    return ze_vmm_given_back(
        umf_ze.zePhysicalMemDestroy(ze->memory.context, ze_vmm_handle(physical)),
        "giving back physical memory");
}

static umf_result_t ze_vmm_map(void *backend, uintptr_t base, size_t size,
                               umf_physical_t physical) {
    const ze_vmm_t *ze = backend;
    return umf_ze_result(umf_ze.zeVirtualMemMap(ze->memory.context, (void *)base, size,
                                                ze_vmm_handle(physical), 0,
                                                ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE),
                         "mapping memory");
}

static umf_result_t ze_vmm_unmap(void *backend, uintptr_t base, size_t size) {
    const ze_vmm_t *ze = backend;
    return ze_vmm_given_back(umf_ze.zeVirtualMemUnmap(ze->memory.context, (void *)base, size),
                             "unmapping memory");
}

/* A device that is lost runs no work, so its memory can be unmapped, too. Twice if the first wait
 * fails: it may return the error of earlier work. */
static umf_result_t ze_vmm_wait_devices(const ze_vmm_t *ze) {
    ze_result_t result = umf_ze_wait_all(&ze->wait);
    if (result != ZE_RESULT_SUCCESS) {
        result = umf_ze_wait_all(&ze->wait);
    }
    umf_result_t logged = umf_ze_given_back(result, "waiting for work on the device");
    return result == ZE_RESULT_ERROR_DEVICE_LOST ? UMF_RESULT_SUCCESS : logged;
}

static umf_result_t ze_vmm_settle(void *backend) {
    const ze_vmm_t *ze = backend;
    const void *queue;
    if (ze->free_policy == UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE || !ze->wait.synchronize) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_capture_enter_wait(&queue)) {
        UMF_LOG_DEBUG("queue %p is captured: freed memory stays mapped", queue);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_result_t result = ze_vmm_wait_devices(ze);
    umf_capture_leave_wait();
    return result;
}

static const umf_vmm_backend_t ze_vmm_backend = {
    .private_result = UMF_RESULT_ERROR_NOT_SUPPORTED,
    .private_text = "Level Zero cannot give the memory of level_zero_vmm to other processes: use "
                    "the provider level_zero to share memory",
    .reserve = ze_vmm_reserve,
    .unreserve = ze_vmm_unreserve,
    .create = ze_vmm_create,
    .destroy = ze_vmm_destroy,
    .map = ze_vmm_map,
    .unmap = ze_vmm_unmap,
    .is_shortage = umf_ze_is_shortage,
    .settle = ze_vmm_settle,
    .unmaps_one = true,
    .kind = 4,
    .is_device = true,
};

/* --- creation --------------------------------------------------------------------------------- */

static bool driver_has_vmm(void) {
    return umf_ze.zeVirtualMemReserve && umf_ze.zeVirtualMemFree &&
           umf_ze.zeVirtualMemQueryPageSize && umf_ze.zeVirtualMemMap && umf_ze.zeVirtualMemUnmap &&
           umf_ze.zePhysicalMemCreate && umf_ze.zePhysicalMemDestroy;
}

static bool ze_vmm_is_there(char *why, size_t why_size) {
    bool is_there = umf_ze_is_there(why, why_size);
    if (is_there && !driver_has_vmm()) {
        snprintf(why, why_size,
                 "this Level Zero loader has no virtual memory: install a newer one (libze1)");
        return false;
    }
    return is_there;
}

static umf_result_t ze_vmm_take_context(ze_vmm_t *ze, const umf_ze_vmm_params_t *requested) {
    if (requested->context) {
        ze->memory.context = requested->context;
        ze->memory.device = requested->device;
        return UMF_RESULT_SUCCESS;
    }
    umf_ze_location_t location;
    umf_result_t result = umf_ze_find_device(&requested->request, &location);
    if (result == UMF_RESULT_SUCCESS) {
        ze->memory.device = location.device;
        result = umf_ze_make_context(location.owner, &ze->memory.context);
        ze->memory.owns_context = result == UMF_RESULT_SUCCESS;
    }
    return result;
}

static void ze_vmm_drop_context(ze_vmm_t *ze) {
    if (ze->memory.owns_context) {
        ze_vmm_given_back(umf_ze.zeContextDestroy(ze->memory.context), "destroying the context");
    }
}

static umf_result_t ze_vmm_check_page_size(size_t page_size) {
    if (!umf_is_pow2(page_size)) {
        UMF_LOG_ERROR("the driver says that pages have %zu bytes, which is no power of two",
                      page_size);
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_vmm_start(ze_vmm_t *ze, const umf_ze_vmm_params_t *requested) {
    size_t page_size = 0;
    umf_result_t result = umf_ze_cache_line_size(ze->memory.device, &ze->memory.cache_line_size);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ze_wait_init(ze->memory.device, &ze->wait);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ze_result(umf_ze.zeVirtualMemQueryPageSize(
                                   ze->memory.context, ze->memory.device, LARGE_SIZE, &page_size),
                               "asking for the page size");
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = ze_vmm_check_page_size(page_size);
    }
    return result ? result
                  : umf_vmm_init(&ze->vmm, &ze_vmm_backend, page_size, requested->piece_size);
}

static umf_result_t ze_vmm_init(ze_vmm_t *ze, const umf_ze_vmm_params_t *requested) {
    if (!umf_handle_check(requested, &umf_ze_vmm_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char why[512];
    if (!ze_vmm_is_there(why, sizeof(why))) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    ze->memory.memory_type = UMF_MEMORY_TYPE_DEVICE;
    ze->any_type = requested->request.any_type;
    ze->free_policy = requested->free_policy;
    umf_name_copy(ze->name, requested->name);
    umf_result_t result = ze_vmm_take_context(ze, requested);
    if (result == UMF_RESULT_SUCCESS) {
        result = ze_vmm_start(ze, requested);
    }
    if (result != UMF_RESULT_SUCCESS) {
        ze_vmm_drop_context(ze);
        return result;
    }
    umf_lock_init(&ze->lock, UMF_RANK_PROVIDER);
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_INITIALIZE(ze_vmm, ze_vmm_t)

static umf_result_t ze_vmm_finalize(void *provider) {
    ze_vmm_t *ze = provider;
    umf_vmm_fini(&ze->vmm);
    ze_vmm_drop_context(ze);
    umf_lock_destroy(&ze->lock);
    umf_hash_fini(&ze->wider);
    umf_meta_free(ze, sizeof(*ze));
    return UMF_RESULT_SUCCESS;
}

/* --- operations ------------------------------------------------------------------------------- */

UMF_PROVIDER_GET_NAME(ze_vmm, ze_vmm_t, umf_ze_vmm_params)

/* --- data ------------------------------------------------------------------------------------- */

/* A driver that cannot wait is not waited for; provider_level_zero_vmm.h says so. */
static umf_result_t ze_vmm_wait_all(const ze_vmm_t *ze) {
    const void *queue;
    if (!ze->wait.synchronize) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_capture_enter_wait(&queue)) {
        UMF_LOG_ERROR("waiting for the device would end the capture of queue %p: name the queues "
                      "or events that use the memory",
                      queue);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_result_t result = umf_ze_result(umf_ze_wait_all(&ze->wait), "waiting for queued work");
    umf_capture_leave_wait();
    return result;
}

static umf_result_t ze_vmm_wait(void *provider, void *const *queues, size_t num_queues,
                                void *const *events, size_t num_events) {
    return num_queues || num_events ? umf_ze_wait_for(queues, num_queues, events, num_events)
                                    : ze_vmm_wait_all(provider);
}

/* --- memory of other devices ------------------------------------------------------------------ */

static bool ze_vmm_reaches(const ze_vmm_t *ze, ze_device_handle_t device) {
    ze_bool_t can = 0;
    return device == ze->memory.device ||
           (umf_ze.zeDeviceCanAccessPeer &&
            umf_ze.zeDeviceCanAccessPeer(ze->memory.device, device, &can) == ZE_RESULT_SUCCESS &&
            can);
}

/* Looks among the devices of the same driver: others cannot have memory in the context. */
static umf_result_t ze_vmm_find_peer(const ze_vmm_t *ze, int number, ze_device_handle_t *peer) {
    ze_driver_handle_t owner;
    umf_result_t result = umf_ze_result(umf_ze_owner(ze->memory.device, &owner),
                                        "looking for the driver of a device");
    if (result == UMF_RESULT_SUCCESS && !owner) {
        UMF_LOG_ERROR("no Level Zero driver of this machine lists the device %p",
                      (void *)ze->memory.device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result ? result : umf_ze_find_beside(owner, ze->any_type, (unsigned)number, peer);
}

static umf_result_t ze_vmm_peer_alloc(void *provider, int device, size_t size, void **ptr) {
    const ze_vmm_t *ze = provider;
    ze_device_handle_t peer;
    umf_result_t result = ze_vmm_find_peer(ze, device, &peer);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!ze_vmm_reaches(ze, peer)) {
        UMF_LOG_ERROR("the provider's device cannot reach device %d", device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    const ze_device_mem_alloc_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
        .pNext = &umf_ze_relaxed,
    };
    void *made = NULL;
    result = umf_ze_result(umf_ze.zeMemAllocDevice(ze->memory.context, &desc, size, 0, peer, &made),
                           "making memory on another device");
    if (result == UMF_RESULT_SUCCESS) {
        *ptr = made;
    }
    return result;
}

static umf_result_t ze_vmm_peer_free(void *provider, void *ptr, size_t size) {
    const ze_vmm_t *ze = provider;
    (void)size;
    return ze_vmm_given_back(umf_ze.zeMemFree(ze->memory.context, ptr),
                             "giving back memory of another device");
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t ze_vmm_ops = {
    UMF_PROVIDER_OPS(ze_vmm),
    UMF_VMM_OPS,
    .get_name = ze_vmm_get_name,
    UMF_ZE_OPS,
};

static const umf_memory_provider_ext_ops_t ze_vmm_ext_ops = {
    .struct_size = sizeof(ze_vmm_ext_ops),
    .is_shortage = umf_ze_is_shortage,
    UMF_VMM_EXT_OPS,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE,
    UMF_ZE_QUEUE_OPS,
    .wait = ze_vmm_wait,
    .peer_alloc = ze_vmm_peer_alloc,
    .peer_free = ze_vmm_peer_free,
};

UMF_API_EXT_1 const umf_memory_provider_ops_t *umfLevelZeroVmmMemoryProviderOps(void) {
    return &ze_vmm_ops;
}

static umf_result_t ze_vmm_probe(char *why, size_t why_size) {
    return ze_vmm_is_there(why, why_size) ? umf_ze_probe(why, why_size)
                                          : UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
}

UMF_PROVIDER_DESCRIPTOR(level_zero_vmm, umf_ze_vmm_params, .ops = &ze_vmm_ops,
                        .ext = &ze_vmm_ext_ops, .probe = ze_vmm_probe);
