/* Attach: a generation is mapped into this process. */
#include <errno.h>
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/device.h"
#include "ext/vault/folder/folder.h"
#include "ext/vault/view/map.h"
#include "system/os.h"

/* --- mapping ---------------------------------------------------------------------------------- */

umf_result_t umf_vault_view_broken(umf_vault_view_handle_t view, const char *why) {
    return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "generation %llu of vault %s is broken: %s",
                    (unsigned long long)view->generation, view->vault->link.name, why);
}

/* The slabs of a table that are mapped. */
typedef struct mapped_t {
    bool *is_mapped;
    uint32_t next; /* where the next one is searched first */
} mapped_t;

/* A descriptor that becomes the view's is -1 afterwards. */
static umf_result_t map_found(umf_vault_view_handle_t view, uint32_t i, int *fd) {
    const umf_vault_slab_t *slab = &view->table.slabs[i];
    if (slab->kind != UMF_VAULT_KIND_HOST) {
        int taken = *fd;
        if (!view->places || !umf_vault_view_maps(view, i)) { /* only its table is read */
            return UMF_RESULT_SUCCESS;
        }
        *fd = -1;
        return umf_vault_part_take(view, i, taken);
    }
    if (!umf_vault_is_sealed(*fd, slab->size)) {
        return umf_vault_view_broken(
            view, "a slab has another size than its table says, or is not sealed");
    }
    return umf_vault_view_map(view, i, *fd, 0);
}

/* One slab that the daemon sent, where the table has it. Slabs that the table does not have are
 * those of keys that were replaced before the commit. */
static umf_result_t map_slab(umf_vault_view_handle_t view, const umf_vault_slab_t *slab, int *fd,
                             mapped_t *mapped) {
    uint32_t count = view->table.head->slabs;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = mapped->next; /* both have them in about the same order */
        const umf_vault_slab_t *requested = &view->table.slabs[i];
        mapped->next = i + 1 < count ? i + 1 : 0;
        if (requested->serial != slab->serial || mapped->is_mapped[i]) {
            continue;
        }
        mapped->is_mapped[i] = true;
        return map_found(view, i, fd);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t lost(umf_vault_view_handle_t view, uint64_t generation) {
    return UMF_FAIL(UMF_REASON_STALE, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "generation %llu of vault %s is lost: it was dropped, or the service has ended",
                    (unsigned long long)generation, view->vault->link.name);
}

static umf_result_t change_begin(umf_vault_view_handle_t view) {
    const umf_vault_change_t *change = view->change;
    if (change->is_resume &&
        (view->nonce != change->nonce || view->table.head->sum != change->like->head->sum)) {
        return lost(view, view->generation); /* another one with its number */
    }
    const char *differs = umf_table_differs(&view->table, view->change->like);
    if (differs) {
        return UMF_FAIL(UMF_REASON_IDENTITY, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "generation %llu of vault %s has another layout: %s",
                        (unsigned long long)view->generation, view->vault->link.name, differs);
    }
    view->change->has_begun = true;
    return umf_vault_parts_hide(view);
}

bool umf_vault_view_maps(umf_vault_view_handle_t view, uint32_t i) {
    uint32_t role = view->table.slabs[i].role;
    return !view->change || role == UMF_VAULT_CLASS_SHARED ||
           (role == UMF_VAULT_CLASS_PRIVATE && !view->change->is_resume);
}

umf_result_t umf_vault_view_table(umf_vault_view_handle_t view, const char *wrong) {
    if (wrong) {
        return umf_vault_view_broken(view, wrong);
    }
    if (view->change) {
        return change_begin(view);
    }
    for (uint32_t i = 0; i < view->table.head->slabs && view->vault->is_folder; i++) {
        if (view->table.slabs[i].kind != UMF_VAULT_KIND_HOST) {
            return umf_vault_view_broken(view, "a file has no memory of a device");
        }
    }
    view->bases = umf_meta_alloc(view->table.head->slabs * sizeof(void *) + 1);
    return view->bases ? umf_vault_view_reserve(view)
                       : umf_vault_no_memory(ENOMEM, "remembering slabs");
}

/* The slabs of one answer. */
static umf_result_t map_slabs(umf_vault_view_handle_t view, const char *body, uint32_t count,
                              int *fds, mapped_t *mapped) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        umf_vault_slab_t slab;
        memcpy(&slab, body + i * sizeof(slab), sizeof(slab));
        result = map_slab(view, &slab, &fds[i], mapped);
    }
    return result == UMF_RESULT_SUCCESS ? umf_vault_parts_show(view) : result;
}

/* What comes from no daemon, and whether everything else came. */
static umf_result_t map_rest(umf_vault_view_handle_t view, const bool *is_mapped,
                             bool reads_table) {
    for (uint32_t i = 0; i < view->table.head->slabs; i++) {
        const umf_vault_slab_t *slab = &view->table.slabs[i];
        if (slab->role != UMF_VAULT_CLASS_ZERO) {
            if (!is_mapped[i] && !(reads_table && slab->kind == UMF_VAULT_KIND_DEVICE)) {
                return umf_vault_view_broken(view, "a slab of its table is missing");
            }
            continue;
        }
        bool is_of_host = slab->kind == UMF_VAULT_KIND_HOST;
        if (!umf_vault_view_maps(view, i) || (!is_of_host && !view->places)) {
            continue;
        }
        umf_result_t result =
            is_of_host ? umf_vault_view_map(view, i, -1, 0) : umf_vault_part_zero(view, i);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

/* --- attach ----------------------------------------------------------------------------------- */

typedef struct attach_t {
    umf_vault_handle_t vault;
    umf_vault_view_handle_t view;
    uint64_t generation;
    umf_link_call_t call;
    bool reads_table; /* of devices nothing is mapped */
    const char *devices;
    int fds[UMF_VAULT_FDS_MAX];
    char body[UMF_VAULT_BODY_MAX];
} attach_t;

static umf_result_t attach_ask(attach_t *attach, uint16_t op, uint64_t generation, uint64_t next) {
    uint64_t reads = UMF_VAULT_READS_EVICTED | (attach->reads_table ? UMF_VAULT_READS_TABLE : 0);
    attach->call = (umf_link_call_t){.message = {.op = op, .words = {generation, next, reads}},
                                     .answer = attach->body,
                                     .passed = attach->fds,
                                     .is_bound = op == UMF_VAULT_SLABS};
    return umf_link_call(&attach->vault->link, &attach->call);
}

void umf_vault_view_add(umf_vault_view_handle_t view) {
    umf_vault_handle_t vault = view->vault;
    umf_lock(&vault->lock);
    view->next = vault->views;
    if (view->next) {
        view->next->prev = view;
    }
    vault->views = view;
    umf_unlock(&vault->lock);
}

/* The service has attached a generation, and this process has no room for the descriptors. */
static umf_result_t attach_undo(umf_vault_handle_t vault, uint64_t generation,
                                umf_result_t result) {
    umf_reason_t reason = umfLastReason();
    umf_vault_release(vault, generation, vault->link.epoch);
    umf_last_reason_set(reason);
    return result;
}

/* The view is listed before another thread can send the daemon that its generation is not needed.
 */
static umf_result_t attach_attempt(void *arg, umf_vault_message_t *answer) {
    attach_t *attach = arg;
    umf_vault_view_handle_t view = attach->view;
    umf_link_lock_take(&attach->vault->gate);
    umf_result_t result = attach_ask(attach, UMF_VAULT_ATTACH, attach->generation, 0);
    *answer = attach->call.message;
    if (result == UMF_RESULT_SUCCESS && answer->answer == UMF_VAULT_OK) {
        view->generation = answer->words[0];
        view->forks = attach->vault->link.forks;
        view->epoch = attach->vault->link.epoch;
        view->nonce = answer->nonce;
        umf_vault_view_add(view);
    }
    umf_link_lock_end(&attach->vault->gate);
    return result != UMF_RESULT_SUCCESS && umfLastReason() == UMF_REASON_EXHAUSTED
               ? attach_undo(attach->vault, answer->words[0], result)
               : result;
}

static bool body_is_right(const attach_t *attach) {
    return attach->call.message.body == attach->call.passed_count * sizeof(umf_vault_slab_t);
}

static void attach_close(attach_t *attach) {
    umf_os_close_many(attach->fds, attach->call.passed_count);
    attach->call.passed_count = 0;
}

static umf_result_t map_answers(umf_vault_view_handle_t view, attach_t *attach) {
    umf_vault_slab_t info;
    const char *wrong;
    if (!body_is_right(attach) || attach->call.passed_count == 0) {
        return umf_vault_view_broken(view, "the service sends no table");
    }
    memcpy(&info, attach->body, sizeof(info));
    umf_result_t result = umf_vault_table_map(&info, attach->fds[0], &view->table, &view->table_at,
                                              &view->table_size, &wrong);
    result = result ? result : umf_vault_view_table(view, wrong);
    if (result == UMF_RESULT_SUCCESS && !attach->reads_table && !view->change) {
        result = umf_vault_parts_reserve(view, attach->devices);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uint32_t slabs = view->table.head->slabs;
    mapped_t mapped = {.is_mapped = umf_meta_alloc(slabs + 1)};
    if (!mapped.is_mapped) {
        return umf_vault_no_memory(ENOMEM, "remembering slabs");
    }
    result = map_slabs(view, attach->body + sizeof(info), attach->call.passed_count - 1,
                       attach->fds + 1, &mapped);
    uint64_t next = attach->call.message.words[2];
    while (result == UMF_RESULT_SUCCESS && next) {
        attach_close(attach);
        result = attach_ask(attach, UMF_VAULT_SLABS, view->generation, next);
        if (result == UMF_RESULT_SUCCESS) {
            result =
                umf_link_result(&view->vault->link, &attach->call.message, view->vault->link.name);
        }
        if (result == UMF_RESULT_SUCCESS) {
            uint64_t following = attach->call.message.words[2];
            result = !body_is_right(attach) || (following && following <= next)
                         ? umf_vault_view_broken(view, "the service sends no slabs")
                         : map_slabs(view, attach->body, attach->call.passed_count, attach->fds,
                                     &mapped);
            next = following;
        }
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = map_rest(view, mapped.is_mapped, attach->reads_table);
    }
    umf_meta_free(mapped.is_mapped, slabs + 1);
    return result;
}

static umf_result_t identity_check(umf_vault_view_handle_t view,
                                   const umf_vault_attach_params_t *params) {
    size_t size = view->table.head->identity;
    if (!params->identity ||
        (size == params->identity_size && memcmp(view->table.bytes, params->identity, size) == 0)) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("generation %llu of vault %s has another identity: %zu bytes that begin with "
                  "'%.*s', wanted are %zu that begin with '%.*s'",
                  (unsigned long long)view->generation, view->vault->link.name, size,
                  (int)(size < 64 ? size : 64), view->table.bytes, params->identity_size,
                  (int)(params->identity_size < 64 ? params->identity_size : 64),
                  (const char *)params->identity);
    umf_last_reason_set(UMF_REASON_IDENTITY);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

umf_result_t umf_vault_attach_result(umf_vault_handle_t vault, const umf_vault_message_t *answer,
                                     uint64_t timeout_ms) {
    if (answer->answer == UMF_VAULT_NONE && timeout_ms) {
        return UMF_FAIL(UMF_REASON_TIMEOUT, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                        "vault %s has no such generation after %llu ms", vault->link.name,
                        (unsigned long long)timeout_ms);
    }
    return umf_link_result(&vault->link, answer, vault->link.name);
}

/* Memory that was evicted is made again, if the caller wants memory of devices. */
static umf_result_t attach_ready(attach_t *attach, const umf_vault_attach_params_t *params,
                                 umf_vault_message_t *answer) {
    umf_vault_handle_t vault = attach->vault;
    bool has_devices = attach->devices || attach->view->places;
    umf_result_t result = UMF_RESULT_SUCCESS;
    uint64_t failed = 0;                 /* number of the generation that could not be refilled */
    for (unsigned tries = 0;; tries++) { /* another client may evict it again */
        umf_result_t asked = umf_vault_until(vault, attach_attempt, attach, UMF_VAULT_NONE,
                                             params->timeout_ms, answer);
        if (asked != UMF_RESULT_SUCCESS || answer->answer != UMF_VAULT_EVICTED || tries == 8) {
            return asked;
        }
        if (answer->words[0] == failed) {
            return result;
        }
        if (!has_devices) {
            return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                            "generation %llu of vault %s has memory of devices, which was evicted: "
                            "attach it with `devices`, such as \"cuda_vmm\"",
                            (unsigned long long)answer->words[0], vault->link.name);
        }
        result = umf_vault_refill(vault, answer->words[0], params->timeout_ms);
        if (result != UMF_RESULT_SUCCESS &&
            (result != UMF_RESULT_ERROR_INVALID_ARGUMENT || attach->generation)) {
            return result;
        }
        /* It may have ended meanwhile, and another one is the current one. */
        failed = result != UMF_RESULT_SUCCESS ? answer->words[0] : 0;
    }
}

/* `*is_attached`: the view is listed, so that the caller ends it after a failure. */
static umf_result_t attach_by_service(umf_vault_view_handle_t made,
                                      const umf_vault_attach_params_t *params, bool reads_table,
                                      bool *is_attached) {
    umf_vault_handle_t vault = made->vault;
    umf_vault_message_t answer;
    attach_t attach;
    attach.vault = vault;
    attach.view = made;
    attach.generation = params->generation;
    attach.devices = params->devices;
    attach.reads_table = reads_table;
    attach.call.passed_count = 0;
    umf_result_t result = attach_ready(&attach, params, &answer);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vault_attach_result(vault, &answer, params->timeout_ms);
    }
    *is_attached = result == UMF_RESULT_SUCCESS;
    if (*is_attached) {
        result = map_answers(made, &attach);
    }
    attach_close(&attach);
    return result;
}

umf_result_t umf_vault_attach(umf_vault_handle_t vault, const umf_vault_attach_params_t *params,
                              bool reads_table, umf_vault_view_handle_t *view) {
    umf_vault_view_handle_t made = umf_handle_new(sizeof(*made), &umf_vault_view_kind);
    if (!made) {
        return umf_vault_no_memory(ENOMEM, "a view");
    }
    made->vault = vault;
    bool is_attached = false;
    umf_result_t result = vault->is_folder
                              ? umf_vault_folder_attach(made, params, &is_attached)
                              : attach_by_service(made, params, reads_table, &is_attached);
    if (result == UMF_RESULT_SUCCESS) {
        result = identity_check(made, params);
    }
    if (result != UMF_RESULT_SUCCESS) {
        if (is_attached) {
            umf_vault_view_end(made);
        }
        umf_handle_delete(made, sizeof(*made), &umf_vault_view_kind, __func__);
        return result;
    }
    umf_vault_mark(vault, made->generation, "attached");
    *view = made;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_attach_over(umf_vault_view_handle_t view, uint64_t generation) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_change_t *change = view->change;
    bool is_attached = false;
    umf_lock(&view->vault->lock);
    struct umf_vault_view_t other = *view; /* the same memory, another table */
    umf_unlock(&view->vault->lock);
    other.next = other.prev = NULL;
    other.table_at = NULL;
    other.table_size = 0;
    params.generation = generation;
    umf_result_t result = view->vault->is_folder
                              ? umf_vault_folder_attach(&other, &params, &is_attached)
                              : attach_by_service(&other, &params, !view->places, &is_attached);
    if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT && change->is_resume && !is_attached &&
        umfLastReason() == UMF_REASON_ABSENT) {
        result = lost(view, generation);
    }
    uint64_t left = other.generation;
    unsigned left_epoch = other.epoch;
    umf_lock(&view->vault->lock);
    if (result == UMF_RESULT_SUCCESS) {
        left = view->generation;
        left_epoch = view->epoch;
        view->generation = other.generation;
        view->epoch = other.epoch;
    }
    umf_unlock(&view->vault->lock);
    if (result == UMF_RESULT_SUCCESS && !change->is_resume) { /* else keys and notes stay valid */
        void *table_at = view->table_at;
        size_t table_size = view->table_size;
        view->table = other.table;
        view->table_at = other.table_at;
        view->table_size = other.table_size;
        view->nonce = other.nonce;
        other.table_at = table_at;
        other.table_size = table_size;
    }
    if (other.table_at) {
        umf_os_unmap(other.table_at, other.table_size);
    }
    if (is_attached) {
        umf_vault_view_remove(&other);
        umf_vault_release(view->vault, left, left_epoch);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultAttach(umf_vault_handle_t hVault,
                                            const umf_vault_attach_params_t *params,
                                            umf_vault_view_handle_t *hView) {
    static const umf_vault_attach_params_t defaults = UMF_VAULT_ATTACH_PARAMS_INIT;
    params = params ? params : &defaults;
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hView || params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("hView is NULL, or struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bool reads_table = params->devices && strcmp(params->devices, "none") == 0;
    return umf_vault_attach(hVault, params, reads_table, hView);
}
