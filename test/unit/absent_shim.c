/*
 * src/absent.c as a library sees it that was built without every optional kind. Its log goes to
 * the test instead of the library's, which has some of these functions itself.
 */
#undef UMF_WITH_JEMALLOC
#undef UMF_WITH_CUDA
#undef UMF_WITH_LEVEL_ZERO
#undef UMF_WITH_LINUX
#define UMF_WITH_JEMALLOC 0
#define UMF_WITH_CUDA 0
#define UMF_WITH_LEVEL_ZERO 0
#define UMF_WITH_LINUX 0
#include "absent.c"

#include <stdarg.h>
#include <stdio.h>

extern char absent_log[256];
char absent_log[256];

void umf_log_error(const char *function, const char *format, ...) {
    (void)function;
    va_list args;
    va_start(args, format);
    vsnprintf(absent_log, sizeof(absent_log), format, args);
    va_end(args);
}
