/* Which memory of other devices the copies of a context reach. */
#include "base/lock.h"
#include "base/log.h"
#include "providers/cuda/copy.h"

/* --- memory that is not virtual: a context may access that of another one --------------------- */

typedef struct pair_t {
    CUcontext own, other;
} pair_t;

enum { MAX_PAIRS = 128 };

UMF_LOCK_STATIC(pairs_lock, UMF_RANK_PROVIDER);
/* Those for which the driver was called. Sync: pairs_lock */
static pair_t pairs[MAX_PAIRS];
static size_t pair_count;

static bool pair_is_new(CUcontext own, CUcontext other) {
    umf_lock(&pairs_lock);
    size_t at = 0;
    while (at < pair_count && (pairs[at].own != own || pairs[at].other != other)) {
        at++;
    }
    bool is_new = at == pair_count;
    if (is_new && pair_count < MAX_PAIRS) {
        pairs[pair_count++] = (pair_t){own, other};
    }
    umf_unlock(&pairs_lock);
    return is_new;
}

void umf_cuda_reach_forget(CUcontext context) {
    size_t kept = 0;
    umf_lock(&pairs_lock);
    for (size_t at = 0; at < pair_count; at++) {
        if (pairs[at].own != context && pairs[at].other != context) {
            pairs[kept++] = pairs[at];
        }
    }
    pair_count = kept;
    umf_unlock(&pairs_lock);
}

static bool query(const umf_cuda_driver_t *driver, void *value, CUpointer_attribute attribute,
                  CUdeviceptr ptr) {
    return driver->cuPointerGetAttribute &&
           driver->cuPointerGetAttribute(value, attribute, ptr) == CUDA_SUCCESS;
}

/* Without access the driver copies by way of the host, at a tenth of the speed. Once enabled, the
 * access stays. */
static void reach_context(const umf_cuda_context_t *context, CUdeviceptr ptr) {
    CUcontext other = NULL;
    CUresult result;
    int device = context->device, can = 0;
    if (!context->driver->cuCtxEnablePeerAccess || !context->driver->cuDeviceCanAccessPeer ||
        !query(context->driver, &other, CU_POINTER_ATTRIBUTE_CONTEXT, ptr) || !other ||
        other == context->handle || !pair_is_new(context->handle, other) ||
        !query(context->driver, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr) ||
        context->driver->cuDeviceCanAccessPeer(&can, context->device, device) != CUDA_SUCCESS ||
        !can) {
        return;
    }
    UMF_CUDA_CALL(context, result, cuCtxEnablePeerAccess(other, 0));
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        UMF_LOG_DEBUG(
            "copies from and to memory of device %d are not from peer to peer: the driver "
            "answers %d",
            device, (int)result);
    }
}

/* --- virtual memory: devices have access to parts of it --------------------------------------- */

/* Is it memory that the device has no access to? Drivers without the query say no. Drivers say yes
 * of all memory of an ordinary allocation, for its own device, too. */
static bool is_without_access(const umf_cuda_driver_t *driver, int device, CUdeviceptr ptr) {
    const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver->cuMemGetAccess && driver->cuMemGetAccess(&flags, &place, ptr) == CUDA_SUCCESS &&
           flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

umf_result_t umf_cuda_op_copy_reaches(void *provider, const void *ptr) {
    const umf_cuda_context_t *context = provider;
    CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr;
    int own = context->device;
    if (is_without_access(context->driver, context->device, addr) &&
        query(context->driver, &own, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr) &&
        !is_without_access(context->driver, own, addr)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED; /* virtual memory, of another device alone */
    }
    reach_context(context, addr);
    return UMF_RESULT_SUCCESS;
}
