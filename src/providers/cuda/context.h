/*
 * Cuda_context: the context that a provider works in, and whether it is still alive.
 *
 * Others may destroy a context, or reset a primary one, at any time between two calls. Its handle
 * must not be used after that: the driver would end the process. The driver also reuses the
 * addresses of memory of the context. Therefore each context has a *witness*: a byte of pinned
 * memory that ends with its context. The driver gives it a number
 * (CU_POINTER_ATTRIBUTE_BUFFER_ID) that is never used again. Asking for the number of an address is
 * always allowed and needs no context.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_CONTEXT_H
#define UMF_SRC_PROVIDERS_CUDA_CONTEXT_H

#include "providers/cuda/driver.h"
#include "providers/gpu/gpu.h"

/*
 * The state of a CUDA provider begins with it, so the operations named umf_cuda_op_* serve all
 * kinds. Immutable between take and drop. Copies may be entered until it is dropped.
 */
typedef struct umf_cuda_context_t {
    const umf_cuda_driver_t *driver; /* one of the two tables */
    CUcontext handle;
    void *witness; /* NULL: the driver has no such numbers, and the context counts as alive */
    unsigned long long witness_id;
    CUdevice device;
    umf_usm_memory_type_t memory_type; /* of the provider's memory */
    const CUmemAccessDesc *access;     /* all devices where work that uses the memory may be */
    uint32_t access_count;
    bool is_primary; /* a primary context, which this object retains */
} umf_cuda_context_t;

#define UMF_CUDA_CONTEXT_FIRST(type)                                                               \
    _Static_assert(offsetof(type, context) == 0, "the operations take a provider for its context")

/* Takes the context `given`, or the primary one of `device` if that is NULL. The other members are
 * the caller's. Logs failures. */
umf_result_t umf_cuda_context_take(umf_cuda_context_t *context, CUcontext given, CUdevice device);
void umf_cuda_context_drop(const umf_cuda_context_t *context);

/* A context is current between enter and leave; leave restores the caller's. The calls in between
 * end no capture of a stream, unless they synchronise its context or the stream itself. */
typedef struct umf_cuda_scope_t {
    const umf_cuda_driver_t *driver;
    CUcontext callers; /* the caller's context, if the driver has no stack of contexts */
    bool is_pushed, is_set;
    bool is_relaxed;
    CUstreamCaptureMode callers_mode;
} umf_cuda_scope_t;

/* CUDA_ERROR_CONTEXT_IS_DESTROYED if the context is no longer alive. */
CUresult umf_cuda_enter(const umf_cuda_context_t *context, umf_cuda_scope_t *scope);
/* Does that outcome say that nothing of the context runs any more? */
static inline bool umf_cuda_has_ended(CUresult entered) {
    return entered == CUDA_ERROR_CONTEXT_IS_DESTROYED || entered == CUDA_ERROR_DEINITIALIZED ||
           entered == CUDA_ERROR_NOT_INITIALIZED;
}

/* Does the error of a wait say that no work of the context goes on? The others leave that open. */
bool umf_cuda_runs_nothing(CUresult waited);

/* Returns `result`, the outcome of the calls. A failure to restore the caller's context is only
 * logged: the calls have had their effect. */
CUresult umf_cuda_leave(const umf_cuda_scope_t *scope, CUresult result);

/* Retain and release the primary context of a device. They end no capture, either. */
CUresult umf_cuda_primary_retain(const umf_cuda_driver_t *driver, CUdevice device,
                                 CUcontext *context);
CUresult umf_cuda_primary_release(const umf_cuda_driver_t *driver, CUdevice device);

/* The operations get_allocation_properties and get_allocation_properties_size. */
umf_result_t umf_cuda_op_property(void *provider, const void *ptr, umf_memory_property_id_t id,
                                  void *value);
umf_result_t umf_cuda_op_property_size(void *provider, umf_memory_property_id_t id, size_t *size);

/* Runs one call of the driver in a context. */
#define UMF_CUDA_CALL(context, result, call)                                                       \
    do {                                                                                           \
        umf_cuda_scope_t scope_;                                                                   \
        (result) = umf_cuda_enter((context), &scope_);                                             \
        if ((result) == CUDA_SUCCESS) {                                                            \
            (result) = umf_cuda_leave(&scope_, (context)->driver->call);                           \
        }                                                                                          \
    } while (0)

#endif
