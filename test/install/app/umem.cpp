// The same in C++, and a connection whose content goes to and fro.
#include <cstdio>

#include "umem.hpp"

int main() {
    umem::Host host, other;
    umem::Address numbers = host.calloc(64, sizeof(double));
    double *values = numbers;
    for (int i = 0; i < 64; ++i) {
        values[i] = i;
    }
    umem::Address copy = numbers.connect(other, numbers.size(), 1024);
    copy.set(0, numbers.size());
    copy.update(numbers.size());
    bool works =
        static_cast<double *>(copy)[63] == 63 && copy % 1024 == 0 && host.is_ok() && other.is_ok();
    std::puts(works ? "umem in C++ works" : "umem in C++ fails");
    return works ? 0 : 1;
}
