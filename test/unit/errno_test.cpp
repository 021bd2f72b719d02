/*
 * Frees leave errno as it was (free(3), POSIX 2024), whatever the provider does to it: errno stands
 * for earlier calls of the program.
 */
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/kinds.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr int BEFORE = EXDEV, SPOILT = EMLINK;

const umf_memory_provider_ops_t plain = FakeProvider::table();
size_t spoilt; // operations that changed errno

template <typename Result> Result spoil(Result result) {
    spoilt++;
    errno = SPOILT;
    return result;
}

// Each operation that a free may lead to changes errno.
umf_memory_provider_ops_t spoiling_table() {
    umf_memory_provider_ops_t ops = plain;
    ops.free = [](void *self, void *ptr, size_t size) {
        return spoil(plain.free(self, ptr, size));
    };
    ops.ext_purge_lazy = [](void *self, void *ptr, size_t size) {
        return spoil(plain.ext_purge_lazy(self, ptr, size));
    };
    ops.ext_purge_force = [](void *self, void *ptr, size_t size) {
        return spoil(plain.ext_purge_force(self, ptr, size));
    };
    ops.ext_allocation_split = [](void *self, void *ptr, size_t total, size_t first) {
        return spoil(plain.ext_allocation_split(self, ptr, total, first));
    };
    ops.ext_allocation_merge = [](void *self, void *low, void *high, size_t total) {
        return spoil(plain.ext_allocation_merge(self, low, high, total));
    };
    return ops;
}

class Errno : public testing::TestWithParam<PoolKind> {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        umf_memory_provider_ops_t ops = spoiling_table();
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
        spoilt = 0;
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    void make(umf_pool_create_flags_t flags = 0) {
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, flags, &pool), OK);
    }
    // Small and large ones, so that slabs fill, thread caches overflow and memory goes back.
    void free_all_sizes(const std::function<umf_result_t(void *)> &free) {
        for (size_t size : {size_t(64), size_t(8) << 10, size_t(1) << 20, size_t(9) << 20}) {
            std::vector<void *> live;
            for (size_t bytes = 0; bytes < size_t(32) << 20 && live.size() < 20000; bytes += size) {
                live.push_back(umfPoolMalloc(pool, size));
                ASSERT_NE(live.back(), nullptr);
            }
            for (void *ptr : live) {
                errno = BEFORE;
                ASSERT_EQ(free(ptr), OK);
                ASSERT_EQ(errno, BEFORE) << size;
            }
        }
    }
};

TEST_P(Errno, IsKeptByUmfFree) {
    make();
    free_all_sizes(umfFree);
    EXPECT_GT(spoilt, 0u);
}

TEST_P(Errno, IsKeptByPoolFree) {
    make();
    free_all_sizes([this](void *ptr) { return umfPoolFree(pool, ptr); });
    EXPECT_GT(spoilt, 0u);
}

TEST_P(Errno, IsKeptWithoutTracking) {
    make(UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    free_all_sizes([this](void *ptr) { return umfPoolFree(pool, ptr); });
    EXPECT_GT(spoilt, 0u);
}

TEST_P(Errno, IsKeptByTheDecayInsideOfAFree) {
    DecayPeriod period(DecayPeriod::NONE);
    make();
    free_all_sizes(umfFree);
    free_all_sizes(umfFree);
    EXPECT_GT(spoilt, 0u);
}

TEST_P(Errno, IsKeptByAFreeThatFails) {
    make();
    void *ptr = umfPoolMalloc(pool, size_t(9) << 20);
    ASSERT_NE(ptr, nullptr);
    fake.free_fails = true;
    errno = BEFORE;
    umfFree(ptr);
    EXPECT_EQ(errno, BEFORE);
    fake.free_fails = false;
    umfFree(ptr);
    EXPECT_EQ(umfFree(&fake), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolFree(pool, &fake), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(errno, BEFORE);
}

INSTANTIATE_TEST_SUITE_P(Each, Errno, testing::ValuesIn(pool_kinds()),
                         [](const auto &param) { return std::string(param.param.id); });

int map_fails_for_all(const char *call) {
    if (std::string(call) != "map") {
        return 0;
    }
    errno = ENOMEM; // as mmap(2) does
    return ENOMEM;
}

TEST(ErrnoOfMetadata, IsKeptWithoutMemory) {
    umf_os_set_fault(map_fails_for_all);
    errno = BEFORE;
    EXPECT_EQ(umf_meta_alloc(size_t(1) << 20), nullptr); // the request of a growing stack
    EXPECT_EQ(errno, BEFORE);
    umf_os_set_fault(nullptr);
}

} // namespace
