#include <umf.h>
#include <umf/text.h>

int main(void) {
    umf_memory_pool_handle_t pool;
    if (umfPoolCreateFromText("disjoint over os", &pool) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    umfFree(umfPoolMalloc(pool, 100));
    return umfPoolDestroy(pool) != UMF_RESULT_SUCCESS;
}
