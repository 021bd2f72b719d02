/* Tables of blocks, sorted by address. Who uses one from several threads locks it. */
#ifndef UMF_PYTHON_HOOKS_TABLE_H
#define UMF_PYTHON_HOOKS_TABLE_H

#include "block.h"

typedef struct table_t {
    block_t **blocks;
    size_t count, room;
} table_t;

/* The block that an address lies in; NULL if it is in none. */
block_t *table_find(const table_t *table, const void *ptr);
/* False if there is no memory. */
bool table_add(table_t *table, block_t *block);
/* Takes out the block that begins at an address; NULL if there is none. */
block_t *table_remove(table_t *table, const void *ptr);

#endif
