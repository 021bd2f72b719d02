/* Blocks that other threads take, see umf_thread_slot_take_from_others. */
#include "base/meta.h"
#include "base/thread_slot_own.h"
#include "system/os.h"

umf_thread_slot_t *umf_thread_slot_pin(const umf_thread_slot_owner_t *owner) {
    umf_thread_slot_enter();
    umf_thread_slot_t *block = umf_thread_slot_get(owner->index);
    bool is_own = block->owner != NULL;
    if (is_own) {
        __atomic_store_n(&block->pins, block->pins + 1, __ATOMIC_RELAXED);
    }
    umf_thread_slot_leave();
    return is_own ? block : NULL;
}

void umf_thread_slot_unpin(umf_thread_slot_t *block) {
    __atomic_store_n(&block->pins, block->pins - 1, __ATOMIC_RELEASE);
}

/* Its thread was left behind in the parent process. */
static bool table_is_dead(const umf_thread_slot_table_t *table) {
    return table->made_fork_count != umf_fork_count() && table != umf_fork_survivor();
}

static bool slot_may_be_taken_locked(const umf_thread_slot_owner_t *owner,
                                     const umf_thread_slot_t *block) {
    const umf_thread_slot_table_t *table = block->thread;
    return table && table != umf_thread_slot_own_table() &&
           (table_is_dead(table) || umf_thread_slot_may_be_read_locked(table)) &&
           umf_thread_slot_table_block(table, owner->index) == block;
}

/* Replaces the blocks in the tables of their threads. false: there are none. */
static bool slot_hide_locked(umf_thread_slot_owner_t *owner,
                             bool (*may_take)(const umf_thread_slot_t *, void *), void *arg) {
    bool is_any = false;
    for (umf_thread_slot_t *block = owner->first; block; block = block->next) {
        if (slot_may_be_taken_locked(owner, block) && may_take(block, arg)) {
            atomic_store_explicit(&block->thread->blocks[owner->index], UMF_THREAD_SLOT_EMPTY,
                                  memory_order_relaxed);
            block->is_taken = is_any = true;
        }
    }
    return is_any;
}

#define INSIDE_ROUNDS                                                                              \
    200 /* a thread is inside for some nanoseconds, unless it has lost its CPU                     \
         */

static bool slot_is_in_use(const umf_thread_slot_t *block) {
    const umf_thread_slot_table_t *table = block->thread;
    if (table_is_dead(table)) {
        return false; /* in the parent its thread may have been inside */
    }
    bool is_inside = true;
    for (int i = 0; is_inside && i < INSIDE_ROUNDS; i++) {
        is_inside = __atomic_load_n(&table->tls->is_inside, __ATOMIC_ACQUIRE);
    }
    return is_inside || __atomic_load_n(&block->pins, __ATOMIC_ACQUIRE) != 0;
}

/* Does another thread empty a block that was taken, or is one ending, which empties its own? */
static bool slot_is_emptied_locked(const umf_thread_slot_owner_t *owner) {
    for (const umf_thread_slot_t *block = owner->first; block; block = block->next) {
        const umf_thread_slot_table_t *table = block->thread;
        if (block->visited == umf_fork_count() + 1 ||
            (table && table->is_ending && table != umf_thread_slot_own_table() &&
             !table_is_dead(table))) {
            return true;
        }
    }
    return false;
}

/* Returns the blocks that are in use, or all, to their threads. true: some are in use. */
static bool slot_show_locked(umf_thread_slot_owner_t *owner, bool all) {
    bool is_any = false;
    for (umf_thread_slot_t *block = owner->first; block; block = block->next) {
        if (block->is_taken && block->thread && (all || slot_is_in_use(block))) {
            is_any = !all;
            block->is_taken = false;
            atomic_store_explicit(&block->thread->blocks[owner->index], block,
                                  memory_order_release);
        } else if (block->is_taken) {
            block->thread = NULL;
        }
    }
    return is_any;
}

/* A taken block that no thread empties, or that a thread left behind by fork was emptying. It stays
 * in the list of its owner until it is empty, so that umf_thread_slot_each counts its content. */
static umf_thread_slot_t *slot_next_taken_locked(const umf_thread_slot_owner_t *owner) {
    uint32_t mine = umf_fork_count() + 1;
    umf_thread_slot_t *block = owner->first;
    while (block && !(block->is_taken && block->visited != mine)) {
        block = block->next;
    }
    if (block) {
        block->visited = mine;
    }
    return block;
}

static bool slot_empty_one(umf_thread_slot_owner_t *owner,
                           void (*visit)(umf_thread_slot_owner_t *, umf_thread_slot_t *)) {
    umf_lock(&umf_thread_slot_lock);
    umf_thread_slot_t *block = slot_next_taken_locked(owner);
    umf_unlock(&umf_thread_slot_lock);
    if (!block) {
        return false;
    }
    visit(owner, block);
    umf_lock(&umf_thread_slot_lock);
    umf_thread_slot_unlink_locked(owner, block);
    umf_unlock(&umf_thread_slot_lock);
    umf_meta_free(block, owner->size);
    return true;
}

bool umf_thread_slot_take_from_others(umf_thread_slot_owner_t *owner,
                                      bool (*may_take)(const umf_thread_slot_t *, void *),
                                      void (*visit)(umf_thread_slot_owner_t *, umf_thread_slot_t *),
                                      void *arg) {
    umf_lock(&umf_thread_slot_lock);
    bool is_any_in_use =
        slot_hide_locked(owner, may_take, arg) && slot_show_locked(owner, !umf_os_fence_all());
    umf_unlock(&umf_thread_slot_lock);
    while (slot_empty_one(owner, visit)) {
    }
    umf_lock(&umf_thread_slot_lock);
    bool is_emptied = slot_is_emptied_locked(owner);
    umf_unlock(&umf_thread_slot_lock);
    return !is_any_in_use && !is_emptied;
}
