/*
 * Producers: a short list for each owner of mappings. A user of an entry holds a reference, so that
 * its descriptor stays open.
 */
#include "ipc/producers.h"

#include <string.h>

#include "base/lock.h"
#include "base/meta.h"

struct umf_producer_t {
    umf_process_known_t known;
    size_t refs;        /* Sync: lock */
    bool is_remembered; /* it is or was in the list. Sync: lock */
};

UMF_LOCK_STATIC(producers_lock, UMF_RANK_IMPORT);

_Static_assert(UMF_PRODUCERS <= UMF_PROCESS_ASK_MAX, "all are read in one call");

umf_kept_fd_t umf_producer_file(const umf_producer_t *producer) {
    return producer ? producer->known.file : (umf_kept_fd_t){0};
}

void umf_producer_put(umf_producer_t *producer) {
    if (producer == NULL) {
        return;
    }
    umf_lock(&producers_lock);
    bool is_last = --producer->refs == 0;
    umf_unlock(&producers_lock);
    if (is_last) {
        umf_process_forget(&producer->known);
        umf_meta_free(producer, sizeof(*producer));
    }
}

/* Moves a producer to the front. The entries before place `at`, which is free or its
 * own, move up. */
static void producers_put_first_locked(umf_producers_t *producers, size_t at,
                                       umf_producer_t *producer) {
    umf_producer_t **first = &producers->last_used[0];
    memmove(first + 1, first, at * sizeof(*first));
    *first = producer;
}

/* NULL: the process is not in the list, or no longer. */
static umf_producer_t *producers_find(umf_producers_t *producers, const umf_process_t *process) {
    umf_producer_t *found = NULL;
    umf_lock(&producers_lock);
    for (size_t i = 0; i < UMF_PRODUCERS && producers->last_used[i] && !found; i++) {
        if (umf_process_is_same(&producers->last_used[i]->known.process, process)) {
            found = producers->last_used[i];
            found->refs++;
            producers_put_first_locked(producers, i, found);
        }
    }
    umf_unlock(&producers_lock);
    return found;
}

static umf_producer_t *producer_create(umf_process_known_t *known) {
    umf_producer_t *producer = known->process.pid != 0 ? umf_meta_alloc(sizeof(*producer)) : NULL;
    if (producer == NULL) {
        umf_process_forget(known);
        return NULL;
    }
    producer->known = *known;
    producer->refs = 1;
    return producer;
}

umf_result_t umf_producers_check(umf_producers_t *producers, const umf_process_t *process,
                                 umf_producer_t **out) {
    umf_producer_t *producer = producers_find(producers, process);
    if (producer && umf_process_is_known(&producer->known, process)) {
        *out = producer;
        return UMF_RESULT_SUCCESS;
    }
    umf_producer_put(producer);
    umf_process_known_t known;
    umf_result_t result = umf_process_meet(process, &known);
    if (result == UMF_RESULT_SUCCESS) {
        *out = producer_create(&known);
    }
    return result;
}

/* One bit for each producer that has ended. */
static uint32_t producers_ended_locked(const umf_producers_t *producers) {
    const umf_process_known_t *known[UMF_PRODUCERS];
    uint32_t count = 0;
    for (; count < UMF_PRODUCERS && producers->last_used[count]; count++) {
        known[count] = &producers->last_used[count]->known;
    }
    return umf_process_ended(known, count);
}

/* Hands the producers of `which` over to the caller. The others move up. */
static void producers_take_out_locked(umf_producers_t *producers, uint32_t which,
                                      umf_producer_t *out[UMF_PRODUCERS]) {
    size_t kept = 0, taken = 0;
    for (size_t i = 0; i < UMF_PRODUCERS && producers->last_used[i]; i++) {
        umf_producer_t *producer = producers->last_used[i];
        producers->last_used[i] = NULL;
        if (which >> i & 1) {
            out[taken++] = producer;
        } else {
            producers->last_used[kept++] = producer;
        }
    }
}

static void producers_put_all(umf_producer_t *gone[UMF_PRODUCERS]) {
    for (size_t i = 0; i < UMF_PRODUCERS; i++) {
        umf_producer_put(gone[i]);
    }
}

static void producers_add_locked(umf_producers_t *producers, umf_producer_t *producer,
                                 umf_producer_t *gone[UMF_PRODUCERS]) {
    const size_t last = UMF_PRODUCERS - 1;
    producers_take_out_locked(producers, producers_ended_locked(producers), gone);
    if (producers->last_used[last]) {
        /* All places are taken, so none had ended: the least recently used one leaves. */
        gone[0] = producers->last_used[last];
    }
    producer->refs++;
    producer->is_remembered = true;
    producers_put_first_locked(producers, last, producer);
}

void umf_producers_remember(umf_producers_t *producers, umf_producer_t *producer) {
    umf_producer_t *gone[UMF_PRODUCERS] = {NULL};
    if (producer == NULL) {
        return;
    }
    umf_lock(&producers_lock);
    bool is_new = !producer->is_remembered;
    if (is_new) {
        producers_add_locked(producers, producer, gone);
    }
    umf_unlock(&producers_lock);
    if (is_new) {
        producers_put_all(gone);
    }
}

void umf_producers_fini(umf_producers_t *producers) {
    umf_producer_t *gone[UMF_PRODUCERS] = {NULL};
    umf_lock(&producers_lock);
    producers_take_out_locked(producers, UINT32_MAX, gone);
    umf_unlock(&producers_lock);
    producers_put_all(gone);
}
