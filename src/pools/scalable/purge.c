/* Purging what oneTBB has free. */
#include "pools/scalable/purge.h"

#include "base/meta.h"

/* Blocks that trim takes, with room for oneTBB's header of them: from a slab up. */
#define PURGE_LARGEST ((size_t)64 << 20)
#define PURGE_EXACT ((size_t)128 << 10) /* from here on in steps of oneTBB's ... */
#define PURGE_STEP ((size_t)8 << 10)    /* ... sizes of large blocks, above by halves */
#define PURGE_SMALLEST ((size_t)16 << 10)
#define PURGE_HEADER 256

/* What the trimmer has taken. It is listed out of line, for in it nothing stays. */
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

/* What was taken last goes first: of the two objects in a slab, oneTBB writes only to the one that
 * is freed first, and the lower one begins in the page that stays anyway. */
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

/* Drops what is in the whole pages of [begin, end). */
static void purge(const umf_scalable_purge_t *pool, char *begin, char *end, size_t page) {
    uintptr_t first = (uintptr_t)begin + page - 1;
    first -= first % page;
    uintptr_t last = (uintptr_t)end - (uintptr_t)end % page;
    if (first < last && umfMemoryProviderPurgeForce(pool->tracked, (void *)first, last - first) ==
                            UMF_RESULT_ERROR_NOT_SUPPORTED) {
        umfMemoryProviderPurgeLazy(pool->tracked, (void *)first, last - first);
    }
}

static size_t purge_next(size_t size) {
    return size > PURGE_EXACT ? size / 2 : size - PURGE_STEP;
}

/*
 * Free memory between blocks in use stays resident. So the trimmer, who gets no new memory, takes
 * all there is, drops what is in it and gives it back: first from the parts for large blocks, then
 * slabs, by objects of which two fill one, the upper one first.
 */
void umf_scalable_purge(const umf_scalable_purge_t *pool) {
    size_t page = 0;
    if (umf_provider_page_size(pool->tracked, &page) != UMF_RESULT_SUCCESS) {
        return;
    }
    taken_t *taken = NULL;
    char *block, *upper = NULL;
    for (size_t size = PURGE_LARGEST; size >= PURGE_SMALLEST; size = purge_next(size)) {
        while ((block = take(pool, size - PURGE_HEADER, &taken)) != NULL) {
            purge(pool, block, block + size - PURGE_HEADER, page);
        }
    }
    while ((block = take(pool, UMF_SCALABLE_SMALL_LARGEST, &taken)) != NULL) {
        char *end = block + UMF_SCALABLE_SMALL_LARGEST;
        purge(pool, block, end == upper ? upper + UMF_SCALABLE_SMALL_LARGEST : end, page);
        upper = block;
    }
    taken_free(pool, taken);
}
