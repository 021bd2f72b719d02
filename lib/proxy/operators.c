/*
 * C++'s operators new and delete, so that a call does not pass through those of the C++ library. As
 * the standard's default operators do, new[] calls new, and delete[] and the forms with a size call
 * delete, through the symbol: a program may replace new and delete alone. The forms with
 * std::nothrow or std::align_val_t stay those of the C++ library, which call new and delete here,
 * aligned_alloc and free.
 *
 * This library is not linked to a C++ library. Where there is no memory, the C++ library's
 * operator is called, which calls the new handler and throws.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <umf/memory_pool_ext.h>

#include "proxy/common.h"
#include "proxy/report.h"

UMF_PROXY_EXPORT void *operator_new(size_t size) __asm__("_Znwm");
UMF_PROXY_EXPORT void *operator_new_array(size_t size) __asm__("_Znam");
UMF_PROXY_EXPORT void operator_delete(void *ptr) __asm__("_ZdlPv");
UMF_PROXY_EXPORT void operator_delete_array(void *ptr) __asm__("_ZdaPv");
UMF_PROXY_EXPORT void operator_delete_sized(void *ptr, size_t size) __asm__("_ZdlPvm");
UMF_PROXY_EXPORT void operator_delete_array_sized(void *ptr, size_t size) __asm__("_ZdaPvm");

/* A program of C that opens a plugin of C++ has the C++ library in no scope that RTLD_NEXT sees. */
static void *cxx_operator_new(void) {
    static const char *const names[] = {"libstdc++.so.6", "libc++.so.1"};
    void *found = dlsym(RTLD_NEXT, "_Znwm");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = dlsym(library, "_Znwm");
            dlclose(library);
        }
    }
    return found;
}

static UMF_PROXY_COLD void *new_without_memory(size_t size) {
    void *found = cxx_operator_new();
    if (!found) {
        umf_proxy_complain("operator new: no memory for %zu bytes, and no C++ library is loaded "
                           "that could throw std::bad_alloc",
                           size);
        abort();
    }
    void *(*cxx)(size_t size);
    memcpy(&cxx, &found, sizeof(cxx));
    return cxx(size);
}

/* malloc and free by name: a program may have its own. */
static __attribute__((noinline)) void *new_slow(size_t size) {
    void *ptr = malloc(size + !size);
    return umf_proxy_likely(ptr != NULL) ? ptr : new_without_memory(size);
}

static __attribute__((noinline)) void delete_slow(void *ptr) {
    free(ptr);
}

/* Hot. */
void *operator_new(size_t size) {
    return umfCurrentPoolMalloc(size, new_slow);
}

void *operator_new_array(size_t size) {
    return operator_new(size);
}

/* Hot. */
void operator_delete(void *ptr) {
    umfCurrentPoolFree(ptr, delete_slow);
}

void operator_delete_array(void *ptr) {
    operator_delete(ptr);
}

void operator_delete_sized(void *ptr, size_t size) {
    (void)size;
    operator_delete(ptr);
}

void operator_delete_array_sized(void *ptr, size_t size) {
    (void)size;
    operator_delete_array(ptr);
}
