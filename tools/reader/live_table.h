/* Live allocations, by address and object: open addressing, nothing is marked as deleted. */
#ifndef UMF_READER_LIVE_TABLE_H
#define UMF_READER_LIVE_TABLE_H

#include "own.h"

typedef struct live_table_t {
    umf_reader_live_t *slots; /* not in use: address 0 */
    size_t mask, count;
    unsigned shift; /* of the hash, so that its highest bits lead to the slot */
} live_table_t;

bool live_table_init(live_table_t *table);
void live_table_free(live_table_t *table);

/* NULL: there is none. Object 0: of any. */
umf_reader_live_t *live_table_find(const live_table_t *table, uint64_t address, uint32_t object);

/* False: no memory. */
bool live_table_add(live_table_t *table, const umf_reader_live_t *what);
void live_table_remove(live_table_t *table, const umf_reader_live_t *slot);

#endif
