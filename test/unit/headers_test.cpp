// The public headers as C++ sees them. headers_shim.c does the same for C, from the same lists.

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "headers_all.h"

#define VALUE(name, value) static_assert((name) == (value), #name);
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type);
#define MEMBER(type, place, member_type, member)                                                   \
    static_assert(offsetof(type, member) == (place)*8, #type "." #member);                         \
    static_assert(std::is_same<decltype(type::member), member_type>::value, #type "." #member);
#include "headers_layout.def"

#define FUNCTION(result, name, parameters)                                                         \
    static_assert(std::is_same<decltype(&name), result(*) parameters>::value, #name);
#include "headers_functions.def"
#undef FUNCTION

extern "C" size_t headers_shim_sizes(void);

namespace {

struct function_t {
    const char *name;
    void (*address)();
};

// Links only if each function is there under its C name.
const function_t functions[] = {
#define FUNCTION(result, name, parameters) {#name, reinterpret_cast<void (*)()>(&name)},
#include "headers_functions.def"
#undef FUNCTION
};

} // namespace

TEST(headers, every_function_is_in_the_library) {
    for (const function_t &function : functions) {
        EXPECT_NE(function.address, nullptr) << function.name;
    }
}

TEST(headers, library_has_the_version_of_the_headers) {
    EXPECT_EQ(umfGetCurrentVersion(), UMF_VERSION_CURRENT);
}

TEST(headers, initialisers_set_the_size_and_leave_the_rest_absent) {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    EXPECT_EQ(ext.struct_size, sizeof(ext));
    EXPECT_EQ(ext.ipc_watch, nullptr);
    EXPECT_EQ(ext.ipc_check, nullptr);

    umf_memory_provider_descriptor_t provider = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    EXPECT_EQ(provider.struct_size, sizeof(provider));
    EXPECT_EQ(provider.name, nullptr);
    EXPECT_EQ(provider.ops, nullptr);
    EXPECT_EQ(provider.ext, nullptr);
    EXPECT_EQ(provider.params_from_text, nullptr);
    EXPECT_EQ(provider.params_destroy, nullptr);
    EXPECT_EQ(provider.probe, nullptr);

    umf_memory_pool_descriptor_t pool = UMF_MEMORY_POOL_DESCRIPTOR_INIT;
    EXPECT_EQ(pool.struct_size, sizeof(pool));
    EXPECT_EQ(pool.name, nullptr);
    EXPECT_EQ(pool.ops, nullptr);
    EXPECT_EQ(pool.params_from_text, nullptr);
    EXPECT_EQ(pool.params_destroy, nullptr);
    EXPECT_EQ(pool.probe, nullptr);

    umf_plugin_t plugin = UMF_PLUGIN_INIT;
    EXPECT_EQ(plugin.struct_size, sizeof(plugin));
    EXPECT_EQ(plugin.abi, 1u);
    EXPECT_EQ(plugin.providers, nullptr);
    EXPECT_EQ(plugin.num_providers, 0u);
    EXPECT_EQ(plugin.pools, nullptr);
    EXPECT_EQ(plugin.num_pools, 0u);

    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    EXPECT_EQ(policy.struct_size, sizeof(policy));
    EXPECT_EQ(policy.keep, UMF_SUSPEND_KEEP_PINNED);
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    EXPECT_EQ(params.struct_size, sizeof(params));
    EXPECT_EQ(params.num_queues + params.num_events, 0u);
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    EXPECT_EQ(report.struct_size, sizeof(report));
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    EXPECT_EQ(residency.struct_size, sizeof(residency));

    EXPECT_EQ(headers_shim_sizes(), sizeof(ext) + sizeof(provider) + sizeof(pool) + sizeof(plugin) +
                                        sizeof(policy) + sizeof(params) + sizeof(report) +
                                        sizeof(residency));
}
