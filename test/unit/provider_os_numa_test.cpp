/* providers/os/numa: which pages get which nodes, and the policies of a real machine. */
#include <algorithm>
#include <climits>
#include <cstring>
#include <linux/mempolicy.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/text.h>

extern "C" {
#include "base/meta.h"
#include "providers/os/numa.h"
}

#include "fault.h"
#include "provider.h"

namespace {

const size_t page = umf_os_page_size();

/* The binding, page by page. */
std::vector<std::pair<int, std::set<unsigned>>> bound;
char *bound_base;
int bound_errors[8];

int record(void *base, size_t size, int mode, const unsigned long *mask, unsigned long bits) {
    if (bound_errors[mode]) {
        return bound_errors[mode];
    }
    std::set<unsigned> nodes;
    for (unsigned long i = 0; i < bits; i++) {
        if (mask[i / 64] >> (i % 64) & 1) {
            nodes.insert(static_cast<unsigned>(i));
        }
    }
    size_t first = static_cast<size_t>(static_cast<char *>(base) - bound_base) / page;
    for (size_t i = first; i < first + size / page; i++) {
        bound.resize(std::max(bound.size(), i + 1), {-1, {}});
        EXPECT_EQ(bound[i].first, -1) << "page " << i << " bound twice";
        bound[i] = {mode, nodes};
    }
    return 0;
}

class Numa {
  public:
    umf_os_memory_provider_params_handle_t params = nullptr;
    umf_os_numa_t numa = {};
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;

    explicit Numa(umf_numa_mode_t mode, std::vector<unsigned> nodes = {}, size_t part_size = 0,
                  std::vector<umf_numa_split_partition_t> partitions = {}) {
        if (umfOsMemoryProviderParamsCreate(&params) != UMF_RESULT_SUCCESS) {
            return;
        }
        umfOsMemoryProviderParamsSetNumaMode(params, mode);
        umfOsMemoryProviderParamsSetNumaList(params, nodes.data(),
                                             static_cast<unsigned>(nodes.size()));
        umfOsMemoryProviderParamsSetPartSize(params, part_size);
        umfOsMemoryProviderParamsSetPartitions(params, partitions.data(),
                                               static_cast<unsigned>(partitions.size()));
        result = umf_os_numa_init(&numa, params, page);
        numa.mbind = record;
    }
    ~Numa() {
        if (result == UMF_RESULT_SUCCESS) {
            umf_os_numa_fini(&numa);
        }
        umfOsMemoryProviderParamsDestroy(params);
    }
    /* The nodes of each page of an allocation. */
    std::vector<std::set<unsigned>> place(size_t requested, int mode) {
        std::vector<std::set<unsigned>> nodes;
        bound.clear();
        bound_base = reinterpret_cast<char *>(0x10000000);
        size_t rounded = (requested + page - 1) / page * page;
        EXPECT_EQ(umf_os_numa_place(&numa, bound_base, rounded, requested), 0);
        EXPECT_EQ(bound.size(), rounded / page);
        for (auto &[got, set] : bound) {
            EXPECT_EQ(got, mode);
            nodes.push_back(set);
        }
        return nodes;
    }
};

using Nodes = std::vector<std::set<unsigned>>;

} // namespace

TEST(os_numa, ModesAndTheirLists) {
    const umf_result_t ok = UMF_RESULT_SUCCESS, bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    const struct {
        umf_numa_mode_t mode;
        umf_result_t without, with;
    } cases[] = {
        {UMF_NUMA_MODE_DEFAULT, ok, bad},
        {UMF_NUMA_MODE_LOCAL, ok, bad},
        {UMF_NUMA_MODE_BIND, bad, ok},
        {UMF_NUMA_MODE_INTERLEAVE, bad, ok},
        {UMF_NUMA_MODE_SPLIT, bad, ok},
        {UMF_NUMA_MODE_PREFERRED, ok, ok},
        {static_cast<umf_numa_mode_t>(7), bad, bad},
    };
    for (auto &c : cases) {
        EXPECT_EQ(Numa(c.mode).result, c.without) << c.mode;
        EXPECT_EQ(Numa(c.mode, {0}).result, c.with) << c.mode;
    }
}

TEST(os_numa, PartitionsAndPartSizesThatCannotBe) {
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1}, 0, {{1, 0}, {0, 1}}).result,
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1}, 0, {{1, 0}, {1, 2}}).result,
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1}, 0, {{1, 1}}).result, UMF_RESULT_SUCCESS);
    EXPECT_EQ(Numa(UMF_NUMA_MODE_INTERLEAVE, {0}, SIZE_MAX).result,
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(Numa(UMF_NUMA_MODE_BIND, {0}, SIZE_MAX).result, UMF_RESULT_SUCCESS);
}

TEST(os_numa, WholeAllocationModes) {
    EXPECT_EQ(Numa(UMF_NUMA_MODE_BIND, {5, 1, 70}).place(2 * page, MPOL_BIND),
              (Nodes{{1, 5, 70}, {1, 5, 70}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_INTERLEAVE, {0, 63}).place(page, MPOL_INTERLEAVE),
              (Nodes{{0, 63}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_LOCAL).place(page, MPOL_LOCAL), (Nodes{{}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_PREFERRED).place(page, MPOL_PREFERRED), (Nodes{{}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_PREFERRED, {3}).place(page, MPOL_PREFERRED), (Nodes{{3}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_PREFERRED, {3, 4}).place(page, 5), (Nodes{{3, 4}}));
    bound_errors[5] = EINVAL; /* a kernel that can prefer one node only */
    EXPECT_EQ(Numa(UMF_NUMA_MODE_PREFERRED, {3, 4}).place(page, MPOL_PREFERRED), (Nodes{{3}}));
    bound_errors[5] = 0;
    bound.clear();
    Numa none(UMF_NUMA_MODE_DEFAULT);
    EXPECT_EQ(umf_os_numa_place(&none.numa, bound_base, page, page), 0);
    EXPECT_TRUE(bound.empty());
}

TEST(os_numa, PartsGoRoundAndGoOn) {
    Numa numa(UMF_NUMA_MODE_INTERLEAVE, {4, 0, 2}, 2 * page - 1);
    EXPECT_EQ(numa.place(5 * page, MPOL_BIND), (Nodes{{4}, {4}, {0}, {0}, {2}}));
    /* 5 pages before: two parts of 2 pages are full, so the third node is next. */
    EXPECT_EQ(numa.place(3 * page, MPOL_BIND), (Nodes{{2}, {2}, {4}}));
    /* 8 pages before: four parts. */
    EXPECT_EQ(numa.place(1, MPOL_BIND), (Nodes{{0}}));
}

TEST(os_numa, PartsOfAFailedAllocationDoNotCount) {
    Numa numa(UMF_NUMA_MODE_INTERLEAVE, {4, 0}, page);
    EXPECT_EQ(numa.place(page, MPOL_BIND), (Nodes{{4}}));
    bound_errors[MPOL_BIND] = ENOMEM;
    EXPECT_EQ(umf_os_numa_place(&numa.numa, bound_base, page, page), ENOMEM);
    bound_errors[MPOL_BIND] = 0;
    EXPECT_EQ(numa.place(page, MPOL_BIND), (Nodes{{0}}));
}

/* Masks of more than one word, and of every length around their ends. */
TEST(os_numa, ManyNodes) {
    for (unsigned node : {62u, 63u, 64u, 65u, 127u, 128u, 1023u, 4095u}) {
        EXPECT_EQ(Numa(UMF_NUMA_MODE_BIND, {0, node}).place(page, MPOL_BIND), (Nodes{{0, node}}));
        EXPECT_EQ(Numa(UMF_NUMA_MODE_INTERLEAVE, {node}, page).place(page, MPOL_BIND),
                  (Nodes{{node}}));
        EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {node, 1}).place(2 * page, MPOL_BIND),
                  (Nodes{{node}, {1}}));
    }
    std::vector<unsigned> list;
    std::set<unsigned> all;
    for (unsigned node = 0; node < 200; node++) {
        list.push_back(node);
        all.insert(node);
    }
    EXPECT_EQ(Numa(UMF_NUMA_MODE_BIND, list).place(page, MPOL_BIND), (Nodes{all}));
}

/* The kernel reads one bit less than the count, so a wrong count would make this mask empty. */
TEST(os_numa, TheKernelReadsTheLastNode) {
    unsigned long mask[2] = {1, 0};
    void *ptr = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(ptr, MAP_FAILED);
    int error = umf_os_mbind(ptr, page, MPOL_BIND, mask, 1);
    munmap(ptr, page);
    if (error == ENOSYS || error == EPERM) {
        GTEST_SKIP() << "NUMA policies are forbidden here";
    }
    EXPECT_EQ(error, 0);
}

TEST(os_numa, SplitOfTheContract) {
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1, 2}).place(5 * page, MPOL_BIND),
              (Nodes{{0}, {0, 1}, {1}, {1, 2}, {2}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1, 2}, 0, {{7, 0}, {7, 1}, {7, 2}})
                  .place(5 * page, MPOL_BIND),
              (Nodes{{0}, {0, 1}, {1}, {1, 2}, {2}}));
    EXPECT_EQ(
        Numa(UMF_NUMA_MODE_SPLIT, {0, 1}, 0, {{1, 0}, {UINT_MAX, 1}}).place(2 * page, MPOL_BIND),
        (Nodes{{0, 1}, {1}}));
    EXPECT_EQ(
        Numa(UMF_NUMA_MODE_SPLIT, {0, 1}, 0, {{2, 1}, {1, 0}, {3, 1}}).place(6 * page, MPOL_BIND),
        (Nodes{{1}, {1}, {0}, {1}, {1}, {1}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {0, 1, 2, 3}).place(page, MPOL_BIND),
              (Nodes{{0, 1, 2, 3}}));
    EXPECT_EQ(Numa(UMF_NUMA_MODE_SPLIT, {6}).place(3 * page, MPOL_BIND), (Nodes{{6}, {6}, {6}}));
}

/* Against the definition: page i belongs to all partitions whose share of the line reaches into it.
 */
TEST(os_numa, SplitOfManyShapes) {
    const std::vector<std::vector<unsigned>> weights = {
        {1, 1},
        {1, 2, 3},
        {5, 1, 1, 5},
        {1, 100},
        {100, 1},
        {3, 3, 3, 3, 3, 3, 3},
        {UINT_MAX, UINT_MAX, 1},
    };
    for (auto &list : weights) {
        std::vector<unsigned> nodes;
        std::vector<umf_numa_split_partition_t> partitions;
        __extension__ typedef unsigned __int128 wide;
        wide sum = 0;
        for (unsigned weight : list) {
            nodes.push_back(static_cast<unsigned>(nodes.size()));
            partitions.push_back({weight, nodes.back()});
            sum += weight;
        }
        Numa numa(UMF_NUMA_MODE_SPLIT, nodes, 0, partitions);
        for (size_t pages = 1; pages < 30; pages++) {
            Nodes expected(pages);
            wide start = 0;
            for (unsigned i = 0; i < list.size(); i++) {
                wide end = start + list[i];
                for (size_t at = 0; at < pages; at++) {
                    /* [at, at + 1) meets [pages * start / sum, pages * end / sum) */
                    if (at * sum < pages * end && (at + 1) * sum > pages * start) {
                        expected[at].insert(i);
                    }
                }
                start = end;
            }
            ASSERT_EQ(numa.place(pages * page, MPOL_BIND), expected) << pages;
        }
    }
}

TEST(os_numa, NodesBeyondEveryKernel) {
    for (unsigned node : {4096u, UINT_MAX}) {
        Numa numa(UMF_NUMA_MODE_BIND, {0, node});
        ASSERT_EQ(numa.result, UMF_RESULT_SUCCESS);
        EXPECT_EQ(umf_os_numa_place(&numa.numa, bound_base, page, page), EINVAL);
        Numa split(UMF_NUMA_MODE_SPLIT, {0, node});
        EXPECT_EQ(umf_os_numa_place(&split.numa, bound_base, page, page), EINVAL);
    }
}

TEST(os_numa, KernelWithoutPolicies) {
    Numa numa(UMF_NUMA_MODE_BIND, {0});
    bound_errors[MPOL_BIND] = ENOSYS;
    EXPECT_EQ(umf_os_numa_place(&numa.numa, bound_base, page, page), 0);
    bound_errors[MPOL_BIND] = EPERM;
    EXPECT_EQ(umf_os_numa_place(&numa.numa, bound_base, page, page), EPERM);
    bound_errors[MPOL_BIND] = 0;
}

TEST(os_numa, WithoutMemoryNothingStays) {
    size_t before = umf_meta_used();
    for (fault::Nth nth("meta_alloc"); nth.next();) {
        Numa numa(UMF_NUMA_MODE_SPLIT, {0, 1});
        ASSERT_TRUE(numa.result == UMF_RESULT_SUCCESS || nth.hit());
    }
    EXPECT_EQ(umf_meta_used(), before);
}

/* --- through the provider, on this machine ---------------------------------------------------- */

namespace {

/* The kernel's policy for an address, or -1 where it has none. */
int policy_of(const void *ptr, unsigned long *mask, unsigned long bits) {
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, mask, bits, ptr, MPOL_F_ADDR) == 0 ? mode : -1;
}

} // namespace

TEST(os_numa, RealPolicies) {
    unsigned long mask[64] = {};
    if (policy_of(&mask, mask, 4096) == -1) {
        GTEST_SKIP() << "no NUMA policies on this machine";
    }
    const struct {
        umf_numa_mode_t mode;
        std::vector<unsigned> nodes;
        int expected;
    } cases[] = {
        {UMF_NUMA_MODE_DEFAULT, {}, MPOL_DEFAULT},
        {UMF_NUMA_MODE_LOCAL, {}, MPOL_LOCAL},
        {UMF_NUMA_MODE_BIND, {0}, MPOL_BIND},
        {UMF_NUMA_MODE_INTERLEAVE, {0}, MPOL_INTERLEAVE},
        {UMF_NUMA_MODE_PREFERRED, {0}, MPOL_PREFERRED},
        {UMF_NUMA_MODE_SPLIT, {0}, MPOL_BIND},
    };
    for (auto &c : cases) {
        Numa numa(c.mode, c.nodes);
        Provider provider(umfOsMemoryProviderOps(), numa.params);
        for (size_t size : {page, 3 * page, size_t{5} << 20}) {
            void *ptr;
            umf_result_t result = provider.alloc(size, 0, &ptr);
            if (result != UMF_RESULT_SUCCESS &&
                provider.native_text().find(strerror(EPERM)) != std::string::npos) {
                GTEST_SKIP() << "NUMA policies are forbidden here";
            }
            ASSERT_EQ(result, UMF_RESULT_SUCCESS) << c.mode << provider.native_text();
            unsigned long got[64] = {};
            EXPECT_EQ(policy_of(ptr, got, 4096), c.expected) << c.mode;
            EXPECT_EQ(got[0], c.nodes.empty() ? 0ul : 1ul) << "mode " << c.mode;
            memset(ptr, 1, size);
            EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
        }
    }
}

TEST(os_numa, NodeThatDoesNotExist) {
    unsigned long mask[64] = {};
    if (policy_of(&mask, mask, 4096) == -1) {
        GTEST_SKIP() << "no NUMA policies on this machine";
    }
    for (umf_numa_mode_t mode : {UMF_NUMA_MODE_BIND, UMF_NUMA_MODE_SPLIT, UMF_NUMA_MODE_PREFERRED,
                                 UMF_NUMA_MODE_INTERLEAVE}) {
        for (std::vector<unsigned> nodes :
             {std::vector<unsigned>{1000}, {0, 1000}, {1000, 0}, {0, 5000}}) {
            Numa numa(mode, nodes);
            Provider provider(umfOsMemoryProviderOps(), numa.params);
            void *ptr = nullptr;
            EXPECT_EQ(provider.alloc(4 * page, 0, &ptr), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC)
                << mode;
            EXPECT_EQ(ptr, nullptr);
            EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_BIND_FAILED);
            EXPECT_EQ(provider.allocated(), 0u);
        }
    }
}

/* What a person writes is looked for at once. */
TEST(os_numa, TextWithANodeThatDoesNotExist) {
    unsigned long mask[64] = {};
    if (policy_of(&mask, mask, 4096) == -1) {
        GTEST_SKIP() << "no NUMA policies on this machine";
    }
    for (std::string mode : {"bind", "split", "preferred", "interleave"}) {
        for (std::string nodes : {"1000", "0+1000", "1000+0", "0+5000"}) {
            umf_memory_provider_handle_t provider = nullptr;
            std::string text = "os:numa_mode=" + mode + ",numa_list=" + nodes;
            EXPECT_EQ(umfMemoryProviderCreateFromText(text.c_str(), &provider),
                      UMF_RESULT_ERROR_INVALID_ARGUMENT)
                << text;
            std::string said = umfLastErrorText();
            EXPECT_NE(said.find(nodes == "0+5000" ? "NUMA node 5000 " : "NUMA node 1000 "),
                      std::string::npos)
                << said;
            EXPECT_NE(said.find("; it can use: 0"), std::string::npos) << said;
            EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
        }
    }
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("os:numa_mode=bind,numa_list=0", &provider),
              UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(provider);
}
