/*
 * The heap: one pool over one OS provider, made when the library is loaded and never destroyed,
 * because code that runs at exit still frees.
 */
#ifndef UMF_SRC_PROXY_LIB_HEAP_H
#define UMF_SRC_PROXY_LIB_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>

#include <umf/memory_pool.h>

typedef struct umf_proxy_heap_t {
    _Atomic(umf_memory_pool_handle_t) pool; /* NULL: not there yet, or it could not be made */
    atomic_bool is_started;                 /* libumf may be asked whose a pointer is */
    bool is_missing;                        /* the pool could not be made */
    bool is_shared;                         /* Immutable after start */
    size_t threshold;                       /* smaller requests go to the C library. Likewise */
} umf_proxy_heap_t;

extern umf_proxy_heap_t umf_proxy_heap __attribute__((visibility("hidden")));

/* Reads UMF_PROXY and makes the heap. Ends the process if an option makes no sense. */
void umf_proxy_heap_start(void);

/*
 * In the child of a fork. Shared pages are the parent's, too, and it goes on using them: the child
 * gets a pool of its own. Private pages are the child's own copy, and it simply goes on.
 */
void umf_proxy_heap_forked(void);

/* The process ends; the memory stays. */
void umf_proxy_heap_stop(void);

#endif
