// Programs of others: those of mimalloc-bench, built, under the preload library over
// each pool that it can use and under every peer that is there. Times and peaks of resident memory
// as ratios with geometric means. With --side-by-side several allocators run a program at the same
// time, each on CPUs of its own.
#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

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
    {"larson", "larson", {"1", "8", "1000", "5000", "100", "4141", "T"}, "Throughput = +([0-9.]+)"},
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
     "Throughput = +([0-9.]+)"},
    {"cache-scratch", "cache-scratch", {"T", "1000", "1", "2000000", "T"}},
    {"cache-thrash", "cache-thrash", {"T", "1000", "1", "2000000", "T"}},
    {"mleak 5", "mleak", {"5"}},
    {"mleak 50", "mleak", {"50"}},
};

bool is_readable(const std::string &path) {
    return access(path.c_str(), R_OK) == 0;
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

// `first_cpu`: of those it runs on; negative: all.
Measured measure(const std::string &folder, const Program &program, const Allocator &allocator,
                 int threads, int first_cpu) {
    const Output output;
    std::vector<std::string> args = {beside_us("umf-bench-measure")};
    if (first_cpu >= 0) {
        args.insert(args.end(), {"--cpus", std::to_string(first_cpu), std::to_string(threads)});
    }
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

// One program with a number of threads, in the rounds that were made.
struct Trial {
    std::string set;
    const Program *program;
    int threads;
    unsigned first_turn; // random, so that no allocator has the same CPUs in all programs
    std::vector<Samples> time, peak;
    std::vector<std::string> error;
};

// How many allocators run it at the same time.
int lanes(const Trial &trial) {
    return options.side_by_side ? std::max(1, usable_cpus() / trial.threads) : 1;
}

// All allocators take turns in every round; with several lanes, in another lane each time. False:
// the time was over before all of them had their turn.
bool run_round_of(Trial &trial, const std::string &folder, const std::vector<Allocator> &all,
                  unsigned round, uint64_t deadline) {
    const size_t count = all.size(), at_once = std::min(count, static_cast<size_t>(lanes(trial)));
    const int apart = usable_cpus() / static_cast<int>(at_once); // neighbours may share a core
    for (size_t first = 0; first < count; first += at_once) {
        if (now_ns() > deadline) {
            return false;
        }
        std::vector<Measured> measured(count);
        std::vector<std::thread> running;
        for (size_t lane = 0; lane < at_once && first + lane < count; ++lane) {
            const size_t i = (first + lane + round + trial.first_turn) % count;
            if (!trial.error[i].empty()) {
                continue;
            }
            const int first_cpu = at_once > 1 ? static_cast<int>(lane) * apart : -1;
            running.emplace_back([&trial, &folder, &all, &measured, i, first_cpu] {
                measured[i] = measure(folder, *trial.program, all[i], trial.threads, first_cpu);
            });
        }
        for (std::thread &one : running) {
            one.join();
        }
        for (size_t i = 0; i < count; ++i) {
            if (!std::isnan(measured[i].time)) {
                trial.time[i].add(measured[i].time);
                trial.peak[i].add(measured[i].peak);
            } else if (!measured[i].error.empty()) {
                trial.error[i] = measured[i].error;
            }
        }
    }
    return true;
}

void add_trials(const std::string &folder, const std::string &set,
                const std::vector<Program> &programs, int threads, size_t allocators_count,
                std::vector<Trial> &trials) {
    for (const Program &program : programs) {
        if (!wanted("judge/" + set + "/" + program.name)) {
            continue;
        }
        const std::string path = folder + "/out/bench/" + program.file;
        if (!is_readable(path)) {
            report.absent("judge/program time/" + set + "/" + program.name, path + " is not there");
            continue;
        }
        const unsigned turn = std::random_device()() % static_cast<unsigned>(allocators_count);
        Trial trial = {set, &program, threads, turn, {}, {}, {}};
        trial.time.resize(allocators_count);
        trial.peak.resize(allocators_count);
        trial.error.resize(allocators_count);
        trials.push_back(trial);
    }
}

// A round is begun only if the time that the last one took is left of options.seconds.
void run_trials(const std::string &folder, const std::vector<Allocator> &all,
                std::vector<Trial> &trials) {
    const uint64_t begin = now_ns();
    const uint64_t deadline =
        options.seconds > 0 ? begin + static_cast<uint64_t>(options.seconds * 1e9) : UINT64_MAX;
    for (unsigned round = 0; round < options.rounds; ++round) {
        const uint64_t round_begin = now_ns();
        for (Trial &trial : trials) {
            if (!run_round_of(trial, folder, all, round, deadline)) {
                printf("the time was over in round %u\n", round + 1);
                return;
            }
        }
        const uint64_t took = now_ns() - round_begin;
        printf("round %u of %u: %.0f s\n", round + 1, options.rounds,
               static_cast<double>(took) / 1e9);
        fflush(stdout);
        if (took > deadline - now_ns()) {
            return;
        }
    }
}

// An allocator under which the program failed once has no result.
Row row_of(const Trial &trial, const std::vector<Allocator> &all) {
    Row row = {trial.program->name, {}, {}};
    for (size_t i = 0; i < all.size(); ++i) {
        const bool is_right = trial.error[i].empty() && !trial.time[i].values.empty();
        const std::string tail = trial.set + "/" + trial.program->name + "/" + all[i].name;
        row.time.push_back(is_right ? trial.time[i].median() : NOT_MEASURED);
        row.peak.push_back(is_right ? trial.peak[i].median() : NOT_MEASURED);
        if (is_right) {
            report.add("judge/program time/" + tail, "s", trial.time[i]);
            report.add("judge/program rss/" + tail, "MiB", trial.peak[i]);
            continue;
        }
        const std::string why = trial.error[i].empty() ? "no time was left" : trial.error[i];
        report.absent("judge/program time/" + tail, why);
        printf("  %s under %s: %s\n", trial.program->name, all[i].name.c_str(), why.c_str());
    }
    return row;
}

void print_set(const std::string &set, const std::vector<Trial> &trials,
               const std::vector<Allocator> &all, Rows &everything) {
    Rows rows;
    for (const Trial &trial : trials) {
        if (trial.set != set) {
            continue;
        }
        if (rows.empty()) {
            print_title("judge/" + set);
        }
        rows.push_back(row_of(trial, all));
    }
    if (rows.empty()) {
        return;
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
    std::vector<Trial> trials;
    std::vector<std::string> sets = {"single"};
    add_trials(folder, "single", single, 1, all.size(), trials);
    for (int threads = 1; threads <= usable_cpus(); threads *= 2) {
        sets.push_back(std::to_string(threads) + (threads == 1 ? " thread" : " threads"));
        add_trials(folder, sets.back(), threaded, threads, all.size(), trials);
    }
    add_trials(folder, "others", others, usable_cpus(), all.size(), trials);
    run_trials(folder, all, trials);
    Rows rows, rest;
    for (const std::string &set : sets) {
        print_set(set, trials, all, rows);
    }
    print_set("others", trials, all, rest);
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
