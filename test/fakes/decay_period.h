/* The period of decay passes, while it lives. */
#ifndef UMF_TEST_FAKES_DECAY_PERIOD_H
#define UMF_TEST_FAKES_DECAY_PERIOD_H

#include <atomic>
#include <cstdint>

extern "C" std::atomic<uint64_t> umf_decay_period; // cache/decay.h, which is C11 with atomics

class DecayPeriod {
  public:
    static constexpr uint64_t NONE = 0; // every slow path of a pool is a look, but its first
    static constexpr uint64_t ENDLESS = UINT64_C(1) << 60; // no look, however slow this machine is

    explicit DecayPeriod(uint64_t period) : old(umf_decay_period.exchange(period)) {}
    ~DecayPeriod() {
        umf_decay_period = old;
    }
    DecayPeriod(const DecayPeriod &) = delete;
    DecayPeriod &operator=(const DecayPeriod &) = delete;

  private:
    const uint64_t old;
};

#endif
