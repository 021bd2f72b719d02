// Programs of others: those of mimalloc-bench, built, under the preload library over
// each pool that it can use and under every peer that is there. Times and peaks of resident memory
// as ratios with geometric means.
#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

namespace bench {

namespace {

constexpr double NOT_MEASURED = std::numeric_limits<double>::quiet_NaN();

struct Allocator {
    std::string name, library;
    bool is_ours;
};

// `throughput`: a number that the program prints instead of ending earlier; its inverse counts as
// the time. `T` in the arguments is the number of threads, `FOLDER` the sources of mimalloc-bench.
struct Program {
    const char *name, *file;
    std::vector<const char *> args;
    const char *throughput = nullptr;
    const char *input = nullptr;
};

const std::vector<Program> single = {
    {"cfrac", "cfrac", {"17545186520507317056371138836327483792789528"}},
    {"espresso", "espresso", {"FOLDER/bench/espresso/largest.espresso"}},
    {"barnes", "barnes", {}, nullptr, "FOLDER/bench/barnes/input"},
    {"glibc-simple", "glibc-simple", {}},
    {"alloc-test", "alloc-test", {"1"}},
    {"malloc-large", "malloc-large", {}},
};

const std::vector<Program> threaded = {
    {"larson", "larson", {"1", "8", "1000", "5000", "100", "4141", "T"}, "Throughput = ([0-9.]+)"},
    {"mstress", "mstress", {"T", "50", "25"}},
    {"glibc-thread", "glibc-thread", {"T"}, "([0-9.]+) iterations"},
    {"xmalloc-test", "xmalloc-test", {"-w", "T", "-t", "1", "-s", "64"}, "free/sec: ([0-9.]+)"},
    {"rptest",
     "rptest",
     {"T", "0", "1", "2", "500", "1000", "100", "8", "16000"},
     "([0-9]+) memory ops"},
};

// With as many threads as there are CPUs.
const std::vector<Program> others = {
    {"larson-sized",
     "larson-sized",
     {"1", "8", "1000", "5000", "100", "4141", "T"},
     "Throughput = ([0-9.]+)"},
    {"cache-scratch", "cache-scratch", {"T", "1000", "1", "2000000", "T"}},
    {"cache-thrash", "cache-thrash", {"T", "1000", "1", "2000000", "T"}},
    {"mleak 5", "mleak", {"5"}},
    {"mleak 50", "mleak", {"50"}},
};

bool is_readable(const std::string &path) {
    return access(path.c_str(), R_OK) == 0;
}

std::string beside_us(const char *file) {
    const std::string self = self_path();
    return self.substr(0, self.rfind('/') + 1) + file;
}

std::string fill_in(std::string text, const std::string &folder, int threads) {
    const size_t at = text.find("FOLDER");
    return text == "T" ? std::to_string(threads)
           : at == 0   ? folder + text.substr(strlen("FOLDER"))
                       : text;
}

struct Measured {
    double time = NOT_MEASURED, peak = NOT_MEASURED;
    std::string error;
};

// A file for the output of a program, removed at the end.
class Output {
  public:
    Output() {
        char made[] = "/tmp/umf-judge-XXXXXX";
        const int fd = mkstemp(made);
        if (fd >= 0) {
            close(fd);
            path = made;
        }
    }
    ~Output() {
        unlink(path.c_str());
    }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;
    double number(const char *pattern) const {
        std::ifstream file(path);
        std::stringstream text;
        text << file.rdbuf();
        std::smatch found;
        const std::string all = text.str();
        return std::regex_search(all, found, std::regex(pattern))
                   ? strtod(found[1].str().c_str(), nullptr)
                   : 0;
    }
    std::string path;
};

Measured measure(const std::string &folder, const Program &program, const Allocator &allocator,
                 int threads) {
    static const Output output;
    std::vector<std::string> args = {beside_us("umf-bench-measure")};
    if (program.input) {
        args.insert(args.end(), {"--input", fill_in(program.input, folder, threads)});
    }
    args.insert(args.end(), {"--output", output.path, allocator.library,
                             folder + "/out/bench/" + program.file});
    for (const char *arg : program.args) {
        args.push_back(fill_in(arg, folder, threads));
    }
    Measured measured;
    std::istringstream text(run_program(args, measured.error));
    double wall = 0, cpu = 0, peak = 0;
    if (!measured.error.empty() || !(text >> wall >> cpu >> peak)) {
        measured.error = measured.error.empty() ? "not measured" : measured.error;
        return measured;
    }
    const double throughput = program.throughput ? output.number(program.throughput) : 0;
    if (program.throughput && throughput <= 0) {
        measured.error = "it printed no throughput";
        return measured;
    }
    measured.time = program.throughput ? 1 / throughput : wall / 1e9;
    measured.peak = peak / 1024;
    return measured;
}

// The first that is there; the last ones are found by the loader.
std::string library_of(const std::vector<std::string> &candidates) {
    for (const std::string &path : candidates) {
        if (path.find('/') == std::string::npos || is_readable(path)) {
            return path;
        }
    }
    return "";
}

// Those that can be preloaded; the others are named once.
std::vector<Allocator> without_absent(const std::vector<Allocator> &all) {
    std::vector<Allocator> there;
    for (const Allocator &allocator : all) {
        std::string error;
        run_program({beside_us("umf-bench-measure"), allocator.library,
                     beside_us("umf-bench-loads"), "nothing", "1", allocator.library},
                    error);
        if (error.empty()) {
            there.push_back(allocator);
        } else {
            report.absent("judge/" + allocator.name, error);
        }
    }
    return there;
}

// Peers built by mimalloc-bench come before those of the system.
std::vector<Allocator> allocators(const std::string &folder) {
    const std::string extern_ = folder + "/extern/";
    std::vector<Allocator> all = {{"libumf_proxy", proxy_path(), true}};
    for (const char *pool : {"scalable", "jemalloc"}) {
        const std::string path = beside_us((std::string("libumf_proxy_") + pool + ".so").c_str());
        if (is_readable(path)) {
            all.push_back({std::string("libumf_proxy ") + pool, path, true});
        }
    }
    const Allocator peers[] = {
        {"glibc", "", false},
        {"mimalloc", library_of({extern_ + "mi3/out/release/libmimalloc.so", "libmimalloc.so.2"}),
         false},
        {"mimalloc 2", library_of({extern_ + "mi2/out/release/libmimalloc.so", "/absent"}), false},
        {"jemalloc", library_of({extern_ + "je/lib/libjemalloc.so.2", "libjemalloc.so.2"}), false},
        {"tbbmalloc", "libtbbmalloc_proxy.so.2", false},
        {"tcmalloc",
         library_of({extern_ + "tc/.libs/libtcmalloc_minimal.so", "libtcmalloc_minimal.so.4"}),
         false},
        {"snmalloc", library_of({extern_ + "sn/release/libsnmallocshim.so", "libsnmallocshim.so"}),
         false},
    };
    for (const Allocator &peer : peers) {
        if (peer.name == "glibc" || !peer.library.empty()) {
            all.push_back(peer);
        }
    }
    return without_absent(all);
}

// --- ratios
// -------------------------------------------------------------------------------------------------

// Of one program, by allocator; NaN where there is none.
struct Row {
    std::string name;
    std::vector<double> time, peak;
};
using Rows = std::vector<Row>;

double geometric_mean(const std::vector<double> &values) {
    double sum = 0;
    for (double value : values) {
        sum += std::log(value);
    }
    return values.empty() ? NOT_MEASURED : std::exp(sum / static_cast<double>(values.size()));
}

double best_peer(const std::vector<double> &row, const std::vector<Allocator> &all) {
    double best = NOT_MEASURED;
    for (size_t i = 0; i < all.size(); ++i) {
        best = all[i].is_ours ? best : std::fmin(best, row[i]); // fmin ignores NaN
    }
    return best;
}

// Over all programs that both have. `peer` beyond the last: the best of each program.
std::vector<double> ratios(const Rows &rows, std::vector<double> Row::*of, size_t ours, size_t peer,
                           const std::vector<Allocator> &all) {
    std::vector<double> list;
    for (const Row &row : rows) {
        const double other = peer < all.size() ? (row.*of)[peer] : best_peer(row.*of, all);
        const double ratio = (row.*of)[ours] / other;
        if (std::isfinite(ratio) && ratio > 0) {
            list.push_back(ratio);
        }
    }
    return list;
}

void print_ratios(const std::string &set, const char *what, const Rows &rows,
                  std::vector<double> Row::*of, const std::vector<Allocator> &all) {
    for (size_t ours = 0; ours < all.size(); ++ours) {
        if (!all[ours].is_ours) {
            continue;
        }
        printf("  %-4s %-22s", what, all[ours].name.c_str());
        for (size_t peer = 0; peer <= all.size(); ++peer) {
            if (peer < all.size() && all[peer].is_ours) {
                continue;
            }
            const std::string name = peer < all.size() ? all[peer].name : "best";
            const std::vector<double> list = ratios(rows, of, ours, peer, all);
            if (list.empty()) {
                printf("  /%s -", name.c_str());
                continue;
            }
            printf("  /%s %.2f", name.c_str(), geometric_mean(list));
            report.add("judge/" + std::string(what) + "/" + set + "/" + all[ours].name + "/" + name,
                       "x", geometric_mean(list));
        }
        printf("\n");
    }
}

void print_rows(const char *unit, const Rows &rows, std::vector<double> Row::*of,
                const std::vector<Allocator> &all) {
    printf("  %-14s", unit);
    for (const Allocator &allocator : all) {
        printf(" %21.21s", allocator.name.c_str());
    }
    printf("\n");
    for (const Row &row : rows) {
        printf("  %-14s", row.name.c_str());
        for (double value : row.*of) {
            std::isnan(value) ? printf(" %21s", "-") : printf(" %21.4g", value);
        }
        printf("\n");
    }
}

// --- sets of programs
// ---------------------------------------------------------------------------------------

// All allocators take turns in every round.
Row run_one(const std::string &folder, const Program &program, int threads, const std::string &set,
            const std::vector<Allocator> &all) {
    std::vector<Samples> time(all.size()), peak(all.size());
    std::vector<std::string> error(all.size());
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (size_t i = 0; i < all.size(); ++i) {
            if (!error[i].empty()) {
                continue;
            }
            const Measured measured = measure(folder, program, all[i], threads);
            error[i] = measured.error;
            if (measured.error.empty()) {
                time[i].add(measured.time);
                peak[i].add(measured.peak);
            }
        }
    }
    Row row = {program.name, {}, {}};
    for (size_t i = 0; i < all.size(); ++i) {
        const bool is_right = error[i].empty();
        const std::string tail = set + "/" + program.name + "/" + all[i].name;
        row.time.push_back(is_right ? time[i].median() : NOT_MEASURED);
        row.peak.push_back(is_right ? peak[i].median() : NOT_MEASURED);
        if (is_right) {
            report.add("judge/program time/" + tail, "s", time[i]);
            report.add("judge/program rss/" + tail, "MiB", peak[i]);
        } else {
            report.absent("judge/program time/" + tail, error[i]);
            printf("  %s under %s: %s\n", program.name, all[i].name.c_str(), error[i].c_str());
        }
    }
    return row;
}

void run_set(const std::string &folder, const std::string &set,
             const std::vector<Program> &programs, int threads, const std::vector<Allocator> &all,
             Rows &everything) {
    if (!wanted("judge/" + set)) {
        return;
    }
    print_title("judge/" + set);
    Rows rows;
    for (const Program &program : programs) {
        if (is_readable(folder + "/out/bench/" + program.file)) {
            rows.push_back(run_one(folder, program, threads, set, all));
        } else {
            report.absent("judge/program time/" + set + "/" + program.name,
                          folder + "/out/bench/" + program.file + " is not there");
        }
    }
    print_rows("seconds, or their like", rows, &Row::time, all);
    print_rows("peak MiB", rows, &Row::peak, all);
    print_ratios(set, "time", rows, &Row::time, all);
    print_ratios(set, "rss", rows, &Row::peak, all);
    everything.insert(everything.end(), rows.begin(), rows.end());
    report.print_new_targets();
}

// The worst single program of all, against the best of each.
void print_worst(const Rows &rows, const std::vector<Allocator> &all) {
    for (size_t ours = 0; ours < all.size(); ++ours) {
        const std::vector<double> list = ratios(rows, &Row::time, ours, all.size(), all);
        if (all[ours].is_ours && !list.empty()) {
            report.add("judge/worst/" + all[ours].name, "x",
                       *std::max_element(list.begin(), list.end()));
        }
    }
}

} // namespace

int run_judge(const std::string &folder) {
    struct stat status;
    if (stat((folder + "/out/bench").c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        fprintf(
            stderr,
            "umf-bench: %s/out/bench is not there; build the programs with mimalloc-bench's own "
            "script: build-bench-env.sh bench\n",
            folder.c_str());
        return 2;
    }
    const std::vector<Allocator> all = allocators(folder);
    Rows rows, rest;
    run_set(folder, "single", single, 1, all, rows);
    for (int threads = 1; threads <= usable_cpus(); threads *= 2) {
        run_set(folder, std::to_string(threads) + (threads == 1 ? " thread" : " threads"), threaded,
                threads, all, rows);
    }
    run_set(folder, "others", others, usable_cpus(), all, rest);
    if (!rows.empty()) {
        print_title("judge/all but others");
        print_ratios("all", "time", rows, &Row::time, all);
        print_ratios("all", "rss", rows, &Row::peak, all);
        print_worst(rows, all);
        report.print_new_targets();
    }
    return 0;
}

} // namespace bench
