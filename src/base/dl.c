/*
 * Libraries found at run time.
 */
#include "base/dl.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "system/common.h"
#include "system/os.h"

static bool dl_fails(const char *call) {
    umf_os_fault_t fault = atomic_load_explicit(&umf_os_fault, memory_order_relaxed);
    return umf_unlikely(fault != NULL) && fault(call) != 0;
}

void *umf_dl_open(const char *name, bool loaded_only, char *why, size_t why_size) {
    if (dl_fails("dl_open")) {
        snprintf(why, why ? why_size : 0, "%s: refused by a test", name);
        return NULL;
    }
    /* Libraries read variables of the environment that name code to load. */
    bool is_privileged = umf_os_is_privileged();
    bool loads = !loaded_only && !is_privileged;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | (loads ? 0 : RTLD_NOLOAD));
    if (!library && is_privileged) {
        snprintf(
            why, why ? why_size : 0,
            "%s: a program that runs with other rights than those of its starter (set-user-ID) "
            "loads no library by itself; link the program with it",
            name);
    } else if (!library && why && why_size > 0) {
        /* The loader has no text for a library that is merely not loaded. */
        const char *text = dlerror();
        snprintf(why, why_size, "%s", text ? text : "not loaded");
    }
    return library;
}

void *umf_dl_find(const char *name, char *why, size_t why_size) {
    void *library = umf_dl_open(name, true, NULL, 0);
    return library ? library : umf_dl_open(name, false, why, why_size);
}

void umf_dl_close(void *library) {
    if (library) {
        dlclose(library);
    }
}

static int dl_read_generation(struct dl_phdr_info *info, size_t size, void *generation) {
    (void)size;
    *(uint64_t *)generation = info->dlpi_adds;
    return 1; /* the first library says it */
}

uint64_t umf_dl_generation(void) {
    uint64_t generation = 0;
    dl_iterate_phdr(dl_read_generation, &generation);
    return generation;
}

void *umf_dl_symbol(void *library, const char *name) {
    return dl_fails("dl_symbol") ? NULL : dlsym(library, name);
}

bool umf_dl_is_from(const char *name, const char *library) {
    Dl_info info;
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function || !dladdr(function, &info) || !info.dli_fname) {
        return false;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    return strncmp(slash ? slash + 1 : info.dli_fname, library, strlen(library)) == 0;
}

static const char *dl_first_missing(void *library, const umf_dl_symbol_t *symbols, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!symbols[i].optional && !umf_dl_symbol(library, symbols[i].name)) {
            return symbols[i].name;
        }
    }
    return NULL;
}

const char *umf_dl_fill(void *library, const umf_dl_symbol_t *symbols, size_t count, void *table) {
    const char *missing = dl_first_missing(library, symbols, count);
    for (size_t i = 0; !missing && i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &symbol, sizeof(symbol));
    }
    return missing;
}

umf_result_t umf_dl_load(void *library, const char *library_name, const umf_dl_symbol_t *symbols,
                         size_t count, void *table) {
    const char *missing = umf_dl_fill(library, symbols, count, table);
    if (missing) {
        UMF_LOG_ERROR(
            "library %s has no symbol %s: it is too old or not what its name says; install a "
            "newer one",
            library_name, missing);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return UMF_RESULT_SUCCESS;
}
