/* What the jemalloc pool holds decays (base/decay.h). */
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_jemalloc.h>

#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t K = 1024;

class Jemalloc : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        if (!umfJemallocPoolOps()) {
            GTEST_SKIP() << "built without the jemalloc pool";
        }
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    void *alloc(size_t size) {
        void *p = umfPoolMalloc(pool, size);
        EXPECT_NE(p, nullptr) << size;
        return p;
    }
    void free(void *p) {
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    size_t count() {
        size_t n = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &n, sizeof(n), pool), OK);
        return n;
    }
    // More than the caches of a thread hold.
    void use_lightly() {
        std::vector<void *> list(4096);
        for (int i = 0; i < 4; i++) {
            for (void *&p : list) {
                p = alloc(64);
            }
            std::for_each(list.begin(), list.end(), [this](void *p) { free(p); });
        }
    }
};

TEST_F(Jemalloc, MemoryFollowsWhatIsLive) {
    DecayPeriod none(DecayPeriod::NONE);
    for (size_t size : {16 * K, 64 * K, 200 * K}) {
        std::vector<void *> list(500);
        for (size_t i = 0; i < list.size(); i++) {
            list[i] = alloc(size);
            memset(list[i], static_cast<int>(i % 256), size);
        }
        size_t before = fake.purged_bytes;
        for (size_t i = 0; i < list.size(); i++) {
            if (i % 10) {
                free(list[i]);
            }
        }
        use_lightly();
        EXPECT_GE(fake.purged_bytes - before, (450 - 16) * size) << "all but a stack";
        for (size_t i = 0; i < list.size(); i += 10) {
            auto p = static_cast<unsigned char *>(list[i]);
            ASSERT_TRUE(std::all_of(p, p + size, [=](unsigned char c) { return c == i % 256; }));
            free(p);
        }
    }
    EXPECT_EQ(count(), 0u);
}

TEST_F(Jemalloc, ParkedBlocksDecay) {
    DecayPeriod none(DecayPeriod::NONE);
    OtherThread other;
    void *kept = alloc(400 * K), *p = alloc(300 * K), *q = alloc(1000 * K);
    memset(p, 1, 300 * K);
    memset(q, 1, 1000 * K);
    memset(kept, 1, 400 * K);
    other([&] { free(p); });
    free(q);
    use_lightly();
    EXPECT_GE(fake.purged_bytes, 1300 * K);
    EXPECT_EQ(static_cast<char *>(kept)[400 * K - 1], 1);
    free(kept);
}

TEST_F(Jemalloc, AProviderThatCannotPurgeIsAskedOnce) {
    DecayPeriod none(DecayPeriod::NONE);
    fake.can_purge = false;
    std::vector<void *> list(500);
    for (void *&p : list) {
        p = alloc(16 * K);
    }
    for (size_t i = 0; i < list.size(); i += 2) {
        free(list[i]);
    }
    use_lightly();
    EXPECT_EQ(fake.purges, 2u) << "with force, and without";
}

} // namespace
