/*
 * Metadata arena: size classes over chunks of the system.
 *
 * A class takes runs of pages from the newest chunk and cuts them into blocks, so every block has
 * the alignment of its class without a header. Four classes per doubling keep the waste below one
 * fifth; up to 64 bytes the steps are 16 bytes, from a page on they are pages. Freed blocks are
 * kept in the free list of their class. A block above the largest class is a mapping of its own,
 * and is unmapped when it is freed.
 */
#include "base/meta.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "system/annotate.h"
#include "system/common.h"
#include "system/keep_errno.h"
#include "system/os.h"

#define META_PAGE 4096u /* the step and alignment of the largest classes */
#define META_CLASS_MAX (32u << 10)
#define META_RUN (16u << 10)
#define META_CHUNK_MIN ((size_t)256 << 10)
#define META_CHUNK_MAX ((size_t)1 << 20)

static const uint16_t meta_sizes[] = {
    16,   32,   48,   64,   128,  192,  256,  320,  384,  448,   512,   640,   768,   896,   1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768,
};
#define META_CLASSES UMF_COUNT_OF(meta_sizes)

typedef struct meta_block_t {
    struct meta_block_t *next;
} meta_block_t;

typedef struct meta_class_t {
    meta_block_t *free;
    uintptr_t fresh, fresh_end; /* the unused rest of the current run, which is still zero */
} meta_class_t;

UMF_LOCK_STATIC(meta_lock, UMF_RANK_META);
static meta_class_t meta_classes[META_CLASSES]; /* Sync: meta_lock */
static uintptr_t meta_chunk, meta_chunk_end;    /* the rest of the newest chunk. Sync: meta_lock */
static size_t meta_chunk_size = META_CHUNK_MIN; /* Sync: meta_lock */
static atomic_size_t meta_used;
static atomic_size_t meta_mapped;

/* The smallest class that holds `size` (1..META_CLASS_MAX). Computes what meta_sizes lists. */
static size_t meta_class_of(size_t size) {
    size_t last = size - 1;
    if (last < 64) {
        return last / 16;
    }
    if (last < 512) {
        return 3 + last / 64;
    }
    if (last < META_PAGE) {
        unsigned doubling = 63 - (unsigned)__builtin_clzll(last);
        return 11 + (doubling - 9) * 4 + (last >> (doubling - 2) & 3);
    }
    return 22 + last / META_PAGE;
}

/* On systems with pages above 4 KiB whole pages are mapped, because the classes could not give the
 * promised alignment. */
static bool meta_is_large(size_t size) {
    return size > META_CLASS_MAX || (umf_os_page_size() > META_PAGE && size >= umf_os_page_size());
}

/* Called also during a free, when the stack of a magazine grows, so errno is preserved. */
static void *meta_map(size_t size) {
    UMF_KEEP_ERRNO;
    void *ptr = NULL;
    if (umf_os_map(&ptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != 0) {
        return NULL;
    }
    atomic_fetch_add_explicit(&meta_mapped, size, memory_order_relaxed);
    return ptr;
}

static bool meta_grow_locked(void) {
    void *chunk = meta_map(meta_chunk_size);
    if (!chunk) {
        return false;
    }
    UMF_POISON(chunk, meta_chunk_size);
    meta_chunk = (uintptr_t)chunk;
    meta_chunk_end = meta_chunk + meta_chunk_size;
    if (meta_chunk_size < META_CHUNK_MAX) {
        meta_chunk_size *= 2;
    }
    return true;
}

static bool meta_refill_locked(meta_class_t *class, size_t block) {
    size_t run = block > META_RUN ? block : META_RUN;
    if (meta_chunk_end - meta_chunk < run && !meta_grow_locked()) {
        return false;
    }
    class->fresh = meta_chunk;
    class->fresh_end = meta_chunk + run;
    meta_chunk += run;
    return true;
}

/* `*is_dirty`: the block was in use before and must be zeroed. */
static void *meta_take_locked(size_t index, bool *is_dirty) {
    meta_class_t *class = &meta_classes[index];
    size_t block = meta_sizes[index];
    meta_block_t *top = class->free;
    if (top) {
        UMF_UNPOISON(top, block);
        class->free = top->next;
        *is_dirty = true;
        return top;
    }
    if (class->fresh_end - class->fresh < block && !meta_refill_locked(class, block)) {
        return NULL;
    }
    void *ptr = (void *)class->fresh;
    class->fresh += block;
    UMF_UNPOISON(ptr, block);
    return ptr;
}

static void *meta_alloc_small(size_t size) {
    size_t index = meta_class_of(size);
    bool is_dirty = false;
    umf_lock(&meta_lock);
    void *ptr = meta_take_locked(index, &is_dirty);
    umf_unlock(&meta_lock);
    if (ptr && is_dirty) {
        memset(ptr, 0, size);
    }
    if (ptr) {
        UMF_POISON((char *)ptr + size, meta_sizes[index] - size);
    }
    return ptr;
}

static void *meta_alloc_large(size_t size) {
    size_t rounded;
    return umf_round_up(size, umf_os_page_size(), &rounded) ? meta_map(rounded) : NULL;
}

/* Small blocks rarely call the system, so without this hook a test could not make a
 * given one fail. */
static bool meta_must_fail(void) {
    umf_os_fault_t fault = atomic_load_explicit(&umf_os_fault, memory_order_relaxed);
    return umf_unlikely(fault != NULL) && fault("meta_alloc") != 0;
}

void *umf_meta_alloc(size_t size) {
    if (meta_must_fail()) {
        return NULL;
    }
    size += size == 0;
    void *ptr = meta_is_large(size) ? meta_alloc_large(size) : meta_alloc_small(size);
    if (ptr) {
        atomic_fetch_add_explicit(&meta_used, size, memory_order_relaxed);
    }
    return ptr;
}

static void meta_free_small(void *ptr, size_t size) {
    size_t index = meta_class_of(size);
    meta_block_t *block = ptr;
    assert(size <= meta_sizes[index] && (index == 0 || size > meta_sizes[index - 1]));
    UMF_UNPOISON(ptr, meta_sizes[index]);
    umf_lock(&meta_lock);
    block->next = meta_classes[index].free;
    meta_classes[index].free = block;
    UMF_POISON(ptr, meta_sizes[index]);
    umf_unlock(&meta_lock);
}

static void meta_free_large(void *ptr, size_t size) {
    size_t rounded = umf_align_up(size, umf_os_page_size());
    if (umf_os_unmap(ptr, rounded) == 0) {
        atomic_fetch_sub_explicit(&meta_mapped, rounded, memory_order_relaxed);
    }
}

void umf_meta_free(void *ptr, size_t size) {
    if (!ptr) {
        return;
    }
    size += size == 0;
    assert(((uintptr_t)ptr & 15) == 0);
    if (meta_is_large(size)) {
        meta_free_large(ptr, size);
    } else {
        meta_free_small(ptr, size);
    }
    atomic_fetch_sub_explicit(&meta_used, size, memory_order_relaxed);
}

size_t umf_meta_used(void) {
    return atomic_load_explicit(&meta_used, memory_order_relaxed);
}

size_t umf_meta_mapped(void) {
    return atomic_load_explicit(&meta_mapped, memory_order_relaxed);
}
