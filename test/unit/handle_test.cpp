/* base/handle.c: which handles are alive. */
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/log_file.h"
#include "fakes/threads.h"

extern "C" {
#include "base/handle.h"
#include "system/os.h"
}

namespace {

const umf_handle_kind_t apple = {"an apple"}, pear = {"a pear"};

/* Addresses that are never read through; each test has its own. */
const void *at(uintptr_t test, uintptr_t i) {
    return reinterpret_cast<const void *>(UINT64_C(0xa000) << 32 | test << 28 | (i + 1) * 16);
}

std::string refusal(const void *handle) {
    EXPECT_EQ(umfInit(), UMF_RESULT_SUCCESS); /* who logs must be started */
    LogFile log;
    umf_handle_refuse(handle, pear.name, "umfTest");
    return log.text();
}

TEST(Handle, IsOfItsKindWhileItLives) {
    const void *handle = at(1, 0);
    EXPECT_EQ(umf_handle_kind(handle), nullptr);
    ASSERT_EQ(umf_handle_begin(handle, &apple), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_handle_kind(handle), &apple);
    EXPECT_TRUE(umf_handle_check(handle, &apple, "umfTest"));
    EXPECT_FALSE(umf_handle_check(handle, &pear, "umfTest"));
    EXPECT_FALSE(umf_handle_end(handle, &pear, "umfTest"));
    EXPECT_TRUE(umf_handle_end(handle, &apple, "umfTest"));
    EXPECT_FALSE(umf_handle_end(handle, &apple, "umfTest"));
    EXPECT_EQ(umf_handle_kind(handle), nullptr);
}

TEST(Handle, IsUsedAgainForAnotherKind) {
    const void *handle = at(2, 0);
    ASSERT_EQ(umf_handle_begin(handle, &apple), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(umf_handle_end(handle, &apple, "umfTest"));
    ASSERT_EQ(umf_handle_begin(handle, &pear), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_handle_kind(handle), &pear);
    EXPECT_TRUE(umf_handle_end(handle, &pear, "umfTest"));
}

TEST(Handle, NullIsNone) {
    EXPECT_EQ(umf_handle_kind(nullptr), nullptr);
    EXPECT_FALSE(umf_handle_end(nullptr, &apple, "umfTest"));
}

TEST(Handle, TheLogSaysWhatItIs) {
    const void *handle = at(3, 0);
    EXPECT_NE(refusal(nullptr).find("umfTest: the handle is NULL, a pear is wanted"),
              std::string::npos);
    EXPECT_NE(refusal(handle).find(" is no handle of this library, a pear is wanted"),
              std::string::npos);
    ASSERT_EQ(umf_handle_begin(handle, &apple), UMF_RESULT_SUCCESS);
    EXPECT_NE(refusal(handle).find(" is an apple, a pear is wanted"), std::string::npos);
    EXPECT_TRUE(umf_handle_end(handle, &apple, "umfTest"));
    EXPECT_NE(refusal(handle).find(" was destroyed, it was an apple, a pear is wanted"),
              std::string::npos);
}

int no_map(const char *call) {
    return std::string(call) == "map" ? 12 : 0;
}

/* More than the table of the start holds, with the memory for a larger one and without. */
TEST(Handle, ThereMayBeMany) {
    constexpr uintptr_t many = 20000;
    uintptr_t known = 0;
    umf_os_set_fault(no_map);
    while (known < many && umf_handle_begin(at(4, known), &apple) == UMF_RESULT_SUCCESS) {
        known++;
    }
    EXPECT_LT(known, many);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(umf_handle_kind(at(4, known)), nullptr);
    for (; known < many; known++) {
        ASSERT_EQ(umf_handle_begin(at(4, known), &apple), UMF_RESULT_SUCCESS);
    }
    for (uintptr_t i = 0; i < many; i++) {
        ASSERT_EQ(umf_handle_kind(at(4, i)), &apple) << i;
        ASSERT_TRUE(umf_handle_end(at(4, i), &apple, "umfTest"));
    }
    EXPECT_EQ(umf_handle_kind(at(4, 0)), nullptr);
}

/* One of those who destroy it at the same time does. */
TEST(Handle, EndsOnce) {
    for (uintptr_t i = 0; i < 200; i++) {
        ASSERT_EQ(umf_handle_begin(at(5, i), &apple), UMF_RESULT_SUCCESS);
        std::atomic<int> ended{0};
        run_threads(4, [&](int) { ended += umf_handle_end(at(5, i), &apple, "umfTest"); });
        ASSERT_EQ(ended, 1);
    }
}

/* Readers take no lock: handles added and ended by others must not disturb them, nor must a growing
 * table. */
TEST(Handle, IsFoundWhileOthersComeAndGo) {
    constexpr uintptr_t rounds = 30000;
    const void *mine = at(6, 0), *nobodys = at(7, 0);
    ASSERT_EQ(umf_handle_begin(mine, &apple), UMF_RESULT_SUCCESS);
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; t++) {
        readers.emplace_back([&] {
            while (!stop) {
                EXPECT_EQ(umf_handle_kind(mine), &apple);
                EXPECT_EQ(umf_handle_kind(nobodys), nullptr);
            }
        });
    }
    for (uintptr_t i = 1; i < rounds; i++) {
        ASSERT_EQ(umf_handle_begin(at(6, i), &pear), UMF_RESULT_SUCCESS);
        if (i % 2) {
            ASSERT_TRUE(umf_handle_end(at(6, i), &pear, "umfTest"));
        }
    }
    stop = true;
    for (auto &reader : readers) {
        reader.join();
    }
    for (uintptr_t i = 2; i < rounds; i += 2) {
        ASSERT_TRUE(umf_handle_end(at(6, i), &pear, "umfTest"));
    }
    EXPECT_TRUE(umf_handle_end(mine, &apple, "umfTest"));
}

} // namespace
