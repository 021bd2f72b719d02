/* Constructors of the contexts whose memory is of a pool, and their operations. */
#include "umem/own.h"

#include <umf/cuda_device.h>

static const struct umemVtbl host_operations = {UMEM_BLOCK_OPERATIONS(umemVirtual_dtor)};
static const struct umemVtbl operations = {UMEM_BLOCK_OPERATIONS(umemVirtual_dtor)};

/* A context with host memory of its own. */
static void init(umemVirtual *ctx, umemDeviceType type, umemHost *host) {
    umem_base_init(ctx, &operations, type, host);
    umemHost_ctor(host);
}

void umemHost_ctor(umemHost *const ctx) {
    umem_base_init(&ctx->super, &host_operations, umemHostDevice, ctx);
}

void umemCuda_ctor(umemCuda *const ctx, int device) {
    UMEM_KEEP_ERRNO;
    int count = 0;
    init(&ctx->super, umemCudaDevice, &ctx->host);
    ctx->device = device;
    umf_result_t result = umfCUDADeviceCount(&count);
    TRY_RETURN(ctx, result != UMF_RESULT_SUCCESS, umemRuntimeError, return,
               "umemCuda_ctor: no device can be used: %s", umfResultText(result));
    TRY_RETURN(ctx, device < 0 || device >= count, umemValueError, return,
               "umemCuda_ctor: there is no device %d among the %d of this machine", device, count);
    result = umfCUDADeviceMakeCurrent(device);
    TRY_RETURN(ctx, result != UMF_RESULT_SUCCESS, umemRuntimeError, return,
               "umemCuda_ctor: device %d cannot be made current: %s", device,
               umfResultText(result));
    umem_pool_expect_device(device);
}

void umemCudaHost_ctor(umemCudaHost *const ctx, unsigned int flags) {
    init(&ctx->super, umemCudaHostDevice, &ctx->host);
    ctx->flags = flags;
}

void umemCudaManaged_ctor(umemCudaManaged *const ctx, unsigned int flags, bool async,
                          uintptr_t stream) {
    UMEM_KEEP_ERRNO;
    bool has_managed = false;
    init(&ctx->super, umemCudaManagedDevice, &ctx->host);
    ctx->flags = flags ? flags : 1; /* cudaMemAttachGlobal */
    ctx->async = async;
    ctx->stream = stream;
    int device = umem_current_device();
    umf_result_t result = umfCUDADeviceHasManagedMemory(device, &has_managed);
    TRY_RETURN(ctx, result != UMF_RESULT_SUCCESS, umemRuntimeError, return,
               "umemCudaManaged_ctor: no device can be used: %s", umfResultText(result));
    TRY_RETURN(ctx, !has_managed, umemNotSupportedError, return,
               "umemCudaManaged_ctor: device %d has no managed memory", device);
}

void umemRMM_ctor(umemRMM *const ctx, int device, bool async, uintptr_t stream) {
    init(&ctx->super, umemRMMDevice, &ctx->host);
    ctx->device = device;
    ctx->async = async;
    ctx->stream = stream;
}
