/* Parts of a page cache: how they come, and who takes from which. */
#include "pools/jemalloc/pages_parts.h"

#include "base/local.h"
#include "base/meta.h"
#include "system/os.h"

typedef umf_pages_part_t part_t;

static void part_init(part_t *part) {
    part->is_taking = false;
    part->elsewhere = 0;
    part->range = NULL;
    part->reserve = NULL;
    part->decay_cursor = UINTPTR_MAX;
    umf_list_init(&part->spans);
    umf_list_init(&part->surplus);
    umf_lock_init(&part->lock, UMF_RANK_PAGES);
}

void umf_pages_parts_init(umf_pages_t *pages) {
    part_init(&pages->first);
    pages->parts[0] = &pages->first;
    atomic_init(&pages->part_count, 1);
}

static void part_fini(part_t *part) {
    if (part->range) {
        umf_range_destroy(part->range);
    }
    umf_lock_destroy(&part->lock);
}

static size_t part_bytes(void) {
    return umf_meta_apart(sizeof(part_t));
}

void umf_pages_parts_fini(umf_pages_t *pages) {
    for (uint32_t i = umf_pages_part_count(pages); --i;) {
        part_fini(pages->parts[i]);
        umf_meta_free(pages->parts[i], part_bytes());
    }
    part_fini(&pages->first);
}

/* --- growing --- */

static uint32_t parts_limit(void) {
    size_t cpus = umf_os_cpu_count();
    return cpus < UMF_PAGES_PARTS_MAX ? (uint32_t)cpus : UMF_PAGES_PARTS_MAX;
}

/* false: there is no memory. */
static bool part_add_locked(umf_pages_t *pages) {
    umf_assert_locked(&pages->first.lock);
    part_t *part = umf_meta_alloc(part_bytes());
    if (part) {
        uint32_t count = umf_pages_part_count(pages);
        part_init(part);
        pages->parts[count] = part;
        atomic_store_explicit(&pages->part_count, count + 1, memory_order_release);
    }
    return part != NULL;
}

/* Twice as many as `count`, unless another thread was faster. false: there are enough, or there is
 * no memory. */
static bool parts_grow(umf_pages_t *pages, uint32_t count) {
    uint32_t limit = parts_limit(), wish = 2 * count < limit ? 2 * count : limit;
    bool grows = count < limit;
    if (grows) {
        umf_lock(&pages->first.lock);
        while (grows && umf_pages_part_count(pages) < wish) {
            grows = part_add_locked(pages);
        }
        umf_unlock(&pages->first.lock);
    }
    return grows;
}

/* --- threads --- */

part_t *umf_pages_part_own(const umf_pages_t *pages) {
    return pages->parts[(umf_local_number() + umf_local_tls.moves) % umf_pages_part_count(pages)];
}

/* Another thread takes from the same part. */
static UMF_COLD part_t *meet(umf_pages_t *pages) {
    if (!parts_grow(pages, umf_pages_part_count(pages))) {
        umf_local_tls.moves++;
    }
    return umf_pages_part_own(pages);
}

part_t *umf_pages_part_lock(umf_pages_t *pages) {
    part_t *part = umf_pages_part_own(pages);
    if (umf_unlikely(!umf_trylock(&part->lock))) {
        if (__atomic_load_n(&part->is_taking, __ATOMIC_RELAXED)) {
            part = meet(pages);
        }
        umf_lock(&part->lock);
    }
    __atomic_store_n(&part->is_taking, true, __ATOMIC_RELAXED);
    return part;
}
