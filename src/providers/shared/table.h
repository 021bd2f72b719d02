/*
 * Tables of a provider: values by the address of memory, under its lock. An entry is taken before
 * its memory is given back, so that only one of two threads that free it at once continues.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_TABLE_H
#define UMF_SRC_PROVIDERS_SHARED_TABLE_H

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"

/* false: no memory. It cannot fail directly after a take. */
static inline bool umf_table_put(umf_lock_t *lock, umf_hash_t *table, const void *ptr,
                                 void *value) {
    umf_lock(lock);
    bool is_done = umf_hash_put(table, (uintptr_t)ptr, value);
    umf_unlock(lock);
    return is_done;
}

/* NULL: there is no such entry. */
static inline void *umf_table_take(umf_lock_t *lock, umf_hash_t *table, const void *ptr) {
    umf_lock(lock);
    void *value = umf_hash_remove(table, (uintptr_t)ptr);
    umf_unlock(lock);
    return value;
}

/* The same, for an entry of that size; `fits` compares. */
static inline void *umf_table_take_if(umf_lock_t *lock, umf_hash_t *table, const void *ptr,
                                      bool (*fits)(const void *value, size_t size), size_t size) {
    umf_lock(lock);
    void *value = umf_hash_get(table, (uintptr_t)ptr);
    value = value && fits(value, size) ? umf_hash_remove(table, (uintptr_t)ptr) : NULL;
    umf_unlock(lock);
    return value;
}

/* Puts an entry back whose memory could not be unmapped. false, with a message: no memory. */
static inline bool umf_table_put_back(umf_lock_t *lock, umf_hash_t *table, const void *ptr,
                                      void *value) {
    bool is_done = umf_table_put(lock, table, ptr, value);
    if (!is_done) {
        UMF_LOG_ERROR("no memory to remember %p, which could not be unmapped", ptr);
    }
    return is_done;
}

static inline void umf_table_free_value(uint64_t address, void *value, void *size) {
    (void)address;
    umf_meta_free(value, (uintptr_t)size);
}

/* Frees all values, which have that size in the metadata arena, and the table. */
static inline void umf_table_fini(umf_hash_t *table, size_t value_size) {
    umf_hash_each(table, umf_table_free_value, (void *)(uintptr_t)value_size);
    umf_hash_fini(table);
}

#endif
