#include "track/use.h"

#include "system/pause.h"

_Atomic uint64_t umf_use_counts[UMF_USE_COUNTS];
_Atomic bool umf_use_has_begun;

umf_use_word_t umf_use_words[UMF_USE_WORDS];
_Atomic uint32_t umf_use_word_count;

void umf_use_word_reach(uint32_t number) {
    uint32_t count = atomic_load(&umf_use_word_count);
    atomic_store(&umf_use_has_begun, true);
    while (count <= number &&
           !atomic_compare_exchange_weak(&umf_use_word_count, &count, number + 1)) {
    }
}

bool umf_is_in_word(uint32_t span) {
    const uint64_t forks = umf_use_word_forks(), mask = ((uint64_t)1 << UMF_USE_SPAN_BITS) - 1;
    uint32_t count = atomic_load(&umf_use_word_count);
    bool is_found = false;
    for (uint32_t i = 0; i < count && !is_found; i++) {
        uint64_t spans = atomic_load(&umf_use_words[i].spans);
        is_found = umf_use_word_is_of(spans, forks) &&
                   ((spans & mask) == span || (spans >> UMF_USE_SPAN_BITS & mask) == span);
    }
    return is_found;
}

static void settle_nothing(uint32_t span) {
    (void)span;
}

void (*umf_use_settle)(uint32_t span) = settle_nothing;

void umf_use_wait_slow(uint32_t span) {
    for (unsigned round = 0; umf_is_used(span); round++) {
        umf_use_settle(span);
        umf_pause(round);
    }
}
