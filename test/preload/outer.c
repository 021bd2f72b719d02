/* Opens a library by its name, which is found by the search path of this one. */
#include <dlfcn.h>
#include <stddef.h>

int work(void) {
    return dlopen("libumf_preload_inner.so", RTLD_NOW) != NULL;
}
