/*
 * Arena: memory for requests that the pool cannot serve: those made before it exists, and those
 * that the pool itself causes. The memory is handed out once and never reused.
 */
#ifndef UMF_LIB_PROXY_ARENA_H
#define UMF_LIB_PROXY_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Returns zeroed memory. NULL: the arena is used up. `alignment` is a power of two. Any thread may
 * call it at any time. */
void *umf_proxy_arena_alloc(size_t size, size_t alignment);

bool umf_proxy_arena_has(const void *ptr);

/* The size of the request for which `ptr` was handed out. */
size_t umf_proxy_arena_size(const void *ptr);

#endif
