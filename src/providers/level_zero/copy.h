/*
 * Copying and filling memory of Level Zero on immediate, synchronous command lists: each command
 * has ended when it returns. They are the queues of umf_memory_provider_ext_ops_t.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_COPY_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_COPY_H

#include "providers/level_zero/machine.h"

/* NOT_SUPPORTED: there is no device, or the loader has no such lists. */
umf_result_t umf_ze_op_queue_create(void *provider, void **queue);
/* Memory of one context: a command list of another one cannot use it. */
umf_result_t umf_ze_op_copy_domain(void *provider, const void **domain);
umf_result_t umf_ze_op_queue_destroy(void *provider, void *queue);
umf_result_t umf_ze_op_queue_wait(void *provider, void *queue);
umf_result_t umf_ze_op_copy(void *provider, void *queue, void *dst, const void *src, size_t size);
umf_result_t umf_ze_op_fill(void *provider, void *queue, void *dst, uint8_t value, size_t size);

/* The queues and the events are the caller's. */
umf_result_t umf_ze_op_queue_join(void *provider, void *queue, void *const *events,
                                  size_t num_events);
umf_result_t umf_ze_op_event_record(void *provider, void *event, void *queue);

/* A mark is an event that the list signals. A list does not wait for the mark of another one: the
 * event may not be destroyed before it has. */
umf_result_t umf_ze_op_queue_mark(void *provider, void *queue, void **mark);
int umf_ze_op_mark_wait(void *provider, void *mark, int may_block);
umf_result_t umf_ze_op_queue_id(void *provider, void *queue, uint64_t *id, int *is_of_thread,
                                int *is_captured);

/* Their members of umf_memory_provider_ext_ops_t. */
#define UMF_ZE_QUEUE_OPS                                                                           \
    .queue_create = umf_ze_op_queue_create, .copy_domain = umf_ze_op_copy_domain,                  \
    .queue_destroy = umf_ze_op_queue_destroy, .queue_wait = umf_ze_op_queue_wait,                  \
    .queue_mark = umf_ze_op_queue_mark, .copy = umf_ze_op_copy, .fill = umf_ze_op_fill,            \
    .queue_join = umf_ze_op_queue_join, .event_record = umf_ze_op_event_record,                    \
    .mark_wait = umf_ze_op_mark_wait, .queue_id = umf_ze_op_queue_id

#endif
