#include "proxy/other.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A program that is not position-independent and takes the address of a function has a stub for it,
 * at which its symbol has no section. */
static bool is_stub(const void *address) {
#ifdef __GLIBC__
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    return dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
           symbol->st_shndx == SHN_UNDEF;
#else
    (void)address;
    return false;
#endif
}

static bool is_bound_to(const char *name, const void *function, size_t size) {
    void *bound = dlsym(RTLD_DEFAULT, name);
    return memcmp(&bound, function, size) == 0 || is_stub(bound);
}

/* Each sees only memory of its own malloc. */
static const char *sanitizer(void) {
    static const struct {
        const char *symbol, *reason;
    } all[] = {{"__asan_init", "it runs under AddressSanitizer"},
               {"__tsan_init", "it runs under ThreadSanitizer"},
               {"__msan_init", "it runs under MemorySanitizer"},
               {"__hwasan_init", "it runs under HWAddressSanitizer"},
               {"__lsan_do_leak_check", "it runs under LeakSanitizer"}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (dlsym(RTLD_DEFAULT, all[i].symbol)) {
            return all[i].reason;
        }
    }
    return NULL;
}

const char *umf_proxy_other(void *(*own_malloc)(size_t size), void (*own_free)(void *ptr)) {
    const char *reason = sanitizer();
    if (!reason && (!is_bound_to("malloc", &own_malloc, sizeof(own_malloc)) ||
                    !is_bound_to("free", &own_free, sizeof(own_free)))) {
        reason = "it has a malloc of its own";
    }
    return reason;
}
