/* Counts of the allocations of PyTorch. */
#include "torch_counts.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

#include <sched.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

/* Held for some ns, on the way of each allocation: half the cost of a mutex. */
class spin_lock_t {
    std::atomic<bool> is_held{false};

  public:
    void lock() {
        while (is_held.exchange(true, std::memory_order_acquire)) {
            sched_yield();
        }
    }
    void unlock() {
        is_held.store(false, std::memory_order_release);
    }
};

struct count_t {
    uint64_t current, peak;
    uint64_t allocated; /* since the last reset of totals */
    uint64_t before;    /* the current value then */

    void add(uint64_t amount) {
        current += amount;
        allocated += amount;
        peak = peak < current ? current : peak;
    }
};

struct counts_t {
    alignas(64) spin_lock_t lock;
    count_t blocks, bytes, requested; /* Sync: lock, as the next */
    uint64_t retries, failures;
};

counts_t all[MAX_DEVICES];

using guard_t = std::lock_guard<spin_lock_t>;

bool has_counts(int device) {
    return device >= 0 && device < MAX_DEVICES;
}

uint64_t size_of_block(size_t size) {
    return (size + TORCH_GRANULE - 1) & ~uint64_t{TORCH_GRANULE - 1};
}

} // namespace

void count_alloc(int device, size_t size) {
    if (has_counts(device)) {
        counts_t &counts = all[device];
        guard_t guard(counts.lock);
        counts.blocks.add(1);
        counts.bytes.add(size_of_block(size));
        counts.requested.add(size);
    }
}

void count_free(int device, size_t size) {
    if (has_counts(device)) {
        counts_t &counts = all[device];
        guard_t guard(counts.lock);
        counts.blocks.current--;
        counts.bytes.current -= size_of_block(size);
        counts.requested.current -= size;
    }
}

void count_retry(int device) {
    if (has_counts(device)) {
        guard_t guard(all[device].lock);
        all[device].retries++;
    }
}

void count_out_of_memory(int device) {
    if (has_counts(device)) {
        guard_t guard(all[device].lock);
        all[device].failures++;
    }
}

/* --- for umf.torch, of a device below 64 ------------------------------------------------------ */

struct umf_torch_count_t {
    uint64_t current, peak, allocated, freed;
};

struct umf_torch_counts_t {
    umf_torch_count_t blocks, bytes, requested;
    uint64_t retries, failures;
};

static umf_torch_count_t report(const count_t &count) {
    uint64_t freed = count.before + count.allocated - count.current;
    return {count.current, count.peak, count.allocated, freed};
}

EXPORTED void umf_torch_process_counts(int device, umf_torch_counts_t *read) {
    const counts_t &counts = all[device];
    guard_t guard(all[device].lock);
    *read = {report(counts.blocks), report(counts.bytes), report(counts.requested), counts.retries,
             counts.failures};
}

EXPORTED void umf_torch_process_reset_peaks(int device) {
    counts_t &counts = all[device];
    guard_t guard(counts.lock);
    for (count_t *count : {&counts.blocks, &counts.bytes, &counts.requested}) {
        count->peak = count->current;
    }
}

EXPORTED void umf_torch_process_reset_totals(int device) {
    counts_t &counts = all[device];
    guard_t guard(counts.lock);
    for (count_t *count : {&counts.blocks, &counts.bytes, &counts.requested}) {
        count->allocated = 0;
        count->before = count->current;
    }
    counts.retries = counts.failures = 0;
}
