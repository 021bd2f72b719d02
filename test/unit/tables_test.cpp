/* core/tables.c: what is said of tables of operations that are not whole. */
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/fake_provider.h"
#include "fakes/log_file.h"

namespace {

// The log tells which operation a table lacks.
template <typename Ops, typename Create>
void expect_named(Ops whole, const char *name, void (*clear)(Ops *), Create create) {
    clear(&whole);
    LogFile log;
    EXPECT_EQ(create(&whole), UMF_RESULT_ERROR_INVALID_ARGUMENT) << name;
    EXPECT_EQ(log.count(std::string(name) + " is NULL"), 1u) << log.text();
}

#define EXPECT_NAMED(Ops, whole, create, member)                                                   \
    expect_named<Ops>(                                                                             \
        whole, #member, [](Ops *ops) { ops->member = nullptr; }, create)

TEST(Tables, ALackingOperationOfAProviderIsNamed) {
    FakeProvider fake;
    auto create = [&](umf_memory_provider_ops_t *ops) {
        umf_memory_provider_handle_t provider = nullptr;
        return umfMemoryProviderCreate(ops, &fake, &provider);
    };
    umf_memory_provider_ops_t whole = *umfOsMemoryProviderOps();
#define NAMED(member) EXPECT_NAMED(umf_memory_provider_ops_t, whole, create, member)
    NAMED(initialize);
    NAMED(finalize);
    NAMED(alloc);
    NAMED(free);
    NAMED(get_last_native_error);
    NAMED(get_recommended_page_size);
    NAMED(get_min_page_size);
    NAMED(get_name);
    NAMED(get_cache_line_size);
    NAMED(ext_allocation_split);
    NAMED(ext_allocation_merge);
    NAMED(ext_get_ipc_handle_size);
    NAMED(ext_get_ipc_handle);
    NAMED(ext_put_ipc_handle);
    NAMED(ext_open_ipc_handle);
    NAMED(ext_close_ipc_handle);
    whole.ext_get_allocation_properties = [](void *, const void *, umf_memory_property_id_t,
                                             void *) { return UMF_RESULT_SUCCESS; };
    whole.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *) {
        return UMF_RESULT_SUCCESS;
    };
    NAMED(ext_get_allocation_properties);
    NAMED(ext_get_allocation_properties_size);
#undef NAMED
}

TEST(Tables, ALackingOperationOfAPoolIsNamed) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    auto create = [&](umf_memory_pool_ops_t *ops) {
        umf_memory_pool_handle_t pool = nullptr;
        return umfPoolCreate(ops, provider, nullptr, 0, &pool);
    };
    umf_memory_pool_ops_t whole = *umfProxyPoolOps();
#define NAMED(member) EXPECT_NAMED(umf_memory_pool_ops_t, whole, create, member)
    NAMED(initialize);
    NAMED(finalize);
    NAMED(malloc);
    NAMED(calloc);
    NAMED(realloc);
    NAMED(aligned_malloc);
    NAMED(malloc_usable_size);
    NAMED(free);
    NAMED(get_last_allocation_error);
    NAMED(get_name);
#undef NAMED
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
}

} // namespace
