/*
 * Vmm_ranges: addresses and pages of physical memory for pools that place the pages themselves. The
 * pool keeps the books: which page is where, and which work still uses it there. A page may be
 * mapped at two places.
 */
#include "base/log.h"
#include "base/meta.h"
#include "providers/vmm/own.h"

/* As many times the memory that there is are reserved: addresses cost nothing, and a pool that
 * moves pages leaves holes. */
#define TIMES_MEMORY 16
#define HUGE_PAGE ((size_t)2 << 20) /* a range begins at one */

typedef struct umf_vmm_ranges_t {
    struct umf_vmm_ranges_t *next; /* Sync: the lock of vmm */
    uintptr_t base;
    size_t size;
} umf_vmm_ranges_t;

/* Memory that the driver has refused to take back, for another try: a mapping that a failed call
 * has made, or, without a base, physical memory. */
typedef struct umf_vmm_left_t {
    struct umf_vmm_left_t *next; /* Sync: the lock of vmm */
    uintptr_t base;
    size_t size;
    umf_physical_t physical;
} umf_vmm_left_t;

static umf_result_t destroy_one(umf_vmm_t *vmm, size_t size, umf_physical_t physical) {
    umf_result_t result = vmm->ops->destroy_page ? vmm->ops->destroy_page(vmm, size, physical)
                                                 : vmm->ops->destroy(vmm, physical);
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_sub(&vmm->carve.stats, size);
    }
    return result;
}

static void push_left(umf_vmm_t *vmm, umf_vmm_left_t *left) {
    umf_lock(&vmm->carve.lock);
    left->next = vmm->left;
    vmm->left = left;
    umf_unlock(&vmm->carve.lock);
}

static void leave(umf_vmm_t *vmm, uintptr_t base, size_t size, umf_physical_t physical) {
    umf_vmm_left_t *left = umf_meta_alloc(sizeof(*left));
    if (left) {
        *left = (umf_vmm_left_t){.base = base, .size = size, .physical = physical};
        push_left(vmm, left);
    } else if (base) {
        UMF_LOG_ERROR("%zu bytes at %p stay mapped after a failure", size, (void *)base);
    }
}

static bool is_in(const umf_vmm_left_t *left, uintptr_t base, size_t size) {
    return left->base < base + size && base < left->base + left->size;
}

/* Takes memory, and mappings in the range, off the list. The pool of a range tries its own. */
static umf_vmm_left_t *pop_left(umf_vmm_t *vmm, uintptr_t base, size_t size) {
    umf_vmm_left_t *taken = NULL;
    umf_lock(&vmm->carve.lock);
    for (umf_vmm_left_t **link = &vmm->left, *left; (left = *link) != NULL;) {
        if (!left->base || is_in(left, base, size)) {
            *link = left->next;
            left->next = taken;
            taken = left;
        } else {
            link = &left->next;
        }
    }
    umf_unlock(&vmm->carve.lock);
    return taken;
}

/* Tries again. false: something is still mapped in the range. */
static bool take_left(umf_vmm_t *vmm, uintptr_t base, size_t size) {
    bool is_unmapped = true;
    for (umf_vmm_left_t *next, *left = pop_left(vmm, base, size); left; left = next) {
        next = left->next;
        umf_result_t result = left->base ? vmm->ops->unmap(vmm, left->base, left->size)
                                         : destroy_one(vmm, left->size, left->physical);
        if (result == UMF_RESULT_SUCCESS) {
            umf_meta_free(left, sizeof(*left));
        } else {
            is_unmapped &= !left->base;
            push_left(vmm, left);
        }
    }
    return is_unmapped;
}

void umf_vmm_ranges_fini(umf_vmm_t *vmm) {
    take_left(vmm, 0, SIZE_MAX);
    for (umf_vmm_left_t *next, *left = vmm->left; left; left = next) {
        next = left->next;
        umf_meta_free(left, sizeof(*left));
    }
}

static void list(umf_vmm_t *vmm, umf_vmm_ranges_t *range) {
    umf_lock(&vmm->carve.lock);
    range->next = vmm->ranges;
    vmm->ranges = range;
    umf_unlock(&vmm->carve.lock);
}

static umf_vmm_ranges_t *unlist(umf_vmm_t *vmm, uintptr_t base) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_ranges_t **link = &vmm->ranges;
    while (*link && (*link)->base != base) {
        link = &(*link)->next;
    }
    umf_vmm_ranges_t *range = *link;
    if (range) {
        *link = range->next;
    }
    umf_unlock(&vmm->carve.lock);
    return range;
}

bool umf_vmm_is_in_range(umf_vmm_t *vmm, const void *ptr) {
    bool is_in = false;
    umf_lock(&vmm->carve.lock);
    for (const umf_vmm_ranges_t *range = vmm->ranges; range && !is_in; range = range->next) {
        is_in = (uintptr_t)ptr - range->base < range->size;
    }
    umf_unlock(&vmm->carve.lock);
    return is_in;
}

/* A driver that has fewer addresses gets smaller requests. */
static umf_result_t reserve_some(umf_vmm_t *vmm, size_t alignment, size_t *size, uintptr_t *base) {
    size_t memory = 0;
    umf_result_t result = vmm->ops->memory(vmm, &memory);
    if (result != UMF_RESULT_SUCCESS || !umf_round_up(memory, alignment, &memory)) {
        return result ? result : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (size_t times = TIMES_MEMORY; times > 0; times /= 2) {
        *size = memory * times;
        result = vmm->ops->reserve(vmm, *size, alignment, base);
        if (result == UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    UMF_LOG_ERROR("not even addresses for the %zu bytes of memory that there are can be reserved: "
                  "raise the limit of addresses (ulimit -v), or set a smaller arena_size",
                  memory);
    return result;
}

umf_result_t umf_vmm_range_reserve(void *provider, size_t *size, size_t *granularity, void **base) {
    umf_vmm_t *vmm = provider;
    size_t unit = vmm->carve.page_size, alignment = unit > HUGE_PAGE ? unit : HUGE_PAGE, bytes;
    uintptr_t start;
    if (!umf_round_up(*size, unit, &bytes)) {
        UMF_LOG_ERROR("%zu bytes of addresses are too many", *size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vmm_ranges_t *range = umf_meta_alloc(sizeof(*range));
    if (!range) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = bytes ? vmm->ops->reserve(vmm, bytes, alignment, &start)
                                : reserve_some(vmm, alignment, &bytes, &start);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(range, sizeof(*range));
        return result;
    }
    range->base = start;
    range->size = bytes;
    list(vmm, range);
    *size = bytes;
    *granularity = unit;
    *base = (void *)start;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_range_release(void *provider, void *base, size_t size) {
    umf_vmm_t *vmm = provider;
    bool is_unmapped = take_left(vmm, (uintptr_t)base, size);
    umf_vmm_ranges_t *range = unlist(vmm, (uintptr_t)base);
    if (!range || range->size != size) {
        UMF_LOG_ERROR("%p is not a range of %zu bytes of this provider", base, size);
        if (range) {
            list(vmm, range);
        }
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;
    if (is_unmapped) {
        result = vmm->ops->unreserve(vmm, range->base, size);
    } else {
        UMF_LOG_ERROR(
            "the addresses of a range at %p stay reserved, as the driver has not unmapped "
            "all of them",
            base);
    }
    umf_meta_free(range, sizeof(*range));
    return result;
}

umf_result_t umf_vmm_page_create(void *provider, umf_vm_page_t *page) {
    umf_vmm_t *vmm = provider;
    umf_physical_t physical;
    take_left(vmm, 0, 0); /* it may be the very memory that is needed */
    umf_result_t result = vmm->ops->create_page ? vmm->ops->create_page(vmm, page->size, &physical)
                                                : vmm->ops->create(vmm, page->size, &physical);
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_add(&vmm->carve.stats, page->size);
        page->id = physical;
    }
    return result;
}

umf_result_t umf_vmm_page_destroy(void *provider, const umf_vm_page_t *page) {
    umf_vmm_t *vmm = provider;
    umf_result_t result = destroy_one(vmm, page->size, page->id);
    if (result != UMF_RESULT_SUCCESS) {
        leave(vmm, 0, page->size, page->id);
    }
    return result;
}

static umf_result_t map_one(umf_vmm_t *vmm, uintptr_t base, const umf_vm_page_t *page) {
    return vmm->ops->map_page ? vmm->ops->map_page(vmm, base, page->size, page->id)
                              : vmm->ops->map(vmm, base, page->size, page->id);
}

static size_t size_of(const umf_vm_page_t *pages, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += pages[i].size;
    }
    return size;
}

umf_result_t umf_vmm_page_map(void *provider, void *ptr, const umf_vm_page_t *pages, size_t count) {
    umf_vmm_t *vmm = provider;
    uintptr_t base = (uintptr_t)ptr, end = base;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (!take_left(vmm, base, size_of(pages, count))) {
        UMF_LOG_ERROR("the driver has not unmapped %p after an earlier failure", ptr);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        result = map_one(vmm, end, &pages[i]);
        end += result == UMF_RESULT_SUCCESS ? pages[i].size : 0;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vmm_allow(vmm, base, end - base);
    }
    if (result != UMF_RESULT_SUCCESS && end != base &&
        umf_vmm_page_unmap(vmm, ptr, end - base) != UMF_RESULT_SUCCESS) {
        leave(vmm, base, end - base, 0);
    }
    return result;
}

umf_result_t umf_vmm_page_unmap(void *provider, void *ptr, size_t size) {
    umf_vmm_t *vmm = provider;
    return vmm->ops->unmap(vmm, (uintptr_t)ptr, size);
}

/* Where the back end has no marks it waits. */
umf_result_t umf_vmm_mark_all(void *provider, void **mark) {
    umf_vmm_t *vmm = provider;
    umf_result_t result =
        vmm->ops->mark ? vmm->ops->mark(vmm, mark) : UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (result == UMF_RESULT_SUCCESS || result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        return result;
    }
    result = umf_vmm_settle(vmm);
    if (result == UMF_RESULT_SUCCESS) {
        *mark = NULL;
    }
    return result;
}

int umf_vmm_mark_all_wait(void *provider, void *mark, int may_block) {
    umf_vmm_t *vmm = provider;
    return vmm->ops->mark_completed(vmm, mark, may_block != 0);
}
