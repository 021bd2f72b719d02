/* object/tables.c: messages about incomplete tables of operations. */
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/fake_provider.h"
#include "fakes/log_file.h"
#include "fakes/table_member.h"

namespace {

// The log names the missing operation.
template <typename Ops, typename Create>
void expect_named(const Ops &whole, Create create, std::initializer_list<TableMember> all) {
    for (TableMember each : all) {
        Ops ops = without(whole, each);
        LogFile log;
        EXPECT_EQ(create(&ops), UMF_RESULT_ERROR_INVALID_ARGUMENT) << each.name;
        EXPECT_EQ(log.count(std::string(each.name) + " is NULL"), 1u) << log.text();
    }
}

TEST(Tables, ALackingOperationOfAProviderIsNamed) {
    using Ops = umf_memory_provider_ops_t;
    FakeProvider fake;
    auto create = [&](Ops *ops) {
        umf_memory_provider_handle_t provider = nullptr;
        return umfMemoryProviderCreate(ops, &fake, &provider);
    };
    Ops whole = *umfOsMemoryProviderOps();
    expect_named(
        whole, create,
        {TABLE_MEMBER(Ops, initialize), TABLE_MEMBER(Ops, finalize), TABLE_MEMBER(Ops, alloc),
         TABLE_MEMBER(Ops, free), TABLE_MEMBER(Ops, get_last_native_error),
         TABLE_MEMBER(Ops, get_recommended_page_size), TABLE_MEMBER(Ops, get_min_page_size),
         TABLE_MEMBER(Ops, get_name), TABLE_MEMBER(Ops, get_cache_line_size),
         TABLE_MEMBER(Ops, ext_allocation_split), TABLE_MEMBER(Ops, ext_allocation_merge),
         TABLE_MEMBER(Ops, ext_get_ipc_handle_size), TABLE_MEMBER(Ops, ext_get_ipc_handle),
         TABLE_MEMBER(Ops, ext_put_ipc_handle), TABLE_MEMBER(Ops, ext_open_ipc_handle),
         TABLE_MEMBER(Ops, ext_close_ipc_handle)});
    whole.ext_get_allocation_properties = [](void *, const void *, umf_memory_property_id_t,
                                             void *) { return UMF_RESULT_SUCCESS; };
    whole.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *) {
        return UMF_RESULT_SUCCESS;
    };
    expect_named(whole, create,
                 {TABLE_MEMBER(Ops, ext_get_allocation_properties),
                  TABLE_MEMBER(Ops, ext_get_allocation_properties_size)});
}

TEST(Tables, ALackingOperationOfAPoolIsNamed) {
    using Ops = umf_memory_pool_ops_t;
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    auto create = [&](Ops *ops) {
        umf_memory_pool_handle_t pool = nullptr;
        return umfPoolCreate(ops, provider, nullptr, 0, &pool);
    };
    expect_named(*umfProxyPoolOps(), create,
                 {TABLE_MEMBER(Ops, initialize), TABLE_MEMBER(Ops, finalize),
                  TABLE_MEMBER(Ops, malloc), TABLE_MEMBER(Ops, calloc), TABLE_MEMBER(Ops, realloc),
                  TABLE_MEMBER(Ops, aligned_malloc), TABLE_MEMBER(Ops, malloc_usable_size),
                  TABLE_MEMBER(Ops, free), TABLE_MEMBER(Ops, get_last_allocation_error),
                  TABLE_MEMBER(Ops, get_name)});
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
}

} // namespace
