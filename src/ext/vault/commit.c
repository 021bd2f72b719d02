/* The commit of a draft: its memory is unmapped, sealed by the daemon, and mapped read-only where
 * it was. docs/vault.md has the steps. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "ext/vault/content.h"
#include "ext/vault/device.h"
#include "ext/vault/folder/folder.h"
#include "system/os.h"
#include "system/socket.h"

/* Ordinals of tables, behind those of slabs. */
#define TABLE_ORDINAL (UINT32_C(1) << 20)

/* --- slabs ------------------------------------------------------------------------------------ */

static const umf_memory_provider_ext_ops_t *ext_of(const umf_vault_draft_slab_t *slab) {
    return slab->pool->provider->ext;
}

umf_result_t umf_vault_slab_unmap(umf_vault_draft_slab_t *slab) {
    void *self = slab->pool->provider->self;
    umf_vm_piece_t piece;
    int is_claimed = 0;
    size_t size;
    umf_result_t result = ext_of(slab)->vm_find(self, slab->base, &piece);
    if (result == UMF_RESULT_SUCCESS) {
        result = ext_of(slab)->vm_claim(self, &slab->base, &piece.allocations, 1, &is_claimed);
    }
    if (result != UMF_RESULT_SUCCESS || !is_claimed) {
        UMF_LOG_ERROR("memory at %p cannot be taken from its pool: it was freed, or is used by a "
                      "suspend",
                      slab->base);
        return result ? result : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    result = ext_of(slab)->vm_give(self, slab->base, &slab->fd, &size);
    if (result == UMF_RESULT_SUCCESS) {
        result = ext_of(slab)->vm_detach(self, &slab->base, 1);
    }
    if (result != UMF_RESULT_SUCCESS) {
        ext_of(slab)->vm_attach(self, &slab->base, 1); /* it may be unmapped by now */
        ext_of(slab)->vm_release(self, &slab->base, 1);
        if (slab->fd != -1) {
            umf_os_close(slab->fd);
            slab->fd = -1;
        }
        return result;
    }
    slab->is_away = true;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_slab_map(umf_vault_draft_slab_t *slab, bool is_sealed) {
    void *self = slab->pool->provider->self;
    umf_result_t result =
        ext_of(slab)->vm_take(self, slab->base, slab->fd, slab->size, is_sealed ? 0 : 1);
    if (result == UMF_RESULT_SUCCESS && is_sealed) {
        slab->is_shown = true;
    } else if (result == UMF_RESULT_SUCCESS) {
        slab->is_away = false;
        ext_of(slab)->vm_release(self, &slab->base, 1);
    }
    return result;
}

static void slab_close(umf_vault_draft_slab_t *slab) {
    umf_os_close(slab->fd);
    slab->fd = -1;
}

/* Memory of a device is never sealed, but the daemon has what it has given a serial. */
static bool is_sealed(const umf_vault_draft_slab_t *slab) {
    if (slab->kind == UMF_VAULT_KIND_DEVICE) {
        return slab->serial != 0;
    }
    int seals = fcntl(slab->fd, F_GET_SEALS);
    return seals != -1 && (seals & F_SEAL_WRITE) != 0;
}

/* After a failure: everything that is not sealed is as it was. Memory that cannot be mapped is left
 * to the next commit, which reads it. The first result that is none. */
static umf_result_t slabs_restore(umf_vault_draft_handle_t draft) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < draft->slabs.count; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (!slab->is_away || slab->is_shown) {
            continue;
        }
        bool was_sealed = is_sealed(slab);
        umf_result_t result = umf_vault_slab_map(slab, was_sealed);
        if (result == UMF_RESULT_SUCCESS && !was_sealed) {
            slab_close(slab);
        }
        first = first ? first : result;
    }
    return first;
}

/* The mappings of a process that has ended stay for a moment if another process reads its /proc
 * files, so a slab that is mapped writable is offered again before it is refused. */
#define WRITABLE_MS 100

static umf_result_t ask(umf_vault_draft_handle_t draft, umf_link_call_t *call, const char *what) {
    call->message.words[0] = draft->number;
    call->is_bound = true;
    umf_vault_message_t request = call->message;
    uint64_t until = umf_socket_now() + WRITABLE_MS;
    umf_result_t result = umf_link_call(&draft->vault->link, call);
    while (result == UMF_RESULT_SUCCESS && call->message.answer == UMF_VAULT_WRITABLE &&
           umf_socket_now() < until) {
        umf_link_nap(2);
        call->message = request;
        result = umf_link_call(&draft->vault->link, call);
    }
    return result == UMF_RESULT_SUCCESS ? umf_link_result(&draft->vault->link, &call->message, what)
                                        : result;
}

static umf_vault_slab_t slab_info(const umf_vault_draft_slab_t *slab) {
    umf_vault_slab_t info = {
        .serial = slab->serial, .size = slab->size, .role = slab->role, .kind = slab->kind};
    memcpy(info.device, slab->device, sizeof(info.device));
    return info;
}

/* Hands adjacent slabs of the draft over. */
static umf_result_t slabs_give(umf_vault_draft_handle_t draft, size_t first, uint32_t count) {
    umf_vault_slab_t body[UMF_VAULT_GIVE_MAX];
    int fds[UMF_VAULT_GIVE_MAX];
    union {
        uint64_t serials[UMF_VAULT_GIVE_MAX];
        char room[UMF_VAULT_BODY_MAX];
    } answer;
    for (uint32_t i = 0; i < count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, first + i);
        body[i] = slab_info(slab);
        body[i].serial = 0;
        fds[i] = slab->fd;
    }
    umf_link_call_t call = {.message = {.op = UMF_VAULT_GIVE, .words = {0, first}},
                            .body = body,
                            .body_size = (uint32_t)(count * sizeof(body[0])),
                            .pass = fds,
                            .passes = count,
                            .answer = &answer};
    umf_result_t result = ask(draft, &call, draft->vault->link.name);
    if (result == UMF_RESULT_SUCCESS && call.message.body != count * sizeof(uint64_t)) {
        UMF_LOG_ERROR("the service of vaults does not say what it has");
        result = UMF_RESULT_ERROR_UNKNOWN;
    }
    for (uint32_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, first + i);
        slab->serial = answer.serials[i];
        if (!slab->is_shown) {
            result = umf_vault_slab_map(slab, true);
        }
        if (result == UMF_RESULT_SUCCESS) {
            slab_close(slab);
        }
    }
    return result;
}

static bool is_to_give(const umf_vault_draft_slab_t *slab) {
    return slab->is_used && slab->pool && slab->role != UMF_VAULT_CLASS_ZERO && !slab->serial;
}

static umf_result_t give_all(umf_vault_draft_handle_t draft) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t total = draft->slabs.count;
    for (unsigned i = 0; i < draft->pool_count && result == UMF_RESULT_SUCCESS; i++) {
        if (draft->kinds[i] == UMF_VAULT_KIND_DEVICE) {
            result = umf_vault_settle(draft->pools[i]->provider);
        }
    }
    for (size_t i = 0; i < total && result == UMF_RESULT_SUCCESS; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (is_to_give(slab) && !slab->is_away) {
            result = umf_vault_slab_unmap(slab);
        }
    }
    for (size_t i = 0, n; i < total && result == UMF_RESULT_SUCCESS; i += n ? n : 1) {
        n = 0;
        while (n < UMF_VAULT_GIVE_MAX && i + n < total &&
               is_to_give(umf_vault_draft_slab(draft, i + n))) {
            n++;
        }
        result = n ? slabs_give(draft, i, (uint32_t)n) : UMF_RESULT_SUCCESS;
    }
    return result;
}

static umf_result_t keep_all(umf_vault_draft_handle_t draft) {
    uint64_t serials[512];
    uint32_t count = 0;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i <= draft->slabs.count && result == UMF_RESULT_SUCCESS; i++) {
        bool is_end = i == draft->slabs.count;
        const umf_vault_draft_slab_t *slab = is_end ? NULL : umf_vault_draft_slab(draft, i);
        if (slab && slab->is_used && !slab->pool && slab->serial) {
            serials[count++] = slab->serial;
        }
        if (count && (is_end || count == UMF_COUNT_OF(serials))) {
            umf_link_call_t call = {.message = {.op = UMF_VAULT_KEEP},
                                    .body = serials,
                                    .body_size = (uint32_t)(count * sizeof(serials[0]))};
            result = ask(draft, &call, draft->vault->link.name);
            count = 0;
        }
    }
    return result;
}

/* --- the table -------------------------------------------------------------------------------- */

static umf_result_t table_make(umf_vault_draft_handle_t draft, const umf_vault_content_t *content,
                               bool has_digests, int *fd, size_t *size) {
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->is_used) {
            content->table_slabs[slab->index] = slab_info(slab);
        }
    }
    *size = umf_table_size(content->entries, content->count, content->slabs, draft->identity_size) +
            (has_digests ? content->count * sizeof(uint64_t) : 0);
    void *at = NULL;
    int error = umf_memory_file("umf_vault_table", fd);
    if (error != 0) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    error = umf_os_truncate(*fd, *size);
    if (error == 0) {
        error = umf_os_map(&at, *size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    }
    if (error != 0) {
        errno = error;
        UMF_LOG_PERROR("a table of %zu bytes", *size);
        umf_os_close(*fd);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_table_write(at, *size, content->entries, content->count, content->table_slabs,
                    content->slabs, draft->identity, draft->identity_size);
    umf_os_unmap(at, *size);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t table_give(umf_vault_draft_handle_t draft, const umf_vault_content_t *content,
                               bool has_digests) {
    int fd;
    size_t size;
    umf_result_t result = table_make(draft, content, has_digests, &fd, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_vault_slab_t body = {
        .size = size, .role = UMF_VAULT_CLASS_TABLE, .kind = UMF_VAULT_KIND_HOST};
    umf_link_call_t call = {
        .message = {.op = UMF_VAULT_GIVE, .words = {0, TABLE_ORDINAL + draft->tables++}},
        .body = &body,
        .body_size = sizeof(body),
        .pass = &fd,
        .passes = 1};
    result = ask(draft, &call, "the table");
    umf_os_close(fd);
    return result;
}

/* --- commit ----------------------------------------------------------------------------------- */

typedef struct last_step_t {
    umf_vault_draft_handle_t draft;
    const umf_vault_commit_params_t *params;
} last_step_t;

static umf_result_t last_step(void *arg, umf_vault_message_t *answer) {
    const last_step_t *step = arg;
    const char *group = step->params->group ? step->params->group : "";
    umf_link_call_t call = {.message = {.op = UMF_VAULT_COMMIT,
                                        .words = {step->draft->number, step->params->group_count}},
                            .body = group,
                            .body_size = (uint32_t)strlen(group),
                            .is_bound = true};
    umf_result_t result = umf_link_call(&step->draft->vault->link, &call);
    *answer = call.message;
    return result;
}

static umf_result_t commit_at_daemon(umf_vault_draft_handle_t draft,
                                     const umf_vault_commit_params_t *params) {
    last_step_t step = {.draft = draft, .params = params};
    umf_vault_message_t answer;
    umf_result_t result = umf_vault_until(draft->vault, last_step, &step, UMF_VAULT_PENDING,
                                          params->timeout_ms, &answer);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_link_result(&draft->vault->link, &answer, draft->vault->link.name);
    }
    if (result != UMF_RESULT_SUCCESS && params->group) { /* its members are not committed later */
        umf_link_call_t call = {.message = {.op = UMF_VAULT_ABORT, .words = {draft->number}},
                                .is_bound = true};
        umf_link_call(&draft->vault->link, &call);
    }
    return result;
}

/* A process that is killed leaves its memory to the driver, but one that closes the vault unmaps
 * it, when the pools are gone: with a provider of the vault. */
static umf_result_t device_of(umf_vault_draft_handle_t draft, const umf_vault_draft_slab_t *slab,
                              umf_vault_device_t **device) {
    *device = NULL;
    return slab->kind == UMF_VAULT_KIND_DEVICE
               ? umf_vault_device_get(draft->vault, UMF_VAULT_DEVICES, slab->device, device)
               : UMF_RESULT_SUCCESS;
}

/* Providers that written_add finds. */
static umf_result_t devices_open(umf_vault_draft_handle_t draft) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < draft->slabs.count && result == UMF_RESULT_SUCCESS; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        umf_vault_device_t *device;
        result = slab->pool ? device_of(draft, slab, &device) : result;
    }
    return result;
}

/* What stays mapped here after the commit. */
static umf_vault_written_t *written_make(umf_vault_draft_handle_t draft) {
    size_t count = 0;
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        count += slab->pool != NULL;
    }
    umf_vault_written_t *written =
        umf_meta_alloc(sizeof(*written) + count * sizeof(written->ranges[0]));
    if (written) {
        written->count = count;
        written->generation = draft->number;
        written->epoch = draft->epoch;
    }
    return written;
}

static void written_add(umf_vault_draft_handle_t draft, umf_vault_written_t *written) {
    size_t n = 0;
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->is_shown) {
            umf_vault_range_t *range = &written->ranges[n++];
            *range = (umf_vault_range_t){.base = slab->base, .size = slab->size};
            device_of(draft, slab, &range->device);
        }
    }
    umf_lock(&draft->vault->lock);
    written->next = draft->vault->written;
    draft->vault->written = written;
    umf_unlock(&draft->vault->lock);
}

static umf_result_t commit_steps(umf_vault_draft_handle_t draft, umf_vault_content_t *content,
                                 const umf_vault_commit_params_t *params) {
    umf_result_t result = slabs_restore(draft);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_vault_content_init(draft, content);
    if (result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY) {
        UMF_LOG_ERROR("no memory for the entries of a commit");
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (draft->vault->is_folder) {
        return umf_vault_folder_commit(draft, content);
    }
    result = devices_open(draft);
    if (result == UMF_RESULT_SUCCESS) {
        result = give_all(draft);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = keep_all(draft);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = params->digest ? umf_vault_content_sum(draft, content) : result;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = table_give(draft, content, params->digest != 0);
    }
    return result == UMF_RESULT_SUCCESS ? commit_at_daemon(draft, params) : result;
}

static umf_result_t commit_check(umf_vault_draft_handle_t draft,
                                 const umf_vault_commit_params_t *params) {
    if (params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t length = params->group ? strlen(params->group) : 1;
    if (length == 0 || length > UMF_VAULT_NAME_MAX ||
        (params->group && (params->group_count == 0 || params->group_count > 64))) {
        UMF_LOG_ERROR("a group has a name of 1 to %u bytes and 1 to 64 members",
                      UMF_VAULT_NAME_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->group && draft->vault->is_folder) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "%s: groups are for vaults of the service", draft->vault->link.name);
    }
    if (draft->epoch != draft->vault->link.epoch) {
        UMF_LOG_ERROR("vault %s: the service has ended and lost the draft: abort it",
                      draft->vault->link.name);
        umf_last_reason_set(UMF_REASON_STALE);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultCommit(umf_vault_draft_handle_t hDraft,
                                            const umf_vault_commit_params_t *params,
                                            uint64_t *generation) {
    static const umf_vault_commit_params_t defaults = UMF_VAULT_COMMIT_PARAMS_INIT;
    params = params ? params : &defaults;
    if (!umf_vault_draft_check(hDraft, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = commit_check(hDraft, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_vault_content_t content = {0};
    umf_vault_written_t *written = written_make(hDraft);
    result = written ? commit_steps(hDraft, &content, params) : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    umf_vault_content_fini(&content);
    if (result != UMF_RESULT_SUCCESS) {
        slabs_restore(hDraft);
        umf_meta_free(written,
                      written ? sizeof(*written) + written->count * sizeof(written->ranges[0]) : 0);
        return result;
    }
    uint64_t number = hDraft->number;
    umf_vault_mark(hDraft->vault, number, "committed");
    written_add(hDraft, written);
    umf_vault_draft_free(hDraft, true);
    if (generation) {
        *generation = number;
    }
    return UMF_RESULT_SUCCESS;
}
