// Each call of a driver and of the system fails, once and from then on: no content is lost, nothing
// leaks but what could not be given back, and everything can be destroyed.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <umf/experimental/ctl.h>

#include "fakes/descriptors.h"
#include "fakes/scale.h"
#include "scenario.h"

extern "C" {
#include "base/meta.h"
size_t umf_map_used(void); /* track/map.h is not for C++ */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
/* Stands in for pthread_create in this program (the linker's --wrap). */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg) {
    return faults::hook("pthread_create") ? EAGAIN
                                          : __real_pthread_create(thread, attributes, run, arg);
}

namespace faults {

// Resources left by a run. Descriptors and metadata that the library keeps for good are there from
// the first run on, but for the tables of the pointer map: a run at addresses that none had before
// makes some. A sanitizer's quarantine and an emulator give each run such addresses.
struct Left {
    long objects;
    size_t descriptors, metadata;
};

void PrintTo(const Fault &fault, std::ostream *out) {
    *out << "call " << fault.n << " of " << fault.call << (fault.stays ? " and all after it" : "");
}

class Faults : public ::testing::TestWithParam<size_t> {
  protected:
    const Backend backend = backends()[GetParam()];
    bool is_started = false;

    void SetUp() override {
        is_main();
        std::string why = backend.start();
        is_started = why.empty();
        if (!is_started) {
            GTEST_SKIP() << why;
        }
        umf_os_set_fault(hook);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        if (is_started) {
            backend.stop();
        }
        unlink(("/dev/shm/" + own_name() + "_file").c_str());
    }

    // --- one run ---------------------------------------------------------------------------------

    void arm(const Fault &fault) const {
        if (!backend.arm(fault)) {
            system_fault = fault;
            system_left = fault.n;
        }
    }
    void disarm() const {
        backend.disarm();
        system_left = 0;
    }
    Left left() const {
        umfSuspendTrim();
        return {backend.alive(), count_open_descriptors(), umf_meta_used() - umf_map_used()};
    }
    // `fault` NULL: none. `destroys`: also the end of the pool meets it.
    void run(const char *pool, size_t round, const Fault *fault, bool destroys = false) {
        std::vector<void *> queues = backend.make_queues();
        Scenario scenario(backend, queues);
        if (fault) {
            arm(*fault);
        }
        EXPECT_TRUE(scenario.run(pool, round) || fault) << "there is no pool";
        if (destroys) {
            scenario.end_with_faults();
        }
        disarm();
        scenario.end();
        backend.end_queues(queues);
        std::string misuse = backend.misuse();
        EXPECT_EQ(misuse, "");
        // The driver would report it again, and work that could never be waited for goes on.
        if (destroys || !misuse.empty()) {
            backend.stop();
            backend.start();
        }
    }

    // --- all runs --------------------------------------------------------------------------------

    // How often each call is made in a run without faults.
    Counts count(const char *pool, size_t round) {
        Counts before, after;
        backend.count(&before);
        system_counts.clear();
        is_counting = true;
        run(pool, round, nullptr);
        is_counting = false;
        backend.count(&after);
        for (auto &[call, n] : after) {
            n -= before[call];
        }
        after.insert(system_counts.begin(), system_counts.end());
        return after;
    }
    // Of `count` calls all, or in the usual run the first, the last and some between: under
    // ThreadSanitizer, to which all faults of one call are alike, none between.
    static std::vector<long> chosen(long count) {
        std::vector<long> all;
        long step = does_all() ? 1 : std::max(1L, UMF_TEST_TSAN ? count - 1 : count / 3);
        for (long n = 1; n <= count; n += step) {
            all.push_back(n);
        }
        if (all.empty() || all.back() != count) {
            all.push_back(count);
        }
        return all;
    }
    void check(const char *pool, size_t round, const Fault &fault, Left before) {
        SCOPED_TRACE(std::string(pool) + " over " + backend.name + ", keep " +
                     std::to_string(round) + ": " + ::testing::PrintToString(fault));
        alarm(60); // a hang ends the program
        run(pool, round, &fault);
        Left after = left();
        if (after.metadata > before.metadata) { // it may be kept for the next time; a leak repeats
            before.metadata = after.metadata;
            run(pool, round, &fault);
            after = left();
        }
        if (!gives_back(fault.call)) {
            EXPECT_LE(after.objects, before.objects);
            EXPECT_LE(after.descriptors, before.descriptors);
            EXPECT_LE(after.metadata, before.metadata);
        }
        alarm(0);
    }
    // A build or a machine may lack its library.
    static bool is_here(const char *pool) {
        umf_memory_pool_handle_t made = nullptr;
        bool is = umfPoolCreateFromText((std::string(pool) + " over os").c_str(), &made) == OK;
        return is && umfPoolDestroy(made) == OK;
    }
    void check_all(const char *pool, size_t round) {
        if (!is_here(pool)) {
            return;
        }
        run(pool, round, nullptr);
        run(pool, round, nullptr);
        for (const auto &[call, times] : count(pool, round)) {
            for (bool stays : {false, true}) {
                for (long n : chosen(times)) {
                    Left before = left();
                    check(pool, round, {call, n, stays}, before);
                }
            }
            Fault fault = {call, 1, true};
            run(pool, round, &fault, true);
        }
        run(pool, round, nullptr); // and all is well afterwards
    }
};

TEST_P(Faults, LoseNothingAndLeaveNothing) {
    if (backend.keeps.empty()) { // threads meet where content is kept
        ONE_THREAD_ONLY()
    }
    size_t rounds = std::max<size_t>(1, backend.keeps.size());
    for (size_t i = 0; i < backend.pools.size(); i++) {
        for (size_t round = 0; round < rounds; round++) {
            if (does_all() || i % rounds == round % backend.pools.size()) {
                check_all(backend.pools[i], round);
            }
        }
    }
}

// It is off, and can be turned on later.
TEST(ThreadFaults, ABackgroundThreadThatDoesNotStartIsOff) {
    const auto set = [](bool value) {
        return umfCtlSet("umf.reclaim.background", &value, sizeof(value));
    };
    const auto is_on = [] {
        bool value = false;
        EXPECT_EQ(umfCtlGet("umf.reclaim.background", &value, sizeof(value)), OK);
        return value;
    };
    is_main();
    system_fault = {"pthread_create"};
    system_left = 1;
    EXPECT_EQ(set(true), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(system_left, 0) << "no thread was requested";
    ASSERT_FALSE(is_on());
    EXPECT_EQ(set(false), OK);
    EXPECT_EQ(set(true), OK);
    EXPECT_TRUE(is_on());
    EXPECT_EQ(set(false), OK);
    EXPECT_FALSE(is_on());
}

INSTANTIATE_TEST_SUITE_P(Each, Faults, ::testing::Range(size_t{0}, backends().size()),
                         [](const auto &param) { return backends()[param.param].name; });

} // namespace faults
