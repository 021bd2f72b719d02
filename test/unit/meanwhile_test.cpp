// What other threads do in the middle: a suspend waits for copies and visits of its pool, and a
// snapshot takes a span as it is when it is divided.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/memory_provider_gpu.h>
#include <umf/plugin.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/fake_provider.h"
#include "fakes/plain_ops.h"
#include "fakes/snapshot.h"
#include "fakes/viewing_pool.h"

extern "C" {
#include "ext/record/snapshot/snapshot.h"
// reclaim/reclaim.h, which is C11
void umf_reclaim_each(bool (*one)(umf_memory_pool_handle_t pool, void *arg), void *arg);
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = 65536;

void wait_for(const std::atomic<bool> &flag) {
    while (!flag) {
        std::this_thread::yield();
    }
}

// --- suspends ---

class SuspendMeanwhile : public testing::Test {
  public:
    umf_memory_pool_handle_t pool = nullptr;
    void *block = nullptr;
    std::atomic<bool> is_inside{false}, may_end{false};

  protected:
    void SetUp() override {
        ASSERT_EQ(umfPoolCreateFromText("proxy over linux_vmm", &pool), OK) << umfTextError();
        block = umfPoolMalloc(pool, SIZE);
        ASSERT_NE(block, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolFree(pool, block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    // `work` sets is_inside and goes on until may_end. A suspend that does not wait for it ends
    // within milliseconds.
    template <typename Work> void suspend_waits_for(Work work) {
        std::thread working(work);
        wait_for(is_inside);
        std::atomic<bool> is_asleep{false};
        std::thread suspending([&] {
            EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
            is_asleep = true;
        });
        for (int i = 0; i < 20 && !is_asleep; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT_FALSE(is_asleep);
        may_end = true;
        working.join();
        suspending.join();
        EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    }
};

TEST_F(SuspendMeanwhile, VisitsOfThePoolEndFirst) {
    suspend_waits_for([this] {
        umf_reclaim_each(
            [](umf_memory_pool_handle_t visited, void *arg) {
                auto self = static_cast<SuspendMeanwhile *>(arg);
                if (visited == self->pool) {
                    self->is_inside = true;
                    wait_for(self->may_end);
                }
                return true;
            },
            this);
    });
}

std::atomic<bool> *copy_is_inside, *copy_may_end;

// Memory of a device whose copies go on until the test says so.
umf_memory_provider_handle_t make_slow_device() {
    static umf_memory_provider_ops_t ops = FakeProvider::table();
    static umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    static FakeProvider fake;
    ops.ext_get_allocation_properties = [](void *, const void *, umf_memory_property_id_t,
                                           void *value) {
        *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_DEVICE;
        return OK;
    };
    ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *size) {
        *size = sizeof(umf_usm_memory_type_t);
        return OK;
    };
    ext.queue_create = [](void *, void **queue) {
        static char one;
        *queue = &one;
        return OK;
    };
    ext.queue_destroy = [](void *, void *) { return OK; };
    ext.queue_wait = [](void *, void *) { return OK; };
    ext.copy = [](void *, void *, void *to, const void *from, size_t size) {
        *copy_is_inside = true;
        wait_for(*copy_may_end);
        memcpy(to, from, size);
        return OK;
    };
    static const umf_memory_provider_descriptor_t kind = plain_kind("slow_device", &ops, &ext);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfRegisterProvider(&kind), OK);
    EXPECT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    return provider;
}

TEST_F(SuspendMeanwhile, CopiesFromThePoolEndFirst) {
    umf_memory_provider_handle_t provider = make_slow_device();
    umf_memory_pool_handle_t device = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &device), OK);
    void *to = umfPoolMalloc(device, SIZE);
    ASSERT_NE(to, nullptr);
    copy_is_inside = &is_inside;
    copy_may_end = &may_end;
    suspend_waits_for([&] { EXPECT_EQ(umfCopy(to, block, SIZE, nullptr), OK); });
    EXPECT_EQ(umfPoolFree(device, to), OK);
    EXPECT_EQ(umfPoolDestroy(device), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// --- snapshots ---

void *cut_block;

TEST(SnapshotMeanwhile, ASpanThatIsCutHasTheSizeThatItHasThen) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_pool_ops_t ops = viewing_pool_ops();
    ASSERT_EQ(umfPoolCreate(&ops, provider, nullptr, 0, &pool), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(viewed_provider, 2 * SIZE, 0, &cut_block), OK);
    int fd = memfd_create("snapshot", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    // Asked behind the list of spans, before the first is divided.
    static bool is_cut;
    is_cut = false;
    ASSERT_EQ(umf_snapshot_write(fd, UMF_SNAPSHOT_ALL,
                                 [] {
                                     is_cut = is_cut ||
                                              umfMemoryProviderAllocationSplit(
                                                  viewed_provider, cut_block, 2 * SIZE, SIZE) == OK;
                                     return false;
                                 }),
              0);
    EXPECT_TRUE(is_cut);
    Snapshot taken("/proc/self/fd/" + std::to_string(fd));
    const umf_record_span_t *span = taken.span_at(cut_block);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(span->size, SIZE);
    EXPECT_EQ(taken.of(pool).held, SIZE);
    close(fd);
    for (size_t at : {size_t{0}, SIZE}) {
        EXPECT_EQ(umfMemoryProviderFree(viewed_provider, static_cast<char *>(cut_block) + at, SIZE),
                  OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

umf_memory_pool_handle_t ending_pool;
void *ending_block;

// No thread is counted as its visitor: the next pool with its index can end.
TEST(SnapshotMeanwhile, APoolThatEndsIsNotVisited) {
    expect_in_child([] {
        alarm(60); // instead of a wait for ever
        ASSERT_EQ(umfPoolCreateFromText("proxy over os", &ending_pool), OK) << umfTextError();
        ending_block = umfPoolMalloc(ending_pool, SIZE);
        ASSERT_NE(ending_block, nullptr);
        int fd = memfd_create("snapshot", MFD_CLOEXEC);
        ASSERT_GE(fd, 0);
        EXPECT_EQ(umf_snapshot_write(fd, UMF_SNAPSHOT_ALL,
                                     [] {
                                         if (ending_pool) {
                                             EXPECT_EQ(umfFree(ending_block), OK);
                                             EXPECT_EQ(umfPoolDestroy(ending_pool), OK);
                                             ending_pool = nullptr;
                                         }
                                         return false;
                                     }),
                  0);
        close(fd);
        EXPECT_EQ(ending_pool, nullptr);
        umf_memory_pool_handle_t next = nullptr;
        ASSERT_EQ(umfPoolCreateFromText("proxy over os", &next), OK) << umfTextError();
        EXPECT_EQ(umfPoolDestroy(next), OK);
    });
}

} // namespace
