#include <cstring>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <umf/result.h>

namespace {

const umf_result_t codes[] = {
#define UMF_RESULT(code, text) code,
#include "system/result.def"
#undef UMF_RESULT
};

// In range of the enum, and no code.
const umf_result_t not_a_code = static_cast<umf_result_t>(10);
const umf_result_t largest = static_cast<umf_result_t>(0x7fffffff);

} // namespace

TEST(result, name_is_spelled_as_in_the_header) {
    EXPECT_STREQ(umfResultName(UMF_RESULT_SUCCESS), "UMF_RESULT_SUCCESS");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY),
                 "UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC),
                 "UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_INVALID_ARGUMENT),
                 "UMF_RESULT_ERROR_INVALID_ARGUMENT");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_INVALID_ALIGNMENT),
                 "UMF_RESULT_ERROR_INVALID_ALIGNMENT");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_NOT_SUPPORTED), "UMF_RESULT_ERROR_NOT_SUPPORTED");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_USER_SPECIFIC), "UMF_RESULT_ERROR_USER_SPECIFIC");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE),
                 "UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_OUT_OF_RESOURCES),
                 "UMF_RESULT_ERROR_OUT_OF_RESOURCES");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_INVALID_CTL_PATH),
                 "UMF_RESULT_ERROR_INVALID_CTL_PATH");
    EXPECT_STREQ(umfResultName(UMF_RESULT_ERROR_UNKNOWN), "UMF_RESULT_ERROR_UNKNOWN");
}

TEST(result, every_code_has_a_text_of_its_own) {
    std::set<std::string> texts;
    for (umf_result_t code : codes) {
        std::string text = umfResultText(code);
        EXPECT_GE(text.size(), 4u) << umfResultName(code);
        EXPECT_EQ(text.find_first_of("\n\r"), std::string::npos) << text;
        EXPECT_NE(text.back(), '.') << text;
        texts.insert(text);
    }
    EXPECT_EQ(std::size(codes), 11u);
    EXPECT_EQ(texts.size(), std::size(codes));
}

TEST(result, other_values_are_named_too) {
    for (umf_result_t value : {not_a_code, largest}) {
        EXPECT_STREQ(umfResultName(value), "UMF_RESULT_?");
        for (umf_result_t code : codes) {
            EXPECT_STRNE(umfResultText(value), umfResultText(code));
        }
    }
}

TEST(result, text_is_static) {
    const char *name = umfResultName(UMF_RESULT_ERROR_UNKNOWN);
    umfResultName(not_a_code);
    EXPECT_EQ(umfResultName(UMF_RESULT_ERROR_UNKNOWN), name);
}
