/*
 * Items: a sequence that grows by whole blocks, so that an addition never copies what there is. Its
 * memory is the system's, because it may be made inside of any allocation.
 */
#ifndef UMF_SRC_EXT_RECORD_ITEMS_H
#define UMF_SRC_EXT_RECORD_ITEMS_H

#include <stdbool.h>

#include "system/common.h"

#define UMF_ITEMS_BLOCK ((size_t)1 << 20)
#define UMF_ITEMS_BLOCKS 8192u

/* Zeroed but for the size: empty. */
typedef struct umf_items_t {
    size_t size;      /* of an item */
    size_t per_block; /* 0: nothing was added yet */
    size_t count;
    void **blocks;
} umf_items_t;

/* Room for one more at the end; its content is 0. NULL: no memory. */
void *umf_items_add(umf_items_t *items);
void umf_items_fini(umf_items_t *items);

static inline void *umf_items_at(const umf_items_t *items, size_t index) {
    return (char *)items->blocks[index / items->per_block] + index % items->per_block * items->size;
}

/* Writes all of them. 0 or an errno value. */
int umf_items_write(const umf_items_t *items, int fd, uint64_t offset);

#endif
