#include "ext/fetch/table.h"

#include <string.h>

#include <umf/vault.h>

#include "system/checksum.h"

#define MEMORY_MAX (UINT64_C(1) << 56)
#define SHARED_MAX 16u /* as many times all memory may be under entries, if it is much */

/* --- addresses -------------------------------------------------------------------------------- */

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t umf_fetch_address_next(const char **text, unsigned char bytes[UMF_FETCH_HANDLE_MAX]) {
    const char *at = *text + strspn(*text, " ,\t\n"), *end = at + strcspn(at, " ,\t\n");
    size_t prefix = strlen(UMF_FETCH_PREFIX), length = 0;
    *text = end;
    if (at == end) {
        return 0;
    }
    if ((size_t)(end - at) <= prefix || memcmp(at, UMF_FETCH_PREFIX, prefix) != 0 ||
        (size_t)(end - at) - prefix > 2 * UMF_FETCH_HANDLE_MAX) {
        return SIZE_MAX;
    }
    for (at += prefix; at < end; at += 2) {
        int high = digit_of(at[0]), low = at + 1 < end ? digit_of(at[1]) : -1;
        if (high < 0 || low < 0) {
            return SIZE_MAX;
        }
        bytes[length++] = (unsigned char)(high << 4 | low);
    }
    return length;
}

/* --- tables ----------------------------------------------------------------------------------- */

static int key_compare(const char *a, size_t a_size, const char *b, size_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static const char *check_runs(umf_fetch_table_t *table, size_t room) {
    for (uint32_t i = 0; i < table->head->runs; i++) {
        const umf_fetch_run_t *run = &table->runs[i];
        bool is_zero = run->flags == UMF_VAULT_ZERO;
        if (run->size == 0 || run->size > MEMORY_MAX - table->memory ||
            (run->flags != 0 && run->flags != UMF_VAULT_PRIVATE && !is_zero)) {
            return "its memory has no size, or unknown flags";
        }
        if (is_zero != (run->handle_size == 0) || run->handle_size > UMF_FETCH_HANDLE_MAX ||
            run->handle > room || run->handle_size > room - run->handle) {
            return "a handle is outside of it";
        }
        table->memory += run->size;
    }
    return NULL;
}

static const char *check_entry(const umf_fetch_table_t *table, uint32_t i, size_t room) {
    const umf_fetch_entry_t *entry = &table->entries[i];
    size_t needed = (size_t)entry->key_size + 1 + entry->note_size;
    if (entry->run >= table->head->runs || entry->key_size == 0 || entry->size == 0 ||
        entry->flags != table->runs[entry->run].flags) {
        return "an entry has no key, no size, no memory or other flags than its memory";
    }
    uint64_t size = table->runs[entry->run].size;
    if (entry->size > size || entry->offset > size - entry->size) {
        return "an entry is outside of its memory";
    }
    if (entry->key > room || needed > room - entry->key) {
        return "a key is outside of it";
    }
    const char *key = umf_fetch_key(table, i);
    if (memchr(key, 0, entry->key_size) || key[entry->key_size]) {
        return "a key does not end where it says";
    }
    if (i > 0 && key_compare(umf_fetch_key(table, i - 1), table->entries[i - 1].key_size, key,
                             entry->key_size) >= 0) {
        return "the keys are not sorted";
    }
    return NULL;
}

static const char *check_entries(const umf_fetch_table_t *table, size_t room) {
    uint64_t digests = 0, content = 0;
    for (uint32_t i = 0; i < table->head->entries; i++) {
        const umf_fetch_entry_t *entry = &table->entries[i];
        const char *wrong = check_entry(table, i, room);
        if (wrong) {
            return wrong;
        }
        if (entry->digest != digests) {
            return "the digests are not those of its entries";
        }
        if (entry->flags != UMF_VAULT_ZERO) {
            digests += umf_fetch_pieces(entry->size);
            content += entry->size; /* compared at once, so it does not overflow */
        }
        if (content / SHARED_MAX > table->memory && content > UINT64_C(1) << 30) {
            return "its entries share too much of its memory";
        }
    }
    return digests == table->head->digests ? NULL : "the digests are not those of its entries";
}

const char *umf_fetch_table_check(const void *at, size_t size, umf_fetch_table_t *table) {
    const umf_fetch_head_t *head = at;
    if (size < sizeof(*head) || head->magic != UMF_FETCH_TABLE || head->size != size) {
        return "it is no table, or one of another version";
    }
    if (head->runs > UMF_FETCH_RUNS_MAX || head->entries > UMF_FETCH_ENTRIES_MAX ||
        head->identity > UMF_FETCH_IDENTITY_MAX || head->digests > size / sizeof(uint64_t)) {
        return "it has more entries or memory than a table may have";
    }
    size_t fixed = sizeof(*head) + head->runs * sizeof(umf_fetch_run_t) +
                   head->entries * sizeof(umf_fetch_entry_t) +
                   (size_t)head->digests * sizeof(uint64_t);
    if (fixed > size || head->identity > size - fixed) {
        return "it is shorter than its entries";
    }
    if (head->check != umf_sum(head + 1, size - sizeof(*head))) {
        return "its sum is wrong";
    }
    *table = (umf_fetch_table_t){.head = head, .runs = (const umf_fetch_run_t *)(head + 1)};
    table->entries = (const umf_fetch_entry_t *)(table->runs + head->runs);
    table->digests = (const uint64_t *)(table->entries + head->entries);
    table->bytes = (const char *)(table->digests + head->digests);
    const char *wrong = check_runs(table, size - fixed);
    return wrong ? wrong : check_entries(table, size - fixed);
}

static bool entry_equals(const umf_fetch_table_t *table, const umf_fetch_table_t *other,
                         uint32_t i) {
    const umf_fetch_entry_t *one = &table->entries[i], *two = &other->entries[i];
    return one->size == two->size && one->flags == two->flags && one->digest == two->digest &&
           one->key_size == two->key_size && one->note_size == two->note_size &&
           memcmp(umf_fetch_key(table, i), umf_fetch_key(other, i),
                  (size_t)one->key_size + 1 + one->note_size) == 0;
}

bool umf_fetch_table_equals(const umf_fetch_table_t *table, const umf_fetch_table_t *other) {
    const umf_fetch_head_t *head = table->head;
    bool is_equal =
        head->entries == other->head->entries && head->digests == other->head->digests &&
        head->identity == other->head->identity &&
        memcmp(table->bytes, other->bytes, head->identity) == 0 &&
        memcmp(table->digests, other->digests, (size_t)head->digests * sizeof(uint64_t)) == 0;
    for (uint32_t i = 0; i < head->entries && is_equal; i++) {
        is_equal = entry_equals(table, other, i);
    }
    return is_equal;
}

uint32_t umf_fetch_table_lower(const umf_fetch_table_t *table, const char *key, size_t size) {
    uint32_t low = 0, high = table->head->entries;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key_compare(umf_fetch_key(table, middle), table->entries[middle].key_size, key, size) <
            0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
