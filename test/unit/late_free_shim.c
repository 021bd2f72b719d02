#include "late_free_shim.h"

#include "object/object.h"
#include "object/provider/tracked_provider.h"

uint64_t shim_entry_of(const void *ptr) {
    return umf_map_find(&umf_map_global, (uintptr_t)ptr);
}

umf_result_t shim_free_at(umf_memory_pool_handle_t pool, void *ptr, uint64_t entry) {
    return pool->fast->free_at(pool->self, ptr, entry);
}

umf_result_t shim_give_back(umf_memory_pool_handle_t pool, void *ptr) {
    return umf_pool_free_at(pool, ptr);
}
