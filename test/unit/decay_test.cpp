// The clocks of decay: when a pass is due, whose it is, and how much it releases.
#include <gtest/gtest.h>
#include <umf.h>

#include "decay_shim.h"
#include "fakes/child.h"
#include "fakes/decay_period.h"

namespace {

constexpr uint64_t SECOND = 1000000000;
constexpr uint64_t HOUR = 3600 * SECOND; // longer than any machine stops
constexpr size_t MiB = size_t{1} << 20;

class Decay : public testing::Test {
  protected:
    DecayPeriod period{HOUR};
    void TearDown() override {
        shim_set_thread(false);
        shim_become_thread(false);
    }
};

} // namespace

TEST_F(Decay, APassIsTheBackgroundThreadsWhileItIsNotLate) {
    EXPECT_TRUE(shim_is_due(SECOND));
    shim_set_thread(true);
    EXPECT_FALSE(shim_is_due(SECOND)) << "a thread of the program leaves it alone";
    EXPECT_TRUE(shim_is_due(HOUR)) << "the background thread is late";
    shim_become_thread(true);
    EXPECT_TRUE(shim_is_due(SECOND));
    shim_become_thread(false);
    shim_set_thread(false);
    EXPECT_TRUE(shim_is_due(SECOND));
}

TEST_F(Decay, AChildOfForkHasNoBackgroundThread) {
    ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS); // registers the handlers of fork
    shim_set_thread(true);
    EXPECT_TRUE(in_child([] { return shim_is_due(SECOND); }));
    EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
}

// What did not finish is continued soon, not after half a period.
TEST_F(Decay, ATickThatDidNotFinishIsContinuedSoon) {
    shim_is_tick_due(); // starts the clock
    EXPECT_GT(shim_tick_wait(), HOUR / 4);
    shim_tick_soon();
    EXPECT_LE(shim_tick_wait(), SECOND / 20);
}

// Threads that ask for one again and again do not put it off.
TEST_F(Decay, ATickThatIsDueStaysDue) {
    DecayPeriod none(DecayPeriod::NONE);
    shim_is_tick_due(); // it is due at once, with this period
    shim_is_tick_due();
    DecayPeriod hour(HOUR);
    EXPECT_EQ(shim_tick_wait(), 0U);
    shim_tick_soon();
    EXPECT_EQ(shim_tick_wait(), 0U);
}

TEST_F(Decay, OnlyTheBackgroundThreadReleasesMuchAtOnce) {
    EXPECT_EQ(shim_bytes(), 8 * MiB);
    shim_become_thread(true);
    DecayPeriod none(DecayPeriod::NONE); // every question is a tick
    shim_is_tick_due();
    shim_is_tick_due();
    EXPECT_EQ(shim_bytes(), 64 * MiB);
    for (size_t bytes : {128, 256, 512, 1024, 1024}) {
        shim_tick_soon();
        EXPECT_TRUE(shim_is_tick_due());
        EXPECT_EQ(shim_bytes(), bytes * MiB) << "more while it does not finish";
    }
    EXPECT_TRUE(shim_is_tick_due());
    EXPECT_EQ(shim_bytes(), 64 * MiB) << "the last tick finished";
}
