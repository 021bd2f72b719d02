/*
 * What AddressSanitizer is told about memory we hand out ourselves. Without it all of this is
 * nothing.
 *
 * Memory of a provider may be annotated only where the CPU can reach it.
 */
#ifndef UMF_SRC_BASE_ANNOTATE_H
#define UMF_SRC_BASE_ANNOTATE_H

#if defined(__SANITIZE_ADDRESS__)
#define UMF_IS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UMF_IS_ASAN 1
#endif
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

#endif
