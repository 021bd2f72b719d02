/* Copies of memory of devices in memory of the host, and memory that is made again from them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/fill/fill.h"
#include "system/os.h"

/* --- a generation ----------------------------------------------------------------------------- */

static umf_result_t table_map(umf_fill_t *fill, const umf_vault_slab_t *info, int fd) {
    const char *wrong = NULL;
    umf_result_t result = fill->table_at
                              ? UMF_RESULT_SUCCESS
                              : umf_vault_table_map(info, fd, &fill->table, &fill->table_at,
                                                    &fill->table_size, &wrong);
    return wrong ? umf_fill_broken(fill, wrong) : result;
}

uint32_t umf_fill_index(umf_fill_t *fill, uint64_t serial) {
    uint32_t count = fill->table.head->slabs;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = (fill->near + n) % count;
        if (fill->table.slabs[i].serial == serial) {
            fill->near = i + 1;
            return i;
        }
    }
    return UINT32_MAX;
}

/* One of the device that a slab is of. Slabs that the table does not have are those of keys that
 * were replaced before the commit: nobody reads them, so any device will do. NULL: none. */
static const umf_vault_slab_t *slab_like(umf_fill_t *fill, const umf_vault_slab_t *info) {
    uint32_t index = umf_fill_index(fill, info->serial);
    if (index < UINT32_MAX) {
        const umf_vault_slab_t *slab = &fill->table.slabs[index];
        return slab->kind == UMF_VAULT_KIND_DEVICE && slab->size == info->size ? slab : NULL;
    }
    if (umf_fill_makes_copies(fill)) {
        return info->kind == UMF_VAULT_KIND_DEVICE ? info : NULL;
    }
    for (uint32_t i = 0; i < fill->table.head->slabs; i++) {
        if (fill->table.slabs[i].kind == UMF_VAULT_KIND_DEVICE) {
            return &fill->table.slabs[i];
        }
    }
    return NULL;
}

static umf_result_t slab_take(void *arg, const umf_vault_slab_t *info, int *fd) {
    umf_fill_t *fill = arg;
    const umf_vault_slab_t *of = slab_like(fill, info);
    if (!of || info->size > SIZE_MAX / 2) {
        return umf_fill_broken(fill, "a slab is not as its table says");
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (fill->count == UMF_VAULT_GIVE_MAX ||
        (fill->count && memcmp(of->device, fill->device->id, sizeof(of->device)) != 0)) {
        result = umf_fill_work(fill);
    }
    if (result == UMF_RESULT_SUCCESS && fill->count == 0) {
        result = umf_vault_device_get(fill->vault, UMF_FILL_MEMORY, of->device, &fill->device);
    }
    if (result == UMF_RESULT_SUCCESS) {
        fill->slabs[fill->count++] = (umf_fill_slab_t){.info = *info, .source = *fd, .made = -1};
        *fd = -1;
    }
    return result;
}

umf_result_t umf_fill_each(umf_fill_t *fill, umf_fill_take_t *take, void *arg) {
    umf_vault_slab_t info;
    unsigned count = fill->call.passed_count;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (fill->call.message.body != count * sizeof(info) || count == 0) {
        result = umf_fill_broken(fill, "the service sends no slabs");
    }
    for (unsigned i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        memcpy(&info, fill->body + i * sizeof(info), sizeof(info));
        result = i == 0 ? table_map(fill, &info, fill->fds[0]) : take(arg, &info, &fill->fds[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        if (fill->fds[i] != -1) {
            umf_os_close(fill->fds[i]);
        }
    }
    return result;
}

/* The slabs of one answer. */
static umf_result_t fill_some(umf_fill_t *fill) {
    umf_result_t result = fill->call.passed_count < 2
                              ? umf_fill_broken(fill, "the service sends no slabs")
                              : umf_fill_each(fill, slab_take, fill);
    if (result != UMF_RESULT_SUCCESS) { /* nothing more is made */
        umf_fill_cancel(fill);
    }
    return result ? result : umf_fill_work(fill);
}

static umf_result_t fill_ask(void *arg, umf_vault_message_t *answer) {
    umf_fill_t *fill = arg;
    fill->call = (umf_link_call_t){
        .message = {.op = UMF_VAULT_FILL,
                    .words = {fill->generation, fill->what, fill->file, fill->next}},
        .answer = fill->body,
        .passed = fill->fds};
    umf_result_t result = umf_link_call(&fill->vault->link, &fill->call);
    *answer = fill->call.message;
    return result;
}

umf_result_t umf_fill_ask(umf_fill_t *fill, uint64_t timeout_ms, umf_vault_message_t *answer) {
    umf_result_t result =
        umf_vault_until(fill->vault, fill_ask, fill, UMF_VAULT_BUSY, timeout_ms, answer);
    fill->generation = fill->generation ? fill->generation : answer->words[0];
    return result ? result : umf_link_result(&fill->vault->link, answer, fill->vault->link.name);
}

static umf_result_t fill_round(umf_fill_t *fill, uint64_t timeout_ms, bool *is_complete) {
    umf_vault_message_t answer;
    umf_result_t result = umf_fill_ask(fill, timeout_ms, &answer);
    *is_complete = result == UMF_RESULT_SUCCESS && answer.words[1] == 0;
    return result == UMF_RESULT_SUCCESS && !*is_complete ? fill_some(fill) : result;
}

void umf_fill_end(umf_fill_t *fill) {
    umf_link_call_t end = {
        .message = {.op = UMF_VAULT_FILL, .words = {fill->generation, UMF_VAULT_FILL_END}},
        .is_bound = true};
    umf_reason_t reason = umfLastReason();
    umf_link_call(&fill->vault->link, &end);
    umf_last_reason_set(reason);
}

/* After a failure the fill ends, also if only the answer was lost, as without room for its
 * descriptors: others would wait for this client. */
static umf_result_t fill_all(umf_fill_t *fill, uint64_t timeout_ms) {
    bool is_complete = false;
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (result == UMF_RESULT_SUCCESS && !is_complete) {
        result = fill_round(fill, timeout_ms, &is_complete);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_fill_end(fill);
    }
    return result;
}

/* `folder`: of a file; NULL: none. */
static umf_result_t fill_make(umf_vault_handle_t vault, uint64_t generation, umf_vault_fill_t what,
                              bool has_sums, const char *folder, uint64_t timeout_ms) {
    umf_fill_t *fill = umf_meta_alloc(sizeof(*fill));
    if (!fill) {
        return umf_vault_no_memory(ENOMEM, "copying a generation");
    }
    fill->vault = vault;
    fill->generation = generation;
    fill->what = what;
    fill->has_sums = has_sums;
    umf_link_lock_take(&vault->filling);
    umf_result_t result =
        folder ? umf_fill_store(fill, folder, timeout_ms) : fill_all(fill, timeout_ms);
    umf_link_lock_end(&vault->filling);
    if (fill->table_at) {
        umf_os_unmap(fill->table_at, fill->table_size);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_vault_mark(vault, fill->generation,
                       what == UMF_VAULT_FILL_DEVICES ? "refilled" : "snapshot taken");
    }
    umf_meta_free(fill, sizeof(*fill));
    return result;
}

umf_result_t umf_vault_refill(umf_vault_handle_t vault, uint64_t generation, uint64_t timeout_ms) {
    uint64_t least = vault->link.timeout_ms;
    return fill_make(vault, generation, UMF_VAULT_FILL_DEVICES, false, NULL,
                     timeout_ms > least ? timeout_ms : least);
}

/* --- for the application ---------------------------------------------------------------------- */

static umf_result_t of_service(umf_vault_handle_t vault, const char *what) {
    return vault->is_folder
               ? UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                          "%s: a folder has no memory of devices, so there is nothing to %s",
                          vault->link.name, what)
               : UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfVaultSnapshot(umf_vault_handle_t hVault, uint64_t generation,
                                              const umf_vault_snapshot_params_t *params) {
    static const umf_vault_snapshot_params_t defaults = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params = params ? params : &defaults;
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("struct_size of the parameters is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = of_service(hVault, "copy");
    return result ? result
                  : fill_make(hVault, generation,
                              params->folder ? UMF_VAULT_FILL_FILES : UMF_VAULT_FILL_COPIES,
                              params->digest != 0, params->folder, params->timeout_ms);
}

UMF_API_EXT_1_3 umf_result_t umfVaultEvict(umf_vault_handle_t hVault, uint64_t generation) {
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = of_service(hVault, "evict");
    umf_link_call_t call = {.message = {.op = UMF_VAULT_EVICT, .words = {generation}}};
    result = result ? result : umf_vault_ask(hVault, &call);
    if (result == UMF_RESULT_SUCCESS) {
        umf_vault_mark(hVault, generation, generation ? "evicted" : "(all) evicted");
    }
    return result;
}
