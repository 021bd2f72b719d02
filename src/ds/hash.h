/* Hash table from 64-bit keys (not 0) to pointers. Its memory comes from the metadata arena. The
 * caller locks. */
#ifndef UMF_SRC_DS_HASH_H
#define UMF_SRC_DS_HASH_H

#include "system/common.h"

typedef struct umf_hash_slot_t {
    uint64_t key; /* 0: free */
    void *value;
} umf_hash_slot_t;

typedef struct umf_hash_t {
    umf_hash_slot_t *slots;
    size_t mask; /* slots - 1, or 0 when empty */
    size_t count;
} umf_hash_t;

/* A zeroed umf_hash_t is an empty table. */
void umf_hash_fini(umf_hash_t *hash);

/* Where the search for a key begins: the table has slots. Keys are mostly addresses in equal steps.
 * One multiplication puts most of them beside each other for some steps, as 64 bytes; two scatter
 * them. */
static inline size_t umf_hash_index(const umf_hash_t *hash, uint64_t key) {
    key *= UINT64_C(0x9E3779B97F4A7C15);
    key = (key ^ (key >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(key >> __builtin_clzll(hash->mask));
}

/* The slot of `key`, or the free slot where it belongs. The table must have a free slot. */
static inline umf_hash_slot_t *umf_hash_slot(const umf_hash_t *hash, uint64_t key) {
    size_t i = umf_hash_index(hash, key);
    while (hash->slots[i].key != key && hash->slots[i].key != 0) {
        i = (i + 1) & hash->mask;
    }
    return &hash->slots[i];
}

/* NULL if absent. */
static inline void *umf_hash_get(const umf_hash_t *hash, uint64_t key) {
    return hash->count && key ? umf_hash_slot(hash, key)->value : NULL;
}

/* Adds or replaces a value. false: out of memory, the table is unchanged. */
bool umf_hash_put(umf_hash_t *hash, uint64_t key, void *value);
/* Makes sure that the next `more` puts of new keys cannot fail. */
bool umf_hash_reserve(umf_hash_t *hash, size_t more);
/* Removes and returns the value, NULL if absent. */
void *umf_hash_remove(umf_hash_t *hash, uint64_t key);
/* Visits all values in no particular order. `visit` must not change the table. */
void umf_hash_each(const umf_hash_t *hash, void (*visit)(uint64_t key, void *value, void *arg),
                   void *arg);

#endif
