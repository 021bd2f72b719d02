/* A server: its directory, its table, and its memory. */
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/fetch/own.h"
#include "system/checksum.h"

#define ATTEMPTS 100 /* while the server writes its directory again, or its generation changes */

static int stops(void *arg) {
    return !umf_fetch_report(arg, false);
}

static umf_result_t open_range(umf_fetch_source_t *source, const void *handle, size_t size,
                               umf_remote_memory_handle_t *memory) {
    return umfRemoteOpenUntil(source->remote, handle, size, stops, source->progress, memory);
}

static umf_result_t get_range(umf_fetch_source_t *source, umf_remote_memory_handle_t memory,
                              void *to, size_t size) {
    umf_remote_op_handle_t op;
    umf_result_t result = umfRemoteGet(memory, 0, to, size, &op);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    while ((result = umfRemoteWait(op, UMF_FETCH_REPORT_MS)) == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        if (!umf_fetch_report(source->progress, false)) {
            umfRemoteCancel(op);
            umfRemoteWait(op, UINT64_MAX);
            umf_last_reason_set(UMF_REASON_NONE);
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    return result;
}

static umf_result_t broken(const char *what, const char *why) {
    return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "the %s of a server of vaults cannot be used: %s", what, why);
}

static umf_result_t directory_read(umf_fetch_source_t *source, umf_fetch_directory_t *directory) {
    for (int i = 0; i < ATTEMPTS; i++) {
        umf_result_t result = get_range(source, source->directory, directory, sizeof(*directory));
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        if (directory->magic != UMF_FETCH_DIRECTORY) {
            return broken("directory", "it is none, or one of another version");
        }
        if (umf_sum_of_fields(directory, sizeof(*directory), &directory->check) ==
            directory->check) {
            return UMF_RESULT_SUCCESS;
        }
    }
    return broken("directory", "its sum is wrong");
}

static umf_result_t directory_check(const umf_fetch_directory_t *directory) {
    if (directory->generation == 0) {
        return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "the vault of the server has no generation");
    }
    if (directory->handle_size > UMF_FETCH_HANDLE_MAX ||
        directory->table_size > UMF_FETCH_TABLE_MAX) {
        return broken("directory", "the table is too large");
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t table_get(umf_fetch_source_t *source, umf_remote_memory_handle_t memory,
                              size_t size) {
    source->table_at = umf_meta_alloc(size);
    source->table_size = size;
    if (!source->table_at) {
        UMF_LOG_ERROR("no memory for %zu bytes of a table", size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = get_range(source, memory, source->table_at, size);
    const char *wrong = result == UMF_RESULT_SUCCESS
                            ? umf_fetch_table_check(source->table_at, size, &source->table)
                            : NULL;
    return wrong ? broken("table", wrong) : result;
}

static void table_free(umf_fetch_source_t *source) {
    umf_meta_free(source->table_at, source->table_size);
    source->table_at = NULL;
    source->table_size = 0;
}

static umf_result_t table_read(umf_fetch_source_t *source, const umf_fetch_directory_t *directory) {
    umf_remote_memory_handle_t memory;
    size_t size = 0;
    umf_result_t result =
        open_range(source, directory->handle, (size_t)directory->handle_size, &memory);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umfRemoteGetSize(memory, &size);
    result = size == directory->table_size && size > 0
                 ? table_get(source, memory, size)
                 : broken("table", "it has another size than the directory says");
    if (result != UMF_RESULT_SUCCESS) {
        table_free(source);
    }
    umf_reason_t reason = umfLastReason();
    umfRemoteClose(memory);
    umf_last_reason_set(reason);
    return result;
}

static umf_result_t tables_read(umf_fetch_source_t *source) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    bool is_stale = true;
    for (int i = 0; i < ATTEMPTS && is_stale; i++) {
        umf_fetch_directory_t directory;
        result = directory_read(source, &directory);
        result = result ? result : directory_check(&directory);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        result = table_read(source, &directory); /* it may be that of the former generation */
        is_stale = result != UMF_RESULT_SUCCESS && umfLastReason() == UMF_REASON_STALE;
    }
    return result;
}

umf_result_t umf_fetch_source_open(umf_fetch_source_t *source) {
    umf_result_t result =
        open_range(source, source->address, source->address_size, &source->directory);
    if (result != UMF_RESULT_SUCCESS) {
        source->directory = NULL;
        return result;
    }
    result = tables_read(source);
    if (result == UMF_RESULT_SUCCESS) {
        source->runs = umf_meta_alloc((source->table.head->runs + 1) * sizeof(*source->runs));
        if (!source->runs) {
            UMF_LOG_ERROR("no memory for %u ranges of a server", source->table.head->runs);
            result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_reason_t reason = umfLastReason();
        umf_fetch_source_close(source);
        umf_last_reason_set(reason);
    }
    return result;
}

void umf_fetch_source_close(umf_fetch_source_t *source) {
    for (uint32_t i = 0; source->runs && i < source->table.head->runs; i++) {
        if (source->runs[i]) {
            umfRemoteClose(source->runs[i]);
        }
    }
    if (source->runs) {
        umf_meta_free(source->runs, (source->table.head->runs + 1) * sizeof(*source->runs));
        source->runs = NULL;
    }
    table_free(source);
    if (source->directory) {
        umfRemoteClose(source->directory);
        source->directory = NULL;
    }
}

umf_result_t umf_fetch_source_run(umf_fetch_source_t *source, uint32_t run,
                                  umf_remote_memory_handle_t *memory) {
    const umf_fetch_run_t *from = &source->table.runs[run];
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (!source->runs[run]) {
        umf_remote_memory_handle_t opened;
        result = open_range(source, source->table.bytes + from->handle, from->handle_size, &opened);
        source->runs[run] = result == UMF_RESULT_SUCCESS ? opened : NULL;
    }
    *memory = source->runs[run];
    return result;
}
