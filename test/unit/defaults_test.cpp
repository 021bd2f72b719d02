extern "C" {
#include "ctl/ctl.h"
}

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>

#include "fakes/threads.h"

namespace {

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
const umf_result_t InvalidPath = UMF_RESULT_ERROR_INVALID_CTL_PATH;
const umf_result_t NotSupported = UMF_RESULT_ERROR_NOT_SUPPORTED;

struct Write {
    umf_ctl_query_source_t source;
    std::string path, bytes;
};

std::vector<Write> writes;

umf_result_t note(void *, umf_ctl_query_source_t source, const char *path, void *arg, size_t size) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arg) % 16, 0u);
    writes.push_back({source, path, std::string(static_cast<char *>(arg), size)});
    return UMF_RESULT_ERROR_UNKNOWN; /* results are ignored */
}

std::vector<Write> applied(const char *name, umf_ctl_defaults_t *of = &umf_ctl_pool_defaults) {
    writes.clear();
    umf_ctl_defaults_apply(of, name, note, nullptr);
    return writes;
}

umf_result_t store(const std::string &path, std::string value) {
    return umfCtlSet(("umf.pool.default." + path).c_str(), value.data(), value.size());
}

std::string stored(const std::string &path) {
    std::string value(64, '\0');
    umf_result_t result =
        umfCtlGet(("umf.pool.default." + path).c_str(), value.data(), value.size());
    return result == Success ? value.c_str() : "result " + std::to_string(result);
}

class Defaults : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(umfInit(), Success);
    }
    void TearDown() override {
        umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
        umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
        umfTearDown();
    }
};

TEST_F(Defaults, bytes_come_back) {
    EXPECT_EQ(store("a.b.c", "one"), Success);
    EXPECT_EQ(stored("a.b.c"), "one");
    EXPECT_EQ(store("alone", "two"), Success);
    EXPECT_EQ(stored("alone"), "two");
    EXPECT_EQ(store("with space..and.", "three"), Success);
    EXPECT_EQ(stored("with space..and."), "three");
    EXPECT_EQ(stored("a.b"), "result 9");
    EXPECT_EQ(stored("a.b.C"), "result 9");
}

TEST_F(Defaults, sizes_of_reads) {
    ASSERT_EQ(store("a.b", "12345678"), Success);
    char room[16];
    memset(room, 'x', sizeof(room));
    EXPECT_EQ(umfCtlGet("umf.pool.default.a.b", room, 7), InvalidArgument);
    EXPECT_EQ(room[0], 'x');
    EXPECT_EQ(umfCtlGet("umf.pool.default.a.b", room, 8), Success);
    EXPECT_EQ(umfCtlGet("umf.pool.default.a.b", room, sizeof(room)), Success);
    EXPECT_EQ(std::string(room, 9), "12345678x");
}

TEST_F(Defaults, paths_that_are_none) {
    int value = 1;
    EXPECT_EQ(umfCtlSet("umf.pool.default", &value, sizeof(value)), InvalidPath);
    EXPECT_EQ(umfCtlSet("umf.pool.default.", &value, sizeof(value)), InvalidPath);
    EXPECT_EQ(umfCtlGet("umf.provider.default", &value, sizeof(value)), InvalidPath);
    EXPECT_EQ(umfCtlExec("umf.provider.default", nullptr, 0), InvalidPath);
}

TEST_F(Defaults, exec_does_nothing) {
    EXPECT_EQ(umfCtlExec("umf.pool.default.a.b", nullptr, 0), Success);
    EXPECT_EQ(stored("a.b"), "result 9");
}

TEST_F(Defaults, placeholders_are_not_supported) {
    int value = 1;
    for (const char *path : {"umf.pool.default.{}", "umf.pool.default.{}.a",
                             "umf.pool.default.a.{}.b", "umf.provider.default.a.{}"}) {
        EXPECT_EQ(umfCtlSet(path, &value, sizeof(value), "x"), NotSupported) << path;
        EXPECT_EQ(umfCtlGet(path, &value, sizeof(value), "x"), NotSupported) << path;
        EXPECT_EQ(umfCtlExec(path, nullptr, 0, "x"), NotSupported) << path;
    }
    EXPECT_EQ(store("a.{}b", "x"), Success);
    EXPECT_EQ(umfCtlSet("umf.{}.{}.a.b", &value, sizeof(value), "pool", "default"), Success);
}

TEST_F(Defaults, applied_in_the_order_first_set) {
    store("toy.one", "1");
    store("toy.two", "2");
    store("other.one", "x");
    store("toy.three", "3");
    store("toy.one", "again");
    auto seen = applied("toy");
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_EQ(seen[0].path, "one");
    EXPECT_EQ(seen[0].bytes, "again");
    EXPECT_EQ(seen[0].source, CTL_QUERY_PROGRAMMATIC);
    EXPECT_EQ(seen[1].path, "two");
    EXPECT_EQ(seen[2].path, "three");
    EXPECT_TRUE(applied("to").empty());
    EXPECT_TRUE(applied("toyy").empty());
    EXPECT_TRUE(applied("toy", &umf_ctl_provider_defaults).empty());
}

TEST_F(Defaults, names_with_dots_match_by_prefix) {
    store("a.b.c", "1");
    EXPECT_EQ(applied("a").at(0).path, "b.c");
    EXPECT_EQ(applied("a.b").at(0).path, "c");
    EXPECT_TRUE(applied("a.b.c").empty());
    store("alone", "x");
    EXPECT_TRUE(applied("alone").empty());
}

TEST_F(Defaults, configuration_keeps_its_source) {
    char text[] = "8";
    ASSERT_EQ(umf_ctl_write_config("umf.pool.default.toy.size", text, sizeof(text)), Success);
    auto seen = applied("toy");
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].source, CTL_QUERY_CONFIG_INPUT);
    EXPECT_EQ(seen[0].bytes, std::string("8\0", 2));
    store("toy.size", "9");
    EXPECT_EQ(applied("toy").at(0).source, CTL_QUERY_PROGRAMMATIC);
}

TEST_F(Defaults, the_stored_bytes_are_a_copy) {
    std::string value = "before";
    umfCtlSet("umf.pool.default.toy.a", value.data(), value.size());
    value = "after!";
    EXPECT_EQ(stored("toy.a"), "before");
    umf_ctl_defaults_apply(
        &umf_ctl_pool_defaults, "toy",
        [](void *, umf_ctl_query_source_t, const char *, void *arg, size_t size) {
            memset(arg, 'z', size);
            return UMF_RESULT_SUCCESS;
        },
        nullptr);
    EXPECT_EQ(stored("toy.a"), "before");
}

/* No lock is held during the callback: it may set, read and forget. */
TEST_F(Defaults, callback_may_change_defaults) {
    store("toy.a", "1");
    store("toy.b", "2");
    int calls = 0;
    umf_ctl_defaults_apply(
        &umf_ctl_pool_defaults, "toy",
        [](void *count, umf_ctl_query_source_t, const char *path, void *, size_t) {
            if (++*static_cast<int *>(count) > 10) {
                return UMF_RESULT_SUCCESS; /* it would never end */
            }
            if (strcmp(path, "a") == 0) {
                store("toy.a", "replaced");
                store("toy.c", "new");
            } else if (strcmp(path, "c") == 0) {
                umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
            }
            return UMF_RESULT_SUCCESS;
        },
        &calls);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(stored("toy.a"), "result 9");
}

TEST_F(Defaults, large_names_and_values) {
    std::string path = "toy." + std::string(100000, 'p'), value(1 << 20, 'v');
    EXPECT_EQ(store(path, value), Success);
    auto seen = applied("toy");
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].path.size(), 100000u);
    EXPECT_EQ(seen[0].bytes, value);
    char byte = 0;
    EXPECT_EQ(umfCtlSet("umf.pool.default.toy.huge", &byte, SIZE_MAX),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(umfCtlSet("umf.pool.default.toy.huge", &byte, SIZE_MAX - 100),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

TEST_F(Defaults, forgotten_at_teardown) {
    ASSERT_EQ(store("toy.a", "1"), Success);
    int starts = 0;
    while (stored("toy.a") == "1") {
        ASSERT_EQ(umfTearDown(), Success);
        starts++;
    }
    for (; starts > 0; starts--) {
        ASSERT_EQ(umfInit(), Success);
    }
    EXPECT_EQ(stored("toy.a"), "result 9");
}

TEST_F(Defaults, threads) {
    run_threads(4, [](int t) {
        for (int i = 0; i < 500; i++) {
            std::string path = "toy.p" + std::to_string((i + t) % 7);
            EXPECT_EQ(store(path, std::string(size_t(1 + i % 50), 'x')), Success);
            stored(path);
            umf_ctl_defaults_apply(
                &umf_ctl_pool_defaults, "toy",
                [](void *, umf_ctl_query_source_t, const char *, void *arg, size_t size) {
                    EXPECT_EQ(memchr(arg, 'y', size), nullptr);
                    return UMF_RESULT_SUCCESS;
                },
                nullptr);
        }
    });
    EXPECT_EQ(applied("toy").size(), 7u);
}

} // namespace
