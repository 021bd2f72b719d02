/* Vaults: open, close and queries. */
#include "ext/vault/vault.h"

#include <string.h>

#include <umf/record.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/claim.h"
#include "ext/vault/folder/folder.h"
#include "object/event.h"
#include "system/os.h"
#include "system/socket.h"

const umf_handle_kind_t umf_vault_kind = {.name = "a vault"};

/* How long one wait for an event lasts, in ms: a group may end without an event of this vault. */
#define WAIT_SLICE 200

static bool not_of_parent(bool is_ours, const char *function) {
    if (!is_ours) {
        UMF_LOG_ERROR("%s: the handle is that of the parent process: open the vault again after a "
                      "fork",
                      function);
    }
    return is_ours;
}

bool umf_vault_check(umf_vault_handle_t vault, const char *function) {
    return umf_handle_check(vault, &umf_vault_kind, function) &&
           not_of_parent(umf_link_is_ours(&vault->link), function);
}

bool umf_vault_view_check(umf_vault_view_handle_t view, const char *function) {
    return umf_handle_check(view, &umf_vault_view_kind, function) &&
           not_of_parent(view->forks == umf_fork_count(), function);
}

umf_result_t umf_vault_ask(umf_vault_handle_t vault, umf_link_call_t *call) {
    umf_result_t result = umf_link_call(&vault->link, call);
    return result == UMF_RESULT_SUCCESS
               ? umf_link_result(&vault->link, &call->message, vault->link.name)
               : result;
}

void umf_vault_mark(umf_vault_handle_t vault, uint64_t generation, const char *what) {
    char text[256];
    if (!umf_event_is_enabled()) {
        return;
    }
    snprintf(text, sizeof(text), "vault %.190s generation %llu %s", vault->link.name,
             (unsigned long long)generation, what);
    umfRecordMark(text);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* A wait has a connection of its own, because other threads use that of the vault meanwhile. */
static umf_result_t wait_link(umf_vault_handle_t vault, umf_link_t **link) {
    umf_link_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for a connection");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    const umf_link_t *like = &vault->link;
    memcpy(made->folder, like->folder, sizeof(made->folder));
    memcpy(made->name, like->name, sizeof(made->name));
    made->timeout_ms = like->timeout_ms;
    umf_result_t result = umf_link_open(made);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, sizeof(*made));
        return result;
    }
    *link = made;
    return UMF_RESULT_SUCCESS;
}

static void wait_link_end(umf_link_t *link) {
    umf_link_close(link);
    umf_meta_free(link, sizeof(*link));
}

static umf_result_t wait_once(umf_link_t *link, uint64_t after, uint64_t ms,
                              umf_vault_message_t *answer) {
    umf_link_call_t call = {.message = {.op = UMF_VAULT_WAIT, .words = {after, ms == 0}},
                            .timeout_ms = ms,
                            .is_wait = ms != 0};
    umf_result_t result = umf_link_call(link, &call);
    if (result == UMF_RESULT_SUCCESS && call.message.answer == UMF_VAULT_NONE) {
        umf_last_error_set("vault %s has no event in %llu ms", link->name, (unsigned long long)ms);
        umf_last_reason_set(UMF_REASON_TIMEOUT);
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    } else if (result == UMF_RESULT_SUCCESS) {
        result = umf_link_result(link, &call.message, link->name);
    }
    *answer = call.message;
    return result;
}

umf_result_t umf_vault_until(umf_vault_handle_t vault, umf_vault_attempt_t *attempt, void *arg,
                             umf_vault_answer_t again, uint64_t timeout_ms,
                             umf_vault_message_t *answer) {
    uint64_t start = umf_socket_now();
    umf_link_t *link = NULL;
    umf_result_t result;
    for (;;) {
        result = attempt(arg, answer);
        uint64_t passed = umf_socket_now() - start;
        if (result != UMF_RESULT_SUCCESS || answer->answer != again || passed >= timeout_ms) {
            break;
        }
        if (!link && (result = wait_link(vault, &link)) != UMF_RESULT_SUCCESS) {
            break;
        }
        umf_vault_message_t event;
        uint64_t left = timeout_ms - passed;
        result = wait_once(link, answer->event, left < WAIT_SLICE ? left : WAIT_SLICE, &event);
        if (result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
            break;
        }
    }
    if (link) {
        wait_link_end(link);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultWait(umf_vault_handle_t hVault, uint64_t after,
                                          uint64_t timeout_ms, umf_vault_event_t *event) {
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!event || event->struct_size < sizeof(*event)) {
        UMF_LOG_ERROR("event is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (hVault->is_folder) {
        return umf_vault_folder_wait(hVault, after, timeout_ms, event);
    }
    umf_link_t *link;
    umf_vault_message_t answer;
    umf_result_t result = wait_link(hVault, &link);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = wait_once(link, after, timeout_ms, &answer);
    wait_link_end(link);
    if (result == UMF_RESULT_SUCCESS) {
        event->number = answer.words[0];
        event->type = (umf_vault_event_type_t)answer.words[1];
        event->generation = answer.words[2];
    }
    return result;
}

/* --- open and close --------------------------------------------------------------------------- */

static umf_result_t params_check(const umf_vault_params_t *params, umf_link_t *link) {
    if (params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    link->starts = params->start != 0;
    link->timeout_ms = params->timeout_ms;
    link->limit = params->limit;
    link->keep = params->keep;
    if (umf_vault_is_in_folder(link->name)) {
        return umf_vault_folder_open(link);
    }
    bool fits = params->folder ? snprintf(link->folder, sizeof(link->folder), "%s",
                                          params->folder) < (int)sizeof(link->folder)
                               : umf_vault_place(link->folder);
    if (!fits || link->folder[0] == 0) {
        UMF_LOG_ERROR("the folder of the service must have 1 to %d bytes",
                      UMF_VAULT_PLACE_SIZE - 1);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t name_check(const char *name) {
    size_t length = name ? strlen(name) : 0;
    unsigned most =
        length && umf_vault_is_in_folder(name) ? UMF_VAULT_PLACE_SIZE - 1 : UMF_VAULT_NAME_MAX;
    if (length == 0 || length > most) {
        UMF_LOG_ERROR("the name of a vault has 1 to %u bytes, this one has %zu", most, length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static const umf_vault_params_t default_params = UMF_VAULT_PARAMS_INIT;

UMF_API_EXT_1_3 umf_result_t umfVaultOpen(const char *name, const umf_vault_params_t *params,
                                          umf_vault_handle_t *hVault) {
    umf_result_t result = name_check(name);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!hVault) {
        UMF_LOG_ERROR("hVault is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vault_handle_t vault = umf_handle_new(sizeof(*vault), &umf_vault_kind);
    if (!vault) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock_init(&vault->lock, UMF_RANK_VAULTS);
    memcpy(vault->link.name, name, strlen(name) + 1);
    vault->is_folder = umf_vault_is_in_folder(name);
    vault->link.in_child = umf_vault_claims_in_child;
    result = params_check(params ? params : &default_params, &vault->link);
    if (result == UMF_RESULT_SUCCESS && !vault->is_folder) {
        result = umf_link_open(&vault->link);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_lock_destroy(&vault->lock);
        umf_handle_delete(vault, sizeof(*vault), &umf_vault_kind, __func__);
        return result;
    }
    *hVault = vault;
    return UMF_RESULT_SUCCESS;
}

static void written_free(umf_vault_written_t *written) {
    for (size_t i = 0; i < written->count; i++) {
        umf_vault_range_end(&written->ranges[i]);
    }
    umf_meta_free(written, sizeof(*written) + written->count * sizeof(written->ranges[0]));
}

void umf_vault_written_end(umf_vault_handle_t vault, uint64_t generation) {
    umf_lock(&vault->lock);
    umf_vault_written_t **at = &vault->written;
    while (*at && (*at)->generation != generation) {
        at = &(*at)->next;
    }
    umf_vault_written_t *written = *at;
    *at = written ? written->next : NULL;
    umf_unlock(&vault->lock);
    if (written) {
        unsigned epoch = written->epoch;
        written_free(written);
        umf_vault_release(vault, generation, epoch);
    }
}

UMF_API_EXT_1_3 umf_result_t umfVaultClose(umf_vault_handle_t hVault) {
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_vault_devices_settle(hVault);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    hVault->link.is_closing = true;
    if (hVault->draft) {
        umfVaultAbort(hVault->draft);
    }
    while (hVault->views) {
        umf_vault_view_delete(hVault->views);
    }
    while (hVault->written) {
        umf_vault_written_t *written = hVault->written;
        hVault->written = written->next;
        written_free(written);
    }
    umf_vault_claims_end(hVault);
    umf_vault_devices_end(hVault);
    umf_link_close(&hVault->link);
    umf_lock_destroy(&hVault->lock);
    return umf_handle_delete(hVault, sizeof(*hVault), &umf_vault_kind, __func__);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void stat_copy(const umf_vault_stat_message_t *from, const umf_vault_message_t *answer,
                      umf_vault_stat_t *to) {
    to->current = from->current;
    to->generations = from->generations;
    to->bytes = from->bytes;
    to->readers = from->readers;
    to->limit = from->limit;
    to->restarts = from->restarts;
    to->event = answer->event;
    to->copy_bytes = answer->words[1];
    to->evicted = answer->words[2];
    to->writer = from->has_draft ? from->draft_pid : 0;
    to->device_bytes = from->device_bytes;
    to->devices = from->devices;
    to->claims = from->claims;
    to->service = answer->nonce;
    if (from->devices) {
        umf_vault_device_text(from->device, to->device);
    } else {
        to->device[0] = 0;
    }
}

UMF_API_EXT_1_3 umf_result_t umfVaultStat(umf_vault_handle_t hVault, umf_vault_stat_t *stat) {
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!stat || stat->struct_size < sizeof(*stat)) {
        UMF_LOG_ERROR("stat is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (hVault->is_folder) {
        return umf_vault_folder_stat(hVault, stat);
    }
    union {
        umf_vault_stat_message_t stat;
        char room[UMF_VAULT_BODY_MAX];
    } body;
    umf_link_call_t call = {.message = {.op = UMF_VAULT_STAT}, .answer = &body};
    umf_result_t result = umf_vault_ask(hVault, &call);
    if (result == UMF_RESULT_SUCCESS && call.message.body < sizeof(body.stat)) {
        UMF_LOG_ERROR("the service of vaults sends no state");
        result = UMF_RESULT_ERROR_UNKNOWN;
    }
    if (result == UMF_RESULT_SUCCESS) {
        stat_copy(&body.stat, &call.message, stat);
    }
    return result;
}

static umf_result_t drop(umf_vault_handle_t vault, uint64_t generation, uint64_t draft,
                         const char *function) {
    if (!umf_vault_check(vault, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_link_call_t call = {.message = {.op = UMF_VAULT_DROP, .words = {generation, draft}}};
    umf_result_t result = vault->is_folder ? umf_vault_folder_drop(vault, generation, draft != 0)
                                           : umf_vault_ask(vault, &call);
    if (result == UMF_RESULT_SUCCESS && !draft) {
        umf_vault_mark(vault, generation, generation ? "dropped" : "(all) dropped");
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultDrop(umf_vault_handle_t hVault, uint64_t generation) {
    return drop(hVault, generation, 0, __func__);
}

UMF_API_EXT_1_3 umf_result_t umfVaultDropDraft(umf_vault_handle_t hVault) {
    return drop(hVault, 0, 1, __func__);
}

/* --- the service ------------------------------------------------------------------------------ */

/* A connection about no vault; NULL: failed. */
static umf_result_t service_open(const umf_vault_params_t *params, umf_link_t **link) {
    umf_link_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for a connection");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = params_check(params ? params : &default_params, made);
    made->starts = false;
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_link_open(made);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, sizeof(*made));
        return result;
    }
    *link = made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t list_all(umf_link_t *link, umf_vault_visitor_t visitor, void *arg) {
    union {
        umf_vault_stat_message_t stat;
        char room[UMF_VAULT_BODY_MAX + 1];
    } body;
    for (uint64_t next = 0;;) {
        umf_link_call_t call = {.message = {.op = UMF_VAULT_LIST, .words = {next}},
                                .answer = &body};
        umf_result_t result = umf_link_call(link, &call);
        if (result == UMF_RESULT_SUCCESS) {
            result = umf_link_result(link, &call.message, link->folder);
        }
        if (result != UMF_RESULT_SUCCESS || call.message.words[0] <= next ||
            call.message.body <= sizeof(body.stat)) {
            return result;
        }
        next = call.message.words[0];
        body.room[call.message.body] = 0;
        umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
        stat_copy(&body.stat, &call.message, &stat);
        if (visitor(body.room + sizeof(body.stat), &stat, arg) != 0) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
}

UMF_API_EXT_1_3 umf_result_t umfVaultList(const umf_vault_params_t *params,
                                          umf_vault_visitor_t visitor, void *arg) {
    umf_link_t *link;
    if (!visitor) {
        UMF_LOG_ERROR("visitor is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = service_open(params, &link);
    if (result == UMF_RESULT_SUCCESS) {
        result = list_all(link, visitor, arg);
        wait_link_end(link);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultStop(const umf_vault_params_t *params, int drop_content) {
    umf_link_t *link;
    umf_result_t result = service_open(params, &link);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_link_call_t call = {.message = {.op = UMF_VAULT_STOP, .words = {drop_content != 0}},
                            .is_ending = true};
    result = umf_link_call(link, &call);
    if (result == UMF_RESULT_SUCCESS && call.message.answer != UMF_VAULT_OK) {
        result = umf_link_result(link, &call.message, "it has content, or");
    }
    wait_link_end(link);
    return result;
}
