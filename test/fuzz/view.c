/*
 * The memory of another process, as umfctl reads it (tools/view): the input is that memory, and
 * nothing else can be read. Whatever it has, the reader ends, and its rows can be shown.
 *
 * Input: the memory from BASE on: an ELF object, or from TABLE on a table (umf/view_format.h), of
 * which magic, version, size and place are set right, so that the rest is looked at. Half of the
 * addresses of chance lead nowhere, so numbers below 64 KiB are taken as places in the memory.
 */
#include "fuzz/support.h"

#include <stdlib.h>
#include <string.h>

#include <umf/view_format.h>

#include "view/view.h"

#define BASE UINT64_C(0x10000)
#define TABLE 512u

typedef struct memory_t {
    const uint8_t *bytes;
    size_t size;
} memory_t;

static bool memory_read(void *arg, uint64_t at, void *to, size_t size) {
    const memory_t *memory = arg;
    uint64_t from = at < BASE ? at : at - BASE;
    if (from > memory->size || size > memory->size - from) {
        return false;
    }
    memcpy(to, memory->bytes + from, size);
    return true;
}

static void rows_check(const umf_view_rows_t *rows) {
    FUZZ_CHECK(rows->count <= UMF_VIEW_ROWS);
    FUZZ_CHECK(memchr(rows->error, '\0', sizeof(rows->error)));
    for (uint32_t i = 0; i < rows->count; i++) {
        const umf_view_row_t *row = &rows->rows[i];
        FUZZ_CHECK(memchr(row->object.name, '\0', sizeof(row->object.name)));
        FUZZ_CHECK(memchr(row->kind, '\0', sizeof(row->kind)));
        FUZZ_CHECK(row->object.parent <= rows->count);
    }
}

static void look(uint8_t *bytes, size_t size) {
    static umf_view_rows_t rows;
    memory_t memory = {bytes, size};
    umf_view_source_t source = {memory_read, &memory, 1 << 20, UINT64_MAX};
    memset(&rows, 0, sizeof(rows));
    uint64_t table = umf_view_find(&source, BASE);
    if (table) {
        umf_view_add(&source, table, &rows);
        rows_check(&rows);
    }
    if (size >= TABLE + sizeof(umf_view_t)) {
        umf_view_t *made = (umf_view_t *)(void *)(bytes + TABLE);
        made->magic = UMF_VIEW_MAGIC;
        made->version = UMF_VIEW_VERSION;
        made->size = sizeof(*made);
        made->self = (const void *)(uintptr_t)(BASE + TABLE);
        source.left = 1 << 20;
        umf_view_add(&source, BASE + TABLE, &rows);
        rows_check(&rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size + 1);
    if (bytes) {
        memcpy(bytes, data, size);
        look(bytes, size);
    }
    free(bytes);
    return 0;
}
