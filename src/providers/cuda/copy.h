/* Copying and filling memory on CUDA streams, the queues of umf_memory_provider_ext_ops_t. */
#ifndef UMF_SRC_PROVIDERS_CUDA_COPY_H
#define UMF_SRC_PROVIDERS_CUDA_COPY_H

#include "providers/cuda/wait.h"

/* All memory of the driver is one domain: it copies between any two contexts. Virtual memory is the
 * exception, where the device has no access. */
umf_result_t umf_cuda_op_copy_domain(void *provider, const void **domain);
/* Gives the context access to that of the memory, once, if the devices can: then the driver copies
 * from peer to peer. */
umf_result_t umf_cuda_op_copy_reaches(void *provider, const void *ptr);
/* The handle may be that of a new context, which has no access yet. */
void umf_cuda_reach_forget(CUcontext context);

/* Operations on queues, of umf_memory_provider_ext_ops_t. NOT_SUPPORTED: the driver is too old; of
 * rows: it cannot copy such ones, and nothing was done. */
umf_result_t umf_cuda_op_queue_create(void *provider, void **queue);
umf_result_t umf_cuda_op_queue_destroy(void *provider, void *queue);
umf_result_t umf_cuda_op_queue_wait(void *provider, void *queue);
umf_result_t umf_cuda_op_copy(void *provider, void *queue, void *dst, const void *src, size_t size);
umf_result_t umf_cuda_op_copy_rows(void *provider, void *queue, void *dst, size_t dst_pitch,
                                   const void *src, size_t src_pitch, size_t size, size_t count);
umf_result_t umf_cuda_op_fill(void *provider, void *queue, void *dst, uint8_t value, size_t size);
umf_result_t umf_cuda_op_queue_join(void *provider, void *queue, void *const *events,
                                    size_t num_events);
umf_result_t umf_cuda_op_event_record(void *provider, void *event, void *queue);
/* A mark is an event. A queue that is captured gets none. */
umf_result_t umf_cuda_op_queue_mark(void *provider, void *queue, void **mark);
int umf_cuda_op_mark_wait(void *provider, void *mark, int may_block);
/* Which stream it is: of the context, and its number. */
umf_result_t umf_cuda_op_queue_id(void *provider, void *queue, uint64_t *id, int *is_of_thread,
                                  int *is_captured);
umf_result_t umf_cuda_op_queue_follow(void *provider, void *queue, void *mark);

/* The range may reach over several pieces. */
umf_result_t umf_cuda_op_dmabuf(void *provider, const void *ptr, size_t begin, size_t size, int *fd,
                                size_t *offset);
/* Replaces a descriptor that the driver made by a copy that is closed on exec: programs that this
 * process starts would keep the memory. `made` is closed in any case. */
umf_result_t umf_cuda_own_descriptor(int made, int *fd);

/* Pinned memory of the host. Drivers that cannot pin copy more slowly; that is all. */
umf_result_t umf_cuda_op_host_pin(void *provider, void *ptr, size_t size);
umf_result_t umf_cuda_op_host_unpin(void *provider, void *ptr, size_t size);

/* Members of umf_memory_provider_ext_ops_t: work on a queue, and all that providers have. */
#define UMF_CUDA_WORK_OPS                                                                          \
    .queue_wait = umf_cuda_op_queue_wait, .copy = umf_cuda_op_copy, .fill = umf_cuda_op_fill,      \
    .copy_rows = umf_cuda_op_copy_rows, .copy_domain = umf_cuda_op_copy_domain,                    \
    .copy_reaches = umf_cuda_op_copy_reaches, .queue_join = umf_cuda_op_queue_join,                \
    .event_record = umf_cuda_op_event_record, .queue_mark = umf_cuda_op_queue_mark,                \
    .mark_wait = umf_cuda_op_mark_wait
#define UMF_CUDA_EXT_OPS                                                                           \
    UMF_CUDA_WORK_OPS,                                                                             \
        .queue_create = umf_cuda_op_queue_create, .queue_destroy = umf_cuda_op_queue_destroy,      \
        .queue_id = umf_cuda_op_queue_id, .queue_follow = umf_cuda_op_queue_follow,                \
        .wait = umf_cuda_op_wait, .settle = umf_cuda_op_settle, .host_pin = umf_cuda_op_host_pin,  \
        .host_unpin = umf_cuda_op_host_unpin, .dmabuf = umf_cuda_op_dmabuf

/* Members of umf_memory_provider_ops_t. */
#define UMF_CUDA_OPS                                                                               \
    .get_last_native_error = umf_cuda_op_native_error,                                             \
    .ext_get_allocation_properties = umf_cuda_op_property,                                         \
    .ext_get_allocation_properties_size = umf_cuda_op_property_size,                               \
    .get_cache_line_size = umf_cuda_op_cache_line_size

#endif
