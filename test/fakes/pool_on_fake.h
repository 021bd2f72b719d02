/* A pool over the fake provider, with every call checked: a base of fixtures. */
#ifndef UMF_TEST_FAKES_POOL_ON_FAKE_H
#define UMF_TEST_FAKES_POOL_ON_FAKE_H

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>

#include "fakes/fake_provider.h"

class PoolOnFake {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void open(const umf_memory_pool_ops_t *ops) {
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), UMF_RESULT_SUCCESS);
    }
    // Also after an `open` that failed, or none.
    void close() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    void *alloc(size_t size) {
        void *p = umfPoolMalloc(pool, size);
        EXPECT_NE(p, nullptr) << size;
        return p;
    }
    void free(void *p) {
        EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    }
    size_t count() {
        size_t n = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &n, sizeof(n), pool),
                  UMF_RESULT_SUCCESS);
        return n;
    }
};

#endif
