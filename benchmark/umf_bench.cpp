// umf-bench: the library's pools and providers beside other allocators, in one run. See README.md.
#include "bench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/utsname.h>
#include <unistd.h>

namespace {

const char usage[] =
    "usage: umf-bench [--quick] [--ir] [--json FILE] [--filter TEXT] [--rounds N]\n"
    "  --quick        fewer sizes and shorter rounds, under a minute\n"
    "  --ir           count instructions per operation with valgrind instead of measuring time\n"
    "  --json FILE    write all results and verdicts to FILE\n"
    "  --filter TEXT  run only the cases whose name contains TEXT, such as 'pair/64' or 'rss'\n"
    "  --rounds N     measure each subject N times (7, with --quick 3)\n";

// The static thread-local storage of some peers (jemalloc) does not fit what the loader keeps for
// libraries opened late, unless it is told before the program starts.
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

void print_machine(const char *mode) {
    utsname system;
    uname(&system);
    printf("umf-bench, %s, %d CPUs, Linux %s, compiler %s\n", mode, bench::usable_cpus(),
           system.release, __VERSION__);
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

} // namespace

int main(int argc, char **argv) {
    restart_with_room_for_peers(argv);
    bool ir = false, rounds_given = false;
    std::string json;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        const int rest = argc - i - 1;
        if (arg == "--child" && rest >= 3) {
            return bench::run_system_child(argv[i + 1], argv[i + 2], argv[i + 3]);
        } else if (arg == "--ir-child" && rest >= 2) {
            return bench::run_ir_child(argv[i + 1], strtoull(argv[i + 2], nullptr, 10));
        } else if (arg == "--quick") {
            bench::options.quick = true;
        } else if (arg == "--ir") {
            ir = true;
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
    const char *mode = ir ? "instructions" : "time";
    print_machine(mode);
    if (!ir) {
        warn_if_busy();
    }
    int status = 0;
    if (ir) {
        status = bench::run_ir();
    } else {
        bench::run_allocation_cases();
        bench::run_micro_cases();
        bench::run_system_cases();
        bench::run_sequences();
    }
    bench::report.print_summary(ir);
    if (!json.empty() && !bench::report.write_json(json, mode)) {
        status = 1;
    }
    return status;
}
