/* Vmm: memory of descriptors, also of other processes, that is mapped read-only, or shared with
 * them for writing. The mapping is all that keeps it: no handle stays. */
#include "base/log.h"
#include "providers/vmm/own.h"

/* A wrong descriptor has many outcomes. A driver that works no longer, as after a fault of queued
 * work, has them too, but then the question for its memory also fails. */
static umf_result_t refuse(umf_vmm_t *vmm, umf_result_t result, size_t size) {
    size_t memory;
    if (result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
        result == UMF_RESULT_ERROR_OUT_OF_RESOURCES ||
        (result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
         vmm->ops->memory(vmm, &memory) == result)) {
        return result;
    }
    UMF_LOG_ERROR("a descriptor is not that of %zu bytes of memory of this driver", size);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t map_one(umf_vmm_t *vmm, uintptr_t base, int fd, size_t size,
                            const unsigned char *id, int *number) {
    umf_physical_t physical;
    umf_result_t result = vmm->ops->import(vmm, fd, size, &physical);
    if (result != UMF_RESULT_SUCCESS) {
        return refuse(vmm, result, size);
    }
    result = id ? vmm->ops->check(vmm, physical, id, number) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS) {
        result = vmm->ops->map(vmm, base, size, physical);
        result = result ? refuse(vmm, result, size) : result;
    }
    vmm->ops->destroy(vmm, physical); /* a failure is logged, and keeps the memory */
    return result;
}

typedef umf_result_t allow_t(void *backend, uintptr_t base, size_t size);

static umf_result_t map_all(umf_vmm_t *vmm, void *at, const int *fds, const size_t *sizes,
                            size_t count, const unsigned char *id, allow_t *allow) {
    uintptr_t base = (uintptr_t)at, end = base;
    umf_result_t result = UMF_RESULT_SUCCESS;
    int number = -1;
    for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        if (sizes[i] == 0 || sizes[i] % vmm->carve.page_size != 0) {
            UMF_LOG_ERROR("memory of %zu bytes is no multiple of the granularity, %zu", sizes[i],
                          vmm->carve.page_size);
            result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
            break;
        }
        result = map_one(vmm, end, fds[i], sizes[i], id, &number);
        end += result == UMF_RESULT_SUCCESS ? sizes[i] : 0;
    }
    if (result == UMF_RESULT_SUCCESS && end != base) {
        result = allow(vmm, base, end - base);
    }
    if (result != UMF_RESULT_SUCCESS && end != base) {
        vmm->ops->unmap(vmm, base, end - base);
    }
    return result;
}

umf_result_t umf_vmm_show(void *provider, void *at, const int *fds, const size_t *sizes,
                          size_t count, const unsigned char *id) {
    umf_vmm_t *vmm = provider;
    return map_all(vmm, at, fds, sizes, count, id, vmm->ops->allow_read);
}

umf_result_t umf_vmm_share(void *provider, void *at, int fd, size_t size, const unsigned char *id) {
    umf_vmm_t *vmm = provider;
    return map_all(vmm, at, &fd, &size, 1, id, vmm->ops->allow);
}

umf_result_t umf_vmm_hide(void *provider, void *at, size_t size) {
    umf_vmm_t *vmm = provider;
    return vmm->ops->unmap(vmm, (uintptr_t)at, size);
}

umf_result_t umf_vmm_drop(void *provider, void *piece, size_t size) {
    return umf_vmm_unmap(provider, (uintptr_t)piece, size, true);
}
