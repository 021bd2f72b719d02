// Captures that the program reports (umf/capture.h), and waits that would end one.

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <umf/capture.h>

extern "C" {
#include "providers/gpu/capture.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

} // namespace

TEST(Capture, KeepsWaitsAway) {
    int a = 0, b = 0;
    const void *queue = nullptr;
    ASSERT_TRUE(umf_capture_enter_wait(&queue));
    umf_capture_leave_wait();
    ASSERT_EQ(umfCaptureBegins(&a), OK);
    EXPECT_FALSE(umf_capture_enter_wait(&queue));
    EXPECT_EQ(queue, &a);
    ASSERT_EQ(umfCaptureBegins(&b), OK);
    EXPECT_EQ(umfCaptureEnds(&a), OK);
    EXPECT_FALSE(umf_capture_enter_wait(&queue));
    EXPECT_EQ(queue, &b);
    EXPECT_EQ(umfCaptureEnds(&b), OK);
    EXPECT_TRUE(umf_capture_enter_wait(&queue));
    umf_capture_leave_wait();
}

TEST(Capture, EndsAsOftenAsItBegins) {
    int a = 0;
    const void *queue = nullptr;
    EXPECT_EQ(umfCaptureEnds(&a), BAD);
    EXPECT_EQ(umfCaptureEnds(nullptr), BAD);
    for (const void *named : {static_cast<const void *>(&a), static_cast<const void *>(nullptr)}) {
        ASSERT_EQ(umfCaptureBegins(named), OK);
        ASSERT_EQ(umfCaptureBegins(named), OK);
        EXPECT_EQ(umfCaptureEnds(named), OK);
        EXPECT_FALSE(umf_capture_enter_wait(&queue));
        EXPECT_EQ(queue, named);
        EXPECT_EQ(umfCaptureEnds(named), OK);
        EXPECT_EQ(umfCaptureEnds(named), BAD);
    }
}

// A wait that has looked and a capture that begins do not pass each other.
TEST(Capture, BeginsAfterWaitsThatAreUnderWay) {
    const void *queue = nullptr;
    for (int round = 0; round < 50; round++) {
        std::atomic<bool> is_begun{false}, is_over{false}, was_early{false};
        ASSERT_TRUE(umf_capture_enter_wait(&queue));
        ASSERT_TRUE(umf_capture_enter_wait(&queue));
        umf_capture_leave_wait();
        std::thread captures([&] {
            EXPECT_EQ(umfCaptureBegins(&is_begun), OK);
            was_early = !is_over;
            is_begun = true;
        });
        while (umf_capture_enter_wait(&queue)) { // until it is announced
            umf_capture_leave_wait();
            std::this_thread::yield();
        }
        EXPECT_FALSE(is_begun);
        is_over = true;
        umf_capture_leave_wait();
        captures.join();
        EXPECT_FALSE(was_early);
        EXPECT_EQ(umfCaptureEnds(&is_begun), OK);
    }
}
