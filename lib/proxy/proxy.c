/*
 * malloc and its kin on top of a pool.
 *
 * A thread that is inside the library must not enter the pool again: it may hold the lock for which
 * it would wait. So each thread stores the pool that it may enter, and clears this while it is
 * inside. Objects in its own magazines it gets without entering: the pool is its current one
 * (umf/memory_pool_ext.h) while it is outside, unless some sizes go to the C library. A request
 * from inside, or before the pool exists, is served from the arena, or by the C library when the
 * arena is used up. Memory that is freed from inside is kept in a list until the thread is outside.
 *
 * Memory in calls of free, realloc and malloc_usable_size may belong to the pool, to the arena, to
 * another pool (of the parent before a fork), or to the C library. The pointer map has the owner. A
 * pointer that is not in the map belongs to the C library, which checks it itself.
 *
 * A program that has a malloc of its own (proxy/other.h) gets no pool: all is as without this
 * library.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>

#include "proxy/arena.h"
#include "proxy/common.h"
#include "proxy/heap.h"
#include "proxy/libc.h"
#include "proxy/other.h"

#define PROBE ((void *)1)
#define PROBE_ANSWER 0xDEADBEEF

#define INSIDE ((umf_memory_pool_handle_t)1)

/* Blocks from this size on are not cleared but get fresh pages, so that parts that are never
 * touched cost nothing. */
#define FRESH_MIN ((size_t)1 << 20)

/* The thread caches have objects up to this size. */
#define SMALL_MAX ((size_t)1024)

typedef struct freed_t {
    struct freed_t *next;
} freed_t;

typedef struct here_t {
    umf_memory_pool_handle_t pool; /* the pool to enter; INSIDE; NULL: not looked up yet */
    freed_t *freed;                /* memory freed while inside */
} here_t;

static UMF_PROXY_THREAD here_t here;

UMF_PROXY_EXPORT void *malloc(size_t size);
UMF_PROXY_EXPORT void *calloc(size_t num, size_t size);
UMF_PROXY_EXPORT void *realloc(void *ptr, size_t size);
UMF_PROXY_EXPORT void *aligned_alloc(size_t alignment, size_t size);
UMF_PROXY_EXPORT void free(void *ptr);
UMF_PROXY_EXPORT size_t malloc_usable_size(void *ptr);

/* The functions of this library, where the program has some of the same name. */
extern __typeof__(malloc) own_malloc __attribute__((alias("malloc"), visibility("hidden")));
extern __typeof__(free) umf_proxy_free __attribute__((alias("free")));
extern __typeof__(realloc) umf_proxy_realloc __attribute__((alias("realloc")));

/* --- enter and leave --- */

static UMF_PROXY_COLD umf_memory_pool_handle_t ask_pool(void) {
    if (here.pool == INSIDE) {
        return NULL;
    }
    here.pool = atomic_load_explicit(&umf_proxy_heap.pool, memory_order_acquire);
    return here.pool;
}

/* The pool. NULL: this thread must not enter it now, or there is none. */
static inline umf_memory_pool_handle_t get_pool(void) {
    umf_memory_pool_handle_t pool = here.pool;
    return umf_proxy_likely((uintptr_t)pool > (uintptr_t)INSIDE) ? pool : ask_pool();
}

static inline void enter(void) {
    umfCurrentPoolSet(NULL);
    here.pool = INSIDE;
}

static UMF_PROXY_COLD void free_late(void) {
    freed_t *freed = here.freed;
    here.freed = NULL;
    while (freed) {
        freed_t *next = freed->next;
        free(freed);
        freed = next;
    }
}

static inline void leave(umf_memory_pool_handle_t pool) {
    here.pool = pool;
    umfCurrentPoolSet(umf_proxy_heap.threshold ? NULL : pool);
    if (umf_proxy_unlikely(here.freed != NULL)) {
        free_late();
    }
}

/* The pool that owns `ptr`. NULL: none does. */
static inline umf_memory_pool_handle_t owner_of(const void *ptr) {
    umf_memory_pool_handle_t owner = NULL;
    return umfPoolByPtr(ptr, &owner) == UMF_RESULT_SUCCESS ? owner : NULL;
}

/* --- allocation without the pool: there is none, it may not be entered, or it has no memory --- */

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

/* `alignment`: above that of malloc. */
static void *libc_aligned(const umf_proxy_libc_t *libc, size_t alignment, size_t size) {
    void *ptr = NULL;
    return libc->posix_memalign(&ptr, alignment, size) == 0 ? ptr : no_memory();
}

/* Returns zeroed memory. */
static UMF_PROXY_COLD void *early_alloc(size_t size, size_t alignment) {
    void *ptr = umf_proxy_heap.is_missing ? NULL : umf_proxy_arena_alloc(size, alignment);
    if (ptr) {
        return ptr;
    }
    const umf_proxy_libc_t *libc = umf_proxy_libc();
    if (!libc) {
        return no_memory();
    }
    if (alignment <= _Alignof(max_align_t)) {
        return libc->calloc(1, size);
    }
    ptr = libc_aligned(libc, alignment, size);
    return ptr ? memset(ptr, 0, size) : NULL;
}

static UMF_PROXY_COLD void *malloc_elsewhere(umf_memory_pool_handle_t pool, size_t size) {
    const umf_proxy_libc_t *libc = pool ? umf_proxy_libc() : NULL;
    return libc ? libc->malloc(size) : early_alloc(size, 1);
}

static UMF_PROXY_COLD void *calloc_elsewhere(umf_memory_pool_handle_t pool, size_t bytes) {
    const umf_proxy_libc_t *libc = pool ? umf_proxy_libc() : NULL;
    return libc ? libc->calloc(1, bytes) : early_alloc(bytes, 1);
}

static UMF_PROXY_COLD void *aligned_elsewhere(umf_memory_pool_handle_t pool, size_t alignment,
                                              size_t size) {
    const umf_proxy_libc_t *libc = pool ? umf_proxy_libc() : NULL;
    return libc ? libc_aligned(libc, alignment, size) : early_alloc(size, alignment);
}

/* --- allocation --- */

static __attribute__((noinline)) void *malloc_slow(size_t size) {
    umf_memory_pool_handle_t pool = get_pool();
    if (!pool || size < umf_proxy_heap.threshold) {
        return malloc_elsewhere(pool, size);
    }
    enter();
    void *ptr = umfPoolMalloc(pool, size + !size);
    leave(pool);
    return umf_proxy_likely(ptr != NULL) ? ptr : malloc_elsewhere(pool, size);
}

/* Hot. */
void *malloc(size_t size) {
    return umfCurrentPoolMalloc(size, malloc_slow);
}

/* Clears a large block. Pages that lie wholly in the block belong to it alone, so they can be
 * replaced by fresh ones. */
static void *clear(void *ptr, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)ptr + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)ptr + bytes) & ~(page - 1);
    if (umf_proxy_heap.is_shared || madvise((void *)begin, end - begin, MADV_DONTNEED) != 0) {
        return memset(ptr, 0, bytes);
    }
    memset(ptr, 0, begin - (uintptr_t)ptr);
    memset((void *)end, 0, (uintptr_t)ptr + bytes - end);
    return ptr;
}

static UMF_PROXY_COLD void *calloc_large(size_t bytes) {
    int saved_errno = errno;
    void *ptr = malloc(bytes);
    if (ptr) {
        clear(ptr, bytes);
        errno = saved_errno;
    }
    return ptr;
}

static UMF_PROXY_COLD void *calloc_slow(size_t bytes) {
    umf_memory_pool_handle_t pool = get_pool();
    if (!pool || bytes < umf_proxy_heap.threshold) {
        return calloc_elsewhere(pool, bytes);
    }
    return calloc_large(bytes);
}

/* The library can write to all memory that it serves, so it needs no umfPoolCalloc. */
void *calloc(size_t num, size_t size) {
    size_t bytes;
    if (umf_proxy_unlikely(__builtin_mul_overflow(num, size, &bytes))) {
        return no_memory();
    }
    if (umf_proxy_unlikely(bytes >= FRESH_MIN)) {
        return calloc_slow(bytes);
    }
    void *ptr = own_malloc(bytes);
    return umf_proxy_likely(ptr != NULL) ? memset(ptr, 0, bytes) : NULL;
}

/* Every object has the alignment of malloc. */
void *umf_proxy_aligned(size_t alignment, size_t size) {
    if (alignment <= _Alignof(max_align_t)) {
        return own_malloc(size);
    }
    umf_memory_pool_handle_t pool = get_pool();
    if (umf_proxy_unlikely(!pool || size < umf_proxy_heap.threshold)) {
        return aligned_elsewhere(pool, alignment, size);
    }
    enter();
    void *ptr = umfPoolAlignedMalloc(pool, size + !size, alignment);
    leave(pool);
    return umf_proxy_likely(ptr != NULL) ? ptr : aligned_elsewhere(pool, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return umf_proxy_aligned(alignment, size);
}

/* --- existing allocations --- */

static size_t pool_usable_size(umf_memory_pool_handle_t pool, const void *ptr) {
    size_t size = 0;
    umfPoolMallocUsableSize(pool, ptr, &size);
    return size;
}

/* libumf must not be called before it is started. */
static umf_memory_pool_handle_t owner_if_started(const void *ptr) {
    return atomic_load_explicit(&umf_proxy_heap.is_started, memory_order_acquire) ? owner_of(ptr)
                                                                                  : NULL;
}

static void free_foreign(void *ptr) {
    const umf_proxy_libc_t *libc = umf_proxy_libc();
    int saved_errno = errno; /* glibc itself keeps it only since 2.33 */
    if (libc) {
        libc->free(ptr);
    }
    errno = saved_errno;
}

static UMF_PROXY_COLD void free_elsewhere(void *ptr) {
    if (!ptr || umf_proxy_arena_has(ptr)) {
        return;
    }
    umf_memory_pool_handle_t owner = owner_if_started(ptr);
    if (!owner) {
        free_foreign(ptr);
    } else if (owner == atomic_load_explicit(&umf_proxy_heap.pool, memory_order_acquire)) {
        freed_t *freed = ptr;
        freed->next = here.freed;
        here.freed = freed;
    }
    /* Otherwise it belongs to the parent's pool: the child of a fork must not free it. */
}

/* errno needs no care, because pools do not change it. */
static __attribute__((noinline)) void free_slow(void *ptr) {
    umf_memory_pool_handle_t pool = get_pool();
    if (!pool || owner_of(ptr) != pool) {
        free_elsewhere(ptr);
        return;
    }
    enter();
    umfPoolFree(pool, ptr);
    leave(pool);
}

/* Hot. */
void free(void *ptr) {
    umfCurrentPoolFree(ptr, free_slow);
}

static void *move(void *ptr, size_t old, size_t size) {
    void *moved = malloc(size);
    if (moved) {
        memcpy(moved, ptr, old < size ? old : size);
        free(ptr);
    }
    return moved;
}

static UMF_PROXY_COLD void *realloc_elsewhere(void *ptr, size_t size) {
    if (umf_proxy_arena_has(ptr)) {
        return move(ptr, umf_proxy_arena_size(ptr), size);
    }
    umf_memory_pool_handle_t owner = owner_if_started(ptr);
    if (owner) {
        return move(ptr, pool_usable_size(owner, ptr), size);
    }
    const umf_proxy_libc_t *libc = umf_proxy_libc();
    return libc ? libc->realloc(ptr, size) : no_memory();
}

void *realloc(void *ptr, size_t size) {
    if (!ptr) {
        return malloc(size);
    }
    if (size == 0) {
        free(ptr);
        return NULL;
    }
    umf_memory_pool_handle_t pool = get_pool();
    if (umf_proxy_unlikely(!pool || owner_of(ptr) != pool)) {
        return realloc_elsewhere(ptr, size);
    }
    size_t old = size <= SMALL_MAX ? pool_usable_size(pool, ptr) : 0;
    bool stays = size <= old && size > old / 2;   /* recordings see that in the pool's layers */
    if (old != 0 && old <= SMALL_MAX && !stays) { /* 0: it is no live object */
        return move(ptr, old, size);
    }
    enter();
    void *moved = umfPoolRealloc(pool, ptr, size);
    leave(pool);
    return umf_proxy_likely(moved != NULL) ? moved : move(ptr, pool_usable_size(pool, ptr), size);
}

size_t malloc_usable_size(void *ptr) {
    if (ptr == PROBE) {
        return PROBE_ANSWER;
    }
    if (!ptr || umf_proxy_arena_has(ptr)) {
        return 0;
    }
    umf_memory_pool_handle_t owner = owner_if_started(ptr);
    if (owner) {
        return pool_usable_size(owner, ptr);
    }
    const umf_proxy_libc_t *libc = umf_proxy_libc();
    return libc ? libc->malloc_usable_size(ptr) : 0;
}

/* --- start, fork, exit --- */

/*
 * The handlers are registered after those of libumf: this one runs before libumf takes its locks,
 * the other two after libumf has released them. Requests of other handlers in between are served
 * from the arena.
 */
static void before_fork(void) {
    enter();
}

static void after_fork(void) {
    leave(NULL);
}

static void after_fork_in_child(void) {
    umf_proxy_heap_forked();
    leave(NULL);
}

/* libumf was started before, because this library depends on it. */
__attribute__((constructor)) static void start(void) {
    enter();
    umf_proxy_libc(); /* here, because later the loader may be locked */
    umf_proxy_heap_start(umf_proxy_other(own_malloc, umf_proxy_free));
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    leave(NULL);
}

__attribute__((destructor)) static void stop(void) {
    umf_proxy_heap_stop();
}
