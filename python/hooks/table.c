/* Tables of blocks: an array. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first block that begins above the address. */
static size_t table_above(const table_t *table, const void *ptr) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->blocks[middle]->ptr > (const char *)ptr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

block_t *table_find(const table_t *table, const void *ptr) {
    size_t above = table_above(table, ptr);
    block_t *block = above > 0 ? table->blocks[above - 1] : NULL;
    return block && (size_t)((const char *)ptr - block->ptr) < block->size ? block : NULL;
}

bool table_add(table_t *table, block_t *block) {
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        block_t **more = realloc(table->blocks, room * sizeof(block_t *));
        if (!more) {
            return false;
        }
        table->blocks = more;
        table->room = room;
    }
    size_t at = table_above(table, block->ptr);
    memmove(&table->blocks[at + 1], &table->blocks[at], (table->count - at) * sizeof(block_t *));
    table->blocks[at] = block;
    table->count++;
    return true;
}

block_t *table_remove(table_t *table, const void *ptr) {
    block_t *block = table_find(table, ptr);
    if (!block || block->ptr != ptr) {
        return NULL;
    }
    size_t at = table_above(table, ptr) - 1;
    table->count--;
    memmove(&table->blocks[at], &table->blocks[at + 1], (table->count - at) * sizeof(block_t *));
    return block;
}
