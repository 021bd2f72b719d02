/* The context of a provider: choosing it, its witness, and making it current. */
#include "providers/cuda/context.h"

#include "base/log.h"
#include "providers/cuda/copy.h"

static CUresult witness_ask(const umf_cuda_driver_t *driver, const void *witness,
                            unsigned long long *id) {
    return driver->cuPointerGetAttribute(id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                         (CUdeviceptr)(uintptr_t)witness);
}

/* Checks the number of the witness. The driver may have reused its address; the memory there then
 * has another number. */
static CUresult context_check(const umf_cuda_context_t *context) {
    if (!context->witness) {
        return CUDA_SUCCESS;
    }
    unsigned long long id = 0;
    CUresult result = witness_ask(context->driver, context->witness, &id);
    bool is_gone =
        result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && id != context->witness_id);
    return is_gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

/* Errors of work that leave its context unusable. */
static bool is_broken(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

bool umf_cuda_runs_nothing(CUresult waited) {
    return waited == CUDA_SUCCESS || umf_cuda_has_ended(waited) || is_broken(waited);
}

/* --- current ---------------------------------------------------------------------------------- */

/* While any thread captures a stream, a call that allocates, frees, pins, synchronises or queries
 * ends the capture, unless the calling thread's mode is relaxed. */
static CUresult scope_relax(const umf_cuda_driver_t *driver, umf_cuda_scope_t *scope) {
    CUresult result = CUDA_SUCCESS;
    *scope = (umf_cuda_scope_t){.driver = driver, .callers_mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    if (driver->cuThreadExchangeStreamCaptureMode) {
        result = driver->cuThreadExchangeStreamCaptureMode(&scope->callers_mode);
        scope->is_relaxed = result == CUDA_SUCCESS;
    }
    return result;
}

/* Restoring a mode fails only while the driver shuts down. */
static void scope_unrelax(const umf_cuda_scope_t *scope) {
    CUstreamCaptureMode mode = scope->callers_mode;
    if (scope->is_relaxed) {
        scope->driver->cuThreadExchangeStreamCaptureMode(&mode);
    }
}

/* Makes the provider's context current. The caller's context may be destroyed, too; a push leaves
 * its handle untouched on the stack below. */
static CUresult scope_enter(const umf_cuda_context_t *context, umf_cuda_scope_t *scope) {
    CUresult result = context_check(context);
    if (result == CUDA_SUCCESS) {
        result = context->driver->cuCtxGetCurrent(&scope->callers);
    }
    if (result != CUDA_SUCCESS || scope->callers == context->handle) {
        return result;
    }
    if (context->driver->cuCtxPushCurrent && context->driver->cuCtxPopCurrent) {
        result = context->driver->cuCtxPushCurrent(context->handle);
        scope->is_pushed = result == CUDA_SUCCESS;
    } else {
        result = context->driver->cuCtxSetCurrent(context->handle);
        scope->is_set = result == CUDA_SUCCESS;
    }
    return result;
}

CUresult umf_cuda_enter(const umf_cuda_context_t *context, umf_cuda_scope_t *scope) {
    CUresult result = scope_relax(context->driver, scope);
    if (result == CUDA_SUCCESS) {
        result = scope_enter(context, scope);
    }
    if (result != CUDA_SUCCESS) {
        scope_unrelax(scope);
        *scope = (umf_cuda_scope_t){0};
    }
    return result;
}

static CUresult scope_restore(const umf_cuda_scope_t *scope) {
    CUcontext left;
    if (scope->is_pushed) {
        return scope->driver->cuCtxPopCurrent(&left);
    }
    return scope->is_set ? scope->driver->cuCtxSetCurrent(scope->callers) : CUDA_SUCCESS;
}

static bool scope_is_left(const umf_cuda_scope_t *scope) {
    CUcontext now = NULL;
    return scope->driver->cuCtxGetCurrent(&now) != CUDA_SUCCESS || now == scope->callers;
}

/* The driver may answer with the error of earlier work, whether it has restored the context or
 * not. So the context is looked at, and restored again if it is still the provider's. */
static UMF_COLD void scope_restore_again(const umf_cuda_scope_t *scope, CUresult failed) {
    umf_cuda_tell(failed, "restoring the caller's context");
    if (!scope_is_left(scope)) {
        scope_restore(scope);
    }
}

CUresult umf_cuda_leave(const umf_cuda_scope_t *scope, CUresult result) {
    CUresult restored = scope_restore(scope);
    if (umf_unlikely(restored != CUDA_SUCCESS)) {
        scope_restore_again(scope, restored);
    }
    scope_unrelax(scope);
    return result;
}

/* --- primary contexts ------------------------------------------------------------------------- */

CUresult umf_cuda_primary_retain(const umf_cuda_driver_t *driver, CUdevice device,
                                 CUcontext *context) {
    umf_cuda_scope_t scope;
    CUresult result = scope_relax(driver, &scope);
    if (result == CUDA_SUCCESS) {
        result = driver->cuDevicePrimaryCtxRetain(context, device);
        scope_unrelax(&scope);
    }
    return result;
}

CUresult umf_cuda_primary_release(const umf_cuda_driver_t *driver, CUdevice device) {
    umf_cuda_scope_t scope;
    scope_relax(driver, &scope);
    CUresult result = driver->cuDevicePrimaryCtxRelease(device);
    scope_unrelax(&scope);
    return result;
}

/* --- taking ----------------------------------------------------------------------------------- */

/* Some calls of the driver accept devices that do not exist, so the number is checked here. */
static umf_result_t check_device(const umf_cuda_driver_t *driver, CUdevice device) {
    int count = 0;
    if (!driver->cuDeviceGetCount) {
        return UMF_RESULT_SUCCESS;
    }
    CUresult result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && device >= count) {
        UMF_LOG_ERROR("there is no device %d among the %d of this machine", device, count);
        umf_cuda_native = CUDA_ERROR_INVALID_DEVICE;
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    }
    return umf_cuda_result(result, "counting the devices");
}

static umf_result_t take_primary(umf_cuda_context_t *context) {
    if (!context->driver->cuInit || !context->driver->cuDevicePrimaryCtxRetain ||
        !context->driver->cuDevicePrimaryCtxRelease) {
        UMF_LOG_ERROR("this CUDA driver is too old for primary contexts: give the provider a "
                      "context in its parameters");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_result_t result = umf_cuda_result(context->driver->cuInit(0), "initialising CUDA");
    if (result == UMF_RESULT_SUCCESS) {
        result = check_device(context->driver, context->device);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_cuda_result(
            umf_cuda_primary_retain(context->driver, context->device, &context->handle),
            "retaining the primary context");
    }
    context->is_primary = result == UMF_RESULT_SUCCESS;
    return result;
}

static CUresult witness_make(umf_cuda_context_t *context) {
    void *made = NULL;
    CUresult result = context->driver->cuMemHostAlloc(&made, 1, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = witness_ask(context->driver, made, &context->witness_id);
    if (result != CUDA_SUCCESS) {
        context->driver->cuMemFreeHost(made);
        return result;
    }
    context->witness = made;
    return CUDA_SUCCESS;
}

static umf_result_t take_witness(umf_cuda_context_t *context) {
    if (!context->driver->cuPointerGetAttribute) {
        return UMF_RESULT_SUCCESS;
    }
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_leave(&scope, witness_make(context));
    }
    return umf_cuda_result(result, "making memory in the provider's context");
}

umf_result_t umf_cuda_context_take(umf_cuda_context_t *context, CUcontext given, CUdevice device) {
    context->handle = given;
    context->device = device;
    umf_result_t result = given ? check_device(context->driver, device) : take_primary(context);
    if (result == UMF_RESULT_SUCCESS) {
        result = take_witness(context);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_cuda_reach_forget(context->handle);
    } else {
        umf_cuda_context_drop(context);
    }
    return result;
}

void umf_cuda_context_drop(const umf_cuda_context_t *context) {
    if (context->witness) {
        umf_cuda_scope_t scope;
        CUresult result = umf_cuda_enter(context, &scope);
        if (result == CUDA_SUCCESS) {
            result = umf_cuda_leave(&scope, context->driver->cuMemFreeHost(context->witness));
        }
        umf_cuda_given_back(result, "giving back memory in the provider's context");
    }
    if (context->is_primary) {
        umf_cuda_given_back(umf_cuda_primary_release(context->driver, context->device),
                            "releasing the primary context");
    }
}

/* --- properties ------------------------------------------------------------------------------- */

/* Drivers before 11.3 have no such attribute. */
static umf_result_t rdma_property(const umf_cuda_context_t *context, const void *ptr, int *value) {
    unsigned can = 0;
    CUresult result;
    UMF_CUDA_CALL(context, result,
                  cuPointerGetAttribute(&can, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                        (CUdeviceptr)(uintptr_t)ptr));
    umf_result_t outcome = umf_cuda_result(result, "asking whether network cards reach memory");
    if (outcome == UMF_RESULT_SUCCESS) {
        *value = can != 0;
    }
    return outcome;
}

umf_result_t umf_cuda_op_property(void *provider, const void *ptr, umf_memory_property_id_t id,
                                  void *value) {
    const umf_cuda_context_t *context = provider;
    if (id == UMF_MEMORY_PROPERTY_RDMA_CAPABLE) {
        return rdma_property(context, ptr, value);
    }
    const umf_gpu_memory_t memory = {
        .type = context->memory_type,
        .context = context->handle,
        .device = &context->device,
        .device_size = sizeof(context->device),
    };
    return umf_gpu_property(&memory, id, value);
}

umf_result_t umf_cuda_op_property_size(void *provider, umf_memory_property_id_t id, size_t *size) {
    const umf_cuda_context_t *context = provider;
    if (id == UMF_MEMORY_PROPERTY_RDMA_CAPABLE) {
        *size = sizeof(int);
        return context->driver->cuPointerGetAttribute ? UMF_RESULT_SUCCESS
                                                      : UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return umf_gpu_property_size(sizeof(CUdevice), id, size);
}
