#include "ext/vault/fill/fill.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <umf/memory_provider.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "ext/vault/transfer.h"
#include "system/os.h"

static const umf_memory_provider_ext_ops_t *ext_of(const umf_fill_t *fill) {
    return fill->device->provider->ext;
}
static void *self_of(const umf_fill_t *fill) {
    return fill->device->provider->self;
}

umf_result_t umf_fill_broken(const umf_fill_t *fill, const char *why) {
    return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "generation %llu of vault %s: %s", (unsigned long long)fill->generation,
                    fill->vault->link.name, why);
}

/* --- memory of the host ----------------------------------------------------------------------- */

static umf_result_t host_map(umf_fill_slab_t *slab, int fd, int prot) {
    void *at = NULL;
    int error = umf_os_map(&at, (size_t)slab->info.size, prot, MAP_SHARED, fd, 0);
    if (error != 0) {
        return umf_vault_no_memory(error, "mapping a copy of a slab");
    }
    slab->host = at;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t host_check(const umf_fill_t *fill, const umf_fill_slab_t *slab) {
    return umf_vault_is_sealed(slab->source, slab->info.size)
               ? UMF_RESULT_SUCCESS
               : umf_fill_broken(fill,
                                 "memory of the host has another size than its slab, or is not "
                                 "sealed");
}

umf_result_t umf_fill_map(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    umf_result_t result = host_check(fill, slab);
    return result ? result : host_map(slab, slab->source, PROT_READ);
}

umf_result_t umf_fill_host(umf_fill_slab_t *slab) {
    if (umf_memory_file("umf_vault_copy", &slab->made) != 0) {
        slab->made = -1;
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    int error = umf_os_truncate(slab->made, (size_t)slab->info.size);
    if (error != 0) {
        return umf_vault_no_memory(error, "making a copy of a slab");
    }
    umf_result_t result = host_map(slab, slab->made, PROT_READ | PROT_WRITE);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    /* A child that has them mapped writable would prevent the seal. */
    error = umf_os_advise(slab->host, (size_t)slab->info.size, MADV_DONTFORK);
    return error ? umf_vault_no_memory(error, "keeping a copy of a slab from children")
                 : UMF_RESULT_SUCCESS;
}

static void host_end(umf_fill_slab_t *slab) {
    if (slab->host) {
        umf_os_unmap(slab->host, (size_t)slab->info.size);
        slab->host = NULL;
    }
}

/* --- memory of the device --------------------------------------------------------------------- */

static umf_result_t memory_show(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    size_t size = (size_t)slab->info.size, granularity;
    void *at = NULL;
    slab->reserved = size;
    umf_result_t result =
        ext_of(fill)->range_reserve(self_of(fill), &slab->reserved, &granularity, &at);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    slab->memory = at;
    result = ext_of(fill)->vm_show(self_of(fill), at, &slab->source, &size, 1, fill->device->id);
    slab->is_shown = result == UMF_RESULT_SUCCESS;
    return result == UMF_RESULT_ERROR_INVALID_ARGUMENT
               ? umf_fill_broken(fill,
                                 "a slab is no memory of its device, or of another size than its "
                                 "table says")
               : result;
}

static umf_result_t memory_make(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    void *at;
    umf_vm_piece_t piece;
    umf_result_t result =
        umfMemoryProviderAlloc(fill->device->provider, (size_t)slab->info.size, 0, &at);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    slab->memory = at;
    result = ext_of(fill)->vm_find(self_of(fill), at, &piece);
    if (result == UMF_RESULT_SUCCESS && (piece.base != at || piece.size != slab->info.size)) {
        result = umf_fill_broken(fill, "a slab of a device is no multiple of its granularity");
    }
    return result;
}

static void memory_end(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    if (slab->is_shown) {
        ext_of(fill)->vm_hide(self_of(fill), slab->memory, (size_t)slab->info.size);
        slab->is_shown = false;
    }
    if (slab->memory && slab->reserved) {
        ext_of(fill)->range_release(self_of(fill), slab->memory, slab->reserved);
    } else if (slab->memory) {
        umfMemoryProviderFree(fill->device->provider, slab->memory, (size_t)slab->info.size);
    }
    slab->memory = NULL;
    slab->reserved = 0;
}

/* --- slabs ------------------------------------------------------------------------------------ */

static bool is_file(const umf_fill_slab_t *slab) {
    return slab->info.kind == UMF_VAULT_KIND_FILE;
}

static umf_result_t slab_open(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    if (umf_fill_makes_copies(fill)) {
        umf_result_t result = memory_show(fill, slab);
        return result ? result : umf_fill_host(slab);
    }
    umf_result_t result = is_file(slab) ? UMF_RESULT_SUCCESS : host_check(fill, slab);
    return result ? result : memory_make(fill, slab);
}

static umf_result_t to_host(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    umf_transfer_t transfer = {.provider = fill->device->provider,
                               .memory = slab->memory,
                               .size = (size_t)slab->info.size,
                               .fd = slab->made,
                               .has_sum = fill->has_sums};
    umf_result_t result = umf_transfer_run(&transfer);
    slab->sum = fill->has_sums ? transfer.sum : 0;
    return transfer.error ? umf_vault_no_memory(transfer.error, "making a copy of a slab") : result;
}

/* The copy is sealed, so it can be read at any time. */
static umf_result_t from_host(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    uint64_t sum = umf_fill_copied(&slab->info).sum;
    umf_transfer_t transfer = {.provider = fill->device->provider,
                               .memory = slab->memory,
                               .size = (size_t)slab->info.size,
                               .fd = slab->source,
                               .is_to_device = true,
                               .has_sum = sum != 0};
    umf_result_t result = umf_transfer_run(&transfer);
    if (transfer.error) {
        return umf_vault_no_memory(transfer.error, "reading a copy of a slab");
    }
    return result || !sum || sum == transfer.sum
               ? result
               : umf_fill_broken(
                     fill, "a copy has other content than at its snapshot: drop the generation");
}

static umf_result_t slab_copy(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    if (umf_fill_makes_copies(fill)) {
        return to_host(fill, slab);
    }
    return is_file(slab) ? umf_fill_read(fill, slab) : from_host(fill, slab);
}

umf_result_t umf_fill_fetch(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    umf_result_t result = memory_show(fill, slab);
    return result ? result : to_host(fill, slab);
}

umf_result_t umf_fill_check(const umf_fill_t *fill, const umf_fill_slab_t *slab) {
    const umf_table_t *table = &fill->table;
    for (uint32_t i = 0; table->digests && i < table->head->entries; i++) {
        const umf_table_entry_t *entry = &table->entries[i];
        if (table->digests[i] && table->slabs[entry->slab].serial == slab->info.serial &&
            umf_table_digest(slab->host + entry->offset, (size_t)entry->size) !=
                table->digests[i]) {
            return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            "entry %s of generation %llu of vault %s has other content than at its "
                            "commit: drop the generation",
                            umf_table_key(table, i), (unsigned long long)fill->generation,
                            fill->vault->link.name);
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t slab_check(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (umf_fill_makes_copies(fill)) {
        umf_vault_copied_t copied = {.sum = slab->sum};
        result = umf_fill_check(fill, slab);
        memcpy(slab->info.device, &copied, sizeof(copied));
        slab->info.kind = UMF_VAULT_KIND_HOST;
    } else {
        memcpy(slab->info.device, fill->device->id, sizeof(slab->info.device));
        slab->info.kind = UMF_VAULT_KIND_DEVICE;
    }
    return result;
}

static void slab_end(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    host_end(slab);
    memory_end(fill, slab);
    for (int *fd = &slab->source; fd; fd = fd == &slab->source ? &slab->made : NULL) {
        if (*fd != -1) {
            umf_os_close(*fd);
            *fd = -1;
        }
    }
}

static umf_result_t slabs_give(umf_fill_t *fill) {
    umf_vault_slab_t body[UMF_VAULT_GIVE_MAX];
    int fds[UMF_VAULT_GIVE_MAX];
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (unsigned i = 0; i < fill->count && result == UMF_RESULT_SUCCESS; i++) {
        umf_fill_slab_t *slab = &fill->slabs[i];
        host_end(slab); /* what is mapped writable cannot be sealed */
        result = umf_fill_makes_copies(fill)
                     ? result
                     : umf_vault_device_give(fill->device->provider, slab->memory, &slab->made);
        body[i] = slab->info;
        fds[i] = slab->made;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_link_call_t call = {
        .message = {.op = UMF_VAULT_FILLED, .words = {fill->generation, fill->what}},
        .body = body,
        .body_size = (uint32_t)(fill->count * sizeof(body[0])),
        .pass = fds,
        .passes = fill->count,
        .is_bound = true};
    return umf_vault_ask(fill->vault, &call);
}

static umf_result_t slabs_make(umf_fill_t *fill) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (unsigned i = 0; i < fill->count && result == UMF_RESULT_SUCCESS; i++) {
        umf_fill_slab_t *slab = &fill->slabs[i];
        result = slab_open(fill, slab);
        result = result ? result : slab_copy(fill, slab);
        result = result ? result : slab_check(fill, slab);
    }
    return result ? result : slabs_give(fill);
}

void umf_fill_cancel(umf_fill_t *fill) {
    for (unsigned i = 0; i < fill->count; i++) {
        slab_end(fill, &fill->slabs[i]);
    }
    fill->count = 0;
}

umf_result_t umf_fill_work(umf_fill_t *fill) {
    umf_result_t result = fill->count ? slabs_make(fill) : UMF_RESULT_SUCCESS;
    umf_fill_cancel(fill);
    return result;
}
