/*
 * With few addresses left (ulimit -v), everything ends in an answer. Nothing here may start a kind
 * of pool before the children do: a pool that has its memory requests none.
 */
#include <cstddef>
#include <cstdio>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/text.h>

#include "fakes/scale.h"
#include "fakes/self.h"

namespace {

constexpr bool has_shadow = UMF_TEST_ASAN || UMF_TEST_TSAN; // a sanitizer needs addresses itself

size_t addresses_used() {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        EXPECT_EQ(fscanf(file, "%zu", &pages), 1);
        fclose(file);
    }
    return pages * size_t(sysconf(_SC_PAGESIZE));
}

void use_a_pool(const char *text) {
    umf_memory_pool_handle_t pool = nullptr;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        return;
    }
    for (size_t size = 8; size <= size_t(1) << 20; size *= 8) {
        void *ptr = umfPoolMalloc(pool, size);
        if (ptr) {
            umfFree(ptr);
        }
    }
    umfPoolDestroy(pool);
}

// Exits with 0 if every call returned.
[[noreturn]] void child(size_t limit) {
    alarm(60);
    rlimit few = {limit, limit};
    if (setrlimit(RLIMIT_AS, &few) != 0 || umfTearDown() != UMF_RESULT_SUCCESS) {
        _exit(1);
    }
    umfInit();
    for (const char *text : {"proxy over os", "disjoint over os", "coalescing over os",
                             "jemalloc over os", "scalable over os", "proxy over linux_vmm"}) {
        use_a_pool(text);
    }
    _exit(0);
}

// At 256 KiB and at 2,304 KiB jemalloc ended the process when it was started.
TEST(FewAddresses, EndInAnAnswer) {
    if (has_shadow || is_emulated()) {
        GTEST_SKIP() << "sanitizers and emulators do not run under a limit of addresses";
    }
    size_t used = addresses_used();
    ASSERT_GT(used, 0u);
    for (size_t left = 0; left <= size_t(12) << 20; left += size_t(16) << 10) {
        pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            child(used + left);
        }
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_TRUE(WIFEXITED(status)) << (left >> 10) << " KiB: signal " << WTERMSIG(status);
        ASSERT_EQ(WEXITSTATUS(status), 0) << (left >> 10) << " KiB";
    }
}

constexpr size_t limit = size_t(4300) << 20; // once nearly all of it went for books

// Run by the next test, in a process whose addresses were limited before the library came.
TEST(FewAddresses, DISABLED_AreLeft) {
    EXPECT_LT(addresses_used(), limit / 8);
}

TEST(FewAddresses, AreNotTakenByTheLibrary) {
    if (has_shadow || is_emulated()) {
        GTEST_SKIP() << "sanitizers and emulators do not run under a limit of addresses";
    }
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        rlimit few = {limit, limit};
        if (setrlimit(RLIMIT_AS, &few) == 0) {
            execl("/proc/self/exe", "self", "--gtest_filter=FewAddresses.DISABLED_AreLeft",
                  "--gtest_also_run_disabled_tests", nullptr);
        }
        _exit(2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

} // namespace
