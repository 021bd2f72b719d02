/* Providers and pools from memspaces. */
#include <climits>
#include <cstdint>
#include <cstring>
#include <linux/mempolicy.h>
#include <set>

#include <umf/plugin.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/text.h>

#include "fault.h"
#include "machine.h"

extern "C" {
#include "base/meta.h"

/* Stands in for umf_os_mbind in this program (the linker's --wrap). */
int __wrap_umf_os_mbind(void *base, size_t size, int mode, const unsigned long *mask,
                        unsigned long bits);
extern const umf_memory_pool_descriptor_t umf_jemalloc_pool_descriptor __attribute__((weak));
size_t __real_umf_os_page_size(void);
size_t __wrap_umf_os_page_size(void);
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

const size_t page = umf_os_page_size();

struct Bound {
    int mode;
    size_t pages;
    std::set<unsigned> nodes;
    bool operator==(const Bound &other) const {
        return mode == other.mode && pages == other.pages && nodes == other.nodes;
    }
};

std::ostream &operator<<(std::ostream &out, const Bound &bound) {
    out << "mode " << bound.mode << ", " << bound.pages << " pages, nodes";
    for (unsigned node : bound.nodes) {
        out << ' ' << node;
    }
    return out;
}

std::vector<Bound> calls;
int answer;

/* The arguments of mbind for an allocation of `pages` pages. */
std::vector<Bound> placement(umf_memory_provider_handle_t provider, size_t pages) {
    void *ptr = nullptr;
    calls.clear();
    EXPECT_EQ(umfMemoryProviderAlloc(provider, pages * page, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, pages * page), OK);
    return calls;
}

std::vector<Bound> placement(umf_const_memspace_handle_t memspace,
                             umf_const_mempolicy_handle_t policy, size_t pages = 4) {
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromMemspace(memspace, policy, &provider), OK);
    std::vector<Bound> list = placement(provider, pages);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    return list;
}

using Placement = std::vector<Bound>;

} // namespace

int __wrap_umf_os_mbind(void *, size_t size, int mode, const unsigned long *mask,
                        unsigned long bits) {
    Bound bound = {mode, size / page, {}};
    for (unsigned i = 0; i < bits; i++) {
        if (mask[i / 64] >> (i % 64) & 1) {
            bound.nodes.insert(i);
        }
    }
    calls.push_back(bound);
    return answer;
}

static size_t pretended_page; // 0: the machine's

size_t __wrap_umf_os_page_size(void) {
    return pretended_page ? pretended_page : __real_umf_os_page_size();
}

/* --- the table -------------------------------------------------------------------------------- */

TEST(memspace_create, WithoutPolicyMemoryIsBoundToAllTargets) {
    machine::Memspace memspace({70, 3});
    EXPECT_EQ(placement(memspace.handle, nullptr), (Placement{{MPOL_BIND, 4, {3, 70}}}));
}

TEST(memspace_create, HostAllWithoutPolicySetsNone) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("four_sockets");
    EXPECT_EQ(placement(umfMemspaceHostAllGet(), nullptr), Placement{});
    machine::Memspace clone(machine::Copy::of, umfMemspaceHostAllGet());
    EXPECT_EQ(placement(clone.handle, nullptr), (Placement{{MPOL_BIND, 4, {0, 1, 2, 3}}}))
        << "a clone is another memspace";
}

TEST(memspace_create, HostAllWithAPolicy) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("four_sockets");
    machine::Policy policy(UMF_MEMPOLICY_PREFERRED);
    Placement got = placement(umfMemspaceHostAllGet(), policy.handle);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].nodes, (std::set<unsigned>{0, 1, 2, 3}));
}

TEST(memspace_create, OfHighestCapacityOnlyTheFirst) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("sparse");
    machine::Policy bind(UMF_MEMPOLICY_BIND), split(UMF_MEMPOLICY_SPLIT);
    umf_const_memspace_handle_t largest = umfMemspaceHighestCapacityGet();
    EXPECT_EQ(placement(largest, nullptr), (Placement{{MPOL_BIND, 4, {12}}}));
    EXPECT_EQ(placement(largest, bind.handle), (Placement{{MPOL_BIND, 4, {12}}}));
    EXPECT_EQ(placement(largest, split.handle), (Placement{{MPOL_BIND, 4, {12}}}));
    machine::Memspace clone(machine::Copy::of, largest);
    EXPECT_EQ(placement(clone.handle, nullptr), (Placement{{MPOL_BIND, 4, {3, 12, 70}}}));
}

TEST(memspace_create, BestBandwidthIsBound) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("hbm_flat");
    EXPECT_EQ(placement(umfMemspaceHighestBandwidthGet(), nullptr),
              (Placement{{MPOL_BIND, 4, {2, 3}}}));
    EXPECT_EQ(placement(umfMemspaceLowestLatencyGet(), nullptr),
              (Placement{{MPOL_BIND, 4, {0, 1}}}));
}

TEST(memspace_create, Bind) {
    machine::Memspace memspace({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_BIND);
    EXPECT_EQ(placement(memspace.handle, policy.handle), (Placement{{MPOL_BIND, 4, {1, 5}}}));
}

TEST(memspace_create, Preferred) {
    machine::Memspace one({5}), two({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_PREFERRED);
    EXPECT_EQ(placement(one.handle, policy.handle), (Placement{{MPOL_PREFERRED, 4, {5}}}));
    EXPECT_EQ(placement(two.handle, policy.handle), (Placement{{5 /* many */, 4, {1, 5}}}));
}

TEST(memspace_create, InterleaveByPagesAndByParts) {
    machine::Memspace memspace({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_INTERLEAVE);
    EXPECT_EQ(placement(memspace.handle, policy.handle), (Placement{{MPOL_INTERLEAVE, 4, {1, 5}}}));
    EXPECT_EQ(umfMempolicySetInterleavePartSize(policy.handle, 2 * page - 1), OK);
    EXPECT_EQ(placement(memspace.handle, policy.handle, 5),
              (Placement{{MPOL_BIND, 2, {5}}, {MPOL_BIND, 2, {1}}, {MPOL_BIND, 1, {5}}}))
        << "in the order of the memspace";
    EXPECT_EQ(umfMempolicySetInterleavePartSize(policy.handle, SIZE_MAX), OK);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromMemspace(memspace.handle, policy.handle, &provider), BAD);
    EXPECT_EQ(provider, nullptr);
}

TEST(memspace_create, SplitEquallyAndByPartitions) {
    machine::Memspace memspace({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    EXPECT_EQ(placement(memspace.handle, policy.handle),
              (Placement{{MPOL_BIND, 2, {5}}, {MPOL_BIND, 2, {1}}}));
    umf_mempolicy_split_partition_t list[] = {{3, 1}, {1, 5}};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), OK);
    EXPECT_EQ(placement(memspace.handle, policy.handle),
              (Placement{{MPOL_BIND, 3, {1}}, {MPOL_BIND, 1, {5}}}));
}

TEST(memspace_create, SplitErrorsOfTheProviderArePassedOn) {
    machine::Memspace memspace({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_memory_provider_handle_t provider = nullptr;
    umf_mempolicy_split_partition_t outside = {1, 2}, weightless = {0, 1};
    for (auto *one : {&outside, &weightless}) {
        EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, one, 1), OK);
        EXPECT_EQ(umfMemoryProviderCreateFromMemspace(memspace.handle, policy.handle, &provider),
                  BAD);
        EXPECT_EQ(provider, nullptr);
    }
}

/* --- creation --------------------------------------------------------------------------------- */

TEST(memspace_create, AnOsProviderThatNeedsNeitherMemspaceNorPolicyAnyMore) {
    umf_memory_provider_handle_t provider = nullptr;
    {
        machine::Memspace memspace({5, 1});
        machine::Policy policy(UMF_MEMPOLICY_SPLIT);
        umf_mempolicy_split_partition_t list[] = {{1, 1}, {1, 5}};
        EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), OK);
        ASSERT_EQ(umfMemoryProviderCreateFromMemspace(memspace.handle, policy.handle, &provider),
                  OK);
    }
    const char *name = nullptr;
    EXPECT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "OS");
    EXPECT_EQ(placement(provider, 2), (Placement{{MPOL_BIND, 1, {1}}, {MPOL_BIND, 1, {5}}}));
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr), OK);
    static_cast<char *>(ptr)[0] = 1;
    EXPECT_EQ(static_cast<char *>(ptr)[0], 1) << "read and write";
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, page), OK);
    size_t size = 0;
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), BAD) << "private";
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(memspace_create, NodesThatDoNotExistShowUpAtAllocation) {
    machine::Memspace memspace({1000});
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromMemspace(memspace.handle, nullptr, &provider), OK);
    void *ptr = nullptr;
    answer = EINVAL;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    answer = 0;
    EXPECT_EQ(ptr, nullptr);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(memspace_create, ProviderRefuses) {
    machine::Memspace memspace({0}), empty;
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromMemspace(nullptr, nullptr, &provider), BAD);
    EXPECT_EQ(umfMemoryProviderCreateFromMemspace(empty.handle, nullptr, &provider), BAD);
    EXPECT_EQ(umfMemoryProviderCreateFromMemspace(memspace.handle, nullptr, nullptr), BAD);
    EXPECT_EQ(provider, nullptr);
}

TEST(memspace_create, PoolOwnsItsProvider) {
    umf_memory_pool_handle_t pool = nullptr;
    {
        machine::Memspace memspace({5, 1});
        machine::Policy policy(UMF_MEMPOLICY_BIND);
        ASSERT_EQ(umfPoolCreateFromMemspace(memspace.handle, policy.handle, &pool), OK);
    }
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, UMF_WITH_JEMALLOC ? "jemalloc" : "disjoint");
    calls.clear();
    void *small = umfPoolMalloc(pool, 100), *large = umfPoolMalloc(pool, size_t{4} << 20);
    ASSERT_NE(small, nullptr);
    ASSERT_NE(large, nullptr);
    memset(small, 1, 100);
    memset(large, 1, size_t{4} << 20);
    EXPECT_FALSE(calls.empty());
    for (const Bound &bound : calls) {
        EXPECT_EQ(bound.mode, MPOL_BIND);
        EXPECT_EQ(bound.nodes, (std::set<unsigned>{1, 5}));
    }
    EXPECT_EQ(umfFree(small), OK);
    EXPECT_EQ(umfFree(large), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST(memspace_create, PoolOfThisMachine) {
    REQUIRE_HWLOC();
    machine::forget();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromMemspace(umfMemspaceHostAllGet(), nullptr, &pool), OK);
    void *ptr = umfPoolMalloc(pool, 1000);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST(memspace_create, PoolRefuses) {
    machine::Memspace memspace({0}), empty;
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfPoolCreateFromMemspace(nullptr, nullptr, &pool), BAD);
    EXPECT_EQ(umfPoolCreateFromMemspace(empty.handle, nullptr, &pool), BAD);
    EXPECT_EQ(umfPoolCreateFromMemspace(memspace.handle, nullptr, nullptr), BAD);
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_mempolicy_split_partition_t outside = {1, 2};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, &outside, 1), OK);
    EXPECT_EQ(umfPoolCreateFromMemspace(memspace.handle, policy.handle, &pool), BAD);
    EXPECT_EQ(pool, nullptr);
}

/* --- a machine with larger pages than jemalloc was built for --- */

TEST(memspace_create, PoolOfAnotherKindWhereJemallocCannotWork) {
    machine::Memspace memspace({5, 1});
    umf_memory_pool_handle_t pool = nullptr;
    char why[200] = "";
    pretended_page = size_t{1} << 17;
    umf_result_t result = umfPoolCreateFromMemspace(memspace.handle, nullptr, &pool);
    umf_result_t direct = UMF_RESULT_ERROR_NOT_SUPPORTED;
    umf_memory_pool_handle_t jemalloc = nullptr;
    if (&umf_jemalloc_pool_descriptor) {
        direct = umfPoolCreateFromText("jemalloc over os", &jemalloc);
        EXPECT_EQ(umf_jemalloc_pool_descriptor.probe(why, sizeof(why)),
                  UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_NE(strstr(why, "131072"), nullptr) << why;
        EXPECT_NE(strstr(why, "UMF_JEMALLOC_LG_PAGE=17"), nullptr) << why;
    }
    pretended_page = 0;
    EXPECT_EQ(direct, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(jemalloc, nullptr);
    ASSERT_EQ(result, OK);
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "disjoint");
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

/* --- without memory --------------------------------------------------------------------------- */

TEST(memspace_create, WithoutMemoryNothingStays) {
    machine::Memspace memspace({5, 1});
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_mempolicy_split_partition_t list[] = {{1, 1}, {1, 5}};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), OK);
    size_t before = umf_meta_used();
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        umf_memory_provider_handle_t provider = nullptr;
        umf_result_t result =
            umfMemoryProviderCreateFromMemspace(memspace.handle, policy.handle, &provider);
        EXPECT_EQ(result, nth.hit() ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : OK);
        EXPECT_EQ(provider == nullptr, result != OK);
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(umf_meta_used(), before);
    }
    EXPECT_GT(nth.runs(), 5);
}

TEST(memspace_create, PoolLeavesNoProviderBehind) {
    machine::Memspace memspace({5, 1});
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromMemspace(memspace.handle, nullptr, &pool), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK); // objects made once stay
    size_t before = umf_meta_used();
    int failed = 0;
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        pool = nullptr;
        umf_result_t result = umfPoolCreateFromMemspace(memspace.handle, nullptr, &pool);
        EXPECT_EQ(pool == nullptr, result != OK);
        failed += result != OK;
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umf_meta_used(), before) << "fault " << nth.runs();
    }
    EXPECT_GT(failed, 6);
}
