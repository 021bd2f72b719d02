/*
 * Two copies of the library in one process, a static one in the program and a shared one
 * that is loaded. Each keeps its own books: handles and pointers belong to the copy they came from,
 * the other one refuses them as unknown.
 */
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/threads.h"
#include "fakes/umf_functions.h"

#ifdef UMF_TEST_LIBRARY

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

// One copy and what it made.
struct Copy : UmfFunctions {
    umf_memory_provider_handle_t provider = nullptr;
    std::vector<umf_memory_pool_handle_t> pools;
    std::vector<void *> live;

    void work() {
        umf_os_memory_provider_params_handle_t params = nullptr;
        ASSERT_EQ(params_create(&params), OK);
        ASSERT_EQ(provider_create(os_ops(), params, &provider), OK);
        EXPECT_EQ(params_destroy(params), OK);
        for (const umf_memory_pool_ops_t *ops : {proxy(), disjoint(), jemalloc()}) {
            umf_memory_pool_handle_t pool = nullptr;
            if (ops) {
                ASSERT_EQ(pool_create(ops, provider, nullptr, 0, &pool), OK);
                pools.push_back(pool);
            }
        }
        for (size_t i = 0; i < 300; i++) {
            live.push_back(pool_malloc(pools[i % pools.size()], 8 + i * 50));
            ASSERT_NE(live.back(), nullptr);
            memset(live.back(), 1, 8 + i * 50);
        }
    }
    void end() {
        for (void *p : live) {
            EXPECT_EQ(free(p), OK);
        }
        for (umf_memory_pool_handle_t pool : pools) {
            EXPECT_EQ(pool_destroy(pool), OK);
        }
        EXPECT_EQ(provider_destroy(provider), OK);
        live.clear();
        pools.clear();
    }
};

class Copies : public testing::Test {
  protected:
    Copy mine, other;
    void *library = nullptr;

    void SetUp() override {
        library = dlopen(UMF_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        other.find(library);
#define UMF_COPIED(member, function)                                                               \
    mine.member = function;                                                                        \
    EXPECT_NE(other.member, mine.member) << #function ": there is one copy only";
        UMF_COPIED_FUNCTIONS
#undef UMF_COPIED
        ASSERT_EQ(mine.init(), OK); // links the static copy's start
    }
    void TearDown() override {
        EXPECT_EQ(mine.tear_down(), OK);
        EXPECT_EQ(dlclose(library), 0);
    }
};

TEST_F(Copies, KeepTheirOwnBooks) {
    ASSERT_NO_FATAL_FAILURE(mine.work());
    ASSERT_NO_FATAL_FAILURE(other.work());
    for (Copy *from : {&mine, &other}) {
        Copy *to = from == &mine ? &other : &mine;
        umf_memory_pool_handle_t found = nullptr;
        for (void *p : from->live) {
            EXPECT_EQ(from->by_ptr(p, &found), OK);
            EXPECT_EQ(to->by_ptr(p, &found), BAD);
            EXPECT_EQ(to->free(p), BAD);
        }
    }
    mine.end();
    other.end();
}

TEST_F(Copies, ShareThreads) {
    ASSERT_NO_FATAL_FAILURE(mine.work());
    ASSERT_NO_FATAL_FAILURE(other.work());
    run_threads(4, [&](int) {
        for (size_t i = 0; i < 500; i++) {
            for (Copy *copy : {&mine, &other}) {
                void *p = copy->pool_malloc(copy->pools[i % copy->pools.size()], 8 + i);
                EXPECT_EQ(copy->free(p), OK);
            }
        }
    });
    mine.end();
    other.end();
}

TEST_F(Copies, BothSurviveAFork) {
    ASSERT_NO_FATAL_FAILURE(mine.work());
    ASSERT_NO_FATAL_FAILURE(other.work());
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        alarm(60);
        mine.end();
        other.end();
        _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    mine.end();
    other.end();
}

TEST_F(Copies, HaveTheirOwnSettings) {
    int level = 1, got = -1;
    ASSERT_EQ(mine.ctl_set("umf.logger.level", &level, sizeof(level)), OK);
    ASSERT_EQ(other.ctl_get("umf.logger.level", &got, sizeof(got)), OK);
    EXPECT_EQ(got, 3);
    level = 3;
    ASSERT_EQ(mine.ctl_set("umf.logger.level", &level, sizeof(level)), OK);
}

TEST_F(Copies, OneEndsAndTheOtherGoesOn) {
    ASSERT_NO_FATAL_FAILURE(mine.work());
    ASSERT_NO_FATAL_FAILURE(other.work());
    EXPECT_EQ(other.tear_down(), OK);
    EXPECT_EQ(other.pool_destroy(other.pools[0]), UMF_RESULT_ERROR_UNKNOWN);
    mine.end();
    EXPECT_EQ(other.init(), OK);
    EXPECT_EQ(other.pool_destroy(other.pools[0]), OK);
}

} // namespace

#else

TEST(Copies, KeepTheirOwnBooks) {
    GTEST_SKIP() << "this build has no shared library";
}

#endif
