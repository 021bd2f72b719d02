// Pinned memory that keeps content: it lies on the NUMA node of the device that it serves, and its
// lease ends when that device is idle.

#include <cctype>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <errno.h>

#include <gtest/gtest.h>

extern "C" {
#include "ext/staging/pinned.h"
uint64_t __real_umf_decay_now(void);
/* Stands in for umf_decay_now, as the next one. */
uint64_t __wrap_umf_decay_now(void);
/* Stands in for umf_os_mbind in this program (the linker's --wrap). */
int __wrap_umf_os_mbind(void *base, size_t size, int mode, const unsigned long *mask,
                        unsigned long bits);
}

namespace {

struct Bound {
    size_t size;
    int mode;
    std::set<unsigned> nodes;
};

std::vector<Bound> bounds;
int bind_error;
uint64_t later; // nanoseconds by which the clock is ahead

} // namespace

uint64_t __wrap_umf_decay_now(void) {
    return __real_umf_decay_now() + later;
}

int __wrap_umf_os_mbind(void *, size_t size, int mode, const unsigned long *mask,
                        unsigned long bits) {
    Bound bound = {size, mode, {}};
    for (unsigned i = 0; i < bits; i++) {
        if (mask[i / 64] >> (i % 64) & 1) {
            bound.nodes.insert(i);
        }
    }
    bounds.push_back(bound);
    return bind_error;
}

#if UMF_WITH_CUDA

#include "gpu/gpu.h"

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;
constexpr int preferred = 1; // MPOL_PREFERRED

// Nodes of the devices on this machine's bus that have one.
std::vector<std::pair<std::string, unsigned>> devices_with_node() {
    std::vector<std::pair<std::string, unsigned>> found;
    DIR *folder = opendir("/sys/bus/pci/devices");
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        int node = -1;
        std::ifstream(std::string("/sys/bus/pci/devices/") + entry->d_name + "/numa_node") >> node;
        if (node >= 0) {
            found.push_back({entry->d_name, static_cast<unsigned>(node)});
        }
    }
    if (folder) {
        closedir(folder);
    }
    return found;
}

class PinnedPlace : public testing::Test {
  protected:
    void SetUp() override {
        NEEDS_FAKE();
        driver().reset();
        bounds.clear();
        bind_error = 0;
    }
    // Placement while a pool is suspended and resumed.
    static void sleep_and_wake() {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText("proxy over cuda_vmm", &pool), OK) << umfTextError();
        void *block = umfPoolMalloc(pool, 2 * MiB);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolFree(pool, block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    static void set_bus(const std::string &id) {
        snprintf(driver().control()->bus_id, sizeof(driver().control()->bus_id), "%s", id.c_str());
    }
};

} // namespace

TEST_F(PinnedPlace, IsTheNodeThatTheDriverTells) {
    for (unsigned node : {0u, 3u, 100u}) {
        bounds.clear();
        driver().control()->host_node = static_cast<int>(node);
        sleep_and_wake();
        ASSERT_EQ(bounds.size(), 1u) << node;
        EXPECT_EQ(bounds[0].mode, preferred);
        EXPECT_EQ(bounds[0].nodes, std::set<unsigned>{node});
        EXPECT_GE(bounds[0].size, 2 * MiB);
    }
}

TEST_F(PinnedPlace, IsTheNodeOfTheBusOtherwise) {
    auto devices = devices_with_node();
    if (devices.empty()) {
        GTEST_SKIP() << "no device of this machine has a node";
    }
    std::string id = devices[0].first; // the driver writes it with capitals
    for (char &c : id) {
        c = static_cast<char>(toupper(c));
    }
    set_bus(id);
    sleep_and_wake();
    ASSERT_EQ(bounds.size(), 1u);
    EXPECT_EQ(bounds[0].nodes, std::set<unsigned>{devices[0].second});
}

TEST_F(PinnedPlace, IsNotWishedForWhereNobodyKnowsIt) {
    sleep_and_wake();
    set_bus("ffff:ff:1f.7");
    sleep_and_wake();
    driver().control()->host_node = 1 << 20;
    sleep_and_wake();
    EXPECT_TRUE(bounds.empty());
}

TEST_F(PinnedPlace, IsAWishOnly) {
    for (int error : {ENODEV, EPERM, ENOSYS}) {
        bind_error = error;
        driver().control()->host_node = 0;
        sleep_and_wake();
    }
    EXPECT_EQ(bounds.size(), 3u);
}

// --- the lease -----------------------------------------------------------------------------------

class PinnedLease : public Gpu {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    void *block = nullptr;

    void SetUp() override {
        NEEDS_FAKE();
        Gpu::SetUp();
        later = 0;
        ASSERT_EQ(umfPoolCreateFromText("proxy over cuda_vmm", &pool), OK) << umfTextError();
        block = umfPoolMalloc(pool, 2 * MiB);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(unpinned(), 0);
    }
    void TearDown() override {
        if (pool) {
            be_busy(false);
            EXPECT_EQ(umfPoolFree(pool, block), OK);
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            Gpu::TearDown();
        }
    }
    static long unpinned() {
        return driver().control()->calls[FAKE_cuMemHostUnregister];
    }
    static void be_busy(bool yes) {
        driver().control()->fail_on = yes;
        fail(FAKE_cuEventQuery, CUDA_ERROR_NOT_READY, yes ? -1 : 0);
    }
    // So many milliseconds after the resume.
    static void tick_at(uint64_t ms) {
        later = ms * 1000000;
        umf_pinned_ticks();
    }
};

TEST_F(PinnedLease, EndsWhenTheDeviceIsIdle) {
    tick_at(4000);
    EXPECT_EQ(unpinned(), 0) << "it is not over";
    be_busy(true);
    tick_at(5100);
    tick_at(5150);
    EXPECT_EQ(unpinned(), 0) << "drivers would stop launches";
    be_busy(false);
    tick_at(5200);
    EXPECT_EQ(unpinned(), 1);
    tick_at(5250);
    EXPECT_EQ(unpinned(), 1);
}

// The kernels of a training never pause.
TEST_F(PinnedLease, EndsBesideWorkAfterAWhile) {
    be_busy(true);
    tick_at(5100);
    tick_at(5000 + UMF_PINNED_PATIENCE_MS + 100);
    EXPECT_EQ(unpinned(), 1);
}

// Marks of a block that is used again, or whose provider ends, end with it.
TEST_F(PinnedLease, StaysForASleepWhileTheDeviceWorks) {
    const long pins = driver().control()->calls[FAKE_cuMemHostRegister];
    be_busy(true);
    tick_at(5100);
    be_busy(false);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    tick_at(20000);
    EXPECT_EQ(unpinned(), 0) << "it keeps content";
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(driver().control()->calls[FAKE_cuMemHostRegister], pins);
    be_busy(true);
    tick_at(26000);
    EXPECT_EQ(unpinned(), 0);
}

#else

TEST(PinnedPlace, NeedsADriver) {
    GTEST_SKIP() << "this build has no provider with a device";
}

#endif
