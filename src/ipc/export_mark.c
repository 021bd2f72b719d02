#include "ipc/export_mark.h"

#include "base/handle.h"
#include "base/log.h"
#include "base/meta.h"

#define EXPORT_COOKIE 0x2f1c9a6b7e4d5380u
#define EXPORT_STAYS 4096 /* the arena may unmap freed blocks of this size and above */

static const umf_handle_kind_t export_mark_kind = {"an IPC handle's mark"};

umf_pin_t *umf_export_mark_pin(umf_export_mark_t *mark) {
    return (umf_pin_t *)((char *)mark + mark->bytes) - 1;
}

static size_t export_block_size(size_t handle_size) {
    size_t room = umf_align_up(handle_size, _Alignof(umf_pin_t));
    return sizeof(umf_export_mark_t) + room + sizeof(umf_pin_t);
}

static uint64_t export_cookie(const umf_export_mark_t *mark) {
    return EXPORT_COOKIE ^ (uintptr_t)mark;
}

umf_export_mark_t *umf_export_mark_new(size_t handle_size) {
    size_t bytes = export_block_size(handle_size);
    umf_export_mark_t *mark = umf_meta_alloc(bytes);
    if (mark == NULL) {
        UMF_LOG_ERROR("no memory for %zu bytes of an IPC handle", bytes);
        return NULL;
    }
    if (umf_unlikely(umf_handle_kind(mark) != &export_mark_kind) &&
        umf_handle_begin(mark, &export_mark_kind) != UMF_RESULT_SUCCESS) {
        umf_meta_free(mark, bytes);
        return NULL;
    }
    mark->bytes = bytes;
    return mark;
}

void umf_export_mark_set(umf_export_mark_t *mark) {
    atomic_store_explicit(&mark->cookie, export_cookie(mark), memory_order_release);
}

void umf_export_mark_free(umf_export_mark_t *mark) {
    if (umf_unlikely(mark->bytes >= EXPORT_STAYS)) {
        umf_handle_end(mark, &export_mark_kind, __func__);
    }
    umf_meta_free(mark, mark->bytes);
}

__attribute__((no_sanitize_address)) bool umf_export_mark_remove(umf_export_mark_t *mark) {
    uint64_t cookie = export_cookie(mark);
    return umf_handle_kind(mark) == &export_mark_kind &&
           atomic_compare_exchange_strong(&mark->cookie, &cookie, 0);
}
