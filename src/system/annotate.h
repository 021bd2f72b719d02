/*
 * Annotations of the memory that we hand out, for AddressSanitizer. Without it they are empty.
 *
 * Memory of a provider may be annotated only if the CPU can reach it.
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
/* Code tests it, because ThreadSanitizer does not see into assembly. */
#define UMF_IS_TSAN 0
#endif

/* For functions with intended data races: they read words that other threads write. */
#if UMF_IS_TSAN
#define UMF_WITHOUT_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define UMF_WITHOUT_TSAN
#endif

#ifdef UMF_IS_ASAN
#include <sanitizer/asan_interface.h>
/* The sanitizer ends a program that names an address without a shadow. A provider may supply such
 * addresses: the CPU need not be able to access its memory. */
#define UMF_HAS_SHADOW(ptr) ((uintptr_t)(ptr) >> 47 == 0)
/* Any access to [ptr, ptr + size) is reported until it is unpoisoned. */
#define UMF_POISON(ptr, size)                                                                      \
    (UMF_HAS_SHADOW(ptr) ? __asan_poison_memory_region((ptr), (size)) : (void)0)
#define UMF_UNPOISON(ptr, size)                                                                    \
    (UMF_HAS_SHADOW(ptr) ? __asan_unpoison_memory_region((ptr), (size)) : (void)0)
#else
#define UMF_IS_ASAN 0
#define UMF_POISON(ptr, size) ((void)(ptr), (void)(size))
#define UMF_UNPOISON(ptr, size) ((void)(ptr), (void)(size))
#endif

/*
 * memcpy and memset over whole pages, in which allocations lie next to poisoned memory. The poison
 * state of the bytes does not change.
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
