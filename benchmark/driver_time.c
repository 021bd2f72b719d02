/* Preloaded: the time that libumf spends in the driver's calls for virtual memory.
 *
 * Whoever looks for one of those functions, by dlsym or by cuGetProcAddress, gets one of this
 * library, which calls the driver's. Torch uses cuGetProcAddress_v2, so its own calls are not
 * counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

/* All arguments are integers or pointers, at most five. */
typedef int call_t(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static _Atomic(call_t *) driver_calls[7];
static atomic_uint_least64_t spent_ns, count;

EXPORTED uint64_t umf_bench_driver_ns(void);
EXPORTED uint64_t umf_bench_driver_calls(void);
EXPORTED void *dlsym(void *restrict library, const char *restrict name);

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int timed(int index, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
    uint64_t start = now_ns();
    int result = atomic_load(&driver_calls[index])(a, b, c, d, e);
    atomic_fetch_add(&spent_ns, now_ns() - start);
    atomic_fetch_add(&count, 1);
    return result;
}

#define TIMED(index)                                                                               \
    static int timed##index(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {     \
        return timed(index, a, b, c, d, e);                                                        \
    }
TIMED(0)
TIMED(1)
TIMED(2)
TIMED(3)
TIMED(4)
TIMED(5)
TIMED(6)

static const struct {
    const char *name;
    call_t *call;
} timed_calls[] = {
    {"cuMemCreate", timed0},      {"cuMemRelease", timed1},   {"cuMemMap", timed2},
    {"cuMemUnmap", timed3},       {"cuMemSetAccess", timed4}, {"cuMemAddressReserve", timed5},
    {"cuMemAddressFree", timed6},
};

uint64_t umf_bench_driver_ns(void) {
    return atomic_load(&spent_ns);
}

uint64_t umf_bench_driver_calls(void) {
    return atomic_load(&count);
}

/* The C library's own, which cannot be looked up by itself. */
static void *find_lookup(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof(versions) / sizeof(*versions); i++) {
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    return found;
}

/* The function that the caller gets instead of one of the driver. */
static void *replace(const char *name, void *found) {
    for (size_t i = 0; found && i < sizeof(timed_calls) / sizeof(*timed_calls); i++) {
        if (strcmp(name, timed_calls[i].name) == 0) {
            atomic_store(&driver_calls[i], (call_t *)(uintptr_t)found);
            return (void *)(uintptr_t)timed_calls[i].call;
        }
    }
    return found;
}

typedef int ask_t(const char *, void **, int, uint64_t);
static _Atomic(ask_t *) driver_ask;

static int ask(const char *name, void **found, int version, uint64_t flags) {
    int result = atomic_load(&driver_ask)(name, found, version, flags);
    if (result == 0) {
        *found = replace(name, *found);
    }
    return result;
}

void *dlsym(void *restrict library, const char *restrict name) {
    typedef void *lookup_t(void *, const char *);
    static _Atomic(lookup_t *) lookup;
    lookup_t *own = atomic_load(&lookup);
    if (!own) {
        own = (lookup_t *)(uintptr_t)find_lookup();
        atomic_store(&lookup, own);
    }
    if (strncmp(name, "cu", 2) != 0) {
        return own(library, name); /* a tail call: RTLD_NEXT depends on the return address */
    }
    void *found = own(library, name);
    if (found && strcmp(name, "cuGetProcAddress") == 0) {
        atomic_store(&driver_ask, (ask_t *)(uintptr_t)found);
        return (void *)(uintptr_t)ask;
    }
    return replace(name, found);
}
