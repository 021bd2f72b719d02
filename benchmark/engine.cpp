// Rounds on pinned threads, results and how they are printed.
#include "bench.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace bench {

Options options;
Report report;

const char *mode_name() {
    switch (options.mode) {
    case Mode::instructions:
        return "instructions";
    case Mode::memory:
        return "memory";
    case Mode::programs:
        return "programs";
    case Mode::threads:
        return "threads";
    case Mode::grid:
        return "grid";
    case Mode::judge:
        return "programs of mimalloc-bench";
    case Mode::time:
        break;
    }
    return "time";
}

// --- the machine
// --------------------------------------------------------------------------------------

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

size_t resident_bytes() {
    unsigned long size = 0, resident = 0;
    if (FILE *f = fopen("/proc/self/statm", "r")) {
        if (fscanf(f, "%lu %lu", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(f);
    }
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t available_bytes() {
    char line[128];
    unsigned long kib = 0;
    if (FILE *f = fopen("/proc/meminfo", "r")) {
        while (fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %lu kB", &kib) != 1) {
        }
        fclose(f);
    }
    return kib * 1024;
}

static const std::vector<int> &allowed_cpus() {
    static const std::vector<int> cpus = [] {
        std::vector<int> list;
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof(set), &set);
        for (int i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(i, &set)) {
                list.push_back(i);
            }
        }
        return list;
    }();
    return cpus;
}

double load_average() {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : 0;
}

int usable_cpus() {
    return static_cast<int>(allowed_cpus().size());
}

void pin_to_cpu(int index) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(allowed_cpus()[static_cast<size_t>(index % usable_cpus())]), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

std::string self_path() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

std::string beside_us(const char *file) {
    const std::string self = self_path();
    return self.substr(0, self.rfind('/') + 1) + file;
}

std::string run_program(const std::vector<std::string> &args, std::string &error) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) { // threads may start programs at the same time
        error = "pipe failed";
        return "";
    }
    std::vector<char *> argv;
    for (const std::string &arg : args) {
        argv.push_back(const_cast<char *>(arg.c_str()));
    }
    argv.push_back(nullptr);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execvp(argv[0], argv.data());
        _exit(127);
    }
    close(fds[1]);
    std::string output;
    char buffer[4096];
    for (ssize_t n; (n = read(fds[0], buffer, sizeof(buffer))) > 0;) {
        output.append(buffer, static_cast<size_t>(n));
    }
    close(fds[0]);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        error = "cannot start " + args[0];
    } else if (WIFSIGNALED(status)) {
        error = "died with signal " + std::to_string(WTERMSIG(status));
    } else if (WEXITSTATUS(status) == 127) {
        error = "cannot run " + args[0];
    } else if (WEXITSTATUS(status) != 0) {
        error = output.empty() ? "exit status " + std::to_string(WEXITSTATUS(status))
                               : output.substr(0, output.find('\n'));
    }
    return error.empty() ? output : "";
}

std::map<std::string, double> run_child(const std::string &what, const std::string &arg1,
                                        const std::string &arg2, std::string &error) {
    std::istringstream lines(run_program({self_path(), "--child", what, arg1, arg2}, error));
    std::map<std::string, double> values;
    std::string name;
    double value;
    while (lines >> name >> value) {
        values[name] = value;
    }
    if (error.empty() && values.empty()) {
        error = "no result";
    }
    return values;
}

// --- the team
// -----------------------------------------------------------------------------------------

namespace {

struct Span {
    uint64_t begin, end;
};

// Threads that live until the program ends, each on its core, and start a round together.
class Team {
  public:
    explicit Team(int cpu) : first_cpu(cpu) {}

    // `everyone`: with those of other processes; they meet at `place`, which is 0 yet.
    Span run(Job &next, int count, std::atomic<int> &place, int everyone) {
        std::unique_lock<std::mutex> lock(mutex);
        for (; started < count; ++started) {
            std::thread(&Team::serve, this, started, round).detach();
        }
        job = &next;
        next.threads = threads = count;
        arrived = &place;
        expected = everyone;
        pending = started;
        ++round;
        wake.notify_all();
        done.wait(lock, [this] { return pending == 0; });
        return {*std::min_element(start, start + count), *std::max_element(stop, stop + count)};
    }

  private:
    std::mutex mutex;
    std::condition_variable wake, done;
    Job *job = nullptr;
    int first_cpu, started = 0, threads = 0, pending = 0, expected = 0;
    uint64_t round = 0;
    std::atomic<int> *arrived = nullptr;
    uint64_t start[MAX_THREADS] = {}, stop[MAX_THREADS] = {};

    // The n-th meeting of a round: spins, but lets a thread on the same core go first.
    void meet(int n) {
        ++*arrived;
        while (arrived->load() < n * expected) {
            sched_yield();
        }
    }

    void serve(int id, uint64_t last) {
        pin_to_cpu(first_cpu + id);
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex);
            wake.wait(lock, [&] { return round != last; });
            last = round;
            lock.unlock();
            if (id < threads) {
                job->prepare(id);
                meet(1);
                start[id] = now_ns();
                job->run(id);
                stop[id] = now_ns();
                meet(2);
                job->finish(id);
            }
            lock.lock();
            if (--pending == 0) {
                done.notify_one();
            }
        }
    }
};

double ns_per_op(Span span, uint64_t ops, int threads) {
    const double total = static_cast<double>(ops) * threads;
    return static_cast<double>(span.end - span.begin) * std::min(threads, usable_cpus()) / total;
}

// Shared by the processes of a round.
struct Apart {
    std::atomic<int> warm{0}, timed{0};
    Span spans[MAX_THREADS];
};

// In a process of its own.
bool run_apart(Apart &shared, Job &job, uint64_t warm, uint64_t ops, int id, int processes,
               int threads) {
    Team *team = new Team(id * threads); // the other one's threads are not here
    job.ops = warm;
    team->run(job, threads, shared.warm, processes * threads);
    job.ops = ops;
    shared.spans[id] = team->run(job, threads, shared.timed, processes * threads);
    return job.failed == 0;
}

void tell_end(int status) {
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "umf-bench: a process of its own ended by signal %d (%s)\n",
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        fprintf(stderr, "umf-bench: a process of its own could not set up or not allocate\n");
    }
}

// The others would wait for one that is missing.
bool wait_for_all(std::vector<pid_t> pids, bool are_well) {
    while (!pids.empty()) {
        int status = 0;
        if (!are_well) {
            for (const pid_t pid : pids) {
                kill(pid, SIGKILL);
            }
        }
        const pid_t ended = waitpid(-1, &status, 0);
        if (ended < 0) {
            return false;
        }
        pids.erase(std::remove(pids.begin(), pids.end(), ended), pids.end());
        if (are_well && status != 0) {
            tell_end(status);
        }
        are_well = are_well && status == 0;
    }
    return are_well;
}

} // namespace

double run_round(Job &job, int threads) {
    static Team *team = new Team(0); // its threads outlive main
    std::atomic<int> place{0};
    return ns_per_op(team->run(job, threads, place, threads), job.ops, threads);
}

double run_round_apart(const std::function<std::unique_ptr<Job>()> &make, uint64_t warm,
                       uint64_t ops, int processes, int threads_each) {
    void *memory =
        mmap(nullptr, sizeof(Apart), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return -1;
    }
    Apart &shared = *new (memory) Apart;
    std::vector<pid_t> pids;
    fflush(stdout);
    for (int id = 0; id < processes; ++id) {
        const pid_t pid = fork();
        if (pid == 0) {
            const std::unique_ptr<Job> job = make();
            _exit(job && run_apart(shared, *job, warm, ops, id, processes, threads_each) ? 0 : 1);
        }
        if (pid > 0) {
            pids.push_back(pid);
        }
    }
    const bool are_well = wait_for_all(pids, pids.size() == static_cast<size_t>(processes));
    Span all = shared.spans[0];
    for (int id = 1; id < processes; ++id) {
        all.begin = std::min(all.begin, shared.spans[id].begin);
        all.end = std::max(all.end, shared.spans[id].end);
    }
    munmap(memory, sizeof(Apart));
    return are_well ? ns_per_op(all, ops, processes * threads_each) : -1;
}

void calibrate(Job &job, uint64_t unit, int threads) {
    job.ops = unit;
    double ns = 0;
    for (int i = 0; i < 30; ++i) {
        ns = run_round(job, threads) * static_cast<double>(job.ops);
        if (ns >= options.round_ns / 4) {
            break;
        }
        job.ops *= 2;
    }
    const double per_op = ns / static_cast<double>(job.ops);
    const double units = options.round_ns / std::max(per_op, 0.01) / static_cast<double>(unit);
    job.ops = unit * std::max<uint64_t>(1, static_cast<uint64_t>(units));
}

// --- results
// ------------------------------------------------------------------------------------------

void Samples::subtract(const Samples &loop) {
    const double overhead = loop.best();
    for (double &value : values) {
        value = std::max(value - overhead, 0.0);
    }
}

double Samples::best() const {
    return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Samples::median() const {
    if (values.empty()) {
        return 0;
    }
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
}

void Report::add(const std::string &key, const std::string &unit, const Samples &samples) {
    index[key] = results.size();
    results.push_back({key, unit, samples.best(), samples.median(), samples.values});
}

void Report::add(const std::string &key, const std::string &unit, double value) {
    Samples one;
    one.add(value);
    add(key, unit, one);
}

void Report::absent(const std::string &key, const std::string &why) {
    missing.emplace_back(key, why);
}

const Result *Report::find(const std::string &key) const {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &results[it->second];
}

namespace {

struct Target {
    const char *what, *key, *base;
    double must, stretch;
    const char *unit;
};

const Target targets[] = {
#define UMF_BENCH_TARGET(what, key, base, must, stretch, unit)                                     \
    {what, key, base, must, stretch, unit},
#include "targets.def"
#undef UMF_BENCH_TARGET
};

Verdict judge(const Target &target) {
    Verdict v = {target.what, target.unit, 0, target.must, target.stretch, false, "-"};
    const Result *result = report.find(target.key);
    const bool difference = target.base[0] == '-';
    const Result *base = target.base[0] ? report.find(target.base + difference) : nullptr;
    if (!result || (target.base[0] && (!base || (!difference && base->best <= 0)))) {
        return v;
    }
    v.measured = true;
    v.value = result->best;
    if (base) {
        v.value = difference ? v.value - base->best : v.value / base->best;
    }
    v.word = v.value > target.must ? "MISSED" : "reached";
    if (target.stretch > 0 && v.value <= target.stretch) {
        v.word = "reached, stretch too";
    }
    return v;
}

void print_verdict(const Verdict &v) {
    char stretch[48] = "";
    if (v.stretch > 0) {
        snprintf(stretch, sizeof(stretch), " (stretch %g)", v.stretch);
    }
    if (v.measured) {
        printf("  target  %-58s %10.4g %-6s must be <= %g%s: %s\n", v.what.c_str(), v.value,
               v.unit.c_str(), v.must, stretch, v.word);
    } else {
        printf("  target  %-58s %10s %-6s must be <= %g%s: not measured\n", v.what.c_str(), "-",
               v.unit.c_str(), v.must, stretch);
    }
}

// The part of the benchmark that decides the target.
Mode mode_of(const Target &target) {
    static const struct {
        const char *prefix;
        Mode mode;
    } prefixes[] = {
        {"ir/", Mode::instructions}, {"rss/", Mode::memory},     {"metadata/", Mode::memory},
        {"flat/", Mode::threads},    {"shared/", Mode::threads}, {"program/", Mode::programs},
        {"judge/", Mode::judge},     {"grid/", Mode::grid},
    };
    for (const auto &p : prefixes) {
        if (strncmp(target.key, p.prefix, strlen(p.prefix)) == 0) {
            return p.mode;
        }
    }
    return Mode::time;
}

} // namespace

void Report::print_new_targets() {
    for (const Target &target : targets) {
        const Verdict v = judge(target);
        const bool difference = target.base[0] == '-';
        const auto it = index.find(target.key);
        const auto base = index.find(target.base + difference);
        const bool fresh = (it != index.end() && it->second >= seen) ||
                           (base != index.end() && base->second >= seen);
        if (v.measured && fresh) {
            print_verdict(v);
        }
    }
    seen = results.size();
    fflush(stdout);
}

void Report::print_summary() const {
    print_title("targets");
    unsigned reached = 0, missed = 0, unmeasured = 0;
    for (const Target &target : targets) {
        if (mode_of(target) != options.mode) {
            continue;
        }
        const Verdict v = judge(target);
        print_verdict(v);
        (v.measured ? (v.value <= v.must ? reached : missed) : unmeasured)++;
    }
    printf("\n%u reached, %u missed, %u not measured\n", reached, missed, unmeasured);
    std::map<std::string, std::vector<std::string>> reasons;
    for (const auto &m : missing) {
        reasons[m.second].push_back(m.first);
    }
    for (const auto &reason : reasons) {
        const size_t more = reason.second.size() - 1;
        printf("absent: %s%s: %s\n", reason.second[0].c_str(),
               more ? (" and " + std::to_string(more) + " more").c_str() : "",
               reason.first.c_str());
    }
}

namespace {

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
        }
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + "\"";
}

std::string cpu_model() {
    char line[256], model[200] = "unknown";
    if (FILE *f = fopen("/proc/cpuinfo", "r")) {
        while (fgets(line, sizeof(line), f) && sscanf(line, "model name : %199[^\n]", model) != 1) {
        }
        fclose(f);
    }
    return model;
}

void write_values(FILE *f, const std::vector<double> &values) {
    const char *separator = ", \"values\": [";
    for (const double value : values) {
        fprintf(f, "%s%.6g", separator, value);
        separator = ", ";
    }
    fprintf(f, "]");
}

} // namespace

bool Report::write_json(const std::string &path) const {
    FILE *f = fopen(path.c_str(), "w");
    if (!f) {
        fprintf(stderr, "umf-bench: cannot write %s: %s\n", path.c_str(), strerror(errno));
        return false;
    }
    utsname system;
    uname(&system);
    fprintf(f, "{\n \"mode\": \"%s\", \"quick\": %s, \"rounds\": %u,\n", mode_name(),
            options.quick ? "true" : "false", options.rounds);
    fprintf(f,
            " \"machine\": {\"cpu\": %s, \"cpus\": %d, \"kernel\": %s, \"compiler\": %s, \"load\": "
            "%.2f},\n",
            quoted(cpu_model()).c_str(), usable_cpus(), quoted(system.release).c_str(),
            quoted(__VERSION__).c_str(), load_average());
    fprintf(f, " \"results\": [");
    const char *separator = "\n";
    for (const Result &r : results) {
        fprintf(f,
                "%s  {\"key\": %s, \"unit\": %s, \"best\": %.6g, \"median\": %.6g, \"rounds\": %zu",
                separator, quoted(r.key).c_str(), quoted(r.unit).c_str(), r.best, r.median,
                r.values.size());
        if (options.mode == Mode::judge) { // several runs are one for summary.py
            write_values(f, r.values);
        }
        fprintf(f, "}");
        separator = ",\n";
    }
    fprintf(f, "\n ],\n \"absent\": [");
    separator = "\n";
    for (const auto &m : missing) {
        fprintf(f, "%s  {\"key\": %s, \"why\": %s}", separator, quoted(m.first).c_str(),
                quoted(m.second).c_str());
        separator = ",\n";
    }
    fprintf(f, "\n ],\n \"targets\": [");
    separator = "\n";
    for (const Target &target : targets) {
        const Verdict v = judge(target);
        fprintf(f, "%s  {\"what\": %s, \"key\": %s, \"unit\": %s, \"value\": ", separator,
                quoted(v.what).c_str(), quoted(target.key).c_str(), quoted(v.unit).c_str());
        separator = ",\n";
        if (v.measured) {
            fprintf(f, "%.6g", v.value);
        } else {
            fprintf(f, "null");
        }
        fprintf(f, ", \"must\": %g, \"stretch\": %g, \"verdict\": %s}", v.must, v.stretch,
                quoted(v.measured ? v.word : "not measured").c_str());
    }
    fprintf(f, "\n ]\n}\n");
    return fclose(f) == 0;
}

// --- printing
// -----------------------------------------------------------------------------------------

bool wanted(const std::string &block) {
    return options.filter.empty() || block.find(options.filter) != std::string::npos;
}

void print_title(const std::string &title) {
    printf("\n%s\n%s\n", title.c_str(), std::string(title.size(), '-').c_str());
}

void print_row(const std::string &subject, const Samples &samples, const char *unit,
               const std::string &note) {
    printf("  %-44s %12.4g %12.4g %-4s %s\n", subject.c_str(), samples.best(), samples.median(),
           unit, note.c_str());
    fflush(stdout);
}

void print_absent(const std::string &subject, const std::string &why) {
    printf("  %-44s not available: %s\n", subject.c_str(), why.c_str());
    fflush(stdout);
}

} // namespace bench
