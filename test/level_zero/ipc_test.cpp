// Sharing memory of Level Zero between real processes, by handles of the driver and by export and
// import: the peers of fakes/peer.h, each of which starts Level Zero for itself.
#include <string>
#include <vector>

#include "level_zero.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/text.h>

#include "fakes/descriptors.h"
#include "fakes/forged.h"
#include "fakes/peer.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

// --- the peer ------------------------------------------------------------------------------------

struct ZeOp {
    enum : uint32_t {
        Opens = Op::Own, // -> value: calls of the driver to open or to import
    };
};

class Servant : public PoolServant {
    uint64_t alive() override {
        return static_cast<uint64_t>(ze().alive());
    }
    uint64_t fail_at(long n) override {
        return static_cast<uint64_t>(
            fail_call(ze().control(), FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, n));
    }
    umf_result_t serve_own(const Request &request, Reply &reply) override {
        if (request.op != ZeOp::Opens) {
            return UMF_RESULT_ERROR_UNKNOWN;
        }
        const fake_ze_t *control = ze().control();
        reply.value = static_cast<uint64_t>(control->calls[FAKE_zeMemOpenIpcHandle] +
                                            (control->last.imports != 0));
        return OK;
    }

  public:
    Servant(Socket &of_test, const std::string &pool_text, int exports, int keeps = 0)
        : PoolServant(of_test, pool_text) {
        ze().control()->touchable = 1;
        ze().control()->keeps_exports = keeps;
        umfCtlSet("umf.provider.default.LEVEL_ZERO.params.use_import_export_for_IPC", &exports,
                  sizeof(exports));
    }
};

int by_handle(Socket &socket, const std::string &text) {
    return Servant(socket, text, 0).run();
}

int by_export(Socket &socket, const std::string &text) {
    return Servant(socket, text, 1).run();
}

// The driver keeps the descriptors that it exports, and closes them itself.
int by_kept_export(Socket &socket, const std::string &text) {
    return Servant(socket, text, 1, 1).run();
}

const Roles roles = {{"handle", by_handle}, {"export", by_export}, {"kept_export", by_kept_export}};

// --- the test's side -----------------------------------------------------------------------------

struct Peer : PoolPeer {
    explicit Peer(const std::string &wanted, const char *text = "proxy over level_zero")
        : PoolPeer(wanted, text) {}

    uint64_t opens() {
        return value_of(call(ZeOp::Opens));
    }
};

class Ipc : public testing::TestWithParam<const char *> {
  protected:
    void SetUp() override {
        NEEDS_FAKE_ZE(); // the CPU reads the memory
    }
    std::string role() const {
        return GetParam();
    }
    bool exports() const {
        return role() != "handle";
    }
};

constexpr size_t size = 100000;

} // namespace

TEST_P(Ipc, BothSeeWhatTheOtherWrites) {
    Peer producer(role()), consumer(role());
    expect_content_goes_both_ways(producer, consumer, size);
}

// The handle decides, not the settings of its consumer.
TEST_P(Ipc, TheConsumerNeedNotBeSetAlike) {
    Peer producer(role()), consumer(exports() ? "handle" : "export");
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 1));
    EXPECT_EQ(consumer.close(0), OK);
    producer.free(0);
}

TEST_P(Ipc, ManyPlacesOfOneAllocationAreOpenedOnce) {
    Peer producer(role(), "disjoint over level_zero"), consumer(role());
    producer.alloc(0, 1000);
    producer.alloc(1, 1000);
    producer.fill(0, 1000, 1);
    producer.fill(1, 1000, 2);
    uint64_t first = consumer.open(0, producer.get(0));
    uint64_t inside = consumer.open(2, producer.get(0, 100));
    consumer.open(1, producer.get(1));
    EXPECT_EQ(inside, first + 100);
    EXPECT_EQ(consumer.opens(), 1u);
    EXPECT_TRUE(consumer.check(0, 1000, 1));
    EXPECT_TRUE(consumer.check(1, 1000, 2));
    EXPECT_TRUE(consumer.check(2, 900, 101));
    for (uint32_t slot : {0u, 1u, 2u}) {
        EXPECT_EQ(consumer.close(slot), OK);
    }
    producer.free(0);
    producer.free(1);
}

TEST_P(Ipc, InTheProcessThatMadeIt) {
    Peer peer(role());
    expect_opens_in_the_producer(peer, size);
}

TEST_P(Ipc, NothingIsLeftAfterManyRounds) {
    Peer producer(role()), consumer(role());
    uint64_t before = 0, alive = 0, at_consumer = 0, alive_there = 0;
    for (int round = 0; round < 20; round++) {
        producer.alloc(0, size);
        producer.fill(0, size, static_cast<uint64_t>(round));
        consumer.open(0, producer.get(0));
        EXPECT_TRUE(consumer.check(0, size, static_cast<uint64_t>(round))) << round;
        EXPECT_EQ(consumer.close(0), OK);
        producer.free(0);
        if (round == 0) {
            before = producer.descriptors();
            alive = producer.alive();
            at_consumer = consumer.descriptors();
            alive_there = consumer.alive();
        }
    }
    EXPECT_EQ(producer.descriptors(), before);
    EXPECT_EQ(producer.alive(), alive);
    // Mappings are kept for the next time; those of freed memory are closed when something is
    // opened at their place, or with the pool.
    EXPECT_LE(consumer.descriptors(), at_consumer + 20);
    EXPECT_LE(consumer.alive(), alive_there + 20);
}

TEST_P(Ipc, FreedMemoryIsNotOpened) {
    Peer producer(role()), consumer(role());
    Bytes handle = expect_freed_memory_is_refused(producer, consumer, size);

    // Nor is the new memory, at the same address and with the same descriptor.
    producer.alloc(0, size);
    producer.fill(0, size, 3);
    Bytes other = producer.get(0);
    EXPECT_EQ(consumer.try_open(0, handle), BAD);
    consumer.open(0, other);
    EXPECT_TRUE(consumer.check(0, size, 3));
    EXPECT_EQ(consumer.close(0), OK);
    producer.free(0);
}

TEST_P(Ipc, TheProducerDies) {
    Peer consumer(role());
    Bytes handle, late;
    {
        Peer producer(role());
        producer.alloc(0, size);
        producer.alloc(1, size);
        producer.fill(0, size, 1);
        handle = producer.get(0);
        late = producer.get(1);
        consumer.open(0, handle);
        producer.kill();
    }
    EXPECT_TRUE(consumer.check(0, size, 1)) << "open mappings stay";
    EXPECT_EQ(consumer.try_open(1, late), BAD);
    EXPECT_EQ(consumer.close(0), OK);
}

// Programs of two builds exchange descriptions: another layout needs a new version.
TEST_P(Ipc, TheBytesOfADescription) {
    Peer producer(role());
    producer.alloc(0, size);
    Bytes data = producer.raw_get(0, size);
    ASSERT_EQ(data.size(), 16u + 96u + 8u + 64u);
    const Bytes head = {'U', 'M', 'F', 'Z', 3, 0, static_cast<unsigned char>(exports() ? 2 : 1), 0};
    EXPECT_EQ(Bytes(data.begin(), data.begin() + 8), head);
    uint64_t check, described;
    memcpy(&check, data.data() + 8, sizeof(check));
    memcpy(&described, data.data() + 16 + 96, sizeof(described));
    EXPECT_EQ(described, size);
    memset(data.data() + 8, 0, sizeof(check));
    EXPECT_EQ(check, sum_of(data.data(), data.size()));
    producer.free(0);
}

TEST_P(Ipc, DamagedHandlesAreRefused) {
    Peer producer(role()), consumer(role());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    for (size_t at = 0; at < data.size(); at++) {
        for (int change : {1, 0x80, 0xff}) {
            Bytes damaged = data;
            damaged[at] = static_cast<unsigned char>(damaged[at] ^ change);
            EXPECT_EQ(consumer.raw_open(0, damaged), BAD) << at;
            EXPECT_EQ(producer.raw_put(damaged), BAD) << at;
        }
    }
    EXPECT_EQ(consumer.raw_open(0, Bytes(data.size(), 0)), BAD);
    EXPECT_EQ(consumer.raw_open(0, Bytes(data.size(), 0xff)), BAD);
    EXPECT_EQ(consumer.alive(), 1u) << "the context";

    // With the library's own part around it a wrong size is found, too.
    Bytes whole = producer.get(0);
    ASSERT_EQ(whole.size(), handle_header + data.size());
    for (size_t at = 0; at < whole.size(); at++) {
        Bytes damaged = whole;
        damaged[at] = static_cast<unsigned char>(damaged[at] ^ 4);
        EXPECT_EQ(consumer.try_open(0, damaged), BAD) << at;
    }
    EXPECT_EQ(consumer.raw_open(0, data), OK);
    EXPECT_TRUE(consumer.check(0, size, 1));
    EXPECT_EQ(consumer.raw_close(0, size), OK);
    EXPECT_EQ(consumer.raw_close(0, size), BAD) << "it is closed";
    EXPECT_EQ(producer.raw_close(0, size), BAD) << "it was not opened";
    EXPECT_EQ(producer.raw_put(data), OK);
    if (exports()) {
        EXPECT_EQ(producer.raw_put(data), BAD) << "its descriptor is closed";
    }
    EXPECT_EQ(consumer.raw_put(data), BAD) << "it is another process's";
    producer.free(0);
}

// The same handle opened again is another mapping, closed for itself.
TEST_P(Ipc, RawHandlesOpenedTwice) {
    Peer producer(role()), consumer(role());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    EXPECT_EQ(consumer.raw_open(0, data), OK);
    EXPECT_EQ(consumer.raw_open(1, data), OK);
    EXPECT_EQ(consumer.raw_close(0, size), OK);
    EXPECT_TRUE(consumer.check(1, size, 1));
    EXPECT_EQ(consumer.raw_close(1, size), OK);
    EXPECT_EQ(producer.raw_put(data), OK);
    producer.free(0);
}

TEST_P(Ipc, EachFailureOfAConsumer) {
    Peer producer(role()), consumer(role());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    uint64_t descriptors = consumer.descriptors();
    bool passed = false;
    for (uint64_t n = 1; !passed; n++) {
        consumer.fail_at(n);
        bool opened = consumer.raw_open(0, data) == OK;
        bool closed = opened && consumer.raw_close(0, size) == OK;
        passed = !consumer.fail_at(0);
        EXPECT_EQ(passed, opened && closed) << n;
        if (opened && !closed) {
            EXPECT_TRUE(consumer.check(0, size, 1)) << "a close that fails leaves it open";
            EXPECT_EQ(consumer.raw_close(0, size), OK);
        }
        EXPECT_EQ(consumer.descriptors(), descriptors) << n;
        EXPECT_EQ(consumer.alive(), 1u) << n;
        ASSERT_LT(n, 20u);
    }
    EXPECT_EQ(producer.raw_put(data), OK);
    producer.free(0);
}

TEST_P(Ipc, EachFailureOfAProducer) {
    Peer producer(role());
    producer.alloc(1, size);
    producer.get(1); // the broker has a socket
    producer.free(1);
    producer.alloc(0, size);
    uint64_t descriptors = producer.descriptors();
    bool passed = false;
    for (uint64_t n = 1; !passed; n++) {
        producer.fail_at(n);
        bool got = producer.try_get(0) == OK;
        passed = !producer.fail_at(0);
        EXPECT_EQ(passed, got) << n;
        uint64_t made = role() == "kept_export" ? 2 : 1; // one more is the driver's
        EXPECT_EQ(producer.descriptors(), descriptors + got * made) << n;
        ASSERT_LT(n, 20u);
    }
    producer.free(0);
    EXPECT_EQ(producer.descriptors(), descriptors - 1) << "nor is the memory's own left";
}

INSTANTIATE_TEST_SUITE_P(By, Ipc, testing::Values("handle", "export", "kept_export"),
                         [](const auto &way) { return std::string(way.param); });

// Two handles of one allocation, whose descriptor may be the same one for both.
TEST_F(LevelZero, ADescriptorThatTwoExportsShareIsNotClosedTwice) {
    NEEDS_FAKE_ZE();
    for (int keeps : {1, 0}) {
        ze().control()->keeps_exports = keeps;
        umf_memory_provider_handle_t provider = nullptr;
        ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &provider), OK);
        int on = 1;
        ASSERT_EQ(umfCtlSet("umf.provider.by_handle.{}.params.use_import_export_for_IPC", &on,
                            sizeof(on), provider),
                  OK);
        for (int round = 0; round < 3; round++) {
            void *ptr = nullptr, *opened = nullptr;
            unsigned char first[512], second[512];
            uint64_t descriptors = count_open_descriptors();
            ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
            uint64_t of_memory = count_open_descriptors();
            ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, first), OK);
            ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, second), OK);
            EXPECT_TRUE(round == 0 || // the first time the broker takes some, too
                        count_open_descriptors() == of_memory + 2 + static_cast<uint64_t>(keeps))
                << "one for each handle";
            EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, first), OK);
            EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, second, &opened), OK)
                << "the other one is whole";
            EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, opened, 4096), OK);
            EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, second), OK);
            EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
            EXPECT_EQ(ze().control()->closed_by_others, 0) << keeps;
            EXPECT_TRUE(round == 0 || count_open_descriptors() == descriptors) << keeps;
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

// It is not known whose the first descriptor is while the second query fails.
TEST_F(LevelZero, AFailureOfTheQueryThatTellsTheOwner) {
    NEEDS_FAKE_ZE();
    ze().control()->keeps_exports = 1;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &provider), OK);
    int on = 1;
    ASSERT_EQ(umfCtlSet("umf.provider.by_handle.{}.params.use_import_export_for_IPC", &on,
                        sizeof(on), provider),
              OK);
    void *ptr = nullptr;
    unsigned char data[512];
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    fail(FAKE_zeMemGetAllocProperties, ZE_RESULT_ERROR_UNKNOWN, 2);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, data),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, data), OK);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    EXPECT_EQ(ze().control()->closed_by_others, 0);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Memory that was not made for it is not exported; a device is needed to open it.
TEST_F(LevelZero, WhatCannotBeShared) {
    NEEDS_FAKE_ZE();
    umf_memory_provider_handle_t made = nullptr, host = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &made), OK);
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero:memory_type=host", &host), OK);
    void *ptr = nullptr, *opened = this;
    unsigned char data[512], other[512];
    ASSERT_EQ(umfMemoryProviderAlloc(made, 4096, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(made, ptr, 4096, data), OK);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(host, data, &opened), BAD);
    EXPECT_EQ(opened, this);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(made, data, 4096, other), BAD) << "not an allocation";
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(made, data), OK);
    int on = 1;
    ASSERT_EQ(umfCtlSet("umf.provider.by_handle.{}.params.use_import_export_for_IPC", &on,
                        sizeof(on), made),
              OK);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(made, ptr, 4096, data),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(umfMemoryProviderFree(made, ptr, 4096), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(made), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(host), OK);
}

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
