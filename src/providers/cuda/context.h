/*
 * Cuda_context: the context that a provider works in, and whether it still lives.
 *
 * A context may be destroyed, or a primary one reset, by others at any time between two calls. Its
 * handle must not be touched then: the driver ends the process, and gives the addresses of what was
 * in it to others. So each has a *witness*: a byte of pinned memory, which goes with its context,
 * and whose number in the driver (CU_POINTER_ATTRIBUTE_BUFFER_ID) is never used again. Asking for
 * the number of an address is always allowed and needs no context.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_CONTEXT_H
#define UMF_SRC_PROVIDERS_CUDA_CONTEXT_H

#include "providers/cuda/driver.h"
#include "providers/gpu/gpu.h"

/* Immutable between take and drop; copies of it may be entered as long as it is not dropped. */
typedef struct umf_cuda_context_t {
    CUcontext handle;
    CUdevice device;
    bool is_primary; /* and retained */
    void *witness;   /* NULL: the driver cannot tell, the context is taken to live */
    unsigned long long witness_id;
} umf_cuda_context_t;

/* The context `given`, or the primary one of `device` where it is NULL. Logs. */
umf_result_t umf_cuda_context_take(const umf_cuda_driver_t *driver, CUcontext given,
                                   CUdevice device, umf_cuda_context_t *context);
void umf_cuda_context_drop(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context);

/* A context made current for the calls between enter and leave, which end no capture of a stream
 * but by synchronising its context or the stream itself; the caller's is then back. */
typedef struct umf_cuda_scope_t {
    CUcontext callers; /* where the driver has no stack of contexts */
    bool is_pushed, is_set;
    bool is_relaxed;
    CUstreamCaptureMode callers_mode;
} umf_cuda_scope_t;

/* CUDA_ERROR_CONTEXT_IS_DESTROYED if it lives no more. */
CUresult umf_cuda_enter(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                        umf_cuda_scope_t *scope);
/* `result` is what the calls gave; a failure to restore the caller's context is returned when they
 * gave none. */
CUresult umf_cuda_leave(const umf_cuda_driver_t *driver, const umf_cuda_scope_t *scope,
                        CUresult result);

/* One more use of a device's primary context, and one less: nor do these end a capture. */
CUresult umf_cuda_primary_retain(const umf_cuda_driver_t *driver, CUdevice device,
                                 CUcontext *context);
CUresult umf_cuda_primary_release(const umf_cuda_driver_t *driver, CUdevice device);

/* The properties of memory of that type in a context, and the operation that tells how large they
 * are. */
umf_result_t umf_cuda_property(const umf_cuda_context_t *context, umf_usm_memory_type_t type,
                               umf_memory_property_id_t id, void *value);
umf_result_t umf_cuda_op_property_size(void *provider, umf_memory_property_id_t id, size_t *size);

/* Runs one call of the driver in a context. */
#define UMF_CUDA_CALL(driver, context, result, call)                                               \
    do {                                                                                           \
        umf_cuda_scope_t scope_;                                                                   \
        (result) = umf_cuda_enter((driver), (context), &scope_);                                   \
        if ((result) == CUDA_SUCCESS) {                                                            \
            (result) = umf_cuda_leave((driver), &scope_, (driver)->call);                          \
        }                                                                                          \
    } while (0)

#endif
