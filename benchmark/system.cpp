// Cases that look at the whole process: lookup among many spans, first uses, many pools.
#include "bench.h"

#include <umf/experimental/memspace.h>
#include <umf/ipc.h>
#include <umf/queue.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

namespace {

// --- lookup among many spans
// --------------------------------------------------------------------------

struct ByPtrJob final : Job {
    const std::vector<char *> &ptrs;
    bool call;
    ByPtrJob(const std::vector<char *> &p, bool lookup) : ptrs(p), call(lookup) {}
    void run(int thread) override {
        const size_t count = ptrs.size();
        size_t at = count / MAX_THREADS * static_cast<size_t>(thread);
        uint64_t bad = 0;
        for (uint64_t i = 0; i < ops; ++i) {
            const char *ptr = ptrs[at];
            at = at + 1 == count ? 0 : at + 1;
            umf_memory_pool_handle_t pool;
            if (call) {
                bad += umfPoolByPtr(ptr, &pool) != UMF_RESULT_SUCCESS;
            } else {
                asm volatile("" : : "r"(ptr) : "memory");
            }
        }
        failed += bad;
    }
};

void run_lookups(const std::string &block, const std::vector<char *> &ptrs) {
    ByPtrJob loop(ptrs, false), lookup(ptrs, true);
    calibrate(lookup, 1);
    lookup.ops = std::max<uint64_t>(lookup.ops, ptrs.size());
    loop.ops = lookup.ops;
    Samples samples[3], overhead[3];
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (int threads = 1; threads <= 2; ++threads) {
            overhead[threads].add(run_round(loop, threads));
            samples[threads].add(run_round(lookup, threads));
        }
    }
    for (int threads = 1; threads <= 2; ++threads) {
        samples[threads].subtract(overhead[threads]);
        const std::string key = block + "/" + std::to_string(threads);
        if (lookup.failed) {
            report.absent(key, "lookups failed");
            print_absent(key, "lookups failed");
        } else {
            report.add(key, "ns", samples[threads]);
            print_row(key, samples[threads], "ns");
        }
    }
}

// Spans of 64 KiB, or of 4 KiB to 128 KiB ("mixed"); a pointer somewhere inside each.
void run_by_ptr(size_t count, bool mixed) {
    const std::string name = "byptr/" + std::to_string(count) + (mixed ? " mixed" : "");
    Pool pool("proxy", "reserve");
    std::vector<char *> ptrs, bases;
    Rng rng = {2463534242u};
    for (size_t i = 0; i < count && pool.handle; ++i) {
        const size_t size = mixed ? 4096 * (1 + rng.next() % 32) : 65536;
        char *base = static_cast<char *>(umfPoolMalloc(pool.handle, size));
        if (!base) {
            pool.error = "umfPoolMalloc failed at span " + std::to_string(i);
            break;
        }
        bases.push_back(base);
        ptrs.push_back(base + rng.next() % size);
    }
    if (!pool.error.empty()) {
        report.absent(name, pool.error);
        print_absent(name, pool.error);
    } else {
        run_lookups(name + " sequential", ptrs);
        shuffle(ptrs);
        run_lookups(name + " random", ptrs);
    }
    for (char *base : bases) {
        umfPoolFree(pool.handle, base);
    }
}

void run_by_ptr_cases() {
    print_title("umfPoolByPtr among live spans, by threads: ns, best and median");
    for (const size_t count : {size_t{1000}, size_t{100000}, size_t{1000000}}) {
        run_by_ptr(count, false);
    }
    run_by_ptr(1000000, true);
    report.print_new_targets();
}

// --- first touch
// --------------------------------------------------------------------------------------

// Writes one word in every 4 KiB of fresh memory; an operation is 2 MiB. Only the writes are timed.
struct TouchJob : Job {
    static constexpr size_t OBJECT = 65536, OBJECTS = 512;
    std::vector<char *> objects;
    TouchJob() {
        ops = OBJECT * OBJECTS >> 21;
    }
    void run(int) override {
        for (char *object : objects) {
            for (size_t at = 0; at < OBJECT; at += 4096) {
                *reinterpret_cast<volatile uint64_t *>(object + at) = at;
            }
        }
    }
};

struct MmapTouchJob final : TouchJob {
    int advice;
    void *map = nullptr;
    explicit MmapTouchJob(int a) : advice(a) {}
    void prepare(int) override {
        const size_t size = OBJECT * OBJECTS + (2 << 20);
        map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(map, size, advice);
        char *base = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(map) + (2 << 20) - 1) &
                                              ~uintptr_t{(2 << 20) - 1});
        for (size_t i = 0; i < OBJECTS; ++i) {
            objects.push_back(base + i * OBJECT);
        }
    }
    void finish(int) override {
        munmap(map, OBJECT * OBJECTS + (2 << 20));
        objects.clear();
    }
};

struct PoolTouchJob final : TouchJob {
    const char *kind;
    std::unique_ptr<Pool> pool;
    explicit PoolTouchJob(const char *k) : kind(k) {}
    void prepare(int) override {
        pool = std::make_unique<Pool>(kind, "os");
        for (size_t i = 0; i < OBJECTS && pool->handle; ++i) {
            char *ptr = static_cast<char *>(umfPoolMalloc(pool->handle, OBJECT));
            failed += ptr == nullptr;
            if (ptr) {
                objects.push_back(ptr);
            }
        }
        failed += pool->handle == nullptr;
    }
    void finish(int) override {
        for (char *ptr : objects) {
            umfPoolFree(pool->handle, ptr);
        }
        objects.clear();
        pool.reset();
    }
};

void run_first_touch() {
    MmapTouchJob small(MADV_NOHUGEPAGE), huge(MADV_HUGEPAGE);
    PoolTouchJob disjoint("disjoint"), jemalloc("jemalloc");
    struct Row {
        const char *name;
        Job *job;
        Samples samples;
    } rows[] = {{"mmap, 4 KiB pages", &small, {}},
                {"mmap, huge pages", &huge, {}},
                {"disjoint over os", &disjoint, {}},
                {"jemalloc over os", &jemalloc, {}}};
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (Row &row : rows) {
            row.samples.add(run_round(*row.job, 1));
        }
    }
    print_title("first touch of fresh memory: ns per 2 MiB, best and median");
    for (const Row &row : rows) {
        const std::string key = std::string("first touch/") + row.name;
        if (row.job->failed) {
            report.absent(key, "allocations failed");
            print_absent(row.name, "allocations failed");
        } else {
            report.add(key, "ns", row.samples);
            print_row(row.name, row.samples, "ns");
        }
    }
    report.print_new_targets();
}

// --- threads
// ------------------------------------------------------------------------------------------

// Measured by the thread under test about itself.
struct ThreadProbe {
    Job *use, *fill; // NULL: nothing
    uint64_t first_use, end, exit;
};

pthread_key_t last_key;

void thread_ended(void *arg) {
    ThreadProbe *probe = static_cast<ThreadProbe *>(arg);
    probe->exit = now_ns() - probe->end;
}

// A key's destructor runs after those of keys with lower numbers, so this one sees the libraries'
// own work at thread exit. (glibc releases its malloc cache later; that is not seen.)
void make_last_key() {
    pthread_key_t key;
    for (int i = 0; i < 200; ++i) {
        pthread_key_create(&key, nullptr);
    }
    pthread_key_create(&last_key, thread_ended);
}

void *probe_thread(void *arg) {
    ThreadProbe *probe = static_cast<ThreadProbe *>(arg);
    pin_to_cpu(0);
    if (probe->use) {
        const uint64_t begin = now_ns();
        probe->use->run(0);
        probe->first_use = now_ns() - begin;
    }
    if (probe->fill) {
        probe->fill->run(0);
    }
    pthread_setspecific(last_key, probe);
    probe->end = now_ns();
    return nullptr;
}

ThreadProbe run_probe(Job *use, Job *fill) {
    ThreadProbe probe = {use, fill, 0, 0, 0};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, probe_thread, &probe) == 0) {
        pthread_join(thread, nullptr);
    }
    return probe;
}

void run_threads() {
    std::vector<Subject> subjects = {loop_subject()};
    for (Subject &pool : pools(false)) {
        subjects.push_back(std::move(pool));
    }
    for (Subject &peer : peers()) {
        subjects.push_back(std::move(peer));
    }
    std::vector<std::unique_ptr<Job>> uses(subjects.size()), fills(subjects.size());
    for (size_t n = 0; n < subjects.size(); ++n) {
        check_subject(subjects[n], 64);
        if (subjects[n].absent.empty() && subjects[n].shape != Shape::loop) {
            uses[n] = make_job(Case::pair, subjects[n], 64);
            fills[n] = make_job(Case::lifo, subjects[n], 64);
            fills[n]->run(0);
        }
    }
    make_last_key();
    std::vector<Samples> first(subjects.size()), exits(subjects.size()), cached(subjects.size());
    for (unsigned i = 0; i < (options.quick ? 50u : 300u); ++i) {
        for (size_t n = 0; n < subjects.size(); ++n) {
            if (subjects[n].absent.empty()) {
                const ThreadProbe plain = run_probe(uses[n].get(), nullptr);
                first[n].add(static_cast<double>(plain.first_use));
                exits[n].add(static_cast<double>(plain.exit));
                const ThreadProbe full = run_probe(uses[n].get(), fills[n].get());
                cached[n].add(static_cast<double>(full.exit));
            }
        }
    }
    const struct {
        const char *name, *title;
        std::vector<Samples> &samples;
    } tables[] = {
        {"first use", "a thread's first malloc + free of 64 B: ns, best and median", first},
        {"exit", "thread exit after one malloc + free: ns, best and median", exits},
        {"exit, 1000 freed", "thread exit after 1,000 live objects were freed: ns", cached},
    };
    for (const auto &table : tables) {
        print_title(table.title);
        for (size_t n = 0; n < subjects.size(); ++n) {
            const Subject &s = subjects[n];
            if (s.absent.empty()) {
                report.add(std::string("thread/") + table.name + "/" + s.name, "ns",
                           table.samples[n]);
                print_row(s.shape == Shape::loop ? "(a thread that uses nothing)" : s.name,
                          table.samples[n], "ns");
            } else {
                print_absent(s.name, s.absent);
            }
        }
    }
    report.print_new_targets();
}

// --- many pools
// ---------------------------------------------------------------------------------------

int child_many_pools(const std::string &kind, const std::string &count_text) {
    const size_t count = strtoull(count_text.c_str(), nullptr, 10);
    Provider provider("os");
    const umf_memory_pool_ops_t *ops = pool_ops(kind.c_str());
    if (!provider.handle || !ops) {
        printf("%s\n", ops ? provider.error.c_str() : not_built_in);
        return 1;
    }
    std::vector<umf_memory_pool_handle_t> made;
    std::vector<void *> ptrs(count, nullptr);
    made.reserve(count);
    const size_t before = resident_bytes();
    const uint64_t t0 = now_ns();
    for (size_t i = 0; i < count; ++i) {
        umf_memory_pool_handle_t pool = nullptr;
        const umf_result_t result = umfPoolCreate(ops, provider.handle, nullptr, 0, &pool);
        if (result != UMF_RESULT_SUCCESS) {
            printf("pool %zu: %s\n", i, result_text(result).c_str());
            return 1;
        }
        made.push_back(pool);
    }
    const uint64_t t1 = now_ns();
    for (size_t i = 0; i < count; ++i) {
        ptrs[i] = umfPoolMalloc(made[i], 64);
        if (!ptrs[i]) {
            printf("first allocation of pool %zu failed\n", i);
            return 1;
        }
    }
    const uint64_t t2 = now_ns();
    const size_t held = resident_bytes() - before;
    shuffle(ptrs);
    const uint64_t t3 = now_ns();
    for (void *ptr : ptrs) {
        if (umfFree(ptr) != UMF_RESULT_SUCCESS) {
            printf("umfFree failed\n");
            return 1;
        }
    }
    const uint64_t t4 = now_ns();
    for (umf_memory_pool_handle_t pool : made) {
        umfPoolDestroy(pool);
    }
    const uint64_t t5 = now_ns();
    const double n = static_cast<double>(count);
    printf("create %.1f\nfirst_malloc %.1f\nfree %.1f\ndestroy %.1f\nrss %.1f\n",
           static_cast<double>(t1 - t0) / n, static_cast<double>(t2 - t1) / n,
           static_cast<double>(t4 - t3) / n, static_cast<double>(t5 - t4) / n,
           static_cast<double>(held) / n);
    return 0;
}

} // namespace

void run_many_pools() {
    const size_t count = 10000;
    print_title(std::to_string(count) + " pools alive: ns per pool, RSS in bytes per pool");
    printf("  %-20s %10s %14s %10s %10s %10s\n", "", "create", "first malloc", "umfFree", "destroy",
           "RSS");
    for (size_t i = 0; i < pool_kind_count; ++i) {
        const char *kind = pool_kinds[i].name;
        std::string error;
        auto values = run_child("many pools", kind, std::to_string(count), error);
        if (!error.empty()) {
            report.absent(std::string("many pools/") + kind, error);
            print_absent(kind, error);
            continue;
        }
        printf("  %-20s %10.0f %14.0f %10.0f %10.0f %10.0f\n", kind, values["create"],
               values["first_malloc"], values["free"], values["destroy"], values["rss"]);
        for (const auto &value : values) {
            report.add("many pools/" + value.first + "/" + kind, value.first == "rss" ? "B" : "ns",
                       value.second);
        }
    }
    report.print_new_targets();
}

namespace {

// --- first use in a process
// ---------------------------------------------------------------------------

void run_start() {
    Dl_info info = {};
    void *address = dlsym(RTLD_DEFAULT, "umfPoolCreate");
    dladdr(address, &info);
    const std::string library = info.dli_fname ? info.dli_fname : "libumf.so";
    const std::string program = beside_us("umf-bench-start");
    struct Row {
        const char *name;
        std::string library, function; // "": loading only
        Samples samples;
        std::string error;
    } rows[] = {{"umfInit", library, "umfInit", {}, ""},
                {"loading libumf", library, "", {}, ""},
                {"loading jemalloc", "libjemalloc.so.2", "", {}, ""},
                {"loading mimalloc", "libmimalloc.so.2", "", {}, ""},
                {"disjoint over os", library, "umfDisjointPoolOps", {}, ""},
                {"jemalloc over os", library, "umfJemallocPoolOps", {}, ""},
                {"proxy over os", library, "umfProxyPoolOps", {}, ""},
                {"jemalloc", "libjemalloc.so.2", "malloc", {}, ""},
                {"mimalloc", "libmimalloc.so.2", "malloc", {}, ""},
                {"TBB scalable", "libtbbmalloc.so.2", "scalable_malloc", {}, ""}};
    for (unsigned i = 0; i < (options.quick ? 10 : 40); ++i) {
        for (Row &row : rows) {
            std::string output;
            if (row.error.empty()) {
                output = row.function.empty()
                             ? run_program({program, row.library}, row.error)
                             : run_program({program, row.library, row.function}, row.error);
            }
            if (row.error.empty()) {
                row.samples.add(strtod(output.c_str(), nullptr));
            }
        }
    }
    print_title(
        "start of the library, loading it, and the first allocation in a process with loading "
        "included: ns, best and median");
    for (const Row &row : rows) {
        const std::string key = std::string("start/") + row.name;
        if (row.error.empty()) {
            report.add(key, "ns", row.samples);
            print_row(row.name, row.samples, "ns");
        } else {
            report.absent(key, row.error);
            print_absent(row.name, row.error);
        }
    }
    report.print_new_targets();
}

// --- the machine's NUMA nodes
// -------------------------------------------------------------------------------

int child_topology() {
    const uint64_t t0 = now_ns();
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    const uint64_t t1 = now_ns();
    if (!all || umfMemspaceHostAllGet() != all) {
        printf("no topology\n");
        return 1;
    }
    const uint64_t t2 = now_ns();
    printf("first %.1f\nagain %.1f\n", static_cast<double>(t1 - t0), static_cast<double>(t2 - t1));
    return 0;
}

void run_topology() {
    Samples first, again;
    std::string error;
    for (unsigned i = 0; i < (options.quick ? 10 : 40) && error.empty(); ++i) {
        auto values = run_child("topology", "", "", error);
        first.add(values["first"]);
        again.add(values["again"]);
    }
    print_title("umfMemspaceHostAllGet in a process: ns, best and median");
    if (!error.empty()) {
        report.absent("topology/first", error);
        print_absent("first topology read", error);
        return;
    }
    report.add("topology/first", "ns", first);
    report.add("topology/again", "ns", again);
    print_row("first topology read", first, "ns");
    print_row("again", again, "ns");
    report.print_new_targets();
}

// --- malloc of a whole program
// ---------------------------------------------------------------------------

void run_preload() {
    const std::string program = beside_us("umf-bench-preload");
    struct Row {
        const char *name;
        std::string library; // "": the C library's own
        Samples start, pair, batch;
        std::string error;
    } rows[] = {{"C library", "", {}, {}, {}, ""},
                {"libumf_proxy", proxy_path(), {}, {}, {}, ""},
                {"jemalloc", "libjemalloc.so.2", {}, {}, {}, ""},
                {"mimalloc", "libmimalloc.so.2", {}, {}, {}, ""}};
    for (unsigned i = 0; i < (options.quick ? 3 : 10); ++i) {
        for (Row &row : rows) {
            const std::string env = "LD_PRELOAD=" + row.library;
            std::string output;
            if (row.error.empty()) {
                output = run_program({"/usr/bin/env", env, program, row.library}, row.error);
            }
            const uint64_t begin = now_ns();
            if (row.error.empty()) {
                run_program({"/usr/bin/env", env, "/bin/echo", "started"}, row.error);
            }
            const uint64_t end = now_ns();
            if (row.error.empty()) {
                char *rest = nullptr;
                row.pair.add(strtod(output.c_str(), &rest));
                row.batch.add(strtod(rest, nullptr));
                row.start.add(static_cast<double>(end - begin));
            }
        }
    }
    print_title(
        "malloc by LD_PRELOAD: ns for a process that does nothing, a pair of 64 B, an object "
        "of a batch of mixed sizes; best and median");
    for (const Row &row : rows) {
        const std::string name = row.name;
        if (!row.error.empty()) {
            report.absent("preload/" + name, row.error);
            print_absent(row.name, row.error);
            continue;
        }
        report.add("preload/start/" + name, "ns", row.start);
        report.add("preload/pair/" + name, "ns", row.pair);
        report.add("preload/batch/" + name, "ns", row.batch);
        print_row((name + ", start").c_str(), row.start, "ns");
        print_row((name + ", pair").c_str(), row.pair, "ns");
        print_row((name + ", batch").c_str(), row.batch, "ns");
    }
    report.print_new_targets();
}

// --- allocations on a queue while freed blocks wait for another
// -----------------------------------------------------------------

// Adds the time of an allocation. false: an operation failed.
bool waiting_round(size_t count, Samples &each) {
    constexpr size_t SIZE = 256;
    const auto malloc_on = UMF_BENCH_OPTIONAL(umfPoolMallocOn);
    const auto use_on = UMF_BENCH_OPTIONAL(umfUseOn);
    const auto free_on = UMF_BENCH_OPTIONAL(umfFreeOn);
    Queue own, other; // they outlive the pool
    Pool pool("disjoint", "queues");
    if (!pool.handle || !malloc_on || !use_on || !free_on) {
        return false;
    }
    const auto take = [&](void *&ptr) { ptr = malloc_on(pool.handle, SIZE, 0, &own); };
    std::vector<void *> freed(count), taken(count);
    std::for_each(freed.begin(), freed.end(), take);
    other.is_busy = true;
    bool good = true;
    for (void *ptr : freed) {
        good = good && use_on(ptr, &other) == UMF_RESULT_SUCCESS &&
               free_on(ptr, &own) == UMF_RESULT_SUCCESS;
    }
    const uint64_t begin = now_ns();
    std::for_each(taken.begin(), taken.end(), take);
    each.add(static_cast<double>(now_ns() - begin) / static_cast<double>(count));
    std::sort(freed.begin(), freed.end());
    for (void *ptr : taken) { // the freed blocks have waited, and none of them was taken
        good = good && ptr && !std::binary_search(freed.begin(), freed.end(), ptr);
        umfFree(ptr);
    }
    other.is_busy = false;
    return good;
}

void run_waiting() {
    print_title("umfPoolMallocOn of 256 B while freed blocks wait for another queue: ns each, best "
                "and median");
    for (size_t count : {2000, 32000}) {
        const std::string name = std::to_string(count) + " blocks";
        Samples each;
        bool good = true;
        for (unsigned round = 0; round < options.rounds && good; ++round) {
            good = waiting_round(count, each);
        }
        if (!good) {
            report.absent("queue waits/" + name, "an operation failed");
            print_absent(name, "an operation failed");
            continue;
        }
        report.add("queue waits/" + name, "ns", each);
        print_row(name.c_str(), each, "ns");
    }
    report.print_new_targets();
}

// --- first export and import of an allocation
// ---------------------------------------------------------

// One round: 256 fresh allocations, each exported and opened for the first time. False on any
// error.
bool ipc_round(Samples &get, Samples &open) {
    constexpr size_t COUNT = 256, SIZE = 65536;
    Pool pool("proxy", "os shared");
    umf_ipc_handler_handle_t handler = nullptr;
    if (!pool.handle || umfPoolGetIPCHandler(pool.handle, &handler) != UMF_RESULT_SUCCESS) {
        return false;
    }
    void *ptrs[COUNT], *opened[COUNT] = {};
    umf_ipc_handle_t handles[COUNT] = {};
    size_t size;
    bool good = true;
    for (void *&ptr : ptrs) {
        ptr = umfPoolMalloc(pool.handle, SIZE);
        good = good && ptr;
    }
    const uint64_t t0 = now_ns();
    for (size_t i = 0; i < COUNT; ++i) {
        good = good && umfGetIPCHandle(ptrs[i], &handles[i], &size) == UMF_RESULT_SUCCESS;
    }
    const uint64_t t1 = now_ns();
    for (size_t i = 0; i < COUNT; ++i) {
        good = good && umfOpenIPCHandle(handler, handles[i], &opened[i]) == UMF_RESULT_SUCCESS;
    }
    const uint64_t t2 = now_ns();
    get.add(static_cast<double>(t1 - t0) / COUNT);
    open.add(static_cast<double>(t2 - t1) / COUNT);
    for (size_t i = 0; i < COUNT; ++i) {
        good = good && umfCloseIPCHandle(opened[i]) == UMF_RESULT_SUCCESS;
        umfPutIPCHandle(handles[i]);
        umfPoolFree(pool.handle, ptrs[i]);
    }
    return good;
}

constexpr size_t HANDLE_MAX_BYTES = 4096;

// A fresh process: sends a handle to `to` and lives until `hold` ends.
[[noreturn]] void produce(int to, int hold) {
    Pool pool("proxy", "os shared");
    void *ptr = pool.handle ? umfPoolMalloc(pool.handle, 65536) : nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    bool good = ptr && umfGetIPCHandle(ptr, &handle, &size) == UMF_RESULT_SUCCESS &&
                size <= HANDLE_MAX_BYTES && write(to, handle, size) == static_cast<ssize_t>(size);
    char end;
    good = good && read(hold, &end, 1) == 0;
    _exit(good ? 0 : 1);
}

struct Producer {
    pid_t pid;
    int handle, hold;
};

void end(std::vector<Producer> &producers) {
    for (const Producer &producer : producers) {
        close(producer.handle);
        close(producer.hold);
    }
    for (const Producer &producer : producers) {
        waitpid(producer.pid, nullptr, 0);
    }
    producers.clear();
}

bool start(std::vector<Producer> &producers) {
    int handle[2], hold[2];
    if (pipe(handle) != 0 || pipe(hold) != 0) {
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        for (const Producer &other : producers) {
            close(other.hold);
        }
        close(hold[1]);
        produce(handle[1], hold[0]);
    }
    close(handle[1]);
    close(hold[0]);
    if (pid < 0) {
        close(handle[0]);
        close(hold[1]);
        return false;
    }
    producers.push_back({pid, handle[0], hold[1]});
    return true;
}

bool open_first(umf_ipc_handler_handle_t handler, const Producer &producer, double *ns) {
    alignas(16) char bytes[HANDLE_MAX_BYTES];
    if (read(producer.handle, bytes, sizeof(bytes)) <= 0) {
        return false;
    }
    void *opened = nullptr;
    const uint64_t begin = now_ns();
    umf_result_t result =
        umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(bytes), &opened);
    *ns = static_cast<double>(now_ns() - begin);
    return result == UMF_RESULT_SUCCESS && umfCloseIPCHandle(opened) == UMF_RESULT_SUCCESS;
}

// Memory of new processes. The cost of the forks and of the first open of a pool
// falls to the first of them, which does not count. False on any error.
bool cold_round(Samples &open) {
    constexpr size_t COUNT = 9;
    std::vector<Producer> producers;
    bool good = true;
    while (producers.size() < COUNT && good) {
        good = start(producers);
    }
    Pool pool("proxy", "os shared");
    umf_ipc_handler_handle_t handler = nullptr;
    good = good && pool.handle && umfPoolGetIPCHandler(pool.handle, &handler) == UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < producers.size() && good; ++i) {
        double ns = 0;
        good = open_first(handler, producers[i], &ns);
        if (good && i > 0) {
            open.add(ns);
        }
    }
    end(producers);
    return good;
}

void run_ipc_cold() {
    Samples open;
    bool good = true;
    for (unsigned round = 0; round < options.rounds && good; ++round) {
        good = cold_round(open);
    }
    print_title("ipc cold: ns for the first open of a new producer's memory, best and median");
    if (!good) {
        report.absent("ipc/open cold", "an operation failed");
        print_absent("open cold", "an operation failed");
        return;
    }
    report.add("ipc/open cold", "ns", open);
    print_row("open cold", open, "ns");
    report.print_new_targets();
}

void run_ipc_first() {
    Samples get, open;
    bool good = true;
    for (unsigned round = 0; round < options.rounds && good; ++round) {
        good = ipc_round(get, open);
    }
    print_title("ipc first: ns per fresh allocation, producer known, best and median");
    if (!good) {
        report.absent("ipc/open first", "an operation failed");
        print_absent("get and open", "an operation failed");
        return;
    }
    report.add("ipc/get first", "ns", get);
    report.add("ipc/open first", "ns", open);
    print_row("get first", get, "ns");
    print_row("open first", open, "ns");
    report.print_new_targets();
}

const struct {
    const char *name;
    void (*run)();
} system_cases[] = {
    {"byptr", run_by_ptr_cases},  {"first touch", run_first_touch},
    {"thread", run_threads},      {"many pools", run_many_pools},
    {"start", run_start},         {"preload", run_preload},
    {"topology", run_topology},   {"ipc first", run_ipc_first},
    {"ipc cold", run_ipc_cold},   {"snapshot", run_snapshot},
    {"queue waits", run_waiting},
};

} // namespace

void run_system_cases() {
    for (const auto &c : system_cases) {
        if (wanted(c.name)) {
            c.run();
        }
    }
}

int run_system_child(const std::string &what, const std::string &arg1, const std::string &arg2) {
    if (what == "snapshot") { // its threads have a CPU each
        return child_snapshot();
    }
    pin_to_cpu(0);
    if (what == "topology") {
        return child_topology();
    }
    if (what == "many pools") {
        return child_many_pools(arg1, arg2);
    }
    return run_memory_child(what, arg1, arg2);
}

} // namespace bench
