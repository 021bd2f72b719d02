// Memory instead of time: bytes that a pool or a peer holds for live memory, its metadata, and what
// threads leave behind. Each subject has a process of its own.
#include "bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <umf/experimental/ctl.h>

namespace bench {

namespace {

std::vector<std::string> everyone() {
    std::vector<std::string> names;
    for (size_t i = 0; i < pool_kind_count; ++i) {
        names.push_back(std::string(pool_kinds[i].name) + " over os");
    }
    names.insert(names.end(), peer_names, peer_names + peer_count);
    return names;
}

// Says why not, for the parent, if the subject cannot run.
bool is_ready(Subject &subject, size_t size) {
    check_subject(subject, size);
    if (!subject.absent.empty()) {
        printf("%s\n", subject.absent.c_str());
    }
    return subject.absent.empty();
}

// --- resident memory
// ------------------------------------------------------------------------------------

// Longer than the times after which peers give unused memory back (jemalloc: 10 s).
constexpr unsigned DECAY_SECONDS = 11, QUICK_DECAY_SECONDS = 1;

struct Burst {
    const char
        *name; // of the block; objects of 16 KiB were the first and have no size in their keys
    size_t size;
    bool wait; // for memory that is released in time
};

const Burst bursts[] = {
    {"rss", 16384, true}, {"rss of 1 KiB", 1024, false}, {"rss of 64 B", 64, false}};

const Burst *find_burst(const std::string &name) {
    for (const Burst &burst : bursts) {
        if (name == burst.name) {
            return &burst;
        }
    }
    return nullptr;
}

bool fill(const Subject &subject, std::vector<void *> &ptrs, size_t size) {
    for (void *&ptr : ptrs) {
        ptr = subject_malloc(subject, size);
        if (!ptr) {
            printf("allocation failed\n");
            return false;
        }
        memset(ptr, 1, size);
    }
    return true;
}

// Some allocators give memory back only while they are called, with more than their caches hold:
// 256 KiB in small objects, ten times a second.
bool wait_for_decay(const Subject &subject, unsigned seconds) {
    std::vector<void *> some(4096);
    bool is_ok = true;
    for (unsigned i = 0; i < seconds * 10 && is_ok; ++i) {
        usleep(100000);
        is_ok = fill(subject, some, 64);
        std::for_each(some.begin(), some.end(), [&](void *ptr) { subject_free(subject, ptr); });
    }
    return is_ok;
}

// Child, "what" is "<block>:<seconds to wait>": allocates `bytes`, frees 90 % at random, waits,
// trims.
int child_rss(const std::string &what, const std::string &name, const std::string &bytes) {
    const size_t colon = what.find(':');
    const Burst *found = find_burst(what.substr(0, colon));
    if (!found) {
        return 1;
    }
    const Burst &burst = *found;
    const size_t count = strtoull(bytes.c_str(), nullptr, 10) / burst.size;
    Subject s = subject_by_name(name);
    std::vector<void *> ptrs(count, nullptr);
    if (!is_ready(s, burst.size)) {
        return 1;
    }
    const size_t before = resident_bytes();
    const auto print = [&](const char *stage, size_t live) {
        printf("%s %.6f\n", stage,
               (static_cast<double>(resident_bytes()) - static_cast<double>(before)) /
                   static_cast<double>(live * burst.size));
    };
    if (!fill(s, ptrs, burst.size)) {
        return 1;
    }
    print("full", count);
    shuffle(ptrs);
    const size_t live = count / 10;
    std::for_each(ptrs.begin() + static_cast<ptrdiff_t>(live), ptrs.end(),
                  [&](void *ptr) { subject_free(s, ptr); });
    print("freed", live);
    if (burst.wait) {
        if (!wait_for_decay(s, static_cast<unsigned>(atoi(what.c_str() + colon + 1)))) {
            return 1;
        }
        print("waited", live);
    }
    if (s.trim) {
        s.trim();
    }
    print("trimmed", live);
    return 0;
}

void print_stage(const std::map<std::string, double> &values, const char *stage) {
    const auto value = values.find(stage);
    value == values.end() ? printf(" %12s", "-") : printf(" %12.3f", value->second);
}

void run_burst(const Burst &burst, size_t bytes) {
    const unsigned seconds = options.quick ? QUICK_DECAY_SECONDS : DECAY_SECONDS;
    const std::string block = burst.name;
    print_title(block + ": RSS / live bytes, " + std::to_string(bytes >> 20) +
                " MiB in objects of " + size_name(burst.size) +
                ": full, after freeing 90 % at random, " + std::to_string(seconds) +
                " s later, after trimming");
    for (const std::string &name : everyone()) {
        std::string error;
        auto values =
            run_child(block + ":" + std::to_string(seconds), name, std::to_string(bytes), error);
        if (!error.empty()) {
            report.absent(block + "/" + name, error);
            print_absent(name, error);
            continue;
        }
        printf("  %-44s", name.c_str());
        for (const char *stage : {"full", "freed", "waited", "trimmed"}) {
            print_stage(values, stage);
        }
        printf("\n");
        fflush(stdout);
        for (const auto &value : values) {
            report.add(block + "/" + value.first + "/" + name, "x", value.second);
        }
    }
    report.print_new_targets();
}

void run_rss() {
    const size_t bytes = options.quick ? size_t{256} << 20 : size_t{1} << 30;
    for (const Burst &burst : bursts) {
        if (wanted(burst.name)) {
            // Proxy pools need a page for each object, so smaller ones take many times their bytes.
            run_burst(burst,
                      std::min(burst.size < 16384 ? bytes / 16 : bytes, available_bytes() / 4));
        }
    }
}

// --- metadata
// ---------------------------------------------------------------------------------------------

// Child: host memory the pool needs to manage untouched memory.
int child_metadata(const std::string &kind, const std::string &size_text) {
    const size_t size = strtoull(size_text.c_str(), nullptr, 10);
    const size_t count = size <= 64 ? 4000000 : size <= 4096 ? 400000 : 200000;
    Pool pool(kind.c_str(), "reserve");
    if (!pool.handle || !umfPoolMalloc(pool.handle, size)) {
        printf("%s\n", pool.error.c_str());
        return 1;
    }
    const size_t before = resident_bytes();
    for (size_t i = 0; i < count; ++i) {
        if (!umfPoolMalloc(pool.handle, size)) {
            printf("allocation %zu failed\n", i);
            return 1;
        }
    }
    const size_t held = resident_bytes() - before;
    printf("bytes %.6f\n", static_cast<double>(held) / static_cast<double>(count));
    fflush(stdout);
    _exit(0); // freeing millions of objects one by one is not measured
}

void run_metadata() {
    print_title("host metadata: bytes per live object");
    const struct {
        const char *name, *bytes;
    } sizes[] = {{"64 B", "64"}, {"4 KiB", "4096"}, {"64 KiB", "65536"}};
    for (size_t i = 0; i < pool_kind_count; ++i) {
        for (const auto &size : sizes) {
            const std::string key = std::string("metadata/") + size.name + "/" + pool_kinds[i].name;
            if (strcmp(pool_kinds[i].name, "proxy") == 0 && strcmp(size.bytes, "64") == 0) {
                continue; // a provider's smallest piece is a page
            }
            if (strcmp(pool_kinds[i].name, "scalable") == 0) {
                continue; // its data lies in the memory it serves
            }
            std::string error;
            const auto values = run_child("metadata", pool_kinds[i].name, size.bytes, error);
            if (error.empty()) {
                Samples s;
                s.add(values.begin()->second);
                report.add(key, "B", s);
                print_row(key, s, "B");
            } else {
                report.absent(key, error);
                print_absent(key, error);
            }
        }
    }
    report.print_new_targets();
}

// --- threads
// ------------------------------------------------------------------------------------------

constexpr size_t THREAD_STACK = 65536;

struct Guest {
    Job *job;
    pthread_barrier_t *barrier; // NULL: no thread waits
};

void *be_guest(void *arg) {
    const Guest *guest = static_cast<Guest *>(arg);
    guest->job->run(0);
    for (int i = 0; guest->barrier && i < 2; ++i) {
        pthread_barrier_wait(guest->barrier);
    }
    return nullptr;
}

// Threads that are all alive at once, and what they keep then. 0 if they cannot be had.
size_t held_by_threads(Job &job, unsigned count, const pthread_attr_t &attributes) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, count + 1);
    Guest guest = {&job, &barrier};
    std::vector<pthread_t> threads(count);
    for (pthread_t &thread : threads) {
        if (pthread_create(&thread, &attributes, be_guest, &guest) != 0) {
            printf("a thread cannot be started\n");
            _exit(1);
        }
    }
    pthread_barrier_wait(&barrier);
    const size_t held = resident_bytes();
    pthread_barrier_wait(&barrier);
    for (const pthread_t thread : threads) {
        pthread_join(thread, nullptr);
    }
    pthread_barrier_destroy(&barrier);
    return held;
}

void run_one_by_one(Job &job, unsigned count, const pthread_attr_t &attributes) {
    Guest guest = {&job, nullptr};
    for (unsigned i = 0; i < count; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, be_guest, &guest) == 0) {
            pthread_join(thread, nullptr);
        }
    }
}

// Child: threads that allocate and free 1,000 objects of 64 B, alive together, then ended, then
// many one after the other.
int child_threads(const std::string &name, const std::string &count_text) {
    const unsigned count = static_cast<unsigned>(atoi(count_text.c_str()));
    Subject s = subject_by_name(name);
    if (name != "nothing" && !is_ready(s, 64)) {
        return 1;
    }
    const std::unique_ptr<Job> job = make_job(Case::lifo, s, 64);
    job->ops = BATCH;
    job->run(0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    run_one_by_one(*job, 10, attributes);
    const double before = static_cast<double>(resident_bytes());
    const double alive = static_cast<double>(held_by_threads(*job, 100, attributes));
    run_one_by_one(*job, count, attributes);
    const double after = static_cast<double>(resident_bytes());
    printf("alive %.1f\nended %.1f\n", (alive - before) / 100, (after - before) / 1024);
    return 0;
}

void run_thread_memory() {
    const char *count = "1000";
    print_title(
        std::string("threads held: bytes for each of 100 that have allocated and freed 1,000 "
                    "objects and live, KiB in all after these and ") +
        count + " more have ended");
    std::string error;
    auto nothing = run_child("threads", "nothing", count, error);
    for (const std::string &name : everyone()) {
        error = "";
        auto values = run_child("threads", name, count, error);
        if (!error.empty()) {
            report.absent("threads held/" + name, error);
            print_absent(name, error);
            continue;
        }
        const double alive = values["alive"] - nothing["alive"];
        const double ended = values["ended"] - nothing["ended"];
        printf("  %-44s %12.0f %12.0f\n", name.c_str(), alive, ended);
        fflush(stdout);
        report.add("threads held/alive/" + name, "B", alive);
        report.add("threads held/ended/" + name, "KiB", ended);
    }
    report.print_new_targets();
}

// --- unused memory
// ---------------------------------------------------------------------------------------------

// Bytes that a pool holds. Memory of a device (the first one) is what its driver says is in use;
// the CPU may not touch it. Memory that a program gave to a fixed provider stays resident in any
// case, so the bytes of the pool count. Of other memory, resident bytes count.
struct Meter {
    int (*device_info)(size_t *free, size_t *total) = nullptr;
    umf_memory_provider_handle_t fixed = nullptr;

    bool open_device() {
        void *const library = dlopen("libcuda.so.1", RTLD_NOW);
        const auto function = [&](auto &pointer, const char *name) {
            pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(
                library ? dlsym(library, name) : nullptr);
            return pointer != nullptr;
        };
        int (*init)(unsigned) = nullptr, (*retain)(void **, int) = nullptr,
            (*set)(void *) = nullptr;
        void *context = nullptr;
        return function(device_info, "cuMemGetInfo_v2") && function(init, "cuInit") &&
               function(retain, "cuDevicePrimaryCtxRetain") && function(set, "cuCtxSetCurrent") &&
               init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0;
    }

    bool is_exact() const {
        return device_info || fixed;
    }

    size_t bytes() const {
        size_t free = 0, total = 0;
        if (device_info) {
            return device_info(&free, &total) == 0 ? total - free : 0;
        }
        if (fixed) {
            const auto get = UMF_BENCH_OPTIONAL(umfCtlGet);
            get("umf.provider.by_handle.{}.stats.allocated_memory", &total, sizeof(total), fixed);
            return total;
        }
        return resident_bytes();
    }

    void touch(void *ptr, size_t size) const {
        if (ptr && !is_exact()) {
            memset(ptr, 1, size);
        }
    }
};

Meter meter;

const size_t held_sizes[] = {64, 1000, 5000, 30 << 10, 64 << 10, 300 << 10, 1 << 20};

// `bytes` of each size, written and freed in a random order. A proxy pool needs a page for each
// object.
void use_all_sizes(umf_memory_pool_handle_t pool, size_t bytes) {
    for (const size_t size : held_sizes) {
        std::vector<void *> ptrs(bytes / std::max(size, size_t{4096}) + 1);
        for (void *&ptr : ptrs) {
            ptr = umfPoolMalloc(pool, size);
            meter.touch(ptr, size);
        }
        shuffle(ptrs);
        std::for_each(ptrs.begin(), ptrs.end(), [&](void *ptr) { umfPoolFree(pool, ptr); });
    }
}

struct Idler {
    umf_memory_pool_handle_t pool; // NULL: the thread does nothing
    pthread_barrier_t *barrier;
};

void *be_idle(void *arg) {
    const Idler *idler = static_cast<Idler *>(arg);
    if (idler->pool) {
        use_all_sizes(idler->pool, 1 << 20);
    }
    for (int i = 0; i < 2; ++i) {
        pthread_barrier_wait(idler->barrier);
    }
    return nullptr;
}

// Resident for each of 24 threads that have used the pool and sleep, after this thread's trim.
double held_by_idle(umf_memory_pool_handle_t pool, umf_memory_pool_handle_t trimmed) {
    pthread_t threads[24];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 25);
    Idler idler = {pool, &barrier};
    const double before = static_cast<double>(meter.bytes());
    for (pthread_t &thread : threads) {
        if (pthread_create(&thread, nullptr, be_idle, &idler) != 0) {
            _exit(1);
        }
    }
    pthread_barrier_wait(&barrier);
    umfPoolTrimMemory(trimmed, 0);
    const double held = static_cast<double>(meter.bytes()) - before;
    pthread_barrier_wait(&barrier);
    for (const pthread_t thread : threads) {
        pthread_join(thread, nullptr);
    }
    pthread_barrier_destroy(&barrier);
    return held / 24 / 1024;
}

void hit(umf_memory_pool_handle_t pool, unsigned seconds) {
    for (const uint64_t end = now_ns() + seconds * UINT64_C(1000000000); now_ns() < end;) {
        for (int i = 0; i < 10000; ++i) {
            umfPoolFree(pool, umfPoolMalloc(pool, 64));
        }
    }
}

// Nobody calls the pool. The library's own thread ticks.
void be_quiet(umf_memory_pool_handle_t, unsigned seconds) {
    const auto set = UMF_BENCH_OPTIONAL(umfCtlSet);
    bool is_on = true;
    set("umf.reclaim.background", &is_on, sizeof(is_on));
    usleep(seconds * 1000000);
    is_on = false;
    set("umf.reclaim.background", &is_on, sizeof(is_on));
}

// MiB beyond 1.1 times the live bytes, after some seconds in which the program does `what`.
double held_after(umf_memory_pool_handle_t pool, unsigned seconds,
                  void (*what)(umf_memory_pool_handle_t pool, unsigned seconds)) {
    const size_t before = meter.bytes(), size = 16384;
    std::vector<void *> live(1024);
    for (void *&ptr : live) {
        ptr = umfPoolMalloc(pool, size);
        meter.touch(ptr, size);
    }
    use_all_sizes(pool, 8 << 20);
    what(pool, seconds);
    const double held = static_cast<double>(meter.bytes()) - static_cast<double>(before) -
                        1.1 * static_cast<double>(live.size() * size);
    std::for_each(live.begin(), live.end(), [&](void *ptr) { umfPoolFree(pool, ptr); });
    umfPoolTrimMemory(pool, 0);
    return held / (1 << 20);
}

// Child: a pool over a provider.
int child_held(const std::string &kind, const std::string &provider, unsigned seconds) {
    Pool pool(kind.c_str(), provider.c_str());
    if (!pool.handle) {
        printf("%s\n", pool.error.c_str());
        return 1;
    }
    if (provider == "cuda_vmm" && !meter.open_device()) {
        printf("no CUDA driver\n");
        return 1;
    }
    meter.fixed = provider == "fixed" ? pool.provider.handle : nullptr;
    if (!meter.is_exact()) { // pages touched by the first allocation of a process are not measured
        umfPoolFree(pool.handle, umfPoolMalloc(pool.handle, 64));
    }
    const double before = static_cast<double>(meter.bytes());
    use_all_sizes(pool.handle, 16 << 20);
    umfPoolTrimMemory(pool.handle, 0);
    printf("trimmed %.3f\n", (static_cast<double>(meter.bytes()) - before) / (1 << 20));
    const double nothing = held_by_idle(nullptr, pool.handle);
    printf("idle %.1f\n", held_by_idle(pool.handle, pool.handle) - nothing);
    printf("hits %.3f\n", held_after(pool.handle, seconds, hit));
    printf("quiet %.3f\n", held_after(pool.handle, seconds, be_quiet));
    return 0;
}

void run_held_one(const char *kind, const char *provider, unsigned seconds) {
    const std::string name = std::string(kind) + " over " + provider;
    std::string error;
    const auto values = run_child("held:" + std::to_string(seconds), kind, provider, error);
    if (!error.empty()) {
        report.absent("held/" + name, error);
        print_absent(name, error);
        return;
    }
    printf("  %-44s %12.2f %12.0f %12.2f %12.2f\n", name.c_str(), values.at("trimmed"),
           values.at("idle"), values.at("hits"), values.at("quiet"));
    fflush(stdout);
    report.add("held/trimmed/" + name, "MiB", values.at("trimmed"));
    report.add("held/idle/" + name, "KiB", values.at("idle"));
    report.add("held/hits/" + name, "MiB", values.at("hits"));
    report.add("held/quiet/" + name, "MiB", values.at("quiet"));
}

void run_held() {
    const unsigned seconds = options.quick ? QUICK_DECAY_SECONDS : DECAY_SECONDS + 1;
    print_title("held: MiB resident after a trim with nothing live, KiB for each of 24 idle "
                "threads after another thread's trim, MiB beyond 1.1 x live after " +
                std::to_string(seconds) + " s of hits of one size, and without any call");
    for (size_t i = 0; i < pool_kind_count; ++i) {
        for (const char *provider : {"os", "fixed", "linux_vmm", "cuda_vmm"}) {
            run_held_one(pool_kinds[i].name, provider, seconds);
        }
    }
    report.print_new_targets();
}

const struct {
    const char *name;
    void (*run)();
} memory_cases[] = {
    {"held", run_held},
    {"metadata", run_metadata},
    {"threads held", run_thread_memory},
    {"many pools", run_many_pools},
};

} // namespace

void run_memory_cases() {
    run_rss();
    for (const auto &c : memory_cases) {
        if (wanted(c.name)) {
            c.run();
        }
    }
}

int run_memory_child(const std::string &what, const std::string &arg1, const std::string &arg2) {
    if (what == "metadata") {
        return child_metadata(arg1, arg2);
    }
    if (what.rfind("held:", 0) == 0) {
        return child_held(arg1, arg2, static_cast<unsigned>(atoi(what.c_str() + 5)));
    }
    if (what == "threads") {
        return child_threads(arg1, arg2);
    }
    return child_rss(what, arg1, arg2);
}

} // namespace bench
