/* Copies of memory of devices in memory of the host, and memory that is made again from them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/fill/fill.h"
#include "system/os.h"

/* A piece of its own for each slab. */
#define MEMORY UMF_VAULT_DEVICES ":piece_size=4K"

/* --- a generation ----------------------------------------------------------------------------- */

static umf_result_t table_map(umf_fill_t *fill, const umf_vault_slab_t *info, int fd) {
    const char *wrong = NULL;
    umf_result_t result = fill->table_at
                              ? UMF_RESULT_SUCCESS
                              : umf_vault_table_map(info, fd, &fill->table, &fill->table_at,
                                                    &fill->table_size, &wrong);
    return wrong ? umf_fill_broken(fill, wrong) : result;
}

/* The slab as the table has it. NULL: it has none. */
static const umf_vault_slab_t *slab_named(umf_fill_t *fill, uint64_t serial) {
    uint32_t count = fill->table.head->slabs;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = (fill->near + n) % count;
        if (fill->table.slabs[i].serial == serial) {
            fill->near = i + 1;
            return &fill->table.slabs[i];
        }
    }
    return NULL;
}

/* One of the device that a slab is of. Slabs that the table does not have are those of keys that
 * were replaced before the commit: nobody reads them, so any device will do. NULL: none. */
static const umf_vault_slab_t *slab_like(umf_fill_t *fill, const umf_vault_slab_t *info) {
    const umf_vault_slab_t *slab = slab_named(fill, info->serial);
    if (slab) {
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

static umf_result_t slab_take(umf_fill_t *fill, const umf_vault_slab_t *info, int *fd) {
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
        result = umf_vault_device_get(fill->vault, MEMORY, of->device, &fill->device);
    }
    if (result == UMF_RESULT_SUCCESS) {
        fill->slabs[fill->count++] = (umf_fill_slab_t){.info = *info, .source = *fd, .made = -1};
        *fd = -1;
    }
    return result;
}

/* The slabs of one answer. */
static umf_result_t fill_some(umf_fill_t *fill) {
    umf_vault_slab_t info;
    unsigned count = fill->call.passed_count;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (fill->call.message.body != count * sizeof(info) || count < 2) {
        result = umf_fill_broken(fill, "the service sends no slabs");
    }
    for (unsigned i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        memcpy(&info, fill->body + i * sizeof(info), sizeof(info));
        result =
            i == 0 ? table_map(fill, &info, fill->fds[0]) : slab_take(fill, &info, &fill->fds[i]);
    }
    if (result != UMF_RESULT_SUCCESS) { /* nothing more is made */
        umf_fill_cancel(fill);
    }
    result = result ? result : umf_fill_work(fill);
    for (unsigned i = 0; i < count; i++) {
        if (fill->fds[i] != -1) {
            umf_os_close(fill->fds[i]);
        }
    }
    return result;
}

static umf_result_t fill_ask(void *arg, umf_vault_message_t *answer) {
    umf_fill_t *fill = arg;
    fill->call = (umf_link_call_t){
        .message = {.op = UMF_VAULT_FILL, .words = {fill->generation, fill->what}},
        .answer = fill->body,
        .passed = fill->fds};
    umf_result_t result = umf_link_call(&fill->vault->link, &fill->call);
    *answer = fill->call.message;
    return result;
}

static umf_result_t fill_round(umf_fill_t *fill, uint64_t timeout_ms, bool *is_complete) {
    umf_vault_message_t answer;
    umf_result_t result =
        umf_vault_until(fill->vault, fill_ask, fill, UMF_VAULT_BUSY, timeout_ms, &answer);
    fill->generation = fill->generation ? fill->generation : answer.words[0];
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_link_result(&fill->vault->link, &answer, fill->vault->link.name);
    }
    *is_complete = result == UMF_RESULT_SUCCESS && answer.words[1] == 0;
    return result == UMF_RESULT_SUCCESS && !*is_complete ? fill_some(fill) : result;
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
        umf_link_call_t end = {
            .message = {.op = UMF_VAULT_FILL, .words = {fill->generation, UMF_VAULT_FILL_END}},
            .is_bound = true};
        umf_reason_t reason = umfLastReason();
        umf_link_call(&fill->vault->link, &end);
        umf_last_reason_set(reason);
    }
    return result;
}

static umf_result_t fill_make(umf_vault_handle_t vault, uint64_t generation, umf_vault_fill_t what,
                              bool has_sums, uint64_t timeout_ms) {
    umf_fill_t *fill = umf_meta_alloc(sizeof(*fill));
    if (!fill) {
        return umf_vault_no_memory(ENOMEM, "copying a generation");
    }
    fill->vault = vault;
    fill->generation = generation;
    fill->what = what;
    fill->has_sums = has_sums;
    fill->pins = true;
    umf_link_lock_take(&vault->filling);
    umf_result_t result = fill_all(fill, timeout_ms);
    umf_link_lock_end(&vault->filling);
    if (fill->table_at) {
        umf_os_unmap(fill->table_at, fill->table_size);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_vault_mark(vault, fill->generation,
                       what == UMF_VAULT_FILL_COPIES ? "snapshot taken" : "refilled");
    }
    umf_meta_free(fill, sizeof(*fill));
    return result;
}

umf_result_t umf_vault_refill(umf_vault_handle_t vault, uint64_t generation, uint64_t timeout_ms) {
    uint64_t least = vault->link.timeout_ms;
    return fill_make(vault, generation, UMF_VAULT_FILL_DEVICES, false,
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
                  : fill_make(hVault, generation, UMF_VAULT_FILL_COPIES, params->digest != 0,
                              params->timeout_ms);
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
