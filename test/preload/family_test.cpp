// The kin of malloc beyond the C standard, and the operators of the C++ library: their memory comes
// from the heap. Runs with the library in front, in each mode of UMF_PROXY.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <new>

#include <dlfcn.h>
#include <unistd.h>

#include "heap.h"

// C23; the C library may have neither.
extern "C" void free_sized(void *ptr, size_t size) __attribute__((weak));
extern "C" void free_aligned_sized(void *ptr, size_t alignment, size_t size) __attribute__((weak));

namespace {

// Not constants, so that no compiler can predict failures.
volatile size_t huge = SIZE_MAX / 2 + 1;
volatile size_t largest = SIZE_MAX;
volatile size_t no_alignment = 24;

size_t page() {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Of the heap, whatever the threshold.
size_t heap_size(size_t size) {
    return threshold() + size;
}

// Compilers drop unused allocations.
void *volatile sink;

using Make = std::function<void *(size_t)>;
using Drop = std::function<void(void *)>;

// Each size is aligned, usable and an object of the heap; after the free there is one less.
void expect_of_heap(size_t alignment, const Make &make, const Drop &drop = free) {
    for (size_t size : {size_t{1}, size_t{40}, size_t{5000}, size_t{300000}, size_t{9} << 20}) {
        const size_t before = heap_count();
        void *ptr = make(heap_size(size));
        ASSERT_NE(ptr, nullptr) << size;
        EXPECT_EQ(pool_of(ptr), heap()) << size;
        EXPECT_EQ(heap_count(), before + 1) << size;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment, 0u) << size;
        EXPECT_GE(malloc_usable_size(ptr), heap_size(size));
        std::memset(ptr, 1, heap_size(size));
        drop(ptr);
        EXPECT_EQ(heap_count(), before) << size;
    }
}

void expect_refused(int expected, const std::function<void *()> &call) {
    errno = 0;
    sink = call();
    EXPECT_EQ(sink, nullptr);
    EXPECT_EQ(errno, expected);
}

} // namespace

TEST(PosixMemalign, IsOfTheHeap) {
    for (size_t alignment = sizeof(void *); alignment <= size_t{4} << 20; alignment *= 2) {
        expect_of_heap(alignment, [=](size_t size) {
            void *ptr = nullptr;
            EXPECT_EQ(posix_memalign(&ptr, alignment, size), 0);
            return ptr;
        });
    }
}

TEST(PosixMemalign, ReportsAndLeavesTheRestAlone) {
    void *ptr = &ptr;
    errno = 4711;
    for (size_t alignment : {size_t{0}, size_t{1}, size_t{4}, size_t{no_alignment}, largest + 0}) {
        EXPECT_EQ(posix_memalign(&ptr, alignment, 100), EINVAL) << alignment;
    }
    EXPECT_EQ(posix_memalign(&ptr, 64, huge), ENOMEM);
    EXPECT_EQ(posix_memalign(&ptr, 16, huge), ENOMEM);
    EXPECT_EQ(ptr, &ptr);
    EXPECT_EQ(errno, 4711);
    ASSERT_EQ(posix_memalign(&ptr, 64, 0), 0);
    EXPECT_NE(ptr, nullptr);
    free(ptr);
}

TEST(Memalign, IsOfTheHeapAndRaisesTheAlignment) {
    for (size_t alignment : {size_t{0}, size_t{1}, size_t{16}, size_t{64}, size_t{4096}}) {
        expect_of_heap(alignment ? alignment : 1,
                       [=](size_t size) { return memalign(alignment, size); });
    }
    expect_of_heap(32, [](size_t size) { return memalign(no_alignment, size); });
    expect_refused(EINVAL, [] { return memalign(largest, 100); });
    expect_refused(ENOMEM, [] { return memalign(64, huge); });
}

TEST(Valloc, IsOfTheHeapAndAlignedToPages) {
    expect_of_heap(page(), valloc);
    expect_refused(ENOMEM, [] { return valloc(largest); });
}

TEST(Pvalloc, HasWholePages) {
    expect_of_heap(page(), pvalloc);
    for (size_t size : {size_t{0}, size_t{1}, page()}) {
        void *ptr = pvalloc(size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_GE(malloc_usable_size(ptr), page());
        free(ptr);
    }
    expect_refused(ENOMEM, [] { return pvalloc(largest); });
}

TEST(Reallocarray, ChecksTheProduct) {
    expect_of_heap(1, [](size_t size) { return reallocarray(nullptr, size, 1); });
    void *ptr = reallocarray(nullptr, heap_size(10), 10);
    std::memset(ptr, 7, 100);
    expect_refused(ENOMEM, [=] { return reallocarray(ptr, huge, 2); });
    char *grown = static_cast<char *>(reallocarray(ptr, heap_size(1000), 10));
    ASSERT_NE(grown, nullptr);
    EXPECT_EQ(grown[0], 7);
    EXPECT_EQ(grown[99], 7);
    free(grown);
}

TEST(FreeSized, FreesObjectsOfTheHeapAndOthers) {
    ASSERT_TRUE(free_sized && free_aligned_sized);
    expect_of_heap(16, malloc, [](void *ptr) { free_sized(ptr, 1); });
    expect_of_heap(
        64, [](size_t size) { return aligned_alloc(64, size); },
        [](void *ptr) { free_aligned_sized(ptr, 64, 1); });
    free_sized(nullptr, 5);
    free_aligned_sized(nullptr, 16, 5);
}

// The forms without an alignment do not pass through the C++ library.
TEST(Operators, AreThoseOfTheLibrary) {
    Dl_info malloc_info = {}, info = {};
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &malloc_info), 0);
    for (const char *name : {"_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm"}) {
        ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, name), &info), 0) << name;
        EXPECT_STREQ(info.dli_fname, malloc_info.dli_fname) << name;
    }
}

// Nothing here includes umf/proxy_lib_new_delete.h.
TEST(Operators, AreOfTheHeap) {
    constexpr auto aligned = std::align_val_t(256);
    using std::nothrow;
    expect_of_heap(
        16, [](size_t n) { return operator new(n); }, [](void *p) { operator delete(p); });
    expect_of_heap(
        16, [](size_t n) { return operator new[](n); },
        [](void *p) { operator delete[](p, size_t{1}); });
    expect_of_heap(
        16, [](size_t n) { return operator new(n, nothrow); },
        [](void *p) { operator delete(p, nothrow); });
    expect_of_heap(
        256, [](size_t n) { return operator new(n, aligned); },
        [](void *p) { operator delete (p, size_t{1}, aligned); });
    expect_of_heap(
        256, [](size_t n) { return operator new[](n, aligned, nothrow); },
        [](void *p) { operator delete[](p, aligned, nothrow); });
    EXPECT_THROW(sink = operator new(huge), std::bad_alloc);
    EXPECT_THROW(sink = operator new[](huge, aligned), std::bad_alloc);
    sink = operator new(huge, nothrow);
    EXPECT_EQ(sink, nullptr);
}

TEST(Heap, IsInFront) {
    ASSERT_TRUE(heap_is_ours());
}
