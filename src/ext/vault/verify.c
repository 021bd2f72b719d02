/* Content of a view against the sums of its commit. */
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "ext/vault/device.h"
#include "system/checksum.h"
#include "system/os.h"

#define CHUNK ((size_t)4 << 20) /* of memory of a device that is read */

/* --- reading ---------------------------------------------------------------------------------- */

static umf_result_t sum_by(umf_memory_provider_handle_t provider, void *queue, const char *ptr,
                           size_t size, char *chunk, umf_sum_t *sum) {
    const umf_memory_provider_ext_ops_t *ext = provider->ext;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t at = 0; at < size && result == UMF_RESULT_SUCCESS; at += CHUNK) {
        size_t part = size - at < CHUNK ? size - at : CHUNK;
        result = ext->copy(provider->self, queue, chunk, ptr + at, part);
        umf_result_t waited = ext->queue_wait(provider->self, queue);
        result = result ? result : waited;
        umf_sum_add(sum, chunk, part);
    }
    return result;
}

umf_result_t umf_vault_device_digest(umf_memory_provider_handle_t provider, const void *ptr,
                                     size_t size, uint64_t *digest) {
    void *queue, *chunk = NULL;
    umf_sum_t sum;
    if (umf_os_map(&chunk, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
        0) {
        UMF_LOG_ERROR("no memory to read memory of a device");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = provider->ext->queue_create(provider->self, &queue);
    if (result == UMF_RESULT_SUCCESS) {
        umf_sum_begin(&sum, size);
        result = sum_by(provider, queue, ptr, size, chunk, &sum);
        provider->ext->queue_destroy(provider->self, queue);
    }
    umf_os_unmap(chunk, CHUNK);
    if (result == UMF_RESULT_SUCCESS) {
        *digest = umf_table_digest_of(umf_sum_end(&sum));
    }
    return result;
}

umf_result_t umf_vault_view_digest(umf_vault_view_handle_t view, uint32_t entry, uint64_t *digest) {
    const umf_table_entry_t *from = &view->table.entries[entry];
    const char *content = (const char *)view->bases[from->slab] + from->offset;
    const umf_vault_part_t *part = view->places ? view->places[from->slab].part : NULL;
    if (part) {
        return umf_vault_device_digest(part->device->provider, content, (size_t)from->size, digest);
    }
    *digest = umf_table_digest(content, (size_t)from->size);
    return UMF_RESULT_SUCCESS;
}

/* --- verify ----------------------------------------------------------------------------------- */

static bool has_digest(const umf_table_t *table, uint32_t i) {
    return table->digests && table->digests[i];
}

static umf_result_t entry_verify(umf_vault_view_handle_t view, uint32_t i) {
    const umf_table_t *table = &view->table;
    uint64_t digest;
    umf_result_t result = umf_vault_slab_reads(view, table->entries[i].slab);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vault_view_digest(view, i, &digest);
    }
    if (result != UMF_RESULT_SUCCESS || digest == table->digests[i]) {
        return result;
    }
    return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "entry %s of generation %llu of vault %s has other content than at its commit: "
                    "drop the generation",
                    umf_table_key(table, i), (unsigned long long)view->generation,
                    view->vault->link.name);
}

static umf_result_t no_digest(umf_vault_view_handle_t view, const char *key) {
    return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                    "%s of generation %llu of vault %s has no sum: its commit did not ask for one",
                    key, (unsigned long long)view->generation, view->vault->link.name);
}

UMF_API_EXT_1_3 umf_result_t umfVaultVerify(umf_vault_view_handle_t hView, const char *key) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_vault_view_reads(hView);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const umf_table_t *table = &hView->table;
    if (key) {
        uint32_t i = umf_table_find(table, key, strlen(key));
        if (i == UINT32_MAX) {
            return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            "generation %llu of vault %s has no entry %s",
                            (unsigned long long)hView->generation, hView->vault->link.name, key);
        }
        return has_digest(table, i) ? entry_verify(hView, i) : no_digest(hView, key);
    }
    bool has_one = false;
    for (uint32_t i = 0; i < table->head->entries && result == UMF_RESULT_SUCCESS; i++) {
        if (has_digest(table, i)) {
            has_one = true;
            result = entry_verify(hView, i);
        }
    }
    return has_one ? result : no_digest(hView, "each entry");
}
