// Shared by the parts of umf-bench: results, rounds of a job on pinned threads, subjects.
#ifndef UMF_BENCHMARK_BENCH_H
#define UMF_BENCHMARK_BENCH_H

#include <umf.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

namespace bench {

constexpr int MAX_THREADS = 64;

// One part of the benchmark; each is a run of its own.
enum class Mode { time, instructions, memory, programs, threads, grid, judge };

struct Options {
    Mode mode = Mode::time;
    bool quick = false;
    unsigned rounds = 7;
    double round_ns = 5e6;                       // length of one round of one subject
    std::string filter;                          // run the blocks whose name contains this
    std::vector<int> threads = {1, 2, 4, 8, 16}; // of Mode::threads
    std::string folder;                          // of Mode::judge
    bool side_by_side = false;                   // of Mode::judge
    double seconds = 0;                          // of Mode::judge; 0: all rounds
};
extern Options options;
const char *mode_name();

uint64_t now_ns();
size_t resident_bytes();
size_t available_bytes();
int usable_cpus();
// Programs that wanted a core in the last minute.
double load_average();
void pin_to_cpu(int index);

struct Rng {
    uint64_t state;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
};

template <class T> void shuffle(std::vector<T> &items) {
    Rng rng = {88172645463325252u};
    for (size_t i = items.size(); i > 1; --i) {
        std::swap(items[i - 1], items[rng.next() % i]);
    }
}

// --- results
// ------------------------------------------------------------------------------------------

// A key is "case/size/threads/subject" or "case/subject"; targets.def refers to results by key.
struct Result {
    std::string key, unit;
    double best, median;
    std::vector<double> values; // of the rounds
};

struct Verdict {
    std::string what, unit;
    double value, must, stretch;
    bool measured;
    const char *word;
};

struct Samples {
    std::vector<double> values;
    void add(double value) {
        values.push_back(value);
    }
    // Subtracts the loop's best time from each value.
    void subtract(const Samples &loop);
    double best() const;
    double median() const;
};

class Report {
  public:
    void add(const std::string &key, const std::string &unit, const Samples &samples);
    void add(const std::string &key, const std::string &unit, double value);
    void absent(const std::string &key, const std::string &why);
    const Result *find(const std::string &key) const;
    // Prints the targets decided by results added since the last call.
    void print_new_targets();
    void print_summary() const;
    bool write_json(const std::string &path) const;

  private:
    std::vector<Result> results;
    std::map<std::string, size_t> index;
    std::vector<std::pair<std::string, std::string>> missing;
    size_t seen = 0;
};
extern Report report;

// True if the block is to run; prints nothing.
bool wanted(const std::string &block);
void print_title(const std::string &title);
void print_row(const std::string &subject, const Samples &samples, const char *unit,
               const std::string &note = "");
void print_absent(const std::string &subject, const std::string &why);

// --- jobs
// ---------------------------------------------------------------------------------------------

// One timed piece of work. `run` performs `ops` operations; only `run` is timed.
struct Job {
    uint64_t ops = 1;
    int threads = 1; // of the round that runs
    std::atomic<uint64_t> failed{
        0}; // operations that returned an error; the result is void if not 0
    virtual ~Job() = default;
    virtual void prepare(int) {}
    virtual void run(int thread) = 0;
    virtual void finish(int) {}
};

// Runs the job on that many pinned threads; nanoseconds per operation and core.
double run_round(Job &job, int threads);
// The same on so many threads of each of so many processes. Each process makes its own job and
// first runs `warm` operations. It shows the cost of the machine when nothing is shared. Negative:
// a process failed.
double run_round_apart(const std::function<std::unique_ptr<Job>()> &make, uint64_t warm,
                       uint64_t ops, int processes, int threads_each);
// Sets `ops` so that a round takes about options.round_ns, in multiples of `unit`.
void calibrate(Job &job, uint64_t unit, int threads = 1);

// A job that repeats a callable returning true on success.
template <class F> struct FnJob final : Job {
    F f;
    explicit FnJob(F callable) : f(std::move(callable)) {}
    void run(int) override {
        uint64_t bad = 0;
        for (uint64_t i = 0; i < ops; ++i) {
            bad += !f(i);
        }
        failed += bad;
    }
};
template <class F> std::unique_ptr<Job> make_fn_job(F f) {
    return std::make_unique<FnJob<F>>(std::move(f));
}

// --- subjects
// -----------------------------------------------------------------------------------------

// How a subject is called. Every subject is called through function pointers kept in registers, so
// that none pays for a wrapper the others do not have.
enum class Shape {
    loop,  // nothing is called: the cost of the loop itself
    plain, // malloc(size), free(ptr)
    heap,  // malloc(ctx, size), free(ptr)
    pool,  // malloc(ctx, size), free(ctx, ptr)
};

struct Subject {
    std::string name;
    Shape shape = Shape::loop;
    void *malloc_fn = nullptr;
    void *free_fn = nullptr;
    void *ctx = nullptr;
    void *(*thread_ctx)() = nullptr; // replaces ctx where a heap belongs to one thread
    std::function<void()> trim;      // gives unused memory back to the system
    std::function<uint64_t()> provider_calls;
    std::shared_ptr<void> owned; // keeps pool and provider alive
    std::string absent;          // why it cannot run; empty if it can
};

enum class FreeBy { pointer, pool, queue };

Subject loop_subject();
// glibc, jemalloc, mimalloc heap, TBB pool, TBB scalable: always all, absent ones say why.
std::vector<Subject> peers();
extern const char *const peer_names[];
extern const size_t peer_count;
// Every pool over every provider, or over the OS provider only.
std::vector<Subject> pools(bool every_provider, FreeBy by = FreeBy::pointer);
Subject pool_subject(const char *pool, const char *provider, FreeBy by = FreeBy::pointer,
                     umf_pool_create_flags_t flags = UMF_POOL_CREATE_FLAG_NONE);
// "disjoint over os", "disjoint over os, umfPoolFree" or a peer's name; otherwise the loop.
Subject subject_by_name(const std::string &name);
// Allocates, writes, frees and finds memory once; fills in `absent` if that fails.
void check_subject(Subject &subject, size_t size);

// One call by shape; for set-up only, the timed loops call directly.
void *subject_malloc(const Subject &subject, size_t size);
void subject_free(const Subject &subject, void *ptr);

struct PoolKind {
    const char *name;
    const umf_memory_pool_ops_t *(*ops)(void);
};
extern const char *const not_built_in;
extern const PoolKind pool_kinds[];
extern const size_t pool_kind_count;
const umf_memory_pool_ops_t *pool_ops(const char *name);
// Heap-like objects of the peers, for comparing creation.
std::unique_ptr<Job> peer_create_job(const char *peer);

// Provider kinds: "os", "os shared", "file", "file shared" (a file in /var/tmp), "fixed", "chunks"
// (a user's trivial provider over mmap), "reserve" (hands out addresses without access, so
// spans cost no memory), "null" (always the same address, `reserve` without any work), "queues"
// ("chunks" with queues).
class Provider {
  public:
    explicit Provider(const char *kind);
    ~Provider();
    Provider(const Provider &) = delete;
    Provider &operator=(const Provider &) = delete;
    umf_memory_provider_handle_t handle = nullptr;
    std::string error;
    std::atomic<uint64_t> calls{0}; // counted by the user-written kinds

  private:
    void *range = nullptr;
    size_t range_size = 0;
};

// A queue of the kind "queues"; its address is the handle.
struct Queue {
    std::atomic<bool> is_busy{false}; // its work is not done
};

class Pool {
  public:
    Pool(const char *pool, const char *provider,
         umf_pool_create_flags_t flags = UMF_POOL_CREATE_FLAG_NONE);
    Pool(const umf_memory_pool_ops_t *ops, const char *provider);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    Provider provider;
    umf_memory_pool_handle_t handle = nullptr;
    std::string error;

  private:
    void create(const umf_memory_pool_ops_t *ops, umf_pool_create_flags_t flags);
};

std::string result_text(umf_result_t result);

// The function of that name. NULL: another libumf with the same API does not have it.
#define UMF_BENCH_OPTIONAL(name) (bench::find_function<decltype(&name)>(#name))
template <class F> F find_function(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    F function;
    memcpy(&function, &address, sizeof(function));
    return function;
}
// A pool that does nothing: what remains is the framework's own cost.
const umf_memory_pool_ops_t *empty_pool_ops();

// --- cases
// --------------------------------------------------------------------------------------------

enum class Case { pair, fifo, lifo, shuffled, churn, handover };
constexpr uint64_t BATCH = 1000;
// `size` 0 means mixed sizes of 16 B to 16 KiB (churn only).
std::unique_ptr<Job> make_job(Case which, const Subject &subject, size_t size);
std::string size_name(size_t size);

// Small operations other than allocation, one table for the timed and the counted mode.
struct Micro {
    const char *group;
    const char *name;
    std::unique_ptr<Job> (*make)(std::string &why); // NULL, with the reason, if it cannot run
    uint64_t counted;                               // repetitions in the counted mode
};
extern const Micro micros[];
extern const size_t micro_count;

void run_allocation_cases();
void run_micro_cases();
void run_system_cases();
void run_memory_cases();
void run_many_pools();
int run_memory_child(const std::string &what, const std::string &arg1, const std::string &arg2);
void run_thread_cases();
void run_grid();
// 0, or the exit status of a folder without programs.
int run_judge(const std::string &folder);
void run_sequences();
void run_programs();
// The preload library: beside this program, else where it was built.
std::string proxy_path();
int run_system_child(const std::string &what, const std::string &arg1, const std::string &arg2);

// --- snapshot.cpp
// ------------------------------------------------------------------------------------

void run_snapshot();
int child_snapshot();

int run_ir();
int run_ir_child(const std::string &op, uint64_t n);

std::string self_path();
std::string beside_us(const char *file); // in the folder of this program
// Runs this program or another and returns its standard output; empty and `error` set, to its first
// line of output if there is one, if it failed.
std::string run_program(const std::vector<std::string> &args, std::string &error);
// The lines "name value" of a child of this program (`run_system_child`), by name.
std::map<std::string, double> run_child(const std::string &what, const std::string &arg1,
                                        const std::string &arg2, std::string &error);

} // namespace bench

#endif
