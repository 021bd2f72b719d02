/*
 * What every pool promises (umf/memory_pool.h), stated once and run for each kind of pools.def on
 * each kind of provider that can carry it, and untracked and owning its provider.
 */
#include <algorithm>
#include <cerrno>
#include <future>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/kinds.h"
#include "fakes/log_file.h"
#include "fakes/plain_ops.h"
#include "fakes/scale.h"
#include "fakes/table_member.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;

TEST(Kinds, EveryLineOfTheListIsTested) {
    for (const Listed &listed : listed_pools()) {
        bool known = strcmp(listed.id, "scalable") == 0 && !has_one_tbb();
        for (const PoolKind &kind : pool_kinds()) {
            known |= std::string(kind.id) == listed.id;
        }
        EXPECT_TRUE(known || !listed.available)
            << "add " << listed.id << " to pool_kinds() in fakes/kinds.h";
    }
}

bool is_filled(const char *p, size_t size, char c) {
    return p[0] == c && memcmp(p, p + 1, size - 1) == 0;
}

struct Flags {
    const char *label;
    umf_pool_create_flags_t flags;
};
std::ostream &operator<<(std::ostream &out, const Flags &flags) {
    return out << flags.label;
}
const Flags all_flags[] = {
    {"tracked", UMF_POOL_CREATE_FLAG_NONE},
    {"untracked", UMF_POOL_CREATE_FLAG_DISABLE_TRACKING},
    {"owning", UMF_POOL_CREATE_FLAG_OWN_PROVIDER},
};

using Parameter = std::tuple<PoolKind, SourceKind, Flags>;

class Pool : public testing::TestWithParam<Parameter> {
  protected:
    const PoolKind &kind = std::get<0>(GetParam());
    const umf_pool_create_flags_t flags = std::get<2>(GetParam()).flags;
    std::unique_ptr<Source> source;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        source = std::get<1>(GetParam()).make();
        ASSERT_NE(source->handle, nullptr);
        NEEDS_TO_FIT(kind, std::get<1>(GetParam()))
        ASSERT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, flags, &pool), OK);
    }
    // Whatever a test does, in the end the provider has everything back.
    void TearDown() override {
        destroy();
        if (source->handle) {
            EXPECT_EQ(source->live_bytes(), 0u) << "the pool kept something";
        }
        if (source->fake) {
            EXPECT_EQ(source->fake->mistakes, 0u);
            EXPECT_EQ(source->fake->finalizes, owns() ? 1u : 0u);
        }
    }
    void destroy() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            pool = nullptr;
            if (owns()) {
                source->handle = nullptr;
            }
        }
    }
    bool owns() {
        return flags & UMF_POOL_CREATE_FLAG_OWN_PROVIDER;
    }
    bool tracked() {
        return !(flags & UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    }
    bool is(const char *id) {
        return std::string(kind.id) == id;
    }
    char *alloc(size_t size) {
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr) << size;
        return static_cast<char *>(ptr);
    }
    void free(void *ptr) {
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    }
    umf_result_t last_error() {
        return umfPoolGetLastAllocationError(pool);
    }
};

TEST_P(Pool, CreateChecksItsArguments) {
    auto untouched = reinterpret_cast<umf_memory_pool_handle_t>(this);
    umf_memory_pool_handle_t handle = untouched;
    EXPECT_EQ(umfPoolCreate(nullptr, source->handle, nullptr, flags, &handle), BAD);
    EXPECT_EQ(umfPoolCreate(kind.ops(), nullptr, nullptr, flags, &handle), BAD);
    EXPECT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, flags, nullptr), BAD);
    for (umf_pool_create_flags_t wrong : {4u, 8u, 0x80000000u, 0xffffffffu, 0x7fffffffu}) {
        EXPECT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, wrong, &handle), BAD);
    }
    EXPECT_EQ(handle, untouched);
}

TEST_P(Pool, NullHandles) {
    size_t size = 0;
    const char *name = nullptr;
    void *tag = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolDestroy(nullptr), BAD);
    EXPECT_EQ(umfPoolMalloc(nullptr, 8), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(nullptr, 8, 8), nullptr);
    EXPECT_EQ(umfPoolCalloc(nullptr, 1, 8), nullptr);
    EXPECT_EQ(umfPoolRealloc(nullptr, nullptr, 8), nullptr);
    EXPECT_EQ(umfPoolMallocUsableSize(nullptr, &size, &size), BAD);
    EXPECT_EQ(umfPoolFree(nullptr, &size), BAD);
    EXPECT_EQ(umfPoolFree(nullptr, nullptr), BAD);
    EXPECT_EQ(umfFree(nullptr), BAD);
    EXPECT_EQ(umfPoolGetLastAllocationError(nullptr), BAD);
    EXPECT_EQ(umfPoolByPtr(nullptr, &found), BAD);
    EXPECT_EQ(umfPoolByPtr(&size, nullptr), BAD);
    EXPECT_EQ(umfPoolGetMemoryProvider(nullptr, &provider), BAD);
    EXPECT_EQ(umfPoolGetMemoryProvider(pool, nullptr), BAD);
    EXPECT_EQ(umfPoolGetName(nullptr, &name), BAD);
    EXPECT_EQ(umfPoolGetName(pool, nullptr), BAD);
    EXPECT_EQ(umfPoolSetTag(nullptr, tag, &tag), BAD);
    EXPECT_EQ(umfPoolGetTag(nullptr, &tag), BAD);
    EXPECT_EQ(umfPoolGetTag(pool, nullptr), BAD);
    EXPECT_EQ(umfPoolTrimMemory(nullptr, 0), BAD);
}

TEST_P(Pool, NameAndProvider) {
    const char *name = nullptr, *default_name = nullptr;
    ASSERT_EQ(umfPoolGetName(pool, &name), OK);
    for (const Listed &listed : listed_pools()) {
        if (is(listed.id)) {
            EXPECT_STREQ(name, listed.name);
        }
    }
    ASSERT_EQ(kind.ops()->get_name(nullptr, &default_name), OK);
    EXPECT_STREQ(name, default_name);
    EXPECT_EQ(kind.ops()->get_name(nullptr, nullptr), BAD);
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfPoolGetMemoryProvider(pool, &provider), OK);
    EXPECT_EQ(provider, source->handle) << "the user's handle, not the recording one";
    EXPECT_EQ(kind.ops()->version, uint32_t{UMF_POOL_OPS_VERSION_CURRENT});
}

TEST_P(Pool, Tags) {
    void *tag = this, *old = this;
    ASSERT_EQ(umfPoolGetTag(pool, &tag), OK);
    EXPECT_EQ(tag, nullptr);
    ASSERT_EQ(umfPoolSetTag(pool, &old, &tag), OK);
    EXPECT_EQ(tag, nullptr);
    ASSERT_EQ(umfPoolSetTag(pool, this, nullptr), OK);
    ASSERT_EQ(umfPoolSetTag(pool, nullptr, &tag), OK);
    EXPECT_EQ(tag, this);
}

TEST_P(Pool, MallocGivesSeparateMemory) {
    ONE_THREAD_ONLY()
    std::vector<std::pair<char *, size_t>> live;
    for (size_t size :
         {1,    7,     8,     9,     63,    64,    65,      100,     1000,          4095,   4096,
          4097, 32768, 32769, 65535, 65536, 65537, 1 << 20, 2 << 20, (2 << 20) + 1, 5 << 20}) {
        char *p = alloc(size);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 8, 0u) << size;
        memset(p, static_cast<int>(live.size()), size);
        live.emplace_back(p, size);
    }
    for (size_t i = 0; i < live.size(); i++) {
        auto [p, size] = live[i];
        EXPECT_TRUE(is_filled(p, size, static_cast<char>(i))) << size;
    }
    std::reverse(live.begin() + 5, live.end());
    for (auto &[p, size] : live) {
        free(p);
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

// A size whose rounding or product would overflow is refused. It must not become a small block.
TEST_P(Pool, ImpossibleSizesGiveNull) {
    for (size_t size : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 63, SIZE_MAX - 4095, SIZE_MAX - 8192,
                        SIZE_MAX - (2u << 20), SIZE_MAX / 2, SIZE_MAX / 2 + 1}) {
        EXPECT_EQ(umfPoolMalloc(pool, size), nullptr) << size;
        EXPECT_NE(last_error(), OK);
        for (size_t alignment : {size_t{8}, size_t{64}, size_t{4096}, size_t{8192}, size_t{1} << 21,
                                 size_t{1} << 62, size_t{1} << 63}) {
            EXPECT_EQ(umfPoolAlignedMalloc(pool, size, alignment), nullptr) << size << alignment;
            EXPECT_NE(last_error(), OK);
        }
    }
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 64, size_t{1} << 63), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 1, size_t{1} << 62), nullptr);
    EXPECT_EQ(umfPoolCalloc(pool, SIZE_MAX, 2), nullptr);
    EXPECT_NE(last_error(), OK);
    EXPECT_EQ(umfPoolCalloc(pool, SIZE_MAX / 2 + 1, 2), nullptr);
    EXPECT_EQ(umfPoolCalloc(pool, size_t{1} << 32, (size_t{1} << 32) + 1), nullptr);
    EXPECT_EQ(umfPoolCalloc(pool, SIZE_MAX / 8 + 2, 8), nullptr) << "the product wraps to 8";
    char *p = alloc(64);
    EXPECT_EQ(umfPoolRealloc(pool, p, SIZE_MAX), nullptr);
    EXPECT_NE(last_error(), OK);
    free(p);
    EXPECT_EQ(alloc_count(pool), 0u);
}

// An alignment is a power of two in every pool.
TEST_P(Pool, OddAlignmentGivesNull) {
    for (size_t alignment :
         {size_t{3}, size_t{5}, size_t{24}, size_t{4096} + 64, size_t{12288}, SIZE_MAX}) {
        EXPECT_EQ(umfPoolAlignedMalloc(pool, 100, alignment), nullptr) << alignment;
        EXPECT_NE(last_error(), OK);
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Pool, AlignmentIsKept) {
    ONE_THREAD_ONLY()
    std::vector<char *> live;
    for (size_t alignment = 1; alignment <= (4u << 20); alignment *= 2) {
        for (size_t size : {size_t{1}, size_t{8}, alignment / 2 + 1, alignment, alignment + 8,
                            size_t{1000}, size_t{70000}}) {
            auto p = static_cast<char *>(umfPoolAlignedMalloc(pool, size, alignment));
            ASSERT_NE(p, nullptr) << size << " at " << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u)
                << size << " at " << alignment;
            p[0] = p[size - 1] = 1;
            if (kind.tells_size) {
                size_t usable = 0;
                EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
                EXPECT_GE(usable, size) << size << " at " << alignment;
            }
            live.push_back(p);
        }
    }
    std::set<char *> different(live.begin(), live.end());
    EXPECT_EQ(different.size(), live.size());
    for (char *p : live) {
        free(p);
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Pool, AlignmentZeroIsMalloc) {
    void *p = umfPoolAlignedMalloc(pool, 100, 0);
    ASSERT_NE(p, nullptr);
    free(p);
}

TEST_P(Pool, Calloc) {
    if (!kind.callocs) {
        EXPECT_EQ(umfPoolCalloc(pool, 4, 16), nullptr);
        EXPECT_EQ(last_error(), NONE);
        return;
    }
    for (size_t size : {16, 100, 5000, 40000, 3 << 20}) {
        char *p = alloc(size);
        memset(p, 0xee, size);
        free(p);
        p = static_cast<char *>(umfPoolCalloc(pool, size / 4, 4));
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_filled(p, size / 4 * 4, 0)) << size;
        free(p);
    }
}

TEST_P(Pool, ReallocToNothingFrees) {
    for (size_t size : {size_t{64}, size_t{5000}, size_t{3} << 20}) {
        char *p = alloc(size);
        EXPECT_EQ(alloc_count(pool), 1u);
        EXPECT_EQ(umfPoolRealloc(pool, p, 0), nullptr) << size;
        EXPECT_EQ(last_error(), OK) << size;
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
    char local = 0;
    EXPECT_EQ(umfPoolRealloc(pool, &local, 0), nullptr);
    EXPECT_NE(last_error(), OK);
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Pool, Realloc) {
    ONE_THREAD_ONLY()
    if (!kind.reallocs) {
        char *p = alloc(64);
        EXPECT_EQ(umfPoolRealloc(pool, p, 128), nullptr);
        EXPECT_EQ(last_error(), NONE);
        EXPECT_EQ(umfPoolRealloc(pool, nullptr, 128), nullptr);
        EXPECT_EQ(last_error(), NONE);
        free(p);
        return;
    }
    auto p = static_cast<unsigned char *>(umfPoolRealloc(pool, nullptr, 10));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(alloc_count(pool), 1u);
    for (unsigned char i = 0; i < 10; i++) {
        p[i] = i;
    }
    size_t old = 10;
    for (size_t size : {11, 100, 5000, 40000, 3 << 20, 6 << 20, 50000, 33000, 9000, 77, 12}) {
        p = static_cast<unsigned char *>(umfPoolRealloc(pool, p, size));
        ASSERT_NE(p, nullptr);
        for (unsigned char i = 0; i < 10; i++) {
            ASSERT_EQ(p[i], i) << old << " to " << size;
        }
        if (size > old && old > 10) {
            EXPECT_EQ(p[old - 1], 0xc3) << old << " to " << size;
        }
        memset(p + 10, 0xc3, size - 10);
        old = size;
        EXPECT_EQ(alloc_count(pool), 1u);
    }
    EXPECT_EQ(umfPoolRealloc(pool, p, 0), nullptr);
    EXPECT_EQ(alloc_count(pool), 0u);
    char local;
    EXPECT_EQ(umfPoolRealloc(pool, &local, 10), nullptr);
    EXPECT_NE(last_error(), OK);
}

TEST_P(Pool, UsableSize) {
    char *p = alloc(100);
    size_t size = 12345;
    EXPECT_EQ(umfPoolMallocUsableSize(pool, p, nullptr), BAD);
    if (!kind.tells_size) {
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), NONE);
        EXPECT_EQ(size, 0u);
        free(p);
        return;
    }
    EXPECT_EQ(umfPoolMallocUsableSize(pool, nullptr, &size), OK);
    EXPECT_EQ(size, 0u);
    for (size_t wanted : {1, 100, 4000, 40000, 3 << 20}) {
        char *q = alloc(wanted);
        ASSERT_EQ(umfPoolMallocUsableSize(pool, q, &size), OK);
        EXPECT_GE(size, wanted);
        memset(q, 1, size);
        free(q);
    }
    memset(p, 1, 100);
    free(p);
}

TEST_P(Pool, FreeOfNullAndErrno) {
    errno = 77;
    EXPECT_EQ(umfPoolFree(pool, nullptr), OK);
    EXPECT_EQ(errno, 77);
    for (size_t size : {16, 40000, 5 << 20}) {
        char *p = alloc(size);
        errno = 77;
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(errno, 77) << size;
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

// A free through the wrong pool is always refused, and the memory stays as it is.
TEST_P(Pool, WrongPoolIsRefused) {
    ONE_THREAD_ONLY()
    auto other_source = make_fake();
    for (const PoolKind &other_kind : pool_kinds()) {
        for (umf_memory_provider_handle_t provider : {source->handle, other_source->handle}) {
            if (provider == source->handle && !fits(other_kind, std::get<1>(GetParam()))) {
                continue;
            }
            umf_pool_create_flags_t other_flags = flags & ~UMF_POOL_CREATE_FLAG_OWN_PROVIDER;
            umf_memory_pool_handle_t other = nullptr;
            ASSERT_EQ(umfPoolCreate(other_kind.ops(), provider, nullptr, other_flags, &other), OK);
            for (size_t size : {64, 40000, 5 << 20}) {
                char *p = alloc(size);
                void *q = umfPoolMalloc(other, size);
                memset(p, 0x11, size);
                EXPECT_EQ(umfPoolFree(other, p), BAD);
                EXPECT_EQ(umfPoolFree(pool, q), BAD);
                size_t usable = 0;
                EXPECT_NE(umfPoolMallocUsableSize(other, p, &usable), OK);
                EXPECT_EQ(p[size - 1], 0x11);
                free(p);
                EXPECT_EQ(umfPoolFree(other, q), OK);
            }
            EXPECT_EQ(alloc_count(other), 0u);
            EXPECT_EQ(umfPoolDestroy(other), OK);
        }
    }
    EXPECT_EQ(other_source->live_bytes(), 0u);
}

// Any pointer is a valid question: the stack, other heaps, NULL.
TEST_P(Pool, ForeignPointersAreRefused) {
    static char in_data[64];
    char on_stack[64];
    auto on_heap = std::make_unique<char[]>(1u << 20);
    const void *foreign[] = {
        in_data,
        on_stack,
        on_heap.get(),
        on_heap.get() + 4096,
        reinterpret_cast<void *>(&umfFree),
        reinterpret_cast<void *>(uintptr_t{1}),
        reinterpret_cast<void *>(uintptr_t{4096}),
        reinterpret_cast<void *>(uintptr_t{1} << 46),
        reinterpret_cast<void *>((uintptr_t{1} << 48) - 1),
        reinterpret_cast<void *>(uintptr_t{1} << 48),
        reinterpret_cast<void *>(uintptr_t{1} << 60),
        reinterpret_cast<void *>(UINTPTR_MAX),
        reinterpret_cast<void *>(UINTPTR_MAX - 4095),
        pool,
    };
    char *p = alloc(100);
    for (const void *ptr : foreign) {
        umf_memory_pool_handle_t found = pool;
        size_t size = 0;
        EXPECT_EQ(umfPoolFree(pool, const_cast<void *>(ptr)), BAD) << ptr;
        EXPECT_EQ(umfFree(const_cast<void *>(ptr)), BAD) << ptr;
        EXPECT_EQ(umfPoolByPtr(ptr, &found), BAD) << ptr;
        EXPECT_EQ(found, nullptr);
        EXPECT_NE(umfPoolMallocUsableSize(pool, ptr, &size), OK) << ptr;
    }
    free(p);
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Pool, InteriorPointers) {
    for (size_t size : {100, 5000, 40000, 3 << 20}) {
        char *p = alloc(size);
        memset(p, 0x33, size);
        for (size_t offset : {size_t{1}, size_t{8}, size / 2, size - 1}) {
            EXPECT_EQ(umfPoolFree(pool, p + offset), BAD) << size << " + " << offset;
            EXPECT_EQ(umfFree(p + offset), BAD) << size << " + " << offset;
            umf_memory_pool_handle_t found = nullptr;
            EXPECT_EQ(umfPoolByPtr(p + offset, &found), tracked() ? OK : BAD);
            EXPECT_EQ(found, tracked() ? pool : nullptr);
        }
        EXPECT_EQ(p[size - 1], 0x33);
        free(p);
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Pool, FreeByPointer) {
    for (size_t size : {100, 40000, 3 << 20}) {
        char *p = alloc(size);
        EXPECT_EQ(umfFree(p), tracked() ? OK : BAD);
        if (!tracked()) {
            free(p);
        }
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

// A second free is refused, wherever the block is since its first free.
class SecondFree : public Pool {
  protected:
    const std::vector<size_t> sizes = {1,    64,    100,   1000,   5000,
                                       8192, 20000, 65536, 200000, 8u << 20};

    void refused(void *p) {
        EXPECT_EQ(umfPoolFree(pool, p), BAD) << p;
        EXPECT_EQ(umfFree(p), BAD) << p;
    }
    // More than a thread keeps of small ones.
    std::vector<char *> many(size_t size) {
        std::vector<char *> list(size > 65536 ? 3 : size > 1000 || is("proxy") ? 40 : 1500);
        for (auto &p : list) {
            p = alloc(size);
        }
        return list;
    }
    // Nothing is handed out twice.
    void all_differ(size_t size) {
        auto list = many(size);
        std::set<char *> set(list.begin(), list.end());
        EXPECT_EQ(set.size(), list.size()) << size;
        for (char *p : set) {
            free(p);
        }
    }
};

TEST_P(SecondFree, AtOnceOrAfterOthers) {
    for (size_t size : sizes) {
        char *a = alloc(size), *b = alloc(size);
        free(a);
        refused(a);
        free(b);
        refused(a);
        refused(b);
        EXPECT_EQ(alloc_count(pool), 0u);
        if (tracked()) {
            a = alloc(size), b = alloc(size);
            EXPECT_EQ(umfFree(a), OK);
            EXPECT_EQ(umfFree(b), OK);
            refused(a);
            refused(b);
        }
        all_differ(size);
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(SecondFree, AfterManyOthersAndATrim) {
    for (size_t size : sizes) {
        auto list = many(size);
        for (char *p : list) {
            free(p);
        }
        for (char *p : list) {
            refused(p);
        }
        if (kind.trims) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
            for (char *p : list) {
                refused(p);
            }
        }
        EXPECT_EQ(alloc_count(pool), 0u) << size;
        all_differ(size);
    }
}

// Block by block, so that every slab keeps some in use.
TEST_P(SecondFree, BetweenBlocksInUse) {
    for (size_t size : sizes) {
        auto list = many(size);
        for (size_t i = 0; i < list.size(); i += 2) {
            free(list[i]);
        }
        if (kind.trims) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
        for (size_t i = 0; i < list.size(); i += 2) {
            refused(list[i]);
        }
        for (size_t i = 1; i < list.size(); i += 2) {
            free(list[i]);
            refused(list[i]);
        }
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(SecondFree, AfterAnotherThreadsFree) {
    for (size_t size : sizes) {
        auto list = many(size);
        std::promise<void> freed, looked;
        std::thread other([&] {
            for (char *p : list) {
                EXPECT_EQ(umfPoolFree(pool, p), OK);
            }
            freed.set_value();
            looked.get_future().wait();
        });
        freed.get_future().wait();
        for (char *p : list) {
            refused(p); // they lie in the other's stack, and where that has no room
        }
        looked.set_value();
        other.join();
        for (char *p : list) {
            refused(p); // it has left them to all
        }
        all_differ(size);
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(SecondFree, OfAlignedBlocks) {
    for (size_t size : sizes) {
        for (size_t alignment : {8, 64, 256, 4096, 65536}) {
            void *a = umfPoolAlignedMalloc(pool, size, alignment);
            void *b = umfPoolAlignedMalloc(pool, size, alignment);
            ASSERT_TRUE(a && b) << size << " at " << alignment;
            free(a);
            refused(a);
            free(b);
            refused(a);
            refused(b);
        }
        EXPECT_EQ(alloc_count(pool), 0u) << size;
        all_differ(size);
    }
}

TEST_P(SecondFree, OfMovedBlocks) {
    if (!kind.reallocs) {
        GTEST_SKIP() << "it has no realloc";
    }
    for (size_t size : sizes) {
        void *a = alloc(size);
        void *moved = umfPoolRealloc(pool, a, 3 * size + 100);
        ASSERT_NE(moved, nullptr);
        if (moved != a) {
            refused(a);
            EXPECT_EQ(umfPoolRealloc(pool, a, size), nullptr) << "it was freed";
        }
        EXPECT_EQ(umfPoolRealloc(pool, moved, 0), nullptr);
        refused(moved);
        EXPECT_EQ(umfPoolRealloc(pool, moved, 100), nullptr);
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(Pool, DoubleFreeOfSmallBlocksDoesNotCrash) {
    std::vector<char *> live;
    for (int i = 0; i < 1000; i++) {
        live.push_back(alloc(64));
    }
    for (char *p : live) {
        umfPoolFree(pool, p);
        umfPoolFree(pool, p);
    }
    if (kind.trims) {
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    }
    char *p = alloc(64);
    memset(p, 1, 64);
    free(p);
}

TEST_P(Pool, LastErrorAndLastFailedProvider) {
    if (!source->fake) {
        GTEST_SKIP() << "only the fake fails on demand";
    }
    source->fake->failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    source->fake->alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 100), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolMalloc(pool, 8u << 20), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_USER_SPECIFIC);
    umf_memory_provider_handle_t failed = nullptr;
    ASSERT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(failed, &name), OK);
    EXPECT_STREQ(name, source->fake->name.c_str());
    source->fake->alloc_fails = false;
    free(alloc(100));
    if (is("proxy")) {
        free(alloc(100));
        EXPECT_EQ(last_error(), OK);
    }
    umf_result_t in_thread = OK;
    std::thread([&] { in_thread = umfPoolGetLastAllocationError(pool); }).join();
    EXPECT_EQ(in_thread, OK) << "another thread saw no failure";
}

TEST_P(Pool, FailingProviderFreeIsTriedAgain) {
    if (!source->fake) {
        GTEST_SKIP() << "only the fake fails on demand";
    }
    if (kind.is_built_on) {
        GTEST_SKIP() << "gives provider memory back at times of its own";
    }
    char *p = alloc(8u << 20);
    source->fake->failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    source->fake->free_fails = true;
    EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_ERROR_USER_SPECIFIC);
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(p + 1, &found), tracked() ? OK : BAD) << "the record is restored";
    EXPECT_EQ(alloc_count(pool), 1u);
    source->fake->free_fails = false;
    p[0] = 1;
    free(p);
    EXPECT_EQ(alloc_count(pool), 0u);
}

// Slabs the provider does not take back, then or at the end.
TEST_P(Pool, FailingProviderFreeAtTheEnd) {
    if (!source->fake) {
        GTEST_SKIP() << "only the fake fails on demand";
    }
    std::vector<char *> live;
    for (int i = 0; i < 40; i++) {
        live.push_back(alloc(60000));
    }
    for (char *p : live) {
        p[0] = 1;
    }
    source->fake->free_fails = true;
    for (size_t i = 0; i < 20; i++) {
        umfPoolFree(pool, live[i]);
    }
    source->fake->free_fails = false;
    for (char *p : live) {
        umfPoolFree(pool, p);
    }
    if (kind.trims) {
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(source->fake->live_bytes(), 0u);
    }
}

TEST_P(Pool, AllocCount) {
    std::vector<char *> live;
    EXPECT_EQ(alloc_count(pool), 0u);
    for (size_t i = 0; i < 300; i++) {
        live.push_back(alloc(i % 10 == 0 ? 5u << 20 : 16 + i * 40));
        ASSERT_EQ(alloc_count(pool), i + 1);
    }
    EXPECT_EQ(umfPoolMalloc(pool, SIZE_MAX), nullptr);
    EXPECT_EQ(umfPoolFree(pool, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pool, &live), BAD);
    EXPECT_EQ(alloc_count(pool), 300u);
    std::thread([&] {
        for (size_t i = 0; i < 100; i++) {
            free(live[i]);
        }
    }).join();
    EXPECT_EQ(alloc_count(pool), 200u);
    for (size_t i = 100; i < 300; i++) {
        if (tracked() && i % 2) {
            EXPECT_EQ(umfFree(live[i]), OK);
        } else {
            free(live[i]);
        }
        ASSERT_EQ(alloc_count(pool), 299 - i);
    }
}

TEST_P(Pool, Trim) {
    ONE_THREAD_ONLY()
    if (!kind.trims) {
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), NONE);
        return;
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    char *keep = alloc(200);
    memset(keep, 0x44, 200);
    for (int round = 0; round < 3; round++) {
        std::vector<char *> live;
        for (size_t i = 0; i < 500; i++) {
            live.push_back(alloc(32 + i * 100));
        }
        for (char *p : live) {
            free(p);
        }
        EXPECT_EQ(umfPoolTrimMemory(pool, SIZE_MAX), OK);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_LE(source->live_bytes(), 4u << 20) << "what one block needs";
        EXPECT_EQ(keep[199], 0x44);
    }
    free(keep);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(source->live_bytes(), 0u);
    free(alloc(100));
}

// Destroying a pool withdraws all of its spans, so that a later umfFree finds no stale record.
TEST_P(Pool, DestroyWithLiveBlocks) {
    ONE_THREAD_ONLY()
    std::vector<char *> live;
    for (size_t size : {16, 100, 5000, 40000, 100000, 3 << 20, 9 << 20}) {
        for (int i = 0; i < 10; i++) {
            live.push_back(alloc(size));
        }
    }
    destroy();
    for (char *p : live) {
        umf_memory_pool_handle_t found = nullptr;
        EXPECT_EQ(umfFree(p), BAD);
        EXPECT_EQ(umfPoolByPtr(p, &found), BAD);
        EXPECT_EQ(found, nullptr);
    }
}

// Rule 58: destroying in the wrong order is refused, and everything works on.
TEST_P(Pool, ProviderBelowAPoolIsNotDestroyed) {
    char *p = alloc(100);
    EXPECT_EQ(umfMemoryProviderDestroy(source->handle), BAD);
    memset(p, 1, 100);
    free(p);
    free(alloc(3 << 20));
}

TEST_P(Pool, ControlOfCommonNodes) {
    size_t value = 0;
    EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.stats.alloc_count", &value, sizeof(value), pool),
              BAD);
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.nothing.here", &value, sizeof(value), pool),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    char small;
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &small, 1, pool), BAD);
}

// A shadow model: the owner and the content of all bytes.
class Shadow {
  public:
    struct Block {
        size_t size;
        uint64_t seed;
    };
    std::map<uintptr_t, Block> blocks;

    void add(void *ptr, size_t size) {
        uintptr_t base = reinterpret_cast<uintptr_t>(ptr);
        auto next = blocks.lower_bound(base);
        ASSERT_TRUE(next == blocks.end() || base + size <= next->first) << "overlap";
        if (next != blocks.begin()) {
            --next;
            ASSERT_LE(next->first + next->second.size, base) << "overlap";
        }
        blocks[base] = {size, ++seeds};
        fill(base, size, seeds);
    }
    void remove(uintptr_t base) {
        check(base, blocks[base].size, blocks[base].seed);
        blocks.erase(base);
    }
    void check(uintptr_t base, size_t size, uint64_t seed) {
        each(base, size, [seed](unsigned char *p, size_t i) {
            ASSERT_EQ(*p, value(seed, i)) << "byte " << i << " was changed";
        });
    }
    // After a realloc: what fits of the old contents is in the new block.
    void move(uintptr_t base, void *ptr, size_t size) {
        Block old = blocks[base];
        blocks.erase(base);
        size_t kept = std::min(size, old.size);
        if (old.size <= all_bytes || size >= old.size) {
            check(reinterpret_cast<uintptr_t>(ptr), kept, old.seed);
        }
        add(ptr, size);
    }
    uintptr_t any(uint64_t random) {
        auto found = blocks.lower_bound(last + random % (1u << 24));
        if (found == blocks.end()) {
            found = blocks.begin();
        }
        last = found->first;
        return last;
    }

  private:
    static constexpr size_t all_bytes = 65536;
    uint64_t seeds = 0;
    uintptr_t last = 0;

    static unsigned char value(uint64_t seed, size_t i) {
        return static_cast<unsigned char>((seed * 0x9e3779b97f4a7c15u + i * 131) >> 7);
    }
    // All bytes of small blocks, some of each page of large ones, and the last.
    template <typename F> static void each(uintptr_t base, size_t size, F &&f) {
        size_t step = size > all_bytes ? 4096 : 1;
        for (size_t i = 0; i < size; i += step) {
            f(reinterpret_cast<unsigned char *>(base + i), i);
        }
        f(reinterpret_cast<unsigned char *>(base + size - 1), size - 1);
    }
    static void fill(uintptr_t base, size_t size, uint64_t seed) {
        each(base, size, [seed](unsigned char *p, size_t i) { *p = value(seed, i); });
    }
};

TEST_P(Pool, RandomWorkKeepsContents) {
    ONE_THREAD_ONLY()
    std::mt19937_64 random(20240229);
    Shadow shadow;
    const size_t rounds = scaled(800), phase = std::max<size_t>(rounds / 4, 1);
    for (size_t round = 0; round < rounds && !HasFatalFailure(); round++) {
        bool shrinking = round / phase % 2;
        if (shadow.blocks.empty() || random() % 10 < (shrinking ? 3u : 7u)) {
            size_t size = 1 + random() % (size_t{1} << (random() % 23));
            if (is("proxy")) {
                size = 1 + random() % (size_t{1} << (random() % 18));
            }
            size_t alignment = size_t{1} << (random() % 14);
            void *p = random() % 4 ? umfPoolMalloc(pool, size)
                                   : umfPoolAlignedMalloc(pool, size, alignment);
            ASSERT_NE(p, nullptr) << size;
            shadow.add(p, size);
        } else if (kind.reallocs && random() % 4 == 0) {
            uintptr_t base = shadow.any(random());
            size_t size = 1 + random() % (2 * shadow.blocks[base].size);
            void *p = umfPoolRealloc(pool, reinterpret_cast<void *>(base), size);
            ASSERT_NE(p, nullptr);
            shadow.move(base, p, size);
        } else {
            uintptr_t base = shadow.any(random());
            shadow.remove(base);
            free(reinterpret_cast<void *>(base));
        }
        if (kind.trims && round % phase == phase - 1) {
            EXPECT_EQ(umfPoolTrimMemory(pool, random() % (8u << 20)), OK);
        }
    }
    EXPECT_EQ(alloc_count(pool), shadow.blocks.size());
    while (!shadow.blocks.empty() && !HasFatalFailure()) {
        uintptr_t base = shadow.blocks.begin()->first;
        shadow.remove(base);
        free(reinterpret_cast<void *>(base));
    }
}

std::string label(const testing::TestParamInfo<Parameter> &info) {
    return std::string(std::get<0>(info.param).id) + "_on_" + std::get<1>(info.param).label + "_" +
           std::get<2>(info.param).label;
}

// Each pair of pool and provider, and each pair of pool and flags, on the provider that checks its
// calls. Flags decide about creation and destruction, not about the memory between. A long run: all
// triples.
std::vector<Parameter> chosen() {
    std::vector<Parameter> list;
    for (const PoolKind &pool : pool_kinds()) {
        for (const SourceKind &source : source_kinds()) {
            for (const Flags &flags : all_flags) {
                if (does_all() || flags.flags == UMF_POOL_CREATE_FLAG_NONE || source.id[0] == 0) {
                    list.emplace_back(pool, source, flags);
                }
            }
        }
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(Each, Pool, testing::ValuesIn(chosen()), label);

// The pool orders frees: plain memory, memory by pieces, memory of a user's.
static std::vector<SourceKind> some_sources() {
    std::vector<SourceKind> list;
    for (const SourceKind &kind : source_kinds()) {
        for (const char *label : {"os", "linux_vmm", "user"}) {
            if (label == std::string(kind.label)) {
                list.push_back(kind);
            }
        }
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(Each, SecondFree,
                         testing::Combine(testing::ValuesIn(pool_kinds()),
                                          testing::ValuesIn(some_sources()),
                                          testing::Values(all_flags[0], all_flags[1])),
                         label);

// --- each pool, on providers with a turn of their own ---

class EachPool : public testing::TestWithParam<PoolKind> {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void create() {
        provider = fake.create();
        ASSERT_NE(provider, nullptr);
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            EXPECT_EQ(fake.live(), 0u);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    void work() {
        std::vector<void *> live;
        std::mt19937 random(7);
        for (int i = 0; i < 600; i++) {
            size_t size = 1 + random() % (size_t{1} << (random() % 22));
            void *p = i % 3 ? umfPoolMalloc(pool, size) : umfPoolAlignedMalloc(pool, size, 256);
            ASSERT_NE(p, nullptr);
            live.push_back(p);
            if (i % 2) {
                std::swap(live[random() % live.size()], live.back());
                ASSERT_EQ(umfPoolFree(pool, live.back()), OK);
                live.pop_back();
            }
        }
        for (size_t i = 0; i < live.size(); i += 2) {
            ASSERT_EQ(umfFree(live[i]), OK);
        }
        if (GetParam().trims) {
            ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
    }
};

// No data of ours lies in memory of the provider: the CPU may not be able to touch it.
TEST_P(EachPool, MemoryIsNotTouched) {
    if (GetParam().touches_memory) {
        GTEST_SKIP() << "it keeps its data there";
    }
    fake.protection = PROT_NONE;
    create();
    work();
}

// Success without a value means the system's page.
TEST_P(EachPool, ProviderThatDoesNotTellItsPage) {
    umf_memory_provider_ops_t silent = FakeProvider::table();
    silent.get_min_page_size = [](void *, const void *, size_t *) { return OK; };
    umf_memory_provider_ops_t zero = FakeProvider::table();
    zero.get_min_page_size = [](void *, const void *, size_t *size) {
        *size = 0;
        return OK;
    };
    for (const umf_memory_provider_ops_t *ops : {&silent, &zero}) {
        ASSERT_EQ(umfMemoryProviderCreate(ops, &fake, &provider), OK);
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
        work();
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    provider = fake.create();
}

TEST_P(EachPool, LargePagesOfTheProvider) {
    fake.page_size = 2u << 20;
    create();
    work();
    void *p = umfPoolAlignedMalloc(pool, 100, 1u << 20);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (1u << 20), 0u);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(EachPool, ProviderThatCannotPurge) {
    fake.can_purge = false;
    create();
    work();
}

// Chunks do not share a cache line with their neighbours when the provider's line is longer.
TEST_P(EachPool, CoherenceGranuleOfTheProvider) {
    fake.cache_line = 256;
    create();
    if (GetParam().is_built_on) {
        GTEST_SKIP() << "has sizes of its own";
    }
    std::set<uintptr_t> lines;
    for (int i = 0; i < 200; i++) {
        void *p = umfPoolMalloc(pool, 1);
        EXPECT_TRUE(lines.insert(reinterpret_cast<uintptr_t>(p) / 256).second);
    }
}

TEST_P(EachPool, ExhaustedProviderThenMemoryAgain) {
    fake.limit = 16u << 20;
    create();
    std::vector<void *> live;
    void *p;
    while ((p = umfPoolMalloc(pool, 50000)) != nullptr) {
        live.push_back(p);
        ASSERT_LT(live.size(), 1000u);
    }
    EXPECT_GT(live.size(), 100u) << "most of 16 MiB is usable";
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (void *q : live) {
        ASSERT_EQ(umfPoolFree(pool, q), OK);
    }
    p = umfPoolMalloc(pool, 1u << 20);
    EXPECT_NE(p, nullptr);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(EachPool, EveryNthProviderFailure) {
    create();
    for (long n = 0; n < 12; n++) {
        fake.allocs_until_failure = n;
        std::vector<void *> live;
        for (size_t size : {64, 5000, 100000, 3 << 20, 200, 70000, 5 << 20, 64, 1 << 20}) {
            void *p = umfPoolMalloc(pool, size);
            if (p) {
                live.push_back(p);
            } else {
                EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            }
        }
        EXPECT_EQ(alloc_count(pool), live.size());
        for (void *p : live) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        if (GetParam().trims) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
        EXPECT_EQ(fake.live(), 0u);
    }
}

TEST_P(EachPool, TwoOnOneProvider) {
    create();
    umf_memory_pool_handle_t second = nullptr, found = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &second), OK);
    void *p = umfPoolMalloc(pool, 100), *q = umfPoolMalloc(second, 100);
    EXPECT_EQ(umfPoolByPtr(p, &found), OK);
    EXPECT_EQ(found, pool);
    EXPECT_EQ(umfPoolByPtr(q, &found), OK);
    EXPECT_EQ(found, second);
    EXPECT_EQ(umfPoolDestroy(second), OK);
    EXPECT_EQ(umfFree(q), BAD);
    EXPECT_EQ(umfFree(p), OK);
}

TEST_P(EachPool, ManyPoolsAndFreeChoosesTheRightOne) {
    create();
    std::vector<umf_memory_pool_handle_t> pools(24);
    std::vector<std::pair<void *, size_t>> live;
    for (auto &one : pools) {
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &one), OK);
    }
    for (size_t i = 0; i < 500; i++) {
        live.emplace_back(umfPoolMalloc(pools[i % pools.size()], 16 + i * 100), i % pools.size());
    }
    for (auto &[p, owner] : live) {
        umf_memory_pool_handle_t found = nullptr;
        EXPECT_EQ(umfPoolByPtr(p, &found), OK);
        EXPECT_EQ(found, pools[owner]);
        EXPECT_EQ(umfFree(p), OK);
    }
    for (auto &one : pools) {
        EXPECT_EQ(alloc_count(one), 0u);
        EXPECT_EQ(umfPoolDestroy(one), OK);
    }
}

namespace {

struct Ending {
    umf_memory_pool_handle_t pool;
    pthread_key_t key;
    int rounds = 0;
    size_t refused = 0, foreign = 0;
    std::vector<void *> kept;
};

// In each round after other exit handlers, those of the library and of jemalloc among them.
void allocate_at_the_end(void *arg) {
    Ending *ending = static_cast<Ending *>(arg);
    for (size_t size = 16; size < 100000; size += size / 4) {
        void *ptr = umfPoolMalloc(ending->pool, size);
        umf_memory_pool_handle_t owner = nullptr;
        ending->foreign += umfPoolByPtr(ptr, &owner) != OK || owner != ending->pool;
        ending->refused += umfPoolFree(ending->pool, ptr) != OK;
        ending->kept.push_back(umfPoolMalloc(ending->pool, size));
    }
    if (++ending->rounds < 3) {
        pthread_setspecific(ending->key, ending);
    }
}

} // namespace

TEST_P(EachPool, ServesThreadsToTheirEnd) {
    create();
    Ending ending;
    ending.pool = pool;
    umfPoolFree(pool, umfPoolMalloc(pool, 100)); // the library has its handlers by now
    ASSERT_EQ(pthread_key_create(&ending.key, allocate_at_the_end), 0);
    std::thread([&] {
        pthread_setspecific(ending.key, &ending);
        umfPoolFree(pool, umfPoolMalloc(pool, 100));
    }).join();
    EXPECT_EQ(ending.rounds, 3);
    EXPECT_EQ(ending.foreign, 0u);
    EXPECT_EQ(ending.refused, 0u);
    for (void *ptr : ending.kept) {
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    }
    pthread_key_delete(ending.key);
}

TEST_P(EachPool, TagIsAtomic) {
    create();
    const size_t rounds = scaled(20000);
    std::vector<std::vector<uintptr_t>> seen(4);
    run_threads<size_t>(4, [&](size_t t) {
        for (size_t i = 0; i < rounds; i++) {
            void *old = nullptr;
            umfPoolSetTag(pool, reinterpret_cast<void *>(1 + t * rounds + i), &old);
            seen[t].push_back(reinterpret_cast<uintptr_t>(old));
        }
    });
    void *last = nullptr;
    ASSERT_EQ(umfPoolGetTag(pool, &last), OK);
    std::set<uintptr_t> all = {reinterpret_cast<uintptr_t>(last)};
    for (auto &list : seen) {
        all.insert(list.begin(), list.end());
    }
    EXPECT_EQ(all.size(), 4 * rounds + 1) << "each tag, and NULL, came out exactly once";
}

// Nesting: a pool over the memory of another pool. The innermost span wins, and after the inner
// pool ends the outer pool owns the memory again.

TEST_P(EachPool, NestsInTheMemoryOfAnother) {
    create();
    const size_t size = 16u << 20;
    for (const PoolKind &inner_kind : pool_kinds()) {
        for (size_t part : {size, size / 2}) {
            auto memory = static_cast<char *>(umfPoolMalloc(pool, size));
            ASSERT_NE(memory, nullptr);
            umf_fixed_memory_provider_params_handle_t params = nullptr;
            umf_memory_provider_handle_t fixed = nullptr;
            umf_memory_pool_handle_t inner = nullptr, found = nullptr;
            ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, part, &params), OK);
            ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
            umfFixedMemoryProviderParamsDestroy(params);
            ASSERT_EQ(umfPoolCreate(inner_kind.ops(), fixed, nullptr, 0, &inner), OK);
            auto p = static_cast<char *>(umfPoolMalloc(inner, 1u << 20));
            ASSERT_NE(p, nullptr);
            memset(p, 1, 1u << 20);
            EXPECT_EQ(umfPoolByPtr(p + 500, &found), OK);
            EXPECT_EQ(found, inner) << "the innermost wins";
            EXPECT_EQ(umfPoolByPtr(memory + size - 1, &found), OK);
            EXPECT_EQ(found, pool);
            EXPECT_EQ(umfPoolFree(pool, p), BAD);
            EXPECT_EQ(umfFree(p), OK);
            p = static_cast<char *>(umfPoolMalloc(inner, 100));
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(umfPoolDestroy(inner), OK);
            EXPECT_EQ(umfPoolByPtr(p, &found), OK);
            EXPECT_EQ(found, pool) << "the outer one again";
            EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
            EXPECT_EQ(umfFree(memory), OK);
        }
    }
}

struct OverPool {
    umf_memory_pool_handle_t pool;
};

umf_result_t over_initialize(const void *params, void **provider) {
    *provider = const_cast<void *>(params);
    return OK;
}
umf_result_t over_finalize(void *) {
    return OK;
}
umf_result_t over_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    *ptr = umfPoolAlignedMalloc(static_cast<OverPool *>(provider)->pool, size, alignment);
    return *ptr ? OK : umfPoolGetLastAllocationError(static_cast<OverPool *>(provider)->pool);
}
umf_result_t over_free(void *provider, void *ptr, size_t) {
    return umfPoolFree(static_cast<OverPool *>(provider)->pool, ptr);
}
umf_result_t over_name(void *, const char **name) {
    *name = "over";
    return OK;
}

umf_memory_provider_ops_t over_table() {
    umf_memory_provider_ops_t ops = plain_provider_ops();
    ops.initialize = over_initialize;
    ops.finalize = over_finalize;
    ops.alloc = over_alloc;
    ops.free = over_free;
    ops.get_name = over_name;
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) { return OK; };
    ops.ext_allocation_merge = [](void *, void *, void *, size_t) { return OK; };
    return ops;
}

TEST_P(EachPool, NestsOnAProviderOverAPool) {
    create();
    const umf_memory_provider_ops_t ops = over_table();
    for (const PoolKind &inner_kind : pool_kinds()) {
        OverPool over = {pool};
        umf_memory_provider_handle_t between = nullptr;
        umf_memory_pool_handle_t inner = nullptr, found = nullptr;
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &over, &between), OK);
        ASSERT_EQ(umfPoolCreate(inner_kind.ops(), between, nullptr, 0, &inner), OK);
        std::vector<void *> live;
        for (size_t size : {16, 100, 5000, 40000, 100000, 3 << 20}) {
            void *p = umfPoolMalloc(inner, size);
            ASSERT_NE(p, nullptr) << inner_kind << " " << size;
            EXPECT_EQ(umfPoolByPtr(p, &found), OK);
            EXPECT_EQ(found, inner);
            memset(p, 1, size);
            live.push_back(p);
        }
        for (size_t i = 0; i < live.size(); i += 2) {
            EXPECT_EQ(umfFree(live[i]), OK);
        }
        EXPECT_EQ(umfPoolDestroy(inner), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(between), OK);
        EXPECT_EQ(alloc_count(pool), 0u) << "everything went back to the outer pool";
    }
}

// The user may call, copy and wrap the tables that the library returns.

TEST_P(EachPool, TableIsCalledDirectly) {
    provider = fake.create();
    const umf_memory_pool_ops_t *ops = GetParam().ops();
    void *self = nullptr;
    ASSERT_EQ(ops->initialize(provider, nullptr, &self), OK);
    std::vector<void *> live;
    for (size_t size : {16, 100, 5000, 40000, 3 << 20}) {
        live.push_back(ops->malloc(self, size));
        live.push_back(ops->aligned_malloc(self, size, 256));
    }
    for (void *p : live) {
        ASSERT_NE(p, nullptr);
        EXPECT_EQ(umfFree(p), BAD) << "no pool of the library's";
        size_t usable = 0;
        EXPECT_EQ(ops->malloc_usable_size(self, p, &usable), GetParam().tells_size ? OK : NONE);
        EXPECT_EQ(ops->free(self, p), OK);
    }
    EXPECT_EQ(ops->malloc(self, SIZE_MAX), nullptr);
    EXPECT_NE(ops->get_last_allocation_error(self), OK);
    const char *name = nullptr;
    EXPECT_EQ(ops->get_name(self, &name), OK);
    EXPECT_STREQ(name, GetParam().id);
    if (GetParam().trims) {
        EXPECT_EQ(ops->ext_trim_memory(self, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    EXPECT_EQ(ops->finalize(self), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_P(EachPool, CopyOfTheTable) {
    provider = fake.create();
    for (umf_pool_create_flags_t flags : {0u, 2u}) {
        umf_memory_pool_ops_t ops = *GetParam().ops();
        ASSERT_EQ(umfPoolCreate(&ops, provider, nullptr, flags, &pool), OK);
        std::vector<void *> live;
        for (size_t i = 0; i < 500; i++) {
            size_t size = 8 + i * 24;
            live.push_back(umfPoolMalloc(pool, size));
            ASSERT_NE(live.back(), nullptr);
            memset(live.back(), 1, size);
        }
        EXPECT_EQ(alloc_count(pool), live.size());
        for (size_t i = 0; i < live.size(); i++) {
            EXPECT_EQ(flags == 0 && i % 2 ? umfFree(live[i]) : umfPoolFree(pool, live[i]), OK);
        }
        EXPECT_EQ(alloc_count(pool), 0u);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    pool = nullptr;
}

// A user's pool that hands its calls on to two of ours, and has a piece of its own.
struct Wrapper {
    const umf_memory_pool_ops_t *ops;
    umf_memory_provider_handle_t provider;
    void *small, *large, *piece;
    size_t frees;
};

Wrapper *wrapper(void *self) {
    return static_cast<Wrapper *>(self);
}

umf_memory_pool_ops_t wrapper_table() {
    umf_memory_pool_ops_t ops = {};
    ops.version = UMF_POOL_OPS_VERSION_CURRENT;
    ops.initialize = [](umf_memory_provider_handle_t provider, const void *params, void **self) {
        Wrapper *w = wrapper(const_cast<void *>(params));
        w->provider = provider;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 5000, 0, &w->piece), OK);
        EXPECT_EQ(w->ops->initialize(provider, nullptr, &w->small), OK);
        *self = w;
        return w->ops->initialize(provider, nullptr, &w->large);
    };
    ops.finalize = [](void *self) {
        Wrapper *w = wrapper(self);
        EXPECT_EQ(w->ops->finalize(w->small), OK);
        EXPECT_EQ(w->ops->finalize(w->large), OK);
        return umfMemoryProviderFree(w->provider, w->piece, 5000);
    };
    ops.malloc = [](void *self, size_t size) {
        Wrapper *w = wrapper(self);
        return w->ops->malloc(size < 1000 ? w->small : w->large, size);
    };
    ops.calloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.realloc = [](void *, void *, size_t) -> void * { return nullptr; };
    ops.aligned_malloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.malloc_usable_size = [](void *, const void *, size_t *) { return NONE; };
    ops.free = [](void *self, void *ptr) {
        Wrapper *w = wrapper(self);
        w->frees++;
        return w->ops->free(w->small, ptr) == OK ? OK : w->ops->free(w->large, ptr);
    };
    ops.get_last_allocation_error = [](void *) { return OK; };
    ops.get_name = [](void *, const char **name) {
        *name = "wrapper";
        return OK;
    };
    return ops;
}

TEST_P(EachPool, InsideAPoolOfAUser) {
    provider = fake.create();
    const umf_memory_pool_ops_t ops = wrapper_table();
    for (umf_pool_create_flags_t flags : {0u, 2u}) {
        Wrapper w = {GetParam().ops(), nullptr, nullptr, nullptr, nullptr, 0};
        ASSERT_EQ(umfPoolCreate(&ops, provider, &w, flags, &pool), OK);
        std::vector<void *> live;
        for (size_t i = 0; i < 200; i++) {
            live.push_back(umfPoolMalloc(pool, 8 + i * 24));
            ASSERT_NE(live.back(), nullptr);
            umf_memory_pool_handle_t found = nullptr;
            EXPECT_EQ(umfPoolByPtr(live.back(), &found), flags ? BAD : OK);
            EXPECT_EQ(found, flags ? nullptr : pool) << "the user's, not the one below";
        }
        EXPECT_EQ(alloc_count(pool), live.size());
        for (size_t i = 0; i < live.size() - 10; i++) {
            EXPECT_EQ(flags == 0 && i % 2 ? umfFree(live[i]) : umfPoolFree(pool, live[i]), OK);
            EXPECT_EQ(w.frees, i + 1) << "the user's callback is always called";
        }
        EXPECT_EQ(alloc_count(pool), 10u);
        EXPECT_EQ(umfPoolDestroy(pool), OK) << "each gives back its own only";
        EXPECT_EQ(fake.live(), 0u);
    }
    pool = nullptr;
}

// A user's pool that creates a pool of ours on the provider it was given.
struct Outer {
    const umf_memory_pool_ops_t *ops;
    umf_pool_create_flags_t flags;
    umf_memory_pool_handle_t inner;
    umf_memory_provider_handle_t provider;
};

Outer *outer(void *self) {
    return static_cast<Outer *>(self);
}

TEST_P(EachPool, CreatedOnTheProviderOfAUsersPool) {
    provider = fake.create();
    umf_memory_pool_ops_t ops = wrapper_table();
    ops.initialize = [](umf_memory_provider_handle_t given, const void *params, void **self) {
        Outer *o = outer(const_cast<void *>(params));
        *self = o;
        o->provider = given;
        return umfPoolCreate(o->ops, given, nullptr, o->flags, &o->inner);
    };
    ops.finalize = [](void *self) { return umfPoolDestroy(outer(self)->inner); };
    ops.malloc = [](void *self, size_t size) { return umfPoolMalloc(outer(self)->inner, size); };
    ops.free = [](void *self, void *ptr) { return umfPoolFree(outer(self)->inner, ptr); };
    for (umf_pool_create_flags_t flags : {0u, 2u}) {
        Outer o = {GetParam().ops(), flags, nullptr, nullptr};
        ASSERT_EQ(umfPoolCreate(&ops, provider, &o, 0, &pool), OK);
        umf_memory_provider_handle_t below = nullptr;
        EXPECT_EQ(umfPoolGetMemoryProvider(o.inner, &below), OK);
        EXPECT_EQ(below, o.provider) << "the one it was given";
        std::vector<void *> live;
        for (size_t i = 0; i < 200; i++) {
            live.push_back(umfPoolMalloc(pool, 8 + i * 24));
            ASSERT_NE(live.back(), nullptr);
            umf_memory_pool_handle_t found = nullptr;
            EXPECT_EQ(umfPoolByPtr(live.back(), &found), OK);
            EXPECT_EQ(found, flags ? pool : o.inner) << "the innermost that tracks";
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), BAD) << "pools stand on it";
        for (size_t i = 0; i < live.size(); i++) {
            EXPECT_EQ(i % 2 ? umfFree(live[i]) : umfPoolFree(pool, live[i]), OK);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    pool = nullptr;
}

INSTANTIATE_TEST_SUITE_P(Each, EachPool, testing::ValuesIn(pool_kinds()),
                         [](const auto &test) { return test.param.id; });

// Nesting works for eight levels; a ninth is refused.
TEST(Nesting, EightLevels) {
    FakeProvider fake;
    std::vector<umf_memory_provider_handle_t> providers = {fake.create()};
    std::vector<umf_memory_pool_handle_t> pools;
    std::vector<void *> memory;
    size_t size = 1u << 20;
    for (int level = 1; level <= 9; level++) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), providers.back(), nullptr, 0, &pool), OK);
        pools.push_back(pool);
        void *p = umfPoolMalloc(pool, size);
        if (level == 9) {
            EXPECT_EQ(p, nullptr);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            break;
        }
        ASSERT_NE(p, nullptr) << level;
        memory.push_back(p);
        umf_fixed_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t fixed = nullptr;
        ASSERT_EQ(umfFixedMemoryProviderParamsCreate(p, size, &params), OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
        umfFixedMemoryProviderParamsDestroy(params);
        providers.push_back(fixed);
    }
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(static_cast<char *>(memory[0]) + 77, &found), OK);
    EXPECT_EQ(found, pools[7]) << "all eight begin at one address; the innermost wins";
    void *again = nullptr;
    EXPECT_EQ(umfMemoryProviderAlloc(providers.back(), size, 0, &again), OK)
        << "the refused allocation was given back";
    EXPECT_EQ(umfMemoryProviderFree(providers.back(), again, size), OK);
    EXPECT_EQ(umfPoolDestroy(pools[8]), OK);
    for (size_t level = 8; level-- > 0;) {
        EXPECT_EQ(umfMemoryProviderDestroy(providers[level + 1]), OK);
        EXPECT_EQ(umfPoolByPtr(memory[0], &found), OK);
        EXPECT_EQ(found, pools[level]);
        EXPECT_EQ(umfFree(memory[level]), OK);
        EXPECT_EQ(umfPoolDestroy(pools[level]), OK);
    }
    EXPECT_EQ(umfPoolByPtr(memory[0], &found), BAD);
    EXPECT_EQ(umfMemoryProviderDestroy(providers[0]), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Hands out addresses of the test's choice.
struct Scripted {
    void *next = nullptr;
    size_t frees = 0;
};

umf_memory_provider_ops_t scripted_table() {
    umf_memory_provider_ops_t ops = over_table();
    ops.alloc = [](void *provider, size_t, size_t, void **ptr) {
        *ptr = static_cast<Scripted *>(provider)->next;
        return OK;
    };
    ops.free = [](void *provider, void *, size_t) {
        static_cast<Scripted *>(provider)->frees++;
        return OK;
    };
    return ops;
}

TEST(Nesting, PartsThatCrossABorderAreRefused) {
    alignas(16) static char memory[1 << 16];
    const umf_memory_provider_ops_t ops = scripted_table();
    Scripted outer_script, inner_script;
    umf_memory_provider_handle_t outer_provider = nullptr, inner_provider = nullptr;
    umf_memory_pool_handle_t outer = nullptr, inner = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &outer_script, &outer_provider), OK);
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &inner_script, &inner_provider), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), outer_provider, nullptr, 0, &outer), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), inner_provider, nullptr, 0, &inner), OK);
    outer_script.next = memory + 1000;
    ASSERT_NE(umfPoolMalloc(outer, 20000), nullptr);

    inner_script.next = memory + 10000; // begins inside, ends outside
    EXPECT_EQ(umfPoolMalloc(inner, 11001), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(inner), BAD);
    EXPECT_EQ(inner_script.frees, 1u) << "the provider has its memory back";
    inner_script.next = memory + 504; // begins outside, ends inside
    EXPECT_EQ(umfPoolMalloc(inner, 10000), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(inner), BAD);
    inner_script.next = memory; // holds the other whole
    EXPECT_EQ(umfPoolMalloc(inner, sizeof(memory)), nullptr);
    EXPECT_EQ(inner_script.frees, 3u);
    inner_script.next = memory + 10000; // ends where the outer ends
    void *p = umfPoolMalloc(inner, 11000);
    EXPECT_NE(p, nullptr);
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(memory + 20999, &found), OK);
    EXPECT_EQ(found, inner);
    EXPECT_EQ(umfPoolByPtr(memory + 21000, &found), BAD);
    EXPECT_EQ(umfPoolByPtr(memory + 9999, &found), OK);
    EXPECT_EQ(found, outer);

    // A parent that goes first: its child can still be freed.
    EXPECT_EQ(umfPoolFree(outer, memory + 1000), OK);
    EXPECT_EQ(umfPoolByPtr(memory + 1000, &found), BAD);
    EXPECT_EQ(umfPoolByPtr(p, &found), OK);
    EXPECT_EQ(found, inner);
    EXPECT_EQ(umfPoolFree(inner, p), OK);
    EXPECT_EQ(umfPoolByPtr(p, &found), BAD);
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfPoolDestroy(outer), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(inner_provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(outer_provider), OK);
}

// --- pools written by users ---

struct UserPool {
    std::vector<std::string> journal;
    umf_result_t initialize_result = OK, get_name_result = OK, free_result = OK,
                 finalize_result = OK, post_initialize_result = UMF_RESULT_ERROR_INVALID_CTL_PATH;
    size_t allocate_in_initialize = 0;
    void *from_provider = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    const void *params_seen = nullptr;
    void *answer = nullptr; // of all allocation functions
};

UserPool *user(void *pool) {
    return static_cast<UserPool *>(pool);
}

umf_memory_pool_ops_t user_table() {
    umf_memory_pool_ops_t ops = {};
    ops.version = UMF_POOL_OPS_VERSION_CURRENT;
    ops.initialize = [](umf_memory_provider_handle_t provider, const void *params, void **pool) {
        UserPool *self = user(const_cast<void *>(params));
        self->journal.push_back("initialize");
        self->provider = provider;
        self->params_seen = params;
        if (self->allocate_in_initialize) {
            EXPECT_EQ(umfMemoryProviderAlloc(provider, self->allocate_in_initialize, 0,
                                             &self->from_provider),
                      OK);
        }
        *pool = self;
        return self->initialize_result;
    };
    ops.finalize = [](void *pool) {
        user(pool)->journal.push_back("finalize");
        return user(pool)->finalize_result;
    };
    ops.malloc = [](void *pool, size_t) { return user(pool)->answer; };
    ops.calloc = [](void *pool, size_t, size_t) { return user(pool)->answer; };
    ops.realloc = [](void *pool, void *, size_t) { return user(pool)->answer; };
    ops.aligned_malloc = [](void *pool, size_t, size_t) { return user(pool)->answer; };
    ops.malloc_usable_size = [](void *, const void *, size_t *size) {
        *size = 99;
        return UMF_RESULT_ERROR_USER_SPECIFIC;
    };
    ops.free = [](void *pool, void *) {
        user(pool)->journal.push_back("free");
        return user(pool)->free_result;
    };
    ops.get_last_allocation_error = [](void *) { return UMF_RESULT_ERROR_OUT_OF_RESOURCES; };
    ops.get_name = [](void *pool, const char **name) {
        user(pool)->journal.push_back("get_name");
        *name = "user_pool";
        return user(pool)->get_name_result;
    };
    ops.ext_ctl = [](void *pool, umf_ctl_query_source_t source, const char *path, void *arg,
                     size_t size, umf_ctl_query_type_t type, va_list) {
        user(pool)->journal.push_back(path);
        bool as_agreed =
            source == CTL_QUERY_PROGRAMMATIC && type == CTL_QUERY_RUNNABLE && !arg && size == 0;
        return as_agreed ? user(pool)->post_initialize_result : UMF_RESULT_ERROR_UNKNOWN;
    };
    ops.ext_trim_memory = [](void *, size_t keep) {
        return keep == 5 ? UMF_RESULT_ERROR_USER_SPECIFIC : OK;
    };
    return ops;
}

using Journal = std::vector<std::string>;

class UserTable : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    UserPool self;
    umf_memory_pool_handle_t const untouched =
        reinterpret_cast<umf_memory_pool_handle_t>(uintptr_t{0x1234});
    umf_memory_pool_handle_t pool = untouched;

    umf_result_t create(const umf_memory_pool_ops_t &ops = user_table(),
                        umf_pool_create_flags_t flags = 0) {
        return umfPoolCreate(&ops, provider, &self, flags, &pool);
    }
    void TearDown() override {
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(fake.finalizes, 1u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
};

TEST_F(UserTable, CallsInOrder) {
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(self.journal, (Journal{"initialize", "get_name", "post_initialize"}));
    EXPECT_EQ(self.params_seen, &self);
    EXPECT_NE(self.provider, provider) << "the one that records";
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(self.journal.back(), "finalize");
    EXPECT_EQ(self.journal.size(), 4u);
}

TEST_F(UserTable, WithoutTrackingTheUsersProviderIsGiven) {
    ASSERT_EQ(create(user_table(), UMF_POOL_CREATE_FLAG_DISABLE_TRACKING), OK);
    EXPECT_EQ(self.provider, provider);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, FailuresOfCreation) {
    struct {
        umf_result_t UserPool::*which;
        Journal journal;
    } const cases[] = {
        {&UserPool::initialize_result, {"initialize"}},
        {&UserPool::get_name_result, {"initialize", "get_name"}},
        {&UserPool::post_initialize_result, {"initialize", "get_name", "post_initialize"}},
    };
    for (const auto &c : cases) {
        for (umf_pool_create_flags_t flags : {0u, 1u, 2u, 3u}) {
            self = UserPool();
            self.*c.which = UMF_RESULT_ERROR_USER_SPECIFIC;
            self.allocate_in_initialize = 5000;
            EXPECT_EQ(create(user_table(), flags), UMF_RESULT_ERROR_USER_SPECIFIC);
            EXPECT_EQ(pool, untouched);
            EXPECT_EQ(self.journal, c.journal) << "a failing user pool cleans up itself";
            EXPECT_EQ(fake.finalizes, 0u) << "the provider lives, owned or not";
            umf_memory_pool_handle_t found = nullptr;
            EXPECT_EQ(umfPoolByPtr(self.from_provider, &found), BAD) << "the record is withdrawn";
            EXPECT_EQ(umfMemoryProviderFree(provider, self.from_provider, 5000), OK);
        }
    }
}

TEST_F(UserTable, WhatInitializeAllocatesIsRecorded) {
    self.allocate_in_initialize = 5000;
    ASSERT_EQ(create(), OK);
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(static_cast<char *>(self.from_provider) + 4999, &found), OK);
    EXPECT_EQ(found, pool);
    EXPECT_EQ(umfMemoryProviderFree(self.provider, self.from_provider, 5000), OK);
    EXPECT_EQ(umfPoolByPtr(self.from_provider, &found), BAD);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, OwnedProviderGoesWithThePool) {
    ASSERT_EQ(create(user_table(), UMF_POOL_CREATE_FLAG_OWN_PROVIDER), OK);
    self.finalize_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_ERROR_USER_SPECIFIC) << "the first error";
    EXPECT_EQ(fake.finalizes, 1u) << "all steps are carried out nevertheless";
    provider = nullptr;
}

TEST_F(UserTable, FailureOfTheOwnedProviderIsReturned) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.finalize = [](void *) { return UMF_RESULT_ERROR_OUT_OF_RESOURCES; };
    umf_memory_provider_handle_t owned = nullptr;
    for (umf_result_t first : {OK, UMF_RESULT_ERROR_USER_SPECIFIC}) {
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &owned), OK);
        const umf_memory_pool_ops_t table = user_table();
        self = UserPool();
        self.finalize_result = first;
        ASSERT_EQ(umfPoolCreate(&table, owned, &self, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool),
                  OK);
        EXPECT_EQ(umfPoolDestroy(pool), first == OK ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : first);
    }
}

TEST_F(UserTable, ResultsArePassedOn) {
    ASSERT_EQ(create(), OK);
    size_t size = 0;
    self.answer = &size;
    EXPECT_EQ(umfPoolMalloc(pool, 0), &size);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 1, 3), &size);
    EXPECT_EQ(umfPoolCalloc(pool, 1, 1), &size);
    EXPECT_EQ(umfPoolRealloc(pool, nullptr, 1), &size);
    EXPECT_EQ(umfPoolMallocUsableSize(pool, nullptr, &size), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(size, 99u);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfPoolTrimMemory(pool, 5), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolTrimMemory(pool, 6), OK);
    self.free_result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    EXPECT_EQ(umfPoolFree(pool, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES) << "for NULL, too";
    EXPECT_EQ(self.journal.back(), "free");
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "user_pool");
    for (int result : {1, 2, 3, 4, 5, 6, 7, 8, 9, 0x7ffffffe, 4711}) {
        self.free_result = self.get_name_result = static_cast<umf_result_t>(result);
        EXPECT_EQ(umfPoolFree(pool, &size), result);
        EXPECT_EQ(umfPoolGetName(pool, &name), result);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, AllocCount) {
    ASSERT_EQ(create(), OK);
    int memory = 0;
    EXPECT_EQ(umfPoolMalloc(pool, 1), nullptr);
    EXPECT_EQ(umfPoolRealloc(pool, nullptr, 1), nullptr);
    EXPECT_EQ(alloc_count(pool), 0u) << "NULL results do not count";
    self.answer = &memory;
    umfPoolMalloc(pool, 1);
    umfPoolAlignedMalloc(pool, 1, 1);
    umfPoolCalloc(pool, 1, 1);
    umfPoolRealloc(pool, nullptr, 1);
    EXPECT_EQ(alloc_count(pool), 4u);
    umfPoolRealloc(pool, &memory, 100);
    EXPECT_EQ(alloc_count(pool), 4u);
    umfPoolFree(pool, nullptr);
    EXPECT_EQ(alloc_count(pool), 4u);
    self.free_result = UMF_RESULT_ERROR_UNKNOWN;
    umfPoolFree(pool, &memory);
    EXPECT_EQ(alloc_count(pool), 4u) << "a failed free does not count";
    self.free_result = OK;
    umfPoolFree(pool, &memory);
    EXPECT_EQ(alloc_count(pool), 3u);
    self.answer = nullptr;
    umfPoolRealloc(pool, &memory, 10);
    EXPECT_EQ(alloc_count(pool), 3u);
    umfPoolRealloc(pool, &memory, 0);
    EXPECT_EQ(alloc_count(pool), 2u);
    std::thread([&] { umfPoolFree(pool, &memory); }).join();
    EXPECT_EQ(alloc_count(pool), 1u) << "also from a thread that has ended";
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, UmfFreeCallsTheOwner) {
    self.allocate_in_initialize = 5000;
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfFree(static_cast<char *>(self.from_provider) + 100), OK)
        << "the pool decides which pointers are valid";
    EXPECT_EQ(self.journal.back(), "free");
    self.answer = &self;
    umfPoolMalloc(pool, 1);
    umfPoolMalloc(pool, 1);
    size_t before = alloc_count(pool);
    EXPECT_EQ(umfFree(self.from_provider), OK);
    EXPECT_EQ(alloc_count(pool), before - 1) << "it counts like umfPoolFree";
    self.free_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(umfFree(self.from_provider), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(alloc_count(pool), before - 1);
    EXPECT_EQ(umfMemoryProviderFree(self.provider, self.from_provider, 5000), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, RequiredOperations) {
    using Ops = umf_memory_pool_ops_t;
    for (TableMember each :
         {TABLE_MEMBER(Ops, initialize), TABLE_MEMBER(Ops, finalize), TABLE_MEMBER(Ops, malloc),
          TABLE_MEMBER(Ops, calloc), TABLE_MEMBER(Ops, realloc), TABLE_MEMBER(Ops, aligned_malloc),
          TABLE_MEMBER(Ops, malloc_usable_size), TABLE_MEMBER(Ops, free),
          TABLE_MEMBER(Ops, get_last_allocation_error), TABLE_MEMBER(Ops, get_name)}) {
        EXPECT_EQ(create(without(user_table(), each)), BAD) << each.name;
        EXPECT_EQ(pool, untouched);
        EXPECT_TRUE(self.journal.empty());
    }
}

TEST_F(UserTable, OptionalOperationsThatAreAbsent) {
    umf_memory_pool_ops_t ops = user_table();
    ops.ext_ctl = nullptr;
    ops.ext_trim_memory = nullptr;
    ASSERT_EQ(create(ops), OK);
    size_t value = 0;
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), NONE);
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.x", &value, sizeof(value), pool),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, Versions) {
    const size_t old_size = offsetof(umf_memory_pool_ops_t, ext_trim_memory);
    const size_t page = 4096;
    char *memory = static_cast<char *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory + page, page, PROT_NONE);
    auto create_from_end = [&](uint32_t version, size_t size) {
        umf_memory_pool_ops_t ops = user_table();
        ops.version = version;
        memcpy(memory + page - size, &ops, size);
        pool = untouched;
        self = UserPool();
        LogFile log;
        umf_result_t result =
            umfPoolCreate(reinterpret_cast<const umf_memory_pool_ops_t *>(memory + page - size),
                          provider, &self, 0, &pool);
        EXPECT_EQ(log.count("[WARN  UMF]"), version == UMF_POOL_OPS_VERSION_CURRENT ? 0u : 1u)
            << log.text();
        memset(memory, 0xee, page); // it was copied
        return result;
    };
    for (uint32_t version : {UMF_MAKE_VERSION(1, 0), UMF_MAKE_VERSION(0, 9), 0, 1}) {
        ASSERT_EQ(create_from_end(version, old_size), OK) << version;
        EXPECT_EQ(umfPoolTrimMemory(pool, 5), NONE) << "counts as absent";
        EXPECT_EQ(self.journal.back(), "post_initialize") << "for every version";
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    ASSERT_EQ(create_from_end(UMF_MAKE_VERSION(1, 1), sizeof(umf_memory_pool_ops_t)), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 5), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (uint32_t version : {uint32_t{UMF_MAKE_VERSION(1, 2)}, uint32_t{UMF_MAKE_VERSION(2, 0)},
                             uint32_t{UMF_MAKE_VERSION(99, 0)}, uint32_t{0xffffffff}}) {
        EXPECT_EQ(create_from_end(version, old_size), NONE) << version;
        EXPECT_EQ(pool, untouched);
        EXPECT_TRUE(self.journal.empty());
    }
    munmap(memory, 2 * page);
}

// Calls of a pool to its provider: allocate, free, split and merge, all
// recorded.

TEST_F(UserTable, SplitAndMergeAreRecorded) {
    ASSERT_EQ(create(), OK);
    umf_memory_provider_handle_t view = self.provider;
    void *memory = nullptr;
    umf_memory_pool_handle_t found = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(view, 30000, 0, &memory), OK);
    char *p = static_cast<char *>(memory);

    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, p + 8192, 21808, 4096), BAD) << "no start";
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, p, 29999, 4096), BAD) << "size";
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, &memory, 30000, 4096), BAD) << "unknown";
    EXPECT_EQ(fake.splits, 0u);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(view, p, 30000, 10001), OK);
    EXPECT_EQ(umfPoolByPtr(p + 10000, &found), OK);
    EXPECT_EQ(umfPoolByPtr(p + 10001, &found), OK);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(view, p, p + 10001, 30001), BAD) << "sizes";
    EXPECT_EQ(umfMemoryProviderAllocationMerge(view, p, p + 10000, 30000), BAD) << "no start";
    EXPECT_EQ(fake.merges, 0u);
    // Over and over: parts meet inside of a page.
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(umfMemoryProviderAllocationMerge(view, p, p + 10001, 30000), OK) << i;
        ASSERT_EQ(umfMemoryProviderAllocationSplit(view, p, 30000, 10001), OK) << i;
    }
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.merge_fails = true;
    EXPECT_EQ(umfMemoryProviderAllocationMerge(view, p, p + 10001, 30000),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.merge_fails = false;
    fake.split_fails = true;
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, p, 10001, 5000),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.split_fails = false;
    ASSERT_EQ(umfMemoryProviderAllocationSplit(view, p, 10001, 5000), OK) << "record as before";
    EXPECT_EQ(umfMemoryProviderFree(view, p, 5000), OK);
    EXPECT_EQ(umfMemoryProviderFree(view, p + 5000, 5001), OK);
    EXPECT_EQ(umfPoolByPtr(p + 10000, &found), BAD);
    EXPECT_EQ(umfPoolByPtr(p + 10001, &found), OK);
    EXPECT_EQ(umfMemoryProviderFree(view, p + 10001, 19999), OK);
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, NestedPartsAreNotSplit) {
    ASSERT_EQ(create(), OK);
    umf_memory_provider_handle_t view = self.provider;
    void *memory = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(view, 1u << 20, 0, &memory), OK);
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t fixed = nullptr;
    umf_memory_pool_handle_t inner = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, 1u << 20, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
    umfFixedMemoryProviderParamsDestroy(params);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), fixed, nullptr, 0, &inner), OK);
    void *p = umfPoolMalloc(inner, 8192);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, memory, 1u << 20, 1u << 19), BAD);
    EXPECT_EQ(umfFree(p), OK);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, memory, 1u << 20, 1u << 19), OK);
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
    EXPECT_EQ(umfMemoryProviderFree(view, memory, 1u << 19), OK);
    EXPECT_EQ(umfMemoryProviderFree(view, static_cast<char *>(memory) + (1u << 19), 1u << 19), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, FreeThroughTheRecordingProvider) {
    ASSERT_EQ(create(), OK);
    umf_memory_provider_handle_t view = self.provider;
    void *memory = nullptr, *direct = nullptr;
    umf_memory_pool_handle_t found = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(view, 5000, 0, &memory), OK);
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.free_fails = true;
    EXPECT_EQ(umfMemoryProviderFree(view, memory, 5000), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolByPtr(memory, &found), OK) << "the record is restored";
    fake.free_fails = false;
    EXPECT_EQ(umfMemoryProviderFree(view, memory, 0), OK);
    EXPECT_EQ(fake.last_free_size, 5000u) << "the provider gets the recorded size";
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 5000, 0, &direct), OK);
    EXPECT_EQ(umfPoolByPtr(direct, &found), BAD);
    EXPECT_EQ(umfMemoryProviderFree(view, direct, 5000), OK)
        << "reaches the provider, recorded or not";
    size_t frees = fake.frees;
    EXPECT_EQ(umfMemoryProviderFree(view, nullptr, 0), OK);
    EXPECT_EQ(fake.frees, frees + 1);
    const char *name = nullptr;
    EXPECT_EQ(umfMemoryProviderGetName(view, &name), OK);
    EXPECT_STREQ(name, "FAKE");
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(UserTable, DefaultsComeBetweenTheNameAndPostInitialize) {
    int value = 5;
    ASSERT_EQ(umfCtlSet("umf.pool.default.with_defaults.params.x", &value, sizeof(value)), OK);
    ASSERT_EQ(umfCtlSet("umf.pool.default.with_defaults.y", &value, sizeof(value)), OK);
    umf_memory_pool_ops_t ops = user_table();
    ops.get_name = [](void *object, const char **name) {
        user(object)->journal.push_back("get_name");
        *name = "with_defaults";
        return OK;
    };
    for (uint32_t version : {UMF_MAKE_VERSION(1, 0), UMF_MAKE_VERSION(1, 1)}) {
        ops.version = version;
        self = UserPool();
        ASSERT_EQ(create(ops), OK) << "the result of a default is ignored";
        EXPECT_EQ(self.journal,
                  (Journal{"initialize", "get_name", "params.x", "y", "post_initialize"}));
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

TEST_F(UserTable, NamesThatCannotBeListedAreLogged) {
    static std::string name;
    umf_memory_pool_ops_t ops = user_table();
    ops.get_name = [](void *, const char **out) {
        *out = name.c_str();
        return OK;
    };
    for (const char *good : {"listed_pool-1", "x"}) {
        name = good;
        size_t count = 0;
        LogFile log;
        ASSERT_EQ(create(ops), OK);
        EXPECT_EQ(log.text(), "");
        EXPECT_EQ(umfCtlGet("umf.pool.by_name.{}.count", &count, sizeof(count), good), OK);
        EXPECT_EQ(count, 1u);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfCtlGet("umf.pool.by_name.{}.count", &count, sizeof(count), good), BAD);
    }
    for (const std::string &bad :
         {std::string(65, 'x'), std::string("a b"), std::string(), std::string("line\nbreak")}) {
        name = bad;
        size_t count = 0;
        LogFile log(2);
        ASSERT_EQ(create(ops), OK) << bad;
        EXPECT_EQ(log.count("is not listed"), 1u) << log.text();
        EXPECT_EQ(log.count("\n"), 1u) << log.text();
        EXPECT_NE(umfCtlGet("umf.pool.by_name.{}.count", &count, sizeof(count), bad.c_str()), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

TEST_F(UserTable, LeftoversOfAUserPoolAreForgotten) {
    self.allocate_in_initialize = 5000;
    ASSERT_EQ(create(), OK);
    LogFile log(2);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(log.count("1 provider allocations"), 1u) << "reported in the log only" << log.text();
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(self.from_provider, &found), BAD);
    EXPECT_EQ(fake.live(), 1u) << "the memory is the user's";
    EXPECT_EQ(umfMemoryProviderFree(provider, self.from_provider, 5000), OK);
}

// --- errors of built-in pools: one value for each kind and thread ---

TEST(LastAllocationError, IsOneValueForEachKindAndThread) {
    FakeProvider fake;
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t proxy = nullptr, disjoint = nullptr, second = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &proxy), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &disjoint), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &second), OK);
    std::thread([&] {
        fake.alloc_fails = true;
        EXPECT_EQ(umfPoolMalloc(disjoint, 8u << 20), nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(disjoint), UMF_RESULT_ERROR_USER_SPECIFIC);
        EXPECT_EQ(umfPoolGetLastAllocationError(second), UMF_RESULT_ERROR_USER_SPECIFIC)
            << "of the same kind";
        EXPECT_EQ(umfPoolGetLastAllocationError(proxy), OK) << "of another kind";
        EXPECT_EQ(umfPoolCalloc(proxy, 1, 1), nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(proxy), NONE);
        EXPECT_EQ(umfPoolGetLastAllocationError(disjoint), UMF_RESULT_ERROR_USER_SPECIFIC);
        fake.alloc_fails = false;
        EXPECT_EQ(umfPoolFree(disjoint, umfPoolMalloc(disjoint, 100)), OK);
        EXPECT_EQ(umfPoolGetLastAllocationError(disjoint), UMF_RESULT_ERROR_USER_SPECIFIC)
            << "a success leaves the older value";
        EXPECT_EQ(umfPoolFree(proxy, umfPoolMalloc(proxy, 100)), OK);
        EXPECT_EQ(umfPoolGetLastAllocationError(proxy), OK) << "here it does not";
        std::thread([&] { EXPECT_EQ(umfPoolGetLastAllocationError(disjoint), OK); }).join();
    }).join();
    for (umf_memory_pool_handle_t pool : {proxy, disjoint, second}) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// --- creation of the built-in pools ---

TEST(Creation, JemallocWantsAProviderThatCanSplit) {
    if (!UMF_WITH_JEMALLOC) {
        EXPECT_EQ(umfJemallocPoolOps(), nullptr);
        GTEST_SKIP() << "this build has no jemalloc pool";
    }
    FakeProvider fake;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.ext_allocation_merge = nullptr;
    ops.ext_allocation_split = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool), NONE);
    EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr,
                            UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool),
              NONE);
    EXPECT_EQ(pool, nullptr);
    EXPECT_EQ(fake.finalizes, 0u);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);

    // The operation is there and refuses.
    ops = FakeProvider::table();
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool), NONE);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);

    ops = FakeProvider::table();
    ops.get_min_page_size = [](void *, const void *, size_t *) {
        return UMF_RESULT_ERROR_USER_SPECIFIC;
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Arguments of the trial split of the creation, and its answer.
struct {
    void *ptr;
    size_t total, first, calls;
    umf_result_t answer;
} trial;

TEST(Creation, JemallocTriesASplitOnce) {
    if (!UMF_WITH_JEMALLOC) {
        GTEST_SKIP() << "this build has no jemalloc pool";
    }
    FakeProvider fake;
    fake.page_size = 16384;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.ext_allocation_split = [](void *, void *ptr, size_t total, size_t first) {
        trial.ptr = ptr;
        trial.total = total;
        trial.first = first;
        trial.calls++;
        return trial.answer;
    };
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    for (int answer = 0; answer <= 9; answer++) {
        umf_memory_pool_handle_t pool = nullptr;
        trial = {nullptr, 0, 0, 0, static_cast<umf_result_t>(answer)};
        umf_result_t expected = trial.answer == NONE ? NONE : OK;
        EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool), expected)
            << "only NOT_SUPPORTED is an obstacle, not " << answer;
        EXPECT_EQ(trial.calls, 1u);
        EXPECT_NE(trial.ptr, nullptr);
        EXPECT_EQ(trial.total, 2 * fake.page_size);
        EXPECT_EQ(trial.first, fake.page_size);
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
    }
    EXPECT_EQ(fake.allocs, 0u) << "the pointer is a fictitious one";
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(Creation, JemallocParams) {
    if (!UMF_WITH_JEMALLOC) {
        GTEST_SKIP() << "this build has no jemalloc pool";
    }
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_jemalloc_pool_params_handle_t params = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfJemallocPoolParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfJemallocPoolParamsDestroy(nullptr), OK);
    EXPECT_EQ(umfJemallocPoolParamsSetNumArenas(nullptr, 1), BAD);
    EXPECT_EQ(umfJemallocPoolParamsSetName(nullptr, "x"), BAD);
    ASSERT_EQ(umfJemallocPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfJemallocPoolParamsSetName(params, nullptr), BAD);
    for (size_t arenas : {size_t{4096}, SIZE_MAX, size_t{1} << 32}) {
        EXPECT_EQ(umfJemallocPoolParamsSetNumArenas(params, arenas), OK) << "checked at creation";
        EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, params, 0, &pool), BAD);
    }
    for (size_t arenas : {size_t{0}, size_t{4095}}) {
        EXPECT_EQ(umfJemallocPoolParamsSetNumArenas(params, arenas), OK);
        ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, params, 0, &pool), OK) << arenas;
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    EXPECT_EQ(umfJemallocPoolParamsSetNumArenas(params, 1), OK);
    EXPECT_EQ(umfJemallocPoolParamsSetName(params, std::string(80, 'j').c_str()), OK);
    ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, params, 0, &pool), OK);
    EXPECT_EQ(umfJemallocPoolParamsDestroy(params), OK);
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_EQ(std::string(name), std::string(63, 'j'));
    void *p = umfPoolMalloc(pool, 100);
    EXPECT_NE(p, nullptr);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

} // namespace
