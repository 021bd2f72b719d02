// A watcher that has recorded the memory of a pool is notified of a suspend and resume, or forbids
// it.

#include <string>
#include <thread>
#include <vector>

#include "fakes/log_file.h"
#include "fakes/vmm_kinds.h"

#include <gtest/gtest.h>

#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t size = size_t{4} << 20;

class SuspendWatch : public testing::TestWithParam<const VmmKind *> {
  protected:
    const VmmKind &kind = *GetParam();
    bool is_started = false;
    umf_memory_provider_handle_t provider[2] = {};
    umf_memory_pool_handle_t pool[2] = {};
    void *block[2] = {};

    void SetUp() override {
        std::string why = kind.start();
        is_started = why.empty();
        if (!is_started) {
            GTEST_SKIP() << why;
        }
        for (int i = 0; i < 2; i++) {
            provider[i] = kind.create(0);
            ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider[i], nullptr, 0, &pool[i]), OK);
            block[i] = umfPoolMalloc(pool[i], size);
            ASSERT_NE(block[i], nullptr);
        }
    }
    void TearDown() override {
        if (!is_started) {
            return;
        }
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(umfPoolFree(pool[i], block[i]), OK);
            EXPECT_EQ(umfPoolDestroy(pool[i]), OK);
            EXPECT_EQ(umfMemoryProviderDestroy(provider[i]), OK);
        }
        kind.stop();
    }

    umf_result_t suspend() {
        return umfPoolsSuspend(pool, 2, nullptr, nullptr);
    }
    umf_result_t resume() {
        return umfPoolsResume(pool, 2, nullptr, nullptr);
    }
    static umf_suspend_state_t state(umf_memory_pool_handle_t of) {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        EXPECT_EQ(umfPoolGetResidency(of, &now), OK);
        return now.state;
    }
};

// Notes its calls: its letter, large for a resume.
struct Watcher {
    std::string *notes;
    char letter;
    umf_result_t answer = OK;
    std::function<void(umf_memory_pool_handle_t, umf_suspend_event_t)> also = nullptr;

    static umf_result_t called(umf_memory_pool_handle_t pool, umf_suspend_event_t event,
                               void *arg) {
        Watcher *watcher = static_cast<Watcher *>(arg);
        bool resume = event == UMF_SUSPEND_EVENT_RESUME;
        *watcher->notes += static_cast<char>(watcher->letter - (resume ? 'a' - 'A' : 0));
        if (watcher->also) {
            watcher->also(pool, event);
        }
        return watcher->answer;
    }
};

} // namespace

TEST_P(SuspendWatch, Arguments) {
    std::string notes;
    Watcher a{&notes, 'a'};
    EXPECT_EQ(umfPoolForbidSuspend(nullptr), BAD);
    EXPECT_EQ(umfPoolAllowSuspend(nullptr), BAD);
    EXPECT_EQ(umfPoolAddSuspendCallback(nullptr, Watcher::called, &a), BAD);
    EXPECT_EQ(umfPoolAddSuspendCallback(pool[0], nullptr, &a), BAD);
    EXPECT_EQ(umfPoolRemoveSuspendCallback(nullptr, Watcher::called, &a), BAD);
    EXPECT_EQ(umfPoolRemoveSuspendCallback(pool[0], Watcher::called, &a), BAD);
    EXPECT_EQ(umfPoolAllowSuspend(pool[0]), BAD);
    umf_memory_pool_handle_t untracked = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider[0], nullptr,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &untracked),
              OK);
    EXPECT_EQ(umfPoolForbidSuspend(untracked), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfPoolAddSuspendCallback(untracked, Watcher::called, &a),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfPoolDestroy(untracked), OK);
}

TEST_P(SuspendWatch, AForbiddenSuspendChangesNothing) {
    ASSERT_EQ(umfPoolForbidSuspend(pool[1]), OK);
    ASSERT_EQ(umfPoolForbidSuspend(pool[1]), OK);
    size_t held = kind.held();
    {
        LogFile log(3);
        EXPECT_EQ(suspend(), BUSY);
        EXPECT_EQ(log.count("umfPoolForbidSuspend was called 2 times more"), 1u) << log.text();
    }
    EXPECT_EQ(state(pool[0]), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(state(pool[1]), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(kind.held(), held);
    void *more = umfPoolMalloc(pool[0], 100);
    EXPECT_NE(more, nullptr);
    EXPECT_EQ(umfPoolFree(pool[0], more), OK);
    // The other alone can.
    EXPECT_EQ(umfPoolsSuspend(pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolForbidSuspend(pool[0]), BUSY);
    EXPECT_EQ(umfPoolsResume(pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolAllowSuspend(pool[1]), OK);
    EXPECT_EQ(suspend(), BUSY);
    ASSERT_EQ(umfPoolAllowSuspend(pool[1]), OK);
    EXPECT_EQ(suspend(), OK);
    EXPECT_EQ(resume(), OK);
}

TEST_P(SuspendWatch, CallbacksAreToldInOrder) {
    std::string notes;
    Watcher a{&notes, 'a'}, b{&notes, 'b'}, x{&notes, 'x'};
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &a), OK);
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &b), OK);
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[1], Watcher::called, &x), OK);
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(notes, "bax");
    EXPECT_EQ(suspend(), OK); // nothing happens to them
    EXPECT_EQ(notes, "bax");
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(notes, "baxABX");
    EXPECT_EQ(resume(), OK);
    EXPECT_EQ(notes, "baxABX");
    ASSERT_EQ(umfPoolRemoveSuspendCallback(pool[0], Watcher::called, &a), OK);
    EXPECT_EQ(umfPoolRemoveSuspendCallback(pool[0], Watcher::called, &a), BAD);
    notes.clear();
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(umfPoolRemoveSuspendCallback(pool[0], Watcher::called, &b), BUSY);
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(notes, "bxBX");
}

TEST_P(SuspendWatch, ManyCallbacks) {
    std::string notes, expected;
    std::vector<Watcher> all(20, Watcher{&notes, 'a'});
    for (size_t i = 0; i < all.size(); i++) {
        all[i].letter = static_cast<char>('a' + i);
        expected.insert(expected.begin(), all[i].letter);
        ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &all[i]), OK);
    }
    ASSERT_EQ(suspend(), OK);
    EXPECT_EQ(notes, expected);
    ASSERT_EQ(resume(), OK);
}

// The memory is there at both times, and so is the pool; the pool itself cannot be changed then.
TEST_P(SuspendWatch, ACallbackCanUseThePool) {
    std::string notes;
    std::vector<char> content(size, 'q'), now(size);
    int calls = 0;
    Watcher a{&notes, 'a', OK, [&](umf_memory_pool_handle_t of, umf_suspend_event_t event) {
                  calls++;
                  EXPECT_EQ(of, pool[0]);
                  void *ptr = umfPoolMalloc(of, 100);
                  EXPECT_NE(ptr, nullptr);
                  EXPECT_EQ(umfPoolFree(of, ptr), OK);
                  kind.read(now.data(), block[0], size);
                  EXPECT_EQ(now, content);
                  EXPECT_EQ(umfPoolForbidSuspend(of), BUSY);
                  EXPECT_EQ(umfPoolsSuspend(&of, 1, nullptr, nullptr), BUSY);
                  EXPECT_EQ(umfPoolAddSuspendCallback(of, Watcher::called, nullptr), BUSY);
                  EXPECT_EQ(state(pool[1]), event == UMF_SUSPEND_EVENT_SUSPEND
                                                ? UMF_SUSPEND_STATE_SUSPENDING
                                                : UMF_SUSPEND_STATE_RESUMING);
              }};
    kind.write(block[0], content.data(), size);
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &a), OK);
    ASSERT_EQ(suspend(), OK);
    ASSERT_EQ(resume(), OK);
    EXPECT_EQ(calls, 2);
}

TEST_P(SuspendWatch, ACallbackCanRefuse) {
    std::string notes;
    Watcher a{&notes, 'a'}, b{&notes, 'b', UMF_RESULT_ERROR_USER_SPECIFIC}, c{&notes, 'c'},
        x{&notes, 'x'};
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &x), OK);
    for (Watcher *watcher : {&a, &b, &c}) {
        ASSERT_EQ(umfPoolAddSuspendCallback(pool[1], Watcher::called, watcher), OK);
    }
    size_t held = kind.held();
    EXPECT_EQ(suspend(), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(notes, "xcbCX"); // those notified are notified of the end
    EXPECT_EQ(state(pool[0]), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(state(pool[1]), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(kind.held(), held);
    notes.clear();
    b.answer = OK;
    a.also = [&](umf_memory_pool_handle_t, umf_suspend_event_t event) {
        a.answer = event == UMF_SUSPEND_EVENT_RESUME ? UMF_RESULT_ERROR_UNKNOWN : OK;
    };
    EXPECT_EQ(suspend(), OK);
    EXPECT_EQ(resume(), OK); // which cannot be refused
    EXPECT_EQ(notes, "xcbaXABC");
}

// Whichever call of the driver fails: no watcher takes a resident pool for suspended.
TEST_P(SuspendWatch, AFailedSuspendIsToldToo) {
    if (!kind.fail) {
        GTEST_SKIP() << "failures on demand need the software driver";
    }
    std::string notes;
    Watcher a{&notes, 'a'};
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &a), OK);
    bool passed = false;
    for (long n = 1; !passed && n < 1000; n++) {
        notes.clear();
        kind.fail(n);
        umf_result_t result = suspend();
        passed = !kind.fail(0);
        umf_suspend_state_t now = state(pool[0]);
        EXPECT_EQ(notes, now == UMF_SUSPEND_STATE_RESIDENT ? "aA" : "a") << n << " " << result;
        if (now == UMF_SUSPEND_STATE_SUSPENDED) {
            EXPECT_EQ(resume(), OK) << n;
            EXPECT_EQ(notes, "aA") << n;
        }
    }
    EXPECT_TRUE(passed);
}

TEST_P(SuspendWatch, InTheBackground) {
    std::string notes;
    std::thread::id caller = std::this_thread::get_id(), told_in = caller;
    Watcher a{&notes, 'a', OK, [&](umf_memory_pool_handle_t, umf_suspend_event_t) {
                  told_in = std::this_thread::get_id();
              }};
    ASSERT_EQ(umfPoolAddSuspendCallback(pool[0], Watcher::called, &a), OK);
    umf_suspend_job_handle_t job = nullptr;
    ASSERT_EQ(umfPoolsSuspendAsync(pool, 2, nullptr, &job), OK);
    ASSERT_EQ(umfSuspendJobWait(job, nullptr), OK);
    EXPECT_NE(told_in, caller);
    EXPECT_EQ(resume(), OK);
    EXPECT_EQ(notes, "aA");
}

TEST_P(SuspendWatch, APoolGoesWithItsCallbacks) {
    std::string notes;
    Watcher a{&notes, 'a'};
    umf_memory_pool_handle_t third = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider[0], nullptr, 0, &third), OK);
    ASSERT_EQ(umfPoolAddSuspendCallback(third, Watcher::called, &a), OK);
    ASSERT_EQ(umfPoolForbidSuspend(third), OK);
    EXPECT_EQ(umfPoolDestroy(third), OK);
    EXPECT_EQ(suspend(), OK);
    EXPECT_EQ(resume(), OK);
    EXPECT_EQ(notes, "");
}

INSTANTIATE_TEST_SUITE_P(Each, SuspendWatch, testing::ValuesIn(vmm_kinds()),
                         [](const auto &kind) { return std::string(kind.param->name); });
