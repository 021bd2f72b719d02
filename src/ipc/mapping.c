/*
 * Mapping: the cache of open mappings.
 *
 * The life of a mapping:
 *
 *   new -> OPENING -> OPEN -> (RETIRED ->) closed -> new
 *              \-> closed (the provider failed)
 *
 * OPENING and OPEN mappings are in the table, one per (owner, producer, base address). An OPEN
 * mapping whose memory the producer has freed is retired: it leaves the table, stays for its users,
 * and is closed with the last of them. All changes of phase happen under the lock. Providers are
 * called without it, by the one thread that owns the mapping through such a change (to OPENING, or
 * to CLOSED and unlinked).
 *
 * An open of an existing mapping takes no lock. `state` is one atomic word: the number of users, a
 * flag that more may come, and a count of opens that continues when the descriptor is reused. A
 * guess from `mapping_recent` is compared with the handle first. A compare-and-swap then adds the
 * user. It succeeds only if the state has not changed, and so nothing that was compared has
 * changed. Descriptors are never given back to the arena, so reading a wrong guess is harmless.
 *
 * A provider that cannot map memory of its own process a second time opens it in place. Such a
 * mapping has no span: the record of that memory stays as it is. It is closed with its last user,
 * because the memory cannot be released while it is open.
 */
#include "ipc/mapping.h"

#include <string.h>

#include "base/event_count.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"
#include "ipc/mapping_own.h"
#include "object/event.h"
#include "peer/process.h"

/* A thread that waits for the outcome of an OPENING mapping; on its stack. */
typedef struct umf_mapping_waiter_t {
    struct umf_mapping_waiter_t *next;
    bool done;           /* Sync: lock */
    umf_result_t result; /* Sync: lock */
} umf_mapping_waiter_t;

#define MAPPING_LIVE ((uint64_t)1 << 63) /* the mapping may get more users */
#define MAPPING_USERS ((uint64_t)UINT32_MAX)
#define MAPPING_OPENS (~(MAPPING_LIVE | MAPPING_USERS)) /* wraps to 0 */
#define MAPPING_ONE_OPEN (MAPPING_USERS + 1)
#define MAPPING_ALL_OPENS ((int64_t)1 << 31)

#define MAPPING_RECENT 1024 /* a power of two */

static umf_lock_t mapping_lock;
static umf_event_count_t mapping_turn;
static umf_hash_t mapping_table; /* Sync: lock */
static umf_list_t mapping_order; /* OPEN mappings, last opened last. Sync: lock */
static umf_list_t mapping_spare; /* unused descriptors. Sync: lock */
static umf_list_t mapping_own;   /* opened in place, not closed yet. Sync: lock */
static size_t mapping_count;     /* mappings not closed yet, OPENING included. Sync: lock */
static size_t mapping_limit;     /* 0: none. Immutable after init */
static uint64_t mapping_misses;  /* Sync: lock, as all evictions */
static uint64_t mapping_evictions;
/* Opens of existing mappings, without those that OPEN mappings still count. Sync: atomic */
static _Atomic int64_t mapping_hits;
static umf_span_set_t mapping_spans; /* spans of all mappings */
/* Guesses, by handle. Not used with a limit, because each open must then update the order. */
static _Atomic(umf_mapping_t *) mapping_recent[MAPPING_RECENT];

/* --- users of a mapping --- */

static inline bool mapping_is_used(uint64_t state) {
    return (state & MAPPING_USERS) != 0;
}

/* Whether the fixed bytes of the header are equal; offset and data are compared elsewhere. */
static inline bool mapping_is_fixed(const umf_mapping_t *mapping, const void *fixed) {
    uint64_t difference = 0;
    for (size_t i = 0; i < UMF_MAPPING_FIXED_WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)fixed + i * sizeof(word), sizeof(word));
        difference |= word ^ atomic_load_explicit(&mapping->fixed[i], memory_order_acquire);
    }
    return difference == 0;
}

/* The state with one more user and one more open. */
static inline uint64_t mapping_state_used(uint64_t state) {
    return (state + MAPPING_ONE_OPEN + 1) | MAPPING_LIVE;
}

/* Adds the opens to the global count when the count in the state wraps. */
static inline void mapping_count_used(uint64_t state) {
    if (umf_unlikely((state & MAPPING_OPENS) == MAPPING_OPENS)) {
        atomic_fetch_add(&mapping_hits, MAPPING_ALL_OPENS);
    }
}

/* Adds a user if the mapping is live and has this owner and these bytes. Hot. */
static inline bool mapping_use_if(umf_mapping_t *mapping, const umf_mapping_owner_t *owner,
                                  const void *fixed) {
    uint64_t state = atomic_load_explicit(&mapping->state, memory_order_acquire);
    do {
        if (!(state & MAPPING_LIVE) || umf_mapping_owner(mapping) != owner ||
            !mapping_is_fixed(mapping, fixed)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&mapping->state, &state,
                                                    mapping_state_used(state), memory_order_acq_rel,
                                                    memory_order_acquire));
    mapping_count_used(state);
    return true;
}

/* Adds a user to a mapping that is known to be OPEN. */
static void mapping_use_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&mapping_lock);
    uint64_t state = atomic_load(&mapping->state);
    while (!atomic_compare_exchange_weak(&mapping->state, &state, mapping_state_used(state))) {
    }
    mapping_count_used(state);
}

static int64_t mapping_hits_of(const umf_mapping_t *mapping, uint64_t state) {
    return (int64_t)((state & MAPPING_OPENS) >> 32) - (int64_t)(mapping->opens_before >> 32);
}

/* Called when a mapping stops being live with this state: its count of opens is final. */
static void mapping_settle_hits(const umf_mapping_t *mapping, uint64_t state) {
    atomic_fetch_add(&mapping_hits, mapping_hits_of(mapping, state));
}

/* Removes a user. false: there was none. `left` is the state after that. Hot. */
static inline bool mapping_unuse(umf_mapping_t *mapping, uint64_t *left) {
    uint64_t state = atomic_load_explicit(&mapping->state, memory_order_relaxed);
    do {
        if (!mapping_is_used(state)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&mapping->state, &state, state - 1,
                                                    memory_order_acq_rel, memory_order_relaxed));
    *left = state - 1;
    return true;
}

/* --- mappings --- */

static umf_mapping_t *mapping_take_spare(void) {
    umf_mapping_t *mapping = NULL;
    umf_lock(&mapping_lock);
    if (!umf_list_is_empty(&mapping_spare)) {
        mapping = UMF_CONTAINER_OF(mapping_spare.next, umf_mapping_t, siblings);
        umf_list_remove(&mapping->siblings);
    }
    umf_unlock(&mapping_lock);
    return mapping;
}

static umf_mapping_t *mapping_alloc(size_t data_size) {
    void *data = umf_meta_alloc(umf_mapping_data_bytes(data_size));
    umf_mapping_t *mapping = data ? mapping_take_spare() : NULL;
    if (data && mapping == NULL) {
        mapping = umf_meta_alloc(sizeof(*mapping));
    }
    if (mapping == NULL) {
        umf_meta_free(data, umf_mapping_data_bytes(data_size));
        return NULL;
    }
    umf_list_init(&mapping->siblings);
    umf_list_init(&mapping->order);
    umf_list_init(&mapping->own);
    mapping->span = NULL;
    mapping->is_own = false;
    mapping->data = data;
    return mapping;
}

static void mapping_free(umf_mapping_t *mapping) {
    umf_meta_free(mapping->data, umf_mapping_data_bytes(mapping->wire.data_size));
    umf_lock(&mapping_lock);
    mapping->phase = UMF_MAPPING_NEW;
    umf_list_add(&mapping_spare, &mapping->siblings);
    umf_unlock(&mapping_lock);
}

static uint64_t mapping_key(const umf_mapping_t *mapping) {
    uint64_t key = (uintptr_t)umf_mapping_owner(mapping) ^ mapping->wire.base * 0x9e3779b97f4a7c15u;
    key = (key ^ key >> 29) * 0xd6e8feb86659fd93u;
    key = (key ^ key >> 32 ^ mapping->wire.start_time) + mapping->wire.pid;
    return key ? key : 1;
}

static bool mapping_is_same_place(const umf_mapping_t *a, const umf_mapping_t *b) {
    return umf_mapping_owner(a) == umf_mapping_owner(b) && a->wire.base == b->wire.base &&
           a->wire.pid == b->wire.pid && a->wire.start_time == b->wire.start_time &&
           a->wire.pid_ns == b->wire.pid_ns && a->wire.boot_id == b->wire.boot_id;
}

static void mapping_set_fixed(umf_mapping_t *mapping, const void *fixed) {
    for (size_t i = 0; i < UMF_MAPPING_FIXED_WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)fixed + i * sizeof(word), sizeof(word));
        atomic_store_explicit(&mapping->fixed[i], word, memory_order_release);
    }
}

/* Whether two handles are equal but for the offset. */
static bool mapping_is_same(const umf_mapping_t *a, const umf_mapping_t *b) {
    return mapping_is_fixed(a, (const void *)b->fixed) &&
           memcmp(a->data, b->data, a->wire.data_size) == 0;
}

/* --- table --- */

static umf_mapping_t *mapping_find_locked(const umf_mapping_t *like) {
    umf_assert_locked(&mapping_lock);
    umf_mapping_t *mapping = umf_hash_get(&mapping_table, mapping_key(like));
    while (mapping && !mapping_is_same_place(mapping, like)) {
        mapping = mapping->same;
    }
    return mapping;
}

static bool mapping_insert_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&mapping_lock);
    uint64_t key = mapping_key(mapping);
    mapping->same = umf_hash_get(&mapping_table, key);
    return umf_hash_put(&mapping_table, key, mapping);
}

static void mapping_remove_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&mapping_lock);
    uint64_t key = mapping_key(mapping);
    umf_mapping_t *first = umf_hash_get(&mapping_table, key);
    if (first == mapping) {
        /* The key exists, so replacing its value needs no memory and cannot fail. */
        if (mapping->same) {
            umf_hash_put(&mapping_table, key, mapping->same);
        } else {
            umf_hash_remove(&mapping_table, key);
        }
        return;
    }
    while (first && first->same != mapping) {
        first = first->same;
    }
    if (first) {
        first->same = mapping->same;
    }
}

/* --- closing --- */

/* Hands the mapping over to the caller, which closes it without the lock. */
static void mapping_unlink_locked(umf_mapping_t *mapping, umf_list_t *closing) {
    umf_assert_locked(&mapping_lock);
    if (mapping->phase == UMF_MAPPING_OPEN) {
        mapping_remove_locked(mapping);
        umf_list_remove(&mapping->order);
    }
    mapping->phase = UMF_MAPPING_CLOSED;
    umf_list_remove(&mapping->siblings);
    umf_list_add_tail(closing, &mapping->siblings);
    mapping_count--;
}

/* Takes an OPEN mapping out of the table for good; its last user closes it. */
static void mapping_retire_locked(umf_mapping_t *mapping, umf_list_t *closing) {
    uint64_t before = atomic_fetch_and(&mapping->state, ~MAPPING_LIVE);
    mapping_settle_hits(mapping, before);
    if (!mapping_is_used(before)) {
        mapping_unlink_locked(mapping, closing);
        return;
    }
    mapping_remove_locked(mapping);
    umf_list_remove(&mapping->order);
    mapping->phase = UMF_MAPPING_RETIRED;
}

static void mapping_close(umf_mapping_t *mapping) {
    if (mapping->is_own) {
        umf_lock(&mapping_lock);
        umf_list_remove(&mapping->own);
        umf_unlock(&mapping_lock);
    } else if (umf_span_withdraw(&mapping_spans, mapping->span, (uintptr_t)mapping->base) ==
               UMF_RESULT_SUCCESS) {
        umf_span_release(&mapping_spans, mapping->span);
        UMF_EVENT(.kind = UMF_RECORD_CLOSE, .provider = mapping->provider,
                  .address = (uintptr_t)mapping->base, .size = mapping->wire.size);
    }
    umf_result_t result =
        umfMemoryProviderCloseIPCHandle(mapping->provider, mapping->base, mapping->wire.size);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR(
            "the provider could not close the mapping of %llu bytes at %p; it stays mapped",
            (unsigned long long)mapping->wire.size, (void *)mapping->base);
    }
    mapping_free(mapping);
}

static void mapping_close_all(umf_list_t *closing) {
    while (!umf_list_is_empty(closing)) {
        umf_mapping_t *mapping = UMF_CONTAINER_OF(closing->next, umf_mapping_t, siblings);
        umf_list_remove(&mapping->siblings);
        mapping_close(mapping);
    }
}

/* Takes an OPEN mapping out of the table if it has no users. */
static bool mapping_evict_one_locked(umf_mapping_t *mapping, umf_list_t *closing) {
    uint64_t state = atomic_load(&mapping->state);
    if (mapping_is_used(state) ||
        !atomic_compare_exchange_strong(&mapping->state, &state, state & ~MAPPING_LIVE)) {
        return false;
    }
    mapping_settle_hits(mapping, state);
    mapping_unlink_locked(mapping, closing);
    mapping_evictions++;
    return true;
}

/* Evicts mappings, least recently opened first, until one more fits. Mappings in use stay. */
static void mapping_evict_locked(umf_list_t *closing) {
    umf_list_t *next;
    for (umf_list_t *item = mapping_order.next;
         mapping_limit && mapping_count >= mapping_limit && item != &mapping_order; item = next) {
        next = item->next;
        mapping_evict_one_locked(UMF_CONTAINER_OF(item, umf_mapping_t, order), closing);
    }
}

size_t umf_mapping_evict(uint32_t pid) {
    size_t count = 0;
    umf_list_t closing, *next;
    umf_list_init(&closing);
    umf_lock(&mapping_lock);
    for (umf_list_t *item = mapping_order.next; item != &mapping_order; item = next) {
        next = item->next;
        umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, order);
        if (pid == 0 || mapping->wire.pid == pid) {
            count += mapping_evict_one_locked(mapping, &closing);
        }
    }
    umf_unlock(&mapping_lock);
    mapping_close_all(&closing);
    return count;
}

/* --- opening --- */

/* A new mapping with a checked copy of the handle. The handle is copied first, because the caller's
 * bytes may change at any time.
 */
static umf_result_t mapping_prepare(umf_mapping_owner_t *owner, const void *handle, size_t size,
                                    umf_mapping_t **out) {
    unsigned char header[UMF_WIRE_HEADER];
    memcpy(header, handle, sizeof(header));
    umf_wire_t wire;
    umf_result_t result = umf_mapping_check_header(owner, header, size, &wire);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_mapping_t *mapping = mapping_alloc(wire.data_size);
    if (mapping == NULL) {
        UMF_LOG_ERROR("no memory to open an IPC handle");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    atomic_store_explicit(&mapping->owner, owner, memory_order_release);
    mapping->provider = owner->provider;
    mapping->wire = wire;
    mapping_set_fixed(mapping, header);
    memcpy(mapping->data, (const char *)handle + UMF_WIRE_HEADER, wire.data_size);
    result = umf_wire_check_data(&wire, mapping->data);
    if (result != UMF_RESULT_SUCCESS) {
        mapping_free(mapping);
        return result;
    }
    *out = mapping;
    return UMF_RESULT_SUCCESS;
}

/* Waits for the outcome of another thread's open. The mapping may be freed when this returns. */
static umf_result_t mapping_wait_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&mapping_lock);
    umf_mapping_waiter_t waiter = {.next = mapping->waiters};
    umf_mapping_waiter_t *self = &waiter;
    /* gcc takes the stored address for dangling. The thread that sets `done` removes it first. */
    __asm__("" : "+r"(self));
    mapping->waiters = self;
    while (!waiter.done) {
        uint32_t seen = umf_event_count_read(&mapping_turn);
        umf_unlock(&mapping_lock);
        umf_event_count_wait(&mapping_turn, seen);
        umf_lock(&mapping_lock);
    }
    return waiter.result;
}

/* Removes an OPENING mapping. In a forked child the thread that was opening it does not exist. */
static void mapping_abandon_locked(umf_mapping_t *mapping) {
    mapping_remove_locked(mapping);
    umf_list_remove(&mapping->siblings);
    mapping_count--;
}

static umf_result_t mapping_refuse(const umf_mapping_t *mine, const char *why) {
    UMF_LOG_ERROR("the IPC handle for %llu bytes at 0x%llx of process %u is not valid: %s",
                  (unsigned long long)mine->wire.size, (unsigned long long)mine->wire.base,
                  mine->wire.pid, why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/*
 * Adds a user to an OPEN mapping, unless the two handles differ. Then one of them is stale or
 * forged. A provider with a watch refuses a stale handle by itself, so it is called anew, and the
 * mapping is retired before: a forged handle that was opened before must not keep out a genuine
 * one. Without a watch the number of the export alone decides.
 */
static umf_result_t mapping_join_locked(umf_mapping_t *mapping, const umf_mapping_t *mine,
                                        umf_list_t *closing) {
    /* Export ids only grow: the newer handle proves that the memory of the older one was freed. */
    if (mine->wire.export_id > mapping->wire.export_id) {
        mapping_retire_locked(mapping, closing);
        return UMF_RESULT_SUCCESS;
    }
    if (mapping->watch.word && !mapping_is_same(mapping, mine)) {
        mapping_retire_locked(mapping, closing);
        return UMF_RESULT_SUCCESS;
    }
    if (mine->wire.export_id < mapping->wire.export_id) {
        return mapping_refuse(mine, "a newer one was opened before, so that memory was freed");
    }
    if (!mapping_is_same(mapping, mine)) {
        return mapping_refuse(mine, "it contradicts one that was opened before");
    }
    if (!umf_ipc_is_alive(mapping->watch)) {
        mapping_retire_locked(mapping, closing);
        return mapping_refuse(mine, "the producer has freed that memory");
    }
    mapping_use_locked(mapping);
    umf_list_remove(&mapping->order);
    umf_list_add_tail(&mapping_order, &mapping->order);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t mapping_begin_locked(umf_mapping_t *mine, umf_list_t *closing) {
    mine->opener = umf_process_pid();
    if (!mapping_insert_locked(mine)) {
        UMF_LOG_ERROR("no memory to remember one more opened IPC handle");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    mapping_evict_locked(closing);
    mapping_misses++;
    mine->phase = UMF_MAPPING_OPENING;
    umf_list_add_tail(&umf_mapping_owner(mine)->mappings, &mine->siblings);
    mapping_count++;
    return UMF_RESULT_SUCCESS;
}

/* The open mapping for the handle in `mine`, with one more user; or `mine` itself, OPENING. */
static umf_result_t mapping_enter(umf_mapping_t *mine, umf_mapping_t **out) {
    umf_list_t closing;
    umf_list_init(&closing);
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_mapping_t *mapping;
    umf_lock(&mapping_lock);
    while ((mapping = mapping_find_locked(mine)) != NULL && result == UMF_RESULT_SUCCESS) {
        if (mapping->phase == UMF_MAPPING_OPEN) {
            result = mapping_join_locked(mapping, mine, &closing);
            /* It was retired if it was stale; then the loop looks for another one. */
            if (mapping->phase == UMF_MAPPING_OPEN) {
                break;
            }
        } else if (mapping->opener != umf_process_pid()) {
            /* Inherited through a fork: no thread finishes this open. */
            mapping_abandon_locked(mapping);
        } else {
            /* Compared before the wait, after which the mapping may be freed. */
            bool is_equal = mapping_is_same(mapping, mine);
            umf_result_t outcome = mapping_wait_locked(mapping);
            result = is_equal ? outcome : UMF_RESULT_SUCCESS;
        }
    }
    if (mapping == NULL && result == UMF_RESULT_SUCCESS) {
        mapping = mine;
        result = mapping_begin_locked(mine, &closing);
    }
    umf_unlock(&mapping_lock);
    mapping_close_all(&closing);
    if (result == UMF_RESULT_SUCCESS) {
        *out = mapping;
    }
    return result;
}

/* Whether the provider opened the original memory itself, at its own address in this process. */
static bool mapping_is_in_place(const umf_mapping_t *mapping) {
    umf_process_t self;
    umf_process_self(&self);
    return mapping->wire.base == (uintptr_t)mapping->base && mapping->wire.pid == self.pid &&
           mapping->wire.start_time == self.start_time && mapping->wire.boot_id == self.boot_id;
}

/* Whether the provider returned memory of a pool of this process, whose record must not change. */
static bool mapping_is_of_pool(const umf_mapping_t *mapping) {
    const umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)mapping->base, NULL);
    return span && umf_span_kind(span) == UMF_SPAN_POOL && span->base == (uintptr_t)mapping->base;
}

static umf_result_t mapping_record(umf_mapping_t *mapping) {
    if (!umf_ipc_is_alive(mapping->watch)) {
        return mapping_refuse(mapping, "the producer has freed that memory");
    }
    /* A word can be watched on the producer's machine only, so the handle lies about
     * the machine. */
    if (mapping->watch.word && umf_mapping_is_of_elsewhere(mapping)) {
        return mapping_refuse(mapping, "it names another machine, but its memory is on this one");
    }
    if (mapping_is_in_place(mapping)) {
        umf_lock(&mapping_lock);
        mapping->is_own = true;
        umf_list_add(&mapping_own, &mapping->own);
        umf_unlock(&mapping_lock);
        return UMF_RESULT_SUCCESS;
    }
    if (mapping_is_of_pool(mapping)) {
        return mapping_refuse(mapping, "it names memory of this process by a false address");
    }
    umf_result_t result = umf_span_add(&mapping_spans, (uintptr_t)mapping->base, mapping->wire.size,
                                       UMF_SPAN_IMPORT, mapping, 0, &mapping->span);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the mapping of %llu bytes at %p cannot be recorded",
                      (unsigned long long)mapping->wire.size, (void *)mapping->base);
        return result;
    }
    UMF_EVENT(.kind = UMF_RECORD_OPEN, .provider = mapping->provider,
              .address = (uintptr_t)mapping->base, .size = mapping->wire.size);
    return UMF_RESULT_SUCCESS;
}

static void mapping_fill_copy(const umf_mapping_t *mapping, void *copy) {
    memcpy(copy, mapping->data, mapping->wire.data_size);
}

static umf_result_t mapping_map_with(umf_mapping_t *mapping, void *copy) {
    mapping_fill_copy(mapping, copy);
    void *base = NULL;
    umf_result_t result = umf_mapping_ask_provider(mapping, copy, &base);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (base == NULL || (uintptr_t)base > UINTPTR_MAX - mapping->wire.size) {
        UMF_LOG_ERROR("the provider opened an IPC handle at %p, where %llu bytes cannot be", base,
                      (unsigned long long)mapping->wire.size);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    mapping->base = base;
    mapping_fill_copy(mapping, copy); /* the provider may have written to it */
    mapping->watch = umf_ipc_watch(mapping->provider, copy);
    result = mapping_record(mapping);
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderCloseIPCHandle(mapping->provider, base, mapping->wire.size);
    }
    return result;
}

/* Maps an OPENING mapping and records it, or leaves nothing behind. */
static umf_result_t mapping_map(umf_mapping_t *mapping) {
    size_t size;
    umf_result_t result = umf_mapping_copy_size(mapping, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *copy = umf_meta_alloc(size);
    if (copy == NULL) {
        UMF_LOG_ERROR("no memory for %zu bytes of provider data", size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = mapping_map_with(mapping, copy);
    umf_meta_free(copy, size);
    return result;
}

static void mapping_tell_waiters_locked(umf_mapping_t *mapping, umf_result_t result) {
    umf_assert_locked(&mapping_lock);
    for (umf_mapping_waiter_t *waiter = mapping->waiters, *next; waiter; waiter = next) {
        /* The waiter is on its thread's stack: it is gone once `done` is set and the
         * lock is free. */
        next = waiter->next;
        waiter->result = result;
        waiter->done = true;
    }
    mapping->waiters = NULL;
}

/* Ends OPENING: the mapping is OPEN with one user, or out of the table and freed. */
static umf_result_t mapping_finish(umf_mapping_t *mapping, umf_result_t result) {
    umf_lock(&mapping_lock);
    if (result == UMF_RESULT_SUCCESS) {
        mapping->phase = UMF_MAPPING_OPEN;
        umf_list_add_tail(&mapping_order, &mapping->order);
        mapping->opens_before = (atomic_load(&mapping->state) + MAPPING_ONE_OPEN) & MAPPING_OPENS;
        atomic_store_explicit(&mapping->state, MAPPING_LIVE | mapping->opens_before | 1,
                              memory_order_release);
    } else {
        mapping_abandon_locked(mapping);
    }
    mapping_tell_waiters_locked(mapping, result);
    umf_unlock(&mapping_lock);
    umf_event_count_advance(&mapping_turn);
    if (result != UMF_RESULT_SUCCESS) {
        mapping_free(mapping);
    }
    return result;
}

static _Atomic(umf_mapping_t *) *mapping_guess(const umf_mapping_owner_t *owner,
                                               const void *handle) {
    uintptr_t hint = umf_wire_hint(handle) ^ (uintptr_t)owner >> 6;
    return &mapping_recent[hint % MAPPING_RECENT];
}

umf_result_t umf_mapping_open(umf_mapping_owner_t *owner, const void *handle, size_t size,
                              void **ptr) {
    umf_mapping_t *mine, *mapping = NULL;
    umf_result_t result = mapping_prepare(owner, handle, size, &mine);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uint64_t offset = mine->wire.offset;
    result = mapping_enter(mine, &mapping);
    if (result != UMF_RESULT_SUCCESS || mapping != mine) {
        mapping_free(mine);
    } else {
        result = mapping_finish(mine, mapping_map(mine));
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *ptr = mapping->base + offset;
    if (mapping_limit == 0) {
        atomic_store_explicit(mapping_guess(owner, (const void *)mapping->fixed), mapping,
                              memory_order_release);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- releasing users --- */

/* Called after the last user was removed. A mapping is closed if it is retired or in place, or if
 * the producer has freed its memory. Any other stays for the next open. */
static UMF_COLD void mapping_let_go(umf_mapping_t *mapping) {
    umf_list_t closing;
    umf_list_init(&closing);
    umf_lock(&mapping_lock);
    bool is_used = mapping_is_used(atomic_load(&mapping->state));
    if (mapping->phase == UMF_MAPPING_RETIRED && !is_used) {
        mapping_unlink_locked(mapping, &closing);
    } else if (mapping->phase == UMF_MAPPING_OPEN && !is_used &&
               (mapping->is_own || !umf_ipc_is_alive(mapping->watch))) {
        mapping_retire_locked(mapping, &closing);
    }
    umf_unlock(&mapping_lock);
    mapping_close_all(&closing);
}

bool umf_mapping_is_used(const umf_mapping_t *mapping) {
    return mapping_is_used(atomic_load(&mapping->state));
}

bool umf_mapping_close(umf_mapping_t *mapping) {
    uint64_t left = atomic_load_explicit(&mapping->state, memory_order_acquire);
    if (umf_unlikely(!mapping_is_used(left))) {
        return false;
    }
    /* Asked before the user is removed: without users the mapping may be closed at any time. */
    bool is_alive = umf_ipc_is_alive(mapping->watch);
    if (umf_unlikely(!mapping_unuse(mapping, &left))) {
        return false;
    }
    if (umf_unlikely(!mapping_is_used(left) && (!is_alive || !(left & MAPPING_LIVE)))) {
        mapping_let_go(mapping);
    }
    return true;
}

bool umf_mapping_close_own(const void *ptr) {
    uint64_t left = 0;
    umf_mapping_t *closed = NULL;
    umf_lock(&mapping_lock);
    for (umf_list_t *item = mapping_own.next; item != &mapping_own && !closed; item = item->next) {
        umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, own);
        if ((uintptr_t)ptr - (uintptr_t)mapping->base < mapping->wire.size &&
            mapping_unuse(mapping, &left)) {
            closed = mapping;
        }
    }
    umf_unlock(&mapping_lock);
    if (closed && !mapping_is_used(left)) {
        mapping_let_go(closed);
    }
    return closed != NULL;
}

/* Undoes `mapping_use_if`. A mapping of freed memory stays in the table, so that umf_mapping_open
 * finds it and reports the reason. */
static UMF_COLD void mapping_put_back(umf_mapping_t *mapping) {
    uint64_t left;
    atomic_fetch_sub(&mapping_hits, 1);
    if (mapping_unuse(mapping, &left) && !mapping_is_used(left) && !(left & MAPPING_LIVE)) {
        mapping_let_go(mapping);
    }
}

/* Whether all bytes of the handle are there. The mapping belongs to the owner, and its header
 * equals that of the handle. */
static inline bool mapping_is_whole(const umf_mapping_t *mapping, const umf_mapping_owner_t *owner,
                                    size_t size) {
    if (size == UMF_MAPPING_OWN_SIZE) {
        size = atomic_load_explicit(&owner->handle_size, memory_order_relaxed);
    }
    return UMF_WIRE_HEADER + (size_t)mapping->wire.data_size <= size;
}

bool umf_mapping_open_again(const umf_mapping_owner_t *owner, const void *handle, size_t size,
                            void **ptr) {
    umf_mapping_t *mapping =
        atomic_load_explicit(mapping_guess(owner, handle), memory_order_acquire);
    if (umf_unlikely(mapping == NULL || !mapping_use_if(mapping, owner, handle))) {
        return false;
    }
    const char *data = (const char *)handle + UMF_WIRE_HEADER;
    uint64_t offset;
    if (umf_unlikely(!mapping_is_whole(mapping, owner, size) ||
                     memcmp(mapping->data, data, mapping->wire.data_size) != 0 ||
                     !umf_wire_get_offset(handle, mapping->wire.fixed_sum, &offset) ||
                     offset >= mapping->wire.size || !umf_ipc_is_alive(mapping->watch))) {
        mapping_put_back(mapping);
        return false;
    }
    *ptr = mapping->base + offset;
    return true;
}

/* --- owners --- */

/* Hands all mappings of an owner, in use or not, over to the caller, which closes them. */
static void mapping_unlink_all_locked(umf_mapping_owner_t *owner, umf_list_t *closing) {
    while (!umf_list_is_empty(&owner->mappings)) {
        umf_mapping_t *mapping = UMF_CONTAINER_OF(owner->mappings.next, umf_mapping_t, siblings);
        if (mapping->phase != UMF_MAPPING_OPENING) {
            uint64_t before = atomic_fetch_and(&mapping->state, MAPPING_OPENS);
            if (before & MAPPING_LIVE) {
                mapping_settle_hits(mapping, before);
            }
            mapping_unlink_locked(mapping, closing);
        } else if (mapping->opener != umf_process_pid()) {
            mapping_abandon_locked(mapping);
        } else {
            mapping_wait_locked(mapping);
        }
    }
}

void umf_mapping_owner_init(umf_mapping_owner_t *owner, umf_memory_provider_handle_t provider) {
    *owner = (umf_mapping_owner_t){.provider = provider};
    owner->kind = umf_ipc_kind(provider);
    umf_list_init(&owner->mappings);
}

void umf_mapping_owner_fini(umf_mapping_owner_t *owner) {
    umf_list_t closing;
    umf_list_init(&closing);
    umf_lock(&mapping_lock);
    mapping_unlink_all_locked(owner, &closing);
    umf_unlock(&mapping_lock);
    mapping_close_all(&closing);
    umf_producers_fini(&owner->producers);
}

umf_memory_provider_handle_t umf_mapping_provider(const umf_mapping_t *mapping) {
    return mapping->provider;
}

/* --- counters --- */

umf_mapping_stats_t umf_mapping_stats(void) {
    umf_mapping_stats_t stats = {.limit = mapping_limit};
    umf_lock(&mapping_lock);
    int64_t hits = atomic_load(&mapping_hits);
    for (umf_list_t *item = mapping_order.next; item != &mapping_order; item = item->next) {
        const umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, order);
        uint64_t state = atomic_load(&mapping->state);
        hits += mapping_hits_of(mapping, state);
        stats.cached += !mapping_is_used(state);
    }
    stats.opened = mapping_count - stats.cached;
    stats.hits = hits > 0 ? (size_t)hits : 0;
    stats.misses = mapping_misses;
    stats.evictions = mapping_evictions;
    umf_unlock(&mapping_lock);
    return stats;
}

/* Open mappings outlive a stop of the library, as pools do, so only the first start initialises the
 * tables. */
void umf_mapping_init(size_t limit) {
    static bool is_ready;
    if (!is_ready) {
        umf_lock_init(&mapping_lock, UMF_RANK_IMPORT);
        umf_span_set_init(&mapping_spans, &umf_map_global, 0);
        umf_list_init(&mapping_order);
        umf_list_init(&mapping_spare);
        umf_list_init(&mapping_own);
        is_ready = true;
    }
    mapping_limit = limit;
    /* A guess of an earlier start would bypass the order, which a limit needs. */
    for (size_t i = 0; i < MAPPING_RECENT; i++) {
        atomic_store_explicit(&mapping_recent[i], NULL, memory_order_relaxed);
    }
}
