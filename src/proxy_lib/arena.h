/*
 * Memory for requests that cannot wait for the pool: those made before it exists, and those that
 * the pool itself causes. It is handed out once and never reused.
 */
#ifndef UMF_SRC_PROXY_LIB_ARENA_H
#define UMF_SRC_PROXY_LIB_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed; NULL when the arena is used up. `alignment` is a power of two. Any thread, any time. */
void *umf_proxy_arena_alloc(size_t size, size_t alignment);

bool umf_proxy_arena_has(const void *ptr);

/* What was asked for when `ptr` was handed out. */
size_t umf_proxy_arena_size(const void *ptr);

#endif
