// umf-bench-preload [LIBRARY]: malloc and free as the program finds them, so what LD_PRELOAD put
// there. Prints nanoseconds of a pair and, from batches of 1,000 mixed sizes, of one object. Fails
// if LIBRARY is not in the process: the loader only warns about one it cannot find.
//
// umf-bench-preload --count OPERATION N [LIBRARY]: counts N and then 2N repetitions into one dump
// each under callgrind (ir.cpp). With LIBRARY "loop" it counts the loop alone.
#include "callgrind.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <time.h>

namespace {

constexpr unsigned PAIRS = 2000000, BATCH = 1000, BATCHES = 2000;

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void pairs(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        void *volatile ptr = malloc(64);
        free(ptr);
    }
}

void batches(unsigned count) {
    static void *volatile ptrs[BATCH];
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < BATCH; k++) {
            ptrs[k] = malloc(16 + (k * 37 & 511));
        }
        for (unsigned k = 0; k < BATCH; k++) {
            free(ptrs[k]);
        }
    }
}

bool is_loaded(const char *library) {
    char line[4096];
    bool is_found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !is_found && fgets(line, sizeof(line), maps)) {
        is_found = strstr(line, library) != nullptr;
    }
    if (maps) {
        fclose(maps);
    }
    return is_found;
}

int measure() {
    pairs(PAIRS / 10);
    batches(BATCHES / 10);
    const uint64_t t0 = now_ns();
    pairs(PAIRS);
    const uint64_t t1 = now_ns();
    batches(BATCHES);
    const uint64_t t2 = now_ns();
    printf("%.3f %.3f\n", static_cast<double>(t1 - t0) / PAIRS,
           static_cast<double>(t2 - t1) / (static_cast<double>(BATCH) * BATCHES));
    return 0;
}

#ifdef UMF_BENCH_CALLGRIND

constexpr unsigned LIVE = 1000;
void *live[LIVE];

// Replaces a random one of 1,000 objects by one of 8 to 999 bytes.
template <class F, class M> void replace(uint64_t count, F free_one, M malloc_one) {
    uint32_t random = 1;
    for (uint64_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        void *&slot = live[(random >> 8) % LIVE];
        free_one(slot);
        slot = malloc_one(8 + (random >> 18) % 992);
    }
}

void *no_malloc(size_t) {
    asm volatile("" : : : "memory");
    return nullptr;
}

void no_free(void *ptr) {
    asm volatile("" : : "r"(ptr) : "memory");
}

void free_null(uint64_t count, void (*free_one)(void *)) {
    void *volatile null = nullptr;
    for (uint64_t i = 0; i < count; i++) {
        free_one(null);
    }
}

// Operations by their names in ir.cpp.
struct Operation {
    const char *name;
    void (*run)(uint64_t count);
    void (*loop)(uint64_t count);
} const operations[] = {
    {"free + malloc of 8 to 999 B", [](uint64_t n) { replace(n, free, malloc); },
     [](uint64_t n) { replace(n, no_free, no_malloc); }},
    {"delete[] + new[] of 8 to 999 B",
     [](uint64_t n) {
         replace(
             n, [](void *ptr) { ::operator delete[](ptr); },
             [](size_t size) { return ::operator new[](size); });
     },
     [](uint64_t n) { replace(n, no_free, no_malloc); }},
    {"free of NULL", [](uint64_t n) { free_null(n, free); },
     [](uint64_t n) { free_null(n, no_free); }},
};

int count(const char *name, uint64_t n, bool only_loop) {
    for (const Operation &operation : operations) {
        if (strcmp(operation.name, name) != 0) {
            continue;
        }
        const auto run = only_loop ? operation.loop : operation.run;
        run(50 * LIVE); // warm
        bench::dump_counts(n, run);
        return 0;
    }
    printf("no operation %s\n", name);
    return 1;
}

#else

int count(const char *, uint64_t, bool) {
    printf("built without valgrind/callgrind.h\n");
    return 1;
}

#endif

} // namespace

int main(int argc, char **argv) {
    const bool counts = argc > 3 && strcmp(argv[1], "--count") == 0;
    const char *library = counts ? (argc > 4 ? argv[4] : "") : (argc > 1 ? argv[1] : "");
    const bool only_loop = counts && strcmp(library, "loop") == 0;
    if (!only_loop && library[0] && !is_loaded(library)) {
        printf("%s is not here\n", library);
        return 1;
    }
    return counts ? count(argv[2], strtoull(argv[3], nullptr, 10), only_loop) : measure();
}
