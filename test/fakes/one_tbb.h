/*
 * Whether oneTBB's allocator is installed, which the scalable pool opens. Where it is not, tests
 * leave that pool out, and each program says so once.
 */
#ifndef UMF_TEST_FAKES_ONE_TBB_H
#define UMF_TEST_FAKES_ONE_TBB_H

#include <cstdio>

#include <dlfcn.h>

inline bool has_one_tbb() {
    static const bool is_there = [] {
        void *library = dlopen("libtbbmalloc.so.2", RTLD_LAZY | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "skipped: everything of the scalable pool; libtbbmalloc.so.2 is not "
                            "installed\n");
            return false;
        }
        return dlclose(library) == 0;
    }();
    return is_there;
}

#endif
