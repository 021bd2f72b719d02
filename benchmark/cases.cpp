// The allocation cases: one loop each, the same for every subject, and the table they are printed
// in.
#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include <sched.h>

namespace bench {

// --- shapes
// -------------------------------------------------------------------------------------------

namespace {

// The address of a function of unknown type, as the type the loop calls.
template <class F> F as_function(void *address) {
    F f;
    static_assert(sizeof(f) == sizeof(address), "function pointers are addresses");
    memcpy(&f, &address, sizeof(f));
    return f;
}

struct LoopShape {
    mutable uint64_t scratch = 0; // of each thread
    explicit LoopShape(const Subject &) {}
    void *malloc(size_t) const {
        void *ptr = &scratch;
        asm volatile("" : "+r"(ptr));
        return ptr;
    }
    void free(void *ptr) const {
        asm volatile("" : : "r"(ptr) : "memory");
    }
};

struct PlainShape {
    void *(*m)(size_t);
    void (*f)(void *);
    explicit PlainShape(const Subject &s)
        : m(as_function<decltype(m)>(s.malloc_fn)), f(as_function<decltype(f)>(s.free_fn)) {}
    void *malloc(size_t size) const {
        return m(size);
    }
    void free(void *ptr) const {
        f(ptr);
    }
};

struct HeapShape {
    void *(*m)(void *, size_t);
    void (*f)(void *);
    void *ctx;
    explicit HeapShape(const Subject &s)
        : m(as_function<decltype(m)>(s.malloc_fn)), f(as_function<decltype(f)>(s.free_fn)),
          ctx(s.thread_ctx ? s.thread_ctx() : s.ctx) {}
    void *malloc(size_t size) const {
        return m(ctx, size);
    }
    void free(void *ptr) const {
        f(ptr);
    }
};

struct PoolShape {
    void *(*m)(void *, size_t);
    void (*f)(void *, void *);
    void *ctx;
    explicit PoolShape(const Subject &s)
        : m(as_function<decltype(m)>(s.malloc_fn)), f(as_function<decltype(f)>(s.free_fn)),
          ctx(s.ctx) {}
    void *malloc(size_t size) const {
        return m(ctx, size);
    }
    void free(void *ptr) const {
        f(ctx, ptr);
    }
};

// --- loops
// --------------------------------------------------------------------------------------------

// Writes to new memory, as programs do first; a failed allocation is counted.
inline uint64_t use(void *ptr, uint64_t value) {
    if (__builtin_expect(ptr == nullptr, 0)) {
        return 1;
    }
    *static_cast<volatile uint64_t *>(ptr) = value;
    return 0;
}

// Allocate and free at once, memory untouched: the cost of the two calls. A few more objects of the
// size stay alive, as in any program; without them some allocators retire and revive a page each
// time.
template <class S> struct PairJob final : Job {
    const Subject &subject;
    size_t size;
    size_t alive;
    std::vector<void *> others[MAX_THREADS];
    PairJob(const Subject &s, size_t n) : subject(s), size(n), alive(n > 65536 ? 1 : 8) {}
    void prepare(int thread) override {
        for (size_t i = 0; i < alive; ++i) {
            others[thread].push_back(subject_malloc(subject, size));
        }
    }
    void finish(int thread) override {
        for (void *ptr : others[thread]) {
            subject_free(subject, ptr);
        }
        others[thread].clear();
    }
    void run(int) override {
        const S s(subject);
        uint64_t bad = 0;
        for (uint64_t i = 0; i < ops; ++i) {
            void *ptr = s.malloc(size);
            bad += ptr == nullptr;
            s.free(ptr);
        }
        failed += bad;
    }
};

// Allocate BATCH objects and write one word in each, then free them in the given order.
template <class S> struct BatchJob final : Job {
    const Subject &subject;
    size_t size;
    std::vector<uint16_t> order;
    BatchJob(const Subject &s, size_t n, Case which) : subject(s), size(n), order(BATCH) {
        std::iota(order.begin(), order.end(), static_cast<uint16_t>(0));
        if (which == Case::lifo) {
            std::reverse(order.begin(), order.end());
        } else if (which == Case::shuffled) {
            Rng rng = {88172645463325252u};
            for (size_t i = BATCH - 1; i > 0; --i) {
                std::swap(order[i], order[rng.next() % (i + 1)]);
            }
        }
    }
    void run(int) override {
        const S s(subject);
        const uint16_t *const sequence = order.data();
        void *ptrs[BATCH];
        uint64_t bad = 0;
        for (uint64_t done = 0; done < ops; done += BATCH) {
            for (uint64_t i = 0; i < BATCH; ++i) {
                ptrs[i] = s.malloc(size);
                bad += use(ptrs[i], i);
            }
            for (uint64_t i = 0; i < BATCH; ++i) {
                s.free(ptrs[sequence[i]]);
            }
        }
        failed += bad;
    }
};

// Replace a random member of a working set, as long-running programs do.
template <class S> struct ChurnJob final : Job {
    const Subject &subject;
    uint64_t slots;
    std::vector<uint32_t> sizes;
    std::vector<void *> sets[MAX_THREADS];
    ChurnJob(const Subject &s, size_t size) : subject(s), sizes(1024) {
        // At most 64 MiB live per thread, so that the large sizes fit any machine.
        slots = std::min<uint64_t>(10000, (uint64_t{64} << 20) / std::max<size_t>(size, 1));
        Rng rng = {362436069362436069u};
        for (uint32_t &n : sizes) {
            const double exponent = 4 + 10 * static_cast<double>(rng.next() >> 11) * 0x1p-53;
            n = size ? static_cast<uint32_t>(size) : static_cast<uint32_t>(std::exp2(exponent));
        }
    }
    void prepare(int thread) override {
        const S s(subject);
        sets[thread].resize(slots);
        for (uint64_t i = 0; i < slots; ++i) {
            sets[thread][i] = s.malloc(sizes[i % sizes.size()]);
            failed += use(sets[thread][i], i);
        }
    }
    void run(int thread) override {
        const S s(subject);
        void **const set = sets[thread].data();
        const uint32_t *const size = sizes.data();
        Rng rng = {static_cast<uint64_t>(thread) * 2 + 2463534242u};
        uint64_t bad = 0;
        for (uint64_t i = 0; i < ops; ++i) {
            const uint64_t slot = ((rng.next() >> 32) * slots) >> 32;
            s.free(set[slot]);
            set[slot] = s.malloc(size[i % 1024]);
            bad += use(set[slot], i);
        }
        failed += bad;
    }
    void finish(int thread) override {
        const S s(subject);
        for (void *ptr : sets[thread]) {
            s.free(ptr);
        }
    }
};

// Allocate here, free there: even threads produce, odd ones consume, packets of objects travel
// through a small ring. With one thread both ends run in turn.
template <class S> struct HandoverJob final : Job {
    static constexpr uint64_t PACKET = 250, RING = 4;
    struct alignas(128) Channel {
        alignas(128) std::atomic<uint64_t> filled;
        alignas(128) std::atomic<uint64_t> emptied;
        void *packets[RING][PACKET];
    };
    const Subject &subject;
    size_t size;
    std::unique_ptr<Channel[]> channels{new Channel[MAX_THREADS / 2]()};
    HandoverJob(const Subject &s, size_t n) : subject(s), size(n) {}
    void prepare(int thread) override {
        if (thread == 0) {
            for (int i = 0; i < MAX_THREADS / 2; ++i) {
                channels[static_cast<size_t>(i)].filled = 0;
                channels[static_cast<size_t>(i)].emptied = 0;
            }
        }
    }
    uint64_t produce(const S &s, void **packet) const {
        uint64_t bad = 0;
        for (uint64_t i = 0; i < PACKET; ++i) {
            packet[i] = s.malloc(size);
            bad += use(packet[i], i);
        }
        return bad;
    }
    void consume(const S &s, void **packet) const {
        for (uint64_t i = 0; i < PACKET; ++i) {
            s.free(packet[i]);
        }
    }
    static void wait_until(const std::atomic<uint64_t> &counter, uint64_t least) {
        for (unsigned spins = 0; counter.load(std::memory_order_acquire) < least; ++spins) {
            if (spins % 256 == 255) {
                sched_yield();
            }
        }
    }
    void run_single(const S &s) {
        Channel &c = channels[0];
        uint64_t bad = 0;
        for (uint64_t n = 0; n < ops / PACKET; ++n) {
            bad += produce(s, c.packets[n % RING]);
            consume(s, c.packets[n % RING]);
        }
        failed += bad;
    }
    void run(int thread) override {
        const S s(subject);
        if (threads == 1) {
            return run_single(s);
        }
        Channel &c = channels[static_cast<size_t>(thread / 2)];
        const uint64_t packets = ops / PACKET;
        if (thread % 2 == 0) {
            uint64_t bad = 0;
            for (uint64_t n = 0; n < packets; ++n) {
                wait_until(c.emptied, n < RING ? 0 : n - RING + 1);
                bad += produce(s, c.packets[n % RING]);
                c.filled.store(n + 1, std::memory_order_release);
            }
            failed += bad;
        } else {
            for (uint64_t n = 0; n < packets; ++n) {
                wait_until(c.filled, n + 1);
                consume(s, c.packets[n % RING]);
                c.emptied.store(n + 1, std::memory_order_release);
            }
        }
    }
};

template <class S>
std::unique_ptr<Job> make_shaped_job(Case which, const Subject &subject, size_t size) {
    switch (which) {
    case Case::pair:
        return std::make_unique<PairJob<S>>(subject, size);
    case Case::churn:
        return std::make_unique<ChurnJob<S>>(subject, size);
    case Case::handover:
        return std::make_unique<HandoverJob<S>>(subject, size);
    case Case::fifo:
    case Case::lifo:
    case Case::shuffled:
        break;
    }
    return std::make_unique<BatchJob<S>>(subject, size, which);
}

} // namespace

void *subject_malloc(const Subject &subject, size_t size) {
    switch (subject.shape) {
    case Shape::plain:
        return PlainShape(subject).malloc(size);
    case Shape::heap:
        return HeapShape(subject).malloc(size);
    case Shape::pool:
        return PoolShape(subject).malloc(size);
    case Shape::loop:
        break;
    }
    return LoopShape(subject).malloc(size);
}

void subject_free(const Subject &subject, void *ptr) {
    switch (subject.shape) {
    case Shape::plain:
        return PlainShape(subject).free(ptr);
    case Shape::heap:
        return HeapShape(subject).free(ptr);
    case Shape::pool:
        return PoolShape(subject).free(ptr);
    case Shape::loop:
        break;
    }
}

std::unique_ptr<Job> make_job(Case which, const Subject &subject, size_t size) {
    switch (subject.shape) {
    case Shape::plain:
        return make_shaped_job<PlainShape>(which, subject, size);
    case Shape::heap:
        return make_shaped_job<HeapShape>(which, subject, size);
    case Shape::pool:
        return make_shaped_job<PoolShape>(which, subject, size);
    case Shape::loop:
        break;
    }
    return make_shaped_job<LoopShape>(which, subject, size);
}

std::string size_name(size_t size) {
    if (size == 0) {
        return "mixed";
    }
    if (size >= 1024 * 1024 && size % (1024 * 1024) == 0) {
        return std::to_string(size >> 20) + "M";
    }
    if (size >= 1024 && size % 1024 == 0) {
        return std::to_string(size >> 10) + "K";
    }
    return std::to_string(size);
}

// --- the table
// ----------------------------------------------------------------------------------------

namespace {

struct Entry {
    Subject subject;
    std::unique_ptr<Job> job;
    Samples samples[MAX_THREADS + 1];
    Samples apart; // in processes
    uint64_t calls = 0, calls_for = 0;
    bool slow = false; // a round with its set-up takes long: a few must do
};

constexpr size_t SLOW_ROUNDS = 3;
constexpr unsigned APART_ROUNDS = 5;
constexpr uint64_t SLOW_NS = 50000000;
constexpr uint64_t WARM_UP_UNITS = 8;

// One line per subject: best and median for each number of threads, how the further threads compare
// to one, and how the subject compares to each peer (one thread, or the fewest that ran).
void print_block(const std::string &block, const std::vector<Entry> &entries,
                 const std::vector<int> &threads) {
    print_title(block);
    printf("  %-36s", "ns per operation and core");
    for (const int t : threads) {
        printf("  %d thread%c best median%s", t, t > 1 ? 's' : ' ', t > threads[0] ? "    x1" : "");
    }
    printf("  |");
    for (size_t i = 0; i < peer_count; ++i) {
        printf(" /%-13s", peer_names[i]);
    }
    printf("\n");
    for (const Entry &e : entries) {
        if (!e.subject.absent.empty()) {
            print_absent(e.subject.name, e.subject.absent);
            continue;
        }
        printf("  %-36s", e.subject.name.c_str());
        const double one = e.samples[threads[0]].best();
        for (const int t : threads) {
            const Samples &s = e.samples[t];
            printf("  %13.4g %6.4g", s.best(), s.median());
            if (t > threads[0]) {
                printf(" %5.2f", s.best() / one);
            }
        }
        printf("  |");
        for (size_t i = 0; i < peer_count; ++i) {
            const Result *peer =
                report.find(block + "/" + std::to_string(threads[0]) + "/" + peer_names[i]);
            if (peer && peer->best > 0 && e.subject.shape != Shape::loop) {
                printf(" %-14.2f", one / peer->best);
            } else {
                printf(" %-14s", "-");
            }
        }
        printf("\n");
    }
}

// The threads of one process when as many processes as fit run the same in parallel.
int threads_apart(Case which) {
    return which == Case::handover ? 2 : 1;
}

// The largest number of threads that have a core each, if it takes several processes; else 0.
int most_apart(Case which, const std::vector<int> &threads) {
    const int each = threads_apart(which);
    int most = 0;
    for (const int t : threads) {
        const bool may_be = t > each && t % each == 0 && t <= usable_cpus();
        most = may_be ? std::max(most, t) : most;
    }
    return most;
}

std::string key_apart(const std::string &block, const std::string &subject) {
    return block + "/apart/" + subject;
}

void print_apart(Case which, const std::vector<Entry> &entries, int count) {
    const int each = threads_apart(which);
    printf(
        "  the same in %d processes of %d thread%s: best, median, and %d threads of one / best\n",
        count / each, each, each > 1 ? "s" : "", count);
    for (const Entry &e : entries) {
        if (e.subject.absent.empty()) {
            const double best = e.apart.best();
            printf("  %-36s  %13.4g %6.4g", e.subject.name.c_str(), best, e.apart.median());
            printf(best > 0 ? " %5.2f\n" : "     -\n", e.samples[count].best() / best);
        }
    }
}

void store(const std::string &block, const std::vector<Entry> &entries,
           const std::vector<int> &threads) {
    for (const Entry &e : entries) {
        if (!e.subject.absent.empty()) {
            report.absent(block + "/" + e.subject.name, e.subject.absent);
            continue;
        }
        for (const int t : threads) {
            report.add(block + "/" + std::to_string(t) + "/" + e.subject.name, "ns", e.samples[t]);
        }
        if (!e.apart.values.empty()) {
            report.add(key_apart(block, e.subject.name), "ns", e.apart);
        }
        if (e.subject.provider_calls && e.calls_for) {
            report.add(block + "/calls/" + e.subject.name, "per op",
                       static_cast<double>(e.calls) / static_cast<double>(e.calls_for));
        }
    }
}

// Other subjects ran between two rounds of this one, and it may have given memory back meanwhile.
void warm_up(Job &job, uint64_t unit, int threads) {
    const uint64_t ops = job.ops;
    job.ops = std::min(ops, WARM_UP_UNITS * unit);
    run_round(job, threads);
    job.ops = ops;
}

void run_one(Entry &e, uint64_t unit, int threads) {
    warm_up(*e.job, unit, threads);
    const uint64_t calls = e.subject.provider_calls ? e.subject.provider_calls() : 0;
    const uint64_t begin = now_ns();
    const double ns = run_round(*e.job, threads);
    e.slow = e.slow || now_ns() - begin > SLOW_NS;
    if (e.subject.provider_calls) {
        e.calls += e.subject.provider_calls() - calls;
        e.calls_for += e.job->ops * static_cast<uint64_t>(threads);
    }
    e.samples[threads].add(ns);
    if (e.job->failed) {
        e.subject.absent = std::to_string(e.job->failed) + " allocations failed";
    }
}

void run_one_apart(Entry &e, const std::string &block, Case which, size_t size, uint64_t unit,
                   int threads) {
    const int each = threads_apart(which);
    Subject subject;
    const auto make = [&]() -> std::unique_ptr<Job> {
        subject = subject_by_name(e.subject.name);
        return subject.absent.empty() ? make_job(which, subject, size) : nullptr;
    };
    const double ns = run_round_apart(make, std::min(e.job->ops, WARM_UP_UNITS * unit), e.job->ops,
                                      threads / each, each);
    if (ns >= 0) {
        e.apart.add(ns);
    } else {
        report.absent(key_apart(block, e.subject.name), "a process of its own failed");
    }
}

// All subjects take turns in every round, for every number of threads, so that a drift of the
// machine meets all of them alike. The loop's own cost is the first subject and is subtracted from
// the others. `apart`: so many threads are run as processes, too.
void run_block(const std::string &block, Case which, size_t size, std::vector<Subject> subjects,
               const std::vector<int> &threads, int apart = 0) {
    const uint64_t unit = which == Case::pair ? 64 : BATCH;
    subjects.insert(subjects.begin(), loop_subject());
    std::vector<Entry> entries(subjects.size());
    for (size_t i = 0; i < entries.size(); ++i) {
        Entry &e = entries[i];
        e.subject = std::move(subjects[i]);
        check_subject(e.subject, size ? size : 64);
        if (e.subject.absent.empty()) {
            e.job = make_job(which, e.subject, size);
            e.job->ops = WARM_UP_UNITS * unit; // fresh memory takes longer
            run_round(*e.job, threads[0]);
            calibrate(*e.job, unit, threads[0]);
        }
    }
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (const int t : threads) {
            for (Entry &e : entries) {
                const bool enough = e.slow && e.samples[t].values.size() >= SLOW_ROUNDS;
                if (e.subject.absent.empty() && !enough) {
                    run_one(e, unit, t);
                }
            }
        }
    }
    for (unsigned round = 0; apart && round < std::min(options.rounds, APART_ROUNDS); ++round) {
        for (Entry &e : entries) {
            if (e.subject.absent.empty()) {
                run_one_apart(e, block, which, size, unit, apart);
            }
        }
    }
    for (size_t i = 1; i < entries.size(); ++i) {
        for (const int t : threads) {
            entries[i].samples[t].subtract(entries[0].samples[t]);
        }
        entries[i].apart.subtract(entries[0].apart);
    }
    store(block, entries, threads);
    print_block(block, entries, threads);
    if (apart) {
        print_apart(which, entries, apart);
    }
    report.print_new_targets();
}

std::vector<Subject> everyone(bool every_provider) {
    std::vector<Subject> all = pools(every_provider);
    for (Subject &peer : peers()) {
        all.push_back(std::move(peer));
    }
    return all;
}

// umfFree against umfPoolFree, and what tracking costs.
std::vector<Subject> free_forms() {
    std::vector<Subject> all;
    for (const char *pool : {"disjoint", "jemalloc"}) {
        all.push_back(pool_subject(pool, "os"));
        all.push_back(pool_subject(pool, "os", FreeBy::pool));
        all.push_back(
            pool_subject(pool, "os", FreeBy::pool, UMF_POOL_CREATE_FLAG_DISABLE_TRACKING));
    }
    return all;
}

struct CaseRow {
    const char *name;
    Case which;
    std::vector<size_t> sizes, quick_sizes;
};

const std::vector<size_t> ALL_SIZES = {16, 64, 256, 1024, 4096, 16384, 65536, 262144};

const CaseRow case_rows[] = {
    {"pair", Case::pair, ALL_SIZES, {64, 4096}},
    {"batch fifo", Case::fifo, ALL_SIZES, {64}},
    {"batch lifo", Case::lifo, ALL_SIZES, {}},
    {"batch shuffled", Case::shuffled, ALL_SIZES, {64}},
    {"churn", Case::churn, {16, 64, 256, 1024, 4096, 16384, 65536, 262144, 0}, {64, 0}},
    {"handover", Case::handover, {16, 64, 1024, 16384}, {64}},
};

void run_large_blocks() {
    const std::vector<size_t> all = {65536, 1 << 20, 2 << 20, 16 << 20, 64 << 20};
    const std::vector<size_t> few = {65536, 1 << 20, 64 << 20};
    for (const size_t size : options.quick ? few : all) {
        const std::string block = "large/" + size_name(size);
        if (wanted(block)) {
            run_block(block, Case::pair, size, everyone(true), {1, 2});
        }
    }
    if (wanted("large batch/1M") && !options.quick) {
        run_block("large batch/1M", Case::shuffled, 1 << 20, everyone(true), {1, 2});
    }
}

// The loop of a handover waits for other threads' cache lines too: the rest of a few
// nanoseconds when it is subtracted says nothing.
constexpr double UNRESOLVED_NS = 5;

bool is_handover(const std::string &block) {
    return block.compare(0, 8, "handover") == 0;
}

// In nanoseconds; 0 if it was not measured.
double time_of(const std::string &block, const std::string &key) {
    const Result *r = report.find(key);
    return r ? std::max(r->best, is_handover(block) ? UNRESOLVED_NS : 0) : 0;
}

// How flat the times stay with more threads: the slowest of those that have a core each, as a
// multiple of the first; 0 if there is nothing to compare. A handover begins with two threads.
double flatness(const std::string &block, const std::string &subject,
                const std::vector<int> &threads) {
    double first = 0, worst = 0;
    int compared = 0;
    for (const int t : threads) {
        const double ns = time_of(block, block + "/" + std::to_string(t) + "/" + subject);
        if (ns > 0 && t <= usable_cpus() && t > is_handover(block)) {
            first = first > 0 ? first : ns;
            worst = std::max(worst, ns);
            ++compared;
        }
    }
    return compared > 1 ? worst / first : 0;
}

// What it costs to share a process: threads against as many in processes.
double sharing(const std::string &block, const std::string &subject,
               const std::vector<int> &threads) {
    const int most = most_apart(is_handover(block) ? Case::handover : Case::pair, threads);
    const double together = time_of(block, block + "/" + std::to_string(most) + "/" + subject);
    const double apart = time_of(block, key_apart(block, subject));
    return apart > 0 ? together / apart : 0;
}

using Compare = double (*)(const std::string &, const std::string &, const std::vector<int> &);

void print_comparison(const char *title, const char *key, Compare compare,
                      const std::vector<std::string> &blocks) {
    print_title(title);
    printf("  %-24s", "");
    for (const std::string &block : blocks) {
        printf(" %20s", block.c_str());
    }
    std::vector<Subject> rows = everyone(false);
    rows.insert(rows.begin(), loop_subject());
    for (const Subject &subject : rows) {
        printf("\n  %-24.24s", subject.name.c_str());
        for (const std::string &block : blocks) {
            const bool waits = subject.shape == Shape::loop && is_handover(block);
            const double value = waits ? 0 : compare(block, subject.name, options.threads);
            if (value > 0) {
                printf(" %20.2f", value);
                report.add(std::string(key) + "/" + block + "/" + subject.name, "x", value);
            } else {
                printf(" %20s", "-");
            }
        }
    }
    printf("\n");
}

struct ThreadRow {
    const char *name;
    Case which;
    std::vector<size_t> sizes;
};

const ThreadRow thread_rows[] = {{"pair", Case::pair, {64, 4096, 65536, 1 << 20}},
                                 {"batch shuffled", Case::shuffled, {64, 4096, 65536}},
                                 {"handover", Case::handover, {64, 4096, 65536}}};

} // namespace

void run_thread_cases() {
    const std::vector<size_t> few = {64};
    std::vector<std::string> blocks;
    for (const ThreadRow &row : thread_rows) {
        for (const size_t size : options.quick ? few : row.sizes) {
            const std::string block = std::string(row.name) + "/" + size_name(size);
            if (wanted(block)) {
                run_block(block, row.which, size, everyone(false), options.threads,
                          most_apart(row.which, options.threads));
                blocks.push_back(block);
            }
        }
    }
    print_comparison(
        "the slowest number of threads that have a core each / one thread (handover: two)", "flat",
        flatness, blocks);
    print_comparison("most threads / as many in processes of one thread (handover: two)", "shared",
                     sharing, blocks);
}

// --- the grid
// --------------------------------------------------------------------------------------------

namespace {

const ThreadRow grid_rows[] = {
    {"pair", Case::pair, {16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20}},
    {"batch shuffled", Case::shuffled, {16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20}},
    {"handover", Case::handover, {16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20}},
    {"churn", Case::churn, {16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20}},
};

// 1, 4 and 16, as far as there are CPUs and memory: a batch may be resident with huge pages.
std::vector<int> grid_threads(const ThreadRow &row, size_t size) {
    std::vector<int> chosen;
    for (const int t : {1, 4, 16}) {
        const bool fits = row.which != Case::shuffled ||
                          size * BATCH * static_cast<size_t>(t) < available_bytes() / 4;
        if (t <= usable_cpus() && fits && (t > 1 || row.which != Case::handover)) {
            chosen.push_back(t);
        }
    }
    if (chosen.empty() && row.which == Case::handover) {
        chosen.push_back(2);
    }
    return chosen;
}

struct Cell {
    std::string block;
    int threads;
    bool is_small; // up to 256 B, pair or churn
};

double cell_time(const Cell &cell, const std::string &subject) {
    return time_of(cell.block, cell.block + "/" + std::to_string(cell.threads) + "/" + subject);
}

double best_peer_time(const Cell &cell) {
    double best = 0;
    for (size_t i = 0; i < peer_count; ++i) {
        const double ns = cell_time(cell, peer_names[i]);
        best = ns > 0 && (best <= 0 || ns < best) ? ns : best;
    }
    return best;
}

// 0: no cell has both.
double mean_ratio(const std::vector<Cell> &cells, const std::string &pool,
                  const std::function<double(const Cell &)> &other) {
    double sum = 0;
    int count = 0;
    for (const Cell &cell : cells) {
        const double ours = cell_time(cell, pool), theirs = other(cell);
        if (ours > 0 && theirs > 0) {
            sum += std::log(ours / theirs);
            ++count;
        }
    }
    return count ? std::exp(sum / count) : 0;
}

void print_ratio(const char *peer, double ratio) {
    ratio > 0 ? printf("  /%s %.2f", peer, ratio) : printf("  /%s -", peer);
}

// How the pools compare with each peer, and with the best peer of each cell.
void print_grid(const std::vector<Cell> &cells, const std::vector<std::string> &names) {
    print_title("grid: geometric means over " + std::to_string(cells.size()) +
                " cells, ours / peer");
    for (const std::string &name : names) {
        printf("  %-22s", name.c_str());
        for (size_t i = 0; i < peer_count; ++i) {
            print_ratio(peer_names[i], mean_ratio(cells, name, [i](const Cell &cell) {
                            return cell_time(cell, peer_names[i]);
                        }));
        }
        const double best = mean_ratio(cells, name, best_peer_time);
        print_ratio("best of each", best);
        printf("\n");
        if (best > 0) {
            report.add("grid/best peer/" + name, "x", best);
        }
    }
    int slower = 0;
    double worst = 0, worst_small = 0; // 0: there is no cell of ours and of a peer
    for (const Cell &cell : cells) {
        double ours = 0;
        for (const std::string &name : names) {
            const double ns = cell_time(cell, name);
            ours = ns > 0 && (ours <= 0 || ns < ours) ? ns : ours;
        }
        const double peer = best_peer_time(cell), ratio = peer > 0 ? ours / peer : 0;
        slower += ratio > 1.1;
        worst = std::max(worst, ratio);
        worst_small = cell.is_small ? std::max(worst_small, ratio) : worst_small;
    }
    printf(
        "  %d cells in which the best of the pools is more than 10 %% slower than the best peer\n",
        slower);
    if (worst > 0) {
        report.add("grid/slower cells", "cells", slower);
    }
    if (worst_small > 0) {
        report.add("grid/worst small cell", "x", worst_small);
    }
}

} // namespace

void run_grid() {
    std::vector<Cell> cells;
    for (const ThreadRow &row : grid_rows) {
        for (const size_t size : row.sizes) {
            const std::string block = std::string(row.name) + "/" + size_name(size);
            const std::vector<int> threads = grid_threads(row, size);
            if (!wanted(block) || threads.empty()) {
                continue;
            }
            run_block(block, row.which, size, everyone(false), threads);
            const bool is_small =
                size <= 256 && (row.which == Case::pair || row.which == Case::churn);
            for (const int t : threads) {
                cells.push_back({block, t, is_small});
            }
        }
    }
    std::vector<std::string> names;
    for (const Subject &subject : pools(false)) {
        names.push_back(subject.name);
    }
    if (!cells.empty()) {
        print_grid(cells, names);
        report.print_new_targets();
    }
}

void run_allocation_cases() {
    const std::vector<int> threads =
        options.quick ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 4};
    for (const CaseRow &row : case_rows) {
        for (const size_t size : options.quick ? row.quick_sizes : row.sizes) {
            const std::string block = std::string(row.name) + "/" + size_name(size);
            if (wanted(block)) {
                run_block(block, row.which, size, everyone(!options.quick), threads);
            }
        }
    }
    for (const size_t size : {size_t{64}, size_t{4096}}) {
        const std::string block = "umfFree or umfPoolFree/" + size_name(size);
        if (wanted(block)) {
            run_block(block, Case::pair, size, free_forms(), threads);
        }
    }
    run_large_blocks();
}

} // namespace bench
