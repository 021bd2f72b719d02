// Boards: generations of described memory. The words are in memory that others may write to.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "peer/board.h"
}

namespace {

constexpr uint32_t first = 4, count = 16;

struct Board : testing::Test {
    std::vector<uint64_t> words = std::vector<uint64_t>(count);
    umf_board_t board = {words.data(), first, count, 0, 0, 0};
    uint32_t word = 0;
    uint64_t generation = 0;
};

TEST_F(Board, EachClaimHasAGenerationOfItsOwn) {
    uint64_t last = 0;
    for (uint32_t i = 0; i < 3 * count; i++) {
        ASSERT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_SUCCESS);
        EXPECT_GT(generation, last);
        EXPECT_GE(word, first);
        EXPECT_LT(word, count);
        EXPECT_EQ(words[word], generation);
        last = generation;
        umf_board_retire(&board, word, generation + 1);
        EXPECT_TRUE(umf_board_is_live(&board, word, generation)) << "another generation";
        umf_board_retire(&board, word, generation);
        EXPECT_FALSE(umf_board_is_live(&board, word, generation));
    }
    EXPECT_EQ(board.used, 0u);
}

// The search ends, although the count says that words are free.
TEST_F(Board, OverwrittenByAConsumer) {
    words.assign(count, 7);
    EXPECT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(board.used, 0u);
    words[count - 1] = 0;
    ASSERT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_SUCCESS);
    EXPECT_EQ(word, count - 1);
    words[word] = generation + 100; /* and its count is kept: the word is not ours any more */
    umf_board_retire(&board, word, generation);
    EXPECT_EQ(words[word], generation + 100);
}

TEST_F(Board, AllAreRetiredAtOnce) {
    for (uint32_t i = first; i < count; i++) {
        ASSERT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    words[0] = 5;
    umf_board_retire_all(&board);
    EXPECT_EQ(board.used, 0u);
    for (uint32_t i = first; i < count; i++) {
        EXPECT_EQ(words[i], 0u) << i;
    }
    EXPECT_EQ(words[0], 5u) << "the head is not of the board";
    ASSERT_EQ(umf_board_claim(&board, &word, &generation), UMF_RESULT_SUCCESS);
    EXPECT_EQ(generation, uint64_t{count - first + 1});
}

} // namespace
