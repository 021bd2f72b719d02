#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

extern "C" {
#include "base/message_buffer.h"
#include "base/native.h"
}

namespace {

const umf_native_text_t texts[] = {{1000, "Success"}, {1001, "Memory allocation failed"}};

umf_result_t get(const umf_native_t &last, std::string *message, int32_t *code) {
    const char *text = nullptr;
    umf_result_t result = umf_native_get(&last, texts, 2, &text, code);
    *message = text ? text : "";
    return result;
}

} // namespace

TEST(native, fail_stores_and_answers_provider_specific) {
    umf_native_t last = {0, 0};
    EXPECT_EQ(umf_native_fail(&last, 1001, ENOMEM), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(last.code, 1001);
    EXPECT_EQ(last.errnum, ENOMEM);
}

TEST(native, text_alone_without_a_failed_system_call) {
    std::string message;
    int32_t code = -1;
    EXPECT_EQ(get({1001, 0}, &message, &code), UMF_RESULT_SUCCESS);
    EXPECT_EQ(message, "Memory allocation failed");
    EXPECT_EQ(code, 1001);
}

TEST(native, text_and_system_text_after_a_failed_system_call) {
    std::string message;
    int32_t code = -1;
    EXPECT_EQ(get({1001, ENOMEM}, &message, &code), UMF_RESULT_SUCCESS);
    EXPECT_EQ(message, "Memory allocation failed: Cannot allocate memory");
    EXPECT_EQ(code, 1001);
}

TEST(native, code_without_text) {
    std::string message;
    int32_t code = -1;
    EXPECT_EQ(get({0, 0}, &message, &code), UMF_RESULT_SUCCESS);
    EXPECT_EQ(message, "no native error");
    EXPECT_EQ(code, 0);
}

TEST(native, null_is_refused_and_nothing_is_written) {
    umf_native_t last = {1001, 0};
    const char *message = "before";
    int32_t code = 7;
    EXPECT_EQ(umf_native_get(&last, texts, 2, nullptr, &code), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_native_get(&last, texts, 2, &message, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(message, "before");
    EXPECT_EQ(code, 7);
}

TEST(native, long_text_is_cut) {
    std::string text(2 * UMF_MESSAGE_BUFFER_SIZE, 'x');
    umf_native_text_t entry = {1, text.c_str()};
    umf_native_t last = {1, ENOENT};
    const char *message = nullptr;
    int32_t code = 0;
    ASSERT_EQ(umf_native_get(&last, &entry, 1, &message, &code), UMF_RESULT_SUCCESS);
    EXPECT_EQ(std::string(message), std::string(UMF_MESSAGE_BUFFER_SIZE - 1, 'x'));
}

TEST(native, message_of_one_thread_is_not_changed_by_another) {
    umf_native_t last = {1001, ENOMEM};
    const char *message = nullptr;
    int32_t code = 0;
    ASSERT_EQ(umf_native_get(&last, texts, 2, &message, &code), UMF_RESULT_SUCCESS);
    std::thread([] {
        umf_native_t other = {1000, ENOENT};
        const char *text = nullptr;
        int32_t number = 0;
        umf_native_get(&other, texts, 2, &text, &number);
    }).join();
    EXPECT_STREQ(message, "Memory allocation failed: Cannot allocate memory");
}
