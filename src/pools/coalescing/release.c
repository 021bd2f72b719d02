/* What a coalescing pool does not need: wholly free spans go back, the content of free pieces is
 * dropped. */
#include "pools/coalescing/release.h"

#include <errno.h>

#include <umf/result.h>

#include "base/log.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_part_t part_t;
typedef umf_coalescing_choice_t choice_t;

/* --- giving spans back ------------------------------------------------------------------------ */

static void choose_largest(uintptr_t base, size_t size, void *arg) {
    choice_t *choice = arg;
    if (size <= choice->limit && size > choice->size) {
        choice->base = base;
        choice->size = size;
    }
}

/* Takes the largest wholly free span of up to `limit` bytes out of the part. */
static bool span_withdraw(part_t *part, size_t limit, choice_t *choice) {
    *choice = (choice_t){.limit = limit};
    umf_lock(&part->lock);
    umf_coalescing_reclaim_locked(part);
    umf_range_free_spans(part->range, choose_largest, choice);
    if (choice->size) {
        umf_range_remove(part->range, choice->base);
    }
    umf_unlock(&part->lock);
    return choice->size > 0;
}

static umf_result_t span_return(coalescing_pool_t *pool, part_t *part, uintptr_t base) {
    umf_span_t *span = umf_view_find(pool->view, (void *)base);
    if (!span) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    size_t size = span->size;
    int saved_errno = errno;
    umf_result_t result = umf_view_free(pool->view, span);
    errno = saved_errno;
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("pool %s: the provider does not take back %zu bytes at %p (%s); the pool "
                      "goes on using them",
                      pool->params.name, size, (void *)base, umfResultName(result));
        umf_lock(&part->lock);
        /* The end of the pool offers it again in any case. */
        umf_range_add(part->range, base, size);
        umf_unlock(&part->lock);
    }
    return result;
}

/* false: the provider refuses. */
static bool release_from(coalescing_pool_t *pool, part_t *part, size_t *bytes) {
    choice_t choice;
    while (span_withdraw(part, *bytes, &choice)) {
        if (span_return(pool, part, choice.base) != UMF_RESULT_SUCCESS) {
            return false;
        }
        *bytes -= choice.size;
    }
    return true;
}

void umf_coalescing_release(coalescing_pool_t *pool, size_t bytes) {
    part_t *part = umf_coalescing_part(pool, 0);
    umf_provider_free_batch(pool->view, true);
    for (size_t i = 1; part && release_from(pool, part, &bytes); i++) {
        part = umf_coalescing_part(pool, i);
    }
    umf_provider_free_batch(pool->view, false);
}

static void count_free_spans(const part_t *part, size_t *bytes) {
    *bytes += umf_range_free_span_bytes(part->range);
}

void umf_coalescing_release_surplus(coalescing_pool_t *pool, part_t *part, uintptr_t base) {
    if (umf_coalescing_count(pool, count_free_spans) <= pool->params.retain) {
        return;
    }
    umf_lock(&part->lock);
    umf_result_t result = umf_range_remove(part->range, base);
    umf_unlock(&part->lock);
    if (result == UMF_RESULT_SUCCESS) {
        span_return(pool, part, base);
    }
}

/* --- dropping the content of free pieces ------------------------------------------------------ */

bool umf_coalescing_is_held_locked(part_t *part, const void *ptr) {
    umf_assert_locked(&part->lock);
    for (size_t i = 0; i < part->held_count; i++) {
        if (part->held[i].base == (uintptr_t)ptr) {
            return true;
        }
    }
    return false;
}

static void unhold_locked(part_t *part) {
    umf_assert_locked(&part->lock);
    for (size_t i = 0; i < part->held_count; i++) {
        umf_range_free(part->range, part->held[i].base, 0, NULL);
    }
    part->held_count = 0;
}

/* The next free pieces from high addresses to low; one thread at a time gets any. */
static size_t hold(coalescing_pool_t *pool, part_t *part, uintptr_t *cursor) {
    size_t count = 0;
    umf_lock(&part->lock);
    if (part->held_count && part->held_since != umf_fork_count()) {
        unhold_locked(part);
    }
    if (part->held_count == 0) {
        count = umf_range_take_free(part->range, cursor, pool->page, part->held,
                                    UMF_COALESCING_PURGE_BATCH);
        part->held_count = count;
        part->held_since = umf_fork_count();
    }
    umf_unlock(&part->lock);
    return count;
}

static void unhold(part_t *part) {
    umf_lock(&part->lock);
    unhold_locked(part);
    umf_unlock(&part->lock);
}

static void count_held(const part_t *part, size_t *count) {
    *count += part->held_since == umf_fork_count() ? part->held_count : 0;
}

bool umf_coalescing_is_trim_at_work(coalescing_pool_t *pool) {
    return umf_coalescing_count(pool, count_held) > 0;
}

/* false: the provider cannot. */
static bool purge_piece(coalescing_pool_t *pool, const umf_range_piece_t *piece) {
    uintptr_t end = piece->base + piece->size;
    uintptr_t rest = piece->base % pool->page;
    uintptr_t first = piece->base + (rest ? pool->page - rest : 0);
    end -= end % pool->page;
    if (first >= end) {
        return true;
    }
    umf_result_t result = umfMemoryProviderPurgeForce(pool->view, (void *)first, end - first);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        result = umfMemoryProviderPurgeLazy(pool->view, (void *)first, end - first);
    }
    return result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* The same. */
static bool purge_part(coalescing_pool_t *pool, part_t *part) {
    uintptr_t cursor = UINTPTR_MAX;
    bool can = true;
    for (size_t count; can && (count = hold(pool, part, &cursor)) > 0;) {
        for (size_t i = 0; can && i < count; i++) {
            can = purge_piece(pool, &part->held[i]); /* nobody else changes them now */
        }
        unhold(part);
    }
    return can;
}

static void purge(coalescing_pool_t *pool) {
    part_t *part = umf_coalescing_part(pool, 0);
    for (size_t i = 1; part && purge_part(pool, part); i++) {
        part = umf_coalescing_part(pool, i);
    }
}

/* --- both ------------------------------------------------------------------------------------- */

static void release_above(coalescing_pool_t *pool, size_t keep) {
    size_t bytes = umf_coalescing_count(pool, count_free_spans);
    if (bytes > keep) {
        umf_coalescing_release(pool, bytes - keep);
    }
}

/* Spans of which pieces were in hand may have become wholly free in the meantime, and nobody has
 * asked whether they may be kept. */
umf_result_t umf_coalescing_trim(void *self, size_t keep) {
    coalescing_pool_t *pool = self;
    umf_coalescing_reclaim(pool);
    release_above(pool, keep);
    if (keep != SIZE_MAX) {
        purge(pool);
        release_above(pool, keep < pool->params.retain ? keep : pool->params.retain);
    }
    return UMF_RESULT_SUCCESS;
}
