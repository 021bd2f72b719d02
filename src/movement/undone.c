#include "movement/undone.h"

#include "base/log.h"
#include "base/meta.h"
#include "ds/list.h"
#include "movement/queue.h"
#include "system/pause.h"

typedef struct undone_t {
    umf_list_t link; /* Sync: undone_lock */
    umf_side_t side;
    void *queue;
    umf_undone_memory_t *memory; /* NULL: none */
} undone_t;

_Atomic size_t umf_undone_count;

UMF_LOCK_STATIC(undone_lock, UMF_RANK_SUSPEND);
static umf_list_t undones = {&undones, &undones}; /* Sync: undone_lock */
static unsigned undone_forks; /* umf_fork_count() of what is listed. Sync: undone_lock */

/* Takes the lock. A child of fork has no work of its parent. */
static void undones_lock(void) {
    umf_lock(&undone_lock);
    if (umf_unlikely(undone_forks != umf_fork_count())) {
        undone_forks = umf_fork_count();
        umf_list_init(&undones);
        atomic_store(&umf_undone_count, 0);
    }
}

static void undone_link(undone_t *undone, bool is_new) {
    undones_lock();
    umf_list_add_tail(&undones, &undone->link);
    atomic_fetch_add(&umf_undone_count, is_new);
    umf_unlock(&undone_lock);
}

void umf_undone_add(const umf_side_t *side, void *queue, umf_undone_memory_t *memory) {
    undone_t *undone = umf_meta_alloc(sizeof(*undone));
    if (memory) {
        atomic_fetch_add(&memory->users, 1);
    }
    if (!undone) {
        UMF_LOG_ERROR("no memory to remember queue %p, whose work could not be waited for: it "
                      "stays, with the host memory that it uses",
                      queue);
        return;
    }
    undone->side = *side;
    undone->side.span = 0;
    if (side->source == UMF_PLACE_FROM_DRIVER && side->self == side->foreign.self) {
        undone->side.self = undone->side.foreign.self;
    }
    undone->queue = queue;
    undone->memory = memory;
    undone_link(undone, true);
}

/* --- the turn: one thread at a time waits, so that no other finds the list empty meanwhile. A
 * forked child has no other threads --- */

static _Atomic unsigned undone_turn; /* umf_fork_count() + 1 of the thread that has it; 0: none */

static void turn_take(void) {
    unsigned mine = umf_fork_count() + 1, now = atomic_load(&undone_turn);
    for (unsigned round = 0;
         now == mine || !atomic_compare_exchange_strong(&undone_turn, &now, mine); round++) {
        umf_pause(round);
        now = atomic_load(&undone_turn);
    }
}

static void turn_end(void) {
    atomic_store(&undone_turn, 0);
}

/* Moves those of a provider, or all (NULL), to a list of the caller's, which has the turn. They
 * stay counted. */
static void undones_take(umf_memory_provider_handle_t provider, umf_list_t *taken) {
    umf_list_init(taken);
    undones_lock();
    for (umf_list_t *at = undones.next, *next; at != &undones; at = next) {
        next = at->next;
        undone_t *undone = UMF_CONTAINER_OF(at, undone_t, link);
        if (!provider || undone->side.provider == provider) {
            umf_list_remove(at);
            umf_list_add_tail(taken, at);
        }
    }
    umf_unlock(&undone_lock);
}

static void undone_free(undone_t *undone) {
    umf_meta_free(undone, sizeof(*undone));
    atomic_fetch_sub(&umf_undone_count, 1);
}

static umf_result_t undone_try(undone_t *undone) {
    const umf_side_t *side = &undone->side;
    umf_result_t result = side->ext->queue_wait(side->self, undone->queue);
    if (result != UMF_RESULT_SUCCESS) {
        undone_link(undone, false);
        return result;
    }
    umf_queue_put(side, undone->queue);
    if (undone->memory) {
        umf_undone_drop(undone->memory);
    }
    undone_free(undone);
    return UMF_RESULT_SUCCESS;
}

static undone_t *undone_first(umf_list_t *taken) {
    undone_t *first =
        umf_list_is_empty(taken) ? NULL : UMF_CONTAINER_OF(taken->next, undone_t, link);
    if (first) {
        umf_list_remove(&first->link);
    }
    return first;
}

umf_result_t umf_undone_settle_slow(umf_memory_provider_handle_t provider) {
    umf_list_t taken;
    umf_result_t failure = UMF_RESULT_SUCCESS;
    turn_take();
    undones_take(provider, &taken);
    for (undone_t *undone; (undone = undone_first(&taken)) != NULL;) {
        umf_result_t result = undone_try(undone);
        failure = failure ? failure : result;
    }
    turn_end();
    return failure;
}

void umf_undone_end(umf_memory_provider_handle_t provider) {
    umf_list_t taken;
    if (umf_undone_settle(provider) == UMF_RESULT_SUCCESS) {
        return;
    }
    UMF_LOG_WARN(
        "the work of a provider that is destroyed could not be waited for: its queues, and "
        "the host memory that it uses, stay until the process ends");
    turn_take();
    undones_take(provider, &taken);
    for (undone_t *undone; (undone = undone_first(&taken)) != NULL;) {
        undone_free(undone);
    }
    turn_end();
}
