#include "ext/vault/table.h"

#include <string.h>

#include "system/checksum.h"

int umf_table_compare(const char *a, size_t a_size, const char *b, size_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

uint64_t umf_table_digest(const void *content, size_t size) {
    return umf_table_digest_of(umf_sum(content, size));
}

uint64_t umf_table_slab_sum(const void *content, size_t at, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += UMF_TABLE_SUM_PART) {
        size_t part = size - i < UMF_TABLE_SUM_PART ? size - i : UMF_TABLE_SUM_PART;
        uint64_t place = (at + i) / UMF_TABLE_SUM_PART + 1;
        sum += umf_sum_mix(umf_sum((const char *)content + i, part) ^ place * UMF_SUM_FACTOR);
    }
    return sum;
}

/* --- writing ---------------------------------------------------------------------------------- */

size_t umf_table_size(const umf_table_source_t *entries, uint32_t count, uint32_t slabs,
                      size_t identity_size) {
    size_t size = sizeof(umf_table_head_t) + slabs * sizeof(umf_vault_slab_t) +
                  count * sizeof(umf_table_entry_t) + identity_size;
    for (uint32_t i = 0; i < count; i++) {
        size += (size_t)entries[i].key_size + 1 + entries[i].note_size;
    }
    return size;
}

void umf_table_write(void *at, size_t size, const umf_table_source_t *entries, uint32_t count,
                     const umf_vault_slab_t *slabs, uint32_t slab_count, const void *identity,
                     size_t identity_size) {
    umf_table_head_t *head = at;
    umf_vault_slab_t *to_slabs = (umf_vault_slab_t *)(head + 1);
    umf_table_entry_t *to = (umf_table_entry_t *)(to_slabs + slab_count);
    bool has_digests = size > umf_table_size(entries, count, slab_count, identity_size);
    uint64_t *digests = (uint64_t *)(to + count);
    char *bytes = (char *)(digests + (has_digests ? count : 0));
    *head = (umf_table_head_t){.magic = UMF_TABLE_MAGIC,
                               .size = size,
                               .entries = count,
                               .slabs = slab_count,
                               .identity = (uint32_t)identity_size,
                               .digests = has_digests ? count : 0};
    if (slab_count) {
        memcpy(to_slabs, slabs, slab_count * sizeof(*slabs));
    }
    if (identity_size) {
        memcpy(bytes, identity, identity_size);
    }
    size_t used = identity_size;
    for (uint32_t i = 0; i < count; i++) {
        to[i] = (umf_table_entry_t){.offset = entries[i].offset,
                                    .size = entries[i].size,
                                    .key = used,
                                    .slab = entries[i].slab,
                                    .note_size = entries[i].note_size,
                                    .key_size = entries[i].key_size,
                                    .flags = entries[i].flags};
        if (has_digests) {
            digests[i] = entries[i].digest;
        }
        memcpy(bytes + used, entries[i].key, entries[i].key_size);
        used += entries[i].key_size;
        bytes[used++] = 0;
        if (entries[i].note_size) {
            memcpy(bytes + used, entries[i].note, entries[i].note_size);
            used += entries[i].note_size;
        }
    }
    head->sum = umf_sum(head + 1, size - sizeof(*head));
}

/* --- checking --------------------------------------------------------------------------------- */

static const char *check_entries(const umf_table_t *table, size_t room) {
    const umf_table_entry_t *entries = table->entries;
    for (uint32_t i = 0; i < table->head->entries; i++) {
        const umf_table_entry_t *entry = &entries[i];
        size_t needed = (size_t)entry->key_size + 1 + entry->note_size;
        if (entry->slab >= table->head->slabs || entry->key_size == 0 || entry->size == 0) {
            return "an entry has no key, no size, or no slab";
        }
        const umf_vault_slab_t *slab = &table->slabs[entry->slab];
        if (entry->size > slab->size || entry->offset > slab->size - entry->size) {
            return "an entry is outside of its slab";
        }
        if (entry->key > room || needed > room - entry->key) {
            return "a key is outside of the table";
        }
        const char *key = table->bytes + entry->key;
        if (memchr(key, 0, entry->key_size) || key[entry->key_size]) {
            return "a key does not end where it says";
        }
        if (i > 0 && umf_table_compare(umf_table_key(table, i - 1), entries[i - 1].key_size, key,
                                       entry->key_size) >= 0) {
            return "the keys are not sorted";
        }
        unsigned flags = slab->role == UMF_VAULT_CLASS_PRIVATE ? UMF_VAULT_PRIVATE
                         : slab->role == UMF_VAULT_CLASS_ZERO  ? UMF_VAULT_ZERO
                                                               : 0u;
        if (entry->flags != flags) {
            return "an entry has other flags than its slab";
        }
        if ((flags & UMF_VAULT_ZERO) && table->digests && table->digests[i]) {
            return "an entry without content has a sum"; /* which would read all of its size */
        }
    }
    return NULL;
}

static const char *check_slabs(const umf_table_t *table) {
    for (uint32_t i = 0; i < table->head->slabs; i++) {
        const umf_vault_slab_t *slab = &table->slabs[i];
        bool is_zero = slab->role == UMF_VAULT_CLASS_ZERO;
        if (slab->role > UMF_VAULT_CLASS_ZERO || slab->size == 0 ||
            slab->size > UINT64_C(1) << 56 || (slab->serial == 0) != is_zero) {
            return "a slab has no size, or an unknown class";
        }
        if (slab->kind != UMF_VAULT_KIND_HOST && slab->kind != UMF_VAULT_KIND_DEVICE) {
            return "a slab is of an unknown kind of memory";
        }
    }
    return NULL;
}

const char *umf_table_check(const void *at, size_t size, umf_table_t *table) {
    const umf_table_head_t *head = at;
    if (size < sizeof(*head) || head->magic != UMF_TABLE_MAGIC || head->size != size) {
        return "it is no table, or one of another version";
    }
    if (head->entries > UMF_TABLE_ENTRIES_MAX || head->slabs > UMF_TABLE_SLABS_MAX ||
        head->identity > UMF_TABLE_IDENTITY_MAX ||
        (head->digests != 0 && head->digests != head->entries)) {
        return "it has more entries or slabs than a table may have";
    }
    size_t fixed = sizeof(*head) + head->slabs * sizeof(umf_vault_slab_t) +
                   head->entries * sizeof(umf_table_entry_t) + head->digests * sizeof(uint64_t);
    if (fixed > size || head->identity > size - fixed) {
        return "it is shorter than its entries";
    }
    if (head->sum != umf_sum(head + 1, size - sizeof(*head))) {
        return "its sum is wrong";
    }
    *table = (umf_table_t){.head = head, .slabs = (const umf_vault_slab_t *)(head + 1)};
    table->entries = (const umf_table_entry_t *)(table->slabs + head->slabs);
    const uint64_t *digests = (const uint64_t *)(table->entries + head->entries);
    table->digests = head->digests ? digests : NULL;
    table->bytes = (const char *)(digests + head->digests);
    const char *wrong = check_slabs(table);
    return wrong ? wrong : check_entries(table, size - fixed);
}

static bool slab_differs(const umf_vault_slab_t *slab, const umf_vault_slab_t *other) {
    return slab->size != other->size || slab->role != other->role || slab->kind != other->kind ||
           memcmp(slab->device, other->device, sizeof(slab->device)) != 0;
}

const char *umf_table_differs(const umf_table_t *table, const umf_table_t *other) {
    if (table->head->slabs != other->head->slabs || table->head->entries != other->head->entries) {
        return "it has another number of entries or pieces of memory";
    }
    for (uint32_t i = 0; i < table->head->slabs; i++) {
        if (slab_differs(&table->slabs[i], &other->slabs[i])) {
            return "a piece of its memory has another size, device or flags";
        }
    }
    for (uint32_t i = 0; i < table->head->entries; i++) {
        const umf_table_entry_t *one = &table->entries[i], *two = &other->entries[i];
        if (one->slab != two->slab || one->offset != two->offset || one->size != two->size ||
            umf_table_compare(umf_table_key(table, i), one->key_size, umf_table_key(other, i),
                              two->key_size) != 0) {
            return "an entry has another key, size or place";
        }
    }
    return NULL;
}

/* --- search ----------------------------------------------------------------------------------- */

uint32_t umf_table_lower(const umf_table_t *table, const char *key, size_t size) {
    uint32_t low = 0, high = table->head->entries;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = umf_table_compare(umf_table_key(table, middle), table->entries[middle].key_size,
                                      key, size);
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t umf_table_find(const umf_table_t *table, const char *key, size_t size) {
    uint32_t i = umf_table_lower(table, key, size);
    bool is_it = i < table->head->entries && table->entries[i].key_size == size &&
                 memcmp(umf_table_key(table, i), key, size) == 0;
    return is_it ? i : UINT32_MAX;
}
