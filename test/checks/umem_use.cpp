// What programs write with the classes of libumem: check_umem_headers compiles it in every version
// of C++.
#include <cstring>

#include "umem.hpp"

enum Position { SECOND = 1 };

bool compares(umem::Context &context, const umem::Address &constant);
void converts(umem::Context &context);

bool compares(umem::Context &context, const umem::Address &constant) {
    umem::Address block = context.alloc(100), other = context.alloc(100);
    uintptr_t number = block;
    bool is_equal = block == other || block == 0 || block == number || block == 5u || block == 7L;
    bool is_temporary = block + 1 == other + 2 || context.alloc(3) == context.alloc(4);
    bool differs = block != other && block != 0 && constant != block;
    bool is_constant = constant == block || constant == constant || constant + 1 == 0;
    int rest = block % 8;
    size_t of_size = block % size_t(8);
    return is_equal || is_temporary || differs || is_constant || rest == 1 || of_size == 1;
}

void converts(umem::Context &context) {
    umem::Address block = context.alloc(100), other = context.calloc(10, 10);
    block[0] = 'x';
    block[size_t(1)] = 'y';
    block[2L] = 'z';
    block[3u] = 0;
    block[SECOND] = block[0];
    double *numbers = block;
    numbers[1] = 1;
    const char *text = block + SECOND;
    char *changed = static_cast<char *>(other);
    std::memcpy(block, other, std::strlen(text));
    std::string copy(changed, 3);
    block.copy_from(copy, 3);
    block.copy_from("abc", 3);
    block.copy_from(other + 3, 3);
    block.copy_to(other, 3);
    umem::Address connected = block.connect(context, 100, 16), to_host = block.connect(10);
    connected.sync(10);
    to_host.update(10);
    umem::Address moved(std::move(connected)), not_own(moved), start = moved.origin();
}
