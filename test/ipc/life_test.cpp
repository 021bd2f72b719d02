// Life and death of processes that share memory: who ends, when, and what the others keep.
//
// This process is the consumer; a peer is a producer, or a second consumer, that does what it is
// told in words: see `peer`. Every test runs for every kind of memory that travels on its own.
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "fakes/log_file.h"
#include "fakes/role.h"

namespace {

constexpr size_t page = 4096;

unsigned char pattern(uint64_t seed, size_t i) {
    return static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
}

void fill(char *ptr, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) {
        ptr[i] = static_cast<char>(pattern(seed, i));
    }
}

bool is_filled(const char *ptr, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) {
        if (static_cast<unsigned char>(ptr[i]) != pattern(seed, i)) {
            return false;
        }
    }
    return true;
}

size_t count_descriptors() {
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

size_t count_shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("s ") == line.find(' ') + 4; // the last letter of "rw-s"
    }
    return count;
}

struct Pool {
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;

    explicit Pool(const std::string &text) {
        if (umfPoolCreateFromText(text.c_str(), &pool) == UMF_RESULT_SUCCESS) {
            umfPoolGetIPCHandler(pool, &handler);
        }
    }
    ~Pool() {
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    std::string handle_of(const void *ptr) const {
        umf_ipc_handle_t handle;
        size_t size;
        if (umfGetIPCHandle(ptr, &handle, &size) != UMF_RESULT_SUCCESS) {
            return "";
        }
        std::string bytes(reinterpret_cast<const char *>(handle), size);
        umfPutIPCHandle(handle);
        return bytes;
    }
    umf_result_t try_open(const std::string &handle, char **ptr) const {
        std::vector<std::max_align_t> buffer(handle.size() / sizeof(std::max_align_t) + 1);
        memcpy(buffer.data(), handle.data(), handle.size());
        void *opened = nullptr;
        umf_result_t result =
            umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &opened);
        *ptr = static_cast<char *>(opened);
        return result;
    }
    char *open(const std::string &handle) const {
        char *ptr;
        EXPECT_EQ(try_open(handle, &ptr), UMF_RESULT_SUCCESS);
        return ptr;
    }
};

// --- the peer ---

// What a program has that was made by exec: nothing of ours.
int heir(Socket &socket, const std::string &) {
    std::string found;
    for (int fd = 0; fd < 1024; fd++) {
        char link[256] = {};
        if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), link, sizeof(link) - 1) > 0 &&
            (strstr(link, "memfd:") || strstr(link, "/dev/shm/") || strstr(link, "umf_life"))) {
            found += std::string(link) + " ";
        }
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:umf") != std::string::npos ||
            line.find("/dev/shm/umf_life") != std::string::npos) {
            found += line + " ";
        }
    }
    socket.send(found.empty() ? "nothing" : found);
    return 0;
}

// Goes on in a child; the parent ends, or waits for the child.
void go_on_in_a_child(bool parent_ends) {
    pid_t child = fork();
    if (child != 0) {
        if (!parent_ends) {
            waitpid(child, nullptr, 0);
        }
        _exit(0);
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

struct Servant {
    Pool pool;
    std::vector<char *> slots = std::vector<char *>(20000);

    explicit Servant(const std::string &text) : pool(text) {}

    std::string open(const std::string &handle, size_t slot) {
        char *ptr;
        umf_result_t result = pool.try_open(handle, &ptr);
        slots[slot] = ptr;
        return std::to_string(result);
    }

    std::string exec(Socket &socket) {
        pid_t child = fork();
        if (child == 0) {
            fcntl(socket.get(), F_SETFD, 0);
            execl("/proc/self/exe", "role", "--role", "heir", "", nullptr);
            _exit(1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return status == 0 ? "" : "the heir failed"; // it has answered itself
    }

    // The word, its numbers, and what is behind the first line.
    std::string serve(Socket &socket, const std::string &word, size_t a, size_t b, size_t c,
                      const std::string &bytes) {
        if (word == "alloc") { // slot, size, seed: address
            slots[a] = static_cast<char *>(umfPoolMalloc(pool.pool, b));
            if (slots[a]) {
                fill(slots[a], b, c);
            }
            return std::to_string(reinterpret_cast<uintptr_t>(slots[a]));
        } else if (word == "free") { // slot
            return std::to_string(umfFree(slots[a]));
        } else if (word == "get") { // slot: handle
            return pool.handle_of(slots[a]);
        } else if (word == "open") { // slot, bytes of a handle: result
            return open(bytes, a);
        } else if (word == "close") { // slot: result
            return std::to_string(umfCloseIPCHandle(slots[a]));
        } else if (word == "check") { // slot, size, seed: 1 or 0
            return is_filled(slots[a], b, c) ? "1" : "0";
        } else if (word == "fill") { // slot, size, seed
            fill(slots[a], b, c);
            return "done";
        } else if (word == "fork") { // 1: the parent ends
            go_on_in_a_child(a == 1);
            return "done";
        } else if (word == "exec") {
            return exec(socket);
        } else if (word == "descriptors") {
            return std::to_string(count_descriptors());
        } else if (word == "pid") {
            return std::to_string(getpid());
        }
        return "what?";
    }
};

int peer(Socket &socket, const std::string &text) {
    Servant servant(text);
    for (;;) {
        std::string message = socket.receive();
        size_t line = message.find('\n');
        std::istringstream words(message.substr(0, line));
        std::string word;
        size_t a = 0, b = 0, c = 0;
        words >> word >> a >> b >> c;
        if (word.empty() || word == "quit") {
            return 0;
        } else if (word == "exit") {
            _exit(0); // without any tidying
        }
        std::string reply = servant.serve(
            socket, word, a, b, c, line == std::string::npos ? "" : message.substr(line + 1));
        if (!reply.empty() && !socket.send(reply)) {
            return 0;
        }
    }
}

const Roles roles = {{"peer", peer}, {"heir", heir}};

// --- the test's side ---

struct Peer : Process {
    explicit Peer(const std::string &text) : Process("peer", text) {}

    size_t number(const std::string &message) {
        std::string reply = socket.ask(message);
        EXPECT_FALSE(reply.empty()) << "the peer is gone: " << message;
        return reply.empty() ? 0 : std::stoull(reply);
    }
    uint64_t alloc(size_t slot, size_t size, size_t seed) {
        std::ostringstream text;
        text << "alloc " << slot << " " << size << " " << seed;
        return number(text.str());
    }
    std::string get(size_t slot) {
        return socket.ask("get " + std::to_string(slot));
    }
    umf_result_t open(size_t slot, const std::string &handle) {
        return static_cast<umf_result_t>(number("open " + std::to_string(slot) + "\n" + handle));
    }
    bool check(size_t slot, size_t size, size_t seed) {
        std::ostringstream text;
        text << "check " << slot << " " << size << " " << seed;
        return number(text.str()) == 1;
    }
};

struct Kind {
    const char *name;
    bool tells_of_frees;
};

const Kind kinds[] = {
    {"Anonymous", true},
    {"Named", true},
    {"Vmm", true},
    {"File", false}, // opened by its path: nobody tells
};

class Life : public testing::TestWithParam<Kind> {
    int serial = 0;
    std::vector<std::string> paths;

  protected:
    void TearDown() override {
        EXPECT_EQ(umfIPCReap(nullptr), UMF_RESULT_SUCCESS);
        for (const std::string &path : paths) {
            EXPECT_TRUE(path.find("/dev/shm/") != 0 || access(path.c_str(), F_OK) != 0)
                << path << " is left";
            unlink(path.c_str());
        }
    }
    bool is(const char *name) const {
        return strcmp(GetParam().name, name) == 0;
    }
    // A pool of this kind, with a name that nobody else has.
    std::string text() {
        std::string name = "umf_life_" + std::to_string(getpid()) + "_" + std::to_string(serial++);
        if (is("Anonymous")) {
            return "proxy over os:visibility=shared";
        } else if (is("Named")) {
            paths.push_back("/dev/shm/" + name);
            return "proxy over os:visibility=shared,shm_name=" + name;
        } else if (is("Vmm")) {
            return "proxy over linux_vmm:piece_size=2M";
        }
        paths.push_back(testing::TempDir() + name);
        return "proxy over file:visibility=shared,path=" + paths.back();
    }
};

// --- the producer ends ---

TEST_P(Life, AMappingOutlivesItsProducer) {
    constexpr size_t size = 5 * page;
    for (const char *how : {"exit", "kill"}) {
        Pool pool(text()), other(text());
        Peer producer(text());
        ASSERT_NE(producer.alloc(0, size, 1), 0u);
        std::string handle = producer.get(0);
        char *opened = pool.open(handle);
        ASSERT_NE(opened, nullptr);
        if (strcmp(how, "exit") == 0) {
            producer.socket.send("exit");
            EXPECT_EQ(producer.wait(), 0);
        } else {
            producer.kill();
        }
        EXPECT_TRUE(is_filled(opened, size, 1)) << how;
        fill(opened, size, 2);
        EXPECT_TRUE(is_filled(opened, size, 2)) << how;
        char *late;
        LogFile log(3);
        EXPECT_EQ(other.try_open(handle, &late), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << how << ": its producer is dead";
        EXPECT_GE(log.count("has ended"), 1u) << log.text();
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
}

TEST_P(Life, DeadProducersCostNothing) {
    Pool pool(text());
    size_t descriptors = 0, mappings = 0;
    for (int round = 0; round < 10; round++) {
        Peer producer(text());
        ASSERT_NE(producer.alloc(0, page, 1), 0u);
        char *opened = pool.open(producer.get(0));
        size_t pid = producer.number("pid");
        producer.kill();
        producer.socket.close();
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
        size_t evicted = 77;
        EXPECT_EQ(umfIPCEvict(static_cast<int>(pid), &evicted), UMF_RESULT_SUCCESS);
        EXPECT_EQ(evicted, 1u);
        if (round == 0) {
            descriptors = count_descriptors();
            mappings = count_shared_mappings();
        }
    }
    EXPECT_LE(count_descriptors(), descriptors);
    EXPECT_LE(count_shared_mappings(), mappings);
}

// A child lives on with all that it inherited, but it is not the producer.
TEST_P(Life, TheChildOfAProducerSharesOnlyWhatItMakes) {
    Pool pool(text()), other(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    std::string handle = producer.get(0);
    char *opened = pool.open(handle);
    EXPECT_EQ(producer.socket.ask("fork 1"), "done");
    EXPECT_EQ(producer.wait(), 0) << "the parent is gone";
    EXPECT_TRUE(is_filled(opened, page, 1));
    char *late;
    EXPECT_EQ(other.try_open(handle, &late), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_NE(producer.alloc(1, page, 2), 0u);
    char *its = pool.open(producer.get(1));
    ASSERT_NE(its, nullptr);
    EXPECT_TRUE(is_filled(its, page, 2));
    EXPECT_EQ(producer.number("free 1"), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(is_filled(opened, page, 1)) << "its parent's memory is still there";
    EXPECT_EQ(umfCloseIPCHandle(its), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    producer.socket.send("quit");
    EXPECT_EQ(producer.socket.receive(), "") << "until it has ended";
}

// --- the consumer ends ---

TEST_P(Life, AConsumersDeathCostsItsProducerNothing) {
    Pool pool(text());
    auto ptr = static_cast<char *>(umfPoolMalloc(pool.pool, 3 * page));
    fill(ptr, 3 * page, 1);
    std::string handle = pool.handle_of(ptr);
    size_t descriptors = count_descriptors(), mappings = count_shared_mappings();
    for (int round = 0; round < 5; round++) {
        Peer consumer(text());
        ASSERT_EQ(consumer.open(0, handle), UMF_RESULT_SUCCESS);
        EXPECT_TRUE(consumer.check(0, 3 * page, 1));
        consumer.kill();
        EXPECT_TRUE(is_filled(ptr, 3 * page, 1));
    }
    EXPECT_EQ(count_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(umfPoolGetMemoryProvider(pool.pool, &provider), UMF_RESULT_SUCCESS);
    size_t allocated = 1;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &allocated,
                        sizeof(allocated), provider),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(allocated, 0u);
}

TEST_P(Life, TheChildOfAConsumerHasWhatItsParentOpened) {
    Pool pool(text());
    auto ptr = static_cast<char *>(umfPoolMalloc(pool.pool, page));
    auto second = static_cast<char *>(umfPoolMalloc(pool.pool, page));
    fill(ptr, page, 1);
    fill(second, page, 2);
    Peer consumer(text());
    ASSERT_EQ(consumer.open(0, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.socket.ask("fork 0"), "done"); // from now on the child answers
    EXPECT_TRUE(consumer.check(0, page, 1));
    fill(ptr, page, 3);
    EXPECT_TRUE(consumer.check(0, page, 3)) << "still the same memory";
    ASSERT_EQ(consumer.open(1, pool.handle_of(second)), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(consumer.check(1, page, 2));
    EXPECT_EQ(consumer.number("close 0"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.number("close 0"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(consumer.number("close 1"), UMF_RESULT_SUCCESS);
    consumer.socket.send("quit");
    EXPECT_EQ(consumer.wait(), 0);
    EXPECT_TRUE(is_filled(ptr, page, 3));
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFree(second), UMF_RESULT_SUCCESS);
}

TEST_P(Life, AProgramMadeByExecHasNothing) {
    Pool pool(text());
    auto ptr = static_cast<char *>(umfPoolMalloc(pool.pool, page));
    Peer both(text());
    both.alloc(0, page, 1);
    both.get(0);
    ASSERT_EQ(both.open(1, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(both.socket.ask("exec"), "nothing");
    EXPECT_TRUE(both.check(0, page, 1));
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
}

// --- what came later at the same place ---

TEST_P(Life, FreedMemoryIsRefusedWithItsReason) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    std::string handle = producer.get(0);
    EXPECT_EQ(producer.number("free 0"), UMF_RESULT_SUCCESS);
    LogFile log(3);
    char *opened = nullptr;
    umf_result_t result = pool.try_open(handle, &opened);
    if (GetParam().tells_of_frees) {
        EXPECT_EQ(result, UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_GE(log.count("has freed the memory"), 1u) << log.text();
    } else if (result == UMF_RESULT_SUCCESS) {
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
}

TEST_P(Life, RecycledAddressesAreToldApart) {
    Pool pool(text()), fresh(text());
    Peer producer(text());
    uint64_t address = producer.alloc(0, page, 1);
    std::string old_handle = producer.get(0);
    char *opened = pool.open(old_handle);
    EXPECT_TRUE(is_filled(opened, page, 1));
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(producer.number("free 0"), UMF_RESULT_SUCCESS);
    size_t slot = 1;
    while (producer.alloc(slot, page, 2) != address && slot < 100) {
        slot++;
    }
    ASSERT_LT(slot, 100u) << "the address did not come back";
    if (GetParam().tells_of_frees) {
        EXPECT_EQ(pool.try_open(old_handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(fresh.try_open(old_handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    for (Pool *each : {&pool, &fresh}) {
        opened = each->open(producer.get(slot));
        ASSERT_NE(opened, nullptr);
        EXPECT_TRUE(is_filled(opened, page, 2));
        char *old;
        EXPECT_EQ(each->try_open(old_handle, &old), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << "a newer one was opened";
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
}

// A process with a number that another one had before; -1 if this system does not let us choose.
pid_t spawn_as(pid_t pid, const std::string &role, const std::string &argument, Socket &socket) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return -1;
    }
    clone_args args = {};
    args.exit_signal = SIGCHLD;
    args.set_tid = reinterpret_cast<uintptr_t>(&pid);
    args.set_tid_size = 1;
    auto child = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof(args)));
    if (child == 0) {
        dup2(ends[1], role_socket);
        execl("/proc/self/exe", "role", "--role", role.c_str(), argument.c_str(), nullptr);
        _exit(1);
    }
    close(ends[1]);
    socket.set(ends[0]);
    return child;
}

TEST_P(Life, ARecycledProcessNumberIsNoticed) {
    std::string its_text = text();
    Pool pool(text());
    auto producer = std::make_unique<Peer>(its_text);
    producer->alloc(0, page, 1);
    std::string handle = producer->get(0);
    pid_t pid = producer->pid;
    producer.reset();
    usleep(3 * 1000000 / static_cast<unsigned>(sysconf(_SC_CLK_TCK))); // the clock of start times
    // The same program with the same descriptors and the same addresses, as far as chance allows.
    Socket socket;
    pid_t again = spawn_as(pid, "peer", its_text, socket);
    if (again != pid) {
        GTEST_SKIP() << "no process with a chosen number can be made here: " << strerror(errno);
    }
    socket.ask("alloc 0 4096 2");
    std::string new_handle = socket.ask("get 0");
    LogFile log(3);
    char *opened;
    EXPECT_EQ(pool.try_open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_GE(log.count("was given to another process"), 1u) << log.text();
    opened = pool.open(new_handle);
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(is_filled(opened, page, 2));
    EXPECT_EQ(pool.try_open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    kill(again, SIGKILL);
    waitpid(again, nullptr, 0);
}

TEST_P(Life, FlippedBytesAreRefused) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    std::string handle = producer.get(0);
    size_t descriptors = count_descriptors(), mappings = count_shared_mappings();
    char *opened;
    for (size_t bit = 0; bit < handle.size() * 8; bit += 3) {
        std::string bad = handle;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
        ASSERT_EQ(pool.try_open(bad, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
    }
    EXPECT_EQ(count_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    EXPECT_TRUE(is_filled(pool.open(handle), page, 1));
}

// --- many, and too many ---

TEST_P(Life, TenThousandAreOpenAtOnce) {
    constexpr size_t count = 10000;
    Peer producer(text());
    Pool pool(text());
    size_t descriptors = count_descriptors(), mappings = count_shared_mappings();
    std::vector<char *> opened(count);
    for (size_t i = 0; i < count; i++) {
        ASSERT_NE(producer.alloc(i, page, i), 0u);
        opened[i] = pool.open(producer.get(i));
        ASSERT_NE(opened[i], nullptr) << i;
    }
    size_t open_now = 0;
    EXPECT_EQ(umfCtlGet("umf.ipc.stats.opened", &open_now, sizeof(open_now)), UMF_RESULT_SUCCESS);
    EXPECT_GE(open_now, count);
    EXPECT_LE(count_descriptors(), descriptors + 8) << "not one for each";
    std::vector<char *> sorted = opened;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (size_t i = 0; i < count; i++) {
        ASSERT_TRUE(is_filled(opened[i], page, i)) << i;
        ASSERT_EQ(umfCloseIPCHandle(opened[i]), UMF_RESULT_SUCCESS);
    }
    size_t evicted = 0;
    EXPECT_EQ(umfIPCEvict(producer.pid, &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, count);
    EXPECT_LE(count_shared_mappings(), mappings);
    for (size_t i = 0; i < count; i++) {
        ASSERT_EQ(producer.number("free " + std::to_string(i)), UMF_RESULT_SUCCESS);
    }
}

// Whatever is open, it takes the addresses it needs; of vmm memory that is its piece.
TEST_P(Life, OpeningTakesNoMoreAddressesThanItShows) {
    constexpr size_t count = 64, size = 1 << 20;
    auto addresses = [] {
        size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        return pages * page;
    };
    Peer producer(text());
    Pool pool(text());
    std::vector<std::string> handles;
    std::vector<char *> opened;
    for (size_t i = 0; i <= count; i++) {
        ASSERT_NE(producer.alloc(i, size, i), 0u);
        handles.push_back(producer.get(i));
    }
    opened.push_back(pool.open(handles[count])); // what is mapped once for a producer
    size_t before = addresses();
    for (size_t i = 0; i < count; i++) {
        opened.push_back(pool.open(handles[i]));
        ASSERT_NE(opened.back(), nullptr);
    }
    size_t each = is("Vmm") ? 2 * size : size;
    EXPECT_LE(addresses() - before, count * each + 4 * size)
        << "and a little for what is kept of it";
    for (char *ptr : opened) {
        EXPECT_EQ(umfCloseIPCHandle(ptr), UMF_RESULT_SUCCESS);
    }
}

// No descriptor is left while it lives.
class Starved {
    rlimit before;
    std::vector<int> taken;

  public:
    Starved() {
        getrlimit(RLIMIT_NOFILE, &before);
        rlimit low = {200, before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &low);
        for (int fd; (fd = dup(0)) != -1;) {
            taken.push_back(fd);
        }
    }
    ~Starved() {
        for (int fd : taken) {
            close(fd);
        }
        setrlimit(RLIMIT_NOFILE, &before);
    }
};

TEST_P(Life, AConsumerWithoutDescriptorsSaysSo) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    std::string handle = producer.get(0);
    LogFile log(3);
    size_t descriptors = count_descriptors(), mappings = count_shared_mappings();
    umf_result_t result;
    char *opened;
    {
        Starved starved;
        size_t full = count_descriptors();
        result = pool.try_open(handle, &opened);
        EXPECT_EQ(count_descriptors(), full);
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_GE(log.count("Too many open files"), 1u) << log.text();
    EXPECT_EQ(count_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    opened = pool.open(handle);
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(is_filled(opened, page, 1));
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
}

TEST_P(Life, AProducerWithoutDescriptorsSaysSo) {
    std::string its_text = text();
    LogFile log(3);
    size_t descriptors = count_descriptors(), mappings = count_shared_mappings();
    {
        Starved starved;
        Pool pool(its_text);
        void *ptr = pool.pool ? umfPoolMalloc(pool.pool, page) : nullptr;
        EXPECT_TRUE(ptr == nullptr || pool.handle_of(ptr).empty()) << "what could it share?";
        EXPECT_TRUE(ptr == nullptr || umfFree(ptr) == UMF_RESULT_SUCCESS);
    }
    EXPECT_GE(log.count("Too many open files"), 1u) << log.text();
    EXPECT_EQ(count_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    Pool pool(its_text);
    void *ptr = umfPoolMalloc(pool.pool, page);
    ASSERT_NE(ptr, nullptr);
    Peer consumer(text());
    EXPECT_EQ(consumer.open(0, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Memory, Life, testing::ValuesIn(kinds),
                         [](const testing::TestParamInfo<Kind> &kind) { return kind.param.name; });

} // namespace

int main(int argc, char **argv) {
    int status;
    if (run_role(argc, argv, roles, &status)) {
        return status;
    }
    prepare_for_roles();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
