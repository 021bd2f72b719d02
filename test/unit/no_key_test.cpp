// No pthread key is left: the library does not notice that threads end, and never reads what they
// leave. The keys are taken before the library's first block is made, so this is a program alone.

#include <string>

#include <pthread.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

void take_all_keys() {
    pthread_key_t key;
    while (pthread_key_create(&key, nullptr) == 0) {
    }
}

// With a stack that the C library unmaps at once, and the thread-local memory in it.
void run_in_large_thread(void *(*body)(void *), void *arg) {
    pthread_attr_t attributes;
    pthread_t thread;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{128} << 20), 0);
    ASSERT_EQ(pthread_create(&thread, &attributes, body, arg), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    pthread_attr_destroy(&attributes);
}

void *allocate_and_end(void *pool) {
    void *blocks[200];
    for (void *&block : blocks) {
        block = umfPoolMalloc(static_cast<umf_memory_pool_handle_t>(pool), 64);
    }
    for (void *block : blocks) {
        EXPECT_EQ(umfFree(block), OK);
    }
    return nullptr;
}

TEST(NoKey, NothingOfAThreadThatHasEndedIsRead) {
    take_all_keys();
    for (const char *kind : {"disjoint", "proxy", "coalescing"}) {
        SCOPED_TRACE(kind);
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText((std::string(kind) + " over os").c_str(), &pool), OK)
            << umfTextError();
        for (int i = 0; i < 4; i++) {
            ASSERT_NO_FATAL_FAILURE(run_in_large_thread(allocate_and_end, pool));
        }
        umfPoolTrimMemory(pool, 0);
        EXPECT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

// jemalloc needs a key of its own.
TEST(NoKey, APoolThatNeedsAKeySaysSo) {
    take_all_keys();
    umf_memory_pool_handle_t pool = nullptr;
    umf_result_t result = umfPoolCreateFromText("jemalloc over os", &pool);
    if (result == UMF_RESULT_SUCCESS) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        GTEST_SKIP() << "jemalloc has its key already, or needs none here";
    }
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        GTEST_SKIP() << "the build has no jemalloc";
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_RESOURCES) << umfTextError();
    EXPECT_NE(std::string(umfTextError()).find("no thread-specific key left"), std::string::npos)
        << umfTextError();
}

} // namespace
