extern "C" {
#include "object/names.h"
}

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf/experimental/ctl.h>

#include "unit/toy.h"

namespace {

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
const umf_result_t InvalidPath = UMF_RESULT_ERROR_INVALID_CTL_PATH;

template <typename... Args> umf_result_t get(const std::string &path, size_t *out, Args... args) {
    return umfCtlGet(("umf.pool.by_name." + path).c_str(), out, sizeof(*out), args...);
}

TEST(names, which_are_valid) {
    for (const char *name : {"a", "Z", "0", "_", "-", "disjoint", "My-Pool_7"}) {
        EXPECT_TRUE(umf_name_is_valid(name)) << name;
    }
    for (const char *name : {"", " ", "a b", "a.b", "{}", "a/b", "\xc3\xa9", "a\n"}) {
        EXPECT_FALSE(umf_name_is_valid(name)) << name;
    }
    EXPECT_TRUE(umf_name_is_valid(std::string(64, 'x').c_str()));
    EXPECT_FALSE(umf_name_is_valid(std::string(65, 'x').c_str()));
    EXPECT_FALSE(umf_name_is_valid(std::string(1 << 20, 'x').c_str()));
}

TEST(names, order_of_creation_until_destroyed) {
    toy::Pool other("b");
    auto first = std::make_unique<toy::Pool>("a");
    auto second = std::make_unique<toy::Pool>("a");
    toy::Pool third("a");
    EXPECT_EQ(umf_names_count("a"), 3u);
    EXPECT_EQ(umf_names_count("b"), 1u);
    EXPECT_EQ(umf_names_count("c"), 0u);
    auto at = [](const char *name, size_t index) {
        umf_memory_pool_handle_t pool = umf_names_get(name, index);
        if (pool) {
            umf_names_put(pool);
        }
        return pool;
    };
    EXPECT_EQ(at("a", 0), first->handle);
    EXPECT_EQ(at("a", 1), second->handle);
    EXPECT_EQ(at("a", 2), third.handle);
    EXPECT_EQ(at("a", 3), nullptr);
    EXPECT_EQ(at("a", SIZE_MAX), nullptr);
    second.reset();
    EXPECT_EQ(at("a", 1), third.handle);
    first.reset();
    EXPECT_EQ(at("a", 0), third.handle);
    EXPECT_EQ(umf_names_count("a"), 1u);
}

TEST(names, invalid_names_are_not_listed) {
    toy::Pool pool("not valid");
    EXPECT_EQ(umf_names_count("not valid"), 0u);
    toy::Pool longest(std::string(64, 'x')), longer(std::string(65, 'x'));
    EXPECT_EQ(umf_names_count(std::string(64, 'x').c_str()), 1u);
    EXPECT_EQ(umf_names_count(std::string(65, 'x').c_str()), 0u);
}

TEST(by_name, one_pool) {
    toy::Pool pool("a");
    size_t value = 99;
    void *ptr = umfPoolMalloc(pool.handle, 1);
    for (const char *path : {"a.stats.alloc_count", "a.0.stats.alloc_count", "a.count"}) {
        value = 99;
        EXPECT_EQ(get(path, &value), Success) << path;
        EXPECT_EQ(value, 1u) << path;
    }
    EXPECT_EQ(get("{}.stats.alloc_count", &value, "a"), Success);
    EXPECT_EQ(get("{}.{}.stats.alloc_count", &value, "a", size_t{0}), Success);
    EXPECT_EQ(get("{}.{}.stats.alloc_count", &value, "a", 0), Success);
    EXPECT_EQ(get("{}.{}.stats.alloc_count", &value, "a", size_t{1}), InvalidArgument);
    EXPECT_EQ(get("a.{}.{}.{}", &value, size_t{0}, "stats", "alloc_count"), Success);
    EXPECT_EQ(get("a.18446744073709551616.stats.alloc_count", &value), InvalidArgument);
    EXPECT_EQ(umfPoolFree(pool.handle, ptr), Success);
}

TEST(by_name, paths_that_are_none) {
    toy::Pool pool("a");
    pool.object->answer = InvalidPath;
    size_t value;
    for (const char *path : {"a", "a.", "a.0", "a.0.", "a.stats", "a.count.more", "a.Count",
                             "a.0x0.stats.alloc_count"}) {
        EXPECT_EQ(get(path, &value), InvalidPath) << path;
    }
}

TEST(by_name, names_without_pool) {
    size_t value;
    for (const std::string &name : {std::string("nobody"), std::string(254, 'x'),
                                    std::string("sp ace"), std::string("\xff")}) {
        EXPECT_EQ(get(name + ".stats.alloc_count", &value), InvalidArgument) << name;
        EXPECT_EQ(get(name + ".count", &value), InvalidArgument) << name;
        EXPECT_EQ(get(name + ".0.stats.alloc_count", &value), InvalidArgument) << name;
        EXPECT_EQ(umfCtlSet(("umf.pool.by_name." + name + ".a").c_str(), &value, sizeof(value)),
                  InvalidArgument)
            << name;
        EXPECT_EQ(umfCtlExec(("umf.pool.by_name." + name + ".a").c_str(), nullptr, 0),
                  InvalidArgument)
            << name;
    }
}

TEST(by_name, names_have_at_most_254_characters) {
    size_t value;
    std::string longer(255, 'x');
    EXPECT_EQ(get(longer + ".count", &value), InvalidPath);
    EXPECT_EQ(get("{}.count", &value, longer.c_str()), InvalidPath);
    EXPECT_EQ(get("{}.count", &value, std::string(254, 'x').c_str()), InvalidArgument)
        << "a name like any other, unused";
}

/* The element behind the name may be an index or the first node; as an argument it is an index. */
TEST(by_name, arguments_behind_the_name_are_indices) {
    toy::Pool first("a"), second("a");
    size_t value = 99;
    void *ptr = umfPoolMalloc(second.handle, 1);
    EXPECT_EQ(get("{}.{}.stats.alloc_count", &value, "a", size_t{1}), Success);
    EXPECT_EQ(value, 1u);
    EXPECT_EQ(get("a.{}.{}.alloc_count", &value, size_t{0}, "stats"), Success);
    EXPECT_EQ(value, 0u);
    EXPECT_EQ(get("a.{}.stats.alloc_count", &value, size_t{2}), InvalidArgument);
    EXPECT_EQ(get("a.{}.stats.alloc_count", &value, SIZE_MAX), InvalidArgument);
    EXPECT_EQ(get("a.{}.count", &value, size_t{0}), InvalidArgument) << "count with an index";
    EXPECT_EQ(get("a.0.count", &value), InvalidArgument);
    EXPECT_EQ(get("{}.count", &value, "a", "surplus"), Success);
    EXPECT_EQ(value, 2u);
    umfPoolFree(second.handle, ptr);
}

TEST(by_name, several_pools) {
    toy::Pool first("a"), second("a");
    size_t value = 0;
    void *ptr = umfPoolMalloc(second.handle, 1);
    EXPECT_EQ(get("a.count", &value), Success);
    EXPECT_EQ(value, 2u);
    EXPECT_EQ(get("a.stats.alloc_count", &value), InvalidArgument);
    EXPECT_EQ(get("a.0.stats.alloc_count", &value), Success);
    EXPECT_EQ(value, 0u);
    EXPECT_EQ(get("a.1.stats.alloc_count", &value), Success);
    EXPECT_EQ(value, 1u);
    EXPECT_EQ(get("a.2.stats.alloc_count", &value), InvalidArgument);
    umfPoolFree(second.handle, ptr);
}

TEST(by_name, count_is_only_read) {
    toy::Pool pool("a");
    size_t value = 0;
    EXPECT_EQ(get("a.0.count", &value), InvalidArgument);
    EXPECT_EQ(umfCtlSet("umf.pool.by_name.a.count", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(umfCtlExec("umf.pool.by_name.a.count", nullptr, 0), InvalidArgument);
    EXPECT_EQ(umfCtlGet("umf.pool.by_name.a.count", &value, 4), InvalidArgument);
}

TEST(by_name, writes_reach_every_pool_and_the_first_error_counts) {
    toy::Pool first("a"), other("b"), second("a"), third("a");
    second.object->answer = UMF_RESULT_ERROR_USER_SPECIFIC;
    third.object->answer = UMF_RESULT_ERROR_NOT_SUPPORTED;
    for (toy::Pool *pool : {&first, &second, &third}) {
        pool->object->take = [](va_list args) { EXPECT_EQ(va_arg(args, int), 77); };
    }
    int value = 5;
    EXPECT_EQ(umfCtlSet("umf.pool.by_name.{}.some.path", &value, sizeof(value), "a", 77),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfCtlExec("umf.pool.by_name.{}.run", nullptr, 0, "a", 77),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    for (toy::Pool *pool : {&first, &second, &third}) {
        ASSERT_EQ(pool->object->queries.size(), 2u);
        EXPECT_EQ(pool->object->queries[0].path, "some.path");
        EXPECT_EQ(pool->object->queries[1].type, CTL_QUERY_RUNNABLE);
    }
    EXPECT_TRUE(other.object->queries.empty());
    EXPECT_EQ(umfCtlSet("umf.pool.by_name.a.0.some.path", &value, sizeof(value), 77), Success);
    EXPECT_EQ(first.object->queries.size(), 3u);
    EXPECT_EQ(second.object->queries.size(), 2u);
    EXPECT_EQ(umfCtlSet("umf.pool.by_name.a.stats.alloc_count", &value, 8), InvalidArgument);
}

std::atomic<bool> inside, release;

/* Destruction waits for a query by name that is under way. */
TEST(by_name, query_and_destroy_do_not_meet) {
    auto pool = std::make_unique<toy::Pool>("a");
    inside = release = false;
    pool->object->take = [](va_list) {
        inside = true;
        while (!release) {
            std::this_thread::yield();
        }
    };
    std::thread query([] {
        int value = 0;
        EXPECT_EQ(umfCtlSet("umf.pool.by_name.a.x", &value, sizeof(value)), Success);
    });
    while (!inside) {
        std::this_thread::yield();
    }
    std::atomic<bool> destroyed{false};
    std::thread destroy([&] {
        pool.reset();
        destroyed = true;
    });
    while (umf_names_count("a")) {
        std::this_thread::yield(); /* the pool is leaving: no longer found */
    }
    EXPECT_FALSE(destroyed);
    release = true;
    query.join();
    destroy.join();
    EXPECT_TRUE(destroyed);
}

TEST(by_name, threads_create_destroy_and_ask) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> makers;
    for (int t = 0; t < 2; t++) {
        makers.emplace_back([] {
            for (int i = 0; i < 1000; i++) {
                umf_memory_provider_handle_t provider;
                umf_memory_pool_handle_t pool;
                umf_memory_pool_ops_t ops = toy::pool_ops;
                ops.initialize = [](umf_memory_provider_handle_t, const void *, void **self) {
                    *self = nullptr;
                    return UMF_RESULT_SUCCESS;
                };
                ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
                ops.ext_ctl = nullptr;
                umf_memory_provider_ops_t below = toy::provider_ops;
                below.initialize = [](const void *, void **self) {
                    *self = nullptr;
                    return UMF_RESULT_SUCCESS;
                };
                below.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
                below.ext_ctl = nullptr;
                ASSERT_EQ(umfMemoryProviderCreate(&below, nullptr, &provider), Success);
                ASSERT_EQ(umfPoolCreate(&ops, provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                                        &pool),
                          Success);
                ASSERT_EQ(umfPoolDestroy(pool), Success);
            }
        });
    }
    std::thread asker([&stop] {
        while (!stop) {
            size_t value = 0;
            get("toy.stats.alloc_count", &value);
            get("toy.1.stats.alloc_count", &value);
            get("toy.count", &value);
            umfCtlExec("umf.pool.by_name.toy.x", nullptr, 0);
        }
    });
    for (auto &maker : makers) {
        maker.join();
    }
    stop = true;
    asker.join();
    EXPECT_EQ(umf_names_count("toy"), 0u);
}

} // namespace
