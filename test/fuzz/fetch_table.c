/*
 * The table and the addresses of a server of vaults, which may be anybody's. Whatever they have, a
 * check refuses them, or every entry is inside of its memory.
 *
 * Input: the bytes of a table; magic, size and sum are set right, so that the rest is looked at.
 */
#include "fuzz/support.h"

#include <stdlib.h>
#include <string.h>

#include "ext/fetch/table.h"
#include "system/checksum.h"

static void look(const void *bytes, size_t size) {
    umf_fetch_table_t table;
    uint64_t digests = 0, sum = 0;
    if (umf_fetch_table_check(bytes, size, &table)) {
        return;
    }
    for (uint32_t i = 0; i < table.head->entries; i++) {
        const umf_fetch_entry_t *entry = &table.entries[i];
        const char *key = umf_fetch_key(&table, i);
        FUZZ_CHECK(strlen(key) == entry->key_size);
        FUZZ_CHECK(umf_fetch_table_lower(&table, key, entry->key_size) == i);
        FUZZ_CHECK(entry->offset + entry->size <= table.runs[entry->run].size);
        uint64_t pieces = table.runs[entry->run].handle_size ? umf_fetch_pieces(entry->size) : 0;
        digests += pieces;
        FUZZ_CHECK(digests <= table.head->digests);
        sum += pieces ? table.digests[entry->digest + pieces - 1] : 0;
        for (uint32_t at = 0; at < entry->note_size; at++) {
            sum += (unsigned char)key[entry->key_size + 1 + at];
        }
    }
    for (uint32_t i = 0; i < table.head->runs; i++) {
        for (uint32_t at = 0; at < table.runs[i].handle_size; at++) {
            sum += (unsigned char)table.bytes[table.runs[i].handle + at];
        }
    }
    FUZZ_CHECK(umf_fetch_table_equals(&table, &table));
    volatile uint64_t seen = sum;
    (void)seen;
}

static void look_at_text(const uint8_t *data, size_t size) {
    unsigned char bytes[UMF_FETCH_HANDLE_MAX];
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    const char *at = text;
    for (size_t length; (length = umf_fetch_address_next(&at, bytes)) != 0;) {
        FUZZ_CHECK(length <= sizeof(bytes) || length == SIZE_MAX);
        FUZZ_CHECK(at <= text + size);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t *copy = malloc(size ? size : 1); /* exactly as long, to see a read behind its end */
    memcpy(copy, data, size);
    look(copy, size);
    if (size >= sizeof(umf_fetch_head_t)) {
        umf_fetch_head_t *head = (umf_fetch_head_t *)copy;
        head->magic = UMF_FETCH_TABLE;
        head->size = size;
        head->check = umf_sum(head + 1, size - sizeof(*head));
        look(copy, size);
    }
    free(copy);
    look_at_text(data, size);
    return 0;
}
