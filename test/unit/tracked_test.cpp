/* Which memory of a provider pools have got, also where another pool stands on it. */
#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/fake_provider.h"

extern "C" {
#include "object/provider_query.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

TEST(Tracked, AlsoBelowOtherPools) {
    FakeProvider fake, unrelated;
    umf_memory_provider_handle_t provider = fake.create(), other = unrelated.create();
    umf_memory_provider_handle_t above = nullptr;
    umf_memory_pool_handle_t outer = nullptr, inner = nullptr;
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    constexpr size_t size = 65536;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &outer), OK);
    auto block = static_cast<char *>(umfPoolMalloc(outer, size));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(umf_provider_is_tracked(provider, block));
    EXPECT_FALSE(umf_provider_is_tracked(provider, block + 4096)) << "not where it begins";
    EXPECT_FALSE(umf_provider_is_tracked(other, block));

    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(block, size, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &above), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), above, nullptr, 0, &inner), OK);
    void *part = umfPoolMalloc(inner, 4096);
    ASSERT_EQ(part, block) << "at the very address";
    EXPECT_TRUE(umf_provider_is_tracked(above, block));
    EXPECT_TRUE(umf_provider_is_tracked(provider, block));
    EXPECT_FALSE(umf_provider_is_tracked(other, block));

    EXPECT_EQ(umfPoolFree(inner, part), OK);
    EXPECT_FALSE(umf_provider_is_tracked(above, block));
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(above), OK);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfPoolFree(outer, block), OK);
    EXPECT_FALSE(umf_provider_is_tracked(provider, block));
    EXPECT_EQ(umfPoolDestroy(outer), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(other), OK);
}

} // namespace
