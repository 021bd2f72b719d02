/*
 * umf-bench-start LIBRARY [FUNCTION]: nanoseconds from before the library is loaded until its first
 * allocation is done, or, without FUNCTION, until it is loaded. Not linked with the library, so
 * that its start is measured, too. FUNCTION names a pool's ops function of libumf, or a
 * malloc, or it is umfInit: then a start of libumf is measured, loaded and ended before.
 */
#include <umf.h>
#include <umf/providers/provider_os_memory.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The function of that name, as its declaration has it. */
#define LOOK_UP(library, name) ((__typeof__(&name))look_up(library, #name))

typedef void (*function_t)(void);

static function_t look_up(void *library, const char *name) {
    function_t function;
    void *address = dlsym(library, name);
    memcpy(&function, &address, sizeof(function));
    return function;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *first_malloc(void *library, const char *name) {
    void *(*allocate)(size_t) = (void *(*)(size_t))look_up(library, name);
    return allocate ? allocate(64) : NULL;
}

static void *first_pool_malloc(void *library, const char *name) {
    const umf_memory_pool_ops_t *(*ops)(void) =
        (const umf_memory_pool_ops_t *(*)(void))look_up(library, name);
    umf_os_memory_provider_params_handle_t params = NULL;
    umf_memory_provider_handle_t provider = NULL;
    umf_memory_pool_handle_t pool = NULL;
    if (!ops || LOOK_UP(library, umfOsMemoryProviderParamsCreate)(&params) != UMF_RESULT_SUCCESS ||
        LOOK_UP(library, umfMemoryProviderCreate)(LOOK_UP(library, umfOsMemoryProviderOps)(),
                                                  params, &provider) != UMF_RESULT_SUCCESS ||
        LOOK_UP(library, umfPoolCreate)(ops(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                                        &pool) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    return LOOK_UP(library, umfPoolMalloc)(pool, 64);
}

static int start_again(void *library) {
    if (LOOK_UP(library, umfTearDown)() != UMF_RESULT_SUCCESS) {
        printf("umfTearDown failed\n");
        return 1;
    }
    const uint64_t begin = now_ns();
    umf_result_t result = LOOK_UP(library, umfInit)();
    const uint64_t end = now_ns();
    printf("%llu\n", (unsigned long long)(end - begin));
    return result != UMF_RESULT_SUCCESS;
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: umf-bench-start LIBRARY [FUNCTION]\n");
        return 2;
    }
    const char *name = argc == 3 ? argv[2] : "";
    const uint64_t begin = now_ns();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (strcmp(name, "umfInit") == 0) {
        return start_again(library);
    }
    void *ptr = !*name                         ? library
                : strncmp(name, "umf", 3) == 0 ? first_pool_malloc(library, name)
                                               : first_malloc(library, name);
    const uint64_t end = now_ns();
    if (!ptr) {
        printf("%s: the first allocation failed\n", name);
        return 1;
    }
    printf("%llu\n", (unsigned long long)(end - begin));
    return 0;
}
