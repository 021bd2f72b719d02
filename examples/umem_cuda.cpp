// libumem from C++: memory of a GPU, connected to memory of the host. An address frees its memory
// when it ends, so it must end before its context.
#include <cstdio>

#include <umem.hpp>

int main() {
    umem::Host host;
    umem::Cuda gpu(0);
    if (!gpu.is_ok()) {
        std::printf("no GPU is used: %s\n", gpu.get_message().c_str());
        return 0;
    }
    const size_t size = 1000 * sizeof(int);
    umem::Address there = gpu.calloc(1000, sizeof(int));
    umem::Address here = there.connect(host, size); // a copy in memory of the host

    int *numbers = here;
    for (int i = 0; i < 1000; i++) {
        numbers[i] = i;
    }
    here.sync(size);                // to the GPU
    here.set(0, size);              // forgotten here
    (here + size / 2).set(-1, 100); // an address in the middle has the size of the rest
    here.update(size);              // and back
    std::printf("number 999 is %d\n", numbers[999]);

    // Memory of both: the GPU sees writes of the CPU.
    umem::CudaManaged managed;
    umem::Address both = managed.alloc(size);
    both.copy_from(there, size);
    int first = static_cast<int *>(both)[1];

    bool is_good =
        numbers[999] == 999 && first == 1 && gpu.is_ok() && host.is_ok() && managed.is_ok();
    return is_good ? 0 : 1;
}
