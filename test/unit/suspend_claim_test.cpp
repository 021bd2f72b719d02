// Calls of other threads on a provider while a pool on it is being suspended: at any moment, to the
// point.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/ipc.h>
#include <umf/memory_provider_gpu.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>

#include "fakes/hooked_vmm.h"
#include "fakes/threads.h"
#include "fakes/vmm_kinds.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t FAILS = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
constexpr size_t MiB = size_t{1} << 20;
constexpr size_t PIECE = 16 * MiB;

class SuspendClaim : public ::testing::Test {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr, other = nullptr;
    char *block = nullptr; // of the pool, in a piece that has room for more

    void SetUp() override {
        open(HookedVmm::create(PIECE));
    }
    void TearDown() override {
        HookedVmm::exchange(nullptr);
        close();
    }
    void open(umf_memory_provider_handle_t made) {
        provider = made;
        ASSERT_NE(provider, nullptr);
        pool = make_pool();
        other = make_pool();
        block = alloc(pool, MiB, 'b');
    }
    void close() {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfPoolDestroy(other), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(count_memory_files(), 0u);
    }
    umf_memory_pool_handle_t make_pool() {
        umf_memory_pool_handle_t made = nullptr;
        EXPECT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &made), OK);
        return made;
    }

    static char *alloc(umf_memory_pool_handle_t from, size_t size, char content) {
        char *ptr = static_cast<char *>(umfPoolMalloc(from, size));
        EXPECT_NE(ptr, nullptr);
        memset(ptr, content, size);
        return ptr;
    }
    static void expect(const char *ptr, size_t size, char content) {
        EXPECT_EQ(*ptr, content);
        EXPECT_EQ(memcmp(ptr, ptr + 1, size - 1), 0);
    }
    static void free(void *ptr) {
        EXPECT_EQ(umfFree(ptr), OK);
    }

    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;

    umf_result_t suspend() {
        return umfPoolsSuspend(&pool, 1, nullptr, &report);
    }
    umf_result_t resume() {
        return umfPoolsResume(&pool, 1, nullptr, &report);
    }
    bool is_resident() const {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        return umfPoolGetResidency(pool, &now) == OK && now.state == UMF_SUSPEND_STATE_RESIDENT;
    }
    // A suspend takes nothing of the piece that is not the pool's alone when it is claimed.
    // `theirs` is set by then.
    void expect_piece_stays(char *const &theirs) {
        ASSERT_EQ(suspend(), OK);
        EXPECT_EQ(report.bytes, 0u);
        EXPECT_EQ(report.shared, PIECE);
        expect(theirs, MiB, 't');
        ASSERT_EQ(resume(), OK);
        expect_both(theirs);
    }
    void expect_both(char *theirs) {
        expect(theirs, MiB, 't');
        expect(block, MiB, 'b');
        free(theirs);
        free(block);
    }
    // Once, before the next call of that operation; `action` has its result.
    template <class Action> static void before(const char *operation, Action action) {
        HookedVmm::exchange([wanted = std::string(operation), action](const char *now) {
            bool is_first = wanted == now && HookedVmm::exchange(nullptr); // of several threads
            return is_first ? action() : OK;
        });
    }
};

} // namespace

// All of it was seen by the plan, but goes later: others must get no part of it.
TEST_F(SuspendClaim, OthersAllocateWhileContentIsSaved) {
    for (const char *moment : {"copy", "vm_detach"}) {
        char *theirs = nullptr, *direct = nullptr;
        before(moment, [&] {
            theirs = alloc(other, MiB, 't');
            EXPECT_EQ(umfMemoryProviderAlloc(provider, MiB, 0, reinterpret_cast<void **>(&direct)),
                      OK);
            memset(direct, 'd', MiB);
            return OK;
        });
        ASSERT_EQ(suspend(), OK);
        EXPECT_EQ(report.bytes, PIECE);
        ASSERT_NE(theirs, nullptr);
        expect(theirs, MiB, 't');
        expect(direct, MiB, 'd');
        memset(theirs, 'T', MiB);
        ASSERT_EQ(resume(), OK);
        expect(theirs, MiB, 'T');
        expect(direct, MiB, 'd');
        expect(block, MiB, 'b');
        free(theirs);
        EXPECT_EQ(umfMemoryProviderFree(provider, direct, MiB), OK);
    }
    free(block);
}

// It was the pool's alone when it was looked at, and is not when it is claimed: it stays.
TEST_F(SuspendClaim, OthersAllocateBeforeTheClaim) {
    char *theirs = nullptr;
    before("vm_claim", [&] {
        theirs = alloc(other, MiB, 't');
        return OK;
    });
    expect_piece_stays(theirs);
}

// As many allocations as before, but not the same.
TEST_F(SuspendClaim, OneIsFreedAndOthersAllocateBeforeTheClaim) {
    char *theirs = nullptr, *second = alloc(pool, MiB, 's');
    before("vm_claim", [&] {
        free(second);
        theirs = alloc(other, MiB, 't');
        return OK;
    });
    expect_piece_stays(theirs);
    EXPECT_EQ(theirs, second);
}

// A thread that ends may free at any moment. The memory stays as long as it is being copied.
TEST_F(SuspendClaim, AllIsFreedMeanwhile) {
    for (const char *moment : {"vm_claim", "copy", "vm_detach", "vm_create", "vm_attach"}) {
        char *second = alloc(pool, 15 * MiB, 's'), *third = alloc(pool, PIECE, '3');
        size_t before_it = count_memory_files();
        before(moment, [&] {
            free(third);
            free(second);
            return OK;
        });
        ASSERT_EQ(suspend(), OK) << moment;
        ASSERT_EQ(resume(), OK) << moment;
        EXPECT_FALSE(HookedVmm::exchange(nullptr)) << moment;
        EXPECT_EQ(count_memory_files(), before_it - 1) << moment;
        expect(block, MiB, 'b');
        char *again = alloc(pool, 15 * MiB, 'a'); // its place is there again
        EXPECT_EQ(again, second) << moment;
        free(again);
    }
    free(block);
}

// Memory of a pool that is being resumed is still its own: if that fails, it goes again.
TEST_F(SuspendClaim, OthersAllocateWhileContentIsLoaded) {
    ASSERT_EQ(suspend(), OK);
    char *theirs = nullptr;
    before("copy", [&] {
        theirs = alloc(other, MiB, 't');
        return FAILS;
    });
    EXPECT_EQ(resume(), FAILS);
    EXPECT_FALSE(is_resident());
    expect(theirs, MiB, 't');
    ASSERT_EQ(resume(), OK);
    expect_both(theirs);
}

TEST_F(SuspendClaim, AFailureReleases) {
    for (const char *moment : {"vm_claim", "copy", "vm_detach"}) {
        before(moment, [] { return FAILS; });
        EXPECT_EQ(suspend(), FAILS) << moment;
        EXPECT_TRUE(is_resident());
        expect(block, MiB, 'b');
        char *theirs = alloc(other, MiB, 't');
        EXPECT_EQ(theirs, block + MiB) << moment; // in the same piece again
        free(theirs);
    }
    free(block);
}

// Splits and merges change how many there are, not whose they are.
TEST_F(SuspendClaim, SplitAndMergedMeanwhile) {
    umf_memory_provider_handle_t view = nullptr;
    ASSERT_EQ(umfPoolGetMemoryProvider(pool, &view), OK);
    before("copy", [&] {
        EXPECT_EQ(umfMemoryProviderAllocationSplit(view, block, MiB, MiB / 2), OK);
        return OK;
    });
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(view, block, block + MiB / 2, MiB), OK);
    ASSERT_EQ(resume(), OK);
    expect(block, MiB, 'b');
    free(block);
}

// Two calls at once, for two pools in the same pieces and in some of their own.
// linux_vmm as a kind that says that the CPU reaches its memory, so that small copies take the
// short way.
umf_memory_provider_handle_t create_host_vmm() {
    static umf_memory_provider_ops_t ops = *umfLinuxVmmMemoryProviderOps();
    ops.ext_get_allocation_properties = [](void *, const void *, umf_memory_property_id_t,
                                           void *value) {
        *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_HOST;
        return OK;
    };
    ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *size) {
        *size = sizeof(umf_usm_memory_type_t);
        return OK;
    };
    static const umf_memory_provider_descriptor_t kind = {
        sizeof(kind), "host_vmm", &ops, umf_linux_vmm_descriptor.ext, nullptr, nullptr, nullptr};
    umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t made = nullptr;
    EXPECT_EQ(umfRegisterProvider(&kind), OK);
    EXPECT_EQ(umfLinuxVmmMemoryProviderParamsCreate(&params), OK);
    EXPECT_EQ(umfMemoryProviderCreate(&ops, params, &made), OK);
    umfLinuxVmmMemoryProviderParamsDestroy(params);
    return made;
}

TEST(SuspendCopy, NothingIsCopiedFromAPoolThatIsAway) {
    umf_memory_provider_handle_t provider = create_host_vmm();
    umf_memory_pool_handle_t pool = nullptr;
    char local[64] = "";
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    void *ptr = umfPoolMalloc(pool, MiB);
    EXPECT_EQ(umfCopy(ptr, local, sizeof(local), nullptr), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfCopy(local, ptr, sizeof(local), nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfCopy(ptr, local, sizeof(local), nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfCopy(local, ptr, sizeof(local), nullptr), OK);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(SuspendClaim, TwoPoolsAtOnce) {
    char *shared = alloc(other, MiB, 's'), *own = alloc(other, PIECE, 'o');
    char *second = alloc(pool, PIECE, '2');
    umf_suspend_report_t theirs = UMF_SUSPEND_REPORT_INIT;
    before("copy", [&] {
        std::thread([&] { EXPECT_EQ(umfPoolsSuspend(&other, 1, nullptr, &theirs), OK); }).join();
        return OK;
    });
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(report.bytes, PIECE);
    EXPECT_EQ(report.shared, PIECE);
    EXPECT_EQ(theirs.bytes, PIECE);
    EXPECT_EQ(theirs.shared, PIECE);
    expect(shared, MiB, 's');
    expect(block, MiB, 'b');
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(umfPoolsResume(&other, 1, nullptr, nullptr), OK);
    expect(own, PIECE, 'o');
    expect(second, PIECE, '2');
    for (char *ptr : {shared, own, second, block}) {
        free(ptr);
    }
}

// One wait serves all pools of a provider; a pool that is named twice is suspended once.
TEST_F(SuspendClaim, OneWaitForAProvider) {
    std::atomic<int> waits{0};
    HookedVmm::exchange([&](const char *now) {
        waits += strcmp(now, "wait") == 0;
        return OK;
    });
    char *own = alloc(other, PIECE, 'o');
    umf_memory_pool_handle_t pools[] = {pool, other, pool, other};
    ASSERT_EQ(umfPoolsSuspend(pools, 4, nullptr, &report), OK);
    EXPECT_EQ(waits, 1);
    EXPECT_EQ(report.bytes, 2 * PIECE);
    ASSERT_EQ(umfPoolsResume(pools, 4, nullptr, &report), OK);
    EXPECT_EQ(report.bytes, 2 * PIECE);
    expect(own, PIECE, 'o');
    expect(block, MiB, 'b');
    free(own);
    free(block);
}

TEST_F(SuspendClaim, OneWaitForEachProvider) {
    std::atomic<int> waits{0};
    umf_memory_provider_handle_t second = HookedVmm::create(PIECE);
    umf_memory_pool_handle_t on_second = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), second, nullptr, 0, &on_second), OK);
    HookedVmm::exchange([&](const char *now) {
        waits += strcmp(now, "wait") == 0;
        return OK;
    });
    umf_memory_pool_handle_t pools[] = {pool, on_second};
    ASSERT_EQ(umfPoolsSuspend(pools, 2, nullptr, nullptr), OK);
    EXPECT_EQ(waits, 2);
    ASSERT_EQ(umfPoolsResume(pools, 2, nullptr, nullptr), OK);
    free(block);
    EXPECT_EQ(umfPoolDestroy(on_second), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(second), OK);
}

// A suspend in the background names the same queues and events as its caller.
TEST_F(SuspendClaim, AJobWaitsForWhatItsCallerNames) {
    void *queue = &pool, *events[] = {&provider, &other};
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    params.queues = &queue;
    params.num_queues = 1;
    params.events = events;
    params.num_events = 2;
    umf_suspend_job_handle_t job = nullptr;
    const std::vector<int> blocked = blocked_signals();
    ASSERT_EQ(umfPoolsSuspendAsync(&pool, 1, &params, &job), OK);
    EXPECT_EQ(blocked_signals(), blocked);
    ASSERT_EQ(umfSuspendJobWait(job, nullptr), OK);
    EXPECT_EQ(HookedVmm::waited(), (std::vector<void *>{&pool, &provider, &other}));
    ASSERT_EQ(resume(), OK);
    free(block);
}

TEST_F(SuspendClaim, TheReportHasBytesThatWereExported) {
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    ASSERT_EQ(umfGetIPCHandle(block, &handle, &size), OK);
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(report.exported, MiB);
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    free(block);
}

// Freed memory of a suspended pool is available to others at once.
TEST_F(SuspendClaim, AddressesOfFreedPiecesGo) {
    char *second = alloc(pool, PIECE, '2');
    ASSERT_EQ(suspend(), OK);
    umf_residency_t now = UMF_RESIDENCY_INIT;
    EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
    EXPECT_EQ(now.pinned, PIECE + MiB);
    free(second);
    EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
    EXPECT_EQ(now.pinned, MiB);
    EXPECT_EQ(now.reserved, MiB);
    EXPECT_EQ(now.resident, 0u);
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(report.bytes, PIECE);
    free(block);
}

// Others may have its addresses when the pool ends.
TEST_F(SuspendClaim, AFreedPieceIsReleasedOnce) {
    char *second = alloc(pool, PIECE, '2');
    ASSERT_EQ(suspend(), OK);
    int releases = 0;
    HookedVmm::exchange([&](const char *now) {
        releases += std::string("vm_release") == now;
        return OK;
    });
    free(second);
    free(block);
    EXPECT_EQ(releases, 2);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(releases, 2);
    pool = make_pool();
}

TEST_F(SuspendClaim, AProviderThatCannotClaimIsRefused) {
    free(block);
    close();
    open(HookedVmm::create_old(PIECE));
    EXPECT_EQ(suspend(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_TRUE(is_resident());
    free(block);
}
