#include "system/checksum.h"

#include <string.h>

#define SUM_LANES 4
#define SUM_WORD sizeof(uint64_t)

static uint64_t sum_word(const char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* One multiplication: the next word, or the end, mixes further. */
static uint64_t sum_step(uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * UMF_SUM_FACTOR;
    return lane ^ lane >> 32;
}

void umf_sum_begin(umf_sum_t *sum, size_t size) {
    for (unsigned i = 0; i < SUM_LANES; i++) {
        sum->lanes[i] = size + 1 + i;
    }
}

void umf_sum_add(umf_sum_t *sum, const void *data, size_t size) {
    const char *bytes = data;
    uint64_t a = sum->lanes[0], b = sum->lanes[1], c = sum->lanes[2], d = sum->lanes[3];
    size_t left = size;
    for (; left >= SUM_LANES * SUM_WORD; left -= SUM_LANES * SUM_WORD) {
        a = sum_step(a, sum_word(bytes));
        b = sum_step(b, sum_word(bytes + SUM_WORD));
        c = sum_step(c, sum_word(bytes + 2 * SUM_WORD));
        d = sum_step(d, sum_word(bytes + 3 * SUM_WORD));
        bytes += SUM_LANES * SUM_WORD;
    }
    if (left) {
        char rest[SUM_LANES * SUM_WORD] = {0};
        memcpy(rest, bytes, left);
        a = sum_step(a, sum_word(rest));
        b = sum_step(b, sum_word(rest + SUM_WORD));
        c = sum_step(c, sum_word(rest + 2 * SUM_WORD));
        d = sum_step(d, sum_word(rest + 3 * SUM_WORD));
    }
    *sum = (umf_sum_t){{a, b, c, d}};
}

uint64_t umf_sum_end(const umf_sum_t *sum) {
    return umf_sum_mix(umf_sum_mix(sum->lanes[0] ^ umf_sum_mix(sum->lanes[1])) ^
                       umf_sum_mix(sum->lanes[2] ^ umf_sum_mix(sum->lanes[3])));
}

uint64_t umf_sum(const void *data, size_t size) {
    umf_sum_t sum;
    umf_sum_begin(&sum, size);
    umf_sum_add(&sum, data, size);
    return umf_sum_end(&sum);
}
