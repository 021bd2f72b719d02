#include <cstring>
#include <thread>

#include <gtest/gtest.h>

extern "C" {
#include "base/line.h"
}

TEST(line, is_empty_at_first) {
    std::thread([] { EXPECT_STREQ(umf_line(UMF_LINE_TEXT), ""); }).join();
}

TEST(line, is_kept_per_thread_and_use) {
    char *native = umf_line(UMF_LINE_NATIVE);
    ASSERT_NE(native, nullptr);
    std::memset(native, 'n', UMF_LINE_SIZE);
    EXPECT_EQ(umf_line(UMF_LINE_NATIVE), native);
    EXPECT_NE(umf_line(UMF_LINE_TEXT), native);
    EXPECT_EQ(*umf_line(UMF_LINE_TEXT), '\0');
    std::thread([native] { EXPECT_NE(umf_line(UMF_LINE_NATIVE), native); }).join();
    EXPECT_EQ(native[UMF_LINE_SIZE - 1], 'n');
}
