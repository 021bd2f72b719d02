// Allocating and freeing in the order of streams: pools against the driver's stream ordered
// allocator.
#include "gpu.h"

#include <umf.h>
#include <umf/queue.h>
#include <umf/text.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

namespace gpu {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

const char *const kinds[] = {"coalescing over cuda_vmm:device=0", "disjoint over cuda_vmm:device=0",
                             "coalescing over cuda:device=0"};

// Memory that is allocated and freed on streams.
struct Ordered {
    virtual ~Ordered() = default;
    virtual void *alloc(size_t size, CUstream stream) = 0;
    virtual bool free(void *ptr, CUstream stream) = 0;
};

struct OrderedPool : Ordered {
    umf_memory_pool_handle_t pool = nullptr;
    explicit OrderedPool(const char *text) {
        if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
            pool = nullptr;
        }
    }
    ~OrderedPool() override {
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    void *alloc(size_t size, CUstream stream) override {
        return pool ? umfPoolMallocOn(pool, size, 0, stream) : nullptr;
    }
    bool free(void *ptr, CUstream stream) override {
        return umfFreeOn(ptr, stream) == UMF_RESULT_SUCCESS;
    }
};

// The driver's; `keeps`: it keeps its memory, and releases it at the end.
struct OrderedDriver : Ordered {
    std::unique_ptr<Subject> keeps = make_async();
    void *alloc(size_t size, CUstream stream) override {
        CUdeviceptr ptr;
        return keeps && driver.cuMemAllocAsync(&ptr, size, stream) == CUDA_SUCCESS
                   ? reinterpret_cast<void *>(ptr)
                   : nullptr;
    }
    bool free(void *ptr, CUstream stream) override {
        return driver.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(ptr), stream) == CUDA_SUCCESS;
    }
};

struct OnOne : Subject {
    std::unique_ptr<Ordered> memory;
    explicit OnOne(std::unique_ptr<Ordered> made) : memory(std::move(made)) {}
    bool pair(size_t size, CUstream stream) override {
        void *ptr = memory->alloc(size, stream);
        return ptr && memory->free(ptr, stream);
    }
};

// Freed on one stream, which is idle, and wanted on another: twice in each step, so that the
// memory is back where it was.
struct FromOneToAnother : Subject {
    std::unique_ptr<Ordered> memory;
    CUstream other = nullptr;
    explicit FromOneToAnother(std::unique_ptr<Ordered> made) : memory(std::move(made)) {
        GPU_CALL(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    }
    ~FromOneToAnother() override {
        umfQueueEnds(other);
        GPU_CALL(cuStreamDestroy(other));
    }
    bool pair(size_t size, CUstream stream) override {
        void *ptr = memory->alloc(size, stream);
        bool good = ptr && memory->free(ptr, stream);
        ptr = good ? memory->alloc(size, other) : nullptr;
        return ptr && memory->free(ptr, other);
    }
};

std::unique_ptr<Ordered> make(const char *kind) {
    return kind ? std::unique_ptr<Ordered>(std::make_unique<OrderedPool>(kind))
                : std::make_unique<OrderedDriver>();
}

template <class Way> double time_of(const char *kind, size_t size, unsigned threads) {
    if (size * threads > free_bytes() / 3) {
        return 0;
    }
    Way way(make(kind));
    return time_pairs(way, size, threads);
}

void print_time(double ns) {
    ns > 0 ? printf(" %34.1f", ns) : printf(" %34s", "-");
}

template <class Way>
void print_row(const char *what, size_t size, unsigned threads, double bound, double torch) {
    double best = 0;
    printf("%-12s %-8s %-8u", what, text(size).c_str(), threads);
    for (const char *kind : kinds) {
        const double ns = time_of<Way>(kind, size, threads);
        best = ns > 0 && (best == 0 || ns < best) ? ns : best;
        print_time(ns);
    }
    const double driver_ns = time_of<Way>(nullptr, size, threads);
    print_time(driver_ns);
    puts("");
    const std::string name =
        std::string(what) + " " + text(size) + ", " + std::to_string(threads) + " threads: ";
    if (best > 0 && driver_ns > 0) {
        print_target(name + "best pool / cuMemAllocAsync", best / driver_ns, bound);
    }
    if (best > 0 && torch > 0) {
        print_target(name + "best pool / PyTorch", best / torch, 0.1);
    }
}

void run_times() {
    auto torch = read_torch();
    std::vector<size_t> sizes = {512, 4 * KiB, 64 * KiB, MiB, 16 * MiB, 128 * MiB};
    if (options.quick) {
        sizes = {512, 64 * KiB, 16 * MiB};
    }
    printf("\nAllocate and free on streams, ns per pair and thread\n%-12s %-8s %-8s", "", "size",
           "threads");
    for (const char *kind : kinds) {
        printf(" %34s", kind);
    }
    printf(" %34s\n", "cuMemAllocAsync");
    for (size_t size : sizes) {
        for (unsigned threads : {1u, 16u}) {
            print_row<OnOne>("one stream", size, threads, size <= 64 * KiB ? 0.06 : 0.1,
                             torch[{size, threads}]);
        }
    }
    for (size_t size : sizes) {
        print_row<FromOneToAnother>("two streams", size, 1, 0.3, 0);
    }
}

// --- two streams in turns ------------------------------------------------------------------------

struct Block {
    void *ptr;
    size_t size;
};

struct Turns {
    Ordered &memory;
    size_t largest, live_limit, before = free_bytes();
    size_t live = 0, most_live = 0, most_held = 0;
    bool failed = false;
    std::mt19937 random{1};
    CUstream streams[2] = {};
    std::vector<Block> blocks[2] = {};

    void free_one(int turn) {
        std::vector<Block> &mine = blocks[turn];
        std::swap(mine[random() % mine.size()], mine.back());
        live -= mine.back().size;
        failed = !memory.free(mine.back().ptr, streams[turn]) || failed;
        mine.pop_back();
    }
    void alloc_one(int turn) {
        const size_t size = largest / 100 + random() % (largest - largest / 100);
        while (live + size > live_limit && !blocks[turn].empty()) {
            free_one(turn);
        }
        if (live + size > live_limit) {
            return; // the other stream has it all
        }
        void *ptr = memory.alloc(size, streams[turn]);
        failed = !ptr || failed;
        if (ptr) {
            driver.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, size, streams[turn]);
            blocks[turn].push_back({ptr, size});
            live += size;
            most_live = std::max(most_live, live);
            most_held = std::max(most_held, before - std::min(before, free_bytes()));
        }
    }
    void run(int steps) {
        for (int step = 0; step < steps && !failed; step++) {
            const int turn = step % 2;
            for (unsigned i = random() % 4; i > 0 && !blocks[turn].empty(); i--) {
                free_one(turn);
            }
            for (unsigned i = random() % 4; i > 0; i--) {
                alloc_one(turn);
            }
        }
        for (int turn : {0, 1}) {
            while (!blocks[turn].empty()) {
                free_one(turn);
            }
        }
    }
};

// Held / live; 0: it failed.
double run_turns_of(const char *kind, size_t largest, size_t live_limit) {
    std::unique_ptr<Ordered> memory = make(kind);
    Turns turns{*memory, largest, live_limit};
    for (CUstream &stream : turns.streams) {
        GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    const Stopwatch watch;
    turns.run(options.quick ? 100 : 1000);
    const double seconds = watch.seconds();
    const char *name = kind ? kind : "cuMemAllocAsync";
    printf("%-34s %10.1f %10.1f %10.3f%s\n", name, double(turns.most_live) / MiB,
           double(turns.most_held) / MiB, seconds, turns.failed ? "  out of memory" : "");
    for (CUstream stream : turns.streams) {
        GPU_CALL(cuStreamSynchronize(stream));
        umfQueueEnds(stream);
        GPU_CALL(cuStreamDestroy(stream));
    }
    return turns.failed ? 0 : double(turns.most_held) / double(turns.most_live);
}

void run_turns() {
    const size_t room = free_bytes();
    const size_t live = std::min<size_t>(room / 2, 16384 * MiB);
    const size_t largest = std::min<size_t>(1000 * MiB, live / 8);
    printf("\nTwo streams in turns, blocks up to %zu MiB: MiB live, MiB held, s\n", largest / MiB);
    double best = 0;
    for (const char *kind : kinds) {
        const double ratio = run_turns_of(kind, largest, live);
        best = ratio > 0 && (best == 0 || ratio < best) ? ratio : best;
    }
    if (driver.cuMemAllocAsync) {
        run_turns_of(nullptr, largest, live);
    }
    print_target("two streams in turns: held / live of the best pool", best > 0 ? best : 99, 1.25);
}

} // namespace

void run_queues() {
    run_times();
    if (driver.cuMemsetD8Async) {
        run_turns();
    }
}

} // namespace gpu
