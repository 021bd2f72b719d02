/* Opens two libraries: deepbind <plugin> <outer>. The first one with RTLD_DEEPBIND. The second one
 * opens a library that only its own search path leads to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int call(const char *file, int mode) {
    void *library = dlopen(file, mode);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    int (*work)(void);
    void *address = dlsym(library, "work");
    memcpy(&work, &address, sizeof(work));
    return work && work();
}

int main(int argc, char **argv) {
    if (argc != 3 || !call(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) {
        return 1;
    }
    return call(argv[2], RTLD_NOW) ? 0 : 2;
}
