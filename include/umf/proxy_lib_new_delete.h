/** @file
 * C++ operators new and delete on top of malloc, free and aligned_alloc, for programs that run with
 * the proxy library (libumf_proxy.so): so every object comes from its heap, whatever the operators
 * of the C++ library do.
 *
 * Include it in exactly one source file of a program: it defines the replaceable global operators,
 * all operators of the language version in use. As the standard requires, the new handler is called
 * while there is one and memory is short; then forms that throw throw std::bad_alloc, and
 * std::nothrow forms return NULL. Without the proxy library they use the C library's allocator. In
 * C the header is empty.
 */
#ifndef UMF_PROXY_LIB_NEW_DELETE_H
#define UMF_PROXY_LIB_NEW_DELETE_H 1

#ifdef __cplusplus

#include <new>
#include <stddef.h>
#include <stdlib.h>

/// @brief Attributes of an operator new; `n` is the number of the parameter with the size.
#if defined(__GNUC__)
#define decl_new(n) __attribute__((__malloc__, __alloc_size__(n), __warn_unused_result__))
#else
#define decl_new(n)
#endif

/// @brief Attributes of an operator new that returns NULL instead of throwing.
#define decl_new_nothrow(n) decl_new(n)

/// @brief Allocates aligned memory of any size.
///
/// @param alignment a power of two
/// @param size bytes; rounded up to a multiple of `alignment`, as C requires
/// @return memory for free(), NULL if there is none
static inline void *internal_aligned_alloc(size_t alignment, size_t size) {
    size_t rounded = (size + alignment - 1) & ~(alignment - 1);
    if (rounded < size) {
        return NULL;
    }
    return aligned_alloc(alignment, rounded ? rounded : alignment);
}

/// @cond
namespace umf_new_delete {

/* `alignment` 0: that of malloc. */
inline void *allocate(size_t size, size_t alignment) {
    void *ptr;
    while ((ptr = alignment ? internal_aligned_alloc(alignment, size) : malloc(size ? size : 1)) ==
           NULL) {
        std::new_handler handler = std::get_new_handler();
        if (!handler) {
            throw std::bad_alloc();
        }
        handler();
    }
    return ptr;
}

inline void *allocate_nothrow(size_t size, size_t alignment) noexcept {
    try {
        return allocate(size, alignment);
    } catch (...) {
        return NULL;
    }
}

} // namespace umf_new_delete

decl_new(1) void *operator new(size_t size) {
    return umf_new_delete::allocate(size, 0);
}

decl_new(1) void *operator new[](size_t size) {
    return umf_new_delete::allocate(size, 0);
}

decl_new_nothrow(1) void *operator new(size_t size, const std::nothrow_t &) noexcept {
    return umf_new_delete::allocate_nothrow(size, 0);
}

decl_new_nothrow(1) void *operator new[](size_t size, const std::nothrow_t &) noexcept {
    return umf_new_delete::allocate_nothrow(size, 0);
}

void operator delete(void *ptr) noexcept {
    free(ptr);
}

void operator delete[](void *ptr) noexcept {
    free(ptr);
}

void operator delete(void *ptr, const std::nothrow_t &) noexcept {
    free(ptr);
}

void operator delete[](void *ptr, const std::nothrow_t &) noexcept {
    free(ptr);
}

#if __cplusplus >= 201402L

void operator delete(void *ptr, size_t) noexcept {
    free(ptr);
}

void operator delete[](void *ptr, size_t) noexcept {
    free(ptr);
}

#endif

#if __cplusplus >= 201703L

decl_new(1) void *operator new(size_t size, std::align_val_t alignment) {
    return umf_new_delete::allocate(size, static_cast<size_t>(alignment));
}

decl_new(1) void *operator new[](size_t size, std::align_val_t alignment) {
    return umf_new_delete::allocate(size, static_cast<size_t>(alignment));
}

decl_new_nothrow(1) void *operator new(size_t size, std::align_val_t alignment,
                                       const std::nothrow_t &) noexcept {
    return umf_new_delete::allocate_nothrow(size, static_cast<size_t>(alignment));
}

decl_new_nothrow(1) void *operator new[](size_t size, std::align_val_t alignment,
                                         const std::nothrow_t &) noexcept {
    return umf_new_delete::allocate_nothrow(size, static_cast<size_t>(alignment));
}

void operator delete(void *ptr, std::align_val_t) noexcept {
    free(ptr);
}

void operator delete[](void *ptr, std::align_val_t) noexcept {
    free(ptr);
}

void operator delete(void *ptr, size_t, std::align_val_t) noexcept {
    free(ptr);
}

void operator delete[](void *ptr, size_t, std::align_val_t) noexcept {
    free(ptr);
}

void operator delete(void *ptr, std::align_val_t, const std::nothrow_t &) noexcept {
    free(ptr);
}

void operator delete[](void *ptr, std::align_val_t, const std::nothrow_t &) noexcept {
    free(ptr);
}

#endif
/// @endcond

#endif /* __cplusplus */

#endif /* UMF_PROXY_LIB_NEW_DELETE_H */
