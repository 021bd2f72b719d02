/* The reuse slots of a coalescing pool: functions under a lock. */
#include "pools/coalescing/release.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_thread_t thread_t;

static void set_lease(thread_t *thread, umf_range_lease_t lease) {
    __atomic_store_n(&thread->lease.generation, lease.generation, __ATOMIC_RELAXED);
    thread->lease.number = lease.number;
}

/* Ends the lease, which this shard gave. */
static void lease_end_locked(shard_t *shard, thread_t *thread) {
    umf_assert_locked(&shard->lock);
    /* A block that is still reserved counts as live: the end of its lease frees it. */
    shard->live -= umf_range_lease_end(shard->range, &thread->lease);
    set_lease(thread, (umf_range_lease_t){0});
    thread->is_reserved = false;
}

static UMF_COLD void lease_end(coalescing_pool_t *pool, thread_t *thread) {
    shard_t *shard = umf_coalescing_shard(pool, thread->lease_shard);
    umf_lock(&shard->lock);
    lease_end_locked(shard, thread);
    umf_unlock(&shard->lock);
}

thread_t *umf_coalescing_reuse_prepare(coalescing_pool_t *pool, const shard_t *shard) {
    thread_t *thread = umf_coalescing_thread(pool);
    if (umf_unlikely(!thread->head.owner)) {
        thread = (thread_t *)umf_thread_slot_make(&pool->slots);
    }
    if (umf_unlikely(thread && thread->small_frees >= UMF_KEPT_FREES)) {
        thread->small_frees = 0;
        thread->is_full = false;
        umf_coalescing_kept_make_room(pool, thread->size);
    }
    /* A lease ends under the lock of its own shard. If that is `shard`, the caller is about to lock
     * it and ends the lease itself (umf_coalescing_reuse_note_locked). */
    if (umf_likely(thread != NULL) &&
        umf_unlikely(thread->lease.generation && thread->lease_shard != shard->index)) {
        lease_end(pool, thread);
    }
    return thread;
}

void umf_coalescing_reuse_note_locked(shard_t *shard, thread_t *thread, uintptr_t base,
                                      size_t size) {
    if (thread->lease.generation) {
        lease_end_locked(shard, thread);
    }
    umf_coalescing_reuse_record(thread, base, size);
}

void umf_coalescing_reuse_note(coalescing_pool_t *pool, shard_t *shard, uintptr_t base,
                               size_t size) {
    thread_t *thread = umf_coalescing_thread(pool);
    /* Only an equal size is reuse: the same address with another size is a new division of the
     * memory. */
    if (thread->base == base && thread->size == size) {
        umf_lock(&shard->lock);
        set_lease(thread, umf_range_lease(shard->range, base));
        umf_unlock(&shard->lock);
        thread->lease_shard = shard->index;
        thread->is_reserved = false;
    }
}

void umf_coalescing_reuse_again(coalescing_pool_t *pool, thread_t *thread) {
    if (thread->again++ > 0) {
        shard_t *shard = umf_coalescing_shard_of(pool, (void *)thread->base, 0);
        thread->again = 0;
        umf_coalescing_reuse_note(pool, shard, thread->base, thread->size);
    }
}

void umf_coalescing_reuse_join(coalescing_pool_t *pool, thread_t *thread) {
    /* If it was of no use, only some frees later is it tried again. */
    thread->is_full = !thread->has_taken;
    thread->has_kept = thread->has_taken = false;
    umf_coalescing_kept_free(pool, false);
}

static void keep_lease(umf_thread_slot_t *head, void *range) {
    uint32_t *const *generation = &((thread_t *)head)->lease.generation;
    umf_range_keep_lease(range, __atomic_load_n(generation, __ATOMIC_RELAXED));
}

void umf_coalescing_reuse_keep_leases(coalescing_pool_t *pool, shard_t *shard) {
    umf_assert_locked(&shard->lock);
    umf_thread_slot_each(&pool->slots, keep_lease, shard->range);
}

static void thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *head) {
    coalescing_pool_t *pool = UMF_CONTAINER_OF(owner, coalescing_pool_t, slots);
    thread_t *thread = (thread_t *)head;
    if (thread->lease.generation) {
        lease_end(pool, thread);
    }
    umf_coalescing_shard_leave(pool, thread);
}

umf_result_t umf_coalescing_reuse_init(coalescing_pool_t *pool) {
    return umf_thread_slot_owner_init(&pool->slots, umf_tracked_magazine_index(pool->tracked),
                                      sizeof(thread_t), thread_exit);
}

bool umf_coalescing_reclaim_locked(shard_t *shard) {
    umf_assert_locked(&shard->lock);
    size_t count = umf_range_reclaim(shard->range);
    shard->live -= count;
    return umf_purge_inherit_locked(&shard->part) || count > 0;
}
