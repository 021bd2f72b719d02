/*
 * Uses every operator that the language version has, and sees that it reaches malloc and free of
 * the proxy library. Compiled once for each version; without a test framework, which would need
 * a version of its own.
 */
#include <umf/proxy_lib_new_delete.h>

#include <stdint.h>
#include <stdio.h>

#include "heap.h"

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                         \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* Not a constant, so that no compiler can predict failures. */
static volatile size_t much = SIZE_MAX / 2;

/* One object more in the heap, then one less. */
template <typename New, typename Delete> static void pair(New make, Delete drop) {
    const size_t before = heap_count();
    void *ptr = make();
    CHECK(ptr != NULL);
    CHECK(pool_of(ptr) == heap());
    CHECK(heap_count() == before + 1);
    drop(ptr);
    CHECK(heap_count() == before);
}

/* Results go here, because compilers drop unused results. */
static void *volatile sink;

static bool gives_null(void *ptr) {
    sink = ptr;
    return sink == NULL;
}

template <typename New> static void throws(New make) {
    bool is_thrown = false;
    try {
        sink = make();
    } catch (const std::bad_alloc &) {
        is_thrown = true;
    }
    CHECK(is_thrown);
}

static void cpp11() {
    pair([] { return operator new(100); }, [](void *p) { operator delete(p); });
    pair([] { return operator new[](100); }, [](void *p) { operator delete[](p); });
    pair([] { return operator new(100, std::nothrow); },
         [](void *p) { operator delete(p, std::nothrow); });
    pair([] { return operator new[](100, std::nothrow); },
         [](void *p) { operator delete[](p, std::nothrow); });
    pair([] { return operator new(0); }, [](void *p) { operator delete(p); });
    throws([] { return operator new(much); });
    throws([] { return operator new[](much); });
    CHECK(gives_null(operator new(much, std::nothrow)));
    CHECK(gives_null(operator new[](much, std::nothrow)));
    operator delete(NULL);
}

static int handler_calls;

static void handler() {
    if (++handler_calls == 3) {
        std::set_new_handler(NULL);
    }
}

static void new_handler_is_called() {
    std::set_new_handler(handler);
    throws([] { return operator new(much); });
    CHECK(handler_calls == 3);
}

static void cpp14() {
#if __cplusplus >= 201402L
    pair([] { return operator new(100); },
         [](void *p) { operator delete(p, static_cast<size_t>(100)); });
    pair([] { return operator new[](100); },
         [](void *p) { operator delete[](p, static_cast<size_t>(100)); });
#endif
}

static void cpp17() {
#if __cplusplus >= 201703L
    constexpr auto alignment = std::align_val_t(256);
    pair([] { return operator new(100, alignment); },
         [](void *p) { operator delete(p, alignment); });
    pair([] { return operator new[](100, alignment); },
         [](void *p) { operator delete[](p, alignment); });
    pair([] { return operator new(100, alignment, std::nothrow); },
         [](void *p) { operator delete(p, alignment, std::nothrow); });
    pair([] { return operator new[](100, alignment, std::nothrow); },
         [](void *p) { operator delete[](p, alignment, std::nothrow); });
    pair([] { return operator new(100, alignment); },
         [](void *p) { operator delete(p, static_cast<size_t>(100), alignment); });
    pair([] { return operator new[](100, alignment); },
         [](void *p) { operator delete[](p, static_cast<size_t>(100), alignment); });
    throws([] { return operator new(much, alignment); });
    throws([] { return operator new[](SIZE_MAX - much % 2, alignment); });
    CHECK(gives_null(operator new(much, alignment, std::nothrow)));
    CHECK(gives_null(operator new[](much, alignment, std::nothrow)));
    void *ptr = operator new(1, alignment);
    CHECK(reinterpret_cast<uintptr_t>(ptr) % 256 == 0);
    operator delete(ptr, alignment);
#endif
}

int main() {
    if (!heap_is_ours()) {
        printf("the proxy library is not in front\n");
        return 1;
    }
    cpp11();
    cpp14();
    cpp17();
    new_handler_is_called();
    printf("C++ %ld: %d failures\n", static_cast<long>(__cplusplus), failures);
    return failures != 0;
}
