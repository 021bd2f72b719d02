/* Drafts: begin, pools, entries, abort. commit.c has the commit. */
#include "ext/vault/draft.h"

#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/device.h"
#include "ext/vault/folder/folder.h"
#include "system/os.h"

const umf_handle_kind_t umf_vault_draft_kind = {.name = "a draft of a vault"};

bool umf_vault_draft_check(umf_vault_draft_handle_t draft, const char *function) {
    if (!umf_handle_check(draft, &umf_vault_draft_kind, function)) {
        return false;
    }
    if (draft->forks != umf_fork_count()) {
        UMF_LOG_ERROR("%s: the draft is that of the parent process", function);
        return false;
    }
    return true;
}

void *umf_vault_array_add(umf_vault_array_t *array, size_t item, size_t count) {
    size_t needed = (array->count + count) * item;
    if (needed > array->room) {
        size_t room = array->room * 2 > needed ? array->room * 2 : needed + 4096;
        void *items = umf_meta_alloc(room);
        if (!items) {
            UMF_LOG_ERROR("no memory for entries or slabs of a draft");
            return NULL;
        }
        if (array->count) {
            memcpy(items, array->items, array->count * item);
        }
        umf_meta_free(array->items, array->room);
        array->items = items;
        array->room = room;
    }
    void *first = (char *)array->items + array->count * item;
    array->count += count;
    return first;
}

/* --- begin ------------------------------------------------------------------------------------ */

typedef struct begin_t {
    umf_vault_handle_t vault;
    const umf_vault_draft_params_t *params;
} begin_t;

static umf_result_t begin_attempt(void *arg, umf_vault_message_t *answer) {
    const begin_t *begin = arg;
    umf_link_call_t call = {
        .message = {.op = UMF_VAULT_BEGIN,
                    .words = {begin->params->from, begin->params->replace != 0}}};
    umf_result_t result = umf_link_call(&begin->vault->link, &call);
    *answer = call.message;
    return result;
}

static umf_result_t begin_check(const umf_vault_draft_params_t *params,
                                const umf_vault_draft_handle_t *hDraft) {
    if (!hDraft || params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("hDraft is NULL, or struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->identity_size > UMF_TABLE_IDENTITY_MAX ||
        (params->identity_size && !params->identity)) {
        UMF_LOG_ERROR("an identity has at most %u bytes, this one has %zu", UMF_TABLE_IDENTITY_MAX,
                      params->identity_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->copy_pool && strlen(params->copy_pool) >= sizeof((*hDraft)->copy_pool)) {
        UMF_LOG_ERROR("the text of a pool for copies has at most %zu bytes",
                      sizeof((*hDraft)->copy_pool) - 1);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* Of two threads that begin one, one gets it. */
static bool claim_place(umf_vault_handle_t vault, umf_vault_draft_handle_t draft) {
    umf_lock(&vault->lock);
    bool is_free = !vault->draft;
    vault->draft = is_free ? draft : vault->draft;
    umf_unlock(&vault->lock);
    if (!is_free) {
        UMF_LOG_ERROR("vault %s has a draft already, which this process writes", vault->link.name);
    }
    return is_free;
}

static umf_result_t attach_from(umf_vault_draft_handle_t draft, uint64_t from) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    params.generation = from;
    return from ? umf_vault_attach(draft->vault, &params, true, &draft->from) : UMF_RESULT_SUCCESS;
}

/* Without an answer the service may have begun it, or may do so later: it serves the requests of a
 * connection in order. Others would wait for it. */
static umf_result_t begin_undo(umf_vault_handle_t vault, umf_result_t result) {
    umf_link_call_t call = {.message = {.op = UMF_VAULT_ABORT}, .is_bound = true};
    umf_reason_t reason = umfLastReason();
    umf_link_call(&vault->link, &call);
    umf_last_reason_set(reason);
    return result;
}

static umf_result_t begin_at_daemon(umf_vault_draft_handle_t draft,
                                    const umf_vault_draft_params_t *params) {
    begin_t begin = {.vault = draft->vault, .params = params};
    umf_vault_message_t answer;
    umf_result_t result = umf_vault_until(draft->vault, begin_attempt, &begin, UMF_VAULT_BUSY,
                                          params->timeout_ms, &answer);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_link_result(&draft->vault->link, &answer, draft->vault->link.name);
    } else if (umfLastReason() == UMF_REASON_TIMEOUT) {
        return begin_undo(draft->vault, result);
    }
    draft->number = answer.words[0];
    draft->epoch = draft->vault->link.epoch;
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultBegin(umf_vault_handle_t hVault,
                                           const umf_vault_draft_params_t *params,
                                           umf_vault_draft_handle_t *hDraft) {
    static const umf_vault_draft_params_t defaults = UMF_VAULT_DRAFT_PARAMS_INIT;
    params = params ? params : &defaults;
    if (!umf_vault_check(hVault, __func__) || begin_check(params, hDraft) != UMF_RESULT_SUCCESS) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vault_draft_handle_t draft = umf_handle_new(sizeof(*draft), &umf_vault_draft_kind);
    if (!draft) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    draft->vault = hVault;
    draft->forks = hVault->link.forks;
    draft->identity_size = params->identity_size;
    if (params->copy_pool) {
        memcpy(draft->copy_pool, params->copy_pool, strlen(params->copy_pool) + 1);
    }
    if (params->identity_size) {
        memcpy(draft->identity, params->identity, params->identity_size);
    }
    if (!claim_place(hVault, draft)) {
        umf_handle_delete(draft, sizeof(*draft), &umf_vault_draft_kind, __func__);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_result_t result = attach_from(draft, params->from);
    if (result == UMF_RESULT_SUCCESS) {
        result = hVault->is_folder ? umf_vault_folder_begin(draft, params)
                                   : begin_at_daemon(draft, params);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_vault_draft_free(draft, false);
        return result;
    }
    *hDraft = draft;
    return UMF_RESULT_SUCCESS;
}

/* --- entries ---------------------------------------------------------------------------------- */

static uint32_t class_of(unsigned flags) {
    return flags & UMF_VAULT_ZERO      ? UMF_VAULT_CLASS_ZERO
           : flags & UMF_VAULT_PRIVATE ? UMF_VAULT_CLASS_PRIVATE
                                       : UMF_VAULT_CLASS_SHARED;
}

/* The pool of the draft that has the whole range in one allocation. NULL: none, logged. */
static umf_memory_pool_handle_t pool_of(umf_vault_draft_handle_t draft, const void *ptr,
                                        size_t size) {
    umf_memory_pool_handle_t pool = NULL;
    umfPoolByPtr(ptr, &pool);
    for (unsigned i = 0; i < draft->pool_count; i++) {
        if (pool && draft->pools[i] == pool) {
            return pool;
        }
    }
    UMF_LOG_ERROR("%p (%zu bytes) is no memory of a pool of the draft", ptr, size);
    return NULL;
}

uint32_t umf_vault_draft_slab_for(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool,
                                  const umf_vm_piece_t *piece, uint32_t role) {
    for (size_t i = draft->slabs.count; i-- > 0;) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->base == piece->base && slab->pool == pool) {
            if (slab->role == role) {
                return (uint32_t)i;
            }
            UMF_LOG_ERROR("memory at %p has entries with other flags in the same piece: allocate "
                          "it from another pool of the draft",
                          piece->base);
            return UINT32_MAX;
        }
    }
    if (draft->slabs.count >= UMF_TABLE_SLABS_MAX) {
        UMF_LOG_ERROR("a generation has at most %u pieces: use larger ones (piece_size)",
                      UMF_TABLE_SLABS_MAX);
        return UINT32_MAX;
    }
    umf_vault_draft_slab_t *slab = umf_vault_array_add(&draft->slabs, sizeof(*slab), 1);
    if (!slab) {
        return UINT32_MAX;
    }
    *slab = (umf_vault_draft_slab_t){
        .pool = pool, .base = piece->base, .size = piece->size, .role = role, .fd = -1};
    unsigned place = 0;
    while (draft->pools[place] != pool) {
        place++;
    }
    slab->kind = draft->kinds[place];
    memcpy(slab->device, draft->devices[place], sizeof(slab->device));
    return (uint32_t)draft->slabs.count - 1;
}

umf_result_t umf_vault_draft_add(umf_vault_draft_handle_t draft, umf_vault_draft_entry_t entry,
                                 const char *key, const void *note) {
    if (draft->entries.count >= UMF_TABLE_ENTRIES_MAX) {
        UMF_LOG_ERROR("a generation has at most %u entries", UMF_TABLE_ENTRIES_MAX);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    entry.key = draft->bytes.count;
    char *bytes = umf_vault_array_add(&draft->bytes, 1, (size_t)entry.key_size + entry.note_size);
    umf_vault_draft_entry_t *to =
        bytes ? umf_vault_array_add(&draft->entries, sizeof(*to), 1) : NULL;
    if (!to) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    memcpy(bytes, key, entry.key_size);
    if (entry.note_size) {
        memcpy(bytes + entry.key_size, note, entry.note_size);
    }
    *to = entry;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t put_check(const char *key, const void *ptr, size_t size, const void *note,
                              size_t note_size, unsigned flags) {
    size_t length = key ? strlen(key) : 0;
    if (length == 0 || length > UMF_VAULT_NAME_MAX) {
        UMF_LOG_ERROR("a key has 1 to %u bytes, this one has %zu", UMF_VAULT_NAME_MAX, length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr || size == 0) {
        UMF_LOG_ERROR("key %s: ptr is NULL or size is 0", key);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (note_size > UMF_TABLE_NOTE_MAX || (note_size && !note)) {
        UMF_LOG_ERROR("key %s: a note has at most %u bytes, this one has %zu", key,
                      UMF_TABLE_NOTE_MAX, note_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (flags & ~(unsigned)(UMF_VAULT_PRIVATE | UMF_VAULT_ZERO) ||
        flags == (UMF_VAULT_PRIVATE | UMF_VAULT_ZERO)) {
        UMF_LOG_ERROR("key %s: flags are %u; they are UMF_VAULT_PRIVATE, UMF_VAULT_ZERO or 0", key,
                      flags);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultPut(umf_vault_draft_handle_t hDraft, const char *key,
                                         const void *ptr, size_t size, const void *note,
                                         size_t note_size, unsigned flags) {
    if (!umf_vault_draft_check(hDraft, __func__) ||
        put_check(key, ptr, size, note, note_size, flags) != UMF_RESULT_SUCCESS) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vm_piece_t piece;
    umf_memory_pool_handle_t pool = pool_of(hDraft, ptr, size);
    if (!pool) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = pool->provider->ext->vm_find(pool->provider->self, ptr, &piece);
    size_t offset = result ? 0 : (size_t)((const char *)ptr - (char *)piece.base);
    if (result != UMF_RESULT_SUCCESS || size > piece.size - offset) {
        UMF_LOG_ERROR("key %s: %p (%zu bytes) is not inside of one allocation", key, ptr, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uint32_t slab = umf_vault_draft_slab_for(hDraft, pool, &piece, class_of(flags));
    if (slab == UINT32_MAX) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vault_draft_entry_t entry = {.offset = offset,
                                     .size = size,
                                     .slab = slab,
                                     .note_size = (uint16_t)note_size,
                                     .key_size = (uint8_t)strlen(key),
                                     .flags = (uint8_t)flags};
    return umf_vault_draft_add(hDraft, entry, key, note);
}

uint32_t umf_vault_draft_slab_of_view(umf_vault_draft_handle_t draft, umf_vault_draft_slab_t slab) {
    umf_vault_draft_slab_t *made = umf_vault_array_add(&draft->slabs, sizeof(*made), 1);
    if (!made) {
        return UINT32_MAX;
    }
    *made = slab;
    return (uint32_t)draft->slabs.count - 1;
}

/* The draft's slab that stands for one of `from`. UINT32_MAX: no memory. */
static uint32_t slab_of_from(umf_vault_draft_handle_t draft, uint32_t index) {
    const umf_vault_slab_t *from = &draft->from->table.slabs[index];
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (!slab->pool && !slab->is_again && slab->from == index) {
            return (uint32_t)i;
        }
    }
    umf_vault_draft_slab_t slab = {.base = draft->from->bases[index],
                                   .size = (size_t)from->size,
                                   .serial = from->serial,
                                   .role = from->role,
                                   .kind = from->kind,
                                   .fd = -1,
                                   .from = index};
    memcpy(slab.device, from->device, sizeof(slab.device));
    return umf_vault_draft_slab_of_view(draft, slab);
}

UMF_API_EXT_1_3 umf_result_t umfVaultKeep(umf_vault_draft_handle_t hDraft, const char *prefix) {
    if (!umf_vault_draft_check(hDraft, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!prefix || !hDraft->from) {
        UMF_LOG_ERROR("prefix is NULL, or the draft has no generation to keep entries of");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const umf_table_t *table = &hDraft->from->table;
    size_t length = strlen(prefix);
    uint32_t i = length ? umf_table_lower(table, prefix, length) : 0;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (; i < table->head->entries && result == UMF_RESULT_SUCCESS; i++) {
        const umf_table_entry_t *from = &table->entries[i];
        const char *key = umf_table_key(table, i);
        if (from->key_size < length || memcmp(key, prefix, length) != 0) {
            break;
        }
        umf_vault_draft_entry_t entry = {.offset = from->offset,
                                         .size = from->size,
                                         .digest = table->digests ? table->digests[i] : 0,
                                         .slab = slab_of_from(hDraft, from->slab),
                                         .note_size = from->note_size,
                                         .key_size = from->key_size,
                                         .flags = from->flags,
                                         .is_kept = true};
        result = entry.slab == UINT32_MAX
                     ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                     : umf_vault_draft_add(hDraft, entry, key, key + from->key_size + 1);
    }
    return result;
}

/* --- end -------------------------------------------------------------------------------------- */

void umf_vault_draft_free(umf_vault_draft_handle_t draft, bool keeps_shown) {
    umf_vault_handle_t vault = draft->vault;
    if (vault->is_folder) {
        umf_vault_folder_end(vault);
    }
    for (size_t i = 0; i < draft->slabs.count && !keeps_shown; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->is_shown && slab->kind == UMF_VAULT_KIND_DEVICE) {
            umf_vault_settle(slab->pool->provider);
            slab->pool->provider->ext->vm_drop(slab->pool->provider->self, slab->base, slab->size);
            slab->is_shown = false;
        }
    }
    for (unsigned i = 0; i < draft->pool_count; i++) {
        umfPoolDestroy(draft->pools[i]);
    }
    for (size_t i = 0; i < draft->slabs.count; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->fd != -1) {
            umf_os_close(slab->fd);
        }
        if (slab->is_again || (slab->is_shown && !keeps_shown)) {
            umf_os_unmap(slab->base, slab->size);
        }
    }
    umf_meta_free(draft->slabs.items, draft->slabs.room);
    umf_meta_free(draft->entries.items, draft->entries.room);
    umf_meta_free(draft->bytes.items, draft->bytes.room);
    if (draft->from) {
        umfVaultDetach(draft->from);
    }
    umf_lock(&vault->lock);
    vault->draft = NULL;
    umf_unlock(&vault->lock);
    umf_handle_delete(draft, sizeof(*draft), &umf_vault_draft_kind, __func__);
}

UMF_API_EXT_1_3 umf_result_t umfVaultAbort(umf_vault_draft_handle_t hDraft) {
    if (!umf_vault_draft_check(hDraft, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hDraft->vault->is_folder && hDraft->epoch == hDraft->vault->link.epoch) {
        umf_link_call_t call = {.message = {.op = UMF_VAULT_ABORT, .words = {hDraft->number}},
                                .is_bound = true};
        umf_link_call(&hDraft->vault->link, &call); /* without an answer its end is the daemon's */
    }
    umf_vault_draft_free(hDraft, false);
    return UMF_RESULT_SUCCESS;
}
