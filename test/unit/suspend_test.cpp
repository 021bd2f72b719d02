// Suspend when the system fails: whatever call it is, the pool is as it was and nothing is lost.

#include <cstdio>
#include <cstring>

#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/suspend.h>

#include "fakes/handle.h"
#include "fault.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = size_t{4} << 20; // one unit of a store: all is done by one thread

// Bytes of addresses that the process has mapped.
size_t mapped() {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT_EQ(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class SuspendFaults : public ::testing::Test {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    char *block = nullptr;

    void SetUp() override {
        umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        ASSERT_EQ(umfLinuxVmmMemoryProviderParamsCreate(&params), OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), params, &provider), OK);
        umfLinuxVmmMemoryProviderParamsDestroy(params);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr,
                                UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool),
                  OK);
        block = static_cast<char *>(umfPoolMalloc(pool, SIZE));
        ASSERT_NE(block, nullptr);
        memset(block, 77, SIZE);
    }

    void TearDown() override {
        if (block) {
            EXPECT_EQ(umfFree(block), OK);
        }
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
    }

    void set(umf_suspend_keep_t keep) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        policy.folder = "/dev/shm";
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    }

    umf_result_t suspend() {
        return umfPoolsSuspend(&pool, 1, nullptr, nullptr);
    }
    umf_result_t resume() {
        return umfPoolsResume(&pool, 1, nullptr, nullptr);
    }

    bool is_resident() const {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        return umfPoolGetResidency(pool, &now) == OK && now.state == UMF_SUSPEND_STATE_RESIDENT;
    }
    bool is_whole() const {
        return block[0] == 77 && memcmp(block, block + 1, SIZE - 1) == 0;
    }
};

} // namespace

TEST_F(SuspendFaults, EveryCallOfTheSystem) {
    for (umf_suspend_keep_t keep :
         {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE}) {
        set(keep);
        int failures = 0;
        for (fault::Nth nth; nth.next();) {
            umfSuspendTrim();
            umf_result_t slept = suspend();
            if (slept != OK) {
                nth.off();
                failures++;
                ASSERT_TRUE(is_resident()) << keep << " " << nth.runs();
                ASSERT_TRUE(is_whole()) << keep << " " << nth.runs();
                continue;
            }
            umf_result_t woken = resume();
            nth.off();
            if (woken != OK) {
                failures++;
                ASSERT_FALSE(is_resident());
                ASSERT_EQ(resume(), OK);
            }
            ASSERT_TRUE(is_resident());
            ASSERT_TRUE(is_whole()) << keep << " " << nth.runs();
        }
        EXPECT_GT(failures, 2) << keep;
    }
}

// A store of more than 256 MiB is made of several mappings. Nothing is copied.
TEST_F(SuspendFaults, AStoreThatFindsMemoryForAPartOnlyGivesItBack) {
    constexpr size_t large = size_t{288} << 20;
    void *more = umfPoolMalloc(pool, large);
    ASSERT_NE(more, nullptr);
    set(UMF_SUSPEND_KEEP_HOST);
    umfSuspendTrim();
    const size_t before = mapped();
    fault::Nth nth("map", ENOMEM, true);
    for (int first : {1, 2}) {
        ASSERT_TRUE(nth.next());
        EXPECT_NE(suspend(), OK) << first;
        nth.off();
        umfSuspendTrim();
        EXPECT_LT(mapped(), before + large / 2) << first;
    }
    EXPECT_EQ(umfFree(more), OK);
}

// Neither can what failed be undone: the content stays where it is, and the pool can be resumed.
TEST_F(SuspendFaults, TheSystemFailsForGood) {
    // Pieces of their own that do not touch: memory between them is released.
    char *blocks[4] = {};
    for (char *&made : blocks) {
        made = static_cast<char *>(umfPoolMalloc(pool, 16 * SIZE));
        ASSERT_NE(made, nullptr);
    }
    char *more[] = {blocks[1], blocks[3]};
    EXPECT_EQ(umfFree(blocks[0]), OK);
    EXPECT_EQ(umfFree(blocks[2]), OK);
    for (umf_suspend_keep_t keep : {UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE}) {
        set(keep);
        int stayed = 0;
        for (fault::Nth nth("map", ENOMEM, true); nth.next();) {
            strcpy(more[0], "first");
            strcpy(more[1], "second");
            umf_result_t slept = suspend();
            nth.off();
            stayed += slept != OK && !is_resident();
            ASSERT_EQ(resume(), OK) << nth.runs();
            ASSERT_TRUE(is_resident());
            ASSERT_TRUE(is_whole()) << keep << " " << nth.runs();
            ASSERT_STREQ(more[0], "first");
            ASSERT_STREQ(more[1], "second");
        }
        EXPECT_GT(stayed, 0) << keep;
    }
    EXPECT_EQ(umfFree(more[0]), OK);
    EXPECT_EQ(umfFree(more[1]), OK);
}

TEST_F(SuspendFaults, AFullDisk) {
    set(UMF_SUSPEND_KEEP_FILE);
    for (const char *call : {"allocate", "write_at"}) {
        for (int error : {ENOSPC, EFBIG}) {
            fault::Nth nth(call, error);
            ASSERT_TRUE(nth.next());
            EXPECT_EQ(suspend(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY) << call;
            EXPECT_TRUE(is_resident());
            EXPECT_TRUE(is_whole());
        }
    }
}

TEST_F(SuspendFaults, AFileSystemThatCannotReserve) {
    set(UMF_SUSPEND_KEEP_FILE);
    fault::Nth nth("allocate", EOPNOTSUPP);
    ASSERT_TRUE(nth.next());
    EXPECT_EQ(suspend(), OK);
    EXPECT_TRUE(nth.hit());
    EXPECT_EQ(resume(), OK);
    EXPECT_TRUE(is_whole());
}

TEST_F(SuspendFaults, AFileThatCannotBeRead) {
    set(UMF_SUSPEND_KEEP_FILE);
    ASSERT_EQ(suspend(), OK);
    {
        fault::Nth nth("read_at", EIO);
        ASSERT_TRUE(nth.next());
        EXPECT_NE(resume(), OK);
        EXPECT_FALSE(is_resident());
    }
    EXPECT_EQ(resume(), OK);
    EXPECT_TRUE(is_whole());
}

// A second share exports the new memory.
TEST_F(SuspendFaults, HandlesAreMadeAnew) {
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    const Bytes old = handle_of(block);
    ASSERT_EQ(suspend(), OK);
    ASSERT_EQ(resume(), OK);
    const Bytes made = handle_of(block);
    EXPECT_NE(made, old);
    void *opened = nullptr;
    ASSERT_EQ(open_handle(handler, made, &opened), OK);
    block[SIZE - 1] = 78;
    EXPECT_EQ(static_cast<char *>(opened)[SIZE - 1], 78);
    EXPECT_EQ(static_cast<char *>(opened)[0], 77);
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
}
