/*
 * The table of a generation of a vault, as a reader gets it from any writer. Whatever it has,
 * a check refuses it or every entry can be read and found.
 *
 * Input: the bytes of a table; magic, size and sum are set right, so that the rest is looked at.
 */
#include "fuzz/support.h"

#include <stdlib.h>
#include <string.h>

#include "ext/vault/table.h"
#include "system/checksum.h"

static void look(const void *bytes, size_t size) {
    umf_table_t table;
    uint64_t sum = 0;
    if (umf_table_check(bytes, size, &table)) {
        return;
    }
    for (uint32_t i = 0; i < table.head->entries; i++) {
        const umf_table_entry_t *entry = &table.entries[i];
        const char *key = umf_table_key(&table, i);
        FUZZ_CHECK(strlen(key) == entry->key_size);
        FUZZ_CHECK(umf_table_find(&table, key, entry->key_size) == i);
        FUZZ_CHECK(entry->offset + entry->size <= table.slabs[entry->slab].size);
        sum += table.digests ? table.digests[i] : 0;
        for (uint32_t at = 0; at < entry->note_size; at++) {
            sum += (unsigned char)key[entry->key_size + 1 + at];
        }
    }
    for (uint32_t i = 0; i < table.head->identity; i++) {
        sum += (unsigned char)table.bytes[i];
    }
    volatile uint64_t seen = sum;
    (void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t *copy = malloc(size + 1); /* exactly as long, to see a read behind its end */
    memcpy(copy, data, size);
    look(copy, size);
    if (size >= sizeof(umf_table_head_t)) {
        umf_table_head_t *head = (umf_table_head_t *)copy;
        head->magic = UMF_TABLE_MAGIC;
        head->size = size;
        umf_vault_slab_t *slabs = (umf_vault_slab_t *)(head + 1);
        for (size_t i = 0; i < head->slabs && (char *)&slabs[i + 1] <= (char *)copy + size; i++) {
            slabs[i].kind = 1 + (slabs[i].kind & 1); /* others are refused at once */
        }
        head->sum = umf_sum(head + 1, size - sizeof(*head));
        look(copy, size);
    }
    free(copy);
    return 0;
}
