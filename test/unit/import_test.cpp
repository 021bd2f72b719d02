// The consumer's end of IPC: opening handles, the cache of mappings, and what bad handles get.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <set>
#include <thread>

#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/ipc_ext.h>
#include <umf/memory_provider_gpu.h>

#include "fakes/ipc_fixture.h"
#include "fakes/log_file.h"
#include "fakes/properties.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "track/map.h"
#include "track/span.h"
}

namespace {

void *const untouched = reinterpret_cast<void *>(0x1234);

// Opens; the output must be untouched on failure.
umf_result_t try_open(umf_ipc_handler_handle_t handler, Bytes handle, char **ptr = nullptr) {
    void *opened = untouched;
    umf_result_t result = umfOpenIPCHandle(handler, as_handle(handle), &opened);
    if (result != UMF_RESULT_SUCCESS) {
        EXPECT_EQ(opened, untouched);
    } else if (ptr) {
        *ptr = static_cast<char *>(opened);
    } else {
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
    return result;
}

char *open(umf_ipc_handler_handle_t handler, const Bytes &handle) {
    char *ptr = nullptr;
    EXPECT_EQ(try_open(handler, handle, &ptr), UMF_RESULT_SUCCESS);
    return ptr;
}

void close(void *ptr) {
    EXPECT_EQ(umfCloseIPCHandle(ptr), UMF_RESULT_SUCCESS);
}

// Stops the library and starts it again with another environment. No pool may be alive.
void restart(const char *max_opened) {
    EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    max_opened ? setenv("UMF_MAX_OPENED_IPC_HANDLES", max_opened, 1)
               : unsetenv("UMF_MAX_OPENED_IPC_HANDLES");
    EXPECT_EQ(umfInit(), UMF_RESULT_SUCCESS);
}

TEST(Import, ShowsTheSameMemory) {
    FakePool p;
    char *ptr = p.alloc();
    strcpy(ptr + 5000, "hello");
    char *opened = open(p.handler(), handle_of(ptr));
    EXPECT_NE(opened, ptr);
    EXPECT_STREQ(opened + 5000, "hello");
    strcpy(opened, "reply");
    EXPECT_STREQ(ptr, "reply");
    close(opened);
    p.free(ptr);
}

TEST(Import, OffsetsShareOneMapping) {
    FakePool p;
    char *ptr = p.alloc();
    char *base = open(p.handler(), handle_of(ptr));
    for (size_t offset : {size_t{1}, size_t{64}, size_t{4096}, size_t{8191}}) {
        char *opened = open(p.handler(), handle_of(ptr + offset));
        EXPECT_EQ(opened, base + offset);
        close(opened);
    }
    close(base + 100);
    EXPECT_EQ(p.fake.opens, 1);
    p.free(ptr);
}

TEST(Import, CallsTheProviderAsLittleAsPossible) {
    FakePool p;
    char *ptr = p.alloc();
    for (int i = 0; i < 3; i++) {
        char *opened = open(p.handler(), handle_of(ptr));
        close(opened);
    }
    EXPECT_EQ(p.fake.closes, 0) << "an unused mapping stays for the next open";
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.calls(), "agopfc");
}

TEST(Import, ChecksItsArguments) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    void *opened = untouched;
    EXPECT_EQ(umfOpenIPCHandle(nullptr, as_handle(handle), &opened),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfOpenIPCHandle(p.handler(), nullptr, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfOpenIPCHandle(p.handler(), as_handle(handle), nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_ipc_handler_handle_t handler;
    EXPECT_EQ(umfPoolGetIPCHandler(nullptr, &handler), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolGetIPCHandler(p.pool, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    p.free(ptr);
}

TEST(Import, AcceptsOnlyHandlers) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    umf_ipc_handler_handle_t handler = p.handler();
    EXPECT_EQ(p.handler(), handler) << "one handler per pool";

    alignas(64) char garbage[256] = {};
    umf_ipc_handler_handle_t const wrong[] = {p.pool,
                                              p.provider,
                                              ptr,
                                              garbage,
                                              static_cast<char *>(handler) + 16,
                                              untouched,
                                              reinterpret_cast<void *>(UINTPTR_MAX)};
    for (umf_ipc_handler_handle_t other : wrong) {
        EXPECT_EQ(try_open(other, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    close(open(handler, handle));
    for (umf_ipc_handler_handle_t other : wrong) {
        EXPECT_EQ(try_open(other, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "also when cached";
    }
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(try_open(handler, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT)
        << "of a destroyed pool";
}

TEST(Import, ClosesOnlyWhatIsOpen) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    EXPECT_EQ(umfCloseIPCHandle(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfCloseIPCHandle(&p), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfCloseIPCHandle(ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "the producer's own";
    char *opened = open(p.handler(), handle);
    open(p.handler(), handle);
    close(opened);
    close(opened);
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "once too often";
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(open(p.handler(), handle), opened) << "and the count is still right";
    close(opened);
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    p.free(ptr);
}

TEST(Import, IsRecordedWithoutAPool) {
    FakePool p;
    char *ptr = p.alloc(10000);
    char *opened = open(p.handler(), handle_of(ptr + 10));
    umf_memory_pool_handle_t pool;
    EXPECT_EQ(umfPoolByPtr(opened, &pool), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(pool, nullptr);
    EXPECT_EQ(umfFree(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);

    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    EXPECT_EQ(umfGetIPCHandle(opened, &handle, &size), UMF_RESULT_ERROR_UNKNOWN);

    umf_memory_properties_handle_t properties = nullptr;
    ASSERT_EQ(umfGetMemoryPropertiesHandle(opened, &properties), UMF_RESULT_SUCCESS);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_PROVIDER_HANDLE, &provider,
                                   sizeof(provider)),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider, p.provider);
    EXPECT_EQ(
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POOL_HANDLE, &pool, sizeof(pool)),
        UMF_RESULT_SUCCESS);
    EXPECT_EQ(pool, nullptr);
    uintptr_t base = 0;
    EXPECT_EQ(
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_ADDRESS, &base, sizeof(base)),
        UMF_RESULT_SUCCESS);
    EXPECT_EQ(base, reinterpret_cast<uintptr_t>(opened - 10));
    EXPECT_EQ(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_SIZE, &size, sizeof(size)),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(size, 10000u);

    close(opened);
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(umfGetMemoryPropertiesHandle(opened, &properties), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(Import, EachMappingHasABufferIdOfItsOwn) {
    FakePool p;
    char *ptr = p.alloc();
    auto of_producer = property<uint64_t>(ptr, UMF_MEMORY_PROPERTY_BUFFER_ID);
    char *opened = open(p.handler(), handle_of(ptr));
    auto id = property<uint64_t>(opened, UMF_MEMORY_PROPERTY_BUFFER_ID);
    EXPECT_GT(id, of_producer);
    char *again = open(p.handler(), handle_of(ptr + 77));
    EXPECT_EQ(property<uint64_t>(again, UMF_MEMORY_PROPERTY_BUFFER_ID), id) << "the same mapping";
    EXPECT_EQ(property<umf_usm_memory_type_t>(opened, UMF_MEMORY_PROPERTY_POINTER_TYPE),
              UMF_MEMORY_TYPE_UNKNOWN);
    close(opened);
    close(again);
    p.free(ptr);
}

const void *asked_for;

TEST(Import, TheHandlersProviderAnswersForItsMapping) {
    umf_memory_provider_ops_t ops = *FakeIpc::ops();
    ops.ext_get_allocation_properties = [](void *, const void *base, umf_memory_property_id_t id,
                                           void *value) {
        asked_for = base;
        if (id == UMF_MEMORY_PROPERTY_POINTER_TYPE) {
            *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_SHARED;
        } else {
            *static_cast<uint32_t *>(value) = 4242;
        }
        return UMF_RESULT_SUCCESS;
    };
    ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *size) {
        *size = sizeof(uint32_t);
        return UMF_RESULT_SUCCESS;
    };
    FakePool producer, consumer(&ops);
    char *ptr = producer.alloc();
    char *opened = open(consumer.handler(), handle_of(ptr + 100));
    EXPECT_EQ(property<uint32_t>(opened, UMF_MEMORY_PROPERTY_CONTEXT), 4242u);
    EXPECT_EQ(asked_for, opened - 100) << "the base of the mapping";
    EXPECT_EQ(property<umf_usm_memory_type_t>(opened, UMF_MEMORY_PROPERTY_POINTER_TYPE),
              UMF_MEMORY_TYPE_SHARED);
    EXPECT_EQ(property<umf_usm_memory_type_t>(ptr, UMF_MEMORY_PROPERTY_POINTER_TYPE),
              UMF_MEMORY_TYPE_UNKNOWN);
    EXPECT_EQ(property<umf_memory_provider_handle_t>(opened, UMF_MEMORY_PROPERTY_PROVIDER_HANDLE),
              consumer.provider);
    close(opened);
    producer.free(ptr);
}

TEST(Import, TwoPoolsOnOneProviderAreTwoMappings) {
    FakePool p;
    umf_memory_pool_handle_t second = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), p.provider, nullptr, 0, &second),
              UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGetIPCHandler(second, &handler), UMF_RESULT_SUCCESS);
    EXPECT_NE(handler, p.handler());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    char *one = open(p.handler(), handle), *two = open(handler, handle);
    EXPECT_NE(one, two);
    EXPECT_EQ(p.fake.opens, 2);
    close(two);
    EXPECT_EQ(umfPoolDestroy(second), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.fake.closes, 1);
    one[0] = 1;
    close(one);
    p.free(ptr);
}

TEST(Import, TwoHandlersAreTwoMappings) {
    FakePool producer, a, b;
    char *ptr = producer.alloc();
    Bytes handle = handle_of(ptr);
    char *in_a = open(a.handler(), handle), *in_b = open(b.handler(), handle);
    EXPECT_NE(in_a, in_b);
    EXPECT_EQ(a.fake.opens, 1);
    EXPECT_EQ(b.fake.opens, 1);
    EXPECT_EQ(open(a.handler(), handle), in_a);
    EXPECT_EQ(open(b.handler(), handle), in_b);
    a.destroy_pool();
    EXPECT_EQ(a.fake.closes, 1) << "mappings in use, too";
    EXPECT_EQ(b.fake.closes, 0);
    EXPECT_EQ(umfCloseIPCHandle(in_a), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close(in_b);
    close(in_b);
    producer.free(ptr);
}

// Open mappings and exports end before their provider does.
std::string calls_before_the_end;

TEST(Import, AnOwnedProviderGoesLast) {
    umf_memory_provider_ops_t ops = *FakeIpc::ops();
    ops.finalize = [](void *self) {
        calls_before_the_end = static_cast<FakeIpc *>(self)->calls();
        return UMF_RESULT_SUCCESS;
    };
    FakeIpc fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                            &pool),
              UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
    open(handler, handle_of(umfPoolMalloc(pool, 100)));
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    EXPECT_EQ(calls_before_the_end, "agopfc");
}

// --- outdated handles ---

TEST(Import, AReallocationAtTheSameAddressReplacesTheMapping) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes old_handle = handle_of(ptr);
    close(open(p.handler(), old_handle));
    p.free(ptr);
    p.alloc_at(ptr);
    strcpy(ptr, "new");
    char *opened = open(p.handler(), handle_of(ptr));
    EXPECT_STREQ(opened, "new");
    EXPECT_EQ(p.fake.calls(), "agopfagco") << "the old mapping is closed first";
    EXPECT_EQ(try_open(p.handler(), old_handle), UMF_RESULT_ERROR_INVALID_ARGUMENT)
        << "the old handle does not come back";
    EXPECT_EQ(p.fake.opens, 2);
    close(opened);
    p.free(ptr);
}

TEST(Import, AReplacedMappingInUseStaysUntilItsLastClose) {
    FakePool p;
    char *ptr = p.alloc();
    strcpy(ptr, "old");
    Bytes old_handle = handle_of(ptr);
    char *before = open(p.handler(), old_handle);
    open(p.handler(), old_handle);
    p.free(ptr);
    p.alloc_at(ptr);
    strcpy(ptr, "new");
    char *after = open(p.handler(), handle_of(ptr));
    EXPECT_NE(after, before);
    EXPECT_STREQ(before, "old");
    EXPECT_STREQ(after, "new");
    EXPECT_EQ(p.fake.closes, 0);
    close(before);
    EXPECT_EQ(p.fake.closes, 0);
    close(before);
    EXPECT_EQ(p.fake.closes, 1);
    EXPECT_EQ(umfCloseIPCHandle(before), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close(after);
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.closes, 2);
}

TEST(Import, PoolDestroyClosesReplacedMappingsToo) {
    FakePool p;
    char *ptr = p.alloc();
    open(p.handler(), handle_of(ptr));
    p.free(ptr);
    p.alloc_at(ptr);
    open(p.handler(), handle_of(ptr));
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.closes, 2);
}

TEST(Import, NoticesThatTheProducerFreedTheMemory) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    char *opened = open(p.handler(), handle);
    p.free(ptr);
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(p.fake.opens, 1);
    EXPECT_EQ(p.fake.closes, 0) << "in use";
    opened[0] = 1;
    close(opened);
    EXPECT_EQ(p.fake.closes, 1) << "no later open can find it";
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(Import, ItsLastCloseDropsAMappingOfFreedMemory) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    char *opened = open(p.handler(), handle);
    open(p.handler(), handle);
    p.free(ptr);
    close(opened);
    EXPECT_EQ(p.fake.closes, 0);
    close(opened);
    EXPECT_EQ(p.fake.closes, 1);
}

TEST(Import, DropsAnUnusedMappingOfFreedMemory) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    close(open(p.handler(), handle));
    p.free(ptr);
    EXPECT_EQ(p.fake.closes, 0);
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(p.fake.closes, 1);
    EXPECT_EQ(p.fake.opens, 1) << "the provider need not be called";
}

TEST(Import, RefusesMemoryThatIsFreedDuringTheOpen) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    p.fake.hold = true;
    std::thread opener(
        [&] { EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_INVALID_ARGUMENT); });
    while (p.fake.opens == 0) {
        std::this_thread::yield();
    }
    p.free(ptr);
    p.fake.hold = false;
    opener.join();
}

// --- failures ---

// A provider may believe an address in a handle that was made by hand.
TEST(Import, RefusesWhatGivesMemoryOfAPool) {
    FakePool p, q;
    char *ptr = p.alloc(), *victim = q.alloc();
    p.fake.open_answer = victim;
    LogFile log(3);
    EXPECT_EQ(try_open(p.handler(), handle_of(ptr)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(log.count("by a false address"), 1u) << log.text();
    umf_memory_pool_handle_t owner = nullptr;
    EXPECT_EQ(umfPoolByPtr(victim, &owner), UMF_RESULT_SUCCESS);
    EXPECT_EQ(owner, q.pool);
    q.free(victim);
    p.free(ptr);
}

TEST(Import, PassesErrorsOfTheProviderOn) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    for (umf_result_t result :
         {UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, UMF_RESULT_ERROR_INVALID_ARGUMENT,
          UMF_RESULT_ERROR_USER_SPECIFIC, UMF_RESULT_ERROR_UNKNOWN}) {
        p.fake.open_result = result;
        EXPECT_EQ(try_open(p.handler(), handle), result);
        p.fake.open_result = UMF_RESULT_SUCCESS;
        p.fake.size_result = result;
        EXPECT_EQ(try_open(p.handler(), handle), result);
        p.fake.size_result = UMF_RESULT_SUCCESS;
    }
    EXPECT_EQ(p.fake.opens, 4);
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_SUCCESS) << "a failure is not remembered";
    p.free(ptr);
}

TEST(Import, FailuresCostNoMetadata) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes good = handle_of(ptr), damaged = good,
          hostile = forged(good, [](umf_wire_t &w) { w.start_time--; });
    damaged[UMF_WIRE_HEADER] ^= 1;
    auto fail_in_all_ways = [&] {
        EXPECT_NE(try_open(p.handler(), damaged), UMF_RESULT_SUCCESS);
        EXPECT_NE(try_open(p.handler(), hostile), UMF_RESULT_SUCCESS);
        EXPECT_NE(try_open(p.pool, good), UMF_RESULT_SUCCESS);
        p.fake.open_result = UMF_RESULT_ERROR_UNKNOWN;
        EXPECT_NE(try_open(p.handler(), good), UMF_RESULT_SUCCESS);
        p.fake.open_result = UMF_RESULT_SUCCESS;
    };
    fail_in_all_ways();
    size_t used = umf_meta_used();
    for (int round = 0; round < 100; round++) {
        fail_in_all_ways();
    }
    EXPECT_EQ(umf_meta_used(), used);
    p.free(ptr);
}

TEST(Import, ALifeLeavesNoMetadataBehind) {
    auto live = [] {
        FakePool p;
        char *ptr = p.alloc();
        char *opened = open(p.handler(), handle_of(ptr));
        open(p.handler(), handle_of(ptr + 1));
        close(opened);
        p.free(ptr);
        p.destroy_pool();
    };
    live();
    const size_t used = umf_meta_used() - umf_map_used();
    for (int round = 0; round < 100; round++) {
        live();
    }
    EXPECT_EQ(umf_meta_used() - umf_map_used(), used);
}

TEST(Import, DescriptorsOfMappingsAreUsedAgain) {
    std::set<const void *> descriptors;
    for (int i = 0; i < 50; i++) {
        FakePool p;
        char *ptr = p.alloc(), *opened = open(p.handler(), handle_of(ptr));
        descriptors.insert(
            umf_span_find(&umf_map_global, reinterpret_cast<uintptr_t>(opened), nullptr));
        close(opened);
        p.free(ptr);
    }
    EXPECT_LT(descriptors.size(), 5u);
}

TEST(Import, NeedsAProviderThatShares) {
    FakePool producer;
    const umf_memory_provider_ops_t ops = ops_without_ipc();
    FakePool consumer(&ops);
    char *ptr = producer.alloc();
    EXPECT_EQ(try_open(consumer.handler(), handle_of(ptr)), UMF_RESULT_ERROR_NOT_SUPPORTED);
    producer.free(ptr);
}

TEST(Import, ClosesAMappingThatCannotBeRecorded) {
    FakePool p, other;
    char *ptr = p.alloc(1 << 20), *small = other.alloc(8192);
    Bytes handle = handle_of(ptr);
    // A provider gone wrong: the "mapping" begins inside other memory and ends behind it.
    p.fake.open_answer = small + 4096;
    EXPECT_NE(try_open(p.handler(), handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.fake.opens, 1);
    EXPECT_EQ(p.fake.closes, 1);
    p.fake.open_answer = nullptr;
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_SUCCESS);
    p.free(ptr);
    other.free(small);
}

TEST(Import, ForgetsAMappingThatTheProviderCannotClose) {
    FakePool p;
    char *ptr = p.alloc();
    close(open(p.handler(), handle_of(ptr)));
    p.fake.close_result = UMF_RESULT_ERROR_UNKNOWN;
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.closes, 1);
}

TEST(Import, AProviderMayWriteIntoWhatItIsGiven) {
    FakePool p;
    char *ptr = p.alloc();
    p.fake.scribble = true;
    Bytes handle = handle_of(ptr), copy = handle;
    void *opened = nullptr;
    ASSERT_EQ(umfOpenIPCHandle(p.handler(), as_handle(handle), &opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(handle, copy) << "the caller's bytes are his own";
    EXPECT_EQ(open(p.handler(), handle), opened);
    EXPECT_EQ(p.fake.opens, 1);
    close(opened);
    close(opened);
    p.free(ptr);
}

TEST(Import, OpensHandlesOfProvidersWithLongerNamesIfToldTheirSize) {
    FakePool p;
    p.fake.padding = 200;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    p.fake.padding = 0;
    void *opened = nullptr;
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(umfOpenIPCHandleSized(p.handler(), handle.data(), handle.size(), &opened),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << "known or not, no more is read than the pool's own handles have";
        close(opened);
    }
    p.free(ptr);
}

// --- bad handles ---

class BadHandle : public testing::Test {
  protected:
    FakePool p;
    char *ptr = p.alloc();
    Bytes good = handle_of(ptr);

    ~BadHandle() override {
        EXPECT_EQ(try_open(p.handler(), good), UMF_RESULT_SUCCESS) << "the good one still works";
        p.free(ptr);
    }

    // Refused before the provider is called.
    void expect_refused(const Bytes &bad, const char *what) {
        int opens = p.fake.opens;
        EXPECT_EQ(try_open(p.handler(), bad), UMF_RESULT_ERROR_INVALID_ARGUMENT) << what;
        EXPECT_EQ(p.fake.opens, opens) << what;
    }

    void flip_all_bits() {
        for (size_t bit = 0; bit < good.size() * 8; bit++) {
            Bytes bad = good;
            bad[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
            expect_refused(bad, std::to_string(bit).c_str());
        }
    }

    void truncate_everywhere() {
        for (size_t kept = 0; kept < good.size(); kept++) {
            Bytes bad = good;
            std::fill(bad.begin() + static_cast<long>(kept), bad.end(), 0xa5);
            expect_refused(bad, std::to_string(kept).c_str());
        }
    }
};

TEST_F(BadHandle, EveryBitFlip) {
    flip_all_bits();
}

TEST_F(BadHandle, EveryBitFlipOfACachedHandle) {
    close(open(p.handler(), good));
    flip_all_bits();
}

TEST_F(BadHandle, EveryTruncation) {
    truncate_everywhere();
}

TEST_F(BadHandle, EveryTruncationOfACachedHandle) {
    close(open(p.handler(), good));
    truncate_everywhere();
}

TEST_F(BadHandle, RandomBytes) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 1000; round++) {
        Bytes bad(good.size());
        for (unsigned char &byte : bad) {
            byte = static_cast<unsigned char>(random());
        }
        expect_refused(bad, "random");
    }
}

// With right checksums: made on purpose, or by another process.
TEST_F(BadHandle, Hostile) {
    pid_t dead = -1;
    char name[] = "true", *arguments[] = {name, nullptr};
    ASSERT_EQ(posix_spawnp(&dead, name, nullptr, nullptr, arguments, environ), 0);
    waitpid(dead, nullptr, 0);
    struct {
        const char *what;
        std::function<void(umf_wire_t &)> change;
    } const cases[] = {
        {"offset at the end", [](umf_wire_t &w) { w.offset = w.size; }},
        {"offset far out", [](umf_wire_t &w) { w.offset = UINT64_MAX; }},
        {"huge size", [](umf_wire_t &w) { w.size = UINT64_MAX / 2 + 1; }},
        {"wrapping size", [](umf_wire_t &w) { w.base = UINT64_MAX - 100; }},
        {"more data than any provider of the kind has",
         [](umf_wire_t &w) { w.data_size = 1 << 20; }},
        {"another boot", [](umf_wire_t &w) { w.boot_id++; }},
        {"a number given to another process", [](umf_wire_t &w) { w.start_time--; }},
        {"another living process's number", [](umf_wire_t &w) { w.pid = 1; }},
        {"a dead process", [dead](umf_wire_t &w) { w.pid = static_cast<uint32_t>(dead); }},
        {"an impossible process", [](umf_wire_t &w) { w.pid = UINT32_MAX; }},
    };
    for (const auto &c : cases) {
        expect_refused(forged(good, c.change), c.what);
    }
    close(open(p.handler(), good));
    for (const auto &c : cases) {
        expect_refused(forged(good, c.change), c.what);
    }
    // Checks that need a known good handle.
    expect_refused(forged(good, [](umf_wire_t &w) { w.size += 4096; }), "another size");
    expect_refused(forged(good, [](umf_wire_t &w) { w.kind = 7; }), "another kind");
    Bytes other_data = good;
    other_data[UMF_WIRE_HEADER] ^= 1;
    expect_refused(forged(other_data, [](umf_wire_t &) {}), "other data");
}

// A process that passes handles on may change them. The provider finds the right one.
TEST(Import, AForgedHandleThatWasOpenedKeepsNoGenuineOneOut) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes good = handle_of(ptr);
    close(open(p.handler(), good));
    for (uint64_t more : {uint64_t{1} << 40, uint64_t{1} << 20}) {
        close(open(p.handler(), forged(good, [more](umf_wire_t &w) { w.export_id += more; })));
        EXPECT_EQ(try_open(p.handler(), good), UMF_RESULT_SUCCESS);
    }
    char *used = open(p.handler(), forged(good, [](umf_wire_t &w) { w.export_id += 7; }));
    char *opened = open(p.handler(), good);
    EXPECT_NE(opened, used);
    close(opened);
    used[0] = 1; // it stays for its user
    close(used);
    EXPECT_EQ(p.fake.opens, p.fake.closes + 1) << "the genuine one is kept";
    p.free(ptr);
    EXPECT_EQ(try_open(p.handler(), good), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(Import, RefusesHandlesOfAnotherKind) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    EXPECT_EQ(try_open(p.handler(), forged(handle, [](umf_wire_t &w) { w.kind++; })),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(p.fake.opens, 0);
    EXPECT_EQ(try_open(p.handler(), forged(handle, [](umf_wire_t &w) { w.kind = 0; })),
              UMF_RESULT_SUCCESS)
        << "an unregistered kind is not checked";
    p.free(ptr);
}

TEST(Import, AsksTheProviderWhetherTheSizeIsRight) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    for (uint64_t size : {uint64_t{4096}, uint64_t{1} << 30}) {
        EXPECT_EQ(try_open(p.handler(), forged(handle, [&](umf_wire_t &w) { w.size = size; })),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(p.fake.opens, 0);
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_SUCCESS);
    p.free(ptr);
}

TEST(Import, AcceptsAProcessOfAnotherNamespace) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = forged(handle_of(ptr), [](umf_wire_t &w) {
        w.pid_ns++;
        w.pid = 1;
    });
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_SUCCESS) << "the provider decides";
    p.free(ptr);
}

// --- limit ---

TEST(ImportLimit, EvictsTheLeastRecentlyOpenedUnusedMapping) {
    restart("2");
    {
        FakePool p;
        char *a = p.alloc(), *b = p.alloc(), *c = p.alloc();
        Bytes handle_a = handle_of(a), handle_b = handle_of(b), handle_c = handle_of(c);
        close(open(p.handler(), handle_a));
        close(open(p.handler(), handle_b));
        close(open(p.handler(), handle_a)); // now b is the older one
        EXPECT_EQ(p.fake.opens, 2);
        close(open(p.handler(), handle_c));
        EXPECT_EQ(p.fake.closes, 1);
        close(open(p.handler(), handle_a));
        EXPECT_EQ(p.fake.opens, 3) << "a is still there";
        close(open(p.handler(), handle_b));
        EXPECT_EQ(p.fake.opens, 4) << "b was evicted";
        EXPECT_EQ(p.fake.closes, 2);
    }
    restart(nullptr);
}

TEST(ImportLimit, IsExceededWhenAllIsInUse) {
    restart("1");
    {
        FakePool p;
        char *a = open(p.handler(), handle_of(p.alloc())),
             *b = open(p.handler(), handle_of(p.alloc()));
        EXPECT_EQ(p.fake.closes, 0);
        a[0] = b[0] = 1;
        close(a);
        close(b);
        close(open(p.handler(), handle_of(p.alloc())));
        EXPECT_EQ(p.fake.closes, 2) << "and kept again as soon as it can be";
        p.destroy_pool();
        EXPECT_EQ(p.fake.closes, 3);
    }
    restart(nullptr);
}

TEST(ImportLimit, CountsOverAllPools) {
    restart("1");
    {
        FakePool a, b;
        char *ptr = a.alloc();
        close(open(a.handler(), handle_of(ptr)));
        close(open(b.handler(), handle_of(ptr)));
        EXPECT_EQ(a.fake.closes, 1);
        a.free(ptr);
    }
    restart(nullptr);
}

TEST(ImportLimit, UnlimitedWithoutANumber) {
    for (const char *text : {"", "0", "-1", "two", "2x", " 2", "99999999999999999999999", "0x2"}) {
        LogFile log(3);
        restart(text);
        EXPECT_EQ(log.count("UMF_MAX_OPENED_IPC_HANDLES"), strcmp(text, "0") == 0 ? 0u : 1u)
            << log.text();
        FakePool p;
        for (int i = 0; i < 10; i++) {
            close(open(p.handler(), handle_of(p.alloc())));
        }
        EXPECT_EQ(p.fake.closes, 0) << '"' << text << '"';
        p.destroy_pool();
    }
    restart(nullptr);
}

// --- eviction on request, and counters ---

size_t counter(const char *name) {
    size_t value = 0;
    EXPECT_EQ(umfCtlGet((std::string("umf.ipc.") + name).c_str(), &value, sizeof(value)),
              UMF_RESULT_SUCCESS)
        << name;
    return value;
}

struct Counters {
    size_t opened = counter("stats.opened"), cached = counter("stats.cached"),
           hits = counter("stats.hits"), misses = counter("stats.misses"),
           evictions = counter("stats.evictions");

    Counters operator-(const Counters &before) const {
        Counters d = *this;
        d.opened -= before.opened;
        d.cached -= before.cached;
        d.hits -= before.hits;
        d.misses -= before.misses;
        d.evictions -= before.evictions;
        return d;
    }
    bool operator==(const std::array<size_t, 5> &wanted) const {
        return std::array<size_t, 5>{opened, cached, hits, misses, evictions} == wanted;
    }
};

std::ostream &operator<<(std::ostream &out, const Counters &c) {
    return out << "opened " << c.opened << ", cached " << c.cached << ", hits " << c.hits
               << ", misses " << c.misses << ", evictions " << c.evictions;
}

using Counts = std::array<size_t, 5>;

TEST(ImportCounters, TellWhatIsOpenAndKept) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    Counters before;
    char *first = open(p.handler(), handle);
    EXPECT_EQ(Counters() - before, (Counts{1, 0, 0, 1, 0}));
    char *second = open(p.handler(), handle);
    close(first);
    EXPECT_EQ(Counters() - before, (Counts{1, 0, 1, 1, 0}));
    close(second);
    EXPECT_EQ(Counters() - before, (Counts{0, 1, 1, 1, 0}));
    for (int i = 0; i < 100; i++) {
        close(open(p.handler(), handle));
    }
    EXPECT_EQ(Counters() - before, (Counts{0, 1, 101, 1, 0}));
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(Counters() - before, (Counts{0, 0, 101, 1, 0}))
        << "counters do not change afterwards";
}

TEST(ImportCounters, CountOnlyWhatSucceeded) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    close(open(p.handler(), handle));
    Counters before;
    Bytes bad = handle;
    bad.back() ^= 1;
    EXPECT_NE(try_open(p.handler(), bad), UMF_RESULT_SUCCESS);
    p.free(ptr);
    EXPECT_NE(try_open(p.handler(), handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ((Counters() - before).hits, 0u);
}

TEST(ImportCounters, AreTheSameWithALimit) {
    restart("1");
    {
        FakePool p;
        EXPECT_EQ(counter("max_opened"), 1u);
        char *a = p.alloc(), *b = p.alloc();
        Counters before;
        close(open(p.handler(), handle_of(a)));
        close(open(p.handler(), handle_of(a)));
        close(open(p.handler(), handle_of(b)));
        EXPECT_EQ(Counters() - before, (Counts{0, 1, 1, 2, 1}));
        p.free(a);
        p.free(b);
    }
    restart(nullptr);
    EXPECT_EQ(counter("max_opened"), 0u);
}

TEST(ImportCounters, AreReadOnly) {
    size_t value = 1;
    EXPECT_EQ(umfCtlSet("umf.ipc.stats.hits", &value, sizeof(value)),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfCtlGet("umf.ipc.stats.nothing", &value, sizeof(value)),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_EQ(umfCtlGet("umf.ipc", &value, sizeof(value)), UMF_RESULT_ERROR_INVALID_CTL_PATH);
}

TEST(ImportEvict, ClosesWhatNobodyUses) {
    FakePool p;
    char *a = p.alloc(), *b = p.alloc(), *c = p.alloc();
    close(open(p.handler(), handle_of(a)));
    close(open(p.handler(), handle_of(b)));
    char *used = open(p.handler(), handle_of(c));
    strcpy(used, "used");
    Counters before;
    size_t evicted = 0;
    EXPECT_EQ(umfIPCEvict(getpid(), &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, 2u);
    EXPECT_EQ(p.fake.closes, 2);
    EXPECT_EQ((Counters() - before).evictions, 2u);
    EXPECT_STREQ(c, "used");
    EXPECT_STREQ(used, "used") << "a mapping in use stays";
    EXPECT_EQ(umfIPCEvict(0, &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, 0u);
    close(used);
    EXPECT_EQ(umfIPCEvict(0, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.fake.closes, 3);
    close(open(p.handler(), handle_of(a)));
    EXPECT_EQ(p.fake.opens, 4) << "it can be opened again";
    for (char *ptr : {a, b, c}) {
        p.free(ptr);
    }
}

TEST(ImportEvict, TellsProducersApart) {
    FakePool p;
    char *a = p.alloc(), *b = p.alloc();
    close(open(p.handler(), handle_of(a)));
    Bytes stranger = forged(handle_of(b), [](umf_wire_t &w) {
        w.pid = 4194305; // above the largest there can be
        w.pid_ns ^= 1;
    });
    close(open(p.handler(), stranger));
    size_t evicted = 0;
    EXPECT_EQ(umfIPCEvict(4194305, &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, 1u);
    EXPECT_EQ(umfIPCEvict(4194305, &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, 0u);
    EXPECT_EQ(umfIPCEvict(-1, &evicted), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfIPCEvict(getpid(), &evicted), UMF_RESULT_SUCCESS);
    EXPECT_EQ(evicted, 1u);
    p.free(a);
    p.free(b);
}

// --- threads ---

TEST(ImportThreads, OpeningOneHandleMakesOneProviderOpen) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    std::array<char *, 8> opened{};
    in_threads(p.fake, 8,
               [&](int i) { opened[static_cast<size_t>(i)] = open(p.handler(), handle); });
    EXPECT_EQ(p.fake.opens, 1);
    for (char *o : opened) {
        EXPECT_EQ(o, opened[0]);
        close(o);
    }
    EXPECT_EQ(umfCloseIPCHandle(opened[0]), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    p.free(ptr);
}

TEST(ImportThreads, AFailingOpenFailsForAllWhoWait) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    p.fake.open_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    in_threads(p.fake, 8, [&](int) {
        EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_ERROR_USER_SPECIFIC);
    });
    EXPECT_EQ(p.fake.opens, 1);
    p.fake.open_result = UMF_RESULT_SUCCESS;
    EXPECT_EQ(try_open(p.handler(), handle), UMF_RESULT_SUCCESS);
    p.free(ptr);
}

// Opens and closes at random while handles are replaced; `limit` entries may be kept.
void hammer(const char *limit, const umf_memory_provider_ops_t *ops) {
    restart(limit);
    {
        constexpr size_t count = 6;
        FakePool p(ops);
        std::array<char *, count> memory{};
        std::array<Bytes, count> handles;
        for (size_t i = 0; i < count; i++) {
            memory[i] = p.alloc(4096);
            memset(memory[i], static_cast<int>('a' + i), 4096);
            handles[i] = handle_of(memory[i]);
        }
        umf_ipc_handler_handle_t handler = p.handler();
        run_threads<unsigned>(4, [&](unsigned seed) {
            std::mt19937 random(seed);
            for (int round = 0; round < 3000; round++) {
                size_t i = random() % count;
                char *opened = open(handler, handles[i]);
                ASSERT_EQ(opened[random() % 4096], static_cast<char>('a' + i));
                close(opened);
            }
        });
        for (char *ptr : memory) {
            p.free(ptr);
        }
        p.destroy_pool();
        EXPECT_EQ(p.fake.mapped, p.fake.closes);
    }
    restart(nullptr);
}

TEST(ImportThreads, OpenAndCloseWithoutLimit) {
    hammer(nullptr, FakeIpc::ops());
}

TEST(ImportThreads, OpenAndCloseWithEviction) {
    hammer("2", FakeIpc::ops());
}

TEST(ImportThreads, HandlesAreReplacedWhileOthersOpen) {
    FakePool p(FakeIpc::watched_ops());
    std::mutex mutex;
    char *ptr = p.alloc(4096);
    Bytes handle = handle_of(ptr);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            while (!stop) {
                Bytes current;
                {
                    std::lock_guard<std::mutex> guard(mutex);
                    current = handle;
                }
                char *opened = nullptr;
                // Outdated meanwhile, or good: nothing else.
                umf_result_t result = try_open(p.handler(), current, &opened);
                if (result == UMF_RESULT_SUCCESS) {
                    EXPECT_EQ(opened[4095], 0) << "mapped";
                    close(opened);
                } else {
                    EXPECT_EQ(result, UMF_RESULT_ERROR_INVALID_ARGUMENT);
                }
            }
        });
    }
    for (int round = 0; round < 300; round++) {
        std::lock_guard<std::mutex> guard(mutex);
        p.free(ptr);
        ptr = p.alloc(4096);
        handle = handle_of(ptr);
    }
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    p.free(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.mapped, p.fake.closes);
}

// No mapping in use is closed, and no open is missing in the counters.
TEST(ImportThreads, OpenCloseAndEvictOnRequest) {
    constexpr size_t count = 4, rounds = 2000;
    FakePool p;
    std::array<char *, count> memory{};
    std::array<Bytes, count> handles;
    for (size_t i = 0; i < count; i++) {
        memory[i] = p.alloc(4096);
        memset(memory[i], static_cast<int>('a' + i), 4096);
        handles[i] = handle_of(memory[i]);
    }
    umf_ipc_handler_handle_t handler = p.handler();
    Counters before;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 3; seed++) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (size_t round = 0; round < rounds; round++) {
                size_t i = random() % count;
                char *opened = open(handler, handles[i]);
                ASSERT_EQ(opened[random() % 4096], static_cast<char>('a' + i));
                close(opened);
            }
        });
    }
    std::thread evictor([&] {
        while (!stop) {
            EXPECT_EQ(umfIPCEvict(0, nullptr), UMF_RESULT_SUCCESS);
            Counters();
        }
    });
    for (std::thread &thread : threads) {
        thread.join();
    }
    stop = true;
    evictor.join();
    Counters after = Counters() - before;
    EXPECT_EQ(after.hits + after.misses, 3 * rounds);
    EXPECT_EQ(after.misses, static_cast<size_t>(p.fake.opens));
    EXPECT_EQ(after.evictions, static_cast<size_t>(p.fake.closes));
    for (char *ptr : memory) {
        p.free(ptr);
    }
}

TEST(ImportThreads, PoolsAreDestroyedSideBySide) {
    FakePool producer;
    char *ptr = producer.alloc();
    Bytes handle = handle_of(ptr);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 100; round++) {
                FakePool p;
                close(open(p.handler(), handle));
                p.destroy_pool();
                EXPECT_EQ(p.fake.closes, 1);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    producer.free(ptr);
}

} // namespace
