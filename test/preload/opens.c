/* Opens a library as a plugin: opens <library>. Ends with 0 if its work() is right. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = library ? dlsym(library, "work") : NULL;
    if (!address) {
        const char *error = dlerror();
        puts(error ? error : "usage: opens <library>");
        return 1;
    }
    int (*work)(void);
    memcpy(&work, &address, sizeof(work));
    return work() ? 0 : 1;
}
