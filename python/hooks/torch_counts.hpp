/*
 * Counts of the allocations of PyTorch, one set for each device, for torch's own statistics. A
 * set has a lock of its own, so that peaks are exact with any number of threads. The peaks can be
 * set to the current values, which no pool does with its own.
 */
#ifndef UMF_PYTHON_HOOKS_TORCH_COUNTS_HPP
#define UMF_PYTHON_HOOKS_TORCH_COUNTS_HPP

#include <cstddef>

/* Sizes of blocks are multiples of it, in all pools of the process: that of torch's allocator. */
constexpr size_t TORCH_GRANULE = 512;

constexpr int MAX_DEVICES = 64; /* with an arena and counts; calls for others count nothing */

void count_alloc(int device, size_t size);
/* Before the memory can be allocated again. `size`: that of count_alloc. */
void count_free(int device, size_t size);
/* Everything free was given back, and the request is tried once more. */
void count_retry(int device);
void count_out_of_memory(int device);

#endif
