/*
 * Export: handles for memory of this process.
 *
 * A span's `export` is one word with four states: nothing; a finished export; an export with the
 * tag MAKING, while one thread calls the provider; or, with the tag EVICTED, the id of an export
 * that was evicted. A finished export never changes, so it is read without a lock: the memory that
 * it describes may not be freed meanwhile, as with any pointer. The first export of a span needs no
 * lock either: one atomic step leads from nothing to MAKING, and one from MAKING to the export. A
 * MAKING export that fails is removed under the lock, because the threads that wait for it read it.
 *
 * With a limit, exports are evicted while others are made, so all of this is done under the lock.
 * An evicted export is a copy of bytes. The provider makes the same bytes again on demand, with the
 * same id, so handles that were sent stay valid. Exports of providers that cannot do that are kept.
 *
 * A forked child inherits the exports of its parent. Their handles name the parent, so the child
 * makes its own. The inherited export stays linked behind it until the span is withdrawn, because
 * another thread may be reading it.
 */
#include "ipc/export.h"

#include <stdatomic.h>
#include <string.h>

#include <umf/ipc.h>
#include <umf/plugin.h>

#include "base/event_count.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/list.h"
#include "ipc/export_mark.h"
#include "ipc/ipc.h"
#include "ipc/wire.h"
#include "object/object.h"
#include "peer/process.h"

typedef struct umf_export_t {
    struct umf_export_t *inherited; /* the parent's, after a fork */
    void *before;                   /* the span's word before MAKING; restored after a failure */
    umf_list_t order;               /* in export_order. Sync: lock */
    umf_span_t *span;
    uint32_t pid; /* the process that made it */
    bool can_be_evicted, is_made;
    uint64_t id; /* 0: a new one is assigned */
    uintptr_t base;
    uint64_t fixed_sum;
    size_t size; /* of the handle */
    _Alignas(16) unsigned char handle[];
} umf_export_t;

/* Exports are aligned to 16 bytes, so the low bits of a pointer are free for tags. */
#define EXPORT_MAKING 1
#define EXPORT_EVICTED 2
#define EXPORT_TAGS 3

static umf_lock_t export_lock; /* for all changes of a span's export but the atomic steps above */
static umf_event_count_t export_turn;
static _Atomic uint64_t export_last_id;
static _Atomic uint64_t export_made;
static atomic_size_t export_count;
static size_t export_limit; /* 0: none. Immutable after init */
/* Exports that may be evicted, last used last. Only with a limit. Sync: lock, as all below. */
static umf_list_t export_order;
static uint64_t export_evictions;

static void *export_tagged(umf_export_t *export) {
    return (void *)((uintptr_t) export | EXPORT_MAKING);
}

/* The export in a word. NULL if the word holds an id. */
static umf_export_t *export_untagged(void *word) {
    uintptr_t bits = (uintptr_t)word;
    return bits & EXPORT_EVICTED ? NULL : (umf_export_t *)(bits & ~(uintptr_t)EXPORT_TAGS);
}

static void *export_word_of_id(uint64_t id) {
    return (void *)((uintptr_t)id << 2 | EXPORT_EVICTED);
}

static uint64_t export_id_of_word(void *word) {
    return (uintptr_t)word & EXPORT_EVICTED ? (uintptr_t)word >> 2 : 0;
}

static bool export_is_making(void *word) {
    return (uintptr_t)word & EXPORT_MAKING;
}

static size_t export_bytes(const umf_export_t *export) {
    return sizeof(*export) + export->size;
}

static void *export_data(umf_export_t *export) {
    return export->handle + UMF_WIRE_HEADER;
}

/* --- one export --- */

umf_result_t umf_export_size(umf_memory_provider_handle_t provider, size_t *size) {
    size_t data_size;
    umf_result_t result = umfMemoryProviderGetIPCHandleSize(provider, &data_size);
    if (result == UMF_RESULT_SUCCESS && !umf_wire_size(data_size, size)) {
        UMF_LOG_ERROR(
            "the provider wants %zu bytes in its IPC handles, more than a handle can hold",
            data_size);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

static umf_result_t export_create(umf_span_t *span, umf_memory_provider_handle_t provider,
                                  umf_export_t **out) {
    size_t size;
    umf_result_t result = umf_export_size(provider, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_export_t *export = umf_meta_alloc(sizeof(*export) + size);
    if (export == NULL) {
        UMF_LOG_ERROR("no memory for an IPC handle of %zu bytes", size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_list_init(&export->order);
    export->span = span;
    export->pid = umf_process_pid();
    export->can_be_evicted =
        export_limit != 0 && (provider->ext->ipc_flags & UMF_IPC_FLAG_REPEATABLE);
    export->base = span->base;
    export->size = size;
    *out = export;
    return UMF_RESULT_SUCCESS;
}

uint64_t umf_export_new_id(void) {
    return atomic_fetch_add_explicit(&export_last_id, 1, memory_order_relaxed) + 1;
}

uint64_t umf_export_pack(umf_memory_provider_handle_t provider, const umf_pool_export_t *made,
                         size_t handle_size, void *handle) {
    umf_process_t self;
    umf_process_self(&self);
    umf_wire_t wire = {
        .kind = umf_ipc_kind(provider),
        .boot_id = self.boot_id,
        .start_time = self.start_time,
        .base = made->base,
        .size = made->size,
        .export_id = made->id,
        .pid = self.pid,
        .pid_ns = self.pid_ns,
        .data_size = (uint32_t)(handle_size - UMF_WIRE_HEADER),
    };
    return umf_wire_pack(&wire, handle);
}

/* Asks the provider, then writes the header in front of its answer. */
static umf_result_t export_fill(umf_export_t *export, size_t size,
                                umf_memory_provider_handle_t provider) {
    umf_result_t result =
        umfMemoryProviderGetIPCHandle(provider, (void *)export->base, size, export_data(export));
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (export->id == 0) {
        export->id = umf_export_new_id();
    }
    const umf_pool_export_t made = {export->base, size, export->id};
    export->fixed_sum = umf_export_pack(provider, &made, export->size, export->handle);
    return UMF_RESULT_SUCCESS;
}

/* --- the export of a span --- */

/* Waits while another thread of this process makes the export. A forked child does not wait: the
 * thread that makes an inherited one does not exist in the child. */
static void *export_settled_locked(umf_span_t *span) {
    umf_assert_locked(&export_lock);
    for (;;) {
        uint32_t seen = umf_event_count_read(&export_turn);
        void *word = atomic_load_explicit(&span->exported, memory_order_acquire);
        if (!export_is_making(word) || export_untagged(word)->pid != umf_process_pid()) {
            return word;
        }
        umf_unlock(&export_lock);
        umf_event_count_wait(&export_turn, seen);
        umf_lock(&export_lock);
    }
}

/* The finished export of this process, or NULL. Hot. */
static umf_export_t *export_known(umf_span_t *span) {
    void *word = atomic_load_explicit(&span->exported, memory_order_acquire);
    if (word == NULL || (uintptr_t)word & EXPORT_TAGS) {
        return NULL;
    }
    umf_export_t *export = word;
    return export->pid == umf_process_pid() ? export : NULL;
}

/* Claims the making of the export; false if another thread has finished it meanwhile. */
static bool export_claim_locked(umf_span_t *span, umf_export_t *mine) {
    void *word = export_settled_locked(span);
    umf_export_t *other = export_untagged(word);
    if (other && other->pid == mine->pid) {
        return false;
    }
    if (other) {
        umf_list_remove(&other->order);
    }
    mine->inherited = other;
    mine->before = word;
    mine->id = export_id_of_word(word);
    atomic_store_explicit(&span->exported, export_tagged(mine), memory_order_release);
    return true;
}

/* Frees an export and those linked behind it, and returns their number. A forked child may find one
 * that was not finished. */
static size_t export_free_chain(umf_export_t *export) {
    size_t count = 0;
    for (umf_export_t *inherited; export; export = inherited) {
        inherited = export->inherited;
        count += export->is_made;
        umf_meta_free(export, export_bytes(export));
    }
    return count;
}

/* Evicts the least recently used exports above the limit. */
static void export_evict_locked(const umf_export_t *spared) {
    umf_assert_locked(&export_lock);
    umf_list_t *next;
    for (umf_list_t *item = export_order.next;
         atomic_load(&export_count) > export_limit && item != &export_order; item = next) {
        next = item->next;
        umf_export_t *export = UMF_CONTAINER_OF(item, umf_export_t, order);
        if (export != spared) {
            umf_list_remove(&export->order);
            atomic_store_explicit(&export->span->exported, export_word_of_id(export->id),
                                  memory_order_release);
            atomic_fetch_sub(&export_count, export_free_chain(export));
            export_evictions++;
        }
    }
}

static void export_publish(umf_export_t *mine) {
    atomic_fetch_add_explicit(&export_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&export_made, 1, memory_order_relaxed);
    mine->is_made = true;
    atomic_store_explicit(&mine->span->exported, mine, memory_order_release);
}

static void export_settle_locked(umf_export_t *mine, bool is_made) {
    if (is_made) {
        export_publish(mine);
        if (mine->can_be_evicted) {
            umf_list_add_tail(&export_order, &mine->order);
        }
        if (export_limit) {
            export_evict_locked(mine);
        }
        return;
    }
    atomic_store_explicit(&mine->span->exported, mine->before, memory_order_release);
    if (mine->inherited && mine->inherited->can_be_evicted) {
        umf_list_add_tail(&export_order, &mine->inherited->order);
    }
}

/* Asks the provider. The lock is released meanwhile; the caller holds it before and after. */
static umf_result_t export_make_claimed_locked(umf_export_t *mine,
                                               umf_memory_provider_handle_t provider) {
    size_t size = mine->span->size;
    umf_unlock(&export_lock);
    umf_result_t result = export_fill(mine, size, provider);
    umf_lock(&export_lock);
    export_settle_locked(mine, result == UMF_RESULT_SUCCESS);
    umf_event_count_advance(&export_turn);
    return result;
}

/* Claims the making of the first export. false: the word is in use, and stays as it is. */
static bool export_claim_fresh(umf_span_t *span, umf_export_t *mine) {
    void *nothing = NULL;
    return atomic_compare_exchange_strong_explicit(&span->exported, &nothing, export_tagged(mine),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Makes the first export of a span without a lock. Does nothing if another thread has begun it. */
static umf_result_t export_make_fresh(umf_span_t *span) {
    umf_memory_provider_handle_t provider = umf_tracked_of(span)->root;
    umf_export_t *mine;
    umf_result_t result = export_create(span, provider, &mine);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_claimed = export_claim_fresh(span, mine);
    if (is_claimed) {
        result = export_fill(mine, span->size, provider);
        if (result == UMF_RESULT_SUCCESS) {
            export_publish(mine);
        } else {
            umf_lock(&export_lock);
            export_settle_locked(mine, false);
            umf_unlock(&export_lock);
        }
        umf_event_count_advance(&export_turn);
    }
    if (!is_claimed || result != UMF_RESULT_SUCCESS) {
        umf_meta_free(mine, export_bytes(mine));
    }
    return result;
}

/* Makes the export under the lock. The lock is held on return, also after a failure. */
static UMF_COLD umf_result_t export_make_locking(umf_span_t *span) {
    umf_memory_provider_handle_t provider = umf_tracked_of(span)->root;
    umf_export_t *mine;
    umf_result_t result = export_create(span, provider, &mine);
    umf_lock(&export_lock);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_mine = export_claim_locked(span, mine);
    if (is_mine) {
        result = export_make_claimed_locked(mine, provider);
    }
    if (!is_mine || result != UMF_RESULT_SUCCESS) {
        umf_meta_free(mine, export_bytes(mine));
    }
    return result;
}

static void export_put(umf_export_t *export, umf_memory_provider_handle_t provider) {
    if (umfMemoryProviderPutIPCHandle(provider, export_data(export)) != UMF_RESULT_SUCCESS) {
        UMF_LOG_WARN(
            "the provider could not put the IPC handle of %p; what it holds for it may be lost",
            (void *)export->base);
    }
}

void umf_export_drop(umf_span_t *span, umf_memory_provider_handle_t provider) {
    if (umf_likely(atomic_load_explicit(&span->exported, memory_order_relaxed) == NULL)) {
        return;
    }
    umf_lock(&export_lock);
    umf_export_t *export = export_untagged(export_settled_locked(span));
    atomic_store_explicit(&span->exported, NULL, memory_order_relaxed);
    if (export) {
        umf_list_remove(&export->order);
    }
    umf_unlock(&export_lock);
    for (umf_export_t *each = export; each; each = each->inherited) {
        /* The provider of the parent owns the parent's exports, so only the parent puts them. */
        if (each->pid == umf_process_pid()) {
            export_put(each, provider);
        }
    }
    atomic_fetch_sub(&export_count, export_free_chain(export));
}

/* --- handles --- */

static umf_result_t export_copy(const umf_export_t *export, uint64_t offset,
                                umf_ipc_handle_t *handle, size_t *size) {
    umf_export_mark_t *mark = umf_export_mark_new(export->size);
    if (mark == NULL) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    void *bytes = mark + 1;
    memcpy(bytes, export->handle, export->size);
    umf_wire_set_offset(bytes, export->fixed_sum, offset);
    umf_export_mark_set(mark);
    *handle = bytes;
    *size = export->size;
    return UMF_RESULT_SUCCESS;
}

/* Called for every handle if there is a limit, else for an export that another thread or the parent
 * has begun. */
static UMF_COLD umf_result_t export_get_locking(umf_span_t *span, uint64_t offset,
                                                umf_ipc_handle_t *handle, size_t *size) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_lock(&export_lock);
    umf_export_t *export = export_known(span);
    if (export == NULL) {
        umf_unlock(&export_lock);
        result = export_make_locking(span);
        export = export_known(span);
    }
    if (result == UMF_RESULT_SUCCESS) {
        if (export->can_be_evicted) {
            umf_list_remove(&export->order);
            umf_list_add_tail(&export_order, &export->order);
        }
        result = export_copy(export, offset, handle, size);
    }
    umf_unlock(&export_lock);
    return result;
}

umf_result_t umf_export_get(umf_span_t *span, const void *ptr, umf_ipc_handle_t *handle,
                            size_t *size) {
    /* With a limit the export may be evicted whenever the lock is not held. */
    umf_export_t *export = umf_unlikely(export_limit != 0) ? NULL : export_known(span);
    if (umf_unlikely(export == NULL && export_limit == 0)) {
        umf_result_t result = export_make_fresh(span);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        export = export_known(span);
    }
    if (umf_unlikely(export == NULL)) {
        return export_get_locking(span, (uintptr_t)ptr - span->base, handle, size);
    }
    return export_copy(export, (uintptr_t)ptr - export->base, handle, size);
}

umf_export_stats_t umf_export_stats(void) {
    umf_lock(&export_lock);
    umf_export_stats_t stats = {
        .kept = atomic_load(&export_count),
        .made = atomic_load(&export_made),
        .evictions = export_evictions,
        .limit = export_limit,
    };
    umf_unlock(&export_lock);
    return stats;
}

void umf_export_init(size_t limit) {
    static bool is_ready;
    if (!is_ready) {
        umf_lock_init(&export_lock, UMF_RANK_EXPORT);
        umf_list_init(&export_order);
        is_ready = true;
    }
    export_limit = limit;
}
