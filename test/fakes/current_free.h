// Frees into the calling thread's current pool (umf/memory_pool_ext.h).
#ifndef UMF_TEST_FAKES_CURRENT_FREE_H
#define UMF_TEST_FAKES_CURRENT_FREE_H

#include <umf/memory_pool_ext.h>

inline unsigned &current_free_otherwise() {
    static thread_local unsigned count;
    return count;
}

// false: the object was not freed, but left to `otherwise`. Every few thousandth free is, too, so
// it is tried twice.
inline bool current_free(umf_memory_pool_handle_t pool, void *ptr) {
    const auto otherwise = [](void *) { current_free_otherwise()++; };
    current_free_otherwise() = 0;
    umfCurrentPoolSet(pool);
    umfCurrentPoolFree(ptr, otherwise);
    if (current_free_otherwise()) {
        umfCurrentPoolFree(ptr, otherwise);
    }
    umfCurrentPoolSet(nullptr);
    return current_free_otherwise() < 2;
}

#endif
