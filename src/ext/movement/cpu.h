/*
 * Copies and fills by the CPU. Large ones are divided among threads, where that has been found to
 * be faster.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_CPU_H
#define UMF_SRC_EXT_MOVEMENT_CPU_H

#include "system/common.h"

/* The ranges may overlap. */
void umf_cpu_copy(void *to, const void *from, size_t size);
void umf_cpu_fill(void *to, size_t size, const void *pattern, size_t pattern_size);
/* Is the pattern one byte again and again? */
bool umf_cpu_is_one_byte(const void *pattern, size_t pattern_size);

#endif
