/* Shared allocations of the OS provider. */
#include "providers/os/export.h"

#include <errno.h>
#include <string.h>

#include "base/aligned_map.h"
#include "base/log.h"
#include "base/meta.h"
#include "peer/process.h"
#include "providers/os/params.h"
#include "providers/shared/protection.h"
#include "providers/shared/table.h"
#include "system/os.h"

typedef struct allocation_t {
    umf_os_share_t *share;
    uint64_t offset;
    size_t size;         /* whole pages */
    size_t requested;    /* bytes that the caller requested */
    uint64_t generation; /* with slot; 0: never exported. Sync: the provider's lock */
    uint32_t slot;
} allocation_t;

umf_result_t umf_os_export_init(umf_os_export_t *exports, umf_lock_t *lock, const char *name,
                                unsigned protection) {
    umf_os_share_t *share;
    umf_result_t result = umf_os_share_create(name, &share);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *exports = (umf_os_export_t){
        .lock = lock,
        .shares = share,
        .page_size = umf_os_page_size(),
        .protection = protection,
        .name_length = strlen(share->name),
        .is_limited = share->is_limited,
        .pid = umf_process_pid(),
    };
    return UMF_RESULT_SUCCESS;
}

void umf_os_export_fini(umf_os_export_t *exports) {
    umf_table_fini(&exports->allocations, sizeof(allocation_t));
    for (umf_os_share_t *share = exports->shares, *next; share; share = next) {
        next = share->next;
        umf_os_share_destroy(share);
    }
}

static allocation_t *export_find_locked(const umf_os_export_t *exports, const void *ptr) {
    umf_assert_locked(exports->lock);
    return umf_hash_get(&exports->allocations, (uintptr_t)ptr);
}

/* A caller may name the size that it requested, or that size in whole pages. */
static bool allocation_fits(const void *value, size_t size) {
    const allocation_t *allocation = value;
    size_t rounded;
    return size != 0 &&
           (size == allocation->requested ||
            (umf_round_up(size, umf_os_page_size(), &rounded) && rounded == allocation->size));
}

/* --- alloc ------------------------------------------------------------------------------------ */

/* The file to allocate from. A forked child creates an anonymous one: the name belongs to its
 * parent, and both must not divide one file. */
static umf_os_share_t *export_share_locked(umf_os_export_t *exports) {
    umf_assert_locked(exports->lock);
    if (umf_os_share_is_mine(exports->shares)) {
        return exports->shares;
    }
    umf_os_share_t *share;
    if (umf_os_share_create(NULL, &share) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    share->next = exports->shares;
    exports->shares = share;
    return share;
}

static int export_take(umf_os_export_t *exports, allocation_t *allocation) {
    umf_lock(exports->lock);
    int error = ENOMEM;
    allocation->share = export_share_locked(exports);
    if (allocation->share) {
        error = umf_os_share_take(allocation->share, allocation->size, &allocation->offset);
    }
    umf_unlock(exports->lock);
    return error;
}

/* `is_clear`: the range was never used and still reads as zero. */
static void export_give(umf_os_export_t *exports, const allocation_t *allocation, bool is_clear) {
    bool reuse =
        is_clear || umf_os_share_clear(allocation->share, allocation->offset, allocation->size);
    if (reuse) {
        umf_lock(exports->lock);
        umf_os_share_give(allocation->share, allocation->offset);
        umf_unlock(exports->lock);
    }
}

static int export_map(umf_os_export_t *exports, allocation_t *allocation, size_t alignment,
                      void **ptr) {
    void *base;
    int error = umf_os_share_map(allocation->share, allocation->offset, allocation->size, alignment,
                                 umf_protection_bits(exports->protection), &base);
    if (error) {
        if (allocation->share->secret) {
            UMF_LOG_ERROR("memory of memfd_secret is locked: RLIMIT_MEMLOCK (ulimit -l) may be too "
                          "small for %zu bytes more",
                          allocation->size);
        }
        return error;
    }
    if (!umf_table_put(exports->lock, &exports->allocations, base, allocation)) {
        umf_os_unmap(base, allocation->size);
        return ENOMEM;
    }
    *ptr = base;
    return 0;
}

int umf_os_export_alloc(umf_os_export_t *exports, size_t size, size_t alignment, void **ptr) {
    size_t rounded;
    if (size == 0) {
        return EINVAL;
    }
    if (!umf_round_up(size, exports->page_size, &rounded)) {
        return ENOMEM;
    }
    allocation_t *allocation = umf_meta_alloc(sizeof(*allocation));
    if (!allocation) {
        return ENOMEM;
    }
    allocation->size = rounded;
    allocation->requested = size;
    int error = export_take(exports, allocation);
    if (!error) {
        error = export_map(exports, allocation, alignment, ptr);
        if (error) {
            export_give(exports, allocation, true);
        }
    }
    if (error) {
        umf_meta_free(allocation, sizeof(*allocation));
    }
    return error;
}

/* --- free ------------------------------------------------------------------------------------- */

/* Ends the export before the memory is released: no process may open it afterwards. An inherited
 * export belongs to the parent and stays. */
static void export_retire(umf_os_export_t *exports, allocation_t *allocation) {
    umf_lock(exports->lock);
    if (umf_os_share_is_mine(allocation->share)) {
        umf_board_retire(&allocation->share->board, allocation->slot, allocation->generation);
    }
    umf_unlock(exports->lock);
}

int umf_os_export_free(umf_os_export_t *exports, void *ptr, size_t size, size_t *requested) {
    allocation_t *allocation =
        umf_table_take_if(exports->lock, &exports->allocations, ptr, allocation_fits, size);
    if (!allocation) {
        UMF_LOG_ERROR("%p is not a shared allocation of %zu bytes of this provider", ptr, size);
        return EINVAL;
    }
    int error = umf_os_unmap(ptr, allocation->size);
    if (error) {
        if (!umf_table_put_back(exports->lock, &exports->allocations, ptr, allocation)) {
            umf_meta_free(allocation, sizeof(*allocation));
        }
        return error;
    }
    export_retire(exports, allocation);
    if (umf_os_share_is_mine(allocation->share)) {
        export_give(exports, allocation, false);
    }
    *requested = allocation->requested;
    umf_meta_free(allocation, sizeof(*allocation));
    return 0;
}

/* --- split and merge -------------------------------------------------------------------------- */

/* Both parts keep the slot: a free of either part ends the export of the whole. */
static umf_result_t export_split_locked(umf_os_export_t *exports, allocation_t *low, void *ptr,
                                        size_t first, allocation_t *high) {
    if (!umf_hash_reserve(&exports->allocations, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_os_share_split(low->share, low->offset, low->size, first);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *high = *low;
    high->offset += first;
    high->size -= first;
    high->requested -= low->requested < first ? low->requested : first;
    low->requested -= high->requested;
    low->size = first;
    umf_hash_put(&exports->allocations, (uintptr_t)ptr + first, high);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_os_export_split(umf_os_export_t *exports, void *ptr, size_t total, size_t first) {
    allocation_t *high = umf_meta_alloc(sizeof(*high));
    if (!high) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock(exports->lock);
    allocation_t *low = export_find_locked(exports, ptr);
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;
    if (!low) {
        UMF_LOG_ERROR("%p is not a shared allocation of this provider", ptr);
    } else if (!allocation_fits(low, total) || first == 0 || first >= low->size ||
               first % exports->page_size) {
        UMF_LOG_ERROR("the %zu bytes at %p cannot be split after %zu of %zu bytes; parts are whole "
                      "pages",
                      low->size, ptr, first, total);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    } else {
        result = export_split_locked(exports, low, ptr, first, high);
    }
    umf_unlock(exports->lock);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(high, sizeof(*high));
    }
    return result;
}

/* The slot of the low part stays. The slot of the high part is retired: its importers see that
 * memory as freed. */
static umf_result_t export_merge_locked(umf_os_export_t *exports, allocation_t *low, void *ptr,
                                        allocation_t *high, size_t total) {
    size_t whole = low->size + high->size;
    size_t rounded;
    if (low->share != high->share || low->offset + low->size != high->offset ||
        !umf_round_up(total, exports->page_size, &rounded) ||
        (rounded != whole && total != low->requested + high->requested)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_os_share_merge(low->share, low->offset, high->offset, whole);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (high->slot != low->slot || high->generation != low->generation) {
        umf_board_retire(&high->share->board, high->slot, high->generation);
    }
    low->size = whole;
    low->requested += high->requested;
    umf_hash_remove(&exports->allocations, (uintptr_t)ptr);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_os_export_merge(umf_os_export_t *exports, void *low_ptr, void *high_ptr,
                                 size_t total) {
    umf_lock(exports->lock);
    allocation_t *low = export_find_locked(exports, low_ptr);
    allocation_t *high = export_find_locked(exports, high_ptr);
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;
    if (!low || !high) {
        UMF_LOG_ERROR("%p is not a shared allocation of this provider", low ? high_ptr : low_ptr);
    } else {
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
        if ((char *)low_ptr + low->size == (char *)high_ptr) {
            result = export_merge_locked(exports, low, high_ptr, high, total);
        }
        if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT) {
            UMF_LOG_ERROR(
                "%p and %p are not neighbours of together %zu bytes in memory and in their "
                "file",
                low_ptr, high_ptr, total);
        }
    }
    umf_unlock(exports->lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_meta_free(high, sizeof(*high));
    }
    return result;
}

/* --- handles ---------------------------------------------------------------------------------- */

static umf_result_t export_claim_slot_locked(allocation_t *allocation) {
    if (umf_board_is_live(&allocation->share->board, allocation->slot, allocation->generation)) {
        return UMF_RESULT_SUCCESS;
    }
    return umf_board_claim(&allocation->share->board, &allocation->slot, &allocation->generation);
}

static umf_result_t export_describe_locked(umf_os_export_t *exports, const void *ptr, size_t size,
                                           umf_os_handle_t *handle, umf_os_share_t **share) {
    allocation_t *allocation = export_find_locked(exports, ptr);
    if (!allocation || size > allocation->size) {
        UMF_LOG_ERROR("%p is not a shared allocation of %zu bytes of this provider", ptr, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_os_share_is_mine(allocation->share)) {
        UMF_LOG_ERROR("%p was inherited from process %d: only that one can share it", ptr,
                      allocation->share->owner);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int error = umf_os_share_check(allocation->share);
    if (error) {
        return umf_os_native_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error);
    }
    umf_result_t result = export_claim_slot_locked(allocation);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *share = allocation->share;
    if (!allocation->share->name[0] && allocation->share->ticket.export_id == 0) {
        umf_ticket_publish(&allocation->share->ticket);
    }
    *handle = (umf_os_handle_t){
        .ticket = allocation->share->ticket,
        .offset = allocation->offset,
        .size = allocation->size,
        .generation = allocation->generation,
        .slot = allocation->slot,
        .header_size = (uint32_t)allocation->share->header_size,
        .protection = exports->protection,
        .visibility = UMF_MEM_MAP_SHARED,
        .name_length = (uint32_t)strlen(allocation->share->name),
    };
    return UMF_RESULT_SUCCESS;
}

/* Named objects are opened by name and need no descriptor. Memory that a forked child allocates is
 * anonymous. */
static bool export_needs_transport(const umf_os_export_t *exports) {
    return exports->name_length == 0 || umf_process_pid() != exports->pid;
}

umf_result_t umf_os_export_get_handle(umf_os_export_t *exports, const void *ptr, size_t size,
                                      void *data) {
    umf_os_handle_t handle;
    umf_os_share_t *share = NULL; /* gcc -Os does not see that success writes it */
    if (export_needs_transport(exports)) {
        umf_ticket_prepare();
    }
    umf_lock(exports->lock);
    umf_result_t result = export_describe_locked(exports, ptr, size, &handle, &share);
    umf_unlock(exports->lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_os_handle_write(&handle, share->name, data);
    }
    return result;
}

umf_result_t umf_os_export_put_handle(umf_os_export_t *exports, const void *data) {
    umf_os_handle_t handle;
    const char *name;
    umf_result_t result = umf_os_handle_read(data, &handle, &name);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool mine = false;
    umf_lock(exports->lock);
    for (umf_os_share_t *share = exports->shares; share && !mine; share = share->next) {
        mine = umf_os_share_is_mine(share) &&
               memcmp(&handle.ticket, &share->ticket, sizeof(share->ticket)) == 0;
    }
    umf_unlock(exports->lock);
    if (!mine) {
        UMF_LOG_ERROR("this description was made by another provider or process (%u)",
                      handle.ticket.pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}
