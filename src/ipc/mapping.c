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

#include "base/log.h"
#include "ipc/mapping_own.h"
#include "object/event.h"

#define MAPPING_LIVE ((uint64_t)1 << 63) /* the mapping may get more users */
#define MAPPING_USERS ((uint64_t)UINT32_MAX)
#define MAPPING_OPENS (~(MAPPING_LIVE | MAPPING_USERS)) /* wraps to 0 */
#define MAPPING_ONE_OPEN (MAPPING_USERS + 1)
#define MAPPING_ALL_OPENS ((int64_t)1 << 31)

#define MAPPING_RECENT 1024 /* a power of two */

struct umf_mappings_t umf_mappings;

/* Opens of existing mappings, without those that OPEN mappings still count. Sync: atomic */
static _Atomic int64_t mapping_hits;
/* Guesses, by handle. Not used with a limit, because each open must then update the order. */
static _Atomic(umf_mapping_t *) mapping_recent[MAPPING_RECENT];

/* --- users of a mapping --- */

static inline bool mapping_is_used(uint64_t state) {
    return (state & MAPPING_USERS) != 0;
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
            !umf_mapping_is_fixed(mapping, fixed)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&mapping->state, &state,
                                                    mapping_state_used(state), memory_order_acq_rel,
                                                    memory_order_acquire));
    mapping_count_used(state);
    return true;
}

void umf_mapping_use_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&umf_mappings.lock);
    uint64_t state = atomic_load(&mapping->state);
    while (!atomic_compare_exchange_weak(&mapping->state, &state, mapping_state_used(state))) {
    }
    mapping_count_used(state);
}

void umf_mapping_first_use_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&umf_mappings.lock);
    mapping->opens_before = (atomic_load(&mapping->state) + MAPPING_ONE_OPEN) & MAPPING_OPENS;
    atomic_store_explicit(&mapping->state, MAPPING_LIVE | mapping->opens_before | 1,
                          memory_order_release);
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

/* --- closing --- */

/* Hands the mapping over to the caller, which closes it without the lock. */
static void mapping_unlink_locked(umf_mapping_t *mapping, umf_list_t *closing) {
    umf_assert_locked(&umf_mappings.lock);
    if (mapping->phase == UMF_MAPPING_OPEN) {
        umf_mapping_remove_locked(mapping);
        umf_list_remove(&mapping->order);
    }
    mapping->phase = UMF_MAPPING_CLOSED;
    umf_list_remove(&mapping->siblings);
    umf_list_add_tail(closing, &mapping->siblings);
    umf_mappings.count--;
}

void umf_mapping_retire_locked(umf_mapping_t *mapping, umf_list_t *closing) {
    uint64_t before = atomic_fetch_and(&mapping->state, ~MAPPING_LIVE);
    mapping_settle_hits(mapping, before);
    if (!mapping_is_used(before)) {
        mapping_unlink_locked(mapping, closing);
        return;
    }
    umf_mapping_remove_locked(mapping);
    umf_list_remove(&mapping->order);
    mapping->phase = UMF_MAPPING_RETIRED;
}

static void mapping_close(umf_mapping_t *mapping) {
    if (mapping->is_own) {
        umf_lock(&umf_mappings.lock);
        umf_list_remove(&mapping->own);
        umf_unlock(&umf_mappings.lock);
    } else if (umf_span_withdraw(&umf_mappings.spans, mapping->span, (uintptr_t)mapping->base) ==
               UMF_RESULT_SUCCESS) {
        umf_span_release(&umf_mappings.spans, mapping->span);
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
    umf_mapping_free(mapping);
}

void umf_mapping_close_all(umf_list_t *closing) {
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
    umf_mappings.evictions++;
    return true;
}

void umf_mapping_evict_locked(umf_list_t *closing) {
    umf_list_t *next;
    for (umf_list_t *item = umf_mappings.order.next;
         umf_mappings.limit && umf_mappings.count >= umf_mappings.limit &&
         item != &umf_mappings.order;
         item = next) {
        next = item->next;
        mapping_evict_one_locked(UMF_CONTAINER_OF(item, umf_mapping_t, order), closing);
    }
}

size_t umf_mapping_evict(uint32_t pid) {
    size_t count = 0;
    umf_list_t closing, *next;
    umf_list_init(&closing);
    umf_lock(&umf_mappings.lock);
    for (umf_list_t *item = umf_mappings.order.next; item != &umf_mappings.order; item = next) {
        next = item->next;
        umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, order);
        if (pid == 0 || mapping->wire.pid == pid) {
            count += mapping_evict_one_locked(mapping, &closing);
        }
    }
    umf_unlock(&umf_mappings.lock);
    umf_mapping_close_all(&closing);
    return count;
}

/* --- releasing users, and opening again --- */

/* Called after the last user was removed. A mapping is closed if it is retired or in place, or if
 * the producer has freed its memory. Any other stays for the next open. */
static UMF_COLD void mapping_let_go(umf_mapping_t *mapping) {
    umf_list_t closing;
    umf_list_init(&closing);
    umf_lock(&umf_mappings.lock);
    bool is_used = mapping_is_used(atomic_load(&mapping->state));
    if (mapping->phase == UMF_MAPPING_RETIRED && !is_used) {
        mapping_unlink_locked(mapping, &closing);
    } else if (mapping->phase == UMF_MAPPING_OPEN && !is_used &&
               (mapping->is_own || !umf_ipc_is_alive(mapping->watch))) {
        umf_mapping_retire_locked(mapping, &closing);
    }
    umf_unlock(&umf_mappings.lock);
    umf_mapping_close_all(&closing);
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
    umf_lock(&umf_mappings.lock);
    for (umf_list_t *item = umf_mappings.own.next; item != &umf_mappings.own && !closed;
         item = item->next) {
        umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, own);
        if ((uintptr_t)ptr - (uintptr_t)mapping->base < mapping->wire.size &&
            mapping_unuse(mapping, &left)) {
            closed = mapping;
        }
    }
    umf_unlock(&umf_mappings.lock);
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

static _Atomic(umf_mapping_t *) *mapping_guess(const umf_mapping_owner_t *owner,
                                               const void *handle) {
    uintptr_t hint = umf_wire_hint(handle) ^ (uintptr_t)owner >> 6;
    return &mapping_recent[hint % MAPPING_RECENT];
}

void umf_mapping_remember(const umf_mapping_owner_t *owner, umf_mapping_t *mapping) {
    if (umf_mappings.limit == 0) {
        atomic_store_explicit(mapping_guess(owner, (const void *)mapping->fixed), mapping,
                              memory_order_release);
    }
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
            umf_mapping_abandon_locked(mapping);
        } else {
            umf_mapping_wait_locked(mapping);
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
    umf_lock(&umf_mappings.lock);
    mapping_unlink_all_locked(owner, &closing);
    umf_unlock(&umf_mappings.lock);
    umf_mapping_close_all(&closing);
    umf_producers_fini(&owner->producers);
}

umf_memory_provider_handle_t umf_mapping_provider(const umf_mapping_t *mapping) {
    return mapping->provider;
}

/* --- counters --- */

umf_mapping_stats_t umf_mapping_stats(void) {
    umf_mapping_stats_t stats = {.limit = umf_mappings.limit};
    umf_lock(&umf_mappings.lock);
    int64_t hits = atomic_load(&mapping_hits);
    for (umf_list_t *item = umf_mappings.order.next; item != &umf_mappings.order;
         item = item->next) {
        const umf_mapping_t *mapping = UMF_CONTAINER_OF(item, umf_mapping_t, order);
        uint64_t state = atomic_load(&mapping->state);
        hits += mapping_hits_of(mapping, state);
        stats.cached += !mapping_is_used(state);
    }
    stats.opened = umf_mappings.count - stats.cached;
    stats.hits = hits > 0 ? (size_t)hits : 0;
    stats.misses = umf_mappings.misses;
    stats.evictions = umf_mappings.evictions;
    umf_unlock(&umf_mappings.lock);
    return stats;
}

/* Open mappings outlive a stop of the library, as pools do, so only the first start initialises the
 * tables. */
void umf_mapping_init(size_t limit) {
    static bool is_ready;
    if (!is_ready) {
        umf_lock_init(&umf_mappings.lock, UMF_RANK_IMPORT);
        umf_span_set_init(&umf_mappings.spans, &umf_map_global, 0);
        umf_list_init(&umf_mappings.order);
        umf_list_init(&umf_mappings.spare);
        umf_list_init(&umf_mappings.own);
        is_ready = true;
    }
    umf_mappings.limit = limit;
    /* A guess of an earlier start would bypass the order, which a limit needs. */
    for (size_t i = 0; i < MAPPING_RECENT; i++) {
        atomic_store_explicit(&mapping_recent[i], NULL, memory_order_relaxed);
    }
}
