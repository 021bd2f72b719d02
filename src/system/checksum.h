/*
 * Checksum of bytes that travel between processes. It finds damage, but does not prevent forgery.
 *
 * Four lanes begin with size + 1, size + 2 and so on. The bytes, filled up with zeros to a multiple
 * of 32, are words of 64 bits; word i goes into lane i modulo 4: h = (h ^ w) * K, h ^= h >> 32,
 * with K = 0x9e3779b97f4a7c15. M(v) mixes one word: v *= K, v ^= v >> 32, v *= 0xd6e8feb86659fd93,
 * v ^= v >> 29. The sum is M(M(a ^ M(b)) ^ M(c ^ M(d))) of the lanes a to d. The processor computes
 * the lanes in parallel; a single chain would wait for each multiplication.
 *
 * Each step is reversible: any change within one word changes the sum with certainty, any other
 * change with a probability of 1 - 2^-64.
 */
#ifndef UMF_SRC_SYSTEM_CHECKSUM_H
#define UMF_SRC_SYSTEM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define UMF_SUM_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* K */

/* M: different for different words. */
static inline uint64_t umf_sum_mix(uint64_t v) {
    v *= UMF_SUM_FACTOR;
    v ^= v >> 32;
    v *= UINT64_C(0xd6e8feb86659fd93);
    return v ^ v >> 29;
}

/* Sums words of 8 bytes in the machine's byte order. The length is part of the sum, so trailing
 * zeros matter. */
uint64_t umf_sum(const void *data, size_t size);

/* The same of bytes that come in parts: all but the last one are multiples of 32 bytes. */
typedef struct umf_sum_t {
    uint64_t lanes[4];
} umf_sum_t;

void umf_sum_begin(umf_sum_t *sum, size_t size); /* of all parts */
void umf_sum_add(umf_sum_t *sum, const void *data, size_t size);
uint64_t umf_sum_end(const umf_sum_t *sum);

/* The sum of fields, with `check`, which is one of them, taken as 0. */
static inline uint64_t umf_sum_of_fields(void *fields, size_t size, uint64_t *check) {
    uint64_t kept = *check;
    *check = 0;
    uint64_t sum = umf_sum(fields, size);
    *check = kept;
    return sum;
}

#endif
