// A recorded sequence of allocations through our pools: what they hold, and what an event costs.
#include "gpu.h"
#include "trace.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/record.h>
#include <umf/text.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace gpu {
namespace {

constexpr double GB = 1e9;

struct Held {
    const char *failure = nullptr;
    size_t provider = 0;        // peak of the pool's bytes from its provider
    size_t device = 0;          // the same as the device sees it; 0: not known
    double ns = 0;              // per event
    std::vector<size_t> course; // the pool's bytes after each allocation
};

size_t held_now(umf_memory_provider_handle_t provider) {
    size_t bytes = 0;
    umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &bytes, sizeof(bytes), provider);
    return bytes;
}

// nullptr: it went well.
const char *replay_once(const trace::Trace &trace, const std::string &text, Held &held,
                        bool is_timed) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    const bool on_device = driver.cuMemGetInfo != nullptr;
    const size_t before = on_device ? free_bytes() : 0;
    if (umfPoolCreateFromText(text.c_str(), &pool) != UMF_RESULT_SUCCESS) {
        return "the pool was not created";
    }
    umfPoolGetMemoryProvider(pool, &provider);
    const auto look = [&] {
        const size_t now = held_now(provider);
        held.course.push_back(now);
        if (now > held.provider) {
            held.provider = now;
            const size_t free = on_device ? free_bytes() : before;
            held.device = std::max(held.device, before > free ? before - free : 0);
        }
    };
    const Stopwatch watch;
    const bool good =
        is_timed ? trace::replay(trace, pool, nullptr) : trace::replay(trace, pool, look);
    if (is_timed) {
        const double ns = watch.seconds() * 1e9 / static_cast<double>(trace.events.size());
        held.ns = held.ns > 0 ? std::min(held.ns, ns) : ns;
    }
    const umf_result_t result = umfPoolDestroy(pool);
    return !good                          ? "an allocation or a free failed"
           : result != UMF_RESULT_SUCCESS ? "the pool was not destroyed"
                                          : nullptr;
}

Held measure(const trace::Trace &trace, const std::string &text) {
    Held held;
    for (int round = 0; round < 3 && !held.failure; round++) {
        held.failure = replay_once(trace, text, held, round > 0);
    }
    return held;
}

void print_held(const std::string &name, const trace::Trace &trace, const Held &held) {
    const auto live = static_cast<double>(trace.peak_live);
    if (held.failure) {
        printf("  %-32s %s\n", name.c_str(), held.failure);
        return;
    }
    printf("  %-32s %12.3f %12.3f", name.c_str(), static_cast<double>(held.provider) / GB,
           static_cast<double>(held.provider) / live);
    if (held.device) {
        printf(" %12.3f", static_cast<double>(held.device) / live);
    } else {
        printf(" %12s", "-");
    }
    if (held.ns > 0) {
        printf(" %12.1f", held.ns);
    }
    printf("\n");
}

// Live bytes after each allocation.
std::vector<size_t> live_course(const trace::Trace &trace) {
    std::vector<size_t> sizes(trace.blocks), course;
    size_t live = 0;
    for (const trace::Event &event : trace.events) {
        live = event.size ? live + event.size : live - sizes[event.id];
        sizes[event.id] = event.size;
        if (event.size) {
            course.push_back(live);
        }
    }
    return course;
}

// Lines "<name>\t<most bytes in each of equal parts of the sequence>", and what PyTorch reserved.
class Course {
    std::ofstream file;

  public:
    explicit Course(const trace::Trace &trace) : file(options.course) {
        if (trace.reserved) {
            add("PyTorch, peak", {trace.reserved});
        }
        add("live", live_course(trace));
    }
    void add(const std::string &name, const std::vector<size_t> &course) {
        const size_t parts = std::min<size_t>(course.size(), 400);
        file << name;
        for (size_t i = 0; i < parts; i++) {
            const auto from = course.begin() + static_cast<long>(i * course.size() / parts);
            const auto to = course.begin() + static_cast<long>((i + 1) * course.size() / parts);
            file << '\t' << *std::max_element(from, to);
        }
        file << '\n';
    }
    bool is_written() {
        return options.course.empty() || file.flush().good();
    }
};

} // namespace

bool run_replay(const std::string &path, const std::string &over) {
    trace::Trace trace;
    std::string error;
    if (!trace::read_file(path.c_str(), trace, error)) {
        fprintf(stderr, "umf-bench-gpu: %s: %s\n", path.c_str(), error.c_str());
        return false;
    }
    printf("\n%s: %zu events, %zu blocks, at most %.3f GB live; over %s\n", path.c_str(),
           trace.events.size(), trace.blocks, static_cast<double>(trace.peak_live) / GB,
           over.c_str());
    printf("  %-32s %12s %12s %12s %12s\n", "", "held GB", "held / live", "on device",
           "ns / event");
    Held torch;
    if (trace.reserved) {
        torch.provider = trace.reserved;
        print_held("PyTorch, as recorded", trace, torch);
    }
    bool good = true;
    Course course(trace);
    for (const char *kind : {"coalescing", "coalescing:arena=yes", "disjoint", "jemalloc"}) {
        umfRecordMark(kind); // for the picture of docs/guide/peak.md
        const Held held = measure(trace, std::string(kind) + " over " + over);
        const bool is_judged = std::string(kind) == "coalescing";
        print_held(kind, trace, held);
        course.add(kind, held.course);
        if (is_judged && !held.failure) {
            const size_t most = std::max(held.provider, held.device);
            print_target("held / live, coalescing, " + path.substr(path.rfind('/') + 1),
                         static_cast<double>(most) / static_cast<double>(trace.peak_live), 1.15);
        }
        good = good && !(is_judged && held.failure);
    }
    if (!course.is_written()) {
        fprintf(stderr, "umf-bench-gpu: %s cannot be written\n", options.course.c_str());
    }
    return good && course.is_written();
}

} // namespace gpu
