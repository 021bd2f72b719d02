/*
 * Metadata arena: size classes over chunks of the system.
 *
 * A class takes runs of pages from the newest chunk and cuts them into blocks, so every block has
 * the alignment of its class without a header. Four classes per doubling keep the waste below one
 * fifth; up to 64 bytes the steps are 16 bytes, from a page on they are pages. Freed blocks are
 * kept in the free list of their class. A trim joins neighbours to one stretch and drops its pages.
 * A block above the largest class is a mapping of its own, and is unmapped when it is freed. A
 * large lasting block is a mapping, too, but of a power of two, and is kept in a free list.
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
#define META_TRIM_MIN ((size_t)1 << 20) /* bytes freed since the last trim that are worth one */

static const uint16_t meta_sizes[] = {
    16,   32,   48,   64,   128,  192,  256,  320,  384,  448,   512,   640,   768,   896,   1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768,
};
#define META_CLASSES UMF_COUNT_OF(meta_sizes)

/* A stretch of free blocks, written into the first one. */
typedef struct meta_block_t {
    struct meta_block_t *next;
    size_t count;
} meta_block_t;

typedef struct meta_class_t {
    meta_block_t *free;
    uintptr_t fresh, fresh_end; /* the unused rest of the current run, which is still zero */
} meta_class_t;

UMF_LOCK_STATIC(meta_lock, UMF_RANK_META);
static meta_class_t meta_classes[META_CLASSES]; /* Sync: meta_lock */
static uintptr_t meta_chunk, meta_chunk_end;    /* the rest of the newest chunk. Sync: meta_lock */
static size_t meta_chunk_size = META_CHUNK_MIN; /* Sync: meta_lock */
static meta_block_t *meta_lasting[64];          /* by the logarithm of the size. Sync: meta_lock */
static size_t meta_freed;                       /* since the last trim. Sync: meta_lock */
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
    if (class->fresh_end != meta_chunk) { /* else the run goes on */
        class->fresh = meta_chunk;
    }
    class->fresh_end = meta_chunk + run;
    meta_chunk += run;
    return true;
}

/* Takes the last block of the first stretch. */
static void *meta_take_free_locked(meta_class_t *class, size_t block) {
    meta_block_t *top = class->free;
    UMF_UNPOISON(top, sizeof(*top));
    size_t rest = --top->count;
    if (rest == 0) {
        class->free = top->next;
    } else {
        UMF_POISON(top, sizeof(*top));
    }
    char *taken = (char *)top + rest * block;
    UMF_UNPOISON(taken, block);
    return taken;
}

/* `*is_dirty`: the block was in use before and must be zeroed. */
static void *meta_take_locked(size_t index, bool *is_dirty) {
    meta_class_t *class = &meta_classes[index];
    size_t block = meta_sizes[index];
    if (class->free) {
        *is_dirty = true;
        return meta_take_free_locked(class, block);
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
    *block = (meta_block_t){.next = meta_classes[index].free, .count = 1};
    meta_classes[index].free = block;
    meta_freed += meta_sizes[index];
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

/* --- blocks that are freed late --- */

static struct {
    void *block; /* NULL: none yet */
    size_t size;
} meta_late[UMF_META_LATE]; /* Sync: meta_lock, as the next */
static size_t meta_late_next;

bool umf_meta_grow(void *list, size_t count, size_t *room, size_t size) {
    enum { FIRST = 4 };
    void *items;
    size_t more = *room ? *room * 2 : FIRST;
    if (count < *room) {
        return true;
    }
    void *grown = umf_meta_alloc(more * size);
    if (!grown) {
        return false;
    }
    memcpy(&items, list, sizeof(items)); /* a pointer of any type */
    if (count) {
        memcpy(grown, items, count * size);
    }
    umf_meta_free(items, *room * size);
    memcpy(list, &grown, sizeof(grown));
    *room = more;
    return true;
}

void umf_meta_free_late(void *ptr, size_t size) {
    umf_lock(&meta_lock);
    void *oldest = meta_late[meta_late_next].block;
    size_t oldest_size = meta_late[meta_late_next].size;
    meta_late[meta_late_next].block = ptr;
    meta_late[meta_late_next].size = size;
    meta_late_next = (meta_late_next + 1) % UMF_META_LATE;
    umf_unlock(&meta_lock);
    atomic_fetch_sub_explicit(&meta_used, size, memory_order_relaxed);
    if (oldest) {
        atomic_fetch_add_explicit(&meta_used, oldest_size, memory_order_relaxed);
        umf_meta_free(oldest, oldest_size);
    }
}

/* --- lasting blocks --- */

/* The logarithm of the mapped size of a large lasting block. */
static size_t lasting_order(size_t size) {
    return 64 - (size_t)__builtin_clzll(size - 1);
}

static void *lasting_take(size_t order) {
    umf_lock(&meta_lock);
    meta_block_t *block = meta_lasting[order];
    if (block) {
        meta_lasting[order] = block->next;
    }
    umf_unlock(&meta_lock);
    return block ? memset(block, 0, umf_os_page_size()) : NULL;
}

void *umf_meta_alloc_lasting(size_t size) {
    if (!meta_is_large(size)) {
        return umf_meta_alloc(size);
    }
    if (size > SIZE_MAX / 2 || meta_must_fail()) {
        return NULL;
    }
    size_t order = lasting_order(size);
    void *ptr = lasting_take(order);
    ptr = ptr ? ptr : meta_alloc_large((size_t)1 << order);
    if (ptr) {
        atomic_fetch_add_explicit(&meta_used, size, memory_order_relaxed);
    }
    return ptr;
}

void umf_meta_free_lasting(void *ptr, size_t size) {
    if (!ptr) {
        return;
    }
    if (!meta_is_large(size)) {
        umf_meta_free(ptr, size);
        UMF_UNPOISON(ptr, size);
        return;
    }
    UMF_KEEP_ERRNO;
    size_t page = umf_os_page_size();
    if (size > page &&
        umf_os_advise((char *)ptr + page, umf_align_up(size - page, page), MADV_DONTNEED) != 0) {
        memset((char *)ptr + page, 0, size - page); /* the program has locked its memory */
    }
    meta_block_t **list = &meta_lasting[lasting_order(size)], *block = ptr;
    umf_lock(&meta_lock);
    block->next = *list;
    *list = block;
    umf_unlock(&meta_lock);
    atomic_fetch_sub_explicit(&meta_used, size, memory_order_relaxed);
}

/* --- trim --- */

#if UMF_IS_ASAN
#define META_READS_FREE UMF_WITHOUT_ASAN
#else
#define META_READS_FREE
#endif

/* The lists are read although free blocks are poisoned. */

/* Merges two lists in order of addresses. */
META_READS_FREE static meta_block_t *merge(meta_block_t *a, meta_block_t *b) {
    meta_block_t *first = NULL, **end = &first;
    while (a && b) {
        meta_block_t **lower = a < b ? &a : &b;
        *end = *lower;
        end = &(*lower)->next;
        *lower = *end;
    }
    *end = a ? a : b;
    return first;
}

#define SORT_LISTS 48 /* list i has up to 2^i stretches */

/* Sorts by address. */
META_READS_FREE static meta_block_t *sort(meta_block_t *list) {
    meta_block_t *sorted[SORT_LISTS] = {NULL};
    while (list) {
        meta_block_t *one = list;
        list = list->next;
        one->next = NULL;
        size_t i = 0;
        for (; sorted[i]; i++) {
            one = merge(sorted[i], one);
            sorted[i] = NULL;
        }
        sorted[i] = one;
    }
    for (size_t i = 0; i < SORT_LISTS; i++) {
        list = merge(sorted[i], list);
    }
    return list;
}

/* Drops the pages of a stretch but the one with its head. */
META_READS_FREE static void drop_pages(const meta_block_t *stretch, size_t block) {
    size_t page = umf_os_page_size();
    uintptr_t first = umf_align_up((uintptr_t)(stretch + 1), page);
    uintptr_t end = umf_align_down((uintptr_t)stretch + stretch->count * block, page);
    if (first < end) {
        umf_os_advise((void *)first, end - first, MADV_DONTNEED);
    }
}

/* Joins neighbours in a sorted list and drops their pages. Returns the last stretch. */
META_READS_FREE static meta_block_t *join(meta_block_t *list, size_t block) {
    meta_block_t *last = list;
    while (last) {
        meta_block_t *next = last->next;
        if ((uintptr_t)last + last->count * block == (uintptr_t)next) {
            last->count += next->count;
            last->next = next->next;
        } else {
            drop_pages(last, block);
            if (!next) {
                break;
            }
            last = next;
        }
    }
    return last;
}

/* The list is detached meanwhile, so no thread blocks. A child of fork does not get it back. */
META_READS_FREE static void class_trim(size_t index) {
    meta_class_t *class = &meta_classes[index];
    umf_lock(&meta_lock);
    meta_block_t *list = class->free;
    class->free = NULL;
    umf_unlock(&meta_lock);
    if (list) {
        list = sort(list);
        meta_block_t *last = join(list, meta_sizes[index]);
        umf_lock(&meta_lock);
        last->next = class->free;
        class->free = list;
        umf_unlock(&meta_lock);
    }
}

/* Is a trim worth its sort? */
static bool must_trim(void) {
    umf_lock(&meta_lock);
    bool must =
        meta_freed >= META_TRIM_MIN && meta_freed >= (umf_meta_mapped() - umf_meta_used()) / 4;
    meta_freed = must ? 0 : meta_freed;
    umf_unlock(&meta_lock);
    return must;
}

void umf_meta_trim(void) {
    UMF_KEEP_ERRNO;
    for (size_t i = must_trim() ? 0 : META_CLASSES; i < META_CLASSES; i++) {
        class_trim(i);
    }
}

size_t umf_meta_used(void) {
    return atomic_load_explicit(&meta_used, memory_order_relaxed);
}

size_t umf_meta_mapped(void) {
    return atomic_load_explicit(&meta_mapped, memory_order_relaxed);
}
