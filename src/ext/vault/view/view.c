/* Views: generations that are mapped read-only: their entries, and their end. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/device.h"
#include "ext/vault/view/map.h"
#include "system/os.h"

const umf_handle_kind_t umf_vault_view_kind = {.name = "a view of a vault"};

umf_result_t umf_vault_no_memory(int error, const char *what) {
    errno = error;
    UMF_LOG_PERROR("%s failed", what);
    return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* --- detach ----------------------------------------------------------------------------------- */

void umf_vault_release(umf_vault_handle_t vault, uint64_t generation, unsigned epoch) {
    if (vault->is_folder) { /* its files stay */
        return;
    }
    umf_link_lock_take(&vault->gate);
    bool is_needed = epoch != vault->link.epoch;
    umf_lock(&vault->lock);
    for (umf_vault_view_handle_t view = vault->views; view && !is_needed; view = view->next) {
        is_needed = view->generation == generation && view->epoch == epoch;
    }
    for (const umf_vault_written_t *written = vault->written; written && !is_needed;
         written = written->next) {
        is_needed = written->generation == generation && written->epoch == epoch;
    }
    umf_unlock(&vault->lock);
    if (!is_needed) {
        umf_link_call_t call = {.message = {.op = UMF_VAULT_DETACH, .words = {generation}},
                                .is_bound = true};
        umf_link_call(&vault->link, &call);
    }
    umf_link_lock_end(&vault->gate);
}

static void view_unmap(umf_vault_view_handle_t view) {
    umf_vault_view_unmap(view);
    umf_vault_parts_end(view);
    umf_meta_free(view->bases, view->bases ? view->table.head->slabs * sizeof(void *) + 1 : 0);
    if (view->table_at) {
        umf_os_unmap(view->table_at, view->table_size);
    }
}

void umf_vault_view_remove(umf_vault_view_handle_t view) {
    umf_vault_handle_t vault = view->vault;
    umf_lock(&vault->lock);
    if (view->prev) {
        view->prev->next = view->next;
    } else {
        vault->views = view->next;
    }
    if (view->next) {
        view->next->prev = view->prev;
    }
    umf_unlock(&vault->lock);
}

void umf_vault_view_end(umf_vault_view_handle_t view) {
    umf_vault_view_remove(view);
    view_unmap(view);
    umf_vault_release(view->vault, view->generation, view->epoch);
}

void umf_vault_view_delete(umf_vault_view_handle_t view) {
    umf_vault_mark(view->vault, view->generation, "detached");
    umf_vault_view_end(view);
    umf_handle_delete(view, sizeof(*view), &umf_vault_view_kind, __func__);
}

UMF_API_EXT_1_3 umf_result_t umfVaultDetach(umf_vault_view_handle_t hView) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_vault_parts_settle(hView, NULL);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_vault_view_delete(hView);
    return UMF_RESULT_SUCCESS;
}

/* --- entries ---------------------------------------------------------------------------------- */

static void entry_fill(umf_vault_view_handle_t view, uint32_t i, umf_vault_entry_t *entry) {
    const umf_table_entry_t *from = &view->table.entries[i];
    const char *key = umf_table_key(&view->table, i);
    char *base = view->bases[from->slab];
    entry->ptr = base ? base + from->offset : NULL;
    entry->size = (size_t)from->size;
    entry->note = from->note_size ? key + from->key_size + 1 : NULL;
    entry->note_size = from->note_size;
    entry->flags = from->flags;
    entry->key = key;
    entry->device = view->places && view->places[from->slab].part
                        ? view->places[from->slab].part->device->number
                        : -1;
}

UMF_API_EXT_1_3 umf_result_t umfVaultFind(umf_vault_view_handle_t hView, const char *key,
                                          umf_vault_entry_t *entry) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!key || !entry || entry->struct_size < sizeof(*entry)) {
        UMF_LOG_ERROR("key or entry is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uint32_t i = umf_table_find(&hView->table, key, strlen(key));
    if (i == UINT32_MAX) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    entry_fill(hView, i, entry);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultEach(umf_vault_view_handle_t hView, const char *prefix,
                                          umf_vault_each_t visitor, void *arg) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!visitor) {
        UMF_LOG_ERROR("visitor is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t length = prefix ? strlen(prefix) : 0;
    const umf_table_t *table = &hView->table;
    for (uint32_t i = length ? umf_table_lower(table, prefix, length) : 0; i < table->head->entries;
         i++) {
        if (table->entries[i].key_size < length ||
            (length && memcmp(umf_table_key(table, i), prefix, length) != 0)) {
            break;
        }
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        entry_fill(hView, i, &entry);
        if (visitor(&entry, arg) != 0) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultViewGeneration(umf_vault_view_handle_t hView,
                                                    uint64_t *generation) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!generation) {
        UMF_LOG_ERROR("generation is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *generation = hView->generation;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultViewIdentity(umf_vault_view_handle_t hView,
                                                  const void **identity, size_t *size) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!identity || !size) {
        UMF_LOG_ERROR("identity or size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = hView->table.head->identity;
    *identity = *size ? hView->table.bytes : NULL;
    return UMF_RESULT_SUCCESS;
}
