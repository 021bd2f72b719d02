// Pools as memory resources of CUDA C++; built where the headers of CCCL are. The header itself
// checks the concepts.

#include <umf/cuda_resource.hpp>

#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <umf/cpp/queue.hpp>

namespace {

constexpr size_t SIZE = 1 << 20;

// Takes any resource, by the name that the concept has in this version of CCCL.
#if CCCL_VERSION >= 3001000
using AnyDevice = cuda::mr::resource_ref<cuda::mr::device_accessible>;

void *allocate(AnyDevice resource, size_t size, CUstream stream) {
    return resource.allocate(cuda::stream_ref(stream), size);
}
void deallocate(AnyDevice resource, void *ptr, size_t size, CUstream stream) {
    resource.deallocate(cuda::stream_ref(stream), ptr, size);
}
#else
using AnyDevice = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;

void *allocate(AnyDevice resource, size_t size, CUstream stream) {
    return resource.allocate_async(size, 256, cuda::stream_ref(stream));
}
void deallocate(AnyDevice resource, void *ptr, size_t size, CUstream stream) {
    resource.deallocate_async(ptr, size, 256, cuda::stream_ref(stream));
}
#endif

class CudaResource : public testing::Test {
  protected:
    CUstream stream = nullptr;

    void SetUp() override {
        start_cuda_vmm();
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override {
        umfQueueEnds(stream);
        driver().cuStreamDestroy(stream);
        stop_cuda_vmm();
    }
};

TEST_F(CudaResource, ServesStreams) {
    umf::pool pool("disjoint over cuda_vmm");
    umf::device_resource resource(pool);
    void *ptr = allocate(resource, SIZE, stream);
    EXPECT_EQ(umf::pool_ref::of(ptr), pool);
    deallocate(resource, ptr, SIZE, stream);
    EXPECT_EQ(allocate(resource, SIZE, stream), ptr) << "the stream uses it again at once";
    deallocate(resource, ptr, SIZE, stream);
    EXPECT_TRUE(pool.wait_pending());
}

TEST_F(CudaResource, ServesTheHost) {
    umf::pool pool("disjoint over cuda_vmm");
    umf::device_resource resource(pool);
    for (size_t alignment = 1; alignment <= 4096; alignment *= 16) {
        void *ptr = resource.allocate_sync(100, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment, 0u);
        resource.deallocate_sync(ptr, 100, alignment);
        ptr = resource.allocate(100, alignment);
        resource.deallocate(ptr, 100, alignment);
    }
    void *nothing = resource.allocate_sync(0);
    EXPECT_NE(nothing, nullptr);
    resource.deallocate_sync(nothing, 0);
    EXPECT_THROW(static_cast<void>(resource.allocate_sync(SIZE_MAX / 4)), std::bad_alloc);
}

TEST_F(CudaResource, IsEqualToOthersOfItsPool) {
    umf::pool one("disjoint over cuda_vmm"), other("disjoint over cuda_vmm");
    umf::device_resource resource(one), same(one), different(other);
    EXPECT_TRUE(resource == same);
    EXPECT_TRUE(resource != different);
    EXPECT_EQ(resource.pool(), one);
}

TEST_F(CudaResource, HasThePropertiesOfTheMemory) {
    umf::pool device("disjoint over cuda_vmm"), host("disjoint over os");
    umf::pool pinned("disjoint over cuda:memory_type=host");
    umf::pool managed("disjoint over cuda:memory_type=shared");
    const umf_result_t none = UMF_RESULT_ERROR_NOT_SUPPORTED;
    for (umf::pool_ref both : {pinned.get(), managed.get()}) {
        EXPECT_TRUE(umf::device_resource::check(both));
        EXPECT_TRUE(umf::pinned_resource::check(both));
        EXPECT_TRUE(umf::host_resource::check(both));
    }
    EXPECT_TRUE(umf::host_resource::check(host));
    EXPECT_EQ(umf::host_resource::check(device).code(), none);
    EXPECT_EQ(umf::pinned_resource::check(device).code(), none);
    EXPECT_EQ(umf::pinned_resource::check(host).code(), none);
    EXPECT_THROW(umf::device_resource{host}, umf::exception);
    std::string text = umf::host_resource::check(device).error().text();
    EXPECT_NE(text.find("not reached by the CPU"), std::string::npos) << text;
    text = umf::device_resource::check(host).error().text();
    EXPECT_NE(text.find("provider OS is not reached by a device"), std::string::npos) << text;
}

} // namespace
