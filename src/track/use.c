#include "track/use.h"

#include "system/pause.h"

_Atomic uint64_t umf_use_counts[UMF_USE_COUNTS];
_Atomic bool umf_use_has_begun;

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
