#include <cstring>
#include <thread>

#include <gtest/gtest.h>

extern "C" {
#include "base/message_buffer.h"
}

TEST(line, is_empty_at_first) {
    std::thread([] { EXPECT_STREQ(umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT), ""); }).join();
}

TEST(line, is_kept_per_thread_and_use) {
    char *native = umf_message_buffer(UMF_MESSAGE_BUFFER_NATIVE);
    ASSERT_NE(native, nullptr);
    std::memset(native, 'n', UMF_MESSAGE_BUFFER_SIZE);
    EXPECT_EQ(umf_message_buffer(UMF_MESSAGE_BUFFER_NATIVE), native);
    EXPECT_NE(umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT), native);
    EXPECT_EQ(*umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT), '\0');
    std::thread([native] {
        EXPECT_NE(umf_message_buffer(UMF_MESSAGE_BUFFER_NATIVE), native);
    }).join();
    EXPECT_EQ(native[UMF_MESSAGE_BUFFER_SIZE - 1], 'n');
}
