/* Claims of memory of devices: it is made, mapped for writing, and unmapped. */
#include <string.h>

#include <umf/text.h>

#include "base/last_error.h"
#include "base/log.h"
#include "ext/vault/claim.h"
#include "system/os.h"

/* --- new memory ------------------------------------------------------------------------------- */

umf_result_t umf_vault_memory_make(const umf_vault_memory_maker_t *maker, int *fd) {
    umf_memory_provider_handle_t provider = maker->provider;
    umf_vm_piece_t piece;
    void *memory;
    umf_result_t result = umfMemoryProviderAlloc(provider, maker->size, 0, &memory);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_vault_device_clear(provider, memory, maker->size);
    if (result == UMF_RESULT_SUCCESS) {
        result = provider->ext->vm_find(provider->self, memory, &piece);
    }
    if (result == UMF_RESULT_SUCCESS && (piece.base != memory || piece.size != maker->size)) {
        UMF_LOG_ERROR("%zu bytes are no piece of memory of a device", maker->size);
        result = UMF_RESULT_ERROR_UNKNOWN;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vault_device_give(provider, memory, fd);
    }
    umfMemoryProviderFree(provider, memory, maker->size);
    return result;
}

umf_result_t umf_vault_memory_begin(const char *text, size_t size,
                                    umf_vault_memory_maker_t *maker) {
    char full[256];
    int number, length = snprintf(full, sizeof(full), "%s%cshare=fd,piece_size=4K", text,
                                  strchr(text, ':') ? ',' : ':');
    if (length >= (int)sizeof(full)) {
        UMF_LOG_ERROR("'%.200s': the text of a provider for devices is too long", text);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umfMemoryProviderCreateFromText(full, &maker->provider);
    if (result != UMF_RESULT_SUCCESS) {
        maker->provider = NULL;
        return result;
    }
    const umf_memory_provider_ext_ops_t *ext = maker->provider->ext;
    size_t granularity;
    void *base;
    if (!ext->vm_device || !ext->vm_share || !ext->range_reserve) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "'%s' has no memory that other processes can write: cuda_vmm has", text);
    }
    result = ext->vm_device(maker->provider->self, maker->id, &number);
    maker->size = size;
    if (result == UMF_RESULT_SUCCESS) {
        result = ext->range_reserve(maker->provider->self, &maker->size, &granularity, &base);
    }
    return result == UMF_RESULT_SUCCESS
               ? ext->range_release(maker->provider->self, base, maker->size)
               : result;
}

void umf_vault_memory_end(umf_vault_memory_maker_t *maker) {
    if (maker->provider) {
        umfMemoryProviderDestroy(maker->provider);
    }
    maker->provider = NULL;
}

/* --- memory that is held ---------------------------------------------------------------------- */

umf_result_t umf_vault_memory_map(umf_vault_handle_t vault, const char *text,
                                  const unsigned char id[UMF_VAULT_DEVICE_SIZE], int fd,
                                  size_t size, umf_vault_held_memory_t *memory) {
    umf_vault_device_t *device;
    umf_result_t result = umf_vault_device_get(vault, text, id, &device);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const umf_memory_provider_ext_ops_t *ext = device->provider->ext;
    void *self = device->provider->self, *base;
    size_t reserved = size, granularity;
    if (!ext->vm_share) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "'%s' maps no memory of other processes for writing: cuda_vmm does", text);
    }
    result = ext->range_reserve(self, &reserved, &granularity, &base);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = ext->vm_share(self, base, fd, size, id);
    if (result != UMF_RESULT_SUCCESS) {
        ext->range_release(self, base, reserved);
        return result == UMF_RESULT_ERROR_INVALID_ARGUMENT
                   ? UMF_FAIL(UMF_REASON_BROKEN, result,
                              "a claim of vault %s is broken: its memory is not of its device, or "
                              "of another size than the service says: forget it",
                              vault->link.name)
                   : result;
    }
    *memory = (umf_vault_held_memory_t){
        .device = device, .base = base, .size = size, .reserved = reserved};
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_memory_settle(const umf_vault_held_memory_t *memory) {
    return memory->device ? umf_vault_settle(memory->device->provider) : UMF_RESULT_SUCCESS;
}

void umf_vault_memory_unmap(umf_vault_held_memory_t *memory) {
    if (memory->device) {
        const umf_memory_provider_ext_ops_t *ext = memory->device->provider->ext;
        ext->vm_hide(memory->device->provider->self, memory->base, memory->size);
        ext->range_release(memory->device->provider->self, memory->base, memory->reserved);
    }
    memory->device = NULL;
}
