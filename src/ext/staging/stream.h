/*
 * Stream: a copy past the cache. memcpy does that only for sizes far above what one of several
 * threads copies at once, and without it the destination is read before it is written.
 */
#ifndef UMF_SRC_EXT_STAGING_STREAM_H
#define UMF_SRC_EXT_STAGING_STREAM_H

#include <string.h>

#include "system/annotate.h"
#include "system/common.h"

#if defined(__SSE2__) && !UMF_IS_ASAN && !UMF_IS_TSAN

#include <emmintrin.h>

/* Four pages at a time, a line of each in turn: memory serves several rows at once. */
#define UMF_STREAM_PAGE ((size_t)4096)
#define UMF_STREAM_PAGES ((size_t)4)
#define UMF_STREAM_AHEAD 128

static inline void umf_stream_line(char *to, const char *from) {
    const __m128i *source = (const __m128i *)(const void *)from;
    __m128i *target = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
            c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
}

static inline void umf_stream_pages(char *to, const char *from) {
    for (size_t at = 0; at < UMF_STREAM_PAGE; at += 64) {
        for (size_t page = 0; page < UMF_STREAM_PAGES; page++) {
            size_t offset = page * UMF_STREAM_PAGE + at;
            _mm_prefetch(from + offset + UMF_STREAM_AHEAD, _MM_HINT_T0);
            umf_stream_line(to + offset, from + offset);
        }
    }
}

/* The ranges do not overlap. */
static inline void umf_stream_copy(char *to, const char *from, size_t size) {
    const size_t step = UMF_STREAM_PAGES * UMF_STREAM_PAGE;
    size_t head = -(uintptr_t)to % 16; /* the stores must be aligned */
    if (size < step + head) {
        memcpy(to, from, size);
        return;
    }
    memcpy(to, from, head);
    size_t at = head;
    for (; size - at >= step; at += step) {
        umf_stream_pages(to + at, from + at);
    }
    _mm_sfence();
    memcpy(to + at, from + at, size - at);
}

#else

static inline void umf_stream_copy(char *to, const char *from, size_t size) {
    memcpy(to, from, size);
}

#endif

#endif
