// How often a call walks the pointer map. The page of the map's flat table that all walks for the
// block read is made inaccessible: each read is a fault, is counted, and is made in a single step.

#include <csignal>
#include <string>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/queue.h>
#include <umf/text.h>

#include "fakes/scale.h"
#include "fakes/waiting_provider.h"

extern "C" {
extern uint64_t *umf_map_global_flat; // track/map.h is not for C++
}

namespace {

#if defined(__x86_64__) && !UMF_TEST_ASAN && !UMF_TEST_TSAN

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = 5000;
char first, second; // queues

constexpr long long SINGLE_STEP = 0x100; // the flag TF
constexpr size_t PAGE = 4096;

char *watched;
volatile int reads;

void on_fault(int, siginfo_t *info, void *context) {
    const char *at = static_cast<const char *>(info->si_addr);
    if (at < watched || at >= watched + PAGE) {
        signal(SIGSEGV, SIG_DFL); // a fault of its own
        return;
    }
    reads = reads + 1;
    mprotect(watched, PAGE, PROT_READ | PROT_WRITE);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] |= SINGLE_STEP;
}

void on_step(int, siginfo_t *, void *context) {
    mprotect(watched, PAGE, PROT_NONE);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~SINGLE_STEP;
}

void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(number, &action, nullptr);
}

// Walks of the map that `call` makes for addresses in the GiB of `ptr`.
template <typename F> int lookups(const void *ptr, const F &call) {
    const uintptr_t slot = reinterpret_cast<uintptr_t>(&umf_map_global_flat[(uintptr_t)ptr >> 21]);
    watched = reinterpret_cast<char *>(slot / PAGE * PAGE);
    reads = 0;
    handle(SIGSEGV, on_fault);
    handle(SIGTRAP, on_step);
    mprotect(watched, PAGE, PROT_NONE);
    call();
    mprotect(watched, PAGE, PROT_READ | PROT_WRITE);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
    return reads;
}

class Lookups : public testing::TestWithParam<const char *> {
  protected:
    WaitingProvider source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        provider = source.create();
        if (umfPoolCreateFromTextOver(GetParam(), provider, &pool) != OK) {
            pool = nullptr;
            GTEST_SKIP() << "this build has no such pool";
        }
        if (!umf_map_global_flat) {
            GTEST_SKIP() << "the table is not reserved";
        }
        void *warm = umfPoolMallocOn(pool, SIZE, 0, &first); // makes the stream caches
        EXPECT_EQ(umfFreeOn(warm, &first), OK);
        EXPECT_EQ(umfFreeOn(umfPoolMallocOn(pool, SIZE, 0, &second), &second), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    static void free_on(void *ptr, void *queue) {
        EXPECT_EQ(lookups(ptr, [&] { EXPECT_EQ(umfFreeOn(ptr, queue), OK); }), 1);
    }
};

TEST_P(Lookups, AFreeOnTheSameQueueMakesOne) {
    free_on(umfPoolMallocOn(pool, SIZE, 0, &first), &first);
}

TEST_P(Lookups, AFreeOfABlockWithoutAQueueMakesOne) {
    free_on(umfPoolMalloc(pool, SIZE), &first);
}

TEST_P(Lookups, AFreeOnAnotherQueueMakesOne) {
    free_on(umfPoolMallocOn(pool, SIZE, 0, &first), &second);
}

TEST_P(Lookups, AFreeOfABlockThatAnotherQueueUsesMakesOne) {
    void *ptr = umfPoolMallocOn(pool, SIZE, 0, &first);
    EXPECT_EQ(lookups(ptr, [&] { EXPECT_EQ(umfUseOn(ptr, &second), OK); }), 1);
    free_on(ptr, &first);
}

INSTANTIATE_TEST_SUITE_P(Each, Lookups,
                         testing::Values("disjoint", "proxy", "coalescing", "jemalloc"),
                         [](const auto &param) { return std::string(param.param); });

#else

TEST(Lookups, AreCountedOnX86Only) {
    GTEST_SKIP() << "needs single steps, and a program without a sanitizer";
}

#endif

} // namespace
