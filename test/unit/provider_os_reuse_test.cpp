/* providers/os/os: memory that pools free and allocate again, and keeps its content in between. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/decay_period.h"
#include "fakes/scale.h"
#include "fakes/self.h"
#include "fakes/threads.h"
#include "fault.h"
#include "process.h"
#include "provider.h"

extern "C" const umf_memory_provider_descriptor_t umf_os_descriptor;

namespace {

constexpr size_t KiB = 1024, MiB = KiB * KiB;
constexpr size_t warm_min = 64 * MiB;
const size_t page = umf_os_page_size();

umf_os_memory_provider_params_handle_t defaults() {
    static umf_os_memory_provider_params_handle_t params = [] {
        umf_os_memory_provider_params_handle_t made = nullptr;
        EXPECT_EQ(umfOsMemoryProviderParamsCreate(&made), UMF_RESULT_SUCCESS);
        return made;
    }();
    return params;
}

class Os : public Provider {
  public:
    const umf_memory_provider_ext_ops_t *ext = umf_os_descriptor.ext;
    Os() : Provider(umfOsMemoryProviderOps(), defaults()) {}

    char *any(size_t size, size_t alignment = 0) const {
        void *ptr = nullptr;
        EXPECT_EQ(ext->reuse_alloc(self, size, alignment, &ptr), UMF_RESULT_SUCCESS);
        return static_cast<char *>(ptr);
    }
    umf_result_t keep(void *ptr, size_t size) const {
        return ext->reuse_free(self, ptr, size);
    }
    void drop(bool only_decayed = false) const {
        EXPECT_EQ(ext->reuse_drop(self, only_decayed), UMF_RESULT_SUCCESS);
    }
};

/* The kernel below an emulator counts its own pages. */
size_t resident_pages(const void *ptr, size_t size) {
    const size_t counted = is_emulated() ? 4096 : page;
    std::vector<unsigned char> state(size / counted);
    if (mincore(const_cast<void *>(ptr), size, state.data()) != 0) {
        return 0; /* nothing is mapped there */
    }
    size_t count = 0;
    for (unsigned char one : state) {
        count += one & 1;
    }
    return (count * counted + page - 1) / page;
}

bool huge_pages_are_everywhere() {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string text;
    std::getline(file, text);
    return text.find("[always]") != std::string::npos;
}

/* Pieces of 64 KiB, each written. */
std::vector<char *> fill(const Os &provider, size_t bytes) {
    std::vector<char *> pieces;
    for (size_t i = 0; i < bytes / (64 * KiB); i++) {
        pieces.push_back(provider.any(64 * KiB));
        memset(pieces.back(), 'x', 64 * KiB);
    }
    return pieces;
}

size_t resident_bytes(const std::vector<char *> &pieces) {
    size_t pages = 0;
    for (char *ptr : pieces) {
        pages += resident_pages(ptr, 64 * KiB);
    }
    return pages * page;
}

} // namespace

/* A thread of the program does not release all at once. */
TEST(os_reuse, WhatHasDecayedGoesInPortions) {
    DecayPeriod none(DecayPeriod::NONE);
    Os provider;
    std::vector<char *> pieces;
    for (int i = 0; i < 8; i++) {
        pieces.push_back(provider.any(8 * MiB));
        memset(pieces.back(), 'x', 8 * MiB);
    }
    DecayPeriod endless(DecayPeriod::ENDLESS);
    for (char *ptr : pieces) {
        ASSERT_EQ(provider.keep(ptr, 8 * MiB), UMF_RESULT_SUCCESS);
    }
    DecayPeriod again(DecayPeriod::NONE);
    for (size_t left = 8; left-- > 0;) {
        provider.drop(true);
        size_t resident = 0;
        for (char *ptr : pieces) {
            resident += resident_pages(ptr, 8 * MiB) * page;
        }
        EXPECT_EQ(resident, left * 8 * MiB);
    }
}

/* Of those that pools take, which they touch piece by piece: one for each CPU. */
TEST(os_reuse, TheFirstMappingsUseSmallPages) {
    if (huge_pages_are_everywhere()) {
        GTEST_SKIP() << "this machine uses huge pages without a request";
    }
    Os provider;
    std::vector<char *> mappings;
    for (size_t i = 0; i < std::clamp(umf_os_cpu_count(), size_t{2}, size_t{16}); i++) {
        mappings.push_back(provider.any(2 * MiB));
        mappings.back()[MiB] = 'x';
        EXPECT_EQ(resident_pages(mappings.back(), 2 * MiB), 1u) << i;
    }
    for (char *ptr : mappings) {
        EXPECT_EQ(provider.free(ptr, 2 * MiB), UMF_RESULT_SUCCESS);
    }
}

TEST(os_reuse, ContentStaysForWhoWantsAny) {
    Os provider;
    for (size_t size :
         {page, 64 * KiB, 256 * KiB, 256 * KiB + page, 2 * MiB - page, 2 * MiB, 8 * MiB}) {
        char *ptr = provider.any(size);
        EXPECT_TRUE(all_are(ptr, size, 0)) << "first used";
        memset(ptr, 'x', size);
        ASSERT_EQ(provider.keep(ptr, size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.allocated(), 0u);
        char *clear = provider.must_alloc(size);
        EXPECT_NE(clear, ptr);
        EXPECT_TRUE(all_are(clear, size, 0));
        char *again = provider.any(size);
        EXPECT_EQ(again, ptr);
        EXPECT_TRUE(all_are(again, size, 'x'));
        EXPECT_EQ(provider.allocated(), 2 * size);
        EXPECT_EQ(provider.free(again, size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.free(clear, size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(resident_pages(ptr, size), 0u);
    }
}

TEST(os_reuse, AlignmentHolds) {
    Os provider;
    char *first = provider.any(page), *ptr = provider.any(page);
    ASSERT_EQ(provider.keep(first, page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.keep(ptr, page), UMF_RESULT_SUCCESS);
    for (size_t alignment = page; alignment <= 4 * MiB; alignment *= 2) {
        char *aligned = provider.any(page, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % alignment, 0u);
        EXPECT_EQ(provider.free(aligned, page), UMF_RESULT_SUCCESS);
    }
    void *none = nullptr;
    EXPECT_EQ(provider.ext->reuse_alloc(provider.self, page, 3, &none),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.ext->reuse_alloc(provider.self, 0, 0, &none),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(none, nullptr);
}

TEST(os_reuse, WhatIsKeptIsNotFreedAgain) {
    Os provider;
    char *ptr = provider.any(64 * KiB), *other = provider.any(64 * KiB);
    ASSERT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
    for (size_t size : {page, 64 * KiB, 128 * KiB}) {
        EXPECT_EQ(provider.keep(ptr, size), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_FREE_FAILED);
    }
    EXPECT_EQ(provider.keep(ptr + 1, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.keep(other, 0), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.allocated(), 64 * KiB);
    EXPECT_EQ(provider.keep(nullptr, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.keep(other, 64 * KiB), UMF_RESULT_SUCCESS);
}

TEST(os_reuse, MappingsThatWaitAreNotFreedAgain) {
    Os provider;
    char *warm = provider.any(2 * MiB), *clear = provider.any(2 * MiB);
    ASSERT_EQ(provider.keep(warm, 2 * MiB), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.free(clear, 2 * MiB), UMF_RESULT_SUCCESS);
    for (char *ptr : {warm, clear}) {
        EXPECT_EQ(provider.free(ptr, 2 * MiB), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    }
    EXPECT_EQ(provider.keep(warm, 2 * MiB), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    std::set<char *> all;
    for (int i = 0; i < 20; i++) { /* the first ones, and more */
        EXPECT_TRUE(all.insert(provider.any(2 * MiB)).second) << "once only";
    }
    EXPECT_EQ(all.count(warm), 1u);
    EXPECT_EQ(all.count(clear), 1u);
    char *small = provider.any(MiB);
    ASSERT_EQ(provider.keep(small, MiB), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(small, MiB), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.keep(small, MiB), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.any(MiB), small);
    EXPECT_NE(provider.any(MiB), small) << "once only";
    char *large = provider.any(16 * MiB);
    large[0] = 'x';
    EXPECT_EQ(provider.keep(large, 16 * MiB), UMF_RESULT_SUCCESS);
    EXPECT_EQ(resident_pages(large, 16 * MiB), 0u) << "too large to be kept";
}

TEST(os_reuse, MappingsDecay) {
    DecayPeriod none(DecayPeriod::NONE);
    for (size_t size : {MiB, 2 * MiB}) {
        Os provider;
        char *ptr = provider.any(size), *used = provider.any(page);
        memset(ptr, 'x', size);
        ASSERT_EQ(provider.keep(ptr, size), UMF_RESULT_SUCCESS);
        for (int i = 0; i < 5; i++) {
            ASSERT_EQ(provider.keep(used, page), UMF_RESULT_SUCCESS);
            used = provider.any(page);
        }
        EXPECT_EQ(resident_pages(ptr, size), 0u);
    }
}

/* Adjacent allocations may be merged and freed at once. */
TEST(os_reuse, AMappingThatEndsInAnExtentIsNoMapping) {
    Os provider;
    constexpr size_t EXTENT = 2 * MiB, SMALL = 64 * KiB;
    char *before = nullptr;
    for (char *piece : fill(provider, 16 * EXTENT)) {
        void *at = piece - MiB;
        if (!before && reinterpret_cast<uintptr_t>(piece) % EXTENT == 0 &&
            mmap(at, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                 -1, 0) == at) {
            before = static_cast<char *>(at);
        }
    }
    ASSERT_NE(before, nullptr) << "all extents have something before them";
    ASSERT_EQ(provider.keep(before, MiB + SMALL), UMF_RESULT_SUCCESS);
    EXPECT_NE(provider.any(MiB + SMALL), before);
    EXPECT_EQ(provider.any(SMALL), before + MiB) << "the extent has its piece back";
}

/* Pools in use see to it, also if they want nothing of the provider. */
TEST(os_reuse, ALookGivesBackWhatHasDecayed) {
    Os provider;
    char *mapping = provider.any(2 * MiB), *piece = provider.any(64 * KiB);
    {
        DecayPeriod endless(DecayPeriod::ENDLESS);
        memset(mapping, 'x', 2 * MiB);
        memset(piece, 'x', 64 * KiB);
        ASSERT_EQ(provider.keep(mapping, 2 * MiB), UMF_RESULT_SUCCESS);
        ASSERT_EQ(provider.keep(piece, 64 * KiB), UMF_RESULT_SUCCESS);
        provider.drop(true);
        EXPECT_GT(resident_pages(mapping, 2 * MiB), 0u);
        EXPECT_GT(resident_pages(piece, 64 * KiB), 0u);
    }
    DecayPeriod none(DecayPeriod::NONE);
    provider.drop(true);
    EXPECT_EQ(resident_pages(mapping, 2 * MiB), 0u);
    EXPECT_EQ(resident_pages(piece, 64 * KiB), 0u);
}

TEST(os_reuse, ADropGivesAllBack) {
    Os provider;
    std::vector<char *> pieces = fill(provider, 8 * MiB);
    for (char *ptr : pieces) {
        ASSERT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(resident_bytes(pieces), 8 * MiB);
    provider.drop();
    EXPECT_EQ(resident_bytes(pieces), 0u);
    for (size_t i = 0; i < pieces.size(); i++) {
        char *ptr = provider.must_alloc(64 * KiB);
        EXPECT_TRUE(all_are(ptr, 64 * KiB, 0));
        EXPECT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
    }
}

class os_reuse_limit : public testing::Test {
  protected:
    Os provider;
    std::vector<char *> pieces, mappings;

    void touch_provider() const {
        ASSERT_EQ(provider.keep(provider.any(page), page), UMF_RESULT_SUCCESS);
    }
    size_t resident() const {
        size_t pages = 0;
        for (char *ptr : mappings) {
            pages += resident_pages(ptr, 2 * MiB);
        }
        return pages * page + resident_bytes(pieces);
    }
    /* Frees 128 MiB in pieces, then as much in mappings, which cannot use the memory of these. */
    void free_two_kinds() {
        pieces = fill(provider, 2 * warm_min);
        for (char *ptr : pieces) {
            ASSERT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(resident(), 2 * warm_min);
        for (size_t i = 0; i < 2 * warm_min / (2 * MiB); i++) {
            mappings.push_back(provider.any(2 * MiB));
            memset(mappings.back(), 'x', 2 * MiB);
        }
        EXPECT_EQ(resident(), 4 * warm_min) << "the limit holds when something is freed";
        for (char *ptr : mappings) {
            EXPECT_TRUE(all_are(ptr, 2 * MiB, 'x'));
            ASSERT_EQ(provider.keep(ptr, 2 * MiB), UMF_RESULT_SUCCESS);
        }
    }
};

TEST_F(os_reuse_limit, WhatWasLiveLatelyMayStayAndSomeMore) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    free_two_kinds();
    EXPECT_LE(resident(), 3 * warm_min);
    EXPECT_GE(resident(), 3 * warm_min - 8 * MiB);
    char *live = provider.any(warm_min);
    for (int i = 0; i < 32; i++) {
        touch_provider();
    }
    EXPECT_LE(resident(), 2 * warm_min + 2 * MiB);
    EXPECT_GE(resident(), 2 * warm_min - 8 * MiB);
    EXPECT_EQ(provider.free(live, warm_min), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST_F(os_reuse_limit, HighTidesAreForgotten) {
    constexpr auto tick = std::chrono::milliseconds(20); /* the clock is coarse */
    char *high = provider.any(16 * warm_min);
    touch_provider();
    ASSERT_EQ(provider.free(high, 16 * warm_min), UMF_RESULT_SUCCESS);
    for (int i = 0; i < 2; i++) {
        DecayPeriod passed(1);
        std::this_thread::sleep_for(tick);
        touch_provider();
    }
    DecayPeriod endless(DecayPeriod::ENDLESS);
    free_two_kinds();
    EXPECT_LE(resident(), 3 * warm_min);
}

TEST(os_reuse, WhatNobodyWantsDecays) {
    DecayPeriod none(DecayPeriod::NONE);
    Os provider;
    std::vector<char *> pieces = fill(provider, 8 * MiB);
    char *used = provider.any(2 * page);
    for (char *ptr : pieces) {
        ASSERT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
    }
    for (int i = 0; i < 10; i++) {
        ASSERT_EQ(provider.keep(used, 2 * page), UMF_RESULT_SUCCESS);
        used = provider.any(2 * page);
    }
    EXPECT_LE(resident_bytes(pieces), 2 * MiB) << "but for the extent in use";
    EXPECT_EQ(provider.free(used, 2 * page), UMF_RESULT_SUCCESS);
}

/* Also beside what comes and goes all the time. */
TEST(os_reuse, WhatNobodyWantsDecaysBesideWhatIsUsed) {
    DecayPeriod short_one(50 * UINT64_C(1000000));
    Os provider;
    char *used = provider.any(page), *unused = provider.any(64 * KiB);
    memset(unused, 'x', 64 * KiB);
    ASSERT_EQ(provider.keep(unused, 64 * KiB), UMF_RESULT_SUCCESS);
    for (int i = 0; i < 1000 && resident_pages(unused, 64 * KiB); i++) {
        ASSERT_EQ(provider.keep(used, page), UMF_RESULT_SUCCESS);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        used = provider.any(page);
    }
    EXPECT_EQ(resident_pages(unused, 64 * KiB), 0u);
    EXPECT_EQ(provider.free(used, page), UMF_RESULT_SUCCESS);
}

/* Without more memory, warm regions serve all threads. */
TEST(os_reuse, AnAllocationThatFindsNoMemoryClearsWhatIsWarm) {
    Os provider;
    std::vector<char *> pieces = fill(provider, 2 * MiB);
    ASSERT_EQ(provider.keep(pieces[3], 64 * KiB), UMF_RESULT_SUCCESS);
    umf_os_set_fault([](const char *call) { return strcmp(call, "map") == 0 ? ENOMEM : 0; });
    char *ptr = provider.must_alloc(64 * KiB);
    void *none = nullptr;
    EXPECT_EQ(provider.ext->reuse_alloc(provider.self, 64 * KiB, 0, &none),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(ptr, pieces[3]);
    EXPECT_TRUE(all_are(ptr, 64 * KiB, 0));
    EXPECT_EQ(none, nullptr);
}

/* A second thread does something while the first is about to clear a piece for the last time. */
namespace meanwhile {
std::atomic<int> clears, maps;
std::atomic<bool> is_second, has_come;

/* The first clear waits until the second thread has come, whose maps find nothing. */
int hook(const char *call) {
    if (strcmp(call, "map") == 0 && is_second) {
        maps++;
        has_come = true;
        return ENOMEM;
    }
    if (strcmp(call, "advise") == 0 && clears++ == 0) {
        is_second = true;
        for (int i = 0; i < 60000 && !has_come; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return 0;
}

/* `second` sets `has_come`, or maps. */
template <class Second> void run(const Os &provider, const Second &second) {
    clears = maps = 0;
    is_second = has_come = false;
    umf_os_set_fault(hook);
    std::thread other([&] {
        while (!is_second) {
            std::this_thread::yield();
        }
        second();
    });
    provider.drop();
    other.join();
    umf_os_set_fault(nullptr);
    EXPECT_GT(clears, 0);
}
} // namespace meanwhile

/* What another thread has withdrawn to clear it serves an allocation that finds nothing else. */
TEST(os_reuse, AnAllocationWaitsForWhatIsBeingCleared) {
    Os provider;
    std::vector<char *> pieces = fill(provider, 2 * MiB);
    ASSERT_EQ(provider.keep(pieces[3], 64 * KiB), UMF_RESULT_SUCCESS);
    void *ptr = nullptr;
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;
    meanwhile::run(provider, [&] { result = provider.alloc(64 * KiB, 0, &ptr); });
    EXPECT_EQ(result, UMF_RESULT_SUCCESS);
    EXPECT_EQ(ptr, pieces[3]);
    EXPECT_GT(meanwhile::maps, 0) << "the first try found nothing";
}

/* A drop is over when all is back, also what another thread is clearing. */
TEST(os_reuse, ADropWaitsForWhatIsBeingCleared) {
    Os provider;
    std::vector<char *> pieces = fill(provider, 64 * KiB);
    ASSERT_EQ(provider.keep(pieces[0], 64 * KiB), UMF_RESULT_SUCCESS);
    size_t left = SIZE_MAX;
    meanwhile::run(provider, [&] {
        meanwhile::has_come = true;
        provider.drop();
        left = resident_bytes(pieces);
    });
    EXPECT_EQ(left, 0u);
}

size_t kept_bytes(const Os &provider) {
    size_t bytes = SIZE_MAX;
    EXPECT_EQ(provider.ext->reuse_held(provider.self, &bytes), UMF_RESULT_SUCCESS);
    return bytes;
}

/* Pieces in groups of several threads, and mappings: counted while they are kept, and given back by
 * of any caller. */
TEST(os_reuse, WhatIsKeptIsCounted) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    Os provider;
    EXPECT_EQ(kept_bytes(provider), 0u);
    std::vector<char *> pieces[4];
    run_threads<unsigned>(4, [&](unsigned t) {
        pieces[t] = fill(provider, 2 * MiB);
        char *mapping = provider.any(2 * MiB), *one = provider.any(page);
        for (char *ptr : pieces[t]) {
            EXPECT_EQ(provider.keep(ptr, 64 * KiB), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(provider.keep(mapping, 2 * MiB), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.keep(one, page), UMF_RESULT_SUCCESS);
    });
    EXPECT_EQ(kept_bytes(provider), provider.stat("stats.kept_memory"));
    EXPECT_LE(kept_bytes(provider), 4 * (4 * MiB + page));
    EXPECT_GE(kept_bytes(provider), 4 * MiB + page);
    provider.drop();
    EXPECT_EQ(kept_bytes(provider), 0u);
    for (const auto &some : pieces) {
        EXPECT_EQ(resident_bytes(some), 0u);
    }
    EXPECT_EQ(provider.allocated(), 0u);
}

/* Several threads free while several drop: at the end nothing is left. */
TEST(os_reuse, DropsBesideFrees) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    Os provider;
    std::atomic<unsigned> freeing{3};
    run_threads<unsigned>(5, [&](unsigned t) {
        if (t >= 3) {
            while (freeing) {
                provider.drop();
            }
            return;
        }
        for (size_t i = 0; i < scaled(2000); i++) {
            const size_t size = (1 + (i + t) % 100) * page;
            char *ptr = i % 8 ? provider.any(size) : provider.must_alloc(size);
            EXPECT_TRUE(i % 8 || all_are(ptr, size, 0));
            memset(ptr, 'x', size);
            EXPECT_EQ(provider.keep(ptr, size), UMF_RESULT_SUCCESS);
        }
        freeing--;
    });
    provider.drop();
    EXPECT_EQ(kept_bytes(provider), 0u);
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST(os_reuse, WhatCannotBeClearedIsNotUsedAgain) {
    Os provider;
    char *ptr = provider.any(page);
    memset(ptr, 'x', page);
    ASSERT_EQ(provider.keep(ptr, page), UMF_RESULT_SUCCESS);
    umf_os_set_fault([](const char *call) {
        return strcmp(call, "advise") == 0 || strcmp(call, "map") == 0 ? ENOMEM : 0;
    });
    provider.drop();
    umf_os_set_fault(nullptr);
    for (int i = 0; i < 600; i++) {
        char *other = i % 2 ? provider.any(page) : provider.must_alloc(page);
        ASSERT_TRUE(all_are(other, page, 0));
        ASSERT_NE(other, ptr);
    }
}

/* A part of an allocation may stay in use, or several be freed as one. */
TEST(os_reuse, AgainstAModel) {
    DecayPeriod short_one(1000000);
    Os provider;
    std::mt19937 random(7);
    std::map<char *, size_t> live;
    for (size_t round = 0; round < scaled(8000) && !HasFatalFailure(); round++) {
        if (live.size() > 100 || (!live.empty() && random() % 5 < 2)) {
            auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
            auto [ptr, size] = *it;
            ASSERT_TRUE(all_are(ptr, size, static_cast<char>('a' + size / page % 26)));
            if (random() % 3 == 0 && size > page) {
                size_t first = (1 + random() % (size / page - 1)) * page;
                ASSERT_EQ(provider.keep(ptr + first, size - first), UMF_RESULT_SUCCESS);
                size = first;
            }
            ASSERT_EQ(random() % 4 ? provider.keep(ptr, size) : provider.free(ptr, size),
                      UMF_RESULT_SUCCESS);
            live.erase(it);
            continue;
        }
        if (random() % 200 == 0) {
            provider.drop();
        }
        size_t size = (1 + random() % (random() % 8 ? 20 : 600)) * page;
        bool is_any = random() % 4 != 0;
        char *ptr = is_any ? provider.any(size) : provider.must_alloc(size);
        ASSERT_TRUE(is_any || all_are(ptr, size, 0));
        auto after = live.lower_bound(ptr);
        ASSERT_TRUE(after == live.end() || ptr + size <= after->first);
        ASSERT_TRUE(after == live.begin() ||
                    std::prev(after)->first + std::prev(after)->second <= ptr);
        memset(ptr, static_cast<char>('a' + size / page % 26), size);
        live[ptr] = size;
    }
    for (auto [ptr, size] : live) {
        ASSERT_EQ(provider.keep(ptr, size), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST(os_reuse, ManyThreads) {
    DecayPeriod short_one(1000000);
    Os provider;
    run_threads<unsigned>(4, [&](unsigned t) {
        std::mt19937 random(t);
        std::vector<std::pair<char *, size_t>> live;
        for (size_t i = 0; i < scaled(3000); i++) {
            if (live.size() > 30 || (!live.empty() && random() % 2)) {
                auto [ptr, size] = live.back();
                live.pop_back();
                EXPECT_TRUE(all_are(ptr, page, static_cast<char>('a' + t)));
                EXPECT_EQ(random() % 8 ? provider.keep(ptr, size) : provider.free(ptr, size),
                          UMF_RESULT_SUCCESS);
            } else {
                size_t size = (1 + random() % 40) * page;
                bool is_any = random() % 8 != 0;
                char *ptr = is_any ? provider.any(size) : provider.must_alloc(size);
                EXPECT_TRUE(is_any || all_are(ptr, page, 0));
                memset(ptr, static_cast<char>('a' + t), page);
                live.push_back({ptr, size});
            }
            if (random() % 500 == 0) {
                provider.drop();
            }
        }
        for (auto [ptr, size] : live) {
            EXPECT_EQ(provider.keep(ptr, size), UMF_RESULT_SUCCESS);
        }
    });
    EXPECT_EQ(provider.allocated(), 0u);
}

/* --- pools ------------------------------------------------------------------------------------ */

class os_reuse_pools : public testing::TestWithParam<const umf_memory_pool_ops_t *(*)()> {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    void SetUp() override {
        ASSERT_EQ(umfMemoryProviderCreate(umfOsMemoryProviderOps(), defaults(), &provider),
                  UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), UMF_RESULT_SUCCESS);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    }
    /* More than a pool keeps by itself, freed again; too few for it to keep them all the same. */
    std::vector<char *> burst() const {
        std::vector<char *> pieces;
        for (int i = 0; i < 32; i++) {
            pieces.push_back(static_cast<char *>(umfPoolMalloc(pool, 64 * KiB)));
            memset(pieces.back(), 'x', 64 * KiB);
        }
        for (char *ptr : pieces) {
            EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
        }
        return pieces;
    }
};

TEST_P(os_reuse_pools, FreedPiecesAreWarmUntilATrim) {
    std::vector<char *> pieces = burst();
    EXPECT_EQ(resident_bytes(pieces), pieces.size() * 64 * KiB);
    umf_result_t result = umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(result,
              GetParam() == &umfProxyPoolOps ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_SUCCESS);
    EXPECT_EQ(resident_bytes(pieces), 0u);
}

TEST_P(os_reuse_pools, FreedPiecesDecayWhileThePoolIsInUse) {
    DecayPeriod none(DecayPeriod::NONE);
    std::vector<char *> pieces = burst();
    for (int i = 0; i < 20; i++) {
        std::vector<void *> used;
        for (int k = 0; k < 100; k++) {
            used.push_back(umfPoolMalloc(pool, 64));
        }
        for (void *ptr : used) {
            EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
        }
    }
    EXPECT_LE(resident_bytes(pieces), 2 * MiB) << "but for the extent in use";
}

TEST_P(os_reuse_pools, TheEndOfAPoolGivesAllBack) {
    std::vector<char *> pieces = burst();
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    EXPECT_EQ(resident_bytes(pieces), 0u);
    ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), UMF_RESULT_SUCCESS);
}

/* What one pool has freed decays at the looks of another over the same provider. */
TEST_P(os_reuse_pools, LooksOfOtherPoolsGiveBackWhatHasDecayed) {
    for (auto ops : {&umfDisjointPoolOps, &umfScalablePoolOps}) {
        umf_memory_pool_handle_t other = nullptr;
        umf_result_t result = umfPoolCreate(ops(), provider, nullptr, 0, &other);
        if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            GTEST_SKIP() << "oneTBB is not installed";
        }
        ASSERT_EQ(result, UMF_RESULT_SUCCESS);
        std::vector<char *> pieces = burst();
        EXPECT_EQ(resident_bytes(pieces), pieces.size() * 64 * KiB);
        DecayPeriod none(DecayPeriod::NONE);
        for (int i = 0; i < 20; i++) {
            std::vector<void *> used;
            for (int k = 0; k < 2000; k++) {
                used.push_back(umfPoolMalloc(other, 64));
            }
            for (void *ptr : used) {
                EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
            }
        }
        EXPECT_LE(resident_bytes(pieces), 2 * MiB) << "but for an extent in use";
        EXPECT_EQ(umfPoolDestroy(other), UMF_RESULT_SUCCESS);
    }
}

INSTANTIATE_TEST_SUITE_P(os, os_reuse_pools, testing::Values(&umfProxyPoolOps, &umfDisjointPoolOps),
                         [](const auto &kind) { return kind.index ? "disjoint" : "proxy"; });
