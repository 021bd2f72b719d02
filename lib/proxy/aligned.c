/*
 * The other functions of the C library that return memory for free, and the frees of C23. All are
 * on top of the same allocation as malloc and aligned_alloc.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "proxy/common.h"
#include "proxy/heap.h"

UMF_PROXY_EXPORT int posix_memalign(void **ptr, size_t alignment, size_t size);
UMF_PROXY_EXPORT void *memalign(size_t alignment, size_t size);
UMF_PROXY_EXPORT void *valloc(size_t size);
UMF_PROXY_EXPORT void *pvalloc(size_t size);
UMF_PROXY_EXPORT void *reallocarray(void *ptr, size_t num, size_t size);
UMF_PROXY_EXPORT void free_sized(void *ptr, size_t size);
UMF_PROXY_EXPORT void free_aligned_sized(void *ptr, size_t alignment, size_t size);

static bool is_power_of_two(size_t value) {
    return value && (value & (value - 1)) == 0;
}

static size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The result of POSIX: `*ptr` and errno are as before after a failure. */
int posix_memalign(void **ptr, size_t alignment, size_t size) {
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) {
        return EINVAL;
    }
    int saved_errno = errno;
    void *block = umf_proxy_aligned(alignment, size);
    errno = saved_errno;
    if (!block) {
        return ENOMEM;
    }
    *ptr = block;
    return 0;
}

/* As in glibc, any alignment is raised to a power of two. */
void *memalign(size_t alignment, size_t size) {
    if (alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t raised = 1;
    while (raised < alignment) {
        raised *= 2;
    }
    return umf_proxy_aligned(raised, size);
}

void *valloc(size_t size) {
    return umf_proxy_aligned(page_size(), size);
}

/* Whole pages, one at least. */
void *pvalloc(size_t size) {
    size_t page = page_size();
    size_t rounded = (size + !size + page - 1) & ~(page - 1);
    if (rounded < size) {
        errno = ENOMEM;
        return NULL;
    }
    return umf_proxy_aligned(page, rounded);
}

void *reallocarray(void *ptr, size_t num, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(num, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return umf_proxy_realloc(ptr, bytes);
}

/* C23: the size and the alignment are a hint, which the heap does not need. */
void free_sized(void *ptr, size_t size) {
    (void)size;
    umf_proxy_free(ptr);
}

void free_aligned_sized(void *ptr, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    umf_proxy_free(ptr);
}
