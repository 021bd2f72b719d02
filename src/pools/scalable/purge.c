/* Purges the free memory of oneTBB. */
#include "pools/scalable/purge.h"

#include "base/meta.h"
#include "pools/shared/purge.h"

/* The sizes of the blocks that are taken, from the largest down to a slab. Down to PURGE_EXACT each
 * size is half of the one before, then the sizes go down in oneTBB's steps of large blocks. Each
 * has room for oneTBB's header. */
#define PURGE_LARGEST ((size_t)64 << 20)
#define PURGE_EXACT ((size_t)128 << 10)
#define PURGE_STEP ((size_t)8 << 10)
#define PURGE_SMALLEST ((size_t)16 << 10)
#define PURGE_HEADER 256

/* The blocks that the trimmer has taken. The list is outside of the blocks, because these are
 * purged. */
typedef struct taken_t {
    struct taken_t *next;
    size_t count;
    char *blocks[510];
} taken_t;

static char *take(const umf_scalable_purge_t *pool, size_t size, taken_t **list) {
    taken_t *taken = *list;
    if (!taken || taken->count == UMF_COUNT_OF(taken->blocks)) {
        taken = umf_meta_alloc(sizeof(*taken));
        if (!taken) {
            return NULL;
        }
        taken->next = *list;
        *list = taken;
    }
    char *block = pool->tbb->pool_malloc(pool->below, size);
    if (block) {
        taken->blocks[taken->count++] = block;
    }
    return block;
}

/* Frees in reverse order. oneTBB writes only to the first freed of the two objects in a slab. That
 * is the lower one, which starts in the page of the slab's header and so makes no other page
 * resident. */
static void taken_free(const umf_scalable_purge_t *pool, taken_t *taken) {
    while (taken) {
        for (size_t i = taken->count; i-- > 0;) {
            pool->tbb->pool_free(pool->below, taken->blocks[i]);
        }
        taken_t *next = taken->next;
        umf_meta_free(taken, sizeof(*taken));
        taken = next;
    }
}

static size_t purge_next(size_t size) {
    return size > PURGE_EXACT ? size / 2 : size - PURGE_STEP;
}

/*
 * Free memory between blocks in use stays resident. So the trimmer, which gets no new memory, takes
 * all free memory of oneTBB, purges it and frees it: first large blocks, then slabs. A slab is
 * taken as two objects that fill it; oneTBB hands out the upper one first.
 */
void umf_scalable_purge(const umf_scalable_purge_t *pool) {
    size_t page = 0;
    if (umf_provider_page_size(pool->tracked, &page) != UMF_RESULT_SUCCESS) {
        return;
    }
    umf_purge_t purge;
    umf_purge_init(&purge, pool->tracked, page);
    taken_t *taken = NULL;
    char *block, *upper = NULL;
    for (size_t size = PURGE_LARGEST; size >= PURGE_SMALLEST; size = purge_next(size)) {
        while ((block = take(pool, size - PURGE_HEADER, &taken)) != NULL) {
            umf_purge(&purge, (uintptr_t)block, size - PURGE_HEADER);
        }
    }
    while ((block = take(pool, UMF_SCALABLE_SMALL_LARGEST, &taken)) != NULL) {
        char *end = block + UMF_SCALABLE_SMALL_LARGEST;
        end = end == upper ? upper + UMF_SCALABLE_SMALL_LARGEST : end;
        umf_purge(&purge, (uintptr_t)block, (size_t)(end - block));
        upper = block;
    }
    taken_free(pool, taken);
}
