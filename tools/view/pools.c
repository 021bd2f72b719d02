/* The table, its pools and their providers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/own.h"

#define POOLS_MAX (1u << 20)
#define INNER_MAX 64u

uint64_t view_number(const unsigned char *bytes, uint32_t offset, size_t size) {
    uint64_t number = 0;
    memcpy(&number, bytes + offset, size);
    return number;
}

bool view_struct(view_t *view, uint64_t at, uint32_t size) {
    return at != 0 && umf_view_get(view->source, at, view->bytes, size);
}

static bool fail(view_t *view, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(view_t *view, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(view->rows->error, sizeof(view->rows->error), format, args);
    va_end(args);
    return false;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Is each member within its structure? */
static bool offsets_are_right(const umf_view_t *table) {
    const struct {
        uint32_t offset, size, of;
    } members[] = {
        {table->pool_index, 4, table->pool_size},
        {table->pool_birth, 4, table->pool_size},
        {table->pool_self, 8, table->pool_size},
        {table->pool_fast, 8, table->pool_size},
        {table->pool_kind, 8, table->pool_size},
        {table->pool_tracked, 8, table->pool_size},
        {table->pool_provider, 8, table->pool_size},
        {table->pool_name, table->name_size, table->pool_size},
        {table->pool_asleep, 8, table->pool_size},
        {table->provider_birth, 4, table->provider_size},
        {table->provider_root, 8, table->provider_size},
        {table->provider_kind, 8, table->provider_size},
        {table->provider_name, table->name_size, table->provider_size},
        {table->tracked_set, 1, table->provider_size},
        {table->tracked_inner, 8, table->provider_size},
        {table->tracked_next, 8, table->provider_size},
        {table->tracked_refusals, 8, table->provider_size},
        {table->fast_view, 8, STRUCT_MAX},
        {table->descriptor_name, 8, STRUCT_MAX},
        {table->span_bytes, 8, table->span_size},
        {table->span_set, 8, table->span_size},
        {table->span_cookie, 8, table->span_size},
        {table->span_kind, 1, table->span_size},
    };
    bool is = table->name_size > 0 && table->span_size <= PAGE && table->pool_size <= STRUCT_MAX &&
              table->provider_size <= STRUCT_MAX;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        is &= members[i].size <= members[i].of &&
              members[i].offset <= members[i].of - members[i].size;
    }
    return is;
}

static bool table_read(view_t *view, uint64_t at) {
    umf_view_t *table = &view->table;
    uint32_t head[4];
    if (!umf_view_get(view->source, at, head, sizeof(head))) {
        return fail(view, "the table of its libumf cannot be read");
    }
    uint64_t magic;
    memcpy(&magic, head, sizeof(magic));
    if (magic != UMF_VIEW_MAGIC) {
        return fail(view, "the table of its libumf is damaged");
    }
    if (head[2] != UMF_VIEW_VERSION) {
        return fail(view,
                    "the table of its libumf has version %u, this umfctl reads %u; use the "
                    "umfctl of that libumf",
                    head[2], UMF_VIEW_VERSION);
    }
    if (head[3] != sizeof(*table) || !umf_view_get(view->source, at, table, sizeof(*table)) ||
        (uintptr_t)table->self != at || !offsets_are_right(table) ||
        !umf_view_get(view->source, (uintptr_t)table->range, &view->range, sizeof(view->range))) {
        return fail(view, "the table of its libumf is damaged");
    }
    return true;
}

/* --- texts and kinds -------------------------------------------------------------------------- */

/* A text with a zero, which may be at the end of the mapping. */
static void text_read(view_t *view, uint64_t at, char *text, size_t size) {
    size_t room = PAGE - at % PAGE;
    memset(text, 0, size);
    if (at != 0 && !umf_view_get(view->source, at, text, size - 1 < room ? size - 1 : room)) {
        memset(text, 0, size);
    }
    text[size - 1] = '\0';
}

static void name_copy(view_t *view, uint32_t offset, umf_record_object_t *object) {
    size_t size = sizeof(object->name) - 1;
    size = size < view->table.name_size ? size : view->table.name_size;
    strncpy(object->name, (const char *)view->bytes + offset, size);
}

static bool pages_read(view_t *view, view_kind_t *kind) {
    const umf_view_pages_t *pages = &kind->kind.pages;
    return pages->kinds < 255 &&
           umf_view_get(view->source, (uintptr_t)pages->sizes, kind->sizes, pages->kinds * 4) &&
           umf_view_get(view->source, (uintptr_t)pages->steps, kind->steps, (pages->kinds + 1) * 4);
}

/* NULL: it cannot be read, or there are too many. */
static view_kind_t *kind_read(view_t *view, uint64_t fast) {
    uint64_t address = 0;
    if (!umf_view_get(view->source, fast + view->table.fast_view, &address, 8) || address == 0) {
        return NULL;
    }
    for (size_t i = 0; i < VIEW_KINDS; i++) {
        view_kind_t *kind = &view->kinds[i];
        if (kind->address == address) {
            return kind;
        }
        if (kind->address == 0) {
            if (!umf_view_get(view->source, address, &kind->kind, sizeof(kind->kind))) {
                return NULL;
            }
            kind->address = address;
            kind->kind.name[sizeof(kind->kind.name) - 1] = '\0';
            if (kind->kind.how == UMF_VIEW_PAGES && !pages_read(view, kind)) {
                kind->kind.how = UMF_VIEW_UNKNOWN;
            }
            return kind;
        }
    }
    return NULL;
}

static void descriptor_kind(view_t *view, uint64_t descriptor, char *text, size_t size) {
    uint64_t name = 0;
    if (descriptor &&
        umf_view_get(view->source, descriptor + view->table.descriptor_name, &name, 8)) {
        text_read(view, name, text, size);
    }
}

/* --- rows ------------------------------------------------------------------------------------- */

/* UMF_VIEW_ROWS: there is no room. */
static uint32_t row_add(view_t *view, umf_record_object_kind_t kind, uint64_t handle) {
    umf_view_rows_t *rows = view->rows;
    if (rows->count == UMF_VIEW_ROWS) {
        rows->is_cut = true;
        return UMF_VIEW_ROWS;
    }
    rows->rows[rows->count] = (umf_view_row_t){
        .object = {.kind = (uint32_t)kind,
                   .handle = handle,
                   .live = UMF_RECORD_UNKNOWN,
                   .live_count = UMF_RECORD_UNKNOWN,
                   .held = UMF_RECORD_UNKNOWN,
                   .peak = UMF_RECORD_UNKNOWN,
                   .away = UMF_RECORD_UNKNOWN},
        .refusals = UMF_RECORD_UNKNOWN,
    };
    return rows->count++;
}

static uint32_t row_find(const view_t *view, umf_record_object_kind_t kind, uint64_t handle) {
    for (uint32_t i = view->first; i < view->rows->count; i++) {
        const umf_record_object_t *object = &view->rows->rows[i].object;
        if (object->kind == (uint32_t)kind && object->handle == handle) {
            return i;
        }
    }
    return UMF_VIEW_ROWS;
}

/* `provider` may be a tracked one of another pool. UMF_VIEW_ROWS: it cannot be read. */
static uint32_t provider_add(view_t *view, uint64_t provider) {
    const umf_view_t *table = &view->table;
    if (!view_struct(view, provider, table->provider_size)) {
        return UMF_VIEW_ROWS;
    }
    uint64_t root = view_number(view->bytes, table->provider_root, 8);
    uint32_t row = row_find(view, UMF_RECORD_OBJECT_PROVIDER, root);
    if (row != UMF_VIEW_ROWS ||
        (root != provider && !view_struct(view, root, table->provider_size))) {
        return row;
    }
    row = row_add(view, UMF_RECORD_OBJECT_PROVIDER, root);
    if (row != UMF_VIEW_ROWS) {
        umf_view_row_t *made = &view->rows->rows[row];
        made->object.birth = (uint32_t)view_number(view->bytes, table->provider_birth, 4);
        name_copy(view, table->provider_name, &made->object);
        uint64_t kind = view_number(view->bytes, table->provider_kind, 8);
        descriptor_kind(view, kind, made->kind, sizeof(made->kind));
    }
    return row;
}

static void set_add(view_t *view, uint64_t tracked, uint32_t row, bool is_inner) {
    if (view->set_count < sizeof(view->sets) / sizeof(view->sets[0])) {
        view->sets[view->set_count++] = (view_set_t){
            .address = tracked + view->table.tracked_set, .row = row, .is_inner = is_inner};
    } else {
        view->rows->is_cut = true;
    }
}

static void refusals_add(view_t *view, uint64_t tracked, uint32_t row) {
    uint64_t *sum = &view->rows->rows[row].refusals, more = 0;
    if (umf_view_get(view->source, tracked + view->table.tracked_refusals, &more, 8)) {
        *sum = (*sum == UMF_RECORD_UNKNOWN ? 0 : *sum) + more;
    }
}

/* The sets of the pools that a pool calls count as its own. */
static void sets_add(view_t *view, uint64_t tracked, uint32_t row) {
    uint32_t offset = view->table.tracked_inner;
    set_add(view, tracked, row, false);
    refusals_add(view, tracked, row);
    for (unsigned i = 0;
         i < INNER_MAX && umf_view_get(view->source, tracked + offset, &tracked, 8) && tracked;
         i++) {
        set_add(view, tracked, row, true);
        refusals_add(view, tracked, row);
        offset = view->table.tracked_next;
    }
}

/* In `bytes` is the pool. */
static void pool_fill(view_t *view, view_pool_t *pool, uint64_t *tracked) {
    const umf_view_t *table = &view->table;
    umf_view_row_t *row = &view->rows->rows[pool->row];
    name_copy(view, table->pool_name, &row->object);
    row->object.birth = (uint32_t)view_number(view->bytes, table->pool_birth, 4);
    bool is_suspended = view_number(view->bytes, table->pool_asleep, 8) != 0;
    row->object.flags = is_suspended ? UMF_RECORD_OBJECT_IS_ASLEEP : 0;
    row->object.away = is_suspended ? UMF_RECORD_UNKNOWN : 0;
    pool->self = view_number(view->bytes, table->pool_self, 8);
    *tracked = view_number(view->bytes, table->pool_tracked, 8);
    uint64_t fast = view_number(view->bytes, table->pool_fast, 8);
    uint64_t kind = view_number(view->bytes, table->pool_kind, 8);
    uint64_t provider = view_number(view->bytes, table->pool_provider, 8);
    pool->kind = fast ? kind_read(view, fast) : NULL;
    if (pool->kind) {
        memcpy(row->kind, pool->kind->kind.name, sizeof(row->kind));
    } else {
        descriptor_kind(view, kind, row->kind, sizeof(row->kind));
    }
    uint32_t parent = provider_add(view, provider);
    row->object.parent = parent == UMF_VIEW_ROWS ? 0 : parent + 1;
}

static void pool_add(view_t *view, uint32_t index, uint64_t handle) {
    if (!view_struct(view, handle, view->table.pool_size) ||
        view_number(view->bytes, view->table.pool_index, 4) != index) {
        return; /* it is being destroyed */
    }
    uint32_t row = row_add(view, UMF_RECORD_OBJECT_POOL, handle);
    if (row != UMF_VIEW_ROWS) {
        uint64_t tracked = 0;
        view_pool_t *pool = &view->pools[view->pool_count++];
        *pool = (view_pool_t){.row = row, .index = index};
        pool_fill(view, pool, &tracked);
        pool->is_known = tracked && pool->kind && pool->kind->kind.how != UMF_VIEW_UNKNOWN;
        if (tracked) {
            sets_add(view, tracked, row);
        }
    }
}

static void pools_read(view_t *view) {
    uint64_t handles[512];
    uint32_t highest = 0;
    if (!umf_view_get(view->source, (uintptr_t)view->table.highest, &highest, 4)) {
        return;
    }
    highest = highest < POOLS_MAX ? highest : POOLS_MAX - 1;
    for (uint32_t first = 1; first <= highest && !umf_view_is_out(view->source); first += 512) {
        uint32_t count = highest - first + 1 < 512 ? highest - first + 1 : 512;
        uint64_t at = (uintptr_t)view->table.pools + (uint64_t)first * 8;
        if (!umf_view_get(view->source, at, handles, (size_t)count * 8)) {
            return;
        }
        for (uint32_t i = 0; i < count && !view->rows->is_cut; i++) {
            if (handles[i]) {
                pool_add(view, first + i, handles[i]);
            }
        }
    }
}

/* Pools that were destroyed meanwhile: their data is dropped. */
static void gone_mark(view_t *view) {
    for (size_t i = 0; i < view->pool_count; i++) {
        umf_record_object_t *object = view_object(view, view->pools[i].row);
        uint64_t at = (uintptr_t)view->table.pools + (uint64_t)view->pools[i].index * 8;
        uint64_t now;
        if (umf_view_get(view->source, at, &now, 8) && now != object->handle) {
            object->flags |= UMF_RECORD_OBJECT_IS_GONE;
        }
    }
}

bool umf_view_add(umf_view_source_t *source, uint64_t table, umf_view_rows_t *rows) {
    view_t *view = calloc(1, sizeof(*view));
    bool is_done = false;
    if (view) {
        *view = (view_t){.source = source, .rows = rows, .first = rows->count};
        view->bytes = calloc(1, STRUCT_MAX);
    }
    if (!view || !view->bytes) {
        snprintf(rows->error, sizeof(rows->error), "there is no memory");
    } else if (table_read(view, table)) {
        pools_read(view);
        view_spans(view);
        gone_mark(view);
        rows->is_out |= umf_view_is_out(source);
        is_done = true;
    }
    if (view) {
        free(view->bytes);
    }
    free(view);
    return is_done;
}
