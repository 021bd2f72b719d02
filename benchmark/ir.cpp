// Counted mode: instructions per operation.
//
// For each operation the program runs itself under callgrind, or umf-bench-preload with a library
// in front. The child counts N and then 2N repetitions into one dump each, so that what happens
// once cancels; the loop's own instructions are counted the same way and subtracted. Only user
// space is counted.
#include "bench.h"
#include "callgrind.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <unistd.h>

namespace bench {

#ifdef UMF_BENCH_CALLGRIND

namespace {

// The counted part of an allocation: the pair, a batch, or one half of it.
struct Kind {
    const char *name;
    Case which;
    size_t size;
    uint64_t n;
    enum Part { whole, first, second } part;
};

const Kind kinds[] = {
    {"pair 64", Case::pair, 64, 20000, Kind::whole},
    {"pair 4K", Case::pair, 4096, 20000, Kind::whole},
    {"pair 64K", Case::pair, 65536, 5000, Kind::whole},
    {"pair 1M", Case::pair, 1 << 20, 5000, Kind::whole},
    {"batch 64", Case::shuffled, 64, 20000, Kind::whole},
    {"batch 2K", Case::shuffled, 2048, 20000, Kind::whole},
    {"malloc", Case::pair, 64, 16000, Kind::first},
    {"free", Case::pair, 64, 16000, Kind::second},
};

struct Row {
    const char *kind;
    std::vector<const char *> subjects;
};

const std::vector<Row> &rows() {
    static const std::vector<Row> all = {
        {"pair 64",
         {"disjoint over os", "coalescing over os", "jemalloc over os", "scalable over os",
          "disjoint over os, umfPoolFree", "glibc", "jemalloc", "jemalloc inside a library",
          "mimalloc heap", "TBB pool", "TBB scalable"}},
        {"pair 4K", {"disjoint over os", "jemalloc over os", "glibc", "jemalloc", "mimalloc heap"}},
        {"pair 64K",
         {"disjoint over chunks", "coalescing over chunks", "jemalloc over chunks", "jemalloc",
          "mimalloc heap", "TBB pool"}},
        {"pair 1M",
         {"disjoint over chunks", "coalescing over chunks", "jemalloc over chunks",
          "scalable over chunks", "jemalloc", "mimalloc heap", "TBB pool"}},
        {"batch 64",
         {"disjoint over os", "coalescing over os", "jemalloc over os", "glibc", "jemalloc",
          "mimalloc heap", "TBB pool"}},
        {"batch 2K",
         {"disjoint over os", "coalescing over os", "jemalloc over os", "glibc", "jemalloc",
          "mimalloc heap"}},
        {"malloc",
         {"disjoint over os", "jemalloc over os", "proxy over null",
          "disjoint over queues, umfFreeOn", "jemalloc", "mimalloc heap"}},
        {"free",
         {"disjoint over os", "disjoint over os, umfPoolFree", "jemalloc over os",
          "proxy over null", "disjoint over queues, umfFreeOn", "jemalloc", "mimalloc heap"}},
    };
    return all;
}

// --- the child
// ----------------------------------------------------------------------------------------

// Allocates and frees a few objects at a time, so that both halves hit the caches, and counts one
// half.
struct HalfJob final : Job {
    static constexpr int FEW = 16;
    const Subject &subject;
    size_t size;
    bool count_malloc;
    HalfJob(const Subject &s, size_t n, bool m) : subject(s), size(n), count_malloc(m) {}
    std::vector<void *> others; // see PairJob
    void prepare(int) override {
        for (int i = 0; i < 8; ++i) {
            others.push_back(subject_malloc(subject, size));
        }
    }
    void finish(int) override {
        for (void *ptr : others) {
            subject_free(subject, ptr);
        }
    }
    template <class M, class F> void loop(M malloc_one, F free_one) {
        void *ptrs[FEW];
        for (uint64_t done = 0; done < ops; done += FEW) {
            toggle(count_malloc);
            for (void *&ptr : ptrs) {
                ptr = malloc_one();
                asm volatile("" : "+r"(ptr));
            }
            toggle(count_malloc);
            toggle(!count_malloc);
            for (void *ptr : ptrs) {
                free_one(ptr);
                asm volatile("" : : "r"(ptr));
            }
            toggle(!count_malloc);
        }
    }
    static void toggle(bool wanted_half) {
        if (wanted_half) {
            CALLGRIND_TOGGLE_COLLECT;
        }
    }
    template <class F> static F cast(void *address) {
        F f;
        memcpy(&f, &address, sizeof(f));
        return f;
    }
    void run(int) override {
        void *ctx = subject.thread_ctx ? subject.thread_ctx() : subject.ctx;
        const auto plain_malloc = cast<void *(*)(size_t)>(subject.malloc_fn);
        const auto plain_free = cast<void (*)(void *)>(subject.free_fn);
        const auto pool_malloc = cast<void *(*)(void *, size_t)>(subject.malloc_fn);
        const auto pool_free = cast<void (*)(void *, void *)>(subject.free_fn);
        const size_t n = size;
        switch (subject.shape) {
        case Shape::loop:
            return loop([ctx] { return ctx; }, [](void *) {});
        case Shape::plain:
            return loop([=] { return plain_malloc(n); }, plain_free);
        case Shape::heap:
            return loop([=] { return pool_malloc(ctx, n); }, plain_free);
        case Shape::pool:
            return loop([=] { return pool_malloc(ctx, n); },
                        [=](void *ptr) { pool_free(ctx, ptr); });
        }
    }
};

const Kind *find_kind(const std::string &name) {
    for (const Kind &kind : kinds) {
        if (name == kind.name) {
            return &kind;
        }
    }
    return nullptr;
}

std::unique_ptr<Job> make_counted_job(const std::string &op, Subject &subject, std::string &why) {
    for (size_t i = 0; i < micro_count; ++i) {
        if (op == micros[i].name) {
            return micros[i].make(why);
        }
    }
    const size_t slash = op.find('/');
    const Kind *kind = find_kind(op.substr(0, slash));
    if (!kind || slash == std::string::npos) {
        why = "no such operation";
        return nullptr;
    }
    subject = subject_by_name(op.substr(slash + 1));
    // What "null" hands out cannot be touched, and is recorded as a whole leaf only from 2 MiB on.
    const bool null = subject.name.find("over null") != std::string::npos;
    if (!null) {
        check_subject(subject, kind->size);
    }
    if (!subject.absent.empty()) {
        why = subject.absent;
        return nullptr;
    }
    if (kind->part != Kind::whole) {
        return std::make_unique<HalfJob>(subject, null ? 2 << 20 : kind->size,
                                         kind->part == Kind::first);
    }
    return make_job(kind->which, subject, kind->size);
}

} // namespace

int run_ir_child(const std::string &op, uint64_t n) {
    Subject subject;
    std::string why;
    std::unique_ptr<Job> job = make_counted_job(op, subject, why);
    if (!job) {
        printf("absent %s\n", why.c_str());
        return 0;
    }
    job->ops = n;
    job->prepare(0);
    job->run(0); // warm
    dump_counts(n, [&](uint64_t ops) {
        job->ops = ops;
        job->run(0);
    });
    job->finish(0);
    if (job->failed) {
        printf("absent the operation returned an error\n");
    }
    return 0;
}

// --- the parent
// ---------------------------------------------------------------------------------------

namespace {

// Instructions in one dump; negative if there is none.
double read_dump(const std::string &path) {
    double ir = -1;
    if (FILE *f = fopen(path.c_str(), "r")) {
        char line[4096];
        while (fgets(line, sizeof(line), f) && sscanf(line, "totals: %lf", &ir) != 1) {
        }
        fclose(f);
    }
    return ir;
}

void remove_directory(const std::string &path) {
    if (DIR *dir = opendir(path.c_str())) {
        while (const dirent *entry = readdir(dir)) {
            if (entry->d_name[0] != '.') {
                unlink((path + "/" + entry->d_name).c_str());
            }
        }
        closedir(dir);
    }
    rmdir(path.c_str());
}

// A program that counts an operation, and the library in front of it ("": none).
struct Child {
    std::vector<std::string> args;
    bool toggled;
    std::string library;
};

// Instructions per repetition, loop included; negative with `error` set if that failed.
double count(const Child &child, uint64_t n, std::string &error) {
    char directory[] = "/tmp/umf-bench-XXXXXX";
    if (!mkdtemp(directory)) {
        error = "cannot make a directory in /tmp";
        return -1;
    }
    const std::string out = std::string(directory) + "/out";
    std::vector<std::string> args = {"/usr/bin/env",
                                     "LD_PRELOAD=" + child.library,
                                     "valgrind",
                                     "--quiet",
                                     "--tool=callgrind",
                                     "--instr-atstart=no",
                                     std::string("--collect-atstart=") +
                                         (child.toggled ? "no" : "yes"),
                                     "--callgrind-out-file=" + out};
    args.insert(args.end(), child.args.begin(), child.args.end());
    const std::string text = run_program(args, error);
    const double once = read_dump(out + ".1"), twice = read_dump(out + ".2");
    remove_directory(directory);
    if (error.empty() && text.compare(0, 7, "absent ") == 0) {
        error = text.substr(7, text.find('\n') - 7);
    }
    if (error.empty() && (once < 0 || twice < once)) {
        error = "callgrind left no counts";
    }
    return error.empty() ? (twice - once) / static_cast<double>(n) : -1;
}

double count_row(const std::string &op, const Child &child, uint64_t n, double loop) {
    std::string error;
    const double ir = count(child, n, error);
    const std::string key = "ir/" + op;
    if (!error.empty()) {
        report.absent(key, error);
        print_absent(op, error);
        return 0;
    }
    Samples s;
    s.add(ir - loop);
    report.add(key, "Ir", s);
    printf("  %-60s %12.1f Ir\n", op.c_str(), ir - loop);
    fflush(stdout);
    return ir;
}

double count_own_row(const std::string &op, uint64_t n, bool toggled, double loop) {
    const Child child = {{self_path(), "--ir-child", op, std::to_string(n)}, toggled, ""};
    return count_row(op, child, n, loop);
}

// Operations of umf-bench-preload, by their names there.
void run_preloaded() {
    constexpr uint64_t N = 200000;
    const struct {
        const char *name;
        std::string library;
    } allocators[] = {{"(the loop itself)", ""},
                      {"libumf_proxy", proxy_path()},
                      {"glibc", ""},
                      {"jemalloc", "libjemalloc.so.2"},
                      {"mimalloc", "libmimalloc.so.2"},
                      {"tcmalloc", "libtcmalloc_minimal.so.4"}};
    for (const char *operation :
         {"free + malloc of 8 to 999 B", "delete[] + new[] of 8 to 999 B", "free of NULL"}) {
        if (!wanted(std::string("ir/preloaded ") + operation)) {
            continue;
        }
        print_title("preloaded " + std::string(operation) +
                    ": instructions per operation, the loop subtracted");
        double loop = 0;
        for (const auto &allocator : allocators) {
            const bool is_loop = &allocator == allocators;
            const Child child = {{beside_us("umf-bench-preload"), "--count", operation,
                                  std::to_string(N), is_loop ? "loop" : allocator.library},
                                 false,
                                 allocator.library};
            const double ir = count_row(
                "preloaded " + std::string(operation) + "/" + allocator.name, child, N, loop);
            loop = is_loop ? ir : loop;
        }
        report.print_new_targets();
    }
}

} // namespace

int run_ir() {
    for (const Row &row : rows()) {
        const Kind &kind = *find_kind(row.kind);
        const bool toggled = kind.part != Kind::whole;
        if (!wanted(std::string("ir/") + kind.name)) {
            continue;
        }
        print_title(std::string(kind.name) + ": instructions per operation, the loop subtracted");
        const std::string prefix = std::string(kind.name) + "/";
        const double loop = count_own_row(prefix + "(the loop itself)", kind.n, toggled, 0);
        for (const char *subject : row.subjects) {
            count_own_row(prefix + subject, kind.n, toggled, loop);
        }
        report.print_new_targets();
    }
    if (wanted("ir/single operations")) {
        print_title("single operations: instructions, the loop subtracted");
        double loop = 0;
        for (size_t i = 0; i < micro_count; ++i) {
            if (micros[i].counted == 0) {
                continue;
            }
            const double ir = count_own_row(micros[i].name, micros[i].counted, false, loop);
            loop = i == 0 ? ir : loop;
        }
        report.print_new_targets();
    }
    run_preloaded();
    return 0;
}

#else // no valgrind headers

int run_ir_child(const std::string &, uint64_t) {
    return 1;
}

int run_ir() {
    fprintf(stderr, "umf-bench: --ir needs valgrind/callgrind.h when this program is built "
                    "(package valgrind); install it and build again\n");
    return 1;
}

#endif

} // namespace bench
