// Soak: eight processes share memory of four kinds while one after the other is killed.
//
// Every process allocates, sends handles to others, opens what it gets, looks at every byte,
// closes, frees and forgets at random; the one in the middle passes messages on, kills and starts
// again. At the end each process that is left gives everything back and looks for what it has not,
// and the one in the middle looks for names.
//
// UMF_TEST_SOAK_SECONDS says for how long (3), UMF_TEST_SOAK_SEED where chance begins.
#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "fakes/role.h"

namespace {

constexpr size_t workers = 8, kinds = 4, page = 4096;
constexpr size_t most_own = 64, most_held = 64;
constexpr uint64_t live = 0x6c69766520212121;

// At the start of every block. The rest is a pattern of the serial number, in words.
struct Block {
    std::atomic<uint64_t> state; // `live` until it is freed
    uint64_t owner, serial, size;

    uint64_t *words() {
        return reinterpret_cast<uint64_t *>(this + 1);
    }
    const uint64_t *words() const {
        return reinterpret_cast<const uint64_t *>(this + 1);
    }
};

size_t count_words(uint64_t size) {
    return (size - sizeof(Block)) / sizeof(uint64_t);
}

uint64_t word(uint64_t owner, uint64_t serial, size_t i) {
    return (serial + i) * 0x9e3779b97f4a7c15u ^ owner;
}

// The message in front of the handle.
struct Letter {
    char type = 'H';
    uint32_t to = 0, kind = 0;
    uint64_t owner = 0, serial = 0, size = 0;
};

size_t count_entries(const char *folder) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir)) {
        count++;
    }
    if (dir) {
        closedir(dir);
    }
    return count;
}

// Sanitizers have threads of their own, which start at any time.
bool has_own_thread() {
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        if (name.rfind("umf-", 0) == 0) {
            return true;
        }
    }
    return false;
}

// The kernel wakes who joins a thread before the thread leaves the list of tasks.
bool own_threads_end() {
    for (int i = 0; i < 60000 && has_own_thread(); i++) {
        usleep(1000);
    }
    return !has_own_thread();
}

// Shared mappings of files that are ours.
std::string our_mappings() {
    std::string found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:umf") != std::string::npos ||
            line.find("umf_soak_") != std::string::npos) {
            found += "\n  " + line;
        }
    }
    return found;
}

// --- a worker ---

class Worker {
    struct Own {
        Block *block;
        size_t kind;
    };
    struct Held {
        const Block *block;
        Letter letter;
    };

    Socket &socket;
    std::string scope, file;
    std::mt19937 random;
    uint64_t owner = 0, serial = 0;
    std::array<umf_memory_pool_handle_t, kinds> pools{};
    std::array<umf_ipc_handler_handle_t, kinds> handlers{};
    std::vector<Own> own;
    std::vector<Held> held;
    size_t opened = 0, refused = 0, checked = 0, gone = 0;
    std::string trouble;

    void fail(const std::string &what) {
        trouble += (trouble.empty() ? "" : "; ") + what;
    }
    void expect(umf_result_t result, const char *what) {
        if (result != UMF_RESULT_SUCCESS) {
            fail(std::string(what) + ": " + umfResultText(result));
        }
    }
    size_t any(size_t count) {
        return random() % count;
    }

    void make_pools() {
        std::string pool = any(2) ? "proxy over " : "disjoint over ";
        std::string name =
            "umf_soak_" + scope + "_" + std::to_string(getpid()) + "_" + std::to_string(++serial);
        file = "/tmp/" + name;
        const std::string texts[kinds] = {
            pool + "os:visibility=shared", pool + "os:visibility=shared,shm_name=" + name,
            pool + "linux_vmm:piece_size=2M", pool + "file:visibility=shared,path=" + file};
        for (size_t i = 0; i < kinds; i++) {
            expect(umfPoolCreateFromText(texts[i].c_str(), &pools[i]), texts[i].c_str());
            expect(umfPoolGetIPCHandler(pools[i], &handlers[i]), "handler");
        }
    }

    void free_one(size_t i) {
        Block *block = own[i].block;
        block->state.store(0, std::memory_order_seq_cst);
        expect(umfFree(block), "free");
        own[i] = own.back();
        own.pop_back();
    }
    void close_one(size_t i) {
        expect(umfCloseIPCHandle(const_cast<Block *>(held[i].block)), "close");
        held[i] = held.back();
        held.pop_back();
    }
    void destroy_pools() {
        while (!held.empty()) {
            close_one(0);
        }
        while (!own.empty()) {
            free_one(0);
        }
        for (umf_memory_pool_handle_t &pool : pools) {
            expect(umfPoolDestroy(pool), "destroy");
        }
        unlink(file.c_str());
    }

    void share() {
        Letter letter;
        letter.to = static_cast<uint32_t>(any(workers));
        letter.kind = static_cast<uint32_t>(any(kinds));
        letter.size = (any(16) + 1) * page;
        letter.owner = owner;
        letter.serial = ++serial;
        auto block = static_cast<Block *>(umfPoolMalloc(pools[letter.kind], letter.size));
        if (!block) {
            return fail("no memory");
        }
        block->owner = owner;
        block->serial = letter.serial;
        block->size = letter.size;
        for (size_t i = 0; i < count_words(letter.size); i++) {
            block->words()[i] = word(owner, letter.serial, i);
        }
        block->state.store(live, std::memory_order_release);
        own.push_back({block, letter.kind});
        umf_ipc_handle_t handle;
        size_t size;
        expect(umfGetIPCHandle(block, &handle, &size), "get");
        std::string message(reinterpret_cast<const char *>(&letter), sizeof(letter));
        message.append(reinterpret_cast<const char *>(handle), size);
        socket.send(message);
        expect(umfPutIPCHandle(handle), "put");
    }

    bool is_there(const Block *block, const Letter &letter) {
        return block->state.load(std::memory_order_acquire) == live &&
               block->owner == letter.owner && block->serial == letter.serial &&
               block->size == letter.size;
    }
    // Bytes count only if the block was there before and after they were looked at.
    void check(const Held &one) {
        const Block *block = one.block;
        if (!is_there(block, one.letter)) {
            gone++;
            return;
        }
        size_t wrong = 0;
        for (size_t i = 0; i < count_words(one.letter.size); i++) {
            wrong += block->words()[i] != word(one.letter.owner, one.letter.serial, i);
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        if (!is_there(block, one.letter)) {
            gone++;
        } else if (wrong) {
            fail(std::to_string(wrong) + " wrong words of kind " + std::to_string(one.letter.kind));
        } else {
            checked += one.letter.size;
        }
    }

    void open(const std::string &message) {
        Held one{};
        memcpy(&one.letter, message.data(), sizeof(one.letter));
        size_t size = message.size() - sizeof(Letter);
        std::vector<std::max_align_t> buffer(size / sizeof(std::max_align_t) + 1);
        memcpy(buffer.data(), message.data() + sizeof(Letter), size);
        void *ptr;
        umf_result_t result = umfOpenIPCHandle(
            handlers[one.letter.kind], reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &ptr);
        if (result == UMF_RESULT_SUCCESS) {
            opened++;
            one.block = static_cast<const Block *>(ptr);
            held.push_back(one);
            check(one);
        } else if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT ||
                   result == UMF_RESULT_ERROR_UNKNOWN) {
            refused++; // freed, or its process is dead
        } else {
            expect(result, "open");
        }
    }

    void act() {
        size_t what = any(1000);
        if (what < 400 && own.size() < most_own) {
            share();
        } else if (what < 600 && !own.empty()) {
            free_one(any(own.size()));
        } else if (what < 800 && !held.empty()) {
            check(held[any(held.size())]);
        } else if ((what < 990 || held.size() > most_held) && !held.empty()) {
            close_one(any(held.size()));
        } else if (what < 998) {
            expect(umfIPCEvict(0, nullptr), "evict");
        } else {
            destroy_pools();
            make_pools();
        }
    }

  public:
    Worker(Socket &to, const std::string &argument) : socket(to) {
        std::istringstream words(argument);
        unsigned seed;
        words >> scope >> seed;
        random.seed(seed);
        owner = static_cast<uint64_t>(seed) << 32 | static_cast<uint32_t>(getpid());
    }

    int run() {
        size_t descriptors = count_entries("/proc/self/fd");
        make_pools();
        for (bool goes_on = true; goes_on && trouble.empty();) {
            pollfd wait = {socket.get(), POLLIN, 0};
            if (poll(&wait, 1, 0) == 1) {
                std::string message = socket.receive();
                if (message.empty()) {
                    return 0;
                }
                goes_on = message[0] != 'Q';
                if (goes_on) {
                    open(message);
                }
            } else {
                act();
            }
        }
        destroy_pools();
        umfTearDown();
        if (count_entries("/proc/self/fd") > descriptors) {
            fail("a descriptor is left");
        }
        if (!own_threads_end()) {
            fail("a thread is left");
        }
        if (!our_mappings().empty()) {
            fail("a mapping is left:" + our_mappings());
        }
        std::ostringstream report;
        report << (trouble.empty() ? 'S' : 'E') << opened << " " << refused << " " << checked << " "
               << gone << " " << trouble;
        socket.send(report.str().substr(0, 2000));
        return trouble.empty() ? 0 : 1;
    }
};

int worker(Socket &socket, const std::string &argument) {
    return Worker(socket, argument).run();
}

const Roles roles = {{"worker", worker}};

// --- in the middle ---

class Soak {
    std::string scope = std::to_string(getpid());
    std::mt19937 random;
    std::array<std::unique_ptr<Process>, workers> all;
    std::array<size_t, workers> passed{}; // letters to each since its start
    size_t kills = 0, letters = 0, opened = 0, refused = 0, checked = 0, gone = 0;
    bool failed = false;

    void start(size_t index) {
        // Every other one keeps little.
        setenv("UMF_MAX_OPENED_IPC_HANDLES", index % 2 ? "16" : "0", 1);
        setenv("UMF_MAX_EXPORTED_IPC_HANDLES", index % 2 ? "8" : "0", 1);
        passed[index] = 0;
        all[index] = std::make_unique<Process>("worker", scope + " " + std::to_string(random()));
    }

    void report(size_t index, const std::string &message) {
        std::istringstream words(message.substr(1));
        size_t o = 0, r = 0, c = 0, g = 0;
        std::string trouble;
        words >> o >> r >> c >> g;
        std::getline(words, trouble);
        opened += o;
        refused += r;
        checked += c;
        gone += g;
        if (message[0] == 'E') {
            printf("soak: process %zu:%s\n", index, trouble.c_str());
            failed = true;
        }
    }

    // What one has to say; false if it is gone.
    bool listen(size_t index) {
        std::string message = all[index]->socket.receive(MSG_DONTWAIT);
        if (message.empty()) {
            return false;
        }
        if (message[0] != 'H') {
            report(index, message);
            return true;
        }
        Letter letter;
        memcpy(&letter, message.data(), sizeof(letter));
        letters++;
        const Process *to = all[letter.to % workers].get();
        passed[letter.to % workers] += ::send(to->socket.get(), message.data(), message.size(),
                                              MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
        return true;
    }

    void listen_to_all(int milliseconds) {
        std::array<pollfd, workers> waits{};
        for (size_t i = 0; i < workers; i++) {
            waits[i] = {all[i]->socket.get(), POLLIN, 0};
        }
        poll(waits.data(), waits.size(), milliseconds);
        for (size_t i = 0; i < workers; i++) {
            if (waits[i].revents && !listen(i)) {
                printf("soak: process %zu has crashed (%#x)\n", i, all[i]->wait());
                failed = true;
                start(i);
            }
        }
    }

    // Passes on what it still has to say, until it is gone.
    void finish(size_t index) {
        Process &process = *all[index];
        process.socket.send("Q");
        std::string message;
        while (!(message = process.socket.receive()).empty()) {
            if (message[0] != 'H') {
                report(index, message);
            }
        }
        int status = process.wait();
        if (status != 0) {
            printf("soak: process %zu ended with %#x\n", index, status);
            failed = true;
        }
    }

    // Names in a folder that one of ours has made.
    std::vector<std::string> names_in(const std::string &folder) {
        std::vector<std::string> names;
        DIR *dir = opendir(folder.c_str());
        while (const dirent *entry = dir ? readdir(dir) : nullptr) {
            if (strstr(entry->d_name, ("umf_soak_" + scope + "_").c_str())) {
                names.push_back(folder + entry->d_name);
            }
        }
        if (dir) {
            closedir(dir);
        }
        return names;
    }
    void look_for_names() {
        // The lock of one that was killed goes with the last trace of its process, which a process
        // that reads /proc can keep a while.
        for (int i = 0; i < 6000 && !names_in("/dev/shm/").empty(); i++) {
            umfIPCReap(nullptr);
            usleep(i ? 10000 : 0);
        }
        for (const std::string &name : names_in("/dev/shm/")) {
            printf("soak: %s is left\n", name.c_str());
            failed = true;
        }
        for (const std::string &name : names_in("/tmp/")) {
            unlink(name.c_str()); // files stay by design
        }
    }

  public:
    explicit Soak(unsigned seed) : random(seed) {
        for (size_t i = 0; i < workers; i++) {
            start(i);
        }
    }

    int run(std::chrono::seconds duration) {
        auto begin = std::chrono::steady_clock::now(), kill_next = begin;
        for (auto now = begin; now - begin < duration && !failed;
             now = std::chrono::steady_clock::now()) {
            listen_to_all(10);
            if (now >= kill_next) {
                size_t victim = random() % workers;
                all[victim]->kill();
                start(victim);
                kills++;
                kill_next = now + std::chrono::milliseconds(20 + random() % 300);
            }
        }
        while (!failed && *std::min_element(passed.begin(), passed.end()) < 20) {
            listen_to_all(10); // whoever lives to the end opens something, however slow it is
        }
        for (size_t i = 0; i < workers; i++) {
            finish(i);
        }
        look_for_names();
        printf(
            "soak: %lld s, %zu kills, %zu handles sent; those who lived to the end opened %zu and "
            "were refused %zu, looked at %zu MiB, found %zu blocks freed\n",
            static_cast<long long>(duration.count()), kills, letters, opened, refused,
            checked >> 20, gone);
        if (!failed && (opened == 0 || checked == 0)) {
            printf("soak: nothing was opened\n");
            failed = true;
        }
        return failed;
    }
};

} // namespace

int main(int argc, char **argv) {
    int status;
    if (run_role(argc, argv, roles, &status)) {
        return status;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const char *seconds = getenv("UMF_TEST_SOAK_SECONDS"), *seed = getenv("UMF_TEST_SOAK_SEED");
    unsigned begin =
        seed ? static_cast<unsigned>(strtoul(seed, nullptr, 10)) : std::random_device{}();
    printf("soak: UMF_TEST_SOAK_SEED=%u\n", begin);
    return Soak(begin).run(std::chrono::seconds(seconds ? strtol(seconds, nullptr, 10) : 3));
}
