#include "ext/vault/content.h"

#include <errno.h>
#include <stdlib.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/device.h"
#include "ext/vault/transfer.h"

typedef struct sorted_t {
    umf_table_source_t source;
    size_t order; /* the later one of a key counts; one that was put before one that was kept */
} sorted_t;

static int sorted_compare(const void *a, const void *b) {
    const sorted_t *left = a, *right = b;
    int order = umf_table_compare(left->source.key, left->source.key_size, right->source.key,
                                  right->source.key_size);
    return order ? order : (left->order < right->order) - (left->order > right->order);
}

void umf_vault_content_fini(umf_vault_content_t *content) {
    umf_meta_free(content->entries, content->room);
    umf_meta_free(content->table_slabs, content->table_slabs_room);
    umf_meta_free(content->bases, (content->slabs + 1) * sizeof(*content->bases));
    umf_meta_free(content->providers, (content->slabs + 1) * sizeof(*content->providers));
}

static umf_result_t content_sort(umf_vault_draft_handle_t draft, umf_vault_content_t *content) {
    size_t count = draft->entries.count, room = (count + 1) * sizeof(sorted_t);
    sorted_t *sorted = umf_meta_alloc(room);
    content->room = (count + 1) * sizeof(umf_table_source_t);
    content->entries = umf_meta_alloc(content->room);
    if (!sorted || !content->entries) {
        umf_meta_free(sorted, room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    const char *bytes = draft->bytes.items;
    for (size_t i = 0; i < count; i++) {
        const umf_vault_draft_entry_t *entry = umf_vault_draft_entry(draft, i);
        sorted[i] = (sorted_t){.source = {.key = bytes + entry->key,
                                          .note = bytes + entry->key + entry->key_size,
                                          .offset = entry->offset,
                                          .size = entry->size,
                                          .digest = entry->digest,
                                          .slab = entry->slab,
                                          .note_size = entry->note_size,
                                          .key_size = entry->key_size,
                                          .flags = entry->flags},
                               .order = entry->is_kept ? 0 : i + 1};
    }
    qsort(sorted, count, sizeof(*sorted), sorted_compare);
    for (size_t i = 0; i < count; i++) {
        const umf_table_source_t *source = &sorted[i].source;
        const umf_table_source_t *last =
            content->count ? &content->entries[content->count - 1] : NULL;
        if (!last || umf_table_compare(last->key, last->key_size, source->key, source->key_size)) {
            content->entries[content->count++] = *source;
        }
    }
    umf_meta_free(sorted, room);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_content_init(umf_vault_draft_handle_t draft, umf_vault_content_t *content) {
    umf_result_t result = content_sort(draft, content);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < draft->slabs.count; i++) {
        umf_vault_draft_slab(draft, i)->is_used = false;
    }
    for (uint32_t i = 0; i < content->count; i++) {
        umf_vault_draft_slab(draft, content->entries[i].slab)->is_used = true;
    }
    for (size_t i = 0; i < draft->slabs.count; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        slab->index = slab->is_used ? content->slabs++ : 0;
    }
    if (content->slabs > UMF_TABLE_SLABS_MAX) {
        UMF_LOG_ERROR("a generation has at most %u pieces of memory, this one has %u: copy entries "
                      "instead of keeping them, or allocate from fewer pools",
                      UMF_TABLE_SLABS_MAX, content->slabs);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    for (uint32_t i = 0; i < content->count; i++) {
        content->entries[i].slab = umf_vault_draft_slab(draft, content->entries[i].slab)->index;
    }
    content->table_slabs_room = (content->slabs + 1) * sizeof(umf_vault_slab_t);
    content->table_slabs = umf_meta_alloc(content->table_slabs_room);
    content->bases = umf_meta_alloc((content->slabs + 1) * sizeof(*content->bases));
    content->providers = umf_meta_alloc((content->slabs + 1) * sizeof(*content->providers));
    if (!content->table_slabs || !content->bases || !content->providers) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->is_used) {
            content->bases[slab->index] = slab->base;
            if (slab->pool && slab->kind == UMF_VAULT_KIND_DEVICE) {
                content->providers[slab->index] = slab->pool->provider;
            }
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t entry_sum(const umf_vault_content_t *content, umf_table_source_t *entry) {
    const char *at = content->bases[entry->slab] + entry->offset;
    if (content->providers[entry->slab]) {
        return umf_vault_device_digest(content->providers[entry->slab], at, (size_t)entry->size,
                                       &entry->digest);
    }
    entry->digest = umf_table_digest(at, (size_t)entry->size);
    return UMF_RESULT_SUCCESS;
}

/* Memory of devices of `from` that the draft has not mapped. */
typedef struct kept_t {
    umf_vault_view_handle_t view; /* NULL: not needed yet */
    bool *are_compared;           /* by slab of the view */
    size_t room;
} kept_t;

static void kept_end(kept_t *kept) {
    umf_meta_free(kept->are_compared, kept->room);
    if (kept->view) {
        umf_vault_view_delete(kept->view);
    }
}

static umf_result_t kept_begin(umf_vault_draft_handle_t draft, kept_t *kept) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    params.generation = draft->from->generation;
    params.devices = UMF_VAULT_DEVICES;
    umf_result_t result = umf_vault_attach(draft->vault, &params, false, &kept->view);
    if (result == UMF_RESULT_SUCCESS) {
        kept->room = kept->view->table.head->slabs + 1;
        kept->are_compared = umf_meta_alloc(kept->room);
        result =
            kept->are_compared ? result : umf_vault_no_memory(ENOMEM, "comparing kept entries");
    }
    return result;
}

/* A sum proves what the writer wrote. Memory that another client has made again may be anything: it
 * is compared with the copy that it was made of. */
static umf_result_t slab_compare(const kept_t *kept, uint32_t i) {
    umf_vault_view_handle_t view = kept->view;
    const umf_vault_slab_t *slab = &view->table.slabs[i];
    umf_link_call_t call = {
        .message = {.op = UMF_VAULT_SUM, .words = {view->generation, slab->serial}}};
    umf_result_t result = umf_vault_ask(view->vault, &call);
    if (result != UMF_RESULT_SUCCESS || call.message.words[0] == 0) {
        return result;
    }
    if (call.message.words[1] == 0) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "generation %llu of vault %s has no sums, and its memory was made again "
                        "from a copy that has none: nothing tells whether it has its content",
                        (unsigned long long)view->generation, view->vault->link.name);
    }
    umf_transfer_t transfer = {.provider = view->places[i].part->device->provider,
                               .memory = view->bases[i],
                               .size = (size_t)slab->size,
                               .fd = -1,
                               .has_sum = true};
    result = umf_transfer_run(&transfer);
    return result == UMF_RESULT_SUCCESS && transfer.sum != call.message.words[1]
               ? umf_vault_view_broken(view,
                                       "memory that was made again has other content than its "
                                       "copy: drop the generation")
               : result;
}

static umf_result_t kept_sum(umf_vault_draft_handle_t draft, umf_table_source_t *entry,
                             kept_t *kept) {
    umf_result_t result = kept->view ? UMF_RESULT_SUCCESS : kept_begin(draft, kept);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const umf_table_t *table = &kept->view->table;
    uint32_t i = umf_table_find(table, entry->key, entry->key_size);
    if (i == UINT32_MAX) {
        return umf_vault_view_broken(kept->view, "an entry that is kept is missing in its table");
    }
    uint32_t slab = table->entries[i].slab;
    if (kept->view->places && kept->view->places[slab].part && !kept->are_compared[slab]) {
        result = slab_compare(kept, slab);
        kept->are_compared[slab] = result == UMF_RESULT_SUCCESS;
    }
    return result ? result : umf_vault_view_digest(kept->view, i, &entry->digest);
}

umf_result_t umf_vault_content_sum(umf_vault_draft_handle_t draft,
                                   const umf_vault_content_t *content) {
    kept_t kept = {0};
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < content->count && result == UMF_RESULT_SUCCESS; i++) {
        umf_table_source_t *entry = &content->entries[i];
        if (entry->digest == 0 && !(entry->flags & UMF_VAULT_ZERO)) {
            result = content->bases[entry->slab] ? entry_sum(content, entry)
                                                 : kept_sum(draft, entry, &kept);
        }
    }
    kept_end(&kept);
    return result;
}
