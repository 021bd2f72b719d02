#include "proxy/libc.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "proxy/common.h"

static umf_proxy_libc_t libc; /* Sync: is_ready */
static atomic_bool is_ready;

/* The lookup itself may allocate and come back here. */
static UMF_PROXY_THREAD bool is_looking;

static bool look_up(const char *name, void *function, size_t size) {
    void *address = dlsym(RTLD_NEXT, name);
    memcpy(function, &address, size);
    return address != NULL;
}

#define LOOK_UP(table, name) look_up(#name, &(table)->name, sizeof((table)->name))

static bool look_up_all(umf_proxy_libc_t *table) {
    return LOOK_UP(table, malloc) && LOOK_UP(table, calloc) && LOOK_UP(table, realloc) &&
           LOOK_UP(table, posix_memalign) && LOOK_UP(table, free) &&
           LOOK_UP(table, malloc_usable_size);
}

/* Two threads can be here at once only before the library is initialised. Both find the same
 * functions. */
static UMF_PROXY_COLD const umf_proxy_libc_t *find(void) {
    umf_proxy_libc_t found;
    if (is_looking) {
        return NULL;
    }
    is_looking = true;
    bool is_complete = look_up_all(&found);
    is_looking = false;
    if (!is_complete) {
        return NULL;
    }
    libc = found;
    atomic_store_explicit(&is_ready, true, memory_order_release);
    return &libc;
}

const umf_proxy_libc_t *umf_proxy_libc(void) {
    return atomic_load_explicit(&is_ready, memory_order_acquire) ? &libc : find();
}
