// The C++ interface over memory of a GPU: queues, and what containers refuse.

#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <cstring>
#include <vector>

#include <umf/umf.hpp>

namespace {

constexpr size_t SIZE = 1 << 20;

class CppQueues : public testing::Test {
  protected:
    CUstream first = nullptr, second = nullptr;
    umf::pool pool;

    void SetUp() override {
        start_cuda_vmm();
        for (CUstream *stream : {&first, &second}) {
            CU(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
        }
        pool = umf::pool("disjoint over cuda_vmm");
    }
    void TearDown() override {
        pool.reset();
        for (CUstream stream : {first, second}) {
            driver().cuStreamDestroy(stream);
        }
        stop_cuda_vmm();
    }
    static void work(void *ptr, CUstream stream) {
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, SIZE, stream));
    }
    static void pass(CUstream stream) {
        CU(cuStreamSynchronize(stream));
    }
};

TEST_F(CppQueues, UseABufferAgainAtOnce) {
    char *data = nullptr;
    {
        umf::buffer_on<char> buffer(pool, SIZE, first);
        data = buffer.data();
        work(data, first);
    }
    umf::buffer_on<char> again(pool, SIZE, first);
    EXPECT_EQ(again.data(), data);
    EXPECT_EQ(umf::buffer_on<char>::create(pool, SIZE, first)->size(), SIZE);
    pass(first);
}

TEST_F(CppQueues, PassThroughAdaptors) {
    std::vector<umf_queue_t> seen;
    umf::limit_adaptor limit(pool, SIZE);
    umf::logging_adaptor logged(limit, [&](const umf::allocation_event &event) {
        EXPECT_TRUE(event.is_on_queue);
        seen.push_back(event.queue);
    });
    void *data = logged.allocate_on(first, SIZE);
    work(data, first);
    EXPECT_EQ(logged.try_allocate_on(first, 1), nullptr) << "the limit is reached";
    EXPECT_EQ(logged.deallocate_on(first, data, SIZE), UMF_RESULT_SUCCESS);
    EXPECT_EQ(limit.used(), 0u);
    EXPECT_EQ(logged.try_allocate_on(first, SIZE), data) << "at once, behind the work";
    EXPECT_EQ(logged.deallocate_on(second, data, SIZE), UMF_RESULT_SUCCESS);
    EXPECT_EQ(seen, (std::vector<umf_queue_t>{first, first, first, first, second}));
    pass(first);
}

TEST_F(CppQueues, KeepWhatAnotherUses) {
    umf::unique_ptr_on<char[]> array(static_cast<char *>(pool.allocate_on(first, SIZE)), first);
    void *ptr = array.get();
    work(ptr, second);
    std::vector<CUstream> users = {second};
    ASSERT_TRUE(umf::use_on(ptr, users));
    array.reset();
    EXPECT_EQ(umf::use_on(ptr, users).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(pool.trim_on(first)); // not before the work has passed
    EXPECT_TRUE(pool.wait_pending());
    pass(second);
}

TEST_F(CppQueues, TellThatAWaitWouldNotEnd) {
    CU(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    umf::buffer_on<char>(pool, SIZE, first);
    auto waited = pool.wait_pending(std::chrono::milliseconds(1));
    auto looked = pool.wait_pending(std::chrono::seconds(-1)); // a deadline that has passed
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture(first, &graph));
    driver().cuGraphDestroy(graph);
    ASSERT_EQ(waited.code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(looked.code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_NE(waited.error().text().find("1048576 freed bytes"), std::string::npos)
        << waited.error().text();
    EXPECT_TRUE(pool.wait_pending());
}

TEST_F(CppQueues, AreRefusedWhereThereAreNone) {
    umf::pool host("disjoint over os");
    EXPECT_THROW(static_cast<void>(host.allocate_on(first, SIZE)), umf::bad_alloc);
    EXPECT_THROW(umf::buffer_on<char>(host, SIZE, first), umf::bad_alloc);
    EXPECT_EQ(umf::buffer_on<char>::create(host, SIZE, first).code(),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(host.trim_on(first).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    umf::buffer_on<char> without(host, SIZE, nullptr);
    std::memset(without.data(), 1, without.size());
}

TEST_F(CppQueues, AreWaitedForByASuspend) {
    umf::buffer_on<char> buffer(pool, SIZE, first);
    work(buffer.data(), first);
    std::vector<CUstream> streams = {first, second};
    EXPECT_GE(umf::suspend_scope({pool}, streams).report().bytes, SIZE);
    char last = 0;
    ASSERT_EQ(umfCopy(&last, buffer.data() + SIZE - 1, 1, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(last, 1);
}

TEST_F(CppQueues, ContainersAreRefusedMemoryOfADevice) {
    EXPECT_EQ(umf::memory_resource::check(pool).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_THROW(umf::memory_resource{pool}, umf::exception);
    EXPECT_THROW(umf::allocator<int>{pool}, umf::exception);
    umf::pool pinned("disjoint over cuda:memory_type=host");
    std::vector<int, umf::allocator<int>> numbers(100, 7, umf::allocator<int>(pinned));
    EXPECT_EQ(numbers[99], 7);
}

} // namespace
