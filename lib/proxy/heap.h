/*
 * The heap: one pool over one OS provider. It is made when the library is loaded and never
 * destroyed, because code that runs at exit still frees memory.
 */
#ifndef UMF_LIB_PROXY_HEAP_H
#define UMF_LIB_PROXY_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>

#include <umf/memory_pool.h>

typedef struct umf_proxy_heap_t {
    _Atomic(umf_memory_pool_handle_t) pool; /* NULL: not made yet, or it could not be made */
    atomic_bool is_started;                 /* libumf can be called for the owner of a pointer */
    bool is_missing;                        /* the pool could not be made */
    bool is_shared;                         /* Immutable after start */
    size_t threshold;                       /* smaller requests go to the C library. Immutable
                                               after start */
} umf_proxy_heap_t;

extern umf_proxy_heap_t umf_proxy_heap __attribute__((visibility("hidden")));

/* Reads UMF_PROXY and makes the heap. Ends the process if an option is invalid. `other`: why no
 * heap may be made (proxy/other.h), or NULL. */
void umf_proxy_heap_start(const char *other);

/*
 * Runs in the child of a fork. Shared pages still belong to the parent, which goes on using them,
 * so the child gets a new pool. Private pages are the child's own copy, so it keeps its pool.
 */
void umf_proxy_heap_forked(void);

/* The process ends. The memory stays. */
void umf_proxy_heap_stop(void);

/* Of proxy.c, for the other functions of malloc. */

/* `alignment`: a power of two. NULL and ENOMEM: there is no memory. */
void *umf_proxy_aligned(size_t alignment, size_t size) __attribute__((visibility("hidden")));
void *umf_proxy_realloc(void *ptr, size_t size) __attribute__((visibility("hidden")));
void umf_proxy_free(void *ptr) __attribute__((visibility("hidden")));

#endif
