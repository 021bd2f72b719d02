// The statements of the contract about libumf_proxy.so, one test each. Runs with the library in
// front, in each mode of UMF_PROXY.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/experimental/memory_properties.h>
#include <umf/record.h>

#include "early.h"
#include "heap.h"

// glibc's own, which no other library replaces.
extern "C" void *__libc_memalign(size_t alignment, size_t size);

namespace {

// Of the heap, whatever the threshold.
size_t heap_size(size_t size) {
    return threshold() + size;
}

// Compilers treat malloc specially: they drop unused allocations.
void *volatile sink;

void *make(size_t size) {
    sink = malloc(size);
    return sink;
}

void fill(void *ptr, size_t size, int seed) {
    for (size_t i = 0; i < size; i++) {
        static_cast<unsigned char *>(ptr)[i] = static_cast<unsigned char>(i * 31 + size_t(seed));
    }
}

bool is_filled(const void *ptr, size_t size, int seed) {
    for (size_t i = 0; i < size; i++) {
        if (static_cast<const unsigned char *>(ptr)[i] !=
            static_cast<unsigned char>(i * 31 + size_t(seed))) {
            return false;
        }
    }
    return true;
}

bool is_zero(const void *ptr, size_t size) {
    const unsigned char *bytes = static_cast<const unsigned char *>(ptr);
    return std::all_of(bytes, bytes + size, [](unsigned char c) { return c == 0; });
}

// Not constants, so that no compiler can predict failures.
volatile size_t huge = SIZE_MAX / 2 + 1;
volatile size_t largest = SIZE_MAX;

// The exit status of a child that does `work`.
template <typename F> int child(F work) {
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(work() ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

// State of the program before main.
struct Before {
    void *ptr;
    Before() : ptr(malloc(heap_size(3000))) {
        fill(ptr, heap_size(3000), 9);
    }
} before;

} // namespace

TEST(Start, TheLibraryIsInFront) {
    ASSERT_TRUE(heap_is_ours());
}

TEST(Start, ConstructorsOfTheProgramUseTheHeap) {
    EXPECT_EQ(pool_of(before.ptr), heap());
    EXPECT_TRUE(is_filled(before.ptr, heap_size(3000), 9));
    free(before.ptr);
}

TEST(Start, EarlyMemoryIsThereAndItsUsableSizeIsZero) {
    ASSERT_STREQ(early.text, EARLY_TEXT);
    ASSERT_STREQ(early.moved, EARLY_TEXT);
    ASSERT_STREQ(early.resolved, "/");
    EXPECT_TRUE(is_zero(early.zeroes, 1000));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(early.aligned) % 4096, 0u);
    EXPECT_NE(early.empty, nullptr);
    EXPECT_EQ(malloc_usable_size(early.text), 0u) << "the heap was there first";
    EXPECT_EQ(pool_of(early.text), nullptr);
}

TEST(Start, EarlyMemoryCanBeResizedAndFreed) {
    char *text = static_cast<char *>(realloc(early.text, heap_size(100000)));
    EXPECT_STREQ(text, EARLY_TEXT);
    EXPECT_EQ(pool_of(text), heap());
    free(text);
    EXPECT_EQ(realloc(early.moved, 0), nullptr);
    free(early.zeroes);
    free(early.aligned);
    free(early.empty);
    free(early.resolved);
}

TEST(Start, EarlyMemoryIsNotLimitedToTheArena) {
    size_t from_arena = 0;
    for (int i = 0; i < EARLY_PIECES; i++) {
        unsigned char *piece = early.pieces[i];
        ASSERT_NE(piece, nullptr) << i;
        EXPECT_TRUE(
            std::all_of(piece, piece + EARLY_PIECE_SIZE, [i](unsigned char c) { return c == i; }));
        from_arena += malloc_usable_size(piece) == 0;
        free(piece);
    }
    EXPECT_GT(from_arena, 0u);
    EXPECT_LT(from_arena, size_t{EARLY_PIECES});
}

TEST(Allocate, NothingIsFreedByNull) {
    free(nullptr);
    EXPECT_EQ(malloc_usable_size(nullptr), 0u);
}

TEST(Allocate, ZeroBytesAreUnique) {
    std::set<void *> seen;
    for (int i = 0; i < 1000; i++) {
        void *pointers[] = {malloc(0), calloc(0, 8), calloc(8, 0), aligned_alloc(64, 0)};
        for (void *ptr : pointers) {
            ASSERT_NE(ptr, nullptr);
            ASSERT_TRUE(seen.insert(ptr).second);
        }
    }
    for (void *ptr : seen) {
        free(ptr);
    }
}

TEST(Allocate, EverySizeIsAlignedUsableAndKeptApart) {
    std::vector<std::pair<void *, size_t>> all;
    for (size_t size = 1; size < 3000000; size += size / 7 + 1) {
        void *ptr = malloc(size);
        ASSERT_NE(ptr, nullptr) << size;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % 16, 0u) << size;
        EXPECT_GE(malloc_usable_size(ptr), size);
        fill(ptr, size, int(all.size()));
        all.emplace_back(ptr, size);
    }
    for (size_t i = 0; i < all.size(); i++) {
        EXPECT_TRUE(is_filled(all[i].first, all[i].second, int(i))) << all[i].second;
        free(all[i].first);
    }
}

TEST(Allocate, AllComesFromOnePool) {
    umf_memory_pool_handle_t pool = heap();
    ASSERT_NE(pool, nullptr);
    for (size_t size : {size_t{1}, size_t{100}, size_t{10000}, size_t{1000000}}) {
        void *pointers[] = {malloc(heap_size(size)), calloc(1, heap_size(size)),
                            realloc(nullptr, heap_size(size)), aligned_alloc(64, heap_size(size))};
        for (void *ptr : pointers) {
            EXPECT_EQ(pool_of(ptr), pool) << size;
            free(ptr);
        }
    }
}

TEST(Allocate, ThePoolStandsOnAnOsProvider) {
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfPoolGetMemoryProvider(heap(), &provider), UMF_RESULT_SUCCESS);
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(name, "umf_proxy");
    size_t size = 0;
    const bool is_shared = is_option("page.disposition=");
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size) == UMF_RESULT_SUCCESS, is_shared);
}

TEST(Allocate, PropertiesAreKnown) {
    const size_t bytes = heap_size(100000);
    char *ptr = static_cast<char *>(malloc(bytes));
    umf_memory_properties_handle_t properties = nullptr;
    ASSERT_EQ(umfGetMemoryPropertiesHandle(ptr + 10, &properties), UMF_RESULT_SUCCESS);
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POOL_HANDLE, &pool, sizeof(pool)),
        UMF_RESULT_SUCCESS);
    EXPECT_EQ(pool, heap());
    free(ptr);
}

TEST(Allocate, TooMuchGivesNull) {
    errno = 0;
    sink = malloc(huge);
    EXPECT_EQ(sink, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    sink = malloc(largest);
    EXPECT_EQ(sink, nullptr);
    sink = aligned_alloc(4096, largest - 4095);
    EXPECT_EQ(sink, nullptr);
    void *ptr = malloc(100);
    fill(ptr, 100, 1);
    errno = 0;
    sink = realloc(ptr, huge);
    EXPECT_EQ(sink, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(is_filled(ptr, 100, 1)) << "a failed realloc leaves the block as it is";
    free(ptr);
}

TEST(Allocate, CallocChecksTheProduct) {
    errno = 0;
    sink = calloc(huge, 2);
    EXPECT_EQ(sink, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    sink = calloc(huge, huge);
    EXPECT_EQ(sink, nullptr);
    sink = calloc(huge / 1024, 2048 + 8);
    EXPECT_EQ(sink, nullptr);
}

TEST(Allocate, CallocGivesZeroesWhereOthersWrote) {
    for (size_t size : {16, 100, 5000, 50000, 1 << 20, (1 << 20) + 5000, 5 << 20}) {
        void *dirty = make(size);
        std::memset(dirty, 0xA5, size);
        free(dirty);
        void *ptr = calloc(size, 1);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(is_zero(ptr, size)) << size;
        free(ptr);
    }
}

TEST(Allocate, AlignedAlloc) {
    for (size_t alignment = 1; alignment <= size_t{4} << 20; alignment *= 2) {
        for (size_t size : {size_t{1}, size_t{100}, alignment, 3 * alignment}) {
            void *ptr = aligned_alloc(alignment, size);
            ASSERT_NE(ptr, nullptr) << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment, 0u);
            std::memset(ptr, 1, size);
            free(ptr);
        }
    }
}

TEST(Allocate, AlignmentThatIsNoPowerOfTwo) {
    for (volatile size_t alignment : {0, 3, 24, 4097}) {
        errno = 0;
        sink = aligned_alloc(alignment, 100);
        EXPECT_EQ(sink, nullptr) << alignment;
        EXPECT_EQ(errno, EINVAL);
    }
}

TEST(Realloc, NullIsMalloc) {
    void *ptr = realloc(nullptr, 100);
    ASSERT_NE(ptr, nullptr);
    fill(ptr, 100, 1);
    free(ptr);
}

TEST(Realloc, ZeroFreesAndGivesNull) {
    void *ptr = make(heap_size(100));
    const size_t count = heap_count();
    sink = realloc(ptr, 0);
    EXPECT_EQ(heap_count(), count - 1);
    EXPECT_EQ(sink, nullptr);
}

TEST(Realloc, KeepsContents) {
    size_t size = 1;
    void *ptr = make(size);
    fill(ptr, size, 3);
    for (size_t next : {10, 16, 17, 100, 90, 5000, 4000, 40000, 400000, 4000000, 300000, 64, 5}) {
        ptr = realloc(ptr, next);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(is_filled(ptr, std::min(size, next), 3)) << size << " to " << next;
        fill(ptr, next, 3);
        size = next;
    }
    free(ptr);
}

TEST(Realloc, InItsPlaceIsSeenByARecording) {
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    if (threshold() > 0 || umfRecordStart(&params) != UMF_RESULT_SUCCESS) {
        GTEST_SKIP() << "small sizes are not of the pool, or nothing is recorded here";
    }
    umf_record_state_report_t before = UMF_RECORD_STATE_REPORT_INIT, after = before;
    void *ptr = make(97);
    umfRecordGetState(&before);
    sink = realloc(ptr, 112);
    umfRecordGetState(&after);
    EXPECT_EQ(sink, ptr);
    EXPECT_EQ(after.events - before.events, 2u) << "a free and an allocation";
    free(sink);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

TEST(Probe, Answers) {
    EXPECT_EQ(malloc_usable_size(reinterpret_cast<void *>(1)), 0xDEADBEEFu);
}

TEST(Errno, FreeKeepsIt) {
    for (size_t size : {size_t{10}, size_t{100000}, size_t{200} << 20}) {
        void *ptr = make(size);
        errno = 4711;
        free(ptr);
        EXPECT_EQ(errno, 4711) << size;
    }
    void *foreign = __libc_memalign(64, 100);
    ASSERT_NE(foreign, nullptr);
    errno = 4711;
    free(foreign);
    EXPECT_EQ(errno, 4711);
}

// Memory of the C library's own functions stays its own.
TEST(Foreign, IsRecognised) {
    void *ptr = __libc_memalign(4096, heap_size(5000));
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(pool_of(ptr), nullptr);
    EXPECT_GE(malloc_usable_size(ptr), heap_size(5000));
    fill(ptr, 5000, 2);
    ptr = realloc(ptr, 200000);
    EXPECT_TRUE(is_filled(ptr, 5000, 2));
    EXPECT_EQ(pool_of(ptr), nullptr);
    free(ptr);
}

TEST(Foreign, TheCLibraryUsesOurs) {
    char *copy = strdup(std::string(heap_size(100), 'x').c_str());
    EXPECT_EQ(pool_of(copy), heap());
    free(copy);
    char *line = nullptr;
    size_t room = 0;
    FILE *file = fopen("/proc/self/status", "r");
    ASSERT_NE(file, nullptr);
    EXPECT_GT(getline(&line, &room, file), 0);
    fclose(file);
    free(line);
}

TEST(Threshold, DecidesByTheSizeAsked) {
    if (threshold() == 0) {
        GTEST_SKIP() << "no threshold is set in this run";
    }
    for (size_t size : {size_t{0}, size_t{1}, threshold() - 1}) {
        EXPECT_EQ(pool_of(sink = malloc(size)), nullptr) << size;
        free(sink);
        EXPECT_EQ(pool_of(sink = calloc(1, size)), nullptr) << size;
        free(sink);
        EXPECT_EQ(pool_of(sink = aligned_alloc(16, size)), nullptr) << size;
        free(sink);
    }
    EXPECT_EQ(pool_of(sink = malloc(threshold())), heap());
    free(sink);
    EXPECT_EQ(pool_of(sink = calloc(1, threshold())), heap());
    free(sink);
    EXPECT_EQ(pool_of(sink = aligned_alloc(16, threshold())), heap());
    free(sink);
}

TEST(Threshold, ReallocStaysWithTheAllocator) {
    if (threshold() == 0) {
        GTEST_SKIP() << "no threshold is set in this run";
    }
    void *small = make(threshold() - 1);
    fill(small, threshold() - 1, 5);
    small = realloc(small, 1000000);
    EXPECT_EQ(pool_of(small), nullptr);
    EXPECT_TRUE(is_filled(small, threshold() - 1, 5));
    EXPECT_GE(malloc_usable_size(small), 1000000u);
    free(small);
    void *large = make(1000000);
    fill(large, 1000, 6);
    large = realloc(large, 1);
    EXPECT_EQ(pool_of(large), heap());
    EXPECT_TRUE(is_filled(large, 1, 6));
    free(large);
}

TEST(TearDown, MemoryStaysKnownHoweverOftenItIsCalled) {
    void *ptr = make(heap_size(1000));
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(pool_of(ptr), heap());
    free(ptr);
    ptr = make(heap_size(1000));
    EXPECT_EQ(pool_of(ptr), heap());
    free(ptr);
    EXPECT_EQ(umfInit(), UMF_RESULT_SUCCESS);
}

TEST(TearDown, LoadingAndUnloadingLibumf) {
    for (int i = 0; i < 50; i++) {
        void *library = dlopen(UMF_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        auto init = reinterpret_cast<umf_result_t (*)(void)>(dlsym(library, "umfInit"));
        auto down = reinterpret_cast<umf_result_t (*)(void)>(dlsym(library, "umfTearDown"));
        EXPECT_EQ(init, umfInit) << "the proxy and the program share one libumf";
        EXPECT_EQ(init(), UMF_RESULT_SUCCESS);
        void *ptr = make(heap_size(1000));
        EXPECT_EQ(down(), UMF_RESULT_SUCCESS);
        dlclose(library);
        EXPECT_EQ(pool_of(ptr), heap());
        free(ptr);
    }
}

TEST(Fork, ChildGoesOn) {
    std::vector<void *> blocks;
    for (size_t size = 1; size < 500000; size *= 3) {
        blocks.push_back(make(size));
        fill(blocks.back(), size, 1);
    }
    EXPECT_EQ(child([&] {
                  bool is_good = true;
                  size_t size = 1;
                  for (void *block : blocks) {
                      is_good = is_good && is_filled(block, size, 1);
                      void *moved = realloc(block, size + 1000);
                      is_good = is_good && is_filled(moved, size, 1);
                      free(moved);
                      size *= 3;
                  }
                  void *ptr = make(heap_size(100));
                  is_good = is_good && pool_of(ptr) == heap();
                  free(ptr);
                  return is_good;
              }),
              0);
    for (void *block : blocks) {
        free(block);
    }
}

// Shared pages are the parent's and the child's. Allocations and frees of the child must not get in
// the way of the parent.
TEST(Fork, ChildLeavesWhatItInheritedAlone) {
    const size_t size = heap_size(200);
    std::vector<void *> old;
    for (int i = 0; i < 2000; i++) {
        old.push_back(make(size));
        fill(old.back(), size, i);
    }
    for (int i = 0; i < 2000; i += 2) {
        free(old[size_t(i)]);
    }
    const int status = child([&] {
        for (int i = 1; i < 2000; i += 2) {
            free(old[size_t(i)]);
        }
        for (int i = 0; i < 4000; i++) {
            std::memset(make(size), 0xEE, size);
        }
        return true;
    });
    EXPECT_EQ(status, 0);
    for (int i = 1; i < 2000; i += 2) {
        EXPECT_TRUE(is_filled(old[size_t(i)], size, i)) << i;
        free(old[size_t(i)]);
    }
}

TEST(Fork, TwoHundredTimesWhileThreadsAllocate) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
        threads.emplace_back([&stop, t] {
            for (size_t i = 0; !stop; i++) {
                void *a = malloc((i * 37 + size_t(t)) % 70000);
                void *b = calloc(1, i % 300);
                a = realloc(a, i % 5000 + 1);
                free(b);
                free(a);
                if (i % 64 == 0) {
                    std::this_thread::yield();
                }
            }
        });
    }
    for (int i = 0; i < 200; i++) {
        ASSERT_EQ(child([i] {
                      for (size_t n = 1; n < 100000; n += n / 3 + size_t(i) % 7 + 1) {
                          void *ptr = malloc(n);
                          if (!ptr) {
                              return false;
                          }
                          std::memset(ptr, 1, n);
                          free(ptr);
                      }
                      // A new thread takes over memory that the C library allocated for one of the
                      // parent's, which still uses it if the pages are shared.
                      if (!is_option("page.disposition=")) {
                          std::thread([] { free(make(1000)); }).join();
                      }
                      return true;
                  }),
                  0)
            << i;
    }
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
}

namespace {

// Handlers registered before and after those of the libraries, called with their locks held.
void allocate_in_handler() {
    void *ptr = malloc(40000);
    free(malloc(100));
    free(ptr);
}

} // namespace

TEST(Fork, HandlersMayAllocate) {
    ASSERT_EQ(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler), 0);
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(child([] { return make(100) != nullptr; }), 0);
    }
}

TEST(Threads, WhatOneAllocatesAnotherFrees) {
    constexpr int COUNT = 20000;
    std::vector<std::atomic<void *>> slots(64);
    std::thread producer([&] {
        for (int i = 0; i < COUNT; i++) {
            const size_t size = size_t(i) * 17 % 3000 + sizeof(size_t);
            void *ptr = malloc(size);
            *static_cast<size_t *>(ptr) = size;
            std::memset(static_cast<char *>(ptr) + sizeof(size_t), i, size - sizeof(size_t));
            void *old = slots[size_t(i) % slots.size()].exchange(ptr);
            free(old);
        }
    });
    size_t freed = 0;
    std::thread consumer([&] {
        for (int i = 0; i < COUNT; i++) {
            void *ptr = slots[size_t(i) % slots.size()].exchange(nullptr);
            if (ptr) {
                freed += malloc_usable_size(ptr) >= *static_cast<size_t *>(ptr);
                free(ptr);
            }
        }
    });
    producer.join();
    consumer.join();
    for (auto &slot : slots) {
        free(slot.exchange(nullptr));
    }
}

namespace {

size_t resident_kib() {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total = 0, resident = 0;
    if (!file || fscanf(file, "%zu %zu", &total, &resident) != 2) {
        resident = 0;
    }
    if (file) {
        fclose(file);
    }
    return resident * 4;
}

std::vector<pthread_key_t> keys;

void use_and_free(void *ptr) {
    free(ptr);
    free(make(100));
}

void end_some_threads() {
    for (int i = 0; i < 500; i++) {
        std::thread([] {
            for (pthread_key_t key : keys) {
                pthread_setspecific(key, malloc(key + 20));
            }
            free(make(5000));
        }).join();
    }
}

} // namespace

// More keys than a thread has room for, so that the C library allocates a table for them, which it
// frees after the last destructor has run.
TEST(Threads, EndingOnesLeaveNothingBehind) {
    keys.resize(80);
    for (pthread_key_t &key : keys) {
        ASSERT_EQ(pthread_key_create(&key, use_and_free), 0);
    }
    end_some_threads();
    const size_t begin = resident_kib();
    end_some_threads();
    end_some_threads();
    EXPECT_LT(resident_kib(), begin + 1000) << "1,000 threads of some KiB each";
    for (pthread_key_t key : keys) {
        pthread_key_delete(key);
    }
}

// --- inside: the system calls of this program allocate, too -------------------------------------

namespace {
std::atomic<bool> allocates{false};
std::atomic<int> nested{0};
void *of_the_heap; // freed by the first one that is inside

void allocate_inside() {
    if (!allocates) {
        return;
    }
    nested++;
    void *ptr = malloc(100);
    ptr = realloc(ptr, 1000);
    free(ptr);
    free(calloc(1, 50000));
    free(aligned_alloc(64, 640));
    if (of_the_heap) {
        of_the_heap = realloc(of_the_heap, heap_size(3000));
        free(of_the_heap);
        of_the_heap = nullptr;
    }
}

template <typename F> F next(const char *name) {
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset) noexcept {
    static const auto real = next<void *(*)(void *, size_t, int, int, int, off_t)>("mmap");
    allocate_inside();
    return real(addr, size, prot, flags, fd, offset);
}

extern "C" int munmap(void *addr, size_t size) noexcept {
    static const auto real = next<int (*)(void *, size_t)>("munmap");
    allocate_inside();
    return real(addr, size);
}

extern "C" int madvise(void *addr, size_t size, int advice) noexcept {
    static const auto real = next<int (*)(void *, size_t, int)>("madvise");
    allocate_inside();
    return real(addr, size, advice);
}

TEST(Inside, RequestsAreServed) {
    of_the_heap = make(heap_size(2000));
    const size_t count = heap_count();
    allocates = true;
    void *blocks[20];
    for (void *&block : blocks) {
        block = make(size_t{10} << 20);
    }
    for (void *block : blocks) {
        free(block);
    }
    allocates = false;
    EXPECT_GT(nested, 0);
    EXPECT_EQ(of_the_heap, nullptr);
    EXPECT_EQ(heap_count(), count - 1) << "memory freed inside is freed when the thread is out";
}

// --- the end
// --------------------------------------------------------------------------------------

namespace {

// Runs after main, and after the destructors of this file.
void *late;

__attribute__((destructor(101))) void allocate_at_the_end() {
    free(late);
    void *ptr = malloc(3000);
    std::memset(ptr, 1, 3000);
    ptr = realloc(ptr, 300000);
    free(ptr);
}

void allocate_at_exit() {
    late = malloc(777);
    std::string text(5000, 'x');
    free(make(text.size()));
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    atexit(allocate_at_exit);
    return RUN_ALL_TESTS();
}
