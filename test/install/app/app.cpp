// Every pool that this build of the library has, from C++.
#include <cstdio>
#include <cstring>
#include <string>

#include <umf.h>
#include <umf/text.h>

static int use_pool(const char *kind, int available, const char *, void *failed) {
    if (!available) {
        return 0;
    }
    umf_memory_pool_handle_t pool;
    std::string text = std::string(kind) + " over os";
    if (umfPoolCreateFromText(text.c_str(), &pool) != UMF_RESULT_SUCCESS) {
        std::fprintf(stderr, "%s: %s\n", text.c_str(), umfTextError());
        *static_cast<bool *>(failed) = true;
        return 0;
    }
    void *memory = umfPoolMalloc(pool, 1000);
    *static_cast<bool *>(failed) |=
        !memory || !std::memset(memory, 1, 1000) || umfFree(memory) != UMF_RESULT_SUCCESS;
    umfPoolDestroy(pool);
    std::printf("C++ works: %s\n", text.c_str());
    return 0;
}

int main() {
    bool failed = false;
    return umfPoolKinds(use_pool, &failed) != UMF_RESULT_SUCCESS || failed;
}
