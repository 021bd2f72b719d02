/*
 * Table: the names of a generation. It is a sealed memory file, so that a reader searches it in
 * place; but its writer may have been anybody, so the reader checks it once.
 *
 * A head, the slabs, the entries sorted by key (as memcmp sorts, the shorter of equal ones first),
 * sums of their content, if the writer requested them, and bytes: the identity, then of each entry
 * its key, a NUL and its note.
 */
#ifndef UMF_SRC_EXT_VAULT_TABLE_H
#define UMF_SRC_EXT_VAULT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "ext/vault/protocol.h"
#include "system/common.h"

#define UMF_TABLE_MAGIC UINT64_C(0x32454c4241544655) /* "UFTABLE2" */
#define UMF_TABLE_ENTRIES_MAX 1000000u
#define UMF_TABLE_SLABS_MAX 16384u
#define UMF_TABLE_NOTE_MAX 65535u
#define UMF_TABLE_IDENTITY_MAX 4096u

typedef struct umf_table_head_t {
    uint64_t magic, size;
    uint64_t sum; /* of everything behind the head */
    uint32_t entries, slabs, identity;
    uint32_t digests; /* as many as entries, or 0 */
    uint64_t reserved_too[3];
} umf_table_head_t;

static_assert(sizeof(umf_table_head_t) == 64, "tables are kept");

typedef struct umf_table_entry_t {
    uint64_t offset, size; /* in its slab */
    uint64_t key;          /* where it is in the bytes */
    uint32_t slab;         /* index */
    uint16_t note_size;
    uint8_t key_size, flags; /* umf_vault_flag_t */
} umf_table_entry_t;

static_assert(sizeof(umf_table_entry_t) == 32, "tables are kept");

/* A table in memory. Nothing in it changes. */
typedef struct umf_table_t {
    const umf_table_head_t *head;
    const umf_vault_slab_t *slabs; /* serial 0: without memory (UMF_VAULT_CLASS_ZERO) */
    const umf_table_entry_t *entries;
    const uint64_t *digests; /* NULL: none. 0: none of this entry */
    const char *bytes;
} umf_table_t;

/* The parts of a table. */
typedef struct umf_table_source_t {
    const char *key, *note;
    uint64_t offset, size;
    uint64_t digest;
    uint32_t slab;
    uint16_t note_size;
    uint8_t key_size, flags;
} umf_table_source_t;

/* The sum of an entry's content; never 0. */
uint64_t umf_table_digest(const void *content, size_t size);
/* The same of content whose umf_sum is known. */
static inline uint64_t umf_table_digest_of(uint64_t sum) {
    return sum ? sum : 1;
}

/* The sum of a slab is of parts, which several threads can read in any order: sums of ranges that
 * begin at parts are added up, and umf_table_digest_of ends it. `at`: of the range in the slab. */
#define UMF_TABLE_SUM_PART ((size_t)512 << 10)
uint64_t umf_table_slab_sum(const void *content, size_t at, size_t size);

/* Bytes of a table without digests. The entries are sorted, without duplicates. */
size_t umf_table_size(const umf_table_source_t *entries, uint32_t count, uint32_t slabs,
                      size_t identity_size);
/* With digests it has 8 bytes more for each entry. */
void umf_table_write(void *at, size_t size, const umf_table_source_t *entries, uint32_t count,
                     const umf_vault_slab_t *slabs, uint32_t slab_count, const void *identity,
                     size_t identity_size);

/* As memcmp of the common part, then the shorter one. */
int umf_table_compare(const char *a, size_t a_size, const char *b, size_t b_size);

/* NULL: the bytes are a table. Otherwise the fault. */
const char *umf_table_check(const void *at, size_t size, umf_table_t *table);

/* NULL: the slabs and entries of both are at the same places. Otherwise what differs. */
const char *umf_table_differs(const umf_table_t *table, const umf_table_t *other);

/* The index of the first entry that is not before the key. */
uint32_t umf_table_lower(const umf_table_t *table, const char *key, size_t size);
/* UINT32_MAX: there is none. */
uint32_t umf_table_find(const umf_table_t *table, const char *key, size_t size);

static inline const char *umf_table_key(const umf_table_t *table, uint32_t i) {
    return table->bytes + table->entries[i].key;
}

#endif
