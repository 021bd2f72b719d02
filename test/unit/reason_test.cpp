/*
 * The last error of each thread: text and reason, with and without a log, in threads and children.
 */
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>

#include "fakes/threads.h"

extern "C" {
#include "base/last_error.h"
#include "base/log.h"
}

namespace {

void fail_with(const char *text, umf_reason_t reason) {
    UMF_LOG_ERROR("%s", text);
    umf_last_reason_set(reason);
}

umf_result_t stale(int number) {
    return UMF_FAIL(UMF_REASON_STALE, UMF_RESULT_ERROR_INVALID_ARGUMENT, "number %d is old",
                    number);
}

/* Exit status of a child of fork that runs `check`. */
template <class Check> int in_child(Check check) {
    pid_t child = fork();
    if (child == 0) {
        _exit(check() ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

} // namespace

TEST(reason, NoFailureHasNoText) {
    std::thread([] {
        EXPECT_STREQ(umfLastErrorText(), "");
        EXPECT_EQ(umfLastReason(), UMF_REASON_NONE);
        umfLastErrorClear();
        EXPECT_STREQ(umfLastErrorText(), "");
    }).join();
}

TEST(reason, APublicCallLeavesItsSentenceWithoutALog) {
    umfLastErrorClear();
    EXPECT_EQ(umfPoolDestroy(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_STRNE(umfLastErrorText(), "");
    EXPECT_EQ(std::string(umfLastErrorText()).find('\n'), std::string::npos);
}

TEST(reason, TheLastLineStaysWithItsReason) {
    fail_with("first", UMF_REASON_GONE);
    EXPECT_EQ(umfLastReason(), UMF_REASON_GONE);
    EXPECT_EQ(stale(7), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(umfLastErrorText(), "number 7 is old");
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    UMF_LOG_ERROR("plain");
    EXPECT_EQ(umfLastReason(), UMF_REASON_NONE);
    UMF_LOG_WARN("no failure");
    EXPECT_STREQ(umfLastErrorText(), "plain");
    umfLastErrorClear();
    EXPECT_STREQ(umfLastErrorText(), "");
}

TEST(reason, LongAndHostileTextsAreCutAndPlain) {
    UMF_LOG_ERROR("%s", std::string(5000, 'x').c_str());
    EXPECT_EQ(std::strlen(umfLastErrorText()), 511u);
    UMF_LOG_ERROR("a\033[2Jb\nc");
    EXPECT_STREQ(umfLastErrorText(), "a?[2Jb?c");
}

TEST(reason, ErrnoStaysAndIsInTheText) {
    errno = EACCES;
    UMF_LOG_PERROR("opening x");
    EXPECT_EQ(errno, EACCES);
    EXPECT_STREQ(umfLastErrorText(), "opening x: Permission denied");
}

TEST(reason, ListenersAndTheLastErrorBothGetALine) {
    umf_log_heard_t outer, inner;
    std::thread([&] {
        umf_log_hear(&outer);
        umf_log_hear(&inner);
        UMF_LOG_ERROR("one");
        UMF_LOG_ERROR("two");
        umf_log_hear_end(&inner);
        EXPECT_STREQ(umfLastErrorText(), "two");
        umf_log_hear_end(&outer);
        EXPECT_STREQ(umfLastErrorText(), "two");
        EXPECT_EQ(umf_last_error_count(), 2u);
    }).join();
    EXPECT_STREQ(inner.text, "one");
    EXPECT_STREQ(outer.text, "");
}

TEST(reason, EachThreadHasItsOwn) {
    fail_with("main", UMF_REASON_BUSY);
    run_threads(8, [](int i) {
        for (int round = 0; round < 200; round++) {
            std::string text = std::to_string(i) + ":" + std::to_string(round);
            fail_with(text.c_str(), static_cast<umf_reason_t>(1 + i));
            EXPECT_EQ(umfLastErrorText(), text);
            EXPECT_EQ(umfLastReason(), static_cast<umf_reason_t>(1 + i));
        }
    });
    EXPECT_STREQ(umfLastErrorText(), "main");
    EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
}

/* More than there are slots, one after the other: ended threads leave theirs. */
TEST(reason, ThreadsThatEndedTakeNoPlace) {
    for (int i = 0; i < 2500; i++) {
        std::thread([i] {
            UMF_LOG_ERROR("thread %d", i);
            EXPECT_EQ(umfLastErrorText(), "thread " + std::to_string(i));
        }).join();
    }
}

TEST(reason, AChildOfForkBeginsWithoutATextAndGetsItsOwn) {
    UMF_LOG_ERROR("parent");
    EXPECT_EQ(in_child([] {
                  bool is_empty = *umfLastErrorText() == '\0';
                  UMF_LOG_ERROR("child");
                  bool of_thread = true;
                  std::thread([&] {
                      of_thread = *umfLastErrorText() == '\0';
                      UMF_LOG_ERROR("its thread");
                  }).join();
                  return is_empty && of_thread && std::string(umfLastErrorText()) == "child";
              }),
              0);
    EXPECT_STREQ(umfLastErrorText(), "parent");
}

TEST(reason, NamesAreThoseOfTheHeader) {
    EXPECT_STREQ(umfReasonName(UMF_REASON_NONE), "UMF_REASON_NONE");
    EXPECT_STREQ(umfReasonName(UMF_REASON_DEADLINE), "UMF_REASON_DEADLINE");
    EXPECT_STREQ(umfReasonName(UMF_REASON_UNSUPPORTED), "UMF_REASON_UNSUPPORTED");
    EXPECT_STREQ(umfReasonName(static_cast<umf_reason_t>(14)), "UMF_REASON_?");
    EXPECT_STREQ(umfReasonName(static_cast<umf_reason_t>(15)), "UMF_REASON_?");
}
