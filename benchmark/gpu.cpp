// umf-bench-gpu: the library's pools on GPU memory, and suspend and resume, beside the driver's own
// functions, in one run. See README.md.
#include "gpu.h"

#include <umf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace gpu {

Driver driver;
Options options;

void check(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        const char *name = nullptr;
        driver.cuGetErrorName(result, &name);
        fprintf(stderr, "umf-bench-gpu: %s: %s\n", what, name ? name : "unknown error");
        exit(1);
    }
}

CUcontext context() {
    static CUcontext made = [] {
        CUcontext context = nullptr;
        GPU_CALL(cuDevicePrimaryCtxRetain(&context, 0));
        return context;
    }();
    return made;
}

size_t free_bytes() {
    size_t free = 0, total = 0;
    GPU_CALL(cuMemGetInfo(&free, &total));
    return free;
}

std::string text(size_t bytes) {
    const char *units[] = {"", "K", "M", "G"};
    int unit = 0;
    while (unit < 3 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    return std::to_string(bytes) + units[unit];
}

namespace {

int missed;

bool load_driver(const char *path) {
    // The library under test then finds it among those that are loaded.
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "umf-bench-gpu: no CUDA driver: %s\n", dlerror());
        return false;
    }
    const char *missing = nullptr;
    auto load = [&](const char *symbol, auto *function, bool optional) {
        void *address = dlsym(library, symbol);
        memcpy(static_cast<void *>(function), &address, sizeof(address));
        missing = address || optional ? missing : symbol;
    };
#define X(function, version, symbol) load(symbol, &driver.function, false);
    GPU_DRIVER_FUNCTIONS(X)
#undef X
#define X(function, version, symbol) load(symbol, &driver.function, true);
    GPU_DRIVER_OPTIONAL(X)
#undef X
    if (missing) {
        fprintf(stderr, "umf-bench-gpu: %s has no %s\n", path, missing);
    }
    return !missing;
}

std::vector<double> numbers(const char *list) {
    std::vector<double> values;
    for (char *end; *list; list = *end == ',' ? end + 1 : end) {
        const double value = strtod(list, &end);
        if (end == list || value <= 0) {
            return {};
        }
        values.push_back(value);
    }
    return values;
}

const char usage[] =
    "usage: umf-bench-gpu [--sleep GIB[,GIB...]] [--folder PATH] [--only "
    "pair|queue|copy|ipc|sleep] "
    "[--quick]\n"
    "                     [--keep POLICY] [--torch FILE] [--driver PATH]\n"
    "       umf-bench-gpu --replay FILE... [--over PROVIDER] [--course FILE] [--driver PATH]\n"
    "  --sleep GIB      how much memory sleeps (8)\n"
    "  --folder PATH    where content is kept in files (/dev/shm)\n"
    "  --only WHAT      one of the parts\n"
    "  --keep POLICY    of the part sleep: only pinned, host, file, peer, zero or discard\n"
    "  --quick          shorter rounds, fewer sizes\n"
    "  --torch FILE     what torch_peer.py --out has measured, for the comparison\n"
    "  --replay FILE    a sequence that torch_record.py has recorded; may be given again\n"
    "  --over PROVIDER  what serves it (cuda_vmm); linux_vmm needs no GPU\n"
    "  --course FILE    gets what pools hold in its course, for plot.py\n"
    "  --driver PATH    the CUDA driver (libcuda.so.1)\n";

// Text of an option that takes one.
std::string *text_option(const std::string &name) {
    const struct {
        const char *name;
        std::string *value;
    } table[] = {{"--folder", &options.folder}, {"--only", &options.filter},
                 {"--torch", &options.torch},   {"--over", &options.over},
                 {"--course", &options.course}, {"--driver", &options.driver},
                 {"--keep", &options.keep}};
    for (const auto &option : table) {
        if (name == option.name) {
            return option.value;
        }
    }
    return nullptr;
}

bool is_policy(const std::string &name) {
    const char *const names[] = {"", "pinned", "host", "file", "peer", "zero", "discard"};
    return std::any_of(std::begin(names), std::end(names),
                       [&](const char *each) { return name == each; });
}

struct Command {
    bool good = true, help = false;
    std::string produce; // a pool's text; empty: measure
    size_t block = 0;
};

Command parse(int argc, char **argv) {
    Command command;
    for (int i = 1; i < argc && command.good; i++) {
        const std::string arg = argv[i];
        const int values = argc - i - 1;
        if (arg == "--quick") {
            options.quick = true;
        } else if (arg == "--sleep" && values >= 1) {
            options.sleep_gib = numbers(argv[++i]);
        } else if (arg == "--replay" && values >= 1) {
            options.replay.emplace_back(argv[++i]);
        } else if (arg == "--produce" && values >= 2) {
            command.produce = argv[++i];
            command.block = strtoull(argv[++i], nullptr, 10);
        } else if (text_option(arg) && values >= 1) {
            *text_option(arg) = argv[++i];
        } else {
            command.help = arg == "--help";
            command.good = false;
        }
    }
    command.good = command.good && !options.sleep_gib.empty() && is_policy(options.keep);
    return command;
}

bool wants(const char *part) {
    return options.filter.empty() || options.filter == part;
}

bool run() {
    bool good = true;
    for (const std::string &path : options.replay) {
        good = run_replay(path, options.over) && good;
    }
    if (!options.replay.empty()) {
        return good;
    }
    if (wants("pair")) {
        run_pairs();
    }
    if (wants("queue")) {
        run_queues();
    }
    if (wants("copy")) {
        run_copies();
    }
    if (wants("ipc")) {
        run_ipc();
    }
    for (double gib : options.sleep_gib) {
        if (wants("sleep")) {
            run_sleep(gib);
        }
    }
    return true;
}

bool start_driver() {
    if (!options.replay.empty() && options.over.rfind("linux_vmm", 0) == 0) {
        return true;
    }
    if (!load_driver(options.driver.c_str())) {
        return false;
    }
    GPU_CALL(cuInit(0));
    GPU_CALL(cuCtxSetCurrent(context()));
    return true;
}

} // namespace

void print_target(const std::string &what, double value, double bound, bool at_least) {
    const bool reached = at_least ? value >= bound : value <= bound;
    missed += !reached;
    printf("  target  %-58s %8.3f %s %.3g  %s\n", what.c_str(), value,
           at_least ? ">=" : "<=", bound, reached ? "reached" : "MISSED");
}

int missed_targets() {
    return missed;
}

} // namespace gpu

int main(int argc, char **argv) {
    const gpu::Command command = gpu::parse(argc, argv);
    if (!command.good) {
        fputs(gpu::usage, command.help ? stdout : stderr);
        return command.help ? 0 : 2;
    }
    if (!gpu::start_driver()) {
        return 77;
    }
    if (!command.produce.empty()) {
        return gpu::produce(command.produce, command.block);
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const bool good = gpu::run();
    printf("\n%d targets missed\n", gpu::missed_targets());
    return good ? 0 : 1;
}
