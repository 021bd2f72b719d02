// The producer's end of IPC: handles for memory of this process.
#include <array>

#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>

#include "fakes/ipc_fixture.h"
#include "fakes/threads.h"
#include "fakes/viewing_pool.h"

extern "C" {
#include "base/meta.h"
}

namespace {

void *const untouched = reinterpret_cast<void *>(0x1234);

umf_result_t get(const void *ptr) {
    auto handle = static_cast<umf_ipc_handle_t>(untouched);
    size_t size = 77;
    umf_result_t result = umfGetIPCHandle(ptr, &handle, &size);
    if (result == UMF_RESULT_SUCCESS) {
        EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
    } else {
        EXPECT_EQ(handle, untouched);
        EXPECT_EQ(size, 77u);
    }
    return result;
}

TEST(Export, ChecksItsArguments) {
    FakePool p;
    char *ptr = p.alloc();
    umf_ipc_handle_t handle;
    size_t size;
    EXPECT_EQ(umfGetIPCHandle(nullptr, &handle, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfGetIPCHandle(ptr, nullptr, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfGetIPCHandle(ptr, &handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolGetIPCHandleSize(nullptr, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolGetIPCHandleSize(p.pool, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    int on_stack = 0;
    EXPECT_EQ(get(&on_stack), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(get(ptr + (size_t{1} << 40)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    p.free(ptr);
    EXPECT_EQ(get(ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(p.fake.gets, 0);
}

TEST(Export, SizesAgreeWhateverThePointer) {
    FakePool p;
    char *small = p.alloc(1), *large = p.alloc(1 << 20);
    size_t promised = 0;
    ASSERT_EQ(umfPoolGetIPCHandleSize(p.pool, &promised), UMF_RESULT_SUCCESS);
    EXPECT_EQ(handle_of(small).size(), promised);
    EXPECT_EQ(handle_of(large).size(), promised);
    EXPECT_EQ(handle_of(large + 12345).size(), promised);
    p.free(small);
    p.free(large);
}

TEST(Export, DescribesTheAllocation) {
    FakePool p;
    char *ptr = p.alloc(10000);
    umf_wire_t wire = decoded(handle_of(ptr + 123));
    EXPECT_EQ(wire.base, reinterpret_cast<uintptr_t>(ptr));
    EXPECT_EQ(wire.size, 10000u);
    EXPECT_EQ(wire.offset, 123u);
    EXPECT_EQ(wire.pid, static_cast<uint32_t>(getpid()));
    EXPECT_NE(wire.start_time, 0u);
    EXPECT_NE(wire.boot_id, 0u);
    EXPECT_EQ(wire.kind, 0u); // an unregistered table
    p.free(ptr);
}

TEST(Export, NamesTheRegisteredKind) {
    FakePool p(FakeIpc::watched_ops());
    char *ptr = p.alloc();
    EXPECT_EQ(decoded(handle_of(ptr)).kind, umf_wire_name_hash("fake_ipc_watched"));
    p.free(ptr);
}

TEST(Export, AsksTheProviderOncePerAllocation) {
    FakePool p;
    char *one = p.alloc(), *two = p.alloc();
    Bytes first = handle_of(one);
    EXPECT_EQ(handle_of(one), first);
    EXPECT_EQ(decoded(handle_of(one + 100)).export_id, decoded(first).export_id);
    EXPECT_EQ(p.fake.gets, 1);
    EXPECT_GT(decoded(handle_of(two)).export_id, decoded(first).export_id);
    EXPECT_EQ(p.fake.gets, 2);
    EXPECT_EQ(p.fake.puts, 0);
    p.free(one);
    EXPECT_EQ(p.fake.puts, 1);
    p.free(two);
    EXPECT_EQ(p.fake.calls(), "aaggpfpf");
}

// Memory cached by a pool for the next allocation keeps its handle.
TEST(Export, MemoryThatAPoolKeepsIsNotPut) {
    FakePool p;
    umf_memory_pool_handle_t disjoint = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), p.provider, nullptr, 0, &disjoint),
              UMF_RESULT_SUCCESS);
    uint64_t id = 0;
    for (int round = 0; round < 5; round++) {
        auto one = static_cast<char *>(umfPoolMalloc(disjoint, 100)),
             two = static_cast<char *>(umfPoolMalloc(disjoint, 100));
        umf_wire_t first = decoded(handle_of(one)), second = decoded(handle_of(two + 50));
        EXPECT_EQ(first.export_id, second.export_id) << "one slab";
        EXPECT_EQ(first.base, second.base);
        EXPECT_EQ(first.offset + static_cast<size_t>(two - one) + 50, second.offset);
        EXPECT_TRUE(id == 0 || id == first.export_id);
        id = first.export_id;
        EXPECT_EQ(umfPoolFree(disjoint, one), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfPoolFree(disjoint, two), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(p.fake.calls(), "ag");
    EXPECT_EQ(umfPoolTrimMemory(disjoint, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.fake.calls(), "agpf") << "put when the slab goes back, before the provider's free";
    EXPECT_EQ(umfPoolDestroy(disjoint), UMF_RESULT_SUCCESS);
}

TEST(Export, NeverUsesAnIdAgain) {
    FakePool p;
    char *ptr = p.alloc();
    uint64_t id = decoded(handle_of(ptr)).export_id;
    p.free(ptr);
    ptr = p.alloc_at(ptr);
    EXPECT_GT(decoded(handle_of(ptr)).export_id, id);
    p.free(ptr);
}

TEST(Export, PutsOnlyWhatWasGot) {
    FakePool p;
    char *ptr = p.alloc();
    p.free(ptr);
    EXPECT_EQ(p.fake.calls(), "af");
}

TEST(Export, SplitAndMergeEndWhatDescribedTheWhole) {
    umf_memory_pool_ops_t ops = viewing_pool_ops();
    FakePool p;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(&ops, p.provider, nullptr, UMF_POOL_CREATE_FLAG_NONE, &pool),
              UMF_RESULT_SUCCESS);
    void *memory = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(viewed_provider, 8192, 0, &memory), UMF_RESULT_SUCCESS);
    auto low = static_cast<char *>(memory), high = low + 4096;

    umf_wire_t whole = decoded(handle_of(high));
    EXPECT_EQ(whole.size, 8192u);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(viewed_provider, low, 8192, 4096),
              UMF_RESULT_SUCCESS);
    umf_wire_t low_part = decoded(handle_of(low)), high_part = decoded(handle_of(high));
    EXPECT_EQ(low_part.size, 4096u);
    EXPECT_GT(low_part.export_id, whole.export_id);
    EXPECT_EQ(high_part.base, reinterpret_cast<uintptr_t>(high));
    EXPECT_EQ(high_part.offset, 0u);

    ASSERT_EQ(umfMemoryProviderAllocationMerge(viewed_provider, low, high, 8192),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(decoded(handle_of(high)).size, 8192u);
    EXPECT_EQ(umfMemoryProviderFree(viewed_provider, low, 8192), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.fake.calls(), "agpsggppmgpf");
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
}

TEST(Export, PutsWhatIsLeftWhenThePoolGoes) {
    FakePool p;
    handle_of(p.alloc());
    p.destroy_pool();
    EXPECT_EQ(p.fake.puts, 1);
}

TEST(Export, FreesTheMemoryEvenIfThePutFails) {
    FakePool p;
    char *ptr = p.alloc();
    handle_of(ptr);
    p.fake.put_result = UMF_RESULT_ERROR_UNKNOWN;
    p.free(ptr);
    EXPECT_EQ(p.fake.calls(), "agpf");
}

TEST(Export, HandlesAreFreedAsTheyWereMade) {
    FakePool p;
    for (size_t padding : {size_t{0}, size_t{900}}) {
        p.fake.padding = padding;
        char *ptr = p.alloc();
        handle_of(ptr);
        const size_t used = umf_meta_used();
        for (int i = 0; i < 100; i++) {
            handle_of(ptr);
        }
        EXPECT_EQ(umf_meta_used(), used);
        p.free(ptr);
    }
}

TEST(Export, PutTakesBackOnlyItsOwnHandles) {
    FakePool p;
    char *ptr = p.alloc();
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    ASSERT_EQ(umfGetIPCHandle(ptr, &handle, &size), UMF_RESULT_SUCCESS);
    p.free(ptr);

    // Copies at every alignment, among them that of real handles.
    std::vector<char> room(size + 256);
    for (size_t shift = 0; shift < 128; shift++) {
        memcpy(room.data() + 64 + shift, handle, size);
        EXPECT_EQ(umfPutIPCHandle(reinterpret_cast<umf_ipc_handle_t>(room.data() + 64 + shift)),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    // A copy with the bytes in front of it, at the alignment of real ones.
    alignas(64) char aligned[1024];
    ASSERT_LE(size + 16, sizeof(aligned));
    memcpy(aligned, reinterpret_cast<char *>(handle) - 16, size + 16);
    EXPECT_EQ(umfPutIPCHandle(reinterpret_cast<umf_ipc_handle_t>(aligned + 16)),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    // A copy at the start of a page with nothing in front of it.
    auto pages = static_cast<char *>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages, 4096, PROT_NONE);
    memcpy(pages + 4096, handle, size);
    EXPECT_EQ(umfPutIPCHandle(reinterpret_cast<umf_ipc_handle_t>(pages + 4096)),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    // Where a mark would have to be, nothing can be read, or nothing is mapped.
    auto none = [pages] { return umfPutIPCHandle(reinterpret_cast<umf_ipc_handle_t>(pages + 16)); };
    EXPECT_EQ(none(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    munmap(pages, 8192);
    EXPECT_EQ(none(), UMF_RESULT_ERROR_INVALID_ARGUMENT);

    EXPECT_EQ(umfPutIPCHandle(nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS) << "allowed after the memory is gone";
    EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "twice";
}

TEST(Export, PassesErrorsOfTheProviderOn) {
    FakePool p;
    char *ptr = p.alloc();
    for (umf_result_t result :
         {UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, UMF_RESULT_ERROR_INVALID_ARGUMENT,
          UMF_RESULT_ERROR_USER_SPECIFIC, UMF_RESULT_ERROR_UNKNOWN}) {
        size_t size = 77;
        p.fake.size_result = result;
        EXPECT_EQ(umfPoolGetIPCHandleSize(p.pool, &size), result);
        EXPECT_EQ(size, 77u);
        EXPECT_EQ(get(ptr), result);
        p.fake.size_result = UMF_RESULT_SUCCESS;
        p.fake.get_result = result;
        EXPECT_EQ(get(ptr), result);
        p.fake.get_result = UMF_RESULT_SUCCESS;
    }
    EXPECT_EQ(p.fake.gets, 4);
    EXPECT_EQ(get(ptr), UMF_RESULT_SUCCESS) << "a failure is not remembered";
    EXPECT_EQ(p.fake.gets, 5);
    p.free(ptr);
    EXPECT_EQ(p.fake.puts, 1) << "only what succeeded is put";
}

TEST(Export, RefusesHandlesThatAreTooLarge) {
    FakePool p;
    char *ptr = p.alloc();
    for (size_t answer :
         {SIZE_MAX, SIZE_MAX - 40, SIZE_MAX - UMF_WIRE_HEADER, static_cast<size_t>(UINT32_MAX)}) {
        p.fake.size_answer = answer;
        size_t size = 77;
        EXPECT_EQ(umfPoolGetIPCHandleSize(p.pool, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(size, 77u);
        EXPECT_EQ(get(ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(p.fake.gets, 0);
    p.free(ptr);
}

TEST(Export, NeedsAProviderThatShares) {
    const umf_memory_provider_ops_t ops = ops_without_ipc();
    FakePool p(&ops);
    char *ptr = p.alloc();
    size_t size = 77;
    EXPECT_EQ(umfPoolGetIPCHandleSize(p.pool, &size), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(size, 77u);
    EXPECT_EQ(get(ptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
    p.free(ptr);
}

TEST(Export, NeedsATrackingPool) {
    FakePool tracked;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), tracked.provider, nullptr,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              UMF_RESULT_SUCCESS);
    size_t size = 77;
    umf_ipc_handler_handle_t handler = untouched;
    EXPECT_EQ(umfPoolGetIPCHandleSize(pool, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(size, 77u);
    EXPECT_EQ(handler, untouched);
    void *ptr = umfPoolMalloc(pool, 100);
    EXPECT_EQ(get(ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umfPoolFree(pool, ptr);
    umfPoolDestroy(pool);
}

TEST(Export, ConcurrentGetsMakeOneProviderGet) {
    FakePool p;
    char *ptr = p.alloc();
    std::array<Bytes, 8> handles;
    in_threads(p.fake, 8, [&](int i) { handles[static_cast<size_t>(i)] = handle_of(ptr); });
    EXPECT_EQ(p.fake.gets, 1);
    for (Bytes &handle : handles) {
        EXPECT_EQ(handle, handles[0]);
    }
    p.free(ptr);
    EXPECT_EQ(p.fake.puts, 1);
}

TEST(Export, ConcurrentGetsSurviveAFailingProvider) {
    FakePool p;
    char *ptr = p.alloc();
    p.fake.get_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    in_threads(p.fake, 8, [&](int) { EXPECT_EQ(get(ptr), UMF_RESULT_ERROR_USER_SPECIFIC); });
    p.fake.get_result = UMF_RESULT_SUCCESS;
    EXPECT_EQ(get(ptr), UMF_RESULT_SUCCESS);
    p.free(ptr);
    EXPECT_EQ(p.fake.puts, 1);
}

// --- limit ---

// Stops the library and starts it again with another environment. No pool may be alive.
void restart(const char *max_exported) {
    EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    max_exported ? setenv("UMF_MAX_EXPORTED_IPC_HANDLES", max_exported, 1)
                 : unsetenv("UMF_MAX_EXPORTED_IPC_HANDLES");
    EXPECT_EQ(umfInit(), UMF_RESULT_SUCCESS);
}

class ExportLimit : public testing::Test {
  protected:
    void SetUp() override {
        restart("2");
    }
    void TearDown() override {
        EXPECT_EQ(counter("exports"), 0u) << "all memory was freed";
        restart(nullptr);
    }
    static size_t counter(const std::string &name) {
        size_t value = 0;
        EXPECT_EQ(umfCtlGet(("umf.ipc.stats." + name).c_str(), &value, sizeof(value)),
                  UMF_RESULT_SUCCESS);
        return value;
    }
};

TEST_F(ExportLimit, ForgetsTheLeastRecentlyUsed) {
    FakePool p(FakeIpc::watched_ops());
    char *a = p.alloc(), *b = p.alloc(), *c = p.alloc();
    size_t made = counter("exports_made"), evictions = counter("exports_evictions");
    handle_of(a);
    handle_of(b);
    handle_of(a); // now b is the older one
    EXPECT_EQ(p.fake.gets, 2);
    handle_of(c);
    EXPECT_EQ(counter("exports"), 2u);
    handle_of(a);
    EXPECT_EQ(p.fake.gets, 3) << "a was kept";
    handle_of(b);
    EXPECT_EQ(p.fake.gets, 4) << "b was forgotten";
    EXPECT_EQ(counter("exports_made") - made, 4u);
    EXPECT_EQ(counter("exports_evictions") - evictions, 2u);
    for (char *ptr : {a, b, c}) {
        p.free(ptr);
    }
    EXPECT_EQ(p.fake.puts, 2) << "a dropped handle is not put";
}

TEST_F(ExportLimit, WhatIsForgottenKeepsItsHandles) {
    FakePool p(FakeIpc::watched_ops());
    umf_ipc_handler_handle_t handler = p.handler();
    std::array<char *, 10> memory{};
    std::array<Bytes, 10> handles;
    void *opened;
    for (size_t i = 0; i < memory.size(); i++) {
        memory[i] = p.alloc();
        memory[i][0] = static_cast<char>('a' + i);
        handles[i] = handle_of(memory[i]);
        ASSERT_EQ(umfOpenIPCHandle(handler, as_handle(handles[i]), &opened), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
    int opens = p.fake.opens;
    for (size_t i = 0; i < memory.size(); i++) {
        EXPECT_EQ(handle_of(memory[i]), handles[i]) << "made again, the bytes are the same";
        ASSERT_EQ(umfOpenIPCHandle(handler, as_handle(handles[i]), &opened), UMF_RESULT_SUCCESS);
        EXPECT_EQ(*static_cast<char *>(opened), static_cast<char>('a' + i));
        EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(p.fake.opens, opens) << "a consumer finds it open already";
    for (char *ptr : memory) {
        p.free(ptr);
    }
}

TEST_F(ExportLimit, MemoryThatWasForgottenAndFreedGetsANewId) {
    FakePool p(FakeIpc::watched_ops());
    char *a = p.alloc(), *b = p.alloc(), *c = p.alloc();
    uint64_t id = decoded(handle_of(a)).export_id;
    handle_of(b);
    handle_of(c);
    p.free(a);
    char *again = p.alloc_at(a);
    EXPECT_GT(decoded(handle_of(again)).export_id, id);
    for (char *ptr : {again, b, c}) {
        p.free(ptr);
    }
}

TEST_F(ExportLimit, KeepsWhatItsProviderCannotRepeat) {
    FakePool p;
    std::array<char *, 5> memory{};
    for (char *&ptr : memory) {
        ptr = p.alloc();
        handle_of(ptr);
    }
    EXPECT_EQ(counter("exports"), 5u);
    for (char *ptr : memory) {
        handle_of(ptr);
        p.free(ptr);
    }
    EXPECT_EQ(p.fake.gets, 5);
    EXPECT_EQ(p.fake.puts, 5);
}

TEST_F(ExportLimit, AFailureKeepsTheId) {
    FakePool p(FakeIpc::watched_ops());
    char *a = p.alloc(), *b = p.alloc(), *c = p.alloc();
    Bytes handle = handle_of(a);
    handle_of(b);
    handle_of(c);
    p.fake.get_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(get(a), UMF_RESULT_ERROR_USER_SPECIFIC);
    p.fake.get_result = UMF_RESULT_SUCCESS;
    EXPECT_EQ(handle_of(a), handle);
    for (char *ptr : {a, b, c}) {
        p.free(ptr);
    }
}

TEST_F(ExportLimit, ThreadsGetHandlesWhileOthersAreForgotten) {
    FakePool p(FakeIpc::watched_ops());
    std::array<char *, 8> memory{};
    std::array<Bytes, 8> handles;
    for (size_t i = 0; i < memory.size(); i++) {
        memory[i] = p.alloc(4096);
        handles[i] = handle_of(memory[i]);
    }
    run_threads<size_t>(4, [&](size_t t) {
        for (size_t round = 0; round < 500; round++) {
            size_t i = (round * (t + 1)) % memory.size();
            ASSERT_EQ(handle_of(memory[i]), handles[i]);
            char *own = p.alloc(4096);
            handle_of(own);
            p.free(own);
        }
    });
    for (char *ptr : memory) {
        p.free(ptr);
    }
}

// --- threads ---

TEST(Export, GetsAndFreesOfDifferentMemoryRunSideBySide) {
    FakePool p;
    run_threads(4, [&p](int) {
        for (int round = 0; round < 100; round++) {
            char *ptr = p.alloc(4096);
            Bytes handle = handle_of(ptr + round);
            EXPECT_EQ(decoded(handle).base, reinterpret_cast<uintptr_t>(ptr));
            p.free(ptr);
        }
    });
    EXPECT_EQ(p.fake.gets, 400);
    EXPECT_EQ(p.fake.puts, 400);
}

} // namespace
