// umf-bench: the library's pools and providers beside other allocators, in one run. See README.md.
#include "bench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/utsname.h>
#include <unistd.h>

namespace {

const char usage[] =
    "usage: umf-bench [--ir|--memory|--programs|--threads LIST|--grid|--mimalloc-bench FOLDER]\n"
    "                 [--quick] [--json FILE] [--filter TEXT] [--rounds N]\n"
    "                 [--side-by-side] [--seconds N]\n"
    "  --ir           count instructions per operation with valgrind instead of measuring time\n"
    "  --memory       resident memory and metadata instead of time\n"
    "  --programs     whole programs with the preload library, and with other allocators\n"
    "  --threads LIST pairs, batches and handovers by numbers of threads, such as '1,2,4,8,16'\n"
    "  --grid         pairs, batches, handovers and churn of 8 sizes with 1, 4 and 16 threads\n"
    "  --mimalloc-bench FOLDER\n"
    "                 its programs with the preload library, and with other allocators\n"
    "  --side-by-side with --mimalloc-bench: several allocators at once, each on CPUs of its own\n"
    "  --seconds N    with --mimalloc-bench: ends rounds in time\n"
    "  --quick        fewer sizes and shorter rounds, under a minute\n"
    "  --json FILE    write all results and verdicts to FILE\n"
    "  --filter TEXT  run only the cases whose name contains TEXT, such as 'pair/64' or 'rss'\n"
    "  --rounds N     measure each subject N times (7, with --quick 3)\n";

// The static thread-local storage of some peers (jemalloc) does not fit the loader's surplus for
// libraries opened late, unless a tunable is set before the program starts.
void restart_with_room_for_peers(char **argv) {
    if (getenv("UMF_BENCH_STARTED")) {
        return;
    }
    setenv("UMF_BENCH_STARTED", "1", 1);
    const char *old = getenv("GLIBC_TUNABLES");
    std::string tunables = old ? std::string(old) + ":" : "";
    tunables += "glibc.rtld.optional_static_tls=16384";
    setenv("GLIBC_TUNABLES", tunables.c_str(), 1);
    execv("/proc/self/exe", argv);
    fprintf(stderr, "umf-bench: cannot restart itself, some peers may be missing\n");
}

void print_machine() {
    utsname system;
    uname(&system);
    printf("umf-bench, %s, %d CPUs, Linux %s, compiler %s\n", bench::mode_name(),
           bench::usable_cpus(), system.release, __VERSION__);
}

void warn_if_busy() {
    const double load = bench::load_average();
    if (load > 0.3 * bench::usable_cpus()) {
        printf("\nThis machine has other work to do (load %.1f): do not trust times, least of all "
               "those "
               "with several threads.\n",
               load);
    }
}

// The numbers of the list; empty if it is no list of numbers of threads.
std::vector<int> parse_threads(const char *list) {
    std::vector<int> threads;
    for (const char *at = list; *at;) {
        char *end = nullptr;
        const long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > bench::MAX_THREADS || (*end && *end != ',')) {
            return {};
        }
        threads.push_back(static_cast<int>(n));
        at = *end ? end + 1 : end;
    }
    return threads;
}

// The number of arguments taken; 0 if this one is unknown.
int parse_mode(const std::string &arg, const char *value) {
    static const struct {
        const char *name;
        bench::Mode mode;
    } modes[] = {{"--ir", bench::Mode::instructions},
                 {"--memory", bench::Mode::memory},
                 {"--programs", bench::Mode::programs},
                 {"--grid", bench::Mode::grid}};
    for (const auto &m : modes) {
        if (arg == m.name) {
            bench::options.mode = m.mode;
            return 1;
        }
    }
    if (arg == "--mimalloc-bench" && value) {
        bench::options.mode = bench::Mode::judge;
        bench::options.folder = value;
        return 2;
    }
    if (arg == "--threads" && value) {
        bench::options.mode = bench::Mode::threads;
        bench::options.threads = parse_threads(value);
        if (bench::options.threads.empty()) {
            fprintf(stderr, "umf-bench: '%s' is no list of numbers from 1 to %d, such as 1,2,4\n",
                    value, bench::MAX_THREADS);
            return 0;
        }
        return 2;
    }
    return 0;
}

int run_mode() {
    switch (bench::options.mode) {
    case bench::Mode::instructions:
        return bench::run_ir();
    case bench::Mode::memory:
        bench::run_memory_cases();
        return 0;
    case bench::Mode::programs:
        bench::run_programs();
        return 0;
    case bench::Mode::threads:
        bench::run_thread_cases();
        return 0;
    case bench::Mode::grid:
        bench::run_grid();
        return 0;
    case bench::Mode::judge:
        return bench::run_judge(bench::options.folder);
    case bench::Mode::time:
        break;
    }
    bench::run_allocation_cases();
    bench::run_micro_cases();
    bench::run_system_cases();
    bench::run_sequences();
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    restart_with_room_for_peers(argv);
    bool rounds_given = false;
    std::string json;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        const int rest = argc - i - 1;
        if (const int taken = parse_mode(arg, argv[i + 1])) {
            i += taken - 1;
        } else if (arg == "--child" && rest >= 3) {
            return bench::run_system_child(argv[i + 1], argv[i + 2], argv[i + 3]);
        } else if (arg == "--ir-child" && rest >= 2) {
            return bench::run_ir_child(argv[i + 1], strtoull(argv[i + 2], nullptr, 10));
        } else if (arg == "--quick") {
            bench::options.quick = true;
        } else if (arg == "--side-by-side") {
            bench::options.side_by_side = true;
        } else if (arg == "--seconds" && rest >= 1 && atof(argv[i + 1]) > 0) {
            bench::options.seconds = atof(argv[++i]);
        } else if (arg == "--json" && rest >= 1) {
            json = argv[++i];
        } else if (arg == "--filter" && rest >= 1) {
            bench::options.filter = argv[++i];
        } else if (arg == "--rounds" && rest >= 1 && atoi(argv[i + 1]) > 0) {
            bench::options.rounds = static_cast<unsigned>(atoi(argv[++i]));
            rounds_given = true;
        } else {
            fputs(usage, arg == "--help" ? stdout : stderr);
            return arg == "--help" ? 0 : 2;
        }
    }
    if (bench::options.quick) {
        bench::options.round_ns = 2e6;
        bench::options.rounds = rounds_given ? bench::options.rounds : 3;
    }
    print_machine();
    if (bench::options.mode != bench::Mode::instructions) {
        warn_if_busy();
    }
    const int status = run_mode();
    bench::report.print_summary();
    return !json.empty() && !bench::report.write_json(json) ? 1 : status;
}
