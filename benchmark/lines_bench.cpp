// umf-bench-lines: counts the cache lines that the library's pools make threads share. See
// README.md and lines.h.
#include "lines.h"

#include <umf.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_os_memory.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const char usage[] =
    "usage: umf-bench-lines [--threads N] [--filter TEXT] [--where] [--free] [--quick]\n"
    "       umf-bench-lines --check\n"
    "  --threads N    threads that allocate and free (16), 2 to 64\n"
    "  --filter TEXT  only cases whose name contains TEXT; a name is 'pair/64/disjoint'\n"
    "  --where        below each row the 8 places in the source that make most lines travel\n"
    "  --free         before it counts, threads run as the machine lets them: see below\n"
    "  --quick        fewer sizes and rounds\n"
    "  --check        counts what is known, to see that the counting is right\n"
    "\n"
    "Prints how many cache lines travel between threads for each allocation with its free. The\n"
    "library's sources are compiled with a call before each access of memory, and what is called\n"
    "keeps who has which line, as caches do. Threads take turns, a call of the library each, so\n"
    "the result does not depend on the machine, nor on how many CPUs it has; the library is told\n"
    "that it has 16. 0.000 means that nothing in the library keeps threads from running side by\n"
    "side: what gets slower with more threads nevertheless is the machine's.\n"
    "\n"
    "  pair      each thread allocates one object and frees it, 8 more stay alive\n"
    "  batch     each thread allocates 1,000, then frees them in an order of chance; some "
    "allocate\n"
    "            while others free\n"
    "  handover  half of the threads allocate 200, each of the others frees those of one of them\n"
    "\n"
    "Pools change what threads share once these have met at a lock. In turns nobody meets, so\n"
    "before anything is counted a lock that another thread took last is found held, each fourth\n"
    "time. With --free threads run without turns instead and meet as the machine has it: nearer\n"
    "to a program on that machine, and different in each run.\n"
    "\n"
    "A thread writes to each object that it has allocated; if another one had it before, that "
    "line\n"
    "travels, too.\n"
    "\n"
    "Not seen: what jemalloc's own code, libtbbmalloc, the C library and the kernel do. While it\n"
    "counts no lock is ever found held, because of the turns. A lock that threads share shows as "
    "a\n"
    "line that travels, once each time another thread takes it; how long threads would wait for "
    "it\n"
    "cannot be told from that.\n";

struct Options {
    unsigned threads = 16;
    std::string filter;
    bool where = false, quick = false, free = false;
} options;

constexpr unsigned MEET_EVERY = 4;

struct Load {
    const char *name;
    size_t alive;   // a thread has all the time
    size_t objects; // and at once besides
    bool handover;
    // A round is all objects allocated and freed. First come those that let threads meet, one way
    // or the other, then some in turns, so that the pool reaches the state it stays in; the last
    // are counted.
    unsigned free_rounds, meet_rounds, turn_rounds, counted_rounds;
};

const Load loads[] = {
    {"pair", 8, 1, false, 2000, 500, 500, 1000},
    {"batch", 0, 1000, false, 6, 4, 4, 3},
    {"handover", 0, 200, true, 10, 6, 6, 6},
};

struct PoolKind {
    const char *name;
    const umf_memory_pool_ops_t *(*ops)();
};

// Each with its defaults, over the OS provider, as umf-bench has them.
const PoolKind pools[] = {
    {"disjoint", umfDisjointPoolOps}, {"jemalloc", umfJemallocPoolOps},
    {"scalable", umfScalablePoolOps}, {"coalescing", umfCoalescingPoolOps},
    {"proxy", umfProxyPoolOps},
};

[[noreturn]] void fail(const std::string &what) {
    fprintf(stderr, "umf-bench-lines: %s\n", what.c_str());
    fflush(stdout);
    _exit(1);
}

// --- threads that take turns

class Turns {
  public:
    explicit Turns(unsigned n) : seats(n) {
        for (sem_t &seat : seats) {
            sem_init(&seat, 0, 0);
        }
        sem_post(&seats[0]);
    }
    ~Turns() {
        for (sem_t &seat : seats) {
            sem_destroy(&seat);
        }
    }
    // Does it when the one before has had its turn.
    template <class F> void take(unsigned id, F work) {
        while (sem_wait(&seats[id]) != 0) {
        }
        work();
        sem_post(&seats[(id + 1) % seats.size()]);
    }

  private:
    std::vector<sem_t> seats;
};

// --- a case

class Case {
  public:
    Case(const Load &of, umf_memory_pool_handle_t in, size_t bytes)
        : load(of), pool(in), size(bytes), turns(options.threads), hands(options.threads),
          others(options.threads) {
        pthread_barrier_init(&barrier, nullptr, options.threads);
        free_rounds = of.free_rounds / (options.quick ? 4 : 1);
        meet_rounds = of.meet_rounds / (options.quick ? 3 : 1);
        turn_rounds = of.turn_rounds / (options.quick ? 3 : 1);
        counted_rounds = of.counted_rounds / (options.quick ? 3 : 1);
    }
    ~Case() {
        pthread_barrier_destroy(&barrier);
    }

    double run() {
        std::vector<std::thread> threads;
        for (unsigned id = 0; id < options.threads; id++) {
            threads.emplace_back([this, id] { run_thread(id); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        const unsigned allocating = load.handover ? options.threads / 2 : options.threads;
        const double operations = double(counted_rounds) * double(load.objects) * allocating;
        return double(lines_travelled()) / operations;
    }

  private:
    const Load &load;
    umf_memory_pool_handle_t pool;
    size_t size;
    Turns turns;
    std::vector<std::vector<void *>> hands;  // objects of each thread
    std::vector<std::vector<void *>> others; // and what stays alive
    pthread_barrier_t barrier;
    unsigned free_rounds, meet_rounds, turn_rounds, counted_rounds;

    // Where the objects come from that a thread frees; with a handover nullptr for those that
    // allocate, and for the last of an odd number.
    std::vector<void *> *freed_by(unsigned id) {
        if (!load.handover) {
            return &hands[id];
        }
        return id % 2 == 1 ? &hands[id - 1] : nullptr;
    }
    bool allocates(unsigned id) const {
        return !load.handover || (id % 2 == 0 && id + 1 < options.threads);
    }

    void allocate(void **object) {
        *object = umfPoolMalloc(pool, size);
        if (!*object) {
            fail("an allocation fails");
        }
        lines_check_write(static_cast<int *>(*object)); // as programs do first
    }
    void release(void *object) {
        if (umfFree(object) != UMF_RESULT_SUCCESS) {
            fail("a free fails");
        }
    }

    void run_thread(unsigned id) {
        hands[id].resize(load.objects);
        others[id].resize(load.alive);
        const std::vector<size_t> order = shuffled(id);
        pthread_barrier_wait(&barrier); // all are there before the first maps memory
        // Threads meet the library one after the other, the same in each run.
        turns.take(id, [&] {
            void *object;
            allocate(&object);
            release(object);
        });
        for (size_t i = 0; i < load.alive; i++) {
            turns.take(id, [&] { allocate(&others[id][i]); });
        }
        pthread_barrier_wait(&barrier);
        for (unsigned i = 0; i < free_rounds && options.free; i++) {
            free_round(id, order);
        }
        pthread_barrier_wait(&barrier);
        stay_on_one_cpu();
        part_of_a_round(id, order, 0, lead(id));
        turns.take(id, [] { lines_meet(options.free ? 0 : MEET_EVERY); });
        for (unsigned i = 0; i < meet_rounds && !options.free; i++) {
            turn_round(id, order);
        }
        turns.take(id, [] { lines_meet(0); });
        for (unsigned i = 0; i < turn_rounds; i++) {
            turn_round(id, order);
        }
        turns.take(id, [] { lines_count(1); });
        for (unsigned i = 0; i < counted_rounds; i++) {
            turn_round(id, order);
        }
        turns.take(id, [] { lines_count(0); });
        part_of_a_round(id, order, lead(id), steps());
    }

    void free_round(unsigned id, const std::vector<size_t> &order) {
        if (allocates(id)) {
            for (void *&object : hands[id]) {
                allocate(&object);
            }
        }
        if (load.handover) {
            pthread_barrier_wait(&barrier);
        }
        if (const std::vector<void *> *objects = freed_by(id)) {
            for (const size_t i : order) {
                release((*objects)[i]);
            }
        }
        if (load.handover) {
            pthread_barrier_wait(&barrier);
        }
    }

    size_t steps() const {
        return 2 * load.objects;
    }

    // Threads are at different places of their rounds, as they are in a program.
    size_t lead(unsigned id) const {
        return load.handover ? 0 : id * steps() / options.threads;
    }

    void step(unsigned id, const std::vector<size_t> &order, size_t i) {
        const std::vector<void *> *objects = freed_by(id);
        lines_enter(id);
        if (i < load.objects && allocates(id)) {
            allocate(&hands[id][i]);
        } else if (i >= load.objects && objects) {
            release((*objects)[order[i - load.objects]]);
        }
        lines_leave();
    }

    void turn_round(unsigned id, const std::vector<size_t> &order) {
        for (size_t i = 0; i < steps(); i++) {
            turns.take(id, [&] { step(id, order, (lead(id) + i) % steps()); });
        }
    }

    void part_of_a_round(unsigned id, const std::vector<size_t> &order, size_t begin, size_t end) {
        for (size_t i = 0; i < steps(); i++) {
            turns.take(id, [&] {
                if (i >= begin && i < end) {
                    step(id, order, i);
                }
            });
        }
    }

    // With a handover in the order of allocation.
    std::vector<size_t> shuffled(unsigned id) const {
        std::vector<size_t> order(load.objects);
        for (size_t i = 0; i < order.size(); i++) {
            order[i] = i;
        }
        uint32_t state = id * 77 + 1;
        for (size_t i = order.size() - 1; i > 0 && !load.handover; i--) {
            state = state * 1664525 + 1013904223;
            std::swap(order[i], order[(state >> 8) % (i + 1)]);
        }
        return order;
    }

    // A turn is passed on faster. The library does not query which CPUs it may use.
    static void stay_on_one_cpu() {
        cpu_set_t all, one;
        if (sched_getaffinity(0, sizeof(all), &all) != 0) {
            return;
        }
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (CPU_ISSET(cpu, &all)) {
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                sched_setaffinity(0, sizeof(one), &one);
                return;
            }
        }
    }
};

// --- each case in a process of its own: nothing is left from the one before

constexpr size_t PLACES = 64, PLACES_SHOWN = 8;

struct Result {
    bool is_absent = false, has_failed = false;
    double per_operation = 0;
    size_t place_count = 0;
    struct {
        uintptr_t address;
        double per_operation;
    } places[PLACES] = {};
};

umf_memory_pool_handle_t create_pool(const umf_memory_pool_ops_t *ops) {
    umf_os_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    if (umfOsMemoryProviderParamsCreate(&params) != UMF_RESULT_SUCCESS ||
        umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider) !=
            UMF_RESULT_SUCCESS) {
        fail("the OS provider cannot be created");
    }
    umfOsMemoryProviderParamsDestroy(params);
    return umfPoolCreate(ops, provider, nullptr, UMF_POOL_CREATE_FLAG_NONE, &pool) ==
                   UMF_RESULT_SUCCESS
               ? pool
               : nullptr;
}

Result run_here(const Load &load, const PoolKind &kind, size_t size) {
    Result result;
    const umf_memory_pool_ops_t *ops = kind.ops();
    umf_memory_pool_handle_t pool = ops ? create_pool(ops) : nullptr;
    if (!pool) {
        result.is_absent = true;
        return result;
    }
    Case c(load, pool, size);
    result.per_operation = c.run();
    lines_place_t places[PLACES];
    result.place_count = lines_places(places, PLACES);
    const double each = lines_travelled() ? result.per_operation / double(lines_travelled()) : 0;
    for (size_t i = 0; i < result.place_count; i++) {
        result.places[i] = {places[i].address, double(places[i].count) * each};
    }
    return result;
}

Result run_case(const Load &load, const PoolKind &kind, size_t size) {
    Result result;
    int ends[2];
    fflush(stdout);
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child < 0) {
        fail("no process for a case");
    }
    if (child == 0) {
        result = run_here(load, kind, size);
        _exit(write(ends[1], &result, sizeof(result)) == ssize_t{sizeof(result)} ? 0 : 1);
    }
    close(ends[1]);
    const bool is_whole = read(ends[0], &result, sizeof(result)) == ssize_t{sizeof(result)};
    close(ends[0]);
    waitpid(child, nullptr, 0);
    result.has_failed = !is_whole;
    return result;
}

// --- places in the source

std::string own_path() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    return std::string(path, length > 0 ? size_t(length) : 0);
}

// "file.h:12 < file.c:34": a function that was inlined, then who it was inlined into. The addresses
// themselves without addr2line.
std::vector<std::string> source_of(const Result &result) {
    std::vector<std::string> texts(result.place_count);
    std::string command = "addr2line -s -a -i -e '" + own_path() + "'";
    char text[4096];
    for (size_t i = 0; i < result.place_count; i++) {
        // The call is before it.
        snprintf(text, sizeof(text), " 0x%zx", size_t{result.places[i].address} - 1);
        command += text;
        texts[i] = text + 1;
    }
    FILE *pipe = popen((command + " 2>/dev/null").c_str(), "r");
    size_t at = 0; // the address whose lines follow, plus 1
    while (pipe && fgets(text, sizeof(text), pipe)) {
        const std::string line(text, strcspn(text, " \n"));
        if (line.compare(0, 2, "0x") == 0) {
            at++;
            if (at <= texts.size()) {
                texts[at - 1].clear();
            }
        } else if (at > 0 && at <= texts.size()) {
            texts[at - 1] += (texts[at - 1].empty() ? "" : " < ") + line;
        }
    }
    if (pipe) {
        pclose(pipe);
    }
    return texts;
}

void print_places(const Load &load, const Result &result) {
    if (result.place_count == 0) {
        return;
    }
    std::vector<std::pair<std::string, double>> merged;
    const std::vector<std::string> texts = source_of(result);
    for (size_t i = 0; i < texts.size(); i++) {
        const auto same = std::find_if(merged.begin(), merged.end(),
                                       [&](const auto &place) { return place.first == texts[i]; });
        if (same == merged.end()) {
            merged.emplace_back(texts[i], result.places[i].per_operation);
        } else {
            same->second += result.places[i].per_operation;
        }
    }
    std::stable_sort(merged.begin(), merged.end(),
                     [](const auto &a, const auto &b) { return a.second > b.second; });
    printf("  %s\n", load.name);
    for (size_t i = 0; i < merged.size() && i < PLACES_SHOWN; i++) {
        printf("    %9.3f  %s\n", merged[i].second, merged[i].first.c_str());
    }
}

// --- the table

std::string size_text(size_t size) {
    return size >= 1024 ? std::to_string(size / 1024) + "K" : std::to_string(size);
}

bool is_wanted(const Load &load, const PoolKind &kind, size_t size) {
    const std::string name = std::string(load.name) + "/" + size_text(size) + "/" + kind.name;
    return name.find(options.filter) != std::string::npos;
}

// False if a case has failed.
bool run_row(const PoolKind &kind, size_t size) {
    std::vector<std::pair<const Load *, Result>> results;
    bool is_good = true, is_absent = false;
    std::string row;
    for (const Load &load : loads) {
        char cell[32] = "-";
        if (is_wanted(load, kind, size)) {
            const Result result = run_case(load, kind, size);
            snprintf(cell, sizeof(cell), "%.3f", result.per_operation);
            if (result.is_absent || result.has_failed) {
                snprintf(cell, sizeof(cell), "%s", result.is_absent ? "absent" : "failed");
            }
            is_good = is_good && !result.has_failed;
            is_absent = is_absent || result.is_absent;
            results.emplace_back(&load, result);
        }
        char text[64];
        snprintf(text, sizeof(text), "%10s", cell);
        row += text;
    }
    if (!results.empty()) {
        printf("%-12s %5s%s\n", kind.name, size_text(size).c_str(), row.c_str());
        for (size_t i = 0; i < results.size() && options.where; i++) {
            print_places(*results[i].first, results[i].second);
        }
        fflush(stdout);
    }
    return is_good && !(is_absent && options.filter.find(kind.name) != std::string::npos);
}

int run_table() {
    printf("cache lines that travel between threads, for each allocation with its free\n"
           "%u threads in turns, the library is told of %d CPUs\n\n%-12s %5s",
           options.threads, LINES_CPUS, "pool", "size");
    for (const Load &load : loads) {
        printf("%10s", load.name);
    }
    printf("\n");
    bool is_good = true;
    for (const PoolKind &kind : pools) {
        for (const size_t size : {size_t{64}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
            if (!options.quick || size == 64) {
                is_good = run_row(kind, size) && is_good;
            }
        }
    }
    return is_good ? 0 : 1;
}

// --- the counting itself

struct Check {
    const char *what;
    uint64_t wanted;
    uint64_t found;
};

// Two threads in turns, each `rounds` times.
template <class F> uint64_t travelled_in(int rounds, F access) {
    const uint64_t before = lines_travelled();
    Turns turns(2);
    const auto run = [&](unsigned id) {
        for (int i = 0; i < rounds; i++) {
            turns.take(id, [&] {
                lines_enter(id);
                access(id);
                lines_leave();
            });
        }
    };
    std::thread other(run, 1u);
    run(0);
    other.join();
    return lines_travelled() - before;
}

int run_check() {
    constexpr int ROUNDS = 1000;
    struct alignas(128) Line {
        int value[32];
    };
    static Line memory[24];
    lines_count(1);
    // The first access of all finds the line nowhere.
    const Check checks[] = {
        {"one variable, written by both", 2 * ROUNDS - 1,
         travelled_in(ROUNDS, [](unsigned) { lines_check_write(memory[0].value); })},
        {"one variable, added to by both", 2 * ROUNDS - 1,
         travelled_in(ROUNDS, [](unsigned) { lines_check_add(memory[1].value); })},
        {"two variables of one line", 2 * ROUNDS - 1,
         travelled_in(ROUNDS, [](unsigned id) { lines_check_write(&memory[2].value[id]); })},
        {"variables 128 bytes apart", 0,
         travelled_in(ROUNDS, [](unsigned id) { lines_check_write(memory[3 + id].value); })},
        {"read by both, written by nobody", 0,
         travelled_in(ROUNDS, [](unsigned) { lines_check_read(memory[5].value); })},
        {"written by one, read by the other", 2 * ROUNDS - 1,
         travelled_in(ROUNDS,
                      [](unsigned id) {
                          id ? void(lines_check_read(memory[6].value))
                             : lines_check_write(memory[6].value);
                      })},
        {"128 bytes, copied by both to one place", 2 * (2 * ROUNDS - 1),
         travelled_in(
             ROUNDS,
             [](unsigned id) { lines_check_copy(&memory[7], &memory[8 + id], sizeof(Line)); })},
    };
    bool is_good = true;
    for (const Check &check : checks) {
        const bool is_right = check.found == check.wanted;
        is_good = is_good && is_right;
        printf("%-42s %6llu travel, %6llu should%s\n", check.what,
               static_cast<unsigned long long>(check.found),
               static_cast<unsigned long long>(check.wanted), is_right ? "" : ": WRONG");
    }
    return is_good ? 0 : 1;
}

// Places of memory are a matter of chance otherwise, and so is which of them share a line or a
// lock.
void restart_with_fixed_addresses(char **argv) {
    const int now = personality(0xffffffff);
    if (now != -1 && !(now & ADDR_NO_RANDOMIZE) &&
        personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) != -1) {
        const int then = personality(0xffffffff);
        if (then != -1 && (then & ADDR_NO_RANDOMIZE)) {
            execv("/proc/self/exe", argv);
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    restart_with_fixed_addresses(argv);
    mallopt(M_ARENA_MAX, 1); // threads that start map no memory of their own, in any order
    bool is_check = false;
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        const bool has_value = i + 1 < argc;
        if (arg == "--threads" && has_value && atoi(argv[i + 1]) >= 2 &&
            atoi(argv[i + 1]) <= LINES_MAX_THREADS) {
            options.threads = static_cast<unsigned>(atoi(argv[++i]));
        } else if (arg == "--filter" && has_value) {
            options.filter = argv[++i];
        } else if (arg == "--where") {
            options.where = true;
        } else if (arg == "--free") {
            options.free = true;
        } else if (arg == "--quick") {
            options.quick = true;
        } else if (arg == "--check") {
            is_check = true;
        } else {
            fputs(usage, arg == "--help" ? stdout : stderr);
            return arg == "--help" ? 0 : 2;
        }
    }
    return is_check ? run_check() : run_table();
}
