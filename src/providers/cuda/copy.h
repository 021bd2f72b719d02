/* Copying and filling memory on CUDA streams, the queues of umf_memory_provider_ext_ops_t. */
#ifndef UMF_SRC_PROVIDERS_CUDA_COPY_H
#define UMF_SRC_PROVIDERS_CUDA_COPY_H

#include "providers/cuda/wait.h"

/* NOT_SUPPORTED: the driver is too old. */
umf_result_t umf_cuda_queue_create(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void **queue);
umf_result_t umf_cuda_queue_destroy(const umf_cuda_driver_t *driver,
                                    const umf_cuda_context_t *context, void *queue);
umf_result_t umf_cuda_queue_wait(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue);
umf_result_t umf_cuda_copy(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, const void *src, size_t size);
/* NOT_SUPPORTED: the driver cannot copy such rows; nothing was done. */
umf_result_t umf_cuda_copy_rows(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                void *queue, const CUDA_MEMCPY2D *rows);
umf_result_t umf_cuda_fill(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, uint8_t value, size_t size);

/* All memory of the driver is one domain: it copies between any two contexts. Virtual memory is the
 * exception, where the device has no access. */
umf_result_t umf_cuda_op_copy_domain(void *provider, const void **domain);
/* Gives the context access to that of the memory, once, if the devices can: then the driver copies
 * from peer to peer. */
umf_result_t umf_cuda_copy_reaches(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, const void *ptr);
/* The handle may be that of a new context, which has no access yet. */
void umf_cuda_reach_forget(CUcontext context);

umf_result_t umf_cuda_queue_join(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue, void *const *events, size_t num_events);
umf_result_t umf_cuda_event_record(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void *event, void *queue);
/* A mark is an event. A queue that is captured gets none. */
umf_result_t umf_cuda_queue_mark(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue, void **mark);
int umf_cuda_mark_wait(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                       void *mark, int may_block);

/* Which stream it is: of the context, and its number. */
umf_result_t umf_cuda_queue_id(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                               void *queue, uint64_t *id, int *is_of_thread, int *is_captured);
umf_result_t umf_cuda_queue_follow(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void *queue, void *mark);

/* Pinned memory of the host. Drivers that cannot pin copy more slowly; that is all. */
umf_result_t umf_cuda_host_pin(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                               void *ptr, size_t size);
umf_result_t umf_cuda_host_unpin(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *ptr);

/* The queue operations of a provider kind whose state `type` has a `driver` and a `context`. */
#define UMF_CUDA_QUEUE_FUNCTIONS(kind, type)                                                       \
    static umf_result_t kind##_queue_create(void *provider, void **queue) {                        \
        const type *self = provider;                                                               \
        return umf_cuda_queue_create(self->driver, &self->context, queue);                         \
    }                                                                                              \
    static umf_result_t kind##_queue_id(void *provider, void *queue, uint64_t *id,                 \
                                        int *is_of_thread, int *is_captured) {                     \
        const type *self = provider;                                                               \
        return umf_cuda_queue_id(self->driver, &self->context, queue, id, is_of_thread,            \
                                 is_captured);                                                     \
    }                                                                                              \
    static umf_result_t kind##_queue_follow(void *provider, void *queue, void *mark) {             \
        const type *self = provider;                                                               \
        return umf_cuda_queue_follow(self->driver, &self->context, queue, mark);                   \
    }                                                                                              \
    static umf_result_t kind##_queue_destroy(void *provider, void *queue) {                        \
        const type *self = provider;                                                               \
        return umf_cuda_queue_destroy(self->driver, &self->context, queue);                        \
    }                                                                                              \
    UMF_CUDA_WORK_FUNCTIONS(kind, type)

/* Those of them that work on a queue. */
#define UMF_CUDA_WORK_FUNCTIONS(kind, type)                                                        \
    static umf_result_t kind##_queue_wait(void *provider, void *queue) {                           \
        const type *self = provider;                                                               \
        return umf_cuda_queue_wait(self->driver, &self->context, queue);                           \
    }                                                                                              \
    static umf_result_t kind##_copy(void *provider, void *queue, void *dst, const void *src,       \
                                    size_t size) {                                                 \
        const type *self = provider;                                                               \
        return umf_cuda_copy(self->driver, &self->context, queue, dst, src, size);                 \
    }                                                                                              \
    static umf_result_t kind##_fill(void *provider, void *queue, void *dst, uint8_t value,         \
                                    size_t size) {                                                 \
        const type *self = provider;                                                               \
        return umf_cuda_fill(self->driver, &self->context, queue, dst, value, size);               \
    }                                                                                              \
    static umf_result_t kind##_copy_rows(void *provider, void *queue, void *dst, size_t dst_pitch, \
                                         const void *src, size_t src_pitch, size_t size,           \
                                         size_t count) {                                           \
        const type *self = provider;                                                               \
        const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,                        \
                                    .srcDevice = (CUdeviceptr)(uintptr_t)src,                      \
                                    .srcPitch = src_pitch,                                         \
                                    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,                        \
                                    .dstDevice = (CUdeviceptr)(uintptr_t)dst,                      \
                                    .dstPitch = dst_pitch,                                         \
                                    .WidthInBytes = size,                                          \
                                    .Height = count};                                              \
        return umf_cuda_copy_rows(self->driver, &self->context, queue, &rows);                     \
    }                                                                                              \
    static umf_result_t kind##_copy_reaches(void *provider, const void *ptr) {                     \
        const type *self = provider;                                                               \
        return umf_cuda_copy_reaches(self->driver, &self->context, ptr);                           \
    }                                                                                              \
    static umf_result_t kind##_queue_join(void *provider, void *queue, void *const *events,        \
                                          size_t num_events) {                                     \
        const type *self = provider;                                                               \
        return umf_cuda_queue_join(self->driver, &self->context, queue, events, num_events);       \
    }                                                                                              \
    static umf_result_t kind##_event_record(void *provider, void *event, void *queue) {            \
        const type *self = provider;                                                               \
        return umf_cuda_event_record(self->driver, &self->context, event, queue);                  \
    }                                                                                              \
    static umf_result_t kind##_queue_mark(void *provider, void *queue, void **mark) {              \
        const type *self = provider;                                                               \
        return umf_cuda_queue_mark(self->driver, &self->context, queue, mark);                     \
    }                                                                                              \
    static int kind##_mark_wait(void *provider, void *mark, int may_block) {                       \
        const type *self = provider;                                                               \
        return umf_cuda_mark_wait(self->driver, &self->context, mark, may_block);                  \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

/* Their members of umf_memory_provider_ext_ops_t. */
#define UMF_CUDA_QUEUE_OPS(kind)                                                                   \
    .queue_create = kind##_queue_create, .queue_destroy = kind##_queue_destroy,                    \
    .queue_wait = kind##_queue_wait, .copy = kind##_copy, .fill = kind##_fill,                     \
    .copy_rows = kind##_copy_rows, .copy_domain = umf_cuda_op_copy_domain,                         \
    .copy_reaches = kind##_copy_reaches, .queue_join = kind##_queue_join,                          \
    .event_record = kind##_event_record, .queue_mark = kind##_queue_mark,                          \
    .mark_wait = kind##_mark_wait, .queue_id = kind##_queue_id,                                    \
    .queue_follow = kind##_queue_follow

#endif
