#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

extern "C" {
#include "proxy/options.h"
}

namespace {

umf_proxy_options_t parse(const char *text) {
    umf_proxy_options_t options;
    umf_proxy_options_parse(text, &options);
    return options;
}

std::string text_of(umf_proxy_part_t part) {
    return part.start ? std::string(part.start, part.length) : "none";
}

} // namespace

TEST(ProxyOptions, NothingGiven) {
    for (const char *text : {static_cast<const char *>(nullptr), "", ";", " ;; \t\"\"'"}) {
        umf_proxy_options_t options = parse(text);
        EXPECT_EQ(options.pages, UMF_PROXY_PAGES_PRIVATE);
        EXPECT_EQ(options.threshold, 0u);
        EXPECT_EQ(options.no_number.start, nullptr);
        EXPECT_EQ(options.unknown_count, 0u);
    }
}

TEST(ProxyOptions, Disposition) {
    EXPECT_EQ(parse("page.disposition=shared-fd").pages, UMF_PROXY_PAGES_SHARED_FD);
    EXPECT_EQ(parse("page.disposition=shared-shm").pages, UMF_PROXY_PAGES_SHARED_SHM);
    EXPECT_EQ(parse("size.threshold=1;page.disposition=shared-shm").pages,
              UMF_PROXY_PAGES_SHARED_SHM);
    for (const char *text : {"page.disposition=shared", "page.disposition=shared-fdx",
                             "page.disposition=", "Page.disposition=shared-fd",
                             "xpage.disposition=shared-fd", "page.disposition = shared-fd"}) {
        umf_proxy_options_t options = parse(text);
        EXPECT_EQ(options.pages, UMF_PROXY_PAGES_PRIVATE) << text;
        EXPECT_GE(options.unknown_count, 1u) << text;
    }
}

TEST(ProxyOptions, Threshold) {
    EXPECT_EQ(parse("size.threshold=0").threshold, 0u);
    EXPECT_EQ(parse("size.threshold=64").threshold, 64u);
    EXPECT_EQ(parse("size.threshold=0064").threshold, 64u);
    EXPECT_EQ(parse("size.threshold=64;page.disposition=shared-fd").threshold, 64u);
}

TEST(ProxyOptions, FirstOtherCharacterEndsTheNumber) {
    for (const char *text : {"size.threshold=64x", "size.threshold=64kilobytes",
                             "size.threshold=64.5", "size.threshold=64-1"}) {
        EXPECT_EQ(parse(text).threshold, 64u) << text;
        EXPECT_EQ(parse(text).no_number.start, nullptr) << text;
    }
}

TEST(ProxyOptions, NumberBeyondTheLargestSize) {
    EXPECT_EQ(parse("size.threshold=18446744073709551614").threshold, SIZE_MAX - 1);
    EXPECT_EQ(parse("size.threshold=18446744073709551615").threshold, SIZE_MAX);
    EXPECT_EQ(parse("size.threshold=18446744073709551616").threshold, SIZE_MAX);
    EXPECT_EQ(parse("size.threshold=18446744073709551620").threshold, SIZE_MAX);
    EXPECT_EQ(parse(("size.threshold=" + std::string(1000, '9')).c_str()).threshold, SIZE_MAX);
}

TEST(ProxyOptions, ThresholdThatIsNoNumber) {
    EXPECT_EQ(text_of(parse("size.threshold=").no_number), "");
    EXPECT_EQ(text_of(parse("size.threshold=x").no_number), "x");
    EXPECT_EQ(text_of(parse("size.threshold=-1").no_number), "-1");
    EXPECT_EQ(text_of(parse("size.threshold=+1").no_number), "+1");
    EXPECT_EQ(text_of(parse("page.disposition=shared-fd;size.threshold=all;foo").no_number), "all");
}

TEST(ProxyOptions, QuotesAndSeparatorsDoNoHarm) {
    for (const char *text : {"\"page.disposition=shared-shm;size.threshold=64\"",
                             "'page.disposition=shared-shm';'size.threshold=64'",
                             ";;page.disposition=shared-shm;;size.threshold=64;;",
                             " page.disposition=shared-shm ; size.threshold=64 ",
                             "page.disposition=shared-shm,size.threshold=64",
                             "page.disposition=shared-shm\nsize.threshold=64\n"}) {
        umf_proxy_options_t options = parse(text);
        EXPECT_EQ(options.pages, UMF_PROXY_PAGES_SHARED_SHM) << text;
        EXPECT_EQ(options.threshold, 64u) << text;
        EXPECT_EQ(options.unknown_count, 0u) << text;
    }
}

TEST(ProxyOptions, TheFirstOfAKindCounts) {
    EXPECT_EQ(parse("page.disposition=shared-shm;page.disposition=shared-fd").pages,
              UMF_PROXY_PAGES_SHARED_SHM);
    EXPECT_EQ(parse("size.threshold=5;size.threshold=6").threshold, 5u);
    EXPECT_EQ(parse("size.threshold=0;size.threshold=6").threshold, 0u);
    EXPECT_EQ(parse("size.threshold=5;size.threshold=x").no_number.start, nullptr);
}

TEST(ProxyOptions, UnknownPartsAreCounted) {
    umf_proxy_options_t options = parse("first;size.threshold=5;second=2;third");
    EXPECT_EQ(options.unknown_count, 3u);
    EXPECT_EQ(text_of(options.unknown), "first");
    EXPECT_EQ(options.threshold, 5u);
}

TEST(ProxyOptions, Show) {
    char buffer[8];
    const char *text = "ab\n\x80"
                       "defghijk";
    EXPECT_STREQ(umf_proxy_part_show({text, 3}, buffer, sizeof(buffer)), "ab?");
    EXPECT_STREQ(umf_proxy_part_show({text, 12}, buffer, sizeof(buffer)), "ab??def");
    EXPECT_STREQ(umf_proxy_part_show({text, 0}, buffer, sizeof(buffer)), "");
    EXPECT_STREQ(umf_proxy_part_show({text, 12}, buffer, 1), "");
}

TEST(ProxyOptions, AnyTextIsSafe) {
    std::mt19937 random(1);
    const std::string words[] = {"page.disposition=",
                                 "shared-fd",
                                 "shared-shm",
                                 "size.threshold=",
                                 ";",
                                 "\"",
                                 "18446744073709551615",
                                 "7",
                                 "\xff",
                                 "%n"};
    for (int i = 0; i < 20000; i++) {
        std::string text;
        for (size_t n = random() % 8; n > 0; n--) {
            text += words[random() % std::size(words)];
        }
        umf_proxy_options_t options = parse(text.c_str());
        const char *end = text.c_str() + text.size();
        for (umf_proxy_part_t part : {options.no_number, options.unknown}) {
            EXPECT_TRUE(!part.start || (part.start >= text.c_str() && part.start <= end &&
                                        part.length <= size_t(end - part.start)));
        }
    }
    parse(std::string(1 << 20, 'x').c_str());
}
