// One pool for the streams of a GPU, from CUDA C++: arrays that are freed on a stream, while its kernels are
// still queued, and the pool as a memory resource of CCCL. Built where nvcc is.
#include <cstdio>
#include <vector>

// CCCL before 3.1 needs this header before its others.
#include <umf/cuda_resource.hpp>
#include <umf/umf.hpp>

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t result = (call);                                                               \
        if (result != cudaSuccess) {                                                               \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result));                   \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

__global__ void fill(int *numbers, int count, int value) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) {
        numbers[i] = value;
    }
}

__global__ void add(int *sums, const int *numbers, int count) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) {
        sums[i] += numbers[i];
    }
}

int main() {
    constexpr int count = 1 << 20, blocks = count / 256, rounds = 100;
    if (int devices = 0; cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("no GPU is used\n");
        return 0;
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr)); // makes the context
    cudaStream_t streams[2];
    CUDA(cudaStreamCreate(&streams[0]));
    CUDA(cudaStreamCreate(&streams[1]));

    umf::pool pool("disjoint over cuda_vmm:device=0");
    {
        umf::buffer<int> sums(pool, count);
        CUDA(cudaMemset(sums.data(), 0, sums.size_bytes()));
        CUDA(cudaDeviceSynchronize());

        // Each round takes an array and frees it while its kernels are queued. The stream puts the next
        // round after them, so one block is enough, and no thread waits.
        for (int round = 0; round < rounds; round++) {
            umf::buffer_on<int> numbers(pool, count, streams[0]);
            fill<<<blocks, 256, 0, streams[0]>>>(numbers.data(), count, round);
            add<<<blocks, 256, 0, streams[0]>>>(sums.data(), numbers.data(), count);
        }

        // The same by the concepts of CCCL. Memory that no device reaches would be refused here.
        umf::device_resource resource(pool);
        auto *numbers = static_cast<int *>(resource.allocate(streams[1], count * sizeof(int)));
        fill<<<blocks, 256, 0, streams[1]>>>(numbers, count, 1);
        resource.deallocate(streams[1], numbers, count * sizeof(int));

        std::vector<int> here(count);
        CUDA(cudaMemcpyAsync(here.data(), sums.data(), sums.size_bytes(), cudaMemcpyDefault, streams[0]));
        CUDA(cudaStreamSynchronize(streams[0]));
        std::printf("a sum is %d\n", here[count - 1]);
        if (here[0] != rounds * (rounds - 1) / 2 || here[count - 1] != here[0]) {
            return 1;
        }
    }
    // Before a stream ends, the pools drop it: its handle may belong to another one soon.
    for (cudaStream_t stream : streams) {
        CUDA(cudaStreamSynchronize(stream));
        umfQueueEnds(stream);
        CUDA(cudaStreamDestroy(stream));
    }
    return pool.wait_pending() ? 0 : 1;
}
