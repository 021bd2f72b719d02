/* A program with a malloc of its own, whose C++ library allocates with it. */
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

alignas(16) char memory[1 << 20];
size_t used;
int freed;

bool is_own(const void *ptr) {
    return static_cast<const char *>(ptr) >= memory &&
           static_cast<const char *>(ptr) < memory + sizeof(memory);
}

} // namespace

extern "C" {

void *malloc(size_t size) {
    const size_t whole = (size + 15) & ~size_t{15};
    if (size > sizeof(memory) || used + whole > sizeof(memory)) {
        return nullptr;
    }
    used += whole;
    return memory + used - whole;
}

void free(void *ptr) {
    freed += is_own(ptr);
}

void *calloc(size_t num, size_t size) {
    return malloc(num * size); // nothing is used twice
}

void *realloc(void *, size_t size) {
    return malloc(size); // nothing here grows
}
}

int main() {
    void *object = operator new(100);
    void *array = operator new[](100);
    const bool is_right = is_own(object) && is_own(array);
    const int before = freed;
    operator delete(object);
    operator delete[](array);
    puts(is_right && freed == before + 2 ? "new and delete" : "not of its own malloc");
    return 0;
}
