/*
 * Libraries that a test loads by path; without one, or without a function of it, the test program
 * ends.
 */
#ifndef UMF_TEST_FAKES_LIBRARY_H
#define UMF_TEST_FAKES_LIBRARY_H

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

inline void *must_open(const char *path, int flags) {
    void *library = dlopen(path, RTLD_NOW | flags);
    if (!library) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        exit(1);
    }
    return library;
}

// The address of a function becomes `*function`.
template <typename F> void must_find(void *library, const char *symbol, F *function) {
    void *address = dlsym(library, symbol);
    if (!address) {
        fprintf(stderr, "the library has no %s\n", symbol);
        exit(1);
    }
    memcpy(static_cast<void *>(function), &address, sizeof(address));
}

// The test chooses the software driver, unless the environment wants the real one.
inline bool wants_real(const char *variable) {
    const char *wish = getenv(variable);
    return wish && strcmp(wish, "real") == 0;
}

// The n-th next call of a function of a software driver (-1: of any) gives `result`; returns how
// many calls the one chosen before was still away, 0: it came.
template <typename Control> long fail_call(Control *control, int function, int result, long n) {
    long left = control->fail_at;
    control->fail_function = function;
    control->fail_with = result;
    control->fail_at = n;
    return left;
}

// The n-th next call, whatever it is, or that one and all after it; whether the one chosen before
// came.
template <typename Control> bool fail_calls(Control *control, int result, long n, bool and_after) {
    control->fail_on = and_after;
    return fail_call(control, -1, result, n) <= 0;
}

#endif
