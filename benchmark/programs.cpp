// Whole programs with a malloc in front by LD_PRELOAD: loads of our own (loads.c), and programs
// that are installed. Each run is measured from outside, by umf-bench-measure.
#include "bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <unistd.h>

namespace bench {

namespace {

struct Allocator {
    const char *name;
    std::string library;
    std::string error; // why it cannot be preloaded
};

struct Measured {
    double wall_ms, cpu_ms, peak_mib;
};

struct Taken {
    Samples wall, cpu, peak;
    std::string error;
};

// Runs the program with the library in front; `error` is set if it failed.
Measured measure(const std::string &library, const std::vector<std::string> &program,
                 std::string &error) {
    std::vector<std::string> args = {beside_us("umf-bench-measure"), library};
    args.insert(args.end(), program.begin(), program.end());
    std::istringstream output(run_program(args, error));
    double wall = 0, cpu = 0, peak = 0;
    output >> wall >> cpu >> peak;
    return {wall / 1e6, cpu / 1e6, peak / 1024};
}

// --- files the programs need
// --------------------------------------------------------------------------

// A folder of this run's own.
class Folder {
  public:
    Folder() {
        char made[] = "/tmp/umf-bench-XXXXXX";
        path = mkdtemp(made) ? made : "";
    }
    ~Folder() {
        for (const std::string &file : files) {
            unlink(file.c_str());
        }
        rmdir(path.c_str());
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string file(const char *name, const char *text = nullptr) {
        files.push_back(path + "/" + name);
        FILE *f = text ? fopen(files.back().c_str(), "w") : nullptr;
        if (f) {
            fputs(text, f);
            fclose(f);
        }
        return files.back();
    }

  private:
    std::string path;
    std::vector<std::string> files;
};

Folder &folder() {
    static Folder one;
    return one;
}

// --- programs that are installed
// -----------------------------------------------------------------------

const char sql[] = R"(
CREATE TABLE item(id INTEGER PRIMARY KEY, number INTEGER, name TEXT);
CREATE INDEX by_number ON item(number);
BEGIN;
INSERT INTO item WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
  SELECT i, (i * 7919) % 60007, 'item number ' || (i * 7919) FROM n;
COMMIT;
CREATE INDEX by_name ON item(name);
UPDATE item SET name = name || ' changed' WHERE number % 3 = 0;
SELECT count(*), sum(length(upper(name))) FROM item WHERE name LIKE '%9%';
SELECT number % 100, count(*), group_concat(name) FROM item GROUP BY 1 ORDER BY 2;
SELECT count(*) FROM item a JOIN item b ON a.number = b.id WHERE b.number % 5 = 0;
SELECT length(json_group_array(json_object('id', id, 'name', name))) FROM item;
SELECT DISTINCT substr(name, 13, 3) FROM item ORDER BY 1;
DELETE FROM item WHERE number % 2 = 0;
INSERT INTO item(number, name) SELECT number + 1, replace(name, 'item', 'other') FROM item;
SELECT count(*) FROM (SELECT name FROM item ORDER BY number DESC, name);
)";

const char python[] = R"(
import json, multiprocessing
def work(seed):
    words = ['word %d' % (i * seed) for i in range(20000)]
    table = {word: [word] * (i % 9) for i, word in enumerate(words)}
    text = json.dumps(table)
    parsed = json.loads(text)
    joined = ' '.join(' '.join(value) for value in parsed.values())
    counts = {}
    for word in joined.split():
        counts[word] = counts.get(word, 0) + 1
    return sum(sorted(counts.values())) + len(text.replace('word', 'text'))
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(2) as pool:
        print(sum(pool.map(work, range(1, 17))))
)";

std::vector<std::string> python_args() {
    const char *system = "/usr/bin/python3"; // others are often scripts that start one
    static const std::string file = folder().file("load.py", python);
    return {access(system, X_OK) == 0 ? system : "python3", file};
}

Measured run_python(const std::string &library, std::string &error) {
    return measure(library, python_args(), error);
}

// Without Python's own allocator for small objects, so that malloc sees them all.
Measured run_python_malloc(const std::string &library, std::string &error) {
    std::vector<std::string> args = python_args();
    args.insert(args.begin(), {"/usr/bin/env", "PYTHONMALLOC=malloc"});
    return measure(library, args, error);
}

Measured run_sqlite(const std::string &library, std::string &error) {
    static const std::string file = folder().file("load.sql", sql);
    return measure(library, {"sqlite3", "-batch", ":memory:", ".read " + file}, error);
}

Measured run_gcc(const std::string &library, std::string &error) {
    const std::string root = UMF_BENCH_SOURCE;
    const std::string source = root + "/benchmark/subjects.cpp";
    if (access(source.c_str(), R_OK) != 0) {
        error = source + " is not here";
        return {};
    }
    return measure(library,
                   {"g++", "-std=c++17", "-O2", "-I" + root + "/include", "-DUMF_BENCH_SOURCE=\"\"",
                    "-S", "-o", "/dev/null", source},
                   error);
}

bool wait_for_redis(const std::string &socket) {
    for (int i = 0; i < 500; ++i) {
        std::string error;
        if (access(socket.c_str(), F_OK) == 0 &&
            run_program({"redis-cli", "-s", socket, "ping"}, error) == "PONG\n") {
            return true;
        }
        usleep(20000);
    }
    return false;
}

// The server has the library in front, the client has not. Time is the client's, the rest the
// server's.
Measured run_redis(const std::string &library, std::string &error) {
    static const std::string socket = folder().file("redis");
    std::string client_error;
    run_program({"redis-benchmark", "--version"}, error);
    if (!error.empty()) {
        return {};
    }
    Measured server = {};
    std::thread thread([&] {
        server = measure(library,
                         {"redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                          "--appendonly", "no", "--daemonize", "no"},
                         error);
    });
    double wall_ms = 0;
    if (wait_for_redis(socket)) {
        const uint64_t begin = now_ns();
        run_program({"redis-benchmark", "-s", socket, "-q", "-n", "60000", "-c", "20", "-P", "16",
                     "-r", "50000", "-d", "200", "-t", "set,get,lpush,rpop,sadd,hset,zadd,mset"},
                    client_error);
        wall_ms = static_cast<double>(now_ns() - begin) / 1e6;
        std::string ignored;
        run_program({"redis-cli", "-s", socket, "shutdown", "nosave"}, ignored);
    }
    thread.join();
    error = error.empty() ? client_error : error;
    return {wall_ms, server.cpu_ms, server.peak_mib};
}

// --- loads of our own
// ---------------------------------------------------------------------------------

int load_threads() {
    return std::min(std::max(usable_cpus(), 2), 16);
}

std::vector<std::string> load_args(const char *load, const std::string &library) {
    return {beside_us("umf-bench-loads"), load, std::to_string(load_threads()), library};
}

struct Program {
    const char *name;
    Measured (*run)(const std::string &library, std::string &error); // NULL: the load of that name
};

const Program programs[] = {
    {"server-churn", nullptr},
    {"free-elsewhere", nullptr},
    {"mixed-stress", nullptr},
    {"many-sizes", nullptr},
    {"many-sizes-threads", nullptr},
    {"big-numbers", nullptr},
    {"two-level-logic", nullptr},
    {"random-threads", nullptr},
    {"short-threads", nullptr},
    {"redis-server", run_redis},
    {"sqlite3", run_sqlite},
    {"python3", run_python},
    {"python3, PYTHONMALLOC=malloc", run_python_malloc},
    {"g++", run_gcc},
};

// The C library is preloaded as well: it comes before an allocator a program is linked with.
std::vector<Allocator> allocators() {
    std::vector<Allocator> all = {{"glibc", "libc.so.6", ""},
                                  {"libumf_proxy", proxy_path(), ""},
                                  {"jemalloc", "libjemalloc.so.2", ""},
                                  {"mimalloc", "libmimalloc.so.2", ""}};
    for (Allocator &allocator : all) {
        measure(allocator.library, load_args("nothing", allocator.library), allocator.error);
    }
    return all;
}

void take(const Program &program, const Allocator &allocator, Taken &taken) {
    const Measured m =
        program.run
            ? program.run(allocator.library, taken.error)
            : measure(allocator.library, load_args(program.name, allocator.library), taken.error);
    if (taken.error.empty()) {
        taken.wall.add(m.wall_ms);
        taken.cpu.add(m.cpu_ms);
        taken.peak.add(m.peak_mib);
    }
}

void print_taken(const Allocator &allocator, const Taken &taken, const Taken &base) {
    if (!taken.error.empty()) {
        print_absent(allocator.name, taken.error);
        return;
    }
    const auto ratio = [&](double value, double to) {
        return base.error.empty() && to > 0 ? value / to : 0;
    };
    printf("  %-20s %10.1f %10.1f %6.2f  | %10.1f %6.2f  | %9.1f %6.2f\n", allocator.name,
           taken.wall.best(), taken.wall.median(), ratio(taken.wall.best(), base.wall.best()),
           taken.cpu.best(), ratio(taken.cpu.best(), base.cpu.best()), taken.peak.median(),
           ratio(taken.peak.median(), base.peak.median()));
}

void store_taken(const std::string &program, const Allocator &allocator, const Taken &taken) {
    const std::string tail = "/" + program + "/" + allocator.name;
    if (!taken.error.empty()) {
        report.absent("program/time" + tail, taken.error);
        return;
    }
    report.add("program/time" + tail, "ms", taken.wall);
    report.add("program/cpu" + tail, "ms", taken.cpu);
    report.add("program/rss" + tail, "MiB", taken.peak);
}

void run_one_program(const Program &program, const std::vector<Allocator> &all, unsigned rounds) {
    std::vector<Taken> taken(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
        taken[i].error = all[i].error;
    }
    for (unsigned round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < all.size(); ++i) {
            if (taken[i].error.empty()) {
                take(program, all[i], taken[i]);
            }
        }
    }
    print_title(std::string("program/") + program.name);
    printf("  %-20s %10s %10s %6s  | %10s %6s  | %9s %6s\n", "", "ms best", "median", "/glibc",
           "cpu ms", "/glibc", "peak MiB", "/glibc");
    for (size_t i = 0; i < all.size(); ++i) {
        print_taken(all[i], taken[i], taken[0]);
        store_taken(program.name, all[i], taken[i]);
    }
    report.print_new_targets();
}

} // namespace

std::string proxy_path() {
    for (const std::string &path : {beside_us("libumf_proxy.so"), std::string(UMF_BENCH_PROXY)}) {
        if (access(path.c_str(), R_OK) == 0) {
            return path;
        }
    }
    return "libumf_proxy.so";
}

void run_programs() {
    const std::vector<Allocator> all = allocators();
    const unsigned rounds = std::min(options.rounds, 5u);
    printf("\nLoads run with %d threads, each program %u times with each allocator in turn.\n",
           load_threads(), rounds);
    for (const Program &program : programs) {
        if (wanted(std::string("program/") + program.name)) {
            run_one_program(program, all, rounds);
        }
    }
}

} // namespace bench
