// A snapshot of a large process: how long it takes, and how long it stops a thread that allocates.
// The longest wait of the same thread without snapshots is measured, too: on a busy machine other
// programs stop it as well.
#include "bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <unistd.h>

#include <umf/record.h>
#include <umf/text.h>

namespace bench {

namespace {

constexpr size_t POOLS = 10000, SPANS = 1000000, SPAN = 4096;

bool fill(std::vector<umf_memory_pool_handle_t> &pools) {
    for (umf_memory_pool_handle_t &pool : pools) {
        if (UMF_BENCH_OPTIONAL(umfPoolCreateFromText)("proxy over os", &pool) !=
            UMF_RESULT_SUCCESS) {
            return false;
        }
    }
    for (size_t i = 0; i < SPANS; ++i) {
        if (!umfPoolMalloc(pools[i % POOLS], SPAN)) {
            return false;
        }
    }
    return true;
}

// Frees and allocates until `phase` is 2; `longest`: of both, by phase, in ns.
void work(const std::vector<umf_memory_pool_handle_t> &pools, const std::atomic<int> &phase,
          uint64_t (&longest)[3]) {
    std::vector<void *> mine(64);
    int now = 0;
    for (size_t i = 0; (now = phase) < 2; ++i) {
        const uint64_t begin = now_ns();
        const size_t at = i % mine.size();
        umfPoolFree(pools[at], mine[at]);
        mine[at] = umfPoolMalloc(pools[at], SPAN);
        longest[now] = std::max(longest[now], now_ns() - begin);
    }
}

} // namespace

// Lines "name value", for run_snapshot.
int child_snapshot() {
    std::vector<umf_memory_pool_handle_t> pools(POOLS);
    const std::string path = "/dev/shm/umf-bench-" + std::to_string(getpid());
    const auto snapshot = UMF_BENCH_OPTIONAL(umfRecordSnapshot);
    if (!snapshot) {
        printf("this libumf has no umfRecordSnapshot\n");
        return 1;
    }
    if (!fill(pools)) {
        printf("no memory for %zu spans\n", SPANS);
        return 1;
    }
    std::atomic<int> phase{0};
    uint64_t longest[3] = {};
    std::thread thread([&] { work(pools, phase, longest); });
    usleep(500000);
    phase = 1;
    uint64_t best = UINT64_MAX;
    bool is_good = true;
    for (int i = 0; i < 3 && is_good; ++i) {
        const uint64_t begin = now_ns();
        is_good = snapshot(path.c_str()) == UMF_RESULT_SUCCESS;
        best = std::min(best, now_ns() - begin);
    }
    phase = 2;
    thread.join();
    unlink(path.c_str());
    printf("snapshot %.1f\nstop %.3f\nquiet %.3f\n", static_cast<double>(best) / 1e6,
           static_cast<double>(longest[1]) / 1e6, static_cast<double>(longest[0]) / 1e6);
    return is_good ? 0 : 1;
}

void run_snapshot() {
    print_title("snapshot of 10000 pools with 1000000 spans, and the longest pair meanwhile");
    std::string error;
    auto values = run_child("snapshot", "", "", error);
    if (!error.empty()) {
        report.absent("snapshot/all", error);
        print_absent("snapshot", error);
        return;
    }
    printf("  %-20s %10.1f ms\n  %-20s %10.3f ms\n  %-20s %10.3f ms\n", "snapshot",
           values["snapshot"], "longest pair", values["stop"], "the same without", values["quiet"]);
    report.add("snapshot/all", "ms", values["snapshot"]);
    report.add("snapshot/stop", "ms", values["stop"]);
    report.add("snapshot/quiet", "ms", values["quiet"]);
    report.print_new_targets();
}

} // namespace bench
