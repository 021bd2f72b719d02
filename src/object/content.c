#include "object/content.h"

#include <errno.h>
#include <string.h>

#include <umf/memory_provider_gpu.h>

#include "base/log.h"
#include "object/object.h"
#include "system/os.h"

/* Larger ones may be divided among threads. */
#define CONTENT_LARGE ((size_t)32 << 20)

/* --- without ext/movement: one thread of the CPU -------------------------------------------------
 */

static void cpu_zero(void *ptr, size_t size) {
    memset(ptr, 0, size);
}

static void cpu_copy(void *to, const void *from, size_t size) {
    memcpy(to, from, size);
}

static umf_result_t refuse_absent(const char *what) {
    UMF_LOG_ERROR(
        "this libumf was built without queues (UMF_BUILD_EXT=OFF), so it cannot %s memory "
        "that the CPU cannot access",
        what);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t zero_absent(umf_memory_provider_handle_t provider, void *ptr, size_t size) {
    (void)provider, (void)ptr, (void)size;
    return refuse_absent("fill");
}

static umf_result_t copy_absent(umf_memory_provider_handle_t provider, void *to, const void *from,
                                size_t size) {
    (void)provider, (void)to, (void)from, (void)size;
    return refuse_absent("copy");
}

static const umf_content_mover_t mover_absent = {cpu_zero, cpu_copy, zero_absent, copy_absent};

const umf_content_mover_t *umf_content_mover = &mover_absent;

enum {
    ACCESS_UNKNOWN, /* the provider has not been queried */
    ACCESS_CPU,
    ACCESS_PROVIDER, /* only through the provider's operations */
    ACCESS_PROBED,   /* the provider does not report it: each span is probed */
};

void umf_content_init(umf_content_t *content, umf_tracked_provider_t *tracked) {
    content->tracked = tracked;
    atomic_init(&content->access,
                tracked->ops.ext_get_allocation_properties ? ACCESS_UNKNOWN : ACCESS_PROBED);
    for (size_t i = 0; i < UMF_CONTENT_KNOWN; i++) {
        atomic_init(&content->known[i], 0);
    }
}

/* --- CPU or provider ----------------------------------------------------------------------------
 */

static int content_ask(umf_content_t *content, const void *ptr) {
    const umf_tracked_provider_t *tracked = content->tracked;
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    umf_result_t result = tracked->ops.ext_get_allocation_properties(
        tracked->self, ptr, UMF_MEMORY_PROPERTY_POINTER_TYPE, &type);
    bool is_known = result == UMF_RESULT_SUCCESS && type != UMF_MEMORY_TYPE_UNKNOWN;
    int access = !is_known                        ? ACCESS_PROBED
                 : type == UMF_MEMORY_TYPE_DEVICE ? ACCESS_PROVIDER
                                                  : ACCESS_CPU;
    atomic_store_explicit(&content->access, access, memory_order_relaxed);
    return access;
}

typedef int (*probe_t)(void *addr);

/* Can the CPU access the span of `ptr`? A span that it can is recorded by its id, which no other
 * span ever has. */
static bool is_reached(umf_content_t *content, const void *ptr, probe_t probe) {
    const umf_span_t *span = umf_tracked_find(content->tracked, ptr);
    _Atomic uint64_t *known =
        span ? &content->known[umf_span_index(span) % UMF_CONTENT_KNOWN] : NULL;
    if (known && atomic_load_explicit(known, memory_order_relaxed) == span->id) {
        return true;
    }
    int saved_errno = errno;
    bool is_in_reach = probe((void *)(uintptr_t)ptr) != EFAULT;
    errno = saved_errno;
    if (known && is_in_reach && probe == umf_os_probe_write) {
        atomic_store_explicit(known, span->id, memory_order_relaxed);
    }
    return is_in_reach;
}

/* Shall the CPU do it? `probe` makes the kernel try the needed access at `ptr`. */
static bool is_for_cpu(umf_content_t *content, const void *ptr, probe_t probe) {
    int access = atomic_load_explicit(&content->access, memory_order_relaxed);
    if (umf_unlikely(access == ACCESS_UNKNOWN)) {
        access = content_ask(content, ptr);
    }
    return access == ACCESS_CPU || (access == ACCESS_PROBED && is_reached(content, ptr, probe));
}

static UMF_COLD umf_result_t refuse(const umf_content_t *content, const char *what) {
    const char *name = NULL;
    umfMemoryProviderGetName(content->tracked->root, &name);
    UMF_LOG_ERROR("memory of provider %s is out of the CPU's reach, and the provider cannot %s it: "
                  "its descriptor (umf/plugin.h) needs operations for that and for queues",
                  name ? name : "?", what);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static bool has_queues(const umf_content_t *content) {
    const umf_memory_provider_ext_ops_t *ext = content->tracked->ext;
    return ext->queue_create && ext->queue_destroy && ext->queue_wait;
}

umf_result_t umf_content_zero(umf_content_t *content, void *ptr, size_t size) {
    if (size == 0 || is_for_cpu(content, ptr, umf_os_probe_write)) {
        if (umf_likely(size < CONTENT_LARGE)) {
            memset(ptr, 0, size);
        } else {
            umf_content_mover->cpu_zero(ptr, size);
        }
        return UMF_RESULT_SUCCESS;
    }
    return content->tracked->ext->fill && has_queues(content)
               ? umf_content_mover->zero(content->tracked->root, ptr, size)
               : refuse(content, "fill");
}

umf_result_t umf_content_copy(umf_content_t *content, void *dst, const void *src, size_t size) {
    if (size == 0 || (is_for_cpu(content, dst, umf_os_probe_write) &&
                      is_for_cpu(content, src, umf_os_probe_read))) {
        if (umf_likely(size < CONTENT_LARGE)) {
            memcpy(dst, src, size);
        } else {
            umf_content_mover->cpu_copy(dst, src, size);
        }
        return UMF_RESULT_SUCCESS;
    }
    return content->tracked->ext->copy && has_queues(content)
               ? umf_content_mover->copy(content->tracked->root, dst, src, size)
               : refuse(content, "copy");
}
