/*
 * A program that replaces one operator new and one operator delete, with memory of its own. All
 * other forms must reach them, as the standard says of the default ones.
 */
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

alignas(16) char memory[1000];
int made, dropped;

} // namespace

__attribute__((noinline)) void *operator new(size_t) {
    return memory + 64 * static_cast<size_t>(made++);
}

__attribute__((noinline)) void operator delete(void *ptr) noexcept {
    dropped += static_cast<char *>(ptr) == memory + 64 * static_cast<std::ptrdiff_t>(made - 1);
}

int main() {
    constexpr size_t size = 10;
    operator delete(operator new(size));
    operator delete(operator new(size), size);
    operator delete(operator new(size, std::nothrow), std::nothrow);
    operator delete[](operator new[](size));
    operator delete[](operator new[](size), size);
    operator delete[](operator new[](size, std::nothrow), std::nothrow);
    printf("%d made, %d dropped\n", made, dropped);
    return made == 6 && dropped == 6 ? EXIT_SUCCESS : EXIT_FAILURE;
}
