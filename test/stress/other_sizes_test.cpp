/*
 * A provider that is full, and all of its memory freed again: blocks of any other size get as much
 * of it at the first request as they get in a fresh pool.
 */
#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

struct Sizes {
    size_t first, then;
};

using Param = std::tuple<PoolKind, Sizes>;

class OtherSizes : public testing::TestWithParam<Param> {
  protected:
    std::unique_ptr<Source> source = make_fixed(64 * MiB);
    umf_memory_pool_handle_t pool = nullptr;

    void open() {
        ASSERT_EQ(umfPoolCreate(std::get<0>(GetParam()).ops(), source->handle, nullptr, 0, &pool),
                  UMF_RESULT_SUCCESS);
    }
    void close() {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(source->live_bytes(), 0u);
    }
    // Allocates until the provider is full, frees in a random order, and returns how many there
    // were.
    size_t use_all(size_t size) {
        std::vector<void *> blocks;
        while (void *block = umfPoolMalloc(pool, size)) {
            blocks.push_back(block);
        }
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
        for (void *block : blocks) {
            EXPECT_EQ(umfPoolFree(pool, block), UMF_RESULT_SUCCESS);
        }
        return blocks.size();
    }
};

TEST_P(OtherSizes, AreServedByWhatIsFree) {
    ONE_THREAD_ONLY();
    const Sizes &sizes = std::get<1>(GetParam());
    open();
    size_t fresh = use_all(sizes.then);
    close();
    open();
    use_all(sizes.first);
    size_t then = use_all(sizes.then);
    // The rest is lost to what lies between blocks in use: ends of spans, slabs of an allocator
    // below.
    EXPECT_GE(then * 8, fresh * 7) << then << " of " << fresh << " blocks of " << sizes.then;
    close();
}

INSTANTIATE_TEST_SUITE_P(
    , OtherSizes,
    testing::Combine(testing::ValuesIn(pool_kinds()),
                     testing::Values(Sizes{64, 4 * KiB}, Sizes{64, 1 * MiB}, Sizes{4 * KiB, 64},
                                     Sizes{4 * KiB, 64 * KiB}, Sizes{64 * KiB, 20 * KiB},
                                     Sizes{64 * KiB, 200 * KiB}, Sizes{200 * KiB, 4 * KiB},
                                     Sizes{1 * MiB, 3 * MiB})),
    [](const testing::TestParamInfo<Param> &each) {
        const Sizes &sizes = std::get<1>(each.param);
        return std::string(std::get<0>(each.param).id) + "_" + std::to_string(sizes.first) + "_" +
               std::to_string(sizes.then);
    });

} // namespace
