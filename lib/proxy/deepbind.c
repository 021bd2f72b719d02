/*
 * dlopen without RTLD_DEEPBIND. A library that is opened with this flag finds the C library's
 * malloc and free before ours, but strdup or getline give it memory of our heap: its free would end
 * the process. So the flag is taken away, and the log has a line.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "proxy/common.h"
#include "proxy/heap.h"
#include "proxy/report.h"

#ifndef RTLD_DEEPBIND /* in musl */
#define RTLD_DEEPBIND 0
#endif

typedef void *(*dlopen_t)(const char *file, int mode);

UMF_PROXY_EXPORT void *dlopen(const char *file, int mode);

static dlopen_t next_dlopen(void) {
    static _Atomic(dlopen_t) known;
    dlopen_t next = atomic_load_explicit(&known, memory_order_relaxed);
    if (!next) {
        void *address = dlsym(RTLD_NEXT, "dlopen");
        memcpy(&next, &address, sizeof(next));
        atomic_store_explicit(&known, next, memory_order_relaxed);
    }
    return next;
}

static UMF_PROXY_COLD int without_deepbind(const char *file, int mode) {
    if (umf_proxy_heap.is_missing) {
        return mode;
    }
    umf_proxy_warn("dlopen(\"%s\") without RTLD_DEEPBIND, with which the library would free memory "
                   "of the heap by the C library's free",
                   file ? file : "");
    return mode & ~RTLD_DEEPBIND;
}

/* The loader searches for `file` by the paths of the caller, which it finds by the return
 * address: the call must be a jump, whatever the optimisation of the build. */
#if defined(__clang__)
#define TAIL __attribute__((musttail))
#define WITH_TAIL_CALLS
#else
#define TAIL
#define WITH_TAIL_CALLS __attribute__((optimize("O2")))
#endif

WITH_TAIL_CALLS void *dlopen(const char *file, int mode) {
    if (umf_proxy_unlikely(mode & RTLD_DEEPBIND)) {
        mode = without_deepbind(file, mode);
    }
    TAIL return next_dlopen()(file, mode);
}
