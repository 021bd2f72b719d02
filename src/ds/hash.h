/* Hash table from 64-bit keys (not 0) to pointers. Its memory comes from the metadata arena. The
 * caller locks. */
#ifndef UMF_SRC_DS_HASH_H
#define UMF_SRC_DS_HASH_H

#include "system/common.h"

typedef struct umf_hash_t {
    struct umf_hash_slot_t *slots;
    size_t mask; /* slots - 1, or 0 when empty */
    size_t count;
} umf_hash_t;

/* A zeroed umf_hash_t is an empty table. */
void umf_hash_fini(umf_hash_t *hash);
void *umf_hash_get(const umf_hash_t *hash, uint64_t key);
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
