/*
 * The system runs dry, and users make mistakes without end: errors come back, nothing hangs, and
 * afterwards everything works.
 */
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/child.h"
#include "fakes/kinds.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

class Each : public testing::TestWithParam<PoolKind> {
  protected:
    static void limit(int which, rlim_t value) {
        struct rlimit limits;
        getrlimit(static_cast<__rlimit_resource>(which), &limits);
        limits.rlim_cur = value;
        setrlimit(static_cast<__rlimit_resource>(which), &limits);
    }
    static size_t address_space() {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        EXPECT_EQ(fscanf(file, "%ld", &pages), 1);
        fclose(file);
        return static_cast<size_t>(pages) * 4096;
    }
};

TEST_P(Each, AddressSpaceIsFull) {
    if (UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP() << "sanitizers need the address space";
    }
    expect_in_child([&] {
        auto source = make_os(UMF_MEM_MAP_PRIVATE);
        std::vector<void *> live(100000);
        size_t count = 0;
        limit(RLIMIT_AS, address_space() + (256u << 20));
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
        for (size_t size : {100000, 5000, 64}) {
            void *p;
            while (count < live.size() && (p = umfPoolMalloc(pool, size)) != nullptr) {
                live[count++] = p;
            }
            EXPECT_NE(umfPoolGetLastAllocationError(pool), OK);
        }
        EXPECT_GT(count, 500u);
        EXPECT_EQ(umfPoolMalloc(pool, 512u << 20), nullptr);
        for (size_t i = 0; i < count; i++) {
            EXPECT_EQ(umfPoolFree(pool, live[i]), OK);
        }
        for (int i = 0; i < 100; i++) {
            void *p = umfPoolMalloc(pool, 1u << 20);
            EXPECT_NE(p, nullptr);
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    });
}

TEST_P(Each, NoDescriptorIsLeft) {
    expect_in_child([&] {
        auto source = make_os(UMF_MEM_MAP_SHARED);
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
        ASSERT_EQ(umfPoolDestroy(pool), OK); // libraries a kind needs are loaded
        limit(RLIMIT_NOFILE, 0);
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
        void *p = umfPoolMalloc(pool, 100);
        EXPECT_NE(p, nullptr) << "the provider has its file already";
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        auto other = make_os(UMF_MEM_MAP_SHARED);
        EXPECT_EQ(other->handle, nullptr);
    });
}

// RULES 21, 49: a mixture of right and wrong frees; no block is ever given to two at once.
TEST_P(Each, MisuseWithoutEnd) {
    auto source = make_os(UMF_MEM_MAP_PRIVATE);
    umf_memory_pool_handle_t pool = nullptr, other = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), source->handle, nullptr, 0, &other), OK);
    std::mt19937_64 random(1);
    std::vector<char *> live;
    bool small = std::string(GetParam().id) != "proxy";
    for (size_t i = 0; i < scaled(20000); i++) {
        if (live.size() < 50 || random() % 2) {
            size_t size = small ? 16 + random() % 3000 : 100;
            auto p = static_cast<char *>(umfPoolMalloc(pool, size));
            ASSERT_NE(p, nullptr);
            auto own = reinterpret_cast<uintptr_t>(p);
            memcpy(p, &own, sizeof(own));
            live.push_back(p);
        }
        size_t at = random() % live.size();
        char *p = live[at];
        uintptr_t seen = 0;
        memcpy(&seen, p, sizeof(seen));
        ASSERT_EQ(seen, reinterpret_cast<uintptr_t>(p)) << "another thread wrote into a live block";
        switch (random() % 8) {
        case 0:
            EXPECT_NE(umfPoolFree(other, p), OK);
            break;
        case 1:
            EXPECT_NE(umfPoolFree(pool, p + 1 + random() % 15), OK);
            break;
        case 2:
            EXPECT_NE(umfFree(p + 1 + random() % 15), OK);
            break;
        case 3:
            EXPECT_NE(umfFree(&random), OK);
            EXPECT_NE(umfPoolFree(pool, &random), OK);
            break;
        case 4: {
            size_t size = 0;
            umfPoolMallocUsableSize(pool, reinterpret_cast<void *>(random()), &size);
            umfPoolFree(pool, reinterpret_cast<void *>(random() | uintptr_t{1} << 63));
            break;
        }
        default:
            EXPECT_EQ(umfPoolFree(pool, p), OK);
            live[at] = live.back();
            live.pop_back();
        }
    }
    for (char *p : live) {
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    EXPECT_EQ(alloc_count(pool), 0u);
    EXPECT_EQ(umfPoolDestroy(other), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(source->live_bytes(), 0u);
}

TEST_P(Each, DoubleFreesWithoutEndDoNotCrash) {
    auto source = make_os(UMF_MEM_MAP_PRIVATE);
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
    std::mt19937 random(2);
    std::vector<void *> freed;
    for (size_t i = 0; i < scaled(20000); i++) {
        void *p = umfPoolMalloc(pool, 1 + random() % 60000);
        if (p) {
            umfPoolFree(pool, p);
            freed.push_back(p);
        }
        umfPoolFree(pool, freed[random() % freed.size()]);
        umfFree(freed[random() % freed.size()]);
        if (GetParam().trims && i % 1000 == 999) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(source->live_bytes(), 0u);
}

// After a trim the memory is no longer resident in the process.
TEST_P(Each, TrimGivesMemoryBackToTheSystem) {
    if (!GetParam().trims || UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP();
    }
    auto resident = [] {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        EXPECT_EQ(fscanf(file, "%*d %ld", &pages), 1);
        fclose(file);
        return static_cast<size_t>(pages) * 4096;
    };
    auto source = make_os(UMF_MEM_MAP_PRIVATE);
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
    std::vector<void *> live(20000);
    size_t before = resident();
    for (auto &p : live) {
        p = umfPoolMalloc(pool, 4000);
        memset(p, 1, 4000);
    }
    EXPECT_GT(resident(), before + (60u << 20));
    // One in a hundred stays, so few slabs fall free as a whole.
    for (size_t i = 0; i < live.size(); i++) {
        if (i % 100) {
            EXPECT_EQ(umfPoolFree(pool, live[i]), OK);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LT(resident(), before + (30u << 20));
    for (size_t i = 0; i < live.size(); i += 100) {
        EXPECT_EQ(*static_cast<char *>(live[i]), 1);
        EXPECT_EQ(umfPoolFree(pool, live[i]), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

INSTANTIATE_TEST_SUITE_P(Pools, Each, testing::ValuesIn(pool_kinds()),
                         [](const auto &test) { return test.param.id; });

} // namespace
