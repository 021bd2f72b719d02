// Life and death of processes that share memory: order of ends, and memory of the survivors.
//
// This process is the consumer; a peer is a producer, or a second consumer, that does what it is
// requested: see fakes/peer.h. Every test runs for every kind of memory that travels on its own.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "fakes/descriptors.h"
#include "fakes/log_file.h"
#include "fakes/peer.h"
#include "fakes/scale.h"

namespace {

constexpr size_t page = 4096;

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

    // Nothing if there is none.
    static Bytes handle_of(const void *ptr) {
        Bytes bytes;
        get_handle(ptr, &bytes);
        return bytes;
    }
    umf_result_t try_open(const Bytes &handle, char **ptr) const {
        void *opened = nullptr;
        umf_result_t result = open_handle(handler, handle, &opened);
        *ptr = static_cast<char *>(opened);
        return result;
    }
    char *open(const Bytes &handle) const {
        char *ptr;
        EXPECT_EQ(try_open(handle, &ptr), UMF_RESULT_SUCCESS);
        return ptr;
    }
};

// --- the peer ---

// A program made by exec has nothing of ours.
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
    Reply reply = {};
    reply.set(found.data(), found.size());
    socket.send(message_of(reply));
    return 0;
}

struct LifeOp {
    enum : uint32_t {
        Pid = Op::Own, // -> value
        Exec,          // the heir answers: bytes: what it has
        Leave,         // ends without any tidying
    };
};

class Servant : public PoolServant {
    // Gives its socket to the heir, which answers; then its own answer is not one.
    umf_result_t exec() {
        SelfCommand self({"role", "--role", "heir", ""});
        pid_t child = fork();
        if (child == 0) {
            fcntl(socket.get(), F_SETFD, 0);
            execvp(self.file(), self.arguments());
            _exit(1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return status == 0 ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_UNKNOWN;
    }

    umf_result_t serve_own(const Request &request, Reply &reply) override {
        switch (request.op) {
        case LifeOp::Pid:
            reply.value = static_cast<uint64_t>(getpid());
            return UMF_RESULT_SUCCESS;
        case LifeOp::Exec:
            return exec();
        case LifeOp::Leave:
            _exit(0);
        default:
            return UMF_RESULT_ERROR_UNKNOWN;
        }
    }

  public:
    using PoolServant::PoolServant;
};

const Roles roles = {{"peer", serve<Servant>}, {"heir", heir}};

// --- the test's side ---

struct Peer : PoolPeer {
    explicit Peer(const std::string &text) : PoolPeer("peer", text) {}
    Peer(pid_t wanted, const std::string &text) : PoolPeer(wanted, "peer", text) {}

    // What it fills, too.
    uint64_t alloc(uint32_t slot, size_t size, uint64_t seed) {
        uint64_t address = PoolPeer::alloc(slot, size);
        fill(slot, size, seed);
        return address;
    }
    uint64_t number_of_process() {
        return value_of(call(LifeOp::Pid));
    }
    void leave() {
        socket.send(message_of(request_of(LifeOp::Leave)));
        end(0);
    }
    // Where its parent is gone.
    void let_child_end() {
        socket.send(message_of(request_of(Op::Quit)));
        EXPECT_EQ(socket.receive(), "") << "until it has ended";
    }
    // The state of the new program.
    Bytes exec() {
        Reply found = call(LifeOp::Exec), own = {};
        if (found.result == UMF_RESULT_SUCCESS) {
            EXPECT_TRUE(read_message(socket.receive(), &own));
            EXPECT_EQ(own.result, UMF_RESULT_SUCCESS) << "the heir failed";
        }
        return bytes_of(found);
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
    {"File", false}, // opened by its path: no report
};

class Life : public testing::TestWithParam<Kind> {
    int serial = 0;
    std::vector<std::string> paths;

  protected:
    void TearDown() override {
        for (const std::string &path : paths) {
            // The lock of one that was killed goes with the last trace of its process, which a
            // process that reads /proc can keep a while.
            for (int i = 0; i < 6000 && is_name(path); i++) {
                EXPECT_EQ(umfIPCReap(nullptr), UMF_RESULT_SUCCESS);
                usleep(i ? 10000 : 0);
            }
            EXPECT_FALSE(is_name(path)) << path << " is left";
            unlink(path.c_str());
        }
    }
    static bool is_name(const std::string &path) {
        return path.find("/dev/shm/") == 0 && access(path.c_str(), F_OK) == 0;
    }
    bool is(const char *name) const {
        return strcmp(GetParam().name, name) == 0;
    }
    // A pool of this kind, with a unique name.
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
        Bytes handle = producer.get(0);
        char *opened = pool.open(handle);
        ASSERT_NE(opened, nullptr);
        if (strcmp(how, "exit") == 0) {
            producer.leave();
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
        uint64_t pid = producer.number_of_process();
        producer.kill();
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
        size_t evicted = 77;
        EXPECT_EQ(umfIPCEvict(static_cast<int>(pid), &evicted), UMF_RESULT_SUCCESS);
        EXPECT_EQ(evicted, 1u);
        if (round == 0) {
            descriptors = count_open_descriptors();
            mappings = count_shared_mappings();
        }
    }
    EXPECT_LE(count_open_descriptors(), descriptors);
    EXPECT_LE(count_shared_mappings(), mappings);
}

// A child lives on with all that it inherited, but it is not the producer.
TEST_P(Life, TheChildOfAProducerSharesOnlyWhatItMakes) {
    Pool pool(text()), other(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    Bytes handle = producer.get(0);
    char *opened = pool.open(handle);
    producer.go_on_in_a_child(true);
    EXPECT_EQ(producer.wait(), 0) << "the parent is gone";
    EXPECT_TRUE(is_filled(opened, page, 1));
    char *late;
    EXPECT_EQ(other.try_open(handle, &late), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_NE(producer.alloc(1, page, 2), 0u);
    char *its = pool.open(producer.get(1));
    ASSERT_NE(its, nullptr);
    EXPECT_TRUE(is_filled(its, page, 2));
    producer.free(1);
    EXPECT_TRUE(is_filled(opened, page, 1)) << "its parent's memory is still there";
    EXPECT_EQ(umfCloseIPCHandle(its), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    producer.let_child_end();
}

// --- the consumer ends ---

TEST_P(Life, AConsumersDeathCostsItsProducerNothing) {
    Pool pool(text());
    auto ptr = static_cast<char *>(umfPoolMalloc(pool.pool, 3 * page));
    fill(ptr, 3 * page, 1);
    Bytes handle = pool.handle_of(ptr);
    size_t descriptors = count_open_descriptors(), mappings = count_shared_mappings();
    for (int round = 0; round < 5; round++) {
        Peer consumer(text());
        ASSERT_EQ(consumer.try_open(0, handle), UMF_RESULT_SUCCESS);
        EXPECT_TRUE(consumer.check(0, 3 * page, 1));
        consumer.kill();
        EXPECT_TRUE(is_filled(ptr, 3 * page, 1));
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
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
    ASSERT_EQ(consumer.try_open(0, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    consumer.go_on_in_a_child(); // from now on the child answers
    EXPECT_TRUE(consumer.check(0, page, 1));
    fill(ptr, page, 3);
    EXPECT_TRUE(consumer.check(0, page, 3)) << "still the same memory";
    ASSERT_EQ(consumer.try_open(1, pool.handle_of(second)), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(consumer.check(1, page, 2));
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(consumer.close(1), UMF_RESULT_SUCCESS);
    consumer.quit();
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
    ASSERT_EQ(both.try_open(1, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    Bytes found = both.exec();
    EXPECT_EQ(std::string(found.begin(), found.end()), "");
    EXPECT_TRUE(both.check(0, page, 1));
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
}

// --- what came later at the same place ---

TEST_P(Life, FreedMemoryIsRefusedWithItsReason) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    Bytes handle = producer.get(0);
    producer.free(0);
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
    Bytes old_handle;
    char *opened;
    producer.PoolPeer::alloc(0, page);
    producer.recycle(0, page, [&](const Bytes &handle) {
        producer.fill(0, page, 1);
        old_handle = handle;
        opened = pool.open(handle);
        EXPECT_TRUE(is_filled(opened, page, 1));
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    });
    producer.fill(0, page, 2);
    if (GetParam().tells_of_frees) {
        EXPECT_EQ(pool.try_open(old_handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(fresh.try_open(old_handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    for (Pool *each : {&pool, &fresh}) {
        opened = each->open(producer.get(0));
        ASSERT_NE(opened, nullptr);
        EXPECT_TRUE(is_filled(opened, page, 2));
        char *old;
        EXPECT_EQ(each->try_open(old_handle, &old), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << "a newer one was opened";
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
}

TEST_P(Life, ARecycledProcessNumberIsNoticed) {
    std::string its_text = text();
    Pool pool(text());
    auto producer = std::make_unique<Peer>(its_text);
    producer->alloc(0, page, 1);
    Bytes handle = producer->get(0);
    pid_t pid = producer->pid;
    producer.reset();
    usleep(3 * 1000000 / static_cast<unsigned>(sysconf(_SC_CLK_TCK))); // the clock of start times
    // The same program with the same descriptors and the same addresses, as far as chance allows.
    Peer again(pid, its_text);
    if (again.pid != pid) {
        GTEST_SKIP() << "no process with a chosen number can be made here: " << strerror(errno);
    }
    again.alloc(0, page, 2);
    Bytes new_handle = again.get(0);
    LogFile log(3);
    char *opened;
    EXPECT_EQ(pool.try_open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_GE(log.count("was given to another process"), 1u) << log.text();
    opened = pool.open(new_handle);
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(is_filled(opened, page, 2));
    EXPECT_EQ(pool.try_open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    again.kill();
}

TEST_P(Life, FlippedBytesAreRefused) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    Bytes handle = producer.get(0);
    size_t descriptors = count_open_descriptors(), mappings = count_shared_mappings();
    char *opened;
    for (size_t bit = 0; bit < handle.size() * 8; bit += 3) {
        Bytes bad = handle;
        bad[bit / 8] = static_cast<unsigned char>(bad[bit / 8] ^ 1 << bit % 8);
        ASSERT_EQ(pool.try_open(bad, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    EXPECT_TRUE(is_filled(pool.open(handle), page, 1));
}

// --- many, and too many ---

TEST_P(Life, TenThousandAreOpenAtOnce) {
    // Each costs a sanitizer ten times what it costs without.
    const size_t count = (UMF_TEST_ASAN || UMF_TEST_TSAN) && !does_all() ? 1000 : 10000;
    Peer producer(text());
    Pool pool(text());
    size_t descriptors = count_open_descriptors(), mappings = count_shared_mappings();
    std::vector<char *> opened(count);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_NE(producer.alloc(i, page, i), 0u);
        opened[i] = pool.open(producer.get(i));
        ASSERT_NE(opened[i], nullptr) << i;
    }
    size_t open_now = 0;
    EXPECT_EQ(umfCtlGet("umf.ipc.stats.opened", &open_now, sizeof(open_now)), UMF_RESULT_SUCCESS);
    EXPECT_GE(open_now, count);
    EXPECT_LE(count_open_descriptors(), descriptors + 8) << "not one for each";
    std::vector<char *> sorted = opened;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_TRUE(is_filled(opened[i], page, i)) << i;
        ASSERT_EQ(umfCloseIPCHandle(opened[i]), UMF_RESULT_SUCCESS);
    }
    size_t evicted = 0;
    EXPECT_EQ(umfIPCEvict(producer.pid, &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, count);
    EXPECT_LE(count_shared_mappings(), mappings);
    for (uint32_t i = 0; i < count; i++) {
        producer.free(i);
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
    std::vector<Bytes> handles;
    std::vector<char *> opened;
    for (uint32_t i = 0; i <= count; i++) {
        ASSERT_NE(producer.alloc(i, size, i), 0u);
        handles.push_back(producer.get(i));
    }
    opened.push_back(pool.open(handles[count])); // mapped once for a producer
    size_t before = addresses();
    for (uint32_t i = 0; i < count; i++) {
        opened.push_back(pool.open(handles[i]));
        ASSERT_NE(opened.back(), nullptr);
    }
    size_t each = is("Vmm") ? 2 * size : size;
    EXPECT_LE(addresses() - before, count * each + 4 * size) << "and a little for its record";
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

// A poll does not see descriptors of O_PATH, and takes no more than the limit allows.
TEST(Descriptors, AllAreCounted) {
    const size_t before = count_open_descriptors();
    const int place = open("/", O_PATH | O_CLOEXEC);
    ASSERT_NE(place, -1);
    EXPECT_EQ(count_open_descriptors(), before + 1);
    {
        Starved starved;
        EXPECT_GE(count_open_descriptors(), 200u); // a number above the limit may be inherited
    }
    close(place);
    EXPECT_EQ(count_open_descriptors(), before);
}

TEST_P(Life, AConsumerWithoutDescriptorsSaysSo) {
    Pool pool(text());
    Peer producer(text());
    producer.alloc(0, page, 1);
    Bytes handle = producer.get(0);
    LogFile log(3);
    size_t descriptors = count_open_descriptors(), mappings = count_shared_mappings();
    umf_result_t result;
    char *opened;
    {
        Starved starved;
        size_t full = count_open_descriptors();
        result = pool.try_open(handle, &opened);
        EXPECT_EQ(count_open_descriptors(), full);
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_GE(log.count("Too many open files"), 1u) << log.text();
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    opened = pool.open(handle);
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(is_filled(opened, page, 1));
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
}

TEST_P(Life, AProducerWithoutDescriptorsSaysSo) {
    std::string its_text = text();
    LogFile log(3);
    size_t descriptors = count_open_descriptors(), mappings = count_shared_mappings();
    {
        Starved starved;
        Pool pool(its_text);
        void *ptr = pool.pool ? umfPoolMalloc(pool.pool, page) : nullptr;
        EXPECT_TRUE(ptr == nullptr || pool.handle_of(ptr).empty()) << "what could it share?";
        EXPECT_TRUE(ptr == nullptr || umfFree(ptr) == UMF_RESULT_SUCCESS);
    }
    EXPECT_GE(log.count("Too many open files"), 1u) << log.text();
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_shared_mappings(), mappings);
    Pool pool(its_text);
    void *ptr = umfPoolMalloc(pool.pool, page);
    ASSERT_NE(ptr, nullptr);
    Peer consumer(text());
    EXPECT_EQ(consumer.try_open(0, pool.handle_of(ptr)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Memory, Life, testing::ValuesIn(kinds),
                         [](const testing::TestParamInfo<Kind> &kind) { return kind.param.name; });

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
