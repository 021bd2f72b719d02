extern "C" {
#include "ctl/ctl.h"
}

#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <umf/experimental/ctl.h>

#include "unit/toy.h"

namespace {

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
const umf_result_t InvalidPath = UMF_RESULT_ERROR_INVALID_CTL_PATH;
const umf_result_t NotSupported = UMF_RESULT_ERROR_NOT_SUPPORTED;

TEST(ctl, incomplete_calls) {
    int value = 2;
    for (auto *call : {umfCtlGet, umfCtlSet}) {
        EXPECT_EQ(call(nullptr, &value, sizeof(value)), InvalidArgument);
        EXPECT_EQ(call("umf.logger.level", nullptr, sizeof(value)), InvalidArgument);
        EXPECT_EQ(call("umf.logger.level", &value, 0), InvalidArgument);
    }
    EXPECT_EQ(umfCtlExec(nullptr, nullptr, 0), InvalidArgument);
    EXPECT_EQ(umfCtlExec("umf.logger.level", &value, 0), InvalidArgument);
    EXPECT_EQ(umfCtlExec("umf.logger.level", nullptr, 4), InvalidArgument);
    EXPECT_EQ(umfCtlExec("umf.logger.level", nullptr, 0), InvalidArgument);
}

TEST(ctl, unknown_paths) {
    int value = 2;
    for (const char *path : {"",
                             ".",
                             "umf",
                             "umf.",
                             "umf.logger",
                             "umf.logger.",
                             "umf.logger.level.more",
                             "umf.nothing",
                             "logger.level",
                             "Umf.logger.level",
                             "umf.Logger.level",
                             "umf..level",
                             ".umf.logger.level",
                             "umf.logger.level.",
                             " umf.logger.level",
                             "umf.pool",
                             "umf.pool.nothing",
                             "umf.pool.by_handle",
                             "umf.provider",
                             "umf.provider.by_name.a.b",
                             "umf.pool.by_name",
                             "umf.pool.by_name."}) {
        EXPECT_EQ(umfCtlGet(path, &value, sizeof(value)), InvalidPath) << path;
        EXPECT_EQ(umfCtlSet(path, &value, sizeof(value)), InvalidPath) << path;
        EXPECT_EQ(umfCtlExec(path, nullptr, 0), InvalidPath) << path;
    }
    std::string huge = "umf.logger." + std::string(1 << 20, 'x');
    EXPECT_EQ(umfCtlGet(huge.c_str(), &value, sizeof(value)), InvalidPath);
    huge = std::string(1 << 20, 'x') + ".logger";
    EXPECT_EQ(umfCtlGet(huge.c_str(), &value, sizeof(value)), InvalidPath);
}

TEST(ctl, names_as_arguments) {
    int value = -1;
    EXPECT_EQ(umfCtlGet("{}.{}.{}", &value, sizeof(value), "umf", "logger", "level"), Success);
    EXPECT_GE(value, 0);
    EXPECT_EQ(umfCtlGet("umf.{}.level", &value, sizeof(value), "logger", "surplus", 5), Success);
    EXPECT_EQ(umfCtlGet("umf.{}.level", &value, sizeof(value), "nothing"), InvalidPath);
    EXPECT_EQ(umfCtlGet("umf.{}.level", &value, sizeof(value), static_cast<char *>(nullptr)),
              InvalidPath);
    EXPECT_EQ(umfCtlGet("umf.{}.level", &value, sizeof(value), size_t{7}), InvalidPath);
    std::string huge(100000, 'x');
    EXPECT_EQ(umfCtlGet("umf.{}.level", &value, sizeof(value), huge.c_str()), InvalidPath);
}

bool next(const char **rest, char *name, size_t size, ...) {
    va_list args;
    va_start(args, size);
    umf_ctl_query_t query = {};
    query.args = &args;
    bool is_found = umf_ctl_next(&query, rest, name, size);
    va_end(args);
    return is_found;
}

TEST(ctl, names_that_just_fit) {
    char name[9] = "";
    name[8] = 'x'; // behind the buffer of 8
    const char *text = "1234567.rest", *long_text = "12345678.rest", *argument = "{}.rest";
    const char *rest = text;
    EXPECT_TRUE(next(&rest, name, 8));
    EXPECT_STREQ(name, "1234567");
    EXPECT_STREQ(rest, "rest");
    rest = argument;
    EXPECT_TRUE(next(&rest, name, 8, "7654321"));
    EXPECT_STREQ(name, "7654321");
    rest = long_text;
    EXPECT_FALSE(next(&rest, name, 8));
    rest = argument;
    EXPECT_FALSE(next(&rest, name, 8, "87654321"));
    EXPECT_FALSE(next(&rest, name, 8, ""));
    EXPECT_EQ(name[8], 'x');
}

TEST(logger, level_is_a_whole_int) {
    for (const char *path : {"umf.logger.level", "umf.logger.flush_level"}) {
        int before = -1, value = 0x55555555;
        ASSERT_EQ(umfCtlGet(path, &before, sizeof(before)), Success);
        for (int level = 0; level <= 4; level++) {
            EXPECT_EQ(umfCtlSet(path, &level, sizeof(level)), Success);
            EXPECT_EQ(umfCtlGet(path, &value, sizeof(value)), Success);
            EXPECT_EQ(value, level);
        }
        for (int level : {-1, 5, INT32_MAX, INT32_MIN}) {
            EXPECT_EQ(umfCtlSet(path, &level, sizeof(level)), InvalidArgument);
        }
        EXPECT_EQ(umfCtlGet(path, &value, sizeof(value)), Success);
        EXPECT_EQ(value, 4);
        EXPECT_EQ(umfCtlGet(path, &value, 1), InvalidArgument);
        EXPECT_EQ(umfCtlSet(path, &value, 3), InvalidArgument);
        EXPECT_EQ(umfCtlSet(path, &before, sizeof(before)), Success);
    }
}

TEST(logger, truths_are_one_byte_or_an_int) {
    for (const char *path : {"umf.logger.timestamp", "umf.logger.pid"}) {
        bool value = true;
        EXPECT_EQ(umfCtlSet(path, &value, sizeof(value)), Success);
        char room[4] = {5, 5, 5, 5};
        EXPECT_EQ(umfCtlGet(path, room, 1), Success);
        EXPECT_EQ(room[0], 1);
        EXPECT_EQ(room[1], 5);
        int number = -1;
        EXPECT_EQ(umfCtlGet(path, &number, sizeof(number)), Success);
        EXPECT_EQ(number, 1);
        value = false;
        EXPECT_EQ(umfCtlSet(path, &value, sizeof(value)), Success);
        EXPECT_EQ(umfCtlGet(path, room, sizeof(room)), Success);
        EXPECT_EQ(room[0], 0);
        number = 256;
        EXPECT_EQ(umfCtlSet(path, &number, sizeof(number)), Success);
        EXPECT_EQ(umfCtlGet(path, room, 1), Success);
        EXPECT_EQ(room[0], 1);
        EXPECT_EQ(umfCtlSet(path, &value, sizeof(value)), Success);
    }
}

TEST(logger, sizes_are_checked) {
    char room[16] = {1};
    for (size_t size : {2u, 3u, 5u, 8u, 16u}) {
        for (const char *path : {"umf.logger.timestamp", "umf.logger.pid", "umf.logger.level",
                                 "umf.logger.flush_level"}) {
            EXPECT_EQ(umfCtlGet(path, room, size), InvalidArgument) << path << ' ' << size;
            EXPECT_EQ(umfCtlSet(path, room, size), InvalidArgument) << path << ' ' << size;
        }
    }
}

TEST(logger, output) {
    std::string file = testing::TempDir() + "umf_ctl_log_" + std::to_string(getpid());
    char name[256];
    EXPECT_EQ(umfCtlSet("umf.logger.output", file.data(), file.size() + 1), Success);
    EXPECT_EQ(umfCtlGet("umf.logger.output", name, sizeof(name)), Success);
    EXPECT_EQ(file, name);
    EXPECT_EQ(umfCtlGet("umf.logger.output", name, file.size()), InvalidArgument);
    char none[] = "/no/such/folder/log";
    EXPECT_EQ(umfCtlSet("umf.logger.output", none, sizeof(none)), InvalidArgument);
    std::string longest(256, 'x');
    EXPECT_EQ(umfCtlSet("umf.logger.output", longest.data(), longest.size() + 1), InvalidArgument);
    EXPECT_EQ(umfCtlGet("umf.logger.output", name, sizeof(name)), Success);
    EXPECT_EQ(file, name);
    char out[] = "stderr";
    EXPECT_EQ(umfCtlSet("umf.logger.output", out, sizeof(out)), Success);
    EXPECT_EQ(unlink(file.c_str()), 0);
}

/* A member changed by one thread is not undone by another that changes another one. */
TEST(logger, threads_change_one_member_each) {
    std::thread other([] {
        for (int i = 0; i < 2000; i++) {
            int level = i % 5;
            umfCtlSet("umf.logger.flush_level", &level, sizeof(level));
        }
    });
    for (int i = 0; i < 2000; i++) {
        bool value = i % 2, back = false;
        umfCtlSet("umf.logger.pid", &value, sizeof(value));
        umfCtlGet("umf.logger.pid", &back, sizeof(back));
        ASSERT_EQ(back, value);
    }
    other.join();
    bool off = false;
    umfCtlSet("umf.logger.pid", &off, sizeof(off));
}

TEST(by_handle, alloc_count) {
    toy::Pool pool;
    size_t count = 99;
    void *ptr = umfPoolMalloc(pool.handle, 8);
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool.handle),
        Success);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(umfPoolFree(pool.handle, ptr), Success);
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.{}.{}", &count, sizeof(count), pool.handle, "stats",
                        "alloc_count"),
              Success);
    EXPECT_EQ(count, 0u);
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, 4, pool.handle),
              InvalidArgument);
    EXPECT_EQ(
        umfCtlSet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool.handle),
        InvalidArgument);
    EXPECT_EQ(umfCtlExec("umf.pool.by_handle.{}.stats.alloc_count", nullptr, 0, pool.handle),
              InvalidArgument);
    EXPECT_TRUE(pool.object->queries.empty());
}

TEST(by_handle, every_node_can_be_an_argument) {
    toy::Pool pool;
    size_t count = 99;
    EXPECT_EQ(umfCtlGet("{}.{}.{}.{}.{}.{}", &count, sizeof(count), "umf", "pool", "by_handle",
                        pool.handle, "stats", "alloc_count", "surplus"),
              Success);
    EXPECT_EQ(count, 0u);
    EXPECT_TRUE(pool.object->queries.empty());
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.{}.{}", &count, sizeof(count), pool.handle, "a", "b"),
        Success);
    EXPECT_EQ(pool.object->queries.back().path, "{}.{}") << "not resolved for a user's pool";
}

// Of two pools with one name, one may have run what the other does not know.
TEST(by_name, a_query_that_fails_is_made_once) {
    toy::Pool knows("two_of_one_name"), knows_not("two_of_one_name");
    knows_not.object->answer = InvalidPath;
    EXPECT_EQ(umfCtlExec("umf.pool.by_name.two_of_one_name.run", nullptr, 0), InvalidPath);
    EXPECT_EQ(knows.object->queries.size(), 1U);
    EXPECT_EQ(knows_not.object->queries.size(), 1U);
}

TEST(by_handle, paths_that_are_none) {
    toy::Pool pool;
    size_t count;
    for (const char *path :
         {"umf.pool.by_handle.{}", "umf.pool.by_handle.{}.", "umf.pool.by_handle.0x1.stats",
          "umf.pool.by_handle.stats.alloc_count"}) {
        EXPECT_EQ(umfCtlGet(path, &count, sizeof(count), pool.handle), InvalidPath) << path;
    }
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.a", &count, sizeof(count), static_cast<void *>(nullptr)),
        InvalidArgument);
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.a", &count, sizeof(count),
                        static_cast<void *>(nullptr)),
              InvalidArgument);
}

size_t taken;

template <typename Object, typename Handle>
void passesOn(Object *object, Handle handle, const std::string &node) {
    object->queries.clear();
    object->take = [](va_list args) {
        taken = va_arg(args, size_t);
        taken += strlen(va_arg(args, char *));
    };
    for (umf_result_t answer : {Success, NotSupported, UMF_RESULT_ERROR_USER_SPECIFIC}) {
        object->answer = answer;
        int value = 5;
        EXPECT_EQ(umfCtlSet((node + ".some.{}.{}.path").c_str(), &value, sizeof(value), handle,
                            size_t{40}, "xy"),
                  answer);
        const toy::Query &query = object->queries.back();
        EXPECT_EQ(query.source, CTL_QUERY_PROGRAMMATIC);
        EXPECT_EQ(query.path, "some.{}.{}.path");
        EXPECT_EQ(query.arg, &value);
        EXPECT_EQ(query.size, sizeof(value));
        EXPECT_EQ(query.type, CTL_QUERY_WRITE);
        EXPECT_EQ(taken, 42u);
        EXPECT_EQ(umfCtlGet((node + ".a").c_str(), &value, sizeof(value), handle, size_t{1}, "z"),
                  answer);
        EXPECT_EQ(object->queries.back().type, CTL_QUERY_READ);
        EXPECT_EQ(umfCtlExec((node + ".a").c_str(), nullptr, 0, handle, size_t{1}, "z"), answer);
        EXPECT_EQ(object->queries.back().type, CTL_QUERY_RUNNABLE);
    }
}

TEST(by_handle, the_rest_goes_to_the_pool) {
    toy::Pool pool;
    passesOn(pool.object, pool.handle, "umf.pool.by_handle.{}");
}

TEST(by_handle, the_rest_goes_to_the_provider) {
    toy::Provider provider;
    passesOn(provider.object, provider.handle, "umf.provider.by_handle.{}");
}

/* A buffer, its size and no buffer at all: the callback gets the arguments of the caller. */
TEST(by_handle, argument_and_size_are_passed_as_given) {
    toy::Pool pool;
    toy::Provider provider;
    char room[3];
    EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.a", room, 3, pool.handle), Success);
    EXPECT_EQ(umfCtlExec("umf.pool.by_handle.{}.b", room, 2, pool.handle), Success);
    EXPECT_EQ(umfCtlExec("umf.pool.by_handle.{}.c", nullptr, 0, pool.handle), Success);
    ASSERT_EQ(pool.object->queries.size(), 3u);
    EXPECT_EQ(pool.object->queries[0].size, 3u);
    EXPECT_EQ(pool.object->queries[1].arg, room);
    EXPECT_EQ(pool.object->queries[1].size, 2u);
    EXPECT_EQ(pool.object->queries[2].arg, nullptr);
    provider.object->queries.clear();
    EXPECT_EQ(umfCtlExec("umf.provider.by_handle.{}.d", room, 1, provider.handle), Success);
    EXPECT_EQ(provider.object->queries.at(0).size, 1u);
}

TEST(by_handle, without_callback_there_is_no_path) {
    umf_memory_provider_ops_t ops = toy::providerOps();
    ops.ext_ctl = nullptr;
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, nullptr, &provider), Success);
    int value = 0;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.a", &value, sizeof(value), provider),
              InvalidPath);
    EXPECT_EQ(umfCtlSet("umf.provider.by_handle.{}.a", &value, sizeof(value), provider),
              InvalidPath);
    EXPECT_EQ(umfCtlExec("umf.provider.by_handle.{}.a", nullptr, 0, provider), InvalidPath);
    umfMemoryProviderDestroy(provider);
}

TEST(default, reaches_objects_made_later) {
    int one = 1, two = 2;
    ASSERT_EQ(umfCtlSet("umf.provider.default.toy.b.c", &two, sizeof(two)), Success);
    ASSERT_EQ(umfCtlSet("umf.provider.default.toy.a", &one, sizeof(one)), Success);
    ASSERT_EQ(umfCtlSet("umf.provider.default.other.a", &one, sizeof(one)), Success);
    toy::Provider provider;
    umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
    ASSERT_EQ(provider.object->queries.size(), 3u);
    EXPECT_EQ(provider.object->queries[0].path, "b.c");
    EXPECT_EQ(provider.object->queries[0].bytes,
              std::string(reinterpret_cast<char *>(&two), sizeof(two)));
    EXPECT_EQ(provider.object->queries[1].path, "a");
    EXPECT_EQ(provider.object->queries[1].type, CTL_QUERY_WRITE);
    EXPECT_EQ(provider.object->queries[0].source, CTL_QUERY_PROGRAMMATIC);
    EXPECT_EQ(provider.object->queries[2].path, "post_initialize");
    EXPECT_EQ(provider.object->queries[2].type, CTL_QUERY_RUNNABLE);
    EXPECT_EQ(provider.object->queries[2].source, CTL_QUERY_PROGRAMMATIC);
    EXPECT_EQ(provider.object->queries[2].arg, nullptr);
    EXPECT_EQ(provider.object->queries[2].size, 0u);
}

/* Any text is answered, never a crash. Every argument can stand for a name, an index and a handle.
 */
TEST(ctl, random_paths) {
    const char *const pieces[] = {"umf",     "pool",  "provider",    "logger",      "default",
                                  "by_name", "level", "alloc_count", "stats",       ".",
                                  ".",       ".",     "{}",          "count",       "0",
                                  "toy",     "",      "..",          "\xff\x01 =;", "output"};
    toy::Pool pool;
    std::mt19937 random(3);
    const char *name = "toy";
    for (int i = 0; i < 20000; i++) {
        std::string path = random() % 4 ? "umf." : "";
        for (auto n = random() % 10; n > 0; n--) {
            path += pieces[random() % std::size(pieces)];
        }
        char room[300] = "stderr";
        umfCtlGet(path.c_str(), room, 1 + random() % 300, name, name, name, name, name, name);
        if (path.find("output") == std::string::npos) {
            umfCtlSet(path.c_str(), room, 1 + random() % 9, name, name, name, name, name, name);
        }
        umfCtlExec(path.c_str(), nullptr, 0, name, name, name, name, name, name);
    }
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
}

} // namespace
