/* The owner's published ranges. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "object/provider/memory_watch.h"
#include "system/checksum.h"
#include "system/os.h"

static const umf_handle_kind_t export_handle = {"a range of umfRemotePublish"};

uint64_t umf_remote_number_next(void) {
    static _Atomic uint64_t number;
    return atomic_fetch_add_explicit(&number, 1, memory_order_relaxed) + 1;
}

uint64_t umf_remote_physical_of(const umf_span_t *span, uintptr_t address) {
    umf_memory_run_t run;
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    if (!pool || umf_pool_is_suspended(pool)) {
        return 0;
    }
    while (span->outer) {
        span = umf_span_at(span->outer);
    }
    if (umf_span_kind(span) != UMF_SPAN_POOL ||
        umf_memory_run_at(umf_tracked_of(span), address, span, &run) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    return run.generation;
}

umf_span_t *umf_remote_span_use(umf_remote_export_handle_t published) {
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)published->base);
    if (span && (span->id != published->span_id ||
                 (size_t)((uintptr_t)published->base - span->base) > span->size ||
                 published->size > span->size - ((uintptr_t)published->base - span->base))) {
        umf_use_end(umf_span_index(span));
        span = NULL;
    }
    return span;
}

static umf_result_t publish_check(const umf_span_t *span, const void *ptr, size_t size) {
    size_t offset = (uintptr_t)ptr - span->base;
    if (umf_span_kind(span) != UMF_SPAN_POOL || size > span->size - offset) {
        UMF_LOG_ERROR("%zu bytes at %p are not in one block of a pool", size, ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_remote_physical_of(span, (uintptr_t)ptr)) {
        UMF_LOG_ERROR("%p has no memory now: resume its pool first", ptr);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (umf_os_probe_read((void *)((uintptr_t)ptr & ~(uintptr_t)7)) == EFAULT) {
        UMF_LOG_ERROR("the CPU cannot access %p: memory of a device is not served", ptr);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t publish_fill(umf_remote_export_handle_t made, umf_span_t *span) {
    umf_result_t result = publish_check(span, made->base, made->size);
    if (result == UMF_RESULT_SUCCESS && umf_os_random(made->secret, REMOTE_ID) != 0) {
        UMF_LOG_ERROR("the system gives no random numbers");
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_pin_begin(&made->pin, span, made->base);
    }
    made->span_id = span->id;
    made->physical = umf_remote_physical_of(span, (uintptr_t)made->base);
    made->number = umf_remote_number_next();
    made->generation = umf_remote_number_next();
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfRemotePublish(umf_remote_handle_t remote, void *ptr, size_t size,
                                              unsigned rights,
                                              umf_remote_export_handle_t *published) {
    if (!umf_remote_check(remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr || !size || !published || !rights || rights > (UMF_REMOTE_GET | UMF_REMOTE_PUT)) {
        UMF_LOG_ERROR("umfRemotePublish needs a range, rights of umf_remote_rights_t, and a place "
                      "for the handle");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)ptr);
    if (!span) {
        UMF_LOG_ERROR("no pool has %p", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_export_handle_t made = umf_handle_new(sizeof(*made), &export_handle);
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (made) {
        made->remote = remote;
        made->base = ptr;
        made->size = size;
        made->rights = rights;
        result = publish_fill(made, span);
    }
    umf_use_end(umf_span_index(span));
    if (result != UMF_RESULT_SUCCESS) {
        umf_handle_delete(made, sizeof(*made), &export_handle, __func__);
        return result;
    }
    umf_lock(&remote->lock);
    umf_list_add(&remote->exports, &made->link);
    umf_remote_page_write_locked(remote);
    umf_unlock(&remote->lock);
    *published = made;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfRemoteGetHandle(umf_remote_export_handle_t published, void *bytes,
                                                size_t *size) {
    if (!umf_handle_check(published, &export_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = published->remote;
    size_t length = sizeof(remote_handle_bytes_t) + remote->server.address_length;
    if (!size || (!bytes && *size > 0) || (bytes && *size < length)) {
        UMF_LOG_ERROR("the handle has %zu bytes", length);
        if (size) {
            *size = length;
        }
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = length;
    if (!bytes) {
        return UMF_RESULT_SUCCESS;
    }
    unsigned char made[sizeof(remote_handle_bytes_t) + REMOTE_ADDRESS_MAX];
    umf_lock(&remote->lock);
    remote_handle_bytes_t head = {.magic = REMOTE_MAGIC,
                                  .version = REMOTE_VERSION,
                                  .length = (uint16_t)length,
                                  .boot = umf_os_boot_id(),
                                  .export_number = published->number,
                                  .generation = published->generation,
                                  .size = published->size,
                                  .rights = published->rights,
                                  .address_length = (uint32_t)remote->server.address_length};
    umf_unlock(&remote->lock);
    memcpy(head.owner, remote->id, REMOTE_ID);
    memcpy(head.secret, published->secret, REMOTE_ID);
    memcpy(made, &head, sizeof(head));
    memcpy(made + sizeof(head), remote->server.address, remote->server.address_length);
    head.check = umf_sum(made, length);
    memcpy(made, &head, sizeof(head));
    memcpy(bytes, made, length);
    return UMF_RESULT_SUCCESS;
}

/* Waits for transfers. The thread closes the connections of those that take too long. */
static void export_settle(umf_remote_handle_t remote, umf_remote_export_handle_t published) {
    for (;;) {
        uint32_t seen = umf_event_count_read(&remote->changes);
        umf_lock(&remote->lock);
        published->is_closing = true;
        size_t under_way = published->under_way;
        umf_unlock(&remote->lock);
        if (!under_way) {
            return;
        }
        umf_event_count_wait_for(&remote->changes, seen, 50u * 1000 * 1000);
    }
}

UMF_API_EXT_1_3 umf_result_t umfRemoteWithdraw(umf_remote_export_handle_t published) {
    if (!umf_handle_end(published, &export_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = published->remote;
    bool is_ours = remote->forks == umf_fork_count();
    if (is_ours) {
        export_settle(remote, published);
        umf_lock(&remote->lock);
        umf_list_remove(&published->link);
        umf_remote_page_write_locked(remote);
        umf_unlock(&remote->lock);
    }
    umf_pin_end(&published->pin);
    umf_meta_free(published, sizeof(*published));
    return UMF_RESULT_SUCCESS;
}

void umf_remote_withdraw_all(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->exports)) {
        umf_remote_export_handle_t published =
            UMF_CONTAINER_OF(remote->exports.next, struct umf_remote_export_t, link);
        umf_list_remove(&published->link);
        if (umf_handle_end(published, &export_handle, __func__)) {
            umf_pin_end(&published->pin);
            umf_meta_free(published, sizeof(*published));
        }
    }
}
