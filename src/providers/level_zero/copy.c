/* Copying and filling memory of Level Zero. */
#include "providers/level_zero/copy.h"

#include "base/log.h"
#include "base/meta.h"

#define GROUPS_MAX 32

static bool can_copy(void) {
    return umf_ze.zeCommandListCreateImmediate && umf_ze.zeCommandListDestroy &&
           umf_ze.zeCommandListAppendMemoryCopy && umf_ze.zeCommandListAppendMemoryFill;
}

/* The first group of engines that can copy; compute engines can, too. */
static ze_result_t find_group(ze_device_handle_t device, uint32_t *ordinal) {
    ze_command_queue_group_properties_t groups[GROUPS_MAX] = {0};
    uint32_t count = 0;
    *ordinal = 0;
    if (!umf_ze.zeDeviceGetCommandQueueGroupProperties) {
        return ZE_RESULT_SUCCESS;
    }
    ze_result_t result = umf_ze.zeDeviceGetCommandQueueGroupProperties(device, &count, NULL);
    count = count < GROUPS_MAX ? count : GROUPS_MAX;
    for (uint32_t i = 0; i < count; i++) {
        groups[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    }
    if (result == ZE_RESULT_SUCCESS && count) {
        result = umf_ze.zeDeviceGetCommandQueueGroupProperties(device, &count, groups);
    }
    for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && i < count; i++) {
        if (groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) {
            *ordinal = i;
            return result;
        }
    }
    return result;
}

umf_result_t umf_ze_op_queue_create(void *provider, void **queue) {
    const umf_ze_memory_t *memory = provider;
    if (!memory->device) {
        UMF_LOG_ERROR("the provider has no device that could copy; the CPU can");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!can_copy()) {
        UMF_LOG_ERROR("this Level Zero loader has no immediate command lists to copy memory with");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    ze_command_queue_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        .priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
    };
    ze_command_list_handle_t list = NULL;
    ze_result_t result = find_group(memory->device, &desc.ordinal);
    if (result == ZE_RESULT_SUCCESS) {
        result = umf_ze.zeCommandListCreateImmediate(memory->context, memory->device, &desc, &list);
    }
    if (result == ZE_RESULT_SUCCESS) {
        *queue = list;
    }
    return umf_ze_result(result, "making a command list");
}

umf_result_t umf_ze_op_copy_domain(void *provider, const void **domain) {
    *domain = ((umf_ze_memory_t *)provider)->context;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_ze_op_queue_destroy(void *provider, void *queue) {
    (void)provider;
    return umf_ze_given_back(umf_ze.zeCommandListDestroy(queue), "destroying a command list");
}

/* Nothing to wait for: each command has ended when it returns. */
umf_result_t umf_ze_op_queue_wait(void *provider, void *queue) {
    (void)provider, (void)queue;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_ze_op_copy(void *provider, void *queue, void *dst, const void *src, size_t size) {
    (void)provider;
    return umf_ze_result(umf_ze.zeCommandListAppendMemoryCopy(queue, dst, src, size, NULL, 0, NULL),
                         "copying memory");
}

umf_result_t umf_ze_op_fill(void *provider, void *queue, void *dst, uint8_t value, size_t size) {
    (void)provider;
    return umf_ze_result(umf_ze.zeCommandListAppendMemoryFill(queue, dst, &value, sizeof(value),
                                                              size, NULL, 0, NULL),
                         "filling memory");
}

umf_result_t umf_ze_op_queue_join(void *provider, void *queue, void *const *events,
                                  size_t num_events) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    (void)provider;
    if (!umf_ze.zeCommandListAppendWaitOnEvents) {
        UMF_LOG_ERROR("this Level Zero loader cannot let a command list wait for events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < num_events && result == ZE_RESULT_SUCCESS; i++) {
        ze_event_handle_t event = events[i];
        result = umf_ze.zeCommandListAppendWaitOnEvents(queue, 1, &event);
    }
    return umf_ze_result(result, "letting a command list wait for an event");
}

umf_result_t umf_ze_op_event_record(void *provider, void *event, void *queue) {
    (void)provider;
    if (!umf_ze.zeCommandListAppendSignalEvent) {
        UMF_LOG_ERROR("this Level Zero loader cannot signal events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return umf_ze_result(umf_ze.zeCommandListAppendSignalEvent(queue, event),
                         "signalling an event");
}

/* --- marks ------------------------------------------------------------------------------------ */

/* An event, and a pool for it alone. */
typedef struct ze_mark_t {
    ze_event_pool_handle_t pool;
    ze_event_handle_t event;
} ze_mark_t;

static bool can_mark(void) {
    return umf_ze.zeEventPoolCreate && umf_ze.zeEventPoolDestroy && umf_ze.zeEventCreate &&
           umf_ze.zeEventDestroy && umf_ze.zeEventHostSynchronize &&
           umf_ze.zeCommandListAppendSignalEvent;
}

/* What fails is tried once more: a context whose events are alive cannot be destroyed. */
static void mark_end(ze_mark_t *mark) {
    if (mark->event && umf_ze.zeEventDestroy(mark->event) != ZE_RESULT_SUCCESS) {
        umf_ze.zeEventDestroy(mark->event);
    }
    if (mark->pool && umf_ze.zeEventPoolDestroy(mark->pool) != ZE_RESULT_SUCCESS) {
        umf_ze.zeEventPoolDestroy(mark->pool);
    }
    umf_meta_free(mark, sizeof(*mark));
}

static ze_result_t mark_make(ze_context_handle_t context, ze_command_list_handle_t list,
                             ze_mark_t *mark) {
    const ze_event_pool_desc_t pool = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                       .count = 1};
    const ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                   .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                   .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_result_t result = umf_ze.zeEventPoolCreate(context, &pool, 0, NULL, &mark->pool);
    if (result == ZE_RESULT_SUCCESS) {
        result = umf_ze.zeEventCreate(mark->pool, &event, &mark->event);
    }
    return result == ZE_RESULT_SUCCESS ? umf_ze.zeCommandListAppendSignalEvent(list, mark->event)
                                       : result;
}

umf_result_t umf_ze_op_queue_mark(void *provider, void *queue, void **mark) {
    if (!can_mark()) {
        UMF_LOG_ERROR("this Level Zero loader has no events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    ze_mark_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    ze_result_t result = mark_make(((umf_ze_memory_t *)provider)->context, queue, made);
    if (result == ZE_RESULT_SUCCESS) {
        *mark = made;
    } else {
        mark_end(made);
    }
    return umf_ze_result(result, "marking a command list");
}

/* A mark has passed, too, if its device is lost or the driver has ended. One that gives another
 * error twice has not. */
static bool runs_nothing(ze_result_t waited) {
    return waited == ZE_RESULT_SUCCESS || waited == ZE_RESULT_ERROR_DEVICE_LOST ||
           waited == ZE_RESULT_ERROR_UNINITIALIZED;
}

int umf_ze_op_mark_wait(void *provider, void *mark, int may_block) {
    ze_mark_t *made = mark;
    uint64_t timeout = may_block ? UINT64_MAX : 0;
    (void)provider;
    ze_result_t result = umf_ze.zeEventHostSynchronize(made->event, timeout);
    if (result != ZE_RESULT_SUCCESS && result != ZE_RESULT_NOT_READY) {
        result = umf_ze.zeEventHostSynchronize(made->event, timeout);
    }
    bool has_completed = runs_nothing(result);
    if (has_completed) {
        mark_end(made);
    }
    return has_completed;
}

/* Handles of command lists are not used again while the program holds them. */
umf_result_t umf_ze_op_queue_id(void *provider, void *queue, uint64_t *id, int *is_of_thread,
                                int *is_captured) {
    (void)provider;
    if (!queue) {
        UMF_LOG_ERROR("queue is NULL: Level Zero has no default queue, name an immediate command "
                      "list");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *id = (uintptr_t)queue;
    *is_of_thread = *is_captured = 0;
    return UMF_RESULT_SUCCESS;
}
