/*
 * What AddressSanitizer is told about memory we hand out ourselves. Without it all of this is
 * nothing.
 *
 * Memory of a provider may be annotated only where the CPU can reach it.
 */
#ifndef UMF_SRC_SYSTEM_ANNOTATE_H
#define UMF_SRC_SYSTEM_ANNOTATE_H

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define UMF_IS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UMF_IS_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define UMF_IS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UMF_IS_TSAN 1
#endif
#endif
#ifndef UMF_IS_TSAN
#define UMF_IS_TSAN 0 /* it sees no assembly */
#endif

#ifdef UMF_IS_ASAN
#include <sanitizer/asan_interface.h>
/* Any access to [ptr, ptr + size) is reported until it is unpoisoned. */
#define UMF_POISON(ptr, size) __asan_poison_memory_region((ptr), (size))
#define UMF_UNPOISON(ptr, size) __asan_unpoison_memory_region((ptr), (size))
#else
#define UMF_IS_ASAN 0
#define UMF_POISON(ptr, size) ((void)(ptr), (void)(size))
#define UMF_UNPOISON(ptr, size) ((void)(ptr), (void)(size))
#endif

/*
 * memcpy and memset over whole pages of somebody's memory, where allocations lie next to what is
 * poisoned. The state of the bytes stays as it is.
 */
#if UMF_IS_ASAN
#define UMF_WITHOUT_ASAN __attribute__((no_sanitize("address"), noinline, unused))
/* Volatile, or it would become a call of the checked memcpy. */
UMF_WITHOUT_ASAN static void umf_copy_poisoned(void *dst, const void *src, size_t size) {
    uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    size_t at = 0;
    for (; (to | from) % 8 == 0 && at + 8 <= size; at += 8) {
        *(volatile uint64_t *)(to + at) = *(const volatile uint64_t *)(from + at);
    }
    for (; at < size; at++) {
        *(volatile char *)(to + at) = *(const volatile char *)(from + at);
    }
}
UMF_WITHOUT_ASAN static void umf_fill_poisoned(void *dst, int value, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((volatile char *)dst)[i] = (char)value;
    }
}
#else
#define umf_copy_poisoned memcpy
#define umf_fill_poisoned memset
#endif

#endif
