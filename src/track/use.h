/*
 * Uses: spans whose memory is being copied. A span that was withdrawn is returned to its provider
 * only when no copy uses it.
 *
 * Spans are counted by a hash of their index. Two that share a count are waited for together. A use
 * of two spans for a moment needs no count: a thread writes both into a word of its own, with one
 * locked instruction instead of four.
 */
#ifndef UMF_SRC_TRACK_USE_H
#define UMF_SRC_TRACK_USE_H

#include "base/lock.h"
#include "base/thread_slot.h"
#include "system/atomic.h"

#define UMF_USE_COUNTS 4096u

/* Each count has the number of forks above it: a child does not have the threads that were copying.
 */
extern UMF_HIDDEN _Atomic(uint64_t) umf_use_counts[UMF_USE_COUNTS];

/* Has anything ever been used? Programs that never copy pay for one load. */
extern UMF_HIDDEN _Atomic(bool) umf_use_has_begun;

#define UMF_USE_WORDS 64u
#define UMF_USE_SPAN_BITS 26

/* Of a thread: both spans, and above them the number of forks, as in the counts. */
typedef struct umf_use_word_t {
    _Alignas(64) _Atomic(uint64_t) spans;
} umf_use_word_t;
extern UMF_HIDDEN umf_use_word_t umf_use_words[UMF_USE_WORDS];

/* All words from here on have never been used. */
extern UMF_HIDDEN _Atomic(uint32_t) umf_use_word_count;

/* Neighbours in the table of spans do not share a cache line. */
static inline _Atomic(uint64_t) *umf_use_count(uint32_t span) {
    return &umf_use_counts[(span << 4 | (span >> 8 & 15)) % UMF_USE_COUNTS];
}

/* The caller checks afterwards that the span is still live. Sequentially consistent, as the claim
 * of a span: of the two threads one sees the other. */
static inline void umf_use_begin(uint32_t span) {
    if (umf_unlikely(!atomic_load(&umf_use_has_begun))) {
        atomic_store(&umf_use_has_begun, true);
    }
    _Atomic(uint64_t) *count = umf_use_count(span);
    uint64_t none = (uint64_t)umf_fork_count() << 32, seen = atomic_load(count);
    while (!atomic_compare_exchange_weak(count, &seen, (seen < none ? none : seen) + 1)) {
    }
}

static inline void umf_use_end(uint32_t span) {
    atomic_fetch_sub_explicit(umf_use_count(span), 1, memory_order_release);
}

static inline uint64_t umf_use_word_forks(void) {
    return (uint64_t)umf_fork_count() << 2 * UMF_USE_SPAN_BITS;
}

static inline bool umf_use_word_is_of(uint64_t spans, uint64_t forks) {
    return spans != 0 && spans >> 2 * UMF_USE_SPAN_BITS == forks >> 2 * UMF_USE_SPAN_BITS;
}

UMF_COLD void umf_use_word_reach(uint32_t number);

/* Uses two spans, of which one may be 0. NULL: another thread has the same word, and nothing is in
 * use. As with umf_use_begin the caller checks afterwards that the spans are live. */
static inline _Atomic(uint64_t) *umf_use_both(uint32_t a, uint32_t b) {
    uint32_t number = umf_thread_slot_number() % UMF_USE_WORDS;
    _Atomic(uint64_t) *word = &umf_use_words[number].spans;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed), forks = umf_use_word_forks();
    if (umf_unlikely(number >= atomic_load_explicit(&umf_use_word_count, memory_order_relaxed))) {
        umf_use_word_reach(number);
    }
    bool is_free = !umf_use_word_is_of(seen, forks);
    return umf_likely(is_free && atomic_compare_exchange_strong(
                                     word, &seen, forks | (uint64_t)a << UMF_USE_SPAN_BITS | b))
               ? word
               : NULL;
}

static inline void umf_use_both_end(_Atomic(uint64_t) *word) {
    atomic_store_explicit(word, 0, memory_order_release);
}

/* Is the span in a thread's word? */
UMF_COLD bool umf_is_in_word(uint32_t span);

static inline bool umf_is_used(uint32_t span) {
    uint64_t count = atomic_load(umf_use_count(span));
    return (umf_unlikely((uint32_t)count != 0) && count >> 32 == umf_fork_count()) ||
           umf_is_in_word(span);
}

/* Waits until a span that is no longer live is unused. No lock may be held. */
UMF_COLD void umf_use_wait_slow(uint32_t span);

/* Must a withdraw check whether a span is used? */
static inline bool umf_use_is_possible(void) {
    return umf_unlikely(atomic_load(&umf_use_has_begun));
}

static inline void umf_use_wait(uint32_t span) {
    if (umf_use_is_possible()) {
        umf_use_wait_slow(span);
    }
}

/* Ends uses whose work has been queued and is done; called by those who wait for a span. Set once,
 * before anything is used. */
extern void (*umf_use_settle)(uint32_t span);

#endif
