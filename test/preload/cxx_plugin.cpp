/* A plugin of C++ in a program of C: without memory, operator new still throws what it catches. */
#include <cstddef>
#include <cstdint>
#include <new>

namespace {

volatile size_t much = SIZE_MAX / 2; // not a constant: no compiler may predict the failure
void *volatile sink;
int handler_calls;

void handler() {
    handler_calls++;
    std::set_new_handler(nullptr);
}

template <typename New> bool throws(New make) {
    try {
        sink = make();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int work() {
    std::set_new_handler(handler);
    sink = operator new(100);
    operator delete(sink);
    const bool one = throws([] { return operator new(much); });
    const bool array = throws([] { return operator new[](much); });
    return one && array && handler_calls == 1;
}
