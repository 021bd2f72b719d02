// The clocks of decay: when a pass is due, whose it is, and how much it releases.
#include <gtest/gtest.h>
#include <umf.h>

#include "fakes/child.h"
#include "fakes/decay_period.h"

extern "C" {
#include "base/thread_slot.h"
#include "cache/decay.h"
}

namespace {

// Is a clock due whose pass was due `late` nanoseconds ago?
bool is_due(uint64_t late) {
    umf_decay_t decay;
    decay.next = umf_decay_now() - late;
    return umf_decay_is_due(&decay);
}

constexpr uint64_t SECOND = 1000000000;
constexpr uint64_t HOUR = 3600 * SECOND; // longer than any machine stops
constexpr size_t MiB = size_t{1} << 20;

class Decay : public testing::Test {
  protected:
    DecayPeriod period{HOUR};
    void TearDown() override {
        umf_decay_set_thread(false);
        umf_thread_slot_tls.is_background = false;
    }
};

} // namespace

TEST_F(Decay, APassIsTheBackgroundThreadsWhileItIsNotLate) {
    EXPECT_TRUE(is_due(SECOND));
    umf_decay_set_thread(true);
    EXPECT_FALSE(is_due(SECOND)) << "a thread of the program leaves it alone";
    EXPECT_TRUE(is_due(HOUR)) << "the background thread is late";
    umf_thread_slot_tls.is_background = true;
    EXPECT_TRUE(is_due(SECOND));
    umf_thread_slot_tls.is_background = false;
    umf_decay_set_thread(false);
    EXPECT_TRUE(is_due(SECOND));
}

TEST_F(Decay, AChildOfForkHasNoBackgroundThread) {
    ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS); // registers the handlers of fork
    umf_decay_set_thread(true);
    EXPECT_TRUE(in_child([] { return is_due(SECOND); }));
    EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
}

// What did not finish is continued soon, not after half a period.
TEST_F(Decay, ATickThatDidNotFinishIsContinuedSoon) {
    umf_decay_is_tick_due(); // starts the clock
    EXPECT_GT(umf_decay_tick_wait(), HOUR / 4);
    umf_decay_tick_soon();
    EXPECT_LE(umf_decay_tick_wait(), SECOND / 20);
}

// Threads that ask for one again and again do not put it off.
TEST_F(Decay, ATickThatIsDueStaysDue) {
    DecayPeriod none(DecayPeriod::NONE);
    umf_decay_is_tick_due(); // it is due at once, with this period
    umf_decay_is_tick_due();
    DecayPeriod hour(HOUR);
    EXPECT_EQ(umf_decay_tick_wait(), 0U);
    umf_decay_tick_soon();
    EXPECT_EQ(umf_decay_tick_wait(), 0U);
}

TEST_F(Decay, OnlyTheBackgroundThreadReleasesMuchAtOnce) {
    EXPECT_EQ(umf_decay_bytes(), 8 * MiB);
    umf_thread_slot_tls.is_background = true;
    DecayPeriod none(DecayPeriod::NONE); // every question is a tick
    umf_decay_is_tick_due();
    umf_decay_is_tick_due();
    EXPECT_EQ(umf_decay_bytes(), 64 * MiB);
    for (size_t bytes : {128, 256, 512, 1024, 1024}) {
        umf_decay_tick_soon();
        EXPECT_TRUE(umf_decay_is_tick_due());
        EXPECT_EQ(umf_decay_bytes(), bytes * MiB) << "more while it does not finish";
    }
    EXPECT_TRUE(umf_decay_is_tick_due());
    EXPECT_EQ(umf_decay_bytes(), 64 * MiB) << "the last tick finished";
}
