/* Many blocks of a pool at once. */
#ifndef UMF_TEST_FAKES_BLOCKS_H
#define UMF_TEST_FAKES_BLOCKS_H

#include <cstddef>
#include <functional>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/scale.h"
#include "fakes/threads.h"

inline std::vector<void *> alloc_blocks(umf_memory_pool_handle_t pool, size_t n, size_t size) {
    std::vector<void *> list;
    for (size_t i = 0; i < n; i++) {
        list.push_back(umfPoolMalloc(pool, size));
        EXPECT_NE(list.back(), nullptr) << size;
    }
    return list;
}

inline void free_blocks(umf_memory_pool_handle_t pool, const std::vector<void *> &list) {
    for (void *p : list) {
        EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    }
}

// Six threads allocate, and free blocks of others; what is
// left at the end is returned.
inline std::vector<void *> exchange_blocks(umf_memory_pool_handle_t pool,
                                           const std::function<size_t(unsigned)> &size_of) {
    std::mutex lock;
    std::vector<void *> shared;
    run_threads<unsigned>(6, [&](unsigned t) {
        std::mt19937 random(t);
        for (size_t i = 0; i < scaled(3000); i++) {
            void *p = umfPoolMalloc(pool, size_of(static_cast<unsigned>(random())));
            ASSERT_NE(p, nullptr);
            *static_cast<void **>(p) = p;
            if (random() % 4 == 0) {
                std::lock_guard<std::mutex> guard(lock);
                shared.push_back(p);
                std::swap(shared[random() % shared.size()], shared.back());
                p = shared.size() < 8 ? nullptr : shared.back();
                shared.resize(shared.size() - (p != nullptr));
            }
            if (p) {
                EXPECT_EQ(*static_cast<void **>(p), p) << "two had the same block";
                EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
            }
            if (i % 500 == 0) {
                umfPoolTrimMemory(pool, 0);
            }
        }
    });
    return shared;
}

#endif
