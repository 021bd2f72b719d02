/* Bytes of a server, which may be anybody's: addresses, directories and tables. */
#ifndef UMF_SRC_EXT_FETCH_TABLE_H
#define UMF_SRC_EXT_FETCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "ext/fetch/wire.h"

/* A table in memory of this process. */
typedef struct umf_fetch_table_t {
    const umf_fetch_head_t *head;
    const umf_fetch_run_t *runs;
    const umf_fetch_entry_t *entries;
    const uint64_t *digests;
    const char *bytes; /* the identity is first */
    uint64_t memory;   /* bytes of all runs */
} umf_fetch_table_t;

/* The bytes of the next address in a list with blanks or commas between. 0: there is none;
 * SIZE_MAX: the next word is no address. `*text` is moved behind it. */
size_t umf_fetch_address_next(const char **text, unsigned char bytes[UMF_FETCH_HANDLE_MAX]);

/* NULL: the bytes are a table. Otherwise the fault. */
const char *umf_fetch_table_check(const void *at, size_t size, umf_fetch_table_t *table);

/* Whether the generations of two servers have the same keys, notes and content. */
bool umf_fetch_table_equals(const umf_fetch_table_t *table, const umf_fetch_table_t *other);

/* The index of the first entry that is not before the key. */
uint32_t umf_fetch_table_lower(const umf_fetch_table_t *table, const char *key, size_t size);

static inline const char *umf_fetch_key(const umf_fetch_table_t *table, uint32_t i) {
    return table->bytes + table->entries[i].key;
}

/* The bytes of a piece of an entry. */
static inline size_t umf_fetch_piece_size(const umf_fetch_entry_t *entry, uint32_t piece) {
    uint64_t left = entry->size - piece * UMF_FETCH_PIECE;
    return (size_t)(left < UMF_FETCH_PIECE ? left : UMF_FETCH_PIECE);
}

#endif
