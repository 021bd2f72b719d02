#include "providers/os_extent.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/meta.h"
#include "base/os.h"
#include "providers/os_place.h"

#define EXTENT_SIZE ((size_t)2 << 20)
#define EXTENT_WORDS 8u
#define PIECE_MAX_PAGES 64u
#define PIECE_MAX ((size_t)256 << 10)
/* Pieces of whole leaves of the pointer map lie at multiples of such a leaf. */
#define PIECE_ALIGN_MAX ((size_t)64 << 10)
#define HUGE_FROM 4u /* extents without huge pages */
#define EMPTY_MAX 4u
#define KEPT_SIZE_MAX ((size_t)8 << 20)
#define TRIES 8u /* extents looked at for room */

typedef struct os_extent_t {
    umf_list_t link; /* in `roomy`, or alone */
    uintptr_t base;
    uint32_t free; /* pages */
    /* A bit for each page; the last word is full, so that none is looked for behind the end. */
    uint64_t used[EXTENT_WORDS + 1];
} os_extent_t;

void umf_os_extents_init(umf_os_extents_t *extents, size_t page_size, int protection) {
    *extents = (umf_os_extents_t){.page_size = page_size, .protection = protection};
    extents->low = UINTPTR_MAX;
    umf_list_init(&extents->roomy);
    umf_lock_init(&extents->lock, UMF_RANK_PROVIDER);
}

static uint32_t pages_of(const umf_os_extents_t *extents, size_t size) {
    return (uint32_t)(size / extents->page_size);
}

static bool is_empty(const umf_os_extents_t *extents, const os_extent_t *extent) {
    return extent->free == pages_of(extents, EXTENT_SIZE);
}

static void unmap_range(uintptr_t base, size_t size) {
    if (umf_os_unmap((void *)base, size) == 0) {
        umf_os_place_freed((void *)base, size);
    }
}

static void extent_fini(uint64_t key, void *value, void *arg) {
    os_extent_t *extent = value;
    (void)key;
    if (is_empty(arg, extent)) {
        unmap_range(extent->base, EXTENT_SIZE);
    }
    umf_meta_free(extent, sizeof(*extent));
}

void umf_os_extents_fini(umf_os_extents_t *extents) {
    umf_hash_each(&extents->all, extent_fini, extents);
    umf_hash_fini(&extents->all);
    for (unsigned i = 0; i < extents->kept_count; i++) {
        unmap_range(extents->kept[i].base, extents->kept[i].size);
    }
    umf_lock_destroy(&extents->lock);
}

/* Memory that is mapped loses its content, and gets back the protection that its user may have
 * changed. Locked memory must be mapped anew for that. */
static int drop_content(const umf_os_extents_t *extents, uintptr_t base, size_t size) {
    void *ptr = (void *)base;
    if (umf_os_protect(ptr, size, extents->protection) == 0 &&
        umf_os_advise(ptr, size, MADV_DONTNEED) == 0) {
        return 0;
    }
    return umf_os_map(&ptr, size, extents->protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                      0);
}

/* --- pages of an extent --- */

static uint64_t bits(uint32_t count) {
    return count >= 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
}

/* The 64 pages from `at` on. */
static uint64_t window(const os_extent_t *extent, uint32_t at) {
    uint64_t low = extent->used[at / 64] >> at % 64;
    return at % 64 ? low | extent->used[at / 64 + 1] << (64 - at % 64) : low;
}

static void flip(os_extent_t *extent, uint32_t at, uint32_t count) {
    uint64_t low = bits(count) << at % 64;
    extent->used[at / 64] ^= low;
    if (at % 64 + count > 64) {
        extent->used[at / 64 + 1] ^= bits(count) >> (64 - at % 64);
    }
}

/* The first `count` (up to 64) free pages at a multiple of `step` pages. */
static bool find_pages(const os_extent_t *extent, uint32_t pages, uint32_t count, uint32_t step,
                       uint32_t *at) {
    for (uint32_t i = 0; i + count <= pages;) {
        uint64_t taken = window(extent, i) & bits(count);
        if (!taken) {
            *at = i;
            return true;
        }
        uint32_t next = i + 64 - (uint32_t)__builtin_clzll(taken);
        i = (next + step - 1) & ~(step - 1);
    }
    return false;
}

static void *take_pages_locked(umf_os_extents_t *extents, os_extent_t *extent, uint32_t at,
                               uint32_t count) {
    umf_assert_locked(&extents->lock);
    extents->empty -= is_empty(extents, extent);
    flip(extent, at, count);
    extent->free -= count;
    if (!extent->free) {
        umf_list_remove(&extent->link);
    }
    return (void *)(extent->base + at * extents->page_size);
}

static void *find_piece_locked(umf_os_extents_t *extents, uint32_t count, uint32_t step) {
    uint32_t pages = pages_of(extents, EXTENT_SIZE), tries = 0, at;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->roomy.next; link != &extents->roomy && tries < TRIES;
         link = link->next, tries++) {
        os_extent_t *extent = UMF_CONTAINER_OF(link, os_extent_t, link);
        if (extent->free >= count && find_pages(extent, pages, count, step, &at)) {
            return take_pages_locked(extents, extent, at, count);
        }
    }
    return NULL;
}

/* --- more extents --- */

static os_extent_t *extent_make(const umf_os_extents_t *extents) {
    os_extent_t *extent = umf_meta_alloc(sizeof(*extent));
    void *base;
    if (!extent) {
        return NULL;
    }
    if (umf_os_place_plain(EXTENT_SIZE, EXTENT_SIZE, extents->protection, &base) != 0) {
        umf_meta_free(extent, sizeof(*extent));
        return NULL;
    }
    umf_list_init(&extent->link);
    extent->base = (uintptr_t)base;
    extent->free = pages_of(extents, EXTENT_SIZE);
    extent->used[EXTENT_WORDS] = UINT64_MAX;
    return extent;
}

static void extent_free(os_extent_t *extent) {
    unmap_range(extent->base, EXTENT_SIZE);
    umf_meta_free(extent, sizeof(*extent));
}

static void ask_for_huge_pages(uint64_t key, void *value, void *arg) {
    (void)key, (void)arg;
    umf_os_place_huge_pages((void *)((os_extent_t *)value)->base, EXTENT_SIZE);
}

static bool extent_add_locked(umf_os_extents_t *extents, os_extent_t *extent) {
    umf_assert_locked(&extents->lock);
    if (!umf_hash_put(&extents->all, extent->base, extent)) {
        return false;
    }
    umf_list_add(&extents->roomy, &extent->link);
    extents->empty++;
    extents->low = extent->base < extents->low ? extent->base : extents->low;
    uintptr_t end = extent->base + EXTENT_SIZE;
    extents->high = end > extents->high ? end : extents->high;
    if (extents->huge) {
        umf_os_place_huge_pages((void *)extent->base, EXTENT_SIZE);
    } else if (extents->all.count > HUGE_FROM) {
        extents->huge = true;
        umf_hash_each(&extents->all, ask_for_huge_pages, NULL);
    } else {
        umf_os_place_small_pages((void *)extent->base, EXTENT_SIZE);
    }
    return true;
}

static int piece_alloc(umf_os_extents_t *extents, uint32_t count, uint32_t step, void **ptr) {
    umf_lock(&extents->lock);
    void *piece = find_piece_locked(extents, count, step);
    umf_unlock(&extents->lock);
    if (!piece) {
        os_extent_t *extent = extent_make(extents);
        if (!extent) {
            return ENOMEM;
        }
        umf_lock(&extents->lock);
        bool is_added = extent_add_locked(extents, extent);
        if (is_added) {
            piece = take_pages_locked(extents, extent, 0, count);
        }
        umf_unlock(&extents->lock);
        if (!is_added) {
            extent_free(extent);
            return ENOMEM;
        }
    }
    *ptr = piece;
    return 0;
}

/* --- kept mappings --- */

static bool kept_take(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    bool is_found = false;
    umf_lock(&extents->lock);
    for (unsigned i = extents->kept_count; i-- > 0 && !is_found;) {
        uintptr_t base = extents->kept[i].base;
        if (extents->kept[i].size == size && (!alignment || base % alignment == 0)) {
            extents->kept[i] = extents->kept[--extents->kept_count];
            *ptr = (void *)base;
            is_found = true;
        }
    }
    umf_unlock(&extents->lock);
    return is_found;
}

static void kept_put(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    uintptr_t oldest = 0;
    size_t oldest_size = 0;
    umf_lock(&extents->lock);
    if (extents->kept_count == UMF_OS_KEPT_MAX) {
        oldest = extents->kept[0].base;
        oldest_size = extents->kept[0].size;
        for (unsigned i = 1; i < UMF_OS_KEPT_MAX; i++) {
            extents->kept[i - 1] = extents->kept[i];
        }
        extents->kept_count--;
    }
    extents->kept[extents->kept_count].base = base;
    extents->kept[extents->kept_count++].size = size;
    umf_unlock(&extents->lock);
    if (oldest) {
        unmap_range(oldest, oldest_size);
    }
}

static bool can_be_kept(uintptr_t base, size_t size) {
    return base % EXTENT_SIZE == 0 && size >= EXTENT_SIZE && size <= KEPT_SIZE_MAX;
}

/* --- allocating and freeing --- */

static bool is_piece(const umf_os_extents_t *extents, size_t size, size_t alignment) {
    return size <= PIECE_MAX && pages_of(extents, size) <= PIECE_MAX_PAGES &&
           pages_of(extents, EXTENT_SIZE) <= EXTENT_WORDS * 64 &&
           (alignment <= extents->page_size || (umf_is_pow2(alignment) && alignment <= PIECE_MAX));
}

/* In pages, from the largest power of two that divides the size. */
static uint32_t piece_step(const umf_os_extents_t *extents, size_t size, size_t alignment) {
    size_t own = size & (~size + 1);
    own = own < PIECE_ALIGN_MAX ? own : PIECE_ALIGN_MAX;
    return pages_of(extents, own > alignment ? own : alignment);
}

int umf_os_extents_alloc(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    if (is_piece(extents, size, alignment)) {
        uint32_t step = piece_step(extents, size, alignment);
        if (piece_alloc(extents, pages_of(extents, size), step, ptr) == 0) {
            return 0;
        }
    } else if (can_be_kept(0, size) && kept_take(extents, size, alignment, ptr)) {
        return 0;
    }
    return umf_os_place(size, alignment, extents->protection, ptr);
}

static bool has_pages(const os_extent_t *extent, uint32_t at, uint32_t count) {
    for (; count > 64; at += 64, count -= 64) {
        if (window(extent, at) != UINT64_MAX) {
            return false;
        }
    }
    return (window(extent, at) & bits(count)) == bits(count);
}

/* true if the extent is one too many, and out of the table. */
static bool give_pages_locked(umf_os_extents_t *extents, os_extent_t *extent, uint32_t at,
                              uint32_t count) {
    umf_assert_locked(&extents->lock);
    if (!extent->free) {
        umf_list_add(&extents->roomy, &extent->link);
    }
    extent->free += count;
    for (; count > 64; at += 64, count -= 64) {
        flip(extent, at, 64);
    }
    flip(extent, at, count);
    if (!is_empty(extents, extent)) {
        return false;
    }
    if (extents->empty < EMPTY_MAX) {
        extents->empty++;
        return false;
    }
    umf_list_remove(&extent->link);
    umf_hash_remove(&extents->all, extent->base);
    return true;
}

/* Pages of one extent. They stay taken until they are clear; those that cannot be cleared leave a
 * hole, which is nobody's any more. */
static int piece_free(umf_os_extents_t *extents, os_extent_t *extent, uintptr_t base, size_t size) {
    uint32_t at = pages_of(extents, base - extent->base), count = pages_of(extents, size);
    umf_lock(&extents->lock);
    bool is_taken = has_pages(extent, at, count);
    umf_unlock(&extents->lock);
    if (!is_taken) {
        return EINVAL;
    }
    if (drop_content(extents, base, size) != 0) {
        return umf_os_unmap((void *)base, size);
    }
    umf_lock(&extents->lock);
    bool is_leaving = give_pages_locked(extents, extent, at, count);
    umf_unlock(&extents->lock);
    if (is_leaving) {
        extent_free(extent);
    }
    return 0;
}

static int mapping_free(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    if (can_be_kept(base, size) && drop_content(extents, base, size) == 0) {
        kept_put(extents, base, size);
        return 0;
    }
    int error = umf_os_unmap((void *)base, size);
    if (!error) {
        umf_os_place_freed((void *)base, size);
    }
    return error;
}

static os_extent_t *extent_at(umf_os_extents_t *extents, uintptr_t addr) {
    umf_lock(&extents->lock);
    bool is_near = addr >= extents->low && addr < extents->high;
    os_extent_t *extent =
        is_near ? umf_hash_get(&extents->all, addr / EXTENT_SIZE * EXTENT_SIZE) : NULL;
    umf_unlock(&extents->lock);
    return extent;
}

static bool meets_extents(umf_os_extents_t *extents, uintptr_t base, uintptr_t end) {
    umf_lock(&extents->lock);
    bool meets = base < extents->high && end > extents->low;
    umf_unlock(&extents->lock);
    return meets;
}

/* How far `base` lies in `extent`, or in no extent at all. */
static uintptr_t part_end(umf_os_extents_t *extents, const os_extent_t *extent, uintptr_t base,
                          uintptr_t end) {
    uintptr_t next = base / EXTENT_SIZE * EXTENT_SIZE + EXTENT_SIZE;
    if (!extent && !meets_extents(extents, base, end)) {
        return end;
    }
    while (!extent && next < end && !extent_at(extents, next)) {
        next += EXTENT_SIZE;
    }
    return next < end ? next : end;
}

int umf_os_extents_free(umf_os_extents_t *extents, void *ptr, size_t size) {
    uintptr_t base = (uintptr_t)ptr, end;
    if (size == 0 || base % extents->page_size ||
        __builtin_add_overflow(base, size + extents->page_size - 1, &end)) {
        return EINVAL;
    }
    end = umf_align_down(end, extents->page_size);
    int error = 0;
    while (base < end && !error) {
        os_extent_t *extent = extent_at(extents, base);
        uintptr_t next = part_end(extents, extent, base, end);
        error = extent ? piece_free(extents, extent, base, next - base)
                       : mapping_free(extents, base, next - base);
        base = next;
    }
    return error;
}
