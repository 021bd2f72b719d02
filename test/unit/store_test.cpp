// Where content of suspended pools is kept, at sizes that several threads copy. The machine is
// taken to have as many CPUs as that needs.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>

#include "fakes/content.h"
#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"

extern "C" {
/* Stands in for umf_os_cpu_count in this program (the linker's --wrap). */
size_t __wrap_umf_os_cpu_count(void);
}

size_t __wrap_umf_os_cpu_count(void) {
    return 6;
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;

// Bytes of addresses that the process has mapped.
size_t mapped() {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT_EQ(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class Store : public ::testing::TestWithParam<const VmmKind *> {
  protected:
    const VmmKind &kind = *GetParam();
    bool is_started = false;
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<std::pair<char *, Bytes>> blocks;
    Bytes buffer; // the same memory each time: fresh pages cost more than the copies

    void SetUp() override {
        std::string why = kind.start();
        is_started = why.empty();
        if (!is_started) {
            GTEST_SKIP() << why;
        }
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), kind.create(4 * MiB), nullptr,
                                UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool),
                  OK);
    }
    void TearDown() override {
        for (auto &[ptr, model] : blocks) {
            EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        }
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (is_started) {
            kind.stop();
        }
    }
    void take(size_t size) {
        char *ptr = static_cast<char *>(umfPoolMalloc(pool, size));
        ASSERT_NE(ptr, nullptr);
        Bytes model(size);
        size_t period = std::min(size, MiB + 4097); // of no power of two
        fill(model.data(), period, size + blocks.size());
        for (size_t at = period; at < size; at += period) {
            memcpy(model.data() + at, model.data(), std::min(period, size - at));
        }
        kind.write(ptr, model.data(), size);
        blocks.emplace_back(ptr, std::move(model));
    }
    // Blocks with gaps between them, and parts that lie across their ends.
    void take_many() {
        for (size_t size : {MiB, 20 * MiB + 4096, 12345 * size_t{4096}, 3 * MiB, 25 * MiB}) {
            take(size);
        }
    }
    bool set(umf_suspend_keep_t keep) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        policy.folder = "/tmp";
        policy.device = 1;
        return umfPoolSetSuspendPolicy(pool, &policy) == OK;
    }
    umf_result_t sleep() {
        return umfPoolsSuspend(&pool, 1, nullptr, nullptr);
    }
    umf_result_t wake() {
        return umfPoolsResume(&pool, 1, nullptr, nullptr);
    }
    bool is_as_it_was() {
        for (auto &[ptr, model] : blocks) {
            buffer.resize(std::max(buffer.size(), model.size()));
            kind.read(buffer.data(), ptr, model.size());
            if (memcmp(buffer.data(), model.data(), model.size()) != 0) {
                return false;
            }
        }
        return true;
    }
};

TEST_P(Store, keeps_content_that_several_threads_copy) {
    take_many();
    for (umf_suspend_keep_t keep : {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                    UMF_SUSPEND_KEEP_FILE, UMF_SUSPEND_KEEP_PEER}) {
        for (int round = 0; round < 2 && set(keep); round++) {
            size_t before = kind.held();
            ASSERT_EQ(sleep(), OK) << keep;
            EXPECT_LT(kind.held(), before) << keep;
            ASSERT_EQ(wake(), OK) << keep;
            EXPECT_TRUE(is_as_it_was()) << keep;
        }
    }
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(kind.pinned(), 0u);
}

void set_lease(int milliseconds, umf_result_t result = OK) {
    EXPECT_EQ(umfCtlSet("umf.suspend.lease", &milliseconds, sizeof(milliseconds)), result);
}

int lease() {
    int milliseconds = -1;
    EXPECT_EQ(umfCtlGet("umf.suspend.lease", &milliseconds, sizeof(milliseconds)), OK);
    return milliseconds;
}

TEST_P(Store, pinned_memory_is_given_back_after_its_lease) {
    bool is_on = true, is_off = false;
    take_many();
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(lease(), 5000);
    ASSERT_EQ(sleep(), OK);
    size_t pinned = kind.pinned(); // 0 for kinds that copy straight to memory of the host
    ASSERT_EQ(wake(), OK);
    EXPECT_EQ(kind.pinned(), pinned) << "no thread was requested";
    set_lease(1);
    for (int i = 0; i < 60 && kind.pinned() > 0; i++) { // read when the thread has ended
        ASSERT_EQ(umfCtlSet("umf.reclaim.background", &is_on, sizeof(is_on)), OK);
        usleep(1100000); // a tick and its pauses
        EXPECT_EQ(umfCtlSet("umf.reclaim.background", &is_off, sizeof(is_off)), OK);
    }
    EXPECT_EQ(kind.pinned(), 0u);
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    EXPECT_TRUE(is_as_it_was());
    set_lease(5000);
}

TEST_P(Store, without_a_lease_a_resume_unpins) {
    take_many();
    EXPECT_EQ(umfSuspendTrim(), OK);
    set_lease(0);
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    EXPECT_EQ(kind.pinned(), 0u);
    EXPECT_TRUE(is_as_it_was());
    set_lease(5000);
}

// A provider is not destroyed while another thread unpins a block of it.
TEST_P(Store, providers_end_while_others_trim) {
    std::atomic<bool> is_over{false};
    std::thread other([&] {
        while (!is_over) {
            EXPECT_EQ(umfSuspendTrim(), OK);
        }
    });
    for (int round = 0; round < 20; round++) {
        umf_memory_pool_handle_t own = nullptr;
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), kind.create(4 * MiB), nullptr,
                                UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &own),
                  OK);
        void *ptr = umfPoolMalloc(own, MiB);
        EXPECT_EQ(umfPoolsSuspend(&own, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolsResume(&own, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolFree(own, ptr), OK);
        EXPECT_EQ(umfPoolDestroy(own), OK);
    }
    is_over = true;
    other.join();
}

TEST_P(Store, a_lease_is_at_most_an_hour) {
    set_lease(-1, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    set_lease(3600001, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(lease(), 5000);
}

TEST_P(Store, of_ordinary_memory_is_retained_until_a_trim) {
    if (UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP() << "the sanitizers map memory of their own";
    }
    take_many();
    ASSERT_TRUE(set(UMF_SUSPEND_KEEP_HOST));
    ASSERT_EQ(umfSuspendTrim(), OK);
    size_t before = mapped();
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    size_t retained = mapped();
    EXPECT_GT(retained, before + 64 * MiB);
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    EXPECT_LT(mapped(), retained + 32 * MiB) << "the same memory was used again";
    ASSERT_EQ(umfSuspendTrim(), OK);
    EXPECT_LT(mapped(), before + 32 * MiB);
    EXPECT_TRUE(is_as_it_was());
}

#if UMF_WITH_CUDA

// Memory of the other device is made while the part before is being copied.
TEST_P(Store, of_another_device_that_becomes_full_meanwhile_leaves_the_pool_as_it_was) {
    if (kind.name != std::string("cuda_vmm") || driver().is_real || !kind.has_peer) {
        GTEST_SKIP() << "the software driver's memory is limited";
    }
    ONE_THREAD_ONLY() // the device copies
    take(514 * MiB);
    ASSERT_TRUE(set(UMF_SUSPEND_KEEP_PEER));
    size_t room = driver().control()->device_memory[1];
    driver().control()->device_memory[1] = 513 * MiB;
    size_t before = kind.held();
    EXPECT_NE(sleep(), OK);
    EXPECT_EQ(kind.held(), before);
    EXPECT_TRUE(is_as_it_was());
    driver().control()->device_memory[1] = room;
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    EXPECT_TRUE(is_as_it_was());
}

TEST_P(Store, of_another_device_is_given_back_whole) {
    if (kind.name != std::string("cuda_vmm") || driver().is_real || !kind.has_peer) {
        GTEST_SKIP() << "the software driver counts its objects";
    }
    take(5 * MiB + 4096); // no multiple of what is made at once
    ASSERT_TRUE(set(UMF_SUSPEND_KEEP_PEER));
    ASSERT_EQ(sleep(), OK);
    ASSERT_EQ(wake(), OK);
    auto before = driver().control()->objects;
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(sleep(), OK);
        ASSERT_EQ(wake(), OK);
    }
    EXPECT_EQ(driver().control()->objects, before);
    EXPECT_TRUE(is_as_it_was());
}

#endif

INSTANTIATE_TEST_SUITE_P(Each, Store, ::testing::ValuesIn(vmm_kinds()),
                         [](const auto &param) { return std::string(param.param->name); });

} // namespace
