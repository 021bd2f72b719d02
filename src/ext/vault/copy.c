/* Entries of a view, copied into a draft. */
#include <string.h>

#include <umf/copy.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/device.h"
#include "ext/vault/draft.h"
#include "system/os.h"

#define POOL "proxy over linux_vmm:piece_size=4K" /* a piece for each slab */

/* Entries [first, last) of the view. */
typedef struct copy_t {
    umf_vault_draft_handle_t draft;
    umf_vault_view_handle_t view;
    const umf_table_t *table;
    uint32_t first, last;
    umf_memory_pool_handle_t pools[UMF_VAULT_CLASS_TABLE]; /* by class; NULL: not made yet */
    char **blocks;     /* by slab of the view; NULL: no entry in it */
    bool *are_again;   /* mapped once more, and not copied */
    uint32_t *indices; /* of the draft's slabs */
    size_t *offsets;   /* of the blocks in their pieces */
} copy_t;

static void find_range(copy_t *copy, const char *prefix) {
    size_t length = strlen(prefix);
    copy->first = length ? umf_table_lower(copy->table, prefix, length) : 0;
    copy->last = copy->first;
    while (copy->last < copy->table->head->entries &&
           copy->table->entries[copy->last].key_size >= length &&
           memcmp(umf_table_key(copy->table, copy->last), prefix, length) == 0) {
        copy->last++;
    }
}

/* A folder reads the content at the commit: memory that no process writes needs no copy until then.
 */
static bool map_again(copy_t *copy, uint32_t i) {
    const umf_vault_slab_t *slab = &copy->table->slabs[i];
    size_t page = umf_os_page_size(), size = ((size_t)slab->size + page - 1) & ~(page - 1);
    void *again;
    if (!copy->draft->vault->is_folder || slab->kind != UMF_VAULT_KIND_HOST ||
        slab->role != UMF_VAULT_CLASS_SHARED || copy->draft->slabs.count >= UMF_TABLE_SLABS_MAX ||
        umf_os_map_again(copy->view->bases[i], size, &again) != 0) {
        return false;
    }
    copy->indices[i] =
        umf_vault_draft_slab_of_view(copy->draft, (umf_vault_draft_slab_t){.base = again,
                                                                           .size = size,
                                                                           .role = slab->role,
                                                                           .kind = slab->kind,
                                                                           .fd = -1,
                                                                           .is_again = true});
    if (copy->indices[i] == UINT32_MAX) {
        umf_os_unmap(again, size);
        return false;
    }
    copy->blocks[i] = again;
    copy->are_again[i] = true;
    return true;
}

/* Memory for a slab. Pages without entries are not touched. */
static umf_result_t block_make(copy_t *copy, uint32_t i) {
    if (map_again(copy, i)) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_vault_slab_t *slab = &copy->table->slabs[i];
    umf_memory_pool_handle_t *pool = &copy->pools[slab->role];
    const char *text = copy->draft->copy_pool[0] ? copy->draft->copy_pool : POOL;
    umf_result_t result = *pool ? UMF_RESULT_SUCCESS : umfVaultDraftPool(copy->draft, text, pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    copy->blocks[i] = umfPoolMalloc(*pool, (size_t)slab->size);
    if (!copy->blocks[i]) {
        UMF_LOG_ERROR("no memory for %llu bytes of generation %llu of vault %s",
                      (unsigned long long)slab->size, (unsigned long long)copy->view->generation,
                      copy->view->vault->link.name);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_vm_piece_t piece;
    result = (*pool)->provider->ext->vm_find((*pool)->provider->self, copy->blocks[i], &piece);
    if (result == UMF_RESULT_SUCCESS) {
        copy->offsets[i] = (size_t)(copy->blocks[i] - (char *)piece.base);
        copy->indices[i] = umf_vault_draft_slab_for(copy->draft, *pool, &piece, slab->role);
        result = copy->indices[i] == UINT32_MAX ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : result;
    }
    return result;
}

/* Private memory may have been changed here, so its sum is not that of its content. */
static uint64_t digest_of(const copy_t *copy, uint32_t i) {
    const umf_table_t *table = copy->table;
    return table->digests && table->entries[i].flags == 0 ? table->digests[i] : 0;
}

/* The provider of the draft's memory, if it is of a device. */
static umf_memory_provider_handle_t device_of(const copy_t *copy, uint32_t slab) {
    umf_memory_pool_handle_t pool = copy->pools[copy->table->slabs[slab].role];
    return pool && pool->provider->ext->vm_device ? pool->provider : NULL;
}

static umf_result_t copy_bytes(const copy_t *copy, const umf_table_entry_t *entry) {
    char *to = copy->blocks[entry->slab] + entry->offset;
    const char *from = (const char *)copy->view->bases[entry->slab] + entry->offset;
    if (copy->are_again[entry->slab]) {
        return UMF_RESULT_SUCCESS;
    }
    if (copy->table->slabs[entry->slab].kind != UMF_VAULT_KIND_HOST ||
        device_of(copy, entry->slab)) {
        return umfCopy(to, from, (size_t)entry->size, NULL);
    }
    memcpy(to, from, (size_t)entry->size);
    return UMF_RESULT_SUCCESS;
}

/* The sum of what was copied, read where the CPU can, if it can. */
static umf_result_t digest_now(const copy_t *copy, uint32_t i, uint64_t *digest) {
    const umf_table_entry_t *entry = &copy->table->entries[i];
    const char *to = copy->blocks[entry->slab] + entry->offset;
    if (!device_of(copy, entry->slab)) {
        *digest = umf_table_digest(to, (size_t)entry->size);
        return UMF_RESULT_SUCCESS;
    }
    return umf_vault_view_digest(copy->view, i, digest);
}

static umf_result_t copy_content(copy_t *copy, uint32_t i) {
    const umf_table_entry_t *entry = &copy->table->entries[i];
    if (!copy->blocks[entry->slab]) {
        umf_result_t result = umf_vault_slab_reads(copy->view, entry->slab);
        if (result == UMF_RESULT_SUCCESS) {
            result = block_make(copy, entry->slab);
        }
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    if (entry->flags & UMF_VAULT_ZERO) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = copy_bytes(copy, entry);
    uint64_t digest = digest_of(copy, i), now = digest;
    if (result == UMF_RESULT_SUCCESS && digest) {
        result = digest_now(copy, i, &now);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (now != digest) {
        return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "entry %s of generation %llu of vault %s has other content than at its "
                        "commit: it is not copied",
                        umf_table_key(copy->table, i), (unsigned long long)copy->view->generation,
                        copy->view->vault->link.name);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t add_entry(copy_t *copy, uint32_t i) {
    const umf_table_entry_t *from = &copy->table->entries[i];
    const char *key = umf_table_key(copy->table, i);
    umf_vault_draft_entry_t entry = {.offset = copy->offsets[from->slab] + from->offset,
                                     .size = from->size,
                                     .digest = digest_of(copy, i),
                                     .slab = copy->indices[from->slab],
                                     .note_size = from->note_size,
                                     .key_size = from->key_size,
                                     .flags = from->flags};
    return umf_vault_draft_add(copy->draft, entry, key, key + from->key_size + 1);
}

/* All or nothing. */
static umf_result_t copy_all(copy_t *copy) {
    umf_vault_draft_handle_t draft = copy->draft;
    size_t slabs = draft->slabs.count, entries = draft->entries.count, bytes = draft->bytes.count;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = copy->first; i < copy->last && result == UMF_RESULT_SUCCESS; i++) {
        result = copy_content(copy, i);
    }
    for (uint32_t i = copy->first; i < copy->last && result == UMF_RESULT_SUCCESS; i++) {
        result = add_entry(copy, i);
    }
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = slabs; i < draft->slabs.count; i++) {
            umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
            if (slab->is_again) {
                umf_os_unmap(slab->base, slab->size);
            }
        }
        draft->slabs.count = slabs;
        draft->entries.count = entries;
        draft->bytes.count = bytes;
        for (uint32_t i = 0; i < copy->table->head->slabs; i++) {
            if (copy->blocks[i] && !copy->are_again[i]) { /* the reason of the failure stays */
                umfFree(copy->blocks[i]);
            }
        }
    } else if (draft->identity_size == 0) {
        draft->identity_size = copy->table->head->identity;
        memcpy(draft->identity, copy->table->bytes, draft->identity_size);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultCopy(umf_vault_draft_handle_t hDraft,
                                          umf_vault_view_handle_t hView, const char *prefix) {
    if (!umf_vault_draft_check(hDraft, __func__) || !umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_vault_view_reads(hView);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    copy_t copy = {.draft = hDraft, .view = hView, .table = &hView->table};
    find_range(&copy, prefix ? prefix : "");
    size_t slabs = copy.table->head->slabs + 1;
    copy.blocks = umf_meta_alloc(slabs * sizeof(*copy.blocks));
    copy.are_again = umf_meta_alloc(slabs * sizeof(*copy.are_again));
    copy.indices = umf_meta_alloc(slabs * sizeof(*copy.indices));
    copy.offsets = umf_meta_alloc(slabs * sizeof(*copy.offsets));
    result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (copy.blocks && copy.are_again && copy.indices && copy.offsets) {
        result = copy_all(&copy);
    } else {
        UMF_LOG_ERROR("no memory for the slabs of a copy");
    }
    umf_meta_free(copy.blocks, slabs * sizeof(*copy.blocks));
    umf_meta_free(copy.are_again, slabs * sizeof(*copy.are_again));
    umf_meta_free(copy.indices, slabs * sizeof(*copy.indices));
    umf_meta_free(copy.offsets, slabs * sizeof(*copy.offsets));
    return result;
}
