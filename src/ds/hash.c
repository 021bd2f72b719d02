/*
 * Hash table: open addressing with linear probing, at most three quarters full. Removal moves later
 * entries back, so there are no tombstones and a table never degrades.
 */
#include "ds/hash.h"

#include "base/meta.h"

#define HASH_MIN_SLOTS 8

static size_t hash_capacity(const umf_hash_t *hash) {
    return hash->slots ? hash->mask + 1 : 0;
}

void umf_hash_fini(umf_hash_t *hash) {
    umf_meta_free(hash->slots, hash_capacity(hash) * sizeof(*hash->slots));
    *hash = (umf_hash_t){0};
}

static bool hash_rehash(umf_hash_t *hash, size_t capacity) {
    size_t bytes;
    if (!umf_mul(capacity, sizeof(*hash->slots), &bytes)) {
        return false;
    }
    umf_hash_t larger = {
        .slots = umf_meta_alloc(bytes), .mask = capacity - 1, .count = hash->count};
    if (!larger.slots) {
        return false;
    }
    for (size_t i = 0; i < hash_capacity(hash); i++) {
        if (hash->slots[i].key != 0) {
            *umf_hash_slot(&larger, hash->slots[i].key) = hash->slots[i];
        }
    }
    umf_meta_free(hash->slots, hash_capacity(hash) * sizeof(*hash->slots));
    *hash = larger;
    return true;
}

bool umf_hash_reserve(umf_hash_t *hash, size_t more) {
    size_t requested;
    if (!umf_add(hash->count, more, &requested) || requested > SIZE_MAX / 8) {
        return false;
    }
    size_t capacity = hash_capacity(hash);
    if (requested * 4 <= capacity * 3) {
        return true;
    }
    if (capacity < HASH_MIN_SLOTS) {
        capacity = HASH_MIN_SLOTS;
    }
    while (requested * 4 > capacity * 3) {
        capacity *= 2;
    }
    return hash_rehash(hash, capacity);
}

bool umf_hash_put(umf_hash_t *hash, uint64_t key, void *value) {
    umf_hash_slot_t *slot = hash->count ? umf_hash_slot(hash, key) : NULL;
    if (slot && slot->key == key) {
        slot->value = value;
        return true;
    }
    if (!umf_hash_reserve(hash, 1)) {
        return false;
    }
    *umf_hash_slot(hash, key) = (umf_hash_slot_t){.key = key, .value = value};
    hash->count++;
    return true;
}

/* Moves later entries of the run into the hole as long as that brings them closer to the slot that
 * their hash selects. */
static void hash_close_gap(umf_hash_t *hash, size_t hole) {
    size_t i = hole;
    for (;;) {
        hash->slots[hole] = (umf_hash_slot_t){0};
        size_t index;
        do {
            i = (i + 1) & hash->mask;
            if (hash->slots[i].key == 0) {
                return;
            }
            index = umf_hash_index(hash, hash->slots[i].key);
        } while (((i - index) & hash->mask) < ((i - hole) & hash->mask));
        hash->slots[hole] = hash->slots[i];
        hole = i;
    }
}

void *umf_hash_remove(umf_hash_t *hash, uint64_t key) {
    if (!hash->count || !key) {
        return NULL;
    }
    umf_hash_slot_t *slot = umf_hash_slot(hash, key);
    void *value = slot->value;
    if (slot->key == key) {
        hash->count--;
        hash_close_gap(hash, (size_t)(slot - hash->slots));
    }
    return value;
}

void umf_hash_each(const umf_hash_t *hash, void (*visit)(uint64_t key, void *value, void *arg),
                   void *arg) {
    for (size_t i = 0; i < hash_capacity(hash); i++) {
        if (hash->slots[i].key != 0) {
            visit(hash->slots[i].key, hash->slots[i].value, arg);
        }
    }
}
