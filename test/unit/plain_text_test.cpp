// Text for terminals (base/plain_text.c), and the log, which shows names of others.
#include <string>

#include <gtest/gtest.h>

#include <umf.h>

extern "C" {
#include "base/log.h"
#include "base/plain_text.h"
}

#include "fakes/log_file.h"

namespace {

std::string plain(std::string text) {
    umf_plain_text(text.data(), text.size());
    return text;
}

TEST(PlainText, OrdinaryTextStays) {
    for (const char *text : {"", "pool 7: 100 % of /tmp/a b",
                             "Gr\xc3\xb6\xc3\x9f"
                             "e \xe2\x82\xac \xf0\x9f\x98\x80"}) {
        EXPECT_EQ(plain(text), text);
    }
}

TEST(PlainText, ControlCharactersGo) {
    EXPECT_EQ(plain("a\x1b[31mb\nc\td\x7f"), "a?[31mb?c?d?");
    EXPECT_EQ(plain(std::string("a\0b", 3)), "a?b");
    EXPECT_EQ(plain("a\xc2\x9b"
                    "31mb\xc2\x9dx"),
              "a??31mb??x"); // CSI and OSC of 8 bits
}

TEST(PlainText, TextThatTurnsRoundGoes) {
    EXPECT_EQ(plain("a\xe2\x80\xae"
                    "b\xe2\x81\xa6"
                    "c\xd8\x9c"
                    "d\xe2\x80\x8f\xe2\x80\xa8"),
              "a???b???c??d??????");
}

TEST(PlainText, BytesThatAreNoUtf8Go) {
    EXPECT_EQ(plain("\x9b"
                    "a\xff"
                    "b\xc3"),
              "?a?b?");
    EXPECT_EQ(plain("\xc0\x9b\xe0\x80\x9b\xed\xa0\x80\xf5\x80\x80\x80"), "????????????");
}

TEST(PlainText, TheLogShowsNamesPlain) {
    umf_log_heard_t heard;
    umf_log_hear(&heard);
    UMF_LOG_ERROR("object \"%s\"", "x\n[ERROR UMF] forged \x1b]0;t\x07\xc2\x9b");
    umf_log_hear_end(&heard);
    EXPECT_STREQ(heard.text, "object \"x?[ERROR UMF] forged ?]0;t???\"");
}

TEST(PlainText, TheLogFileShowsNamesPlain) {
    ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS); // log settings
    LogFile log;
    UMF_LOG_ERROR("object \"%s\"", "x\n[ERROR UMF] forged \x1b]0;t");
    EXPECT_EQ(log.count("object \"x?[ERROR UMF] forged ?]0;t\""), 1u) << log.text();
}

} // namespace
