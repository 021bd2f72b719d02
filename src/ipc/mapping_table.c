/* Descriptors of mappings, and the table in which a handle finds its mapping. See mapping_own.h. */
#include <string.h>

#include "base/meta.h"
#include "ipc/mapping_own.h"

/* --- descriptors --- */

static umf_mapping_t *mapping_take_spare(void) {
    umf_mapping_t *mapping = NULL;
    umf_lock(&umf_mappings.lock);
    if (!umf_list_is_empty(&umf_mappings.spare)) {
        mapping = UMF_CONTAINER_OF(umf_mappings.spare.next, umf_mapping_t, siblings);
        umf_list_remove(&mapping->siblings);
    }
    umf_unlock(&umf_mappings.lock);
    return mapping;
}

umf_mapping_t *umf_mapping_alloc(size_t data_size) {
    void *data = umf_meta_alloc(umf_mapping_data_bytes(data_size));
    umf_mapping_t *mapping = data ? mapping_take_spare() : NULL;
    if (data && mapping == NULL) {
        mapping = umf_meta_alloc(sizeof(*mapping));
    }
    if (mapping == NULL) {
        umf_meta_free(data, umf_mapping_data_bytes(data_size));
        return NULL;
    }
    umf_list_init(&mapping->siblings);
    umf_list_init(&mapping->order);
    umf_list_init(&mapping->own);
    mapping->span = NULL;
    mapping->is_own = false;
    mapping->data = data;
    return mapping;
}

void umf_mapping_free(umf_mapping_t *mapping) {
    umf_meta_free(mapping->data, umf_mapping_data_bytes(mapping->wire.data_size));
    umf_lock(&umf_mappings.lock);
    mapping->phase = UMF_MAPPING_NEW;
    umf_list_add(&umf_mappings.spare, &mapping->siblings);
    umf_unlock(&umf_mappings.lock);
}

static uint64_t mapping_key(const umf_mapping_t *mapping) {
    uint64_t key = (uintptr_t)umf_mapping_owner(mapping) ^ mapping->wire.base * 0x9e3779b97f4a7c15u;
    key = (key ^ key >> 29) * 0xd6e8feb86659fd93u;
    key = (key ^ key >> 32 ^ mapping->wire.start_time) + mapping->wire.pid;
    return key ? key : 1;
}

static bool mapping_is_same_place(const umf_mapping_t *a, const umf_mapping_t *b) {
    return umf_mapping_owner(a) == umf_mapping_owner(b) && a->wire.base == b->wire.base &&
           a->wire.pid == b->wire.pid && a->wire.start_time == b->wire.start_time &&
           a->wire.pid_ns == b->wire.pid_ns && a->wire.boot_id == b->wire.boot_id;
}

void umf_mapping_set_fixed(umf_mapping_t *mapping, const void *fixed) {
    for (size_t i = 0; i < UMF_MAPPING_FIXED_WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)fixed + i * sizeof(word), sizeof(word));
        atomic_store_explicit(&mapping->fixed[i], word, memory_order_release);
    }
}

bool umf_mapping_is_same(const umf_mapping_t *a, const umf_mapping_t *b) {
    return umf_mapping_is_fixed(a, (const void *)b->fixed) &&
           memcmp(a->data, b->data, a->wire.data_size) == 0;
}

/* --- table --- */

umf_mapping_t *umf_mapping_find_locked(const umf_mapping_t *like) {
    umf_assert_locked(&umf_mappings.lock);
    umf_mapping_t *mapping = umf_hash_get(&umf_mappings.table, mapping_key(like));
    while (mapping && !mapping_is_same_place(mapping, like)) {
        mapping = mapping->same;
    }
    return mapping;
}

bool umf_mapping_insert_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&umf_mappings.lock);
    uint64_t key = mapping_key(mapping);
    mapping->same = umf_hash_get(&umf_mappings.table, key);
    return umf_hash_put(&umf_mappings.table, key, mapping);
}

void umf_mapping_remove_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&umf_mappings.lock);
    uint64_t key = mapping_key(mapping);
    umf_mapping_t *first = umf_hash_get(&umf_mappings.table, key);
    if (first == mapping) {
        /* The key exists, so replacing its value needs no memory and cannot fail. */
        if (mapping->same) {
            umf_hash_put(&umf_mappings.table, key, mapping->same);
        } else {
            umf_hash_remove(&umf_mappings.table, key);
        }
        return;
    }
    while (first && first->same != mapping) {
        first = first->same;
    }
    if (first) {
        first->same = mapping->same;
    }
}
