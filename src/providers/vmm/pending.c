/*
 * Vmm_pending: pieces without allocations that queued work may still use. They are *retired*: still
 * mapped. Then they wait behind a mark of everything that was queued, and go when it has passed.
 * Where the back end has no marks, it waits.
 */
#include <time.h>

#include "base/log.h"
#include "base/meta.h"
#include "providers/vmm/own.h"
#include "system/pause.h"

/* Of one mark. Sync: only the thread that finishes reads it, except for the list. */
typedef struct umf_vmm_pending_t {
    struct umf_vmm_pending_t *next; /* Sync: the lock of vmm */
    umf_vmm_piece_t *pieces;
    size_t bytes; /* Immutable */
    void *mark;
} umf_vmm_pending_t;

#define GRACE_NS 100000

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- retired pieces --- */

static void push_retired(umf_vmm_t *vmm, umf_vmm_piece_t *first) {
    umf_vmm_piece_t *last = first;
    while (last->next) {
        last = last->next;
    }
    umf_lock(&vmm->carve.lock);
    last->next = vmm->retired;
    vmm->retired = first;
    umf_unlock(&vmm->carve.lock);
}

static umf_vmm_piece_t *pop_retired(umf_vmm_t *vmm) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_piece_t *first = vmm->retired;
    vmm->retired = NULL;
    umf_unlock(&vmm->carve.lock);
    return first;
}

static size_t bytes_of(const umf_vmm_piece_t *piece) {
    size_t bytes = 0;
    for (; piece; piece = piece->next) {
        bytes += piece->size;
    }
    return bytes;
}

/* Releases a list of pieces. Returns the first failure. */
static umf_result_t unmake_all(umf_vmm_t *vmm, umf_vmm_piece_t *first) {
    umf_result_t failure = UMF_RESULT_SUCCESS;
    for (umf_vmm_piece_t *piece = first, *next; piece; piece = next) {
        void *base = (void *)piece->base;
        next = piece->next;
        umf_result_t result = umf_vmm_piece_unmake(vmm, piece);
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_WARN("the memory at %p is freed, but the system did not take all of it back",
                         base);
            failure = failure ? failure : result;
        }
    }
    return failure;
}

/* --- pieces behind marks --- */

static void append(umf_vmm_t *vmm, umf_vmm_pending_t *pending) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_pending_t **end = &vmm->pending;
    while (*end) {
        end = &(*end)->next;
    }
    *end = pending;
    umf_unlock(&vmm->carve.lock);
}

static umf_vmm_pending_t *oldest(umf_vmm_t *vmm) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_pending_t *pending = vmm->pending;
    umf_unlock(&vmm->carve.lock);
    return pending;
}

/* Takes the oldest off the list; its mark has ended. Its pieces are the caller's. */
static umf_vmm_piece_t *remove_oldest(umf_vmm_t *vmm) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_pending_t *pending = vmm->pending;
    vmm->pending = pending->next;
    umf_unlock(&vmm->carve.lock);
    umf_vmm_piece_t *pieces = pending->pieces;
    umf_meta_free(pending, sizeof(*pending));
    return pieces;
}

/* --- the turn: one thread at a time finishes; a forked child has no other threads --- */

static bool turn_try(umf_vmm_t *vmm) {
    unsigned mine = umf_fork_count() + 1, now = atomic_load(&vmm->finishing);
    if (now == mine || !atomic_compare_exchange_strong(&vmm->finishing, &now, mine)) {
        return false;
    }
    if (now != 0 && oldest(vmm)) {
        /* The thread did not come along, and may have ended the oldest mark, which is still listed.
         * That one is left as it is, and its pieces get another one. */
        push_retired(vmm, remove_oldest(vmm));
    }
    return true;
}

static bool turn_take(umf_vmm_t *vmm, bool waits) {
    bool is_mine = turn_try(vmm);
    for (unsigned round = 0; waits && !is_mine; round++) {
        umf_pause(round);
        is_mine = turn_try(vmm);
    }
    return is_mine;
}

static void turn_end(umf_vmm_t *vmm) {
    atomic_store(&vmm->finishing, 0);
}

/* --- finishing --- */

umf_result_t umf_vmm_settle(umf_vmm_t *vmm) {
    return vmm->ops->settle ? vmm->ops->settle(vmm) : UMF_RESULT_SUCCESS;
}

static umf_result_t settle_and_unmake(umf_vmm_t *vmm, umf_vmm_piece_t *first) {
    if (umf_vmm_settle(vmm) != UMF_RESULT_SUCCESS) {
        push_retired(vmm, first);
        return UMF_RESULT_SUCCESS;
    }
    return unmake_all(vmm, first);
}

/* Puts retired pieces behind one mark. If that is not possible now, they stay for the next call. */
static umf_result_t mark_retired(umf_vmm_t *vmm) {
    umf_vmm_piece_t *first = pop_retired(vmm);
    if (!first) {
        return UMF_RESULT_SUCCESS;
    }
    umf_vmm_pending_t *pending = vmm->ops->mark ? umf_meta_alloc(sizeof(*pending)) : NULL;
    umf_result_t result =
        pending ? vmm->ops->mark(vmm, &pending->mark) : UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (result == UMF_RESULT_SUCCESS) {
        pending->pieces = first;
        pending->bytes = bytes_of(first);
        append(vmm, pending);
        return UMF_RESULT_SUCCESS;
    }
    umf_meta_free(pending, sizeof(*pending));
    if (result != UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        return settle_and_unmake(vmm, first);
    }
    push_retired(vmm, first);
    return UMF_RESULT_SUCCESS;
}

/* Releases completed pieces, oldest first. */
static umf_result_t finish(umf_vmm_t *vmm, bool waits) {
    umf_result_t failure = UMF_RESULT_SUCCESS;
    for (umf_vmm_pending_t *next;
         (next = oldest(vmm)) && vmm->ops->mark_completed(vmm, next->mark, waits);) {
        umf_result_t result = unmake_all(vmm, remove_oldest(vmm));
        failure = failure ? failure : result;
    }
    return failure;
}

static umf_result_t mark_and_finish(umf_vmm_t *vmm, bool waits) {
    if (!turn_take(vmm, waits)) {
        return UMF_RESULT_SUCCESS; /* the thread that has the turn, or the next call, does it */
    }
    umf_result_t marked = mark_retired(vmm), finished = finish(vmm, waits);
    turn_end(vmm);
    return marked ? marked : finished;
}

static bool is_alone(umf_vmm_t *vmm) {
    umf_lock(&vmm->carve.lock);
    bool is_so = vmm->pending && !vmm->pending->next;
    umf_unlock(&vmm->carve.lock);
    return is_so;
}

/* A mark of an idle device passes in a moment. Unmapping takes longer. */
umf_result_t umf_vmm_give_back(umf_vmm_t *vmm) {
    umf_result_t result = mark_and_finish(vmm, false);
    for (uint64_t end = 0, now = now_ns(); is_alone(vmm) && (!end || now < end); now = now_ns()) {
        end = end ? end : now + GRACE_NS;
        umf_result_t later = mark_and_finish(vmm, false);
        result = result ? result : later;
    }
    return result;
}

bool umf_vmm_has_pending(umf_vmm_t *vmm) {
    umf_lock(&vmm->carve.lock);
    bool has = vmm->pending || vmm->retired || atomic_load(&vmm->finishing);
    umf_unlock(&vmm->carve.lock);
    return has;
}

umf_result_t umf_vmm_free_pending(void *provider, int may_block, size_t *left) {
    umf_vmm_t *vmm = provider;
    umf_result_t result =
        umf_vmm_has_pending(vmm) ? mark_and_finish(vmm, may_block != 0) : UMF_RESULT_SUCCESS;
    *left = 0;
    umf_lock(&vmm->carve.lock);
    for (const umf_vmm_pending_t *at = vmm->pending; at; at = at->next) {
        *left += at->bytes;
    }
    *left += bytes_of(vmm->retired);
    umf_unlock(&vmm->carve.lock);
    return result;
}

/* All work has been waited for, so a mark that cannot be queried has completed. It stays. */
void umf_vmm_unmake_pending(umf_vmm_t *vmm) {
    turn_take(vmm, true);
    finish(vmm, true);
    while (oldest(vmm)) {
        unmake_all(vmm, remove_oldest(vmm));
    }
    unmake_all(vmm, pop_retired(vmm));
}

/* A piece that is not mapped, or a back end without queues, needs no wait. */
umf_result_t umf_vmm_let_go(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    if (!vmm->ops->settle || !umf_vmm_is_mapped(piece)) {
        return unmake_all(vmm, piece);
    }
    push_retired(vmm, piece);
    umf_lock(&vmm->carve.lock);
    /* Within a batch of frees the pieces collect, so that one mark serves all of them. */
    bool is_batch = vmm->batches > 0;
    umf_unlock(&vmm->carve.lock);
    return is_batch ? UMF_RESULT_SUCCESS : umf_vmm_give_back(vmm);
}
