/* While it lives, every slow path of a pool is a look for what has decayed, but a pool's first. */
#ifndef UMF_TEST_FAKES_SHORT_DECAY_H
#define UMF_TEST_FAKES_SHORT_DECAY_H

#include <atomic>
#include <cstdint>

extern "C" std::atomic<uint64_t> umf_decay_period; // base/decay.h, which is C11 with atomics

class ShortDecay {
  public:
    ShortDecay() : old(umf_decay_period.exchange(0)) {}
    ~ShortDecay() {
        umf_decay_period = old;
    }
    ShortDecay(const ShortDecay &) = delete;
    ShortDecay &operator=(const ShortDecay &) = delete;

  private:
    uint64_t old;
};

#endif
