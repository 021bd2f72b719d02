/* Checksum of bytes that travel between processes: finds damage, keeps nobody from forging. */
#ifndef UMF_SRC_BASE_SUM_H
#define UMF_SRC_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

/* By words of 8 bytes. Each step is reversible, so any change of one word changes the sum. */
uint64_t umf_sum(const void *data, size_t size);

#endif
