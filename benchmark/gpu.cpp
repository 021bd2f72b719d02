// umf-bench-gpu: the library's pools on GPU memory, and sleep and wake, beside the driver's own
// ways, in one run. See README.md.
#include "gpu.h"

#include <umf.h>

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
    "usage: umf-bench-gpu [--sleep GIB[,GIB...]] [--folder PATH] [--only pair|sleep] [--quick]\n"
    "                     [--driver PATH]\n"
    "  --sleep GIB    how much memory sleeps (8)\n"
    "  --folder PATH  where content is kept in files (/dev/shm)\n"
    "  --only WHAT    one of the two parts\n"
    "  --quick        shorter rounds, fewer sizes\n"
    "  --driver PATH  the CUDA driver (libcuda.so.1)\n";

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
    const char *path = "libcuda.so.1";
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        const bool has_value = i + 1 < argc;
        if (arg == "--sleep" && has_value) {
            gpu::options.sleep_gib = gpu::numbers(argv[++i]);
        } else if (arg == "--folder" && has_value) {
            gpu::options.folder = argv[++i];
        } else if (arg == "--only" && has_value) {
            gpu::options.filter = argv[++i];
        } else if (arg == "--driver" && has_value) {
            path = argv[++i];
        } else if (arg == "--quick") {
            gpu::options.quick = true;
        } else {
            fputs(gpu::usage, arg == "--help" ? stdout : stderr);
            return arg == "--help" ? 0 : 2;
        }
    }
    if (gpu::options.sleep_gib.empty()) {
        fputs(gpu::usage, stderr);
        return 2;
    }
    if (!gpu::load_driver(path)) {
        return 77;
    }
    GPU_CALL(cuInit(0));
    GPU_CALL(cuCtxSetCurrent(gpu::context()));
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (gpu::options.filter != "sleep") {
        gpu::run_pairs();
    }
    if (gpu::options.filter != "pair") {
        for (double gib : gpu::options.sleep_gib) {
            gpu::run_sleep(gib);
        }
    }
    printf("\n%d targets missed\n", gpu::missed_targets());
    return 0;
}
