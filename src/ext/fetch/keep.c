/* The comparison: pieces of the current local generation that have the digests of the server. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/fetch/own.h"
#include "system/checksum.h"

/* --- compare ---------------------------------------------------------------------------------- */

/* Has the local entry memory that can be the server's? */
static bool is_like(const umf_vault_entry_t *entry, const umf_fetch_entry_t *other) {
    return entry->size == other->size &&
           !(entry->flags & UMF_VAULT_ZERO) == !(other->flags & UMF_VAULT_ZERO);
}

/* false: the user ends the fetch. */
static bool compare_entry(umf_fetch_local_t *local, const umf_fetch_table_t *table, uint32_t i) {
    const umf_fetch_entry_t *other = &table->entries[i];
    const char *key = umf_fetch_key(table, i);
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    if (umfVaultFind(local->view, key, &entry) != UMF_RESULT_SUCCESS || !is_like(&entry, other)) {
        return true;
    }
    bool is_same = entry.flags == other->flags && entry.note_size == other->note_size &&
                   (entry.note_size == 0 ||
                    memcmp(entry.note, key + other->key_size + 1, entry.note_size) == 0);
    uint64_t pieces = other->flags & UMF_VAULT_ZERO ? 0 : umf_fetch_pieces(other->size);
    for (uint32_t piece = 0; piece < pieces; piece++) {
        const char *at = (const char *)entry.ptr + piece * UMF_FETCH_PIECE;
        size_t size = umf_fetch_piece_size(other, piece);
        bool is_equal = umf_sum(at, size) == table->digests[other->digest + piece];
        local->same_pieces[other->digest + piece] = is_equal;
        local->progress->done += is_equal ? size : 0;
        is_same = is_same && is_equal;
        if (!umf_fetch_report(local->progress, false)) {
            return false;
        }
    }
    local->same_entries[i] = is_same;
    return true;
}

static int count_entry(const umf_vault_entry_t *entry, void *arg) {
    umf_fetch_local_t *local = arg;
    local->entries++;
    local->bytes += entry->size;
    return 0;
}

typedef struct gone_t {
    umf_fetch_local_t *local;
    const umf_fetch_table_t *table;
} gone_t;

static int gone_add(const umf_vault_entry_t *entry, void *arg) {
    const gone_t *gone = arg;
    size_t size = strlen(entry->key);
    uint32_t i = umf_fetch_table_lower(gone->table, entry->key, size);
    bool is_there = i < gone->table->head->entries && gone->table->entries[i].key_size == size &&
                    memcmp(umf_fetch_key(gone->table, i), entry->key, size) == 0;
    if (!is_there) {
        gone->local->gone[gone->local->gone_count++] = entry->key;
    }
    return 0;
}

static int key_order(const void *key, const void *other) {
    const char *prefix = key, *of = *(const char *const *)other;
    return strncmp(prefix, of, strlen(prefix));
}

/* A key takes those that begin with it, too. */
static bool takes_gone(const umf_fetch_local_t *local, const char *key) {
    return local->gone_count &&
           bsearch(key, local->gone, local->gone_count, sizeof(*local->gone), key_order);
}

/* A piece that is shared stays with all of its content. So they are shared if at least half of what
 * the vault holds is still of use; otherwise the content is copied. */
static bool is_worth_it(const umf_fetch_local_t *local, const umf_fetch_table_t *table) {
    uint64_t same = 0, held = local->held ? local->held : local->bytes;
    for (uint32_t i = 0; i < table->head->entries; i++) {
        same += local->same_entries[i] ? table->entries[i].size : 0;
    }
    return same >= held / 2;
}

static void choose_runs(umf_fetch_local_t *local, const umf_fetch_table_t *table) {
    /* A draft has no more entries than a table. */
    bool may_keep =
        local->entries <= UMF_FETCH_ENTRIES_MAX - table->head->entries && is_worth_it(local, table);
    memset(local->kept_runs, may_keep, table->head->runs);
    for (uint32_t i = 0; i < table->head->entries && may_keep; i++) {
        if (!local->same_entries[i] || takes_gone(local, umf_fetch_key(table, i))) {
            local->kept_runs[table->entries[i].run] = false;
        }
    }
}

static bool has_identity(umf_vault_view_handle_t view, const umf_fetch_table_t *table) {
    const void *identity = NULL;
    size_t size = 0;
    return umfVaultViewIdentity(view, &identity, &size) == UMF_RESULT_SUCCESS &&
           size == table->head->identity &&
           (size == 0 || memcmp(identity, table->bytes, size) == 0);
}

static umf_result_t compare(umf_fetch_local_t *local, const umf_fetch_table_t *table) {
    const umf_fetch_head_t *head = table->head;
    gone_t gone = {.local = local, .table = table};
    umfVaultEach(local->view, NULL, count_entry, local);
    local->gone_room = (local->entries + 1) * sizeof(*local->gone);
    local->gone = umf_meta_alloc(local->gone_room);
    local->same_pieces = umf_meta_alloc((size_t)head->digests + 1);
    local->same_entries = umf_meta_alloc(head->entries + 1);
    local->kept_runs = umf_meta_alloc(head->runs + 1);
    if (!local->gone || !local->same_pieces || !local->same_entries || !local->kept_runs) {
        UMF_LOG_ERROR("no memory to compare %u entries", head->entries);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    local->is_all = has_identity(local->view, table);
    for (uint32_t i = 0; i < head->entries; i++) {
        if (!compare_entry(local, table, i)) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
        local->is_all = local->is_all && local->same_entries[i];
    }
    umfVaultEach(local->view, NULL, gone_add, &gone);
    local->is_all = local->is_all && local->gone_count == 0;
    choose_runs(local, table);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_fetch_local_read(umf_fetch_local_t *local, umf_vault_handle_t vault,
                                  const umf_fetch_table_t *table) {
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_result_t result = umfVaultStat(vault, &stat);
    if (result != UMF_RESULT_SUCCESS || stat.current == 0) {
        return result;
    }
    local->held = stat.generations == 1 ? stat.bytes : 0;
    result = umfVaultAttach(vault, &params, &local->view);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) { /* memory of devices is not compared */
        local->view = NULL;
        return UMF_RESULT_SUCCESS;
    }
    if (result != UMF_RESULT_SUCCESS) {
        local->view = NULL;
        return result;
    }
    umfVaultViewGeneration(local->view, &local->generation);
    return compare(local, table);
}

/* --- use -------------------------------------------------------------------------------------- */

void umf_fetch_local_copy(const umf_fetch_local_t *local, const umf_fetch_table_t *table,
                          uint32_t entry, uint32_t piece, void *to) {
    umf_vault_entry_t from = UMF_VAULT_ENTRY_INIT;
    umfVaultFind(local->view, umf_fetch_key(table, entry), &from);
    memcpy(to, (const char *)from.ptr + piece * UMF_FETCH_PIECE,
           umf_fetch_piece_size(&table->entries[entry], piece));
}

umf_result_t umf_fetch_local_keep(const umf_fetch_local_t *local, umf_vault_draft_handle_t draft,
                                  const umf_fetch_table_t *table) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool has_kept = local->view && memchr(local->kept_runs, 1, table->head->runs);
    if (has_kept && local->gone_count == 0) { /* entries that were put count before these */
        return umfVaultKeep(draft, "");
    }
    const char *last = NULL; /* keys that begin with it follow it, and are taken with it */
    for (uint32_t i = 0; i < table->head->entries && has_kept && result == UMF_RESULT_SUCCESS;
         i++) {
        const char *key = umf_fetch_key(table, i);
        bool is_taken = last && strncmp(key, last, strlen(last)) == 0;
        if (local->kept_runs[table->entries[i].run] && !is_taken) {
            result = umfVaultKeep(draft, key);
            last = key;
        }
    }
    return result;
}

void umf_fetch_local_end(umf_fetch_local_t *local, const umf_fetch_table_t *table) {
    umf_meta_free(local->gone, local->gone_room);
    umf_meta_free(local->same_pieces, (size_t)table->head->digests + 1);
    umf_meta_free(local->same_entries, table->head->entries + 1);
    umf_meta_free(local->kept_runs, table->head->runs + 1);
    if (local->view) {
        umfVaultDetach(local->view);
    }
    *local = (umf_fetch_local_t){0};
}
