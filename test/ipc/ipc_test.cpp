// Sharing memory between real processes over the OS provider. The peers are those of fakes/peer.h.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fakes/forged.h"
#include "fakes/peer.h"
#include "fakes/scale.h"

namespace {

// --- the peer ---

struct OsOp {
    enum : uint32_t {
        OpenThreads = Op::Own, // bytes, a: threads -> value: number of different addresses
    };
};

class Servant : public PoolServant {
    umf_result_t open_threads(const Request &request, Reply &reply) {
        std::vector<void *> pointers(request.a);
        std::vector<umf_result_t> results(request.a);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < request.a; i++) {
            threads.emplace_back([&, i] { results[i] = open(request, &pointers[i]); });
        }
        for (size_t i = 0; i < request.a; i++) {
            threads[i].join();
        }
        slots[request.slot] = static_cast<char *>(pointers[0]);
        reply.value = std::set<void *>(pointers.begin(), pointers.end()).size();
        for (umf_result_t result : results) {
            if (result != UMF_RESULT_SUCCESS) {
                return result;
            }
        }
        return UMF_RESULT_SUCCESS;
    }

    umf_result_t serve_own(const Request &request, Reply &reply) override {
        return request.op == OsOp::OpenThreads ? open_threads(request, reply)
                                               : UMF_RESULT_ERROR_UNKNOWN;
    }

  public:
    using PoolServant::PoolServant;
};

const Roles roles = {{"peer", serve<Servant>}};

// --- the test's side ---

class Peer : public PoolPeer {
    std::string shm_name;
    bool was_killed = false;

    static std::string text_of(const std::string &name, bool shared) {
        return std::string("proxy over os:visibility=") + (shared ? "shared" : "private") +
               (name.empty() ? "" : ",shm_name=" + name);
    }

  public:
    explicit Peer(const std::string &name = "", bool shared = true)
        : PoolPeer("peer", text_of(name, shared)), shm_name(name) {}
    ~Peer() {
        if (was_killed && !shm_name.empty()) {
            unlink(("/dev/shm/" + shm_name).c_str()); // its owner could not
        }
    }

    void kill() {
        PoolPeer::kill();
        was_killed = true;
    }
    uint64_t open_threads(uint32_t slot, const Bytes &handle, unsigned threads) {
        return value_of(call(OsOp::OpenThreads, slot, threads, 0, handle));
    }
};

const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Every test runs with anonymous and with named shared memory.
class Ipc : public testing::TestWithParam<bool> {
    int serial = 0;

  protected:
    // A unique name, or none.
    std::string name() {
        return GetParam()
                   ? "umf_ipc_test_" + std::to_string(getpid()) + "_" + std::to_string(serial++)
                   : std::string();
    }
};

TEST_P(Ipc, CarriesContentBothWays) {
    Peer producer(name()), consumer(name());
    expect_content_goes_both_ways(producer, consumer, 3 * page + 123);
}

TEST_P(Ipc, OffsetsTravelAlong) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, 4 * page);
    producer.alloc(1, 4 * page);
    producer.fill(0, 4 * page, 10);
    producer.fill(1, 4 * page, 20);
    uint64_t base = consumer.open(0, producer.get(0));
    for (size_t offset : {size_t{1}, page - 1, page, 4 * page - 1}) {
        EXPECT_EQ(consumer.open(1, producer.get(0, offset)), base + offset);
        EXPECT_TRUE(consumer.check(1, 1, 10 + offset));
        EXPECT_EQ(consumer.close(1, 0), UMF_RESULT_SUCCESS);
    }
    consumer.open(2, producer.get(1, 100));
    EXPECT_TRUE(consumer.check(2, page, 120));
    EXPECT_EQ(consumer.close(2, page), UMF_RESULT_SUCCESS) << "interior pointers close";
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
}

TEST_P(Ipc, HasAnyNumberOfConsumers) {
    Peer producer(name()), first(name()), second(name()), third(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    for (Peer *consumer : {&first, &second, &third}) {
        consumer->open(0, handle);
        EXPECT_TRUE(consumer->check(0, page, 1));
    }
    first.fill(0, page, 2);
    EXPECT_TRUE(third.check(0, page, 2));
    EXPECT_EQ(first.close(0), UMF_RESULT_SUCCESS);
    first.quit();
    EXPECT_TRUE(second.check(0, page, 2));
    Peer late(name());
    late.open(0, handle);
    EXPECT_TRUE(late.check(0, page, 2));
}

TEST_P(Ipc, GoesBothWaysAtOnce) {
    Peer a(name()), b(name());
    a.alloc(0, page);
    b.alloc(0, page);
    a.fill(0, page, 1);
    b.fill(0, page, 2);
    a.open(1, b.get(0));
    b.open(1, a.get(0));
    EXPECT_TRUE(a.check(1, page, 2));
    EXPECT_TRUE(b.check(1, page, 1));
}

TEST_P(Ipc, OpensInTheProducerItself) {
    Peer producer(name());
    expect_opens_in_the_producer(producer, page);
}

TEST_P(Ipc, ManyThreadsShareOneMapping) {
    Peer producer(name()), consumer(name()), other(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    uint64_t before = other.mappings();
    other.open(0, handle);
    uint64_t cost = other.mappings() - before;
    EXPECT_GE(cost, 1u);
    before = consumer.mappings();
    EXPECT_EQ(consumer.open_threads(0, handle, 8), 1u) << "different addresses";
    EXPECT_EQ(consumer.mappings() - before, cost);
    EXPECT_TRUE(consumer.check(0, page, 1));
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(consumer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(Ipc, AConsumerNeedsASharedProvider) {
    Peer producer(name()), consumer("", false);
    producer.alloc(0, page);
    EXPECT_EQ(consumer.try_open(0, producer.get(0)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

// --- memory that goes ---

TEST_P(Ipc, RefusesMemoryFreedBeforeTheOpen) {
    Peer producer(name()), consumer(name());
    expect_freed_memory_is_refused(producer, consumer, page);
}

TEST_P(Ipc, RefusesMemoryFreedSinceTheLastOpen) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    consumer.open(0, handle);
    producer.free(0);
    EXPECT_EQ(consumer.try_open(1, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "still cached";
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.try_open(1, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(Ipc, RefusesAHandleReplayedAfterAReallocation) {
    Peer producer(name()), consumer(name()), fresh(name());
    Bytes old_handle;
    producer.alloc(0, page);
    producer.recycle(0, page, [&](const Bytes &handle) {
        old_handle = handle;
        consumer.open(0, handle);
        EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    });
    producer.fill(0, page, 2);
    for (Peer *p : {&consumer, &fresh, &producer}) {
        EXPECT_EQ(p->try_open(1, old_handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    Bytes new_handle = producer.get(0);
    EXPECT_NE(new_handle, old_handle);
    for (Peer *p : {&consumer, &fresh}) {
        p->open(0, new_handle);
        EXPECT_TRUE(p->check(0, page, 2));
        EXPECT_EQ(p->try_open(1, old_handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(p->check(0, page, 2)) << "and the new one still stands";
    }
}

TEST_P(Ipc, RefusesMemoryOfADestroyedPool) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes handle = producer.get(0);
    producer.free(0);
    producer.forget();
    EXPECT_NE(consumer.try_open(0, handle), UMF_RESULT_SUCCESS);
}

TEST_P(Ipc, AMappingOutlivesItsProducer) {
    Peer consumer(name()), late(name());
    for (bool is_killed : {false, true}) {
        Peer producer(name());
        producer.alloc(0, page);
        producer.fill(0, page, 7);
        Bytes handle = producer.get(0);
        consumer.open(0, handle);
        is_killed ? producer.kill() : producer.quit();
        EXPECT_TRUE(is_killed || consumer.close(0) == UMF_RESULT_SUCCESS);
        if (is_killed) {
            EXPECT_TRUE(consumer.check(0, page, 7)) << "it is live";
            consumer.fill(0, page, 8);
            EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(late.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << "the producer is dead";
    }
}

TEST_P(Ipc, AChildOfAForkSharesItsOwnMemory) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    producer.go_on_in_a_child();
    producer.alloc(1, page);
    producer.fill(1, page, 3);
    consumer.open(0, producer.get(1));
    EXPECT_TRUE(consumer.check(0, page, 3));
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
}

// --- bad handles ---

TEST_P(Ipc, RefusesEveryBitFlip) {
    ONE_THREAD_ONLY()
    Peer producer(name()), consumer(name()), fresh(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    uint64_t descriptors = fresh.descriptors(), mappings = fresh.mappings();
    for (size_t bit = 0; bit < handle.size() * 8; bit++) {
        Bytes bad = handle;
        bad[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        ASSERT_EQ(fresh.try_open(1, bad), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
        ASSERT_EQ(consumer.try_open(1, bad), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
    }
    EXPECT_EQ(fresh.descriptors(), descriptors);
    EXPECT_EQ(fresh.mappings(), mappings);
    EXPECT_TRUE(consumer.check(0, page, 1));
    fresh.open(0, handle);
    EXPECT_TRUE(fresh.check(0, page, 1));
}

TEST_P(Ipc, RefusesForgedHandles) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, 2 * page);
    producer.fill(0, 2 * page, 1);
    Bytes good = producer.get(0);
    ASSERT_EQ(forged(good, 80, uint64_t{0}), good) << "the forger has the format";
    struct {
        const char *what;
        Bytes handle;
    } const cases[] = {
        {"start time of another process", forged(good, 32, field<uint64_t>(good, 32) - 1)},
        {"another process", forged(good, 12, uint32_t{1})},
        {"another boot", forged(good, 24, field<uint64_t>(good, 24) ^ 1)},
        {"another kind", forged(good, 16, field<uint64_t>(good, 16) ^ 1)},
        {"offset at the end", forged(good, 80, uint64_t{2 * page})},
        {"offset far out", forged(good, 80, UINT64_MAX - page)},
        {"size beyond all memory", forged(good, 48, UINT64_MAX / 4)},
        {"length too long", forged(good, 8, uint32_t{1 << 20})},
        {"version of tomorrow", forged(good, 4, uint16_t{4})},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(consumer.try_open(0, c.handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << c.what;
    }
    // Sizes that differ from the real one would lead to unmapping other memory later.
    for (uint64_t size : {uint64_t{1}, uint64_t{page}, uint64_t{64 * page}, uint64_t{1} << 40}) {
        EXPECT_EQ(consumer.try_open(0, forged(good, 48, size)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    consumer.open(0, producer.get(0, 1));
    EXPECT_TRUE(consumer.check(0, page, 2));
}

TEST_P(Ipc, RefusesRandomBytesInPlaceOfTheProvidersData) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes good = producer.get(0);
    uint64_t descriptors = consumer.descriptors();
    for (size_t at = 96; at + 8 <= good.size(); at += 4) {
        for (uint32_t value : {0u, 0xffffffffu, 0x80000000u, 0x12345678u}) {
            if (field<uint32_t>(good, at) != value) {
                EXPECT_NE(consumer.try_open(0, forged(good, at, value)), UMF_RESULT_SUCCESS)
                    << "at " << at;
            }
        }
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
}

// --- nothing is left behind ---

TEST_P(Ipc, AThousandOpensLeaveNothingBehind) {
    Peer producer(name()), consumer(name());
    uint64_t descriptors[2] = {}, mappings[2] = {};
    for (int round = 0; round < 1000; round++) {
        if (round == 20) {
            descriptors[0] = producer.descriptors();
            descriptors[1] = consumer.descriptors();
            mappings[0] = producer.mappings();
            mappings[1] = consumer.mappings();
        }
        producer.alloc(0, page);
        consumer.open(0, producer.get(0));
        ASSERT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
        producer.free(0);
    }
    EXPECT_LE(producer.descriptors(), descriptors[0]);
    EXPECT_LE(consumer.descriptors(), descriptors[1]);
    /* The kernel joins neighbours or not: a few lines more are no leak, hundreds were one. */
    EXPECT_LE(producer.mappings(), mappings[0] + 5);
    EXPECT_LE(consumer.mappings(), mappings[1] + 5);
}

TEST_P(Ipc, AThousandHandlesAreClosedWithTheirPool) {
    constexpr uint32_t count = 1000;
    Peer producer(name()), consumer(name());
    consumer.alloc(0, page);
    consumer.free(0);
    uint64_t descriptors = consumer.descriptors(), mappings = consumer.mappings();
    for (uint32_t i = 0; i < count; i++) {
        producer.alloc(i, page);
        producer.fill(i, 8, i);
        consumer.open(i, producer.get(i));
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_TRUE(consumer.check(i, 8, i));
    }
    consumer.forget();
    EXPECT_LE(consumer.descriptors(), descriptors);
    EXPECT_LE(consumer.mappings(), mappings);
}

TEST_P(Ipc, FailedOpensLeaveNothingBehind) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes handle = producer.get(0);
    producer.free(0);
    ASSERT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    uint64_t descriptors = consumer.descriptors(), mappings = consumer.mappings();
    for (int round = 0; round < 200; round++) {
        ASSERT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
    EXPECT_EQ(consumer.mappings(), mappings);
}

TEST_P(Ipc, LeavesNoNameBehind) {
    std::string shm = name();
    if (shm.empty()) {
        GTEST_SKIP() << "anonymous memory has no name";
    }
    std::string path = "/dev/shm/" + shm;
    {
        Peer producer(shm), consumer(name());
        producer.alloc(0, page);
        consumer.open(0, producer.get(0));
        EXPECT_EQ(access(path.c_str(), F_OK), 0);
        producer.quit();
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Ipc, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &kind) {
                             return kind.param ? "Named" : "Anonymous";
                         });

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
