#include "ext/movement/pending.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ds/list.h"
#include "system/pause.h"

typedef struct pending_t {
    umf_list_t link; /* Sync: pending_lock */
    bool is_taken;   /* a thread checks whether it is done. Sync: pending_lock */
    unsigned failed; /* waits. Sync: the thread that has taken it */
    unsigned forks;  /* umf_fork_count() when it was listed. Immutable */
    umf_memory_provider_handle_t provider;
    const umf_memory_provider_ext_ops_t *ext;
    void *self;
    umf_foreign_t foreign; /* `self` points into it where no provider does the work */
    void *mark;
    size_t count;
    uint32_t spans[];
} pending_t;

UMF_LOCK_STATIC(pending_lock, UMF_RANK_SUSPEND);
static umf_list_t pendings = {&pendings, &pendings}; /* oldest first. Sync: pending_lock */
static unsigned pending_forks; /* umf_fork_count() of the listed ones. Sync: pending_lock */

static size_t pending_bytes(size_t count) {
    return sizeof(pending_t) + count * sizeof(uint32_t);
}

static void pending_free(pending_t *pending) {
    umf_meta_free(pending, pending_bytes(pending->count));
}

/* Takes the lock. A child of fork forgets the work of its parent: nothing is in use by it here, and
 * the thread that ends a mark did not come along. */
static void pendings_lock(void) {
    umf_lock(&pending_lock);
    if (umf_unlikely(pending_forks != umf_fork_count())) {
        pending_forks = umf_fork_count();
        umf_list_init(&pendings);
    }
}

static void pending_link(pending_t *pending) {
    pendings_lock();
    pending->forks = pending_forks;
    umf_list_add_tail(&pendings, &pending->link);
    umf_unlock(&pending_lock);
}

typedef bool (*is_meant_t)(const pending_t *pending, const void *what);

/* The oldest that is meant and not taken, which the caller takes. NULL: there is none. `others` is
 * then set if other threads have taken some. */
static pending_t *pending_take(is_meant_t is_meant, const void *what, bool *others) {
    pending_t *found = NULL;
    *others = false;
    pendings_lock();
    for (umf_list_t *at = pendings.next; at != &pendings && !found; at = at->next) {
        pending_t *pending = UMF_CONTAINER_OF(at, pending_t, link);
        if (is_meant(pending, what)) {
            *others |= pending->is_taken;
            found = pending->is_taken ? NULL : pending;
        }
    }
    if (found) {
        found->is_taken = true;
    }
    umf_unlock(&pending_lock);
    return found;
}

/* An operation of the provider may fork. In the child the one that is taken is on no list and
 * counts no uses any more. */
static bool is_of_parent(const pending_t *pending) {
    return pending->forks != umf_fork_count();
}

static void pending_put_back(pending_t *pending) {
    umf_lock(&pending_lock);
    pending->is_taken = false;
    umf_unlock(&pending_lock);
}

static void pending_end(pending_t *pending) {
    bool is_listed = !is_of_parent(pending);
    umf_lock(&pending_lock);
    if (is_listed) {
        umf_list_remove(&pending->link);
    }
    umf_unlock(&pending_lock);
    for (size_t i = 0; is_listed && i < pending->count; i++) {
        umf_use_end(pending->spans[i]);
    }
    pending_free(pending);
}

/* A wait that fails gives no state of the work. Then the caller waits for all work of the device.
 */
static bool pending_is_done(const pending_t *pending, bool may_block) {
    const umf_memory_provider_ext_ops_t *ext = pending->ext;
    if (ext->mark_wait(pending->self, pending->mark, may_block)) {
        return true;
    }
    bool is_settled = may_block && ext->settle && ext->settle(pending->self) == UMF_RESULT_SUCCESS;
    if (is_settled) {
        ext->mark_wait(pending->self, pending->mark, false); /* ends the mark */
    }
    return is_settled;
}

/* After so many failed waits, about a second, the work counts as done: no free and no end of a pool
 * may hang for ever. */
#define FAILURES_MAX 10000u

static bool pending_is_given_up(pending_t *pending) {
    if (++pending->failed < FAILURES_MAX) {
        return false;
    }
    UMF_LOG_ERROR("%u waits for queued work have failed: the memory that it uses is given back, "
                  "though the work may still run",
                  pending->failed);
    return true;
}

/* Ends a taken one that is done. false: it is not done, and no longer taken. */
static bool pending_try_end(pending_t *pending, bool may_block) {
    if (!pending_is_done(pending, may_block) && !(may_block && pending_is_given_up(pending))) {
        pending_put_back(pending);
        return false;
    }
    pending_end(pending);
    return true;
}

static bool is_any(const pending_t *pending, const void *what) {
    (void)pending, (void)what;
    return true;
}

static bool is_of_span(const pending_t *pending, const void *span) {
    const _Atomic uint64_t *requested = umf_use_count(*(const uint32_t *)span);
    size_t i = 0;
    while (i < pending->count && umf_use_count(pending->spans[i]) != requested) {
        i++;
    }
    return i < pending->count;
}

static bool is_of_provider(const pending_t *pending, const void *provider) {
    return pending->provider == provider;
}

/* Ends some of the oldest that are done. */
static void pending_sweep(void) {
    bool others, goes_on = true;
    for (int i = 0; i < 4 && goes_on; i++) {
        pending_t *oldest = pending_take(is_any, NULL, &others);
        goes_on = oldest && pending_try_end(oldest, false);
    }
}

/* Ends all that are meant, also those that other threads have taken. */
static void pending_end_all(is_meant_t is_meant, const void *what) {
    bool others = true;
    for (unsigned round = 0; others; round++) {
        unsigned failed = 0;
        for (pending_t *pending; (pending = pending_take(is_meant, what, &others)) != NULL;) {
            if (!pending_try_end(pending, true)) {
                umf_pause(failed++);
            }
        }
        if (others) {
            umf_pause(round);
        }
    }
}

void umf_pending_settle(uint32_t span) {
    pending_end_all(is_of_span, &span);
}

void umf_pending_drop(umf_memory_provider_handle_t provider) {
    pending_end_all(is_of_provider, provider);
}

static size_t operands_spans(const umf_operand_t *operands, size_t count) {
    size_t spans = 0;
    for (size_t i = 0; i < count; i++) {
        spans += operands[i].span != 0;
    }
    return spans;
}

/* The uses pass from the operands to the pending copy. */
static void pending_fill(pending_t *pending, const umf_operand_t *mover, umf_operand_t *operands,
                         size_t count) {
    size_t at = 0;
    pending->provider = mover->provider;
    pending->ext = mover->ext;
    pending->self = mover->self;
    if (mover->source == UMF_PLACE_FROM_DRIVER && mover->self == mover->foreign.self) {
        pending->foreign = mover->foreign;
        pending->self = pending->foreign.self;
    }
    for (size_t i = 0; i < count; i++) {
        if (operands[i].span) {
            pending->spans[at++] = operands[i].span;
            operands[i].span = 0;
        }
    }
}

/* Without marks the work must end before the return. */
static umf_result_t pending_wait_instead(const umf_operand_t *mover, void *queue) {
    return mover->ext->queue_wait(mover->self, queue);
}

static bool has_marks(const umf_operand_t *mover) {
    return mover->ext->queue_mark && mover->ext->mark_wait;
}

umf_result_t umf_pending_add(const umf_operand_t *mover, void *queue, umf_operand_t *operands,
                             size_t count, bool waits) {
    void *mark = NULL;
    size_t spans = operands_spans(operands, count);
    pending_sweep();
    if (spans == 0 && !waits) {
        return UMF_RESULT_SUCCESS;
    }
    if (!has_marks(mover) ||
        mover->ext->queue_mark(mover->self, queue, &mark) != UMF_RESULT_SUCCESS) {
        return pending_wait_instead(mover, queue);
    }
    if (!mark) { /* captured: it happens when the graph runs */
        return UMF_RESULT_SUCCESS;
    }
    pending_t *pending = waits ? NULL : umf_meta_alloc(pending_bytes(spans));
    if (!pending) {
        mover->ext->mark_wait(mover->self, mark, true);
        return pending_wait_instead(mover, queue); /* which gives the error of the work */
    }
    pending->count = spans;
    pending->mark = mark;
    pending_fill(pending, mover, operands, count);
    pending_link(pending);
    return UMF_RESULT_SUCCESS;
}
