// Recorded sequences of allocations: a text file (README.md), and its replay through a pool.
#ifndef UMF_BENCHMARK_TRACE_H
#define UMF_BENCHMARK_TRACE_H

#include <umf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <vector>

namespace trace {

struct Event {
    uint32_t id; // of a block: 0, 1, 2, ... in the order they were allocated
    size_t size; // 0: free
};

struct Trace {
    std::vector<Event> events;
    size_t blocks = 0;
    size_t allocated = 0, reserved = 0; // peaks that the recorded program saw; 0: unknown
    size_t peak_live = 0;               // bytes, computed
};

// false: `error` has the line and its fault.
bool read(std::istream &file, Trace &trace, std::string &error);
bool read_file(const char *path, Trace &trace, std::string &error);

// Serves all events from the pool, and frees the rest. false: an allocation or a free failed.
// `after`, if there is one, is called after each allocation.
bool replay(const Trace &trace, umf_memory_pool_handle_t pool, const std::function<void()> &after);

} // namespace trace

#endif
