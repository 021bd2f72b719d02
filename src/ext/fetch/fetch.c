/* umfVaultFetch: a generation of another machine becomes one of a vault here. */
#include <stdlib.h>
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/fetch/own.h"
#include "ext/vault/vault.h"
#include "system/common.h"
#include "system/socket.h"

#define POOL "proxy over linux_vmm:piece_size=4K" /* a piece for each run */
#define IN_FLIGHT ((size_t)64 << 20)
#define ATTEMPTS 4 /* while the servers have a new generation each time */

typedef struct fetch_t {
    umf_vault_handle_t vault;
    umf_remote_handle_t remote;
    const umf_vault_fetch_params_t *params;
    umf_fetch_progress_t progress;
    umf_fetch_source_t *sources;
    unsigned source_count;
    void *table_at; /* of the generation that is fetched */
    size_t table_size;
    umf_fetch_table_t table;
    umf_fetch_local_t local;
    umf_vault_draft_handle_t draft;
    char **blocks; /* by run */
    umf_fetch_transfer_t transfer;
    bool has_changed; /* no server has this generation any more */
} fetch_t;

/* --- progress --------------------------------------------------------------------------------- */

bool umf_fetch_report(umf_fetch_progress_t *progress, bool is_due) {
    if (progress->is_stopped) {
        return false;
    }
    uint64_t now = progress->call ? umf_socket_now() : 0;
    if (!progress->call || (!is_due && now - progress->last < UMF_FETCH_REPORT_MS)) {
        return true;
    }
    progress->last = now;
    if (progress->call(progress->done, progress->size, progress->arg) == 0) {
        return true;
    }
    progress->is_stopped = true;
    umf_last_reason_set(UMF_REASON_NONE);
    return false;
}

static void progress_begin(umf_fetch_progress_t *progress, const umf_fetch_table_t *table) {
    for (uint32_t i = 0; i < table->head->entries; i++) {
        progress->size += table->entries[i].flags & UMF_VAULT_ZERO ? 0 : table->entries[i].size;
    }
}

/* --- servers ---------------------------------------------------------------------------------- */

static umf_result_t sources_make(fetch_t *fetch, const char *from) {
    fetch->sources = umf_meta_alloc(UMF_FETCH_SOURCES_MAX * sizeof(*fetch->sources));
    if (!fetch->sources) {
        UMF_LOG_ERROR("no memory for a list of servers");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (;;) {
        unsigned char address[UMF_FETCH_HANDLE_MAX];
        size_t size = umf_fetch_address_next(&from, address);
        if (size == 0 && fetch->source_count) {
            return UMF_RESULT_SUCCESS;
        }
        if (size == 0 || size == SIZE_MAX || fetch->source_count == UMF_FETCH_SOURCES_MAX) {
            UMF_LOG_ERROR("servers are given by 1 to %u addresses of umf-remote serve, which begin "
                          "with " UMF_FETCH_PREFIX,
                          UMF_FETCH_SOURCES_MAX);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        umf_fetch_source_t *source = &fetch->sources[fetch->source_count++];
        source->remote = fetch->remote;
        source->progress = &fetch->progress;
        source->address_size = size;
        memcpy(source->address, address, size);
    }
}

/* The generation of the first server that answers. */
static umf_result_t table_take(fetch_t *fetch, const umf_fetch_source_t *source) {
    uint64_t limit = fetch->params->limit;
    if (limit && source->table.memory > limit) {
        return UMF_FAIL(UMF_REASON_LIMIT, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                        "the generation of the server has %llu bytes, the limit is %llu",
                        (unsigned long long)source->table.memory, (unsigned long long)limit);
    }
    fetch->table_at = umf_meta_alloc(source->table_size);
    if (!fetch->table_at) {
        UMF_LOG_ERROR("no memory for %zu bytes of a table", source->table_size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    fetch->table_size = source->table_size;
    memcpy(fetch->table_at, source->table_at, fetch->table_size);
    umf_fetch_table_check(fetch->table_at, fetch->table_size, &fetch->table);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sources_open(fetch_t *fetch) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < fetch->source_count; i++) {
        umf_fetch_source_t *source = &fetch->sources[i];
        if (!umf_fetch_report(&fetch->progress, false)) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
        umf_result_t opened = umf_fetch_source_open(source);
        if (opened == UMF_RESULT_ERROR_USER_SPECIFIC) {
            return opened;
        }
        source->is_out = opened != UMF_RESULT_SUCCESS;
        if (!source->is_out && !fetch->table_at) {
            result = table_take(fetch, source);
            if (result != UMF_RESULT_SUCCESS) {
                return result;
            }
        } else if (!source->is_out && !umf_fetch_table_equals(&fetch->table, &source->table)) {
            UMF_LOG_WARN("server %u has another generation than the first one: it is left out",
                         i + 1);
            umf_fetch_source_close(source);
            source->is_out = true;
        }
        result = fetch->table_at ? UMF_RESULT_SUCCESS : opened;
    }
    return result;
}

/* --- the draft -------------------------------------------------------------------------------- */

static bool is_kept(const fetch_t *fetch, uint32_t run) {
    return fetch->local.kept_runs && fetch->local.kept_runs[run];
}

/* A wait for another client is cut into slices for the reports. */
static umf_result_t draft_begin(fetch_t *fetch) {
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    uint64_t slice = fetch->progress.call ? UMF_FETCH_REPORT_MS : UINT64_MAX;
    params.from = fetch->local.generation;
    params.identity = fetch->table.bytes;
    params.identity_size = fetch->table.head->identity;
    umf_vault_draft_handle_t draft;
    umf_result_t result;
    uint64_t start = umf_socket_now(), passed = 0, all = fetch->params->timeout_ms;
    for (;;) {
        uint64_t left = all - passed;
        params.timeout_ms = left < slice ? left : slice;
        result = umfVaultBegin(fetch->vault, &params, &draft);
        bool is_busy =
            result == UMF_RESULT_ERROR_OUT_OF_RESOURCES && umfLastReason() == UMF_REASON_BUSY;
        passed = umf_socket_now() - start;
        if (!is_busy || passed >= all) {
            break;
        }
        if (!umf_fetch_report(&fetch->progress, false)) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    fetch->draft = result == UMF_RESULT_SUCCESS ? draft : NULL;
    return result;
}

/* Memory of the same form as the server's, so that a view can be moved from one to the next. */
static umf_result_t blocks_make(fetch_t *fetch) {
    umf_memory_pool_handle_t pools[UMF_VAULT_ZERO + 1] = {NULL};
    fetch->blocks = umf_meta_alloc((fetch->table.head->runs + 1) * sizeof(*fetch->blocks));
    if (!fetch->blocks) {
        UMF_LOG_ERROR("no memory for a list of %u blocks", fetch->table.head->runs);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < fetch->table.head->runs; i++) {
        const umf_fetch_run_t *run = &fetch->table.runs[i];
        umf_memory_pool_handle_t *pool = &pools[run->flags];
        if (is_kept(fetch, i)) {
            continue;
        }
        umf_result_t result =
            *pool ? UMF_RESULT_SUCCESS : umfVaultDraftPool(fetch->draft, POOL, pool);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        fetch->blocks[i] = umfPoolMalloc(*pool, (size_t)run->size);
        if (!fetch->blocks[i]) {
            return UMF_FAIL(UMF_REASON_EXHAUSTED, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                            "no memory for %llu bytes of a generation",
                            (unsigned long long)run->size);
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t entries_put(fetch_t *fetch) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < fetch->table.head->entries && result == UMF_RESULT_SUCCESS; i++) {
        const umf_fetch_entry_t *entry = &fetch->table.entries[i];
        const char *key = umf_fetch_key(&fetch->table, i);
        if (!is_kept(fetch, entry->run)) {
            result = umfVaultPut(fetch->draft, key, fetch->blocks[entry->run] + entry->offset,
                                 (size_t)entry->size,
                                 entry->note_size ? key + entry->key_size + 1 : NULL,
                                 entry->note_size, entry->flags);
        }
    }
    return result;
}

/* --- pieces ----------------------------------------------------------------------------------- */

typedef struct sorted_t {
    uint64_t offset;
    uint32_t run, entry;
} sorted_t;

static int sorted_compare(const void *a, const void *b) {
    const sorted_t *one = a, *two = b;
    return one->run != two->run         ? (one->run > two->run) - (one->run < two->run)
           : one->offset != two->offset ? (one->offset > two->offset) - (one->offset < two->offset)
                                        : (one->entry > two->entry) - (one->entry < two->entry);
}

/* One that the vault has is copied; the others are listed. `reach`: where the entries before it
 * end. */
static void piece_add(fetch_t *fetch, uint32_t entry, uint32_t piece, uint64_t reach) {
    const umf_fetch_entry_t *from = &fetch->table.entries[entry];
    if (fetch->local.same_pieces && fetch->local.same_pieces[from->digest + piece]) {
        umf_fetch_local_copy(&fetch->local, &fetch->table, entry, piece,
                             fetch->blocks[from->run] + from->offset + piece * UMF_FETCH_PIECE);
        return;
    }
    uint64_t gap = piece == 0 && from->offset > reach ? from->offset - reach : 0;
    fetch->transfer.pieces[fetch->transfer.count++] =
        (umf_fetch_piece_t){.entry = entry,
                            .piece = piece,
                            .gap = (uint32_t)(gap < UMF_FETCH_GAP ? gap : UMF_FETCH_GAP)};
}

static umf_result_t pieces_make(fetch_t *fetch) {
    const umf_fetch_head_t *head = fetch->table.head;
    size_t count = 0, room = (head->entries + 1) * sizeof(sorted_t);
    sorted_t *sorted = umf_meta_alloc(room);
    umf_fetch_transfer_t *transfer = &fetch->transfer;
    transfer->pieces = umf_meta_alloc(((size_t)head->digests + 1) * sizeof(*transfer->pieces));
    transfer->states = umf_meta_alloc((size_t)head->digests + 1);
    if (!sorted || !transfer->pieces || !transfer->states) {
        umf_meta_free(sorted, sorted ? room : 0);
        UMF_LOG_ERROR("no memory for a list of %u entries", head->entries);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < head->entries; i++) {
        const umf_fetch_entry_t *entry = &fetch->table.entries[i];
        if (!is_kept(fetch, entry->run) && !(entry->flags & UMF_VAULT_ZERO)) {
            sorted[count++] = (sorted_t){.offset = entry->offset, .run = entry->run, .entry = i};
        }
    }
    qsort(sorted, count, sizeof(*sorted), sorted_compare);
    uint64_t reach = 0;
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        uint64_t size = fetch->table.entries[sorted[i].entry].size, end = sorted[i].offset + size;
        bool is_first = i == 0 || sorted[i].run != sorted[i - 1].run;
        reach = is_first ? 0 : reach;
        for (uint32_t piece = 0; piece < umf_fetch_pieces(size) && goes_on; piece++) {
            piece_add(fetch, sorted[i].entry, piece, reach);
            goes_on = umf_fetch_report(&fetch->progress, false);
        }
        reach = end > reach ? end : reach;
    }
    umf_meta_free(sorted, room);
    transfer->missing = transfer->count;
    return goes_on ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_USER_SPECIFIC;
}

static umf_result_t content_get(fetch_t *fetch) {
    umf_fetch_transfer_t *transfer = &fetch->transfer;
    size_t in_flight = fetch->params->in_flight ? fetch->params->in_flight : IN_FLIGHT;
    transfer->sources = fetch->sources;
    transfer->source_count = fetch->source_count;
    size_t flights = in_flight / UMF_FETCH_PIECE;
    flights = flights < UMF_FETCH_FLIGHTS ? flights : UMF_FETCH_FLIGHTS;
    transfer->flights = flights ? (unsigned)flights : 1u;
    transfer->flight_max = in_flight / transfer->flights;
    transfer->table = &fetch->table;
    transfer->local = &fetch->local;
    transfer->progress = &fetch->progress;
    transfer->blocks = fetch->blocks;
    umf_result_t result = pieces_make(fetch);
    result = result ? result : umf_fetch_transfer(transfer);
    bool has_failed = result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_USER_SPECIFIC;
    for (unsigned i = 0; i < fetch->source_count && has_failed; i++) {
        fetch->has_changed = fetch->has_changed || fetch->sources[i].is_different;
    }
    return result;
}

/* --- the whole -------------------------------------------------------------------------------- */

static umf_result_t fetch_draft(fetch_t *fetch, uint64_t *generation) {
    umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
    commit.digest = fetch->params->digest;
    umf_result_t result = draft_begin(fetch);
    result = result ? result : blocks_make(fetch);
    result = result ? result : entries_put(fetch);
    result = result ? result : umf_fetch_local_keep(&fetch->local, fetch->draft, &fetch->table);
    result = result ? result : content_get(fetch);
    result = result ? result : umfVaultCommit(fetch->draft, &commit, generation);
    if (result != UMF_RESULT_SUCCESS && fetch->draft) {
        umf_reason_t reason = umfLastReason();
        umfVaultAbort(fetch->draft);
        umf_last_reason_set(reason);
    } else if (result == UMF_RESULT_SUCCESS) {
        umf_vault_written_end(fetch->vault,
                              *generation); /* the caller has no pointer into the draft */
    }
    return result;
}

static void fetch_end(fetch_t *fetch) {
    umf_fetch_transfer_t *transfer = &fetch->transfer;
    for (unsigned i = 0; i < fetch->source_count; i++) {
        umf_fetch_source_close(&fetch->sources[i]);
        fetch->sources[i].is_different = fetch->sources[i].is_tried = false;
    }
    if (fetch->table_at) {
        size_t digests = (size_t)fetch->table.head->digests + 1;
        umf_meta_free(transfer->pieces, digests * sizeof(*transfer->pieces));
        umf_meta_free(transfer->states, digests);
        umf_meta_free(fetch->blocks, (fetch->table.head->runs + 1) * sizeof(*fetch->blocks));
        umf_fetch_local_end(&fetch->local, &fetch->table);
        umf_meta_free(fetch->table_at, fetch->table_size);
    }
    fetch->transfer = (umf_fetch_transfer_t){0};
    fetch->blocks = NULL;
    fetch->table_at = NULL;
    fetch->draft = NULL;
}

static umf_result_t attempt(fetch_t *fetch, uint64_t *generation) {
    umf_fetch_progress_t *progress = &fetch->progress;
    fetch->has_changed = false;
    *progress = (umf_fetch_progress_t){.call = fetch->params->progress,
                                       .arg = fetch->params->progress_arg,
                                       .last = progress->last};
    fetch->local.progress = progress;
    umf_result_t result = sources_open(fetch);
    if (result == UMF_RESULT_SUCCESS) {
        progress_begin(progress, &fetch->table);
    }
    if (result == UMF_RESULT_SUCCESS && fetch->params->keep) {
        result = umf_fetch_local_read(&fetch->local, fetch->vault, &fetch->table);
    }
    if (result == UMF_RESULT_SUCCESS && fetch->local.is_all) {
        *generation = fetch->local.generation;
        result = umf_fetch_report(progress, true) ? result : UMF_RESULT_ERROR_USER_SPECIFIC;
    } else if (result == UMF_RESULT_SUCCESS) {
        result = fetch_draft(fetch, generation);
    }
    umf_reason_t reason = umfLastReason();
    fetch_end(fetch);
    umf_last_reason_set(reason);
    return result;
}

static umf_result_t check_params(const char *from, const umf_vault_fetch_params_t *params) {
    if (!from || params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("from is NULL, or struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultFetch(umf_vault_handle_t hVault, umf_remote_handle_t remote,
                                           const char *from, const umf_vault_fetch_params_t *params,
                                           uint64_t *generation) {
    static const umf_vault_fetch_params_t defaults = UMF_VAULT_FETCH_PARAMS_INIT;
    fetch_t fetch = {.vault = hVault, .remote = remote, .params = params ? params : &defaults};
    uint64_t fetched = 0;
    umf_result_t result = check_params(from, fetch.params);
    result = result ? result : sources_make(&fetch, from);
    for (int i = 0; i < ATTEMPTS && result == UMF_RESULT_SUCCESS; i++) {
        result = attempt(&fetch, &fetched);
        if (result == UMF_RESULT_SUCCESS || !fetch.has_changed || i + 1 == ATTEMPTS) {
            break;
        }
        result = UMF_RESULT_SUCCESS; /* of the next attempt, which fetches the new generation */
    }
    umf_meta_free(fetch.sources, UMF_FETCH_SOURCES_MAX * sizeof(*fetch.sources));
    if (result == UMF_RESULT_SUCCESS && generation) {
        *generation = fetched;
    }
    return result;
}
