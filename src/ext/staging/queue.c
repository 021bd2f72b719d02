#include "ext/staging/queue.h"

#include "ext/staging/undone.h"

bool umf_queue_drain(const umf_operand_t *operand, void *queue, umf_result_t *result) {
    *result = umf_operand_failed(operand, operand->ext->queue_wait(operand->self, queue));
    return umf_likely(*result == UMF_RESULT_SUCCESS) ||
           operand->ext->queue_wait(operand->self, queue) == UMF_RESULT_SUCCESS;
}

umf_result_t umf_queue_take(const umf_operand_t *operand, void **queue) {
    umf_memory_provider_handle_t provider = operand->provider;
    /* Work on another queue would have no order with that. */
    umf_result_t settled = umf_undone_settle(provider);
    if (umf_unlikely(settled != UMF_RESULT_SUCCESS)) {
        return settled;
    }
    for (size_t i = 0; provider && i < UMF_COUNT_OF(provider->queues); i++) {
        if (atomic_load_explicit(&provider->queues[i], memory_order_relaxed)) {
            *queue = atomic_exchange_explicit(&provider->queues[i], NULL, memory_order_acquire);
            if (*queue) {
                return UMF_RESULT_SUCCESS;
            }
        }
    }
    return operand->ext->queue_create(operand->self, queue);
}

void umf_queue_put(const umf_operand_t *operand, void *queue) {
    umf_memory_provider_handle_t provider = operand->provider;
    for (size_t i = 0; provider && i < UMF_COUNT_OF(provider->queues); i++) {
        void *none = NULL;
        if (queue &&
            atomic_compare_exchange_strong_explicit(&provider->queues[i], &none, queue,
                                                    memory_order_release, memory_order_relaxed)) {
            return;
        }
    }
    operand->ext->queue_destroy(operand->self, queue);
}

void umf_queue_end(const umf_operand_t *operand, void *queue, umf_undone_memory_t *memory,
                   umf_result_t *result) {
    if (umf_likely(umf_queue_drain(operand, queue, result))) {
        umf_queue_put(operand, queue);
    } else {
        umf_undone_add(operand, queue, memory);
    }
}

umf_result_t umf_queue_run(const umf_operand_t *operand,
                           umf_result_t (*work)(const umf_operand_t *operand, void *queue,
                                                void *arg),
                           void *arg, umf_undone_memory_t *memory) {
    void *queue = NULL;
    umf_result_t result = umf_operand_failed(operand, umf_queue_take(operand, &queue)), waited;
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_operand_failed(operand, work(operand, queue, arg));
    umf_queue_end(operand, queue, memory, &waited);
    return result ? result : waited;
}

void umf_queue_drop(umf_memory_provider_handle_t provider) {
    bool has_queues = provider->ext->queue_destroy != NULL;
    for (size_t i = 0; has_queues && i < UMF_COUNT_OF(provider->queues); i++) {
        void *queue = atomic_exchange_explicit(&provider->queues[i], NULL, memory_order_acquire);
        if (queue) {
            provider->ext->queue_destroy(provider->self, queue);
        }
    }
}
