/*
 * libumf is loaded late, into a program that is not linked with it and has loaded many
 * libraries with thread-local data before; loaded and closed again and again, with threads that
 * outlive it.
 */
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/scale.h"
#include "fakes/threads.h"
#include "fakes/umf_functions.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// A library that was opened, and its pools.
struct Library : UmfFunctions {
    void *handle = nullptr;
    std::vector<const umf_memory_pool_ops_t *> pools;

    bool open() {
        handle = dlopen(UMF_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            ADD_FAILURE() << dlerror();
            return false;
        }
        find(handle);
        pools.clear();
        for (const char *name : {"umfProxyPoolOps", "umfDisjointPoolOps", "umfJemallocPoolOps",
                                 "umfCoalescingPoolOps", "umfScalablePoolOps"}) {
            decltype(&umfProxyPoolOps) ops = nullptr;
            must_find(handle, name, &ops);
            if (ops()) {
                pools.push_back(ops());
            }
        }
        return !testing::Test::HasFailure();
    }
    umf_memory_provider_handle_t provider() {
        umf_os_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t made = nullptr;
        EXPECT_EQ(params_create(&params), OK);
        EXPECT_EQ(provider_create(os_ops(), params, &made), OK);
        EXPECT_EQ(params_destroy(params), OK);
        return made;
    }
    void work() {
        umf_memory_provider_handle_t below = provider();
        for (auto ops : pools) {
            umf_memory_pool_handle_t pool = nullptr;
            ASSERT_EQ(pool_create(ops, below, nullptr, 0, &pool), OK);
            run_threads(2, [&](int) {
                for (size_t size = 8; size < 100000; size *= 3) {
                    void *p = pool_malloc(pool, size);
                    EXPECT_NE(p, nullptr);
                    EXPECT_EQ(free(p), OK);
                }
            });
            ASSERT_EQ(pool_destroy(pool), OK);
        }
        EXPECT_EQ(provider_destroy(below), OK);
    }
};

void copy(const std::string &from, const std::string &to) {
    std::ifstream in(from, std::ios::binary);
    std::ofstream out(to, std::ios::binary);
    out << in.rdbuf();
}

void load_many_with_tls() {
    static bool done;
    if (done) {
        return;
    }
    done = true;
    char dir[] = "/tmp/umf_dlopen_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    const std::string plugins = UMF_TEST_PLUGIN_DIR "/umf_test_plugin_";
    for (int i = 0; i < 200; i++) {
        std::string path = std::string(dir) + "/tls" + std::to_string(i) + ".so";
        copy(plugins + "tls.so", path);
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        auto block = reinterpret_cast<char *(*)()>(dlsym(library, "tls_block"));
        ASSERT_NE(block, nullptr);
        block()[0] = 1;
        unlink(path.c_str());
    }
    rmdir(dir);
    ASSERT_NE(dlopen((plugins + "tls_static.so").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr)
        << dlerror();
}

bool is_static() {
    const std::string path = UMF_TEST_LIBRARY;
    return path.size() > 2 && path.substr(path.size() - 2) == ".a";
}

TEST(Dlopen, ProgramIsNotLinkedWithIt) {
    EXPECT_EQ(dlsym(RTLD_DEFAULT, "umfInit"), nullptr) << "the test would prove nothing";
}

TEST(Dlopen, AfterManyOthersAndManyTimes) {
    if (is_static()) {
        GTEST_SKIP() << "this build has no shared library";
    }
    load_many_with_tls();
    size_t rounds = scaled(100);
    for (size_t i = 0; i < rounds && !HasFailure(); i++) {
        Library umf;
        ASSERT_TRUE(umf.open());
        if (i % 3 == 0) {
            EXPECT_EQ(umf.init(), OK);
        }
        umf.work();
        if (i % 3 == 0) {
            EXPECT_EQ(umf.tear_down(), OK);
        }
        EXPECT_EQ(dlclose(umf.handle), 0);
    }
}

// A thread that has used it ends after it was closed.
TEST(Dlopen, ThreadsOutliveIt) {
    if (is_static()) {
        GTEST_SKIP() << "this build has no shared library";
    }
    load_many_with_tls();
    for (size_t i = 0; i < scaled(20) && !HasFailure(); i++) {
        Library umf;
        ASSERT_TRUE(umf.open());
        umf_memory_provider_handle_t provider = umf.provider();
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(
            umf.pool_create(umf.pools[1 + i % (umf.pools.size() - 1)], provider, nullptr, 0, &pool),
            OK);
        std::atomic<int> ready{0};
        std::atomic<bool> go{false};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] {
                EXPECT_EQ(umf.free(umf.pool_malloc(pool, 100)), OK);
                ready++;
                while (!go) {
                    std::this_thread::yield();
                }
            });
        }
        while (ready < 4) {
            std::this_thread::yield();
        }
        if (i % 2) {
            EXPECT_EQ(umf.pool_destroy(pool), OK);
            EXPECT_EQ(umf.provider_destroy(provider), OK);
        }
        EXPECT_EQ(dlclose(umf.handle), 0);
        go = true;
        for (auto &thread : threads) {
            thread.join();
        }
    }
}

TEST(Dlopen, LoadedInAThreadThatEnds) {
    if (is_static()) {
        GTEST_SKIP() << "this build has no shared library";
    }
    for (size_t i = 0; i < scaled(20) && !HasFailure(); i++) {
        std::thread([] {
            Library umf;
            ASSERT_TRUE(umf.open());
            umf.work();
            dlclose(umf.handle);
        }).join();
    }
}

} // namespace
