#include "base/sum.h"

#include <string.h>

#define SUM_LANES 4
#define SUM_WORD sizeof(uint64_t)

static uint64_t sum_word(const char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Fewer than a word for each lane. */
static void sum_rest(uint64_t lanes[SUM_LANES], const char *bytes, size_t size) {
    size_t lane = 0;
    for (; size >= SUM_WORD; size -= SUM_WORD, bytes += SUM_WORD, lane++) {
        lanes[lane] = umf_sum_mix(lanes[lane] ^ sum_word(bytes));
    }
    if (size) {
        char last[SUM_WORD] = {0};
        memcpy(last, bytes, size);
        lanes[lane] = umf_sum_mix(lanes[lane] ^ sum_word(last));
    }
}

uint64_t umf_sum(const void *data, size_t size) {
    const char *bytes = data;
    uint64_t a = umf_sum_mix(size + 1), b = umf_sum_mix(size + 2), c = umf_sum_mix(size + 3),
             d = umf_sum_mix(size + 4);
    size_t left = size;
    for (; left >= SUM_LANES * SUM_WORD; left -= SUM_LANES * SUM_WORD) {
        a = umf_sum_mix(a ^ sum_word(bytes));
        b = umf_sum_mix(b ^ sum_word(bytes + SUM_WORD));
        c = umf_sum_mix(c ^ sum_word(bytes + 2 * SUM_WORD));
        d = umf_sum_mix(d ^ sum_word(bytes + 3 * SUM_WORD));
        bytes += SUM_LANES * SUM_WORD;
    }
    uint64_t lanes[SUM_LANES] = {a, b, c, d};
    sum_rest(lanes, bytes, left);
    return umf_sum_mix(umf_sum_mix(lanes[0] ^ umf_sum_mix(lanes[1])) ^
                       umf_sum_mix(lanes[2] ^ umf_sum_mix(lanes[3])));
}
