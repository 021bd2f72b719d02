#include "ext/staging/undone.h"

#include "base/log.h"
#include "base/meta.h"
#include "ds/list.h"
#include "ext/staging/queue.h"
#include "system/pause.h"

typedef struct undone_t {
    umf_list_t link; /* Sync: undone_lock */
    umf_operand_t operand;
    void *queue;
    umf_undone_memory_t *memory; /* NULL: none */
    unsigned forks;              /* umf_fork_count() when it was listed. Immutable */
    bool is_taken;               /* a thread waits for the queue. Sync: undone_lock, as below */
    uint64_t tried;              /* number of the call that waited last; 0: none did */
    umf_result_t failure;        /* of that wait */
} undone_t;

_Atomic size_t umf_undone_count;

UMF_LOCK_STATIC(undone_lock, UMF_RANK_SUSPEND);
static umf_list_t undones = {&undones, &undones}; /* Sync: undone_lock */
static unsigned undone_forks; /* umf_fork_count() of the listed ones. Sync: undone_lock */
static uint64_t undone_calls; /* of settle, for their numbers. Sync: undone_lock */

/* Takes the lock. A child of fork has no work of its parent. */
static void undones_lock(void) {
    umf_lock(&undone_lock);
    if (umf_unlikely(undone_forks != umf_fork_count())) {
        undone_forks = umf_fork_count();
        umf_list_init(&undones);
        atomic_store(&umf_undone_count, 0);
    }
}

void umf_undone_add(const umf_operand_t *operand, void *queue, umf_undone_memory_t *memory) {
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
    undone->operand = *operand;
    undone->operand.span = 0;
    if (operand->source == UMF_PLACE_FROM_DRIVER && operand->self == operand->foreign.self) {
        undone->operand.self = undone->operand.foreign.self;
    }
    undone->queue = queue;
    undone->memory = memory;
    undones_lock();
    undone->forks = undone_forks;
    umf_list_add_tail(&undones, &undone->link);
    atomic_fetch_add(&umf_undone_count, 1);
    umf_unlock(&undone_lock);
}

/* --- waiting: each queue by one thread at a time. Threads that do not need that queue go on. It
 * stays in the list meanwhile, so that no other thread that needs it misses it --- */

/* `only`: the provider that is meant, which may be NULL; NULL: any is. */
static bool is_meant(const undone_t *undone, const umf_memory_provider_handle_t *only) {
    return !only || undone->operand.provider == *only;
}

static uint64_t call_begin(void) {
    undones_lock();
    uint64_t call = ++undone_calls;
    umf_unlock(&undone_lock);
    return call;
}

/* Takes one that is meant, and was in no wait since `call`. NULL: there is none.
 * `others` is then set if other threads have taken some, and `failure` if waits failed. */
static undone_t *undone_take(const umf_memory_provider_handle_t *only, uint64_t call, bool *others,
                             umf_result_t *failure) {
    undone_t *found = NULL;
    *others = false;
    *failure = UMF_RESULT_SUCCESS;
    undones_lock();
    for (umf_list_t *at = undones.next; at != &undones && !found; at = at->next) {
        undone_t *undone = UMF_CONTAINER_OF(at, undone_t, link);
        if (!is_meant(undone, only)) {
            continue;
        }
        if (undone->is_taken) {
            *others = true;
        } else if (undone->tried < call) {
            found = undone;
        } else {
            *failure = *failure ? *failure : undone->failure;
        }
    }
    if (found) {
        found->is_taken = true;
        found->tried = call;
    }
    umf_unlock(&undone_lock);
    return found;
}

/* The wait may have forked. In the child the one that is taken is on no list any more. */
static void undone_free(undone_t *undone) {
    undones_lock();
    if (undone->forks == undone_forks) {
        umf_list_remove(&undone->link);
        atomic_fetch_sub(&umf_undone_count, 1);
    }
    umf_unlock(&undone_lock);
    umf_meta_free(undone, sizeof(*undone));
}

static void undone_put_back(undone_t *undone, umf_result_t failure) {
    umf_lock(&undone_lock);
    undone->is_taken = false;
    undone->failure = failure;
    umf_unlock(&undone_lock);
}

/* Waits for the queue of a taken one. */
static void undone_try(undone_t *undone) {
    const umf_operand_t *operand = &undone->operand;
    umf_result_t result = operand->ext->queue_wait(operand->self, undone->queue);
    if (result != UMF_RESULT_SUCCESS) {
        undone_put_back(undone, result);
        return;
    }
    umf_queue_put(operand, undone->queue);
    if (undone->memory) {
        umf_undone_drop(undone->memory);
    }
    undone_free(undone);
}

static umf_result_t settle(const umf_memory_provider_handle_t *only) {
    uint64_t call = call_begin();
    umf_result_t failure = UMF_RESULT_SUCCESS;
    bool others = true;
    for (unsigned round = 0; others; round++) {
        for (undone_t *undone; (undone = undone_take(only, call, &others, &failure)) != NULL;) {
            undone_try(undone);
        }
        if (others) {
            umf_pause(round);
        }
    }
    return failure;
}

umf_result_t umf_undone_settle_slow(umf_memory_provider_handle_t provider) {
    return settle(&provider);
}

void umf_undone_settle_all(void) {
    settle(NULL);
}

void umf_undone_end(umf_memory_provider_handle_t provider) {
    bool others = true;
    umf_result_t failure;
    if (umf_undone_settle(provider) == UMF_RESULT_SUCCESS) {
        return;
    }
    UMF_LOG_WARN("the work of a provider that is destroyed cannot be completed: its queues, and "
                 "the host memory that it uses, stay until the process ends");
    for (unsigned round = 0; others; round++) {
        for (undone_t *undone;
             (undone = undone_take(&provider, UINT64_MAX, &others, &failure)) != NULL;) {
            undone_free(undone);
        }
        if (others) {
            umf_pause(round);
        }
    }
}
