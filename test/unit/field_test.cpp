extern "C" {
#include "ctl/params.h"
#include "ctl/text.h"
}

#include <climits>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/log_file.h"
#include "fakes/scale.h"

namespace {

struct Object {
    bool truth = false;
    int number = 0;
    unsigned natural = 0;
    size_t bytes = 0;
    int color = 0;
    unsigned flags = 0;
    std::string text;
    std::string list;
    size_t created = 0;
    int runs = 0;
    size_t index = 99;
};

Object *of(void *object) {
    return static_cast<Object *>(object);
}

template <auto Member> umf_result_t get(void *object, size_t index, void *value, size_t size) {
    auto &member = of(object)->*Member;
    EXPECT_EQ(size, sizeof(member));
    of(object)->index = index;
    memcpy(value, &member, sizeof(member));
    return UMF_RESULT_SUCCESS;
}

template <auto Member> umf_result_t set(void *object, const void *value) {
    auto &member = of(object)->*Member;
    memcpy(&member, value, sizeof(member));
    return UMF_RESULT_SUCCESS;
}

umf_result_t getText(void *object, size_t, void *value, size_t size) {
    const std::string &text = of(object)->text;
    if (text.size() + 1 > size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(value, text.c_str(), text.size() + 1);
    return UMF_RESULT_SUCCESS;
}

umf_result_t setText(void *object, const void *value) {
    of(object)->text = static_cast<const char *>(value);
    return UMF_RESULT_SUCCESS;
}

umf_result_t setList(void *object, const void *value) {
    of(object)->list = static_cast<const char *>(value);
    return of(object)->list == "bad" ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_SUCCESS;
}

umf_result_t getIndexed(void *object, size_t index, void *value, size_t) {
    of(object)->index = index;
    if (index > 5) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t found = 100 + index;
    memcpy(value, &found, sizeof(found));
    return UMF_RESULT_SUCCESS;
}

umf_result_t run(void *object) {
    of(object)->runs++;
    return UMF_RESULT_SUCCESS;
}

const umf_field_word_t colors[] = {{"red", 1}, {"green", 2}, {"blue", 4}, {nullptr, 0}};

enum { R = UMF_FIELD_READ, W = UMF_FIELD_WRITE, C = UMF_FIELD_CREATE };

const umf_field_t list[] = {
    {"params.truth", UMF_FIELD_BOOL, R | W, nullptr, get<&Object::truth>, set<&Object::truth>,
     nullptr, "truth", nullptr, 0, 0, 0, 0, 0},
    {"params.number", UMF_FIELD_INT, R | W, nullptr, get<&Object::number>, set<&Object::number>,
     nullptr, "number", nullptr, 0, 0, 0, 0, 0},
    {"params.natural", UMF_FIELD_UINT, R | W, nullptr, get<&Object::natural>, set<&Object::natural>,
     nullptr, "natural", nullptr, 0, 0, 0, 0, 0},
    {"params.bytes", UMF_FIELD_SIZE, R | W, nullptr, get<&Object::bytes>, set<&Object::bytes>,
     nullptr, "bytes", nullptr, 0, 0, 0, 0, 0},
    {"params.color", UMF_FIELD_ENUM, R | W, colors, get<&Object::color>, set<&Object::color>,
     nullptr, nullptr, nullptr, 0, 0, 0, 0, 0},
    {"params.flags", UMF_FIELD_FLAGS, R | W, colors, get<&Object::flags>, set<&Object::flags>,
     nullptr, nullptr, nullptr, 0, 0, 0, 0, 0},
    {"params.text", UMF_FIELD_STRING, R | W, nullptr, getText, setText, nullptr, "any text",
     nullptr, 0, 0, 0, 0, 0},
    {"params.list", UMF_FIELD_TEXT, W, nullptr, nullptr, setList, nullptr, "numbers joined by '+'",
     nullptr, 0, 0, 0, 0, 0},
    {"params.created", UMF_FIELD_SIZE, R | C, nullptr, get<&Object::created>, set<&Object::created>,
     nullptr, "bytes, default 0", nullptr, 0, 0, 0, 0, 0},
    {"params.either", UMF_FIELD_BOOL, R | W | UMF_FIELD_OR_INT, nullptr, get<&Object::truth>,
     set<&Object::truth>, nullptr, nullptr, nullptr, 0, 0, 0, 0, 0},
    {"stats.fixed", UMF_FIELD_SIZE, R, nullptr, get<&Object::bytes>, nullptr, nullptr, nullptr,
     nullptr, 0, 0, 0, 0, 0},
    {"stats.fixed.reset", UMF_FIELD_NONE, UMF_FIELD_RUN, nullptr, nullptr, nullptr, run, nullptr,
     nullptr, 0, 0, 0, 0, 0},
    {"bins.count", UMF_FIELD_SIZE, R, nullptr, get<&Object::bytes>, nullptr, nullptr, nullptr,
     nullptr, 0, 0, 0, 0, 0},
    {"bins.{}.size", UMF_FIELD_SIZE, R, nullptr, getIndexed, nullptr, nullptr, nullptr, nullptr, 0,
     0, 0, 0, 0},
    {"bins.{}.stats.used", UMF_FIELD_SIZE, R, nullptr, getIndexed, nullptr, nullptr, nullptr,
     nullptr, 0, 0, 0, 0, 0},
    {"bins.{}.count", UMF_FIELD_NONE, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0,
     0, 0, 0},
    {"bins.size", UMF_FIELD_NONE, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0,
     0, 0},
};
const umf_fields_t fields = UMF_FIELDS(list);

umf_result_t ctl(Object *object, bool creating, umf_ctl_query_source_t source,
                 umf_ctl_query_type_t type, const char *path, void *arg, size_t size, ...) {
    va_list args;
    va_start(args, size);
    umf_result_t result =
        umf_field_ctl(object, creating, &fields, source, path, arg, size, type, args);
    va_end(args);
    return result;
}

template <typename... Args>
umf_result_t read(Object &object, const char *path, void *arg, size_t size, Args... args) {
    return ctl(&object, false, CTL_QUERY_PROGRAMMATIC, CTL_QUERY_READ, path, arg, size, args...);
}

umf_result_t write(Object &object, const char *path, const void *arg, size_t size) {
    return ctl(&object, false, CTL_QUERY_PROGRAMMATIC, CTL_QUERY_WRITE, path,
               const_cast<void *>(arg), size);
}

umf_result_t configure(Object &object, const char *path, const char *text) {
    std::string copy = text;
    return ctl(&object, true, CTL_QUERY_CONFIG_INPUT, CTL_QUERY_WRITE, path, copy.data(),
               copy.size() + 1);
}

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
const umf_result_t InvalidPath = UMF_RESULT_ERROR_INVALID_CTL_PATH;
const umf_result_t NotSupported = UMF_RESULT_ERROR_NOT_SUPPORTED;

template <typename T> void roundTrip(const char *path, T value) {
    Object object;
    EXPECT_EQ(write(object, path, &value, sizeof(value)), Success) << path;
    T back{};
    EXPECT_EQ(read(object, path, &back, sizeof(back)), Success) << path;
    EXPECT_EQ(back, value) << path;
}

TEST(field, every_type_is_read_and_written) {
    roundTrip("params.truth", true);
    roundTrip("params.number", -5);
    roundTrip("params.natural", UINT_MAX);
    roundTrip("params.bytes", SIZE_MAX);
    roundTrip("params.color", 2);
    roundTrip("params.flags", 5u);
    Object object;
    char text[8] = "hello";
    EXPECT_EQ(write(object, "params.text", text, sizeof(text)), Success);
    EXPECT_EQ(object.text, "hello");
    char back[6];
    EXPECT_EQ(read(object, "params.text", back, sizeof(back)), Success);
    EXPECT_STREQ(back, "hello");
    EXPECT_EQ(read(object, "params.text", back, 5), InvalidArgument);
}

TEST(field, values_need_not_be_aligned) {
    Object object;
    object.bytes = 0x0102030405060708;
    alignas(8) char room[16] = {};
    ASSERT_EQ(read(object, "params.bytes", room + 3, sizeof(size_t)), Success);
    size_t back;
    memcpy(&back, room + 3, sizeof(back));
    EXPECT_EQ(back, object.bytes);
    EXPECT_EQ(room[2], 0);
    EXPECT_EQ(room[11], 0);
    object.bytes = 0;
    ASSERT_EQ(write(object, "params.bytes", room + 3, sizeof(size_t)), Success);
    EXPECT_EQ(object.bytes, back);
}

TEST(field, other_sizes_are_refused) {
    const struct {
        const char *path;
        size_t size;
    } cases[] = {{"params.truth", 1}, {"params.number", 4}, {"params.natural", 4},
                 {"params.bytes", 8}, {"params.color", 4},  {"params.flags", 4}};
    for (const auto &c : cases) {
        Object object;
        char room[32] = {1};
        for (size_t size = 0; size <= sizeof(room); size++) {
            umf_result_t expected = size == c.size ? Success : InvalidArgument;
            EXPECT_EQ(write(object, c.path, room, size), expected) << c.path << " " << size;
            EXPECT_EQ(read(object, c.path, room, size), expected) << c.path << " " << size;
        }
    }
}

TEST(field, a_truth_may_be_an_int_but_of_no_other_size) {
    Object object;
    for (int value : {256, 0, -1}) {
        ASSERT_EQ(write(object, "params.either", &value, sizeof(value)), Success);
        EXPECT_EQ(object.truth, value != 0);
        int back = 0x55555555;
        ASSERT_EQ(read(object, "params.either", &back, sizeof(back)), Success);
        EXPECT_EQ(back, value != 0);
    }
    bool truth = true;
    ASSERT_EQ(write(object, "params.either", &truth, sizeof(truth)), Success);
    char room[16] = {};
    ASSERT_EQ(read(object, "params.either", room, 1), Success);
    EXPECT_EQ(room[0], 1);
    for (size_t size : {2u, 3u, 5u, 8u, 16u}) {
        EXPECT_EQ(read(object, "params.either", room, size), InvalidArgument) << size;
        EXPECT_EQ(write(object, "params.either", room, size), InvalidArgument) << size;
    }
    EXPECT_EQ(room[1], 0);
}

TEST(field, any_byte_is_a_truth) {
    Object object;
    unsigned char byte = 0x80;
    ASSERT_EQ(write(object, "params.truth", &byte, 1), Success);
    unsigned char stored;
    memcpy(&stored, &object.truth, 1);
    EXPECT_EQ(stored, 1);
}

TEST(field, value_outside_an_enum_is_refused) {
    Object object;
    int value = 3;
    EXPECT_EQ(write(object, "params.color", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(object.color, 0);
}

TEST(field, unknown_paths) {
    Object object;
    size_t value;
    for (const char *path : {"",
                             ".",
                             "params",
                             "params.",
                             "params.nothing",
                             "params.bytes.",
                             ".params.bytes",
                             "params..bytes",
                             "params.bytes.more",
                             "stats",
                             "stats.fixed.reset.more",
                             "Params.bytes",
                             "bins",
                             "bins.3",
                             "bins.3.stats",
                             "bins.x.size",
                             "bins.-1.size",
                             "bins.3x.size",
                             "bins.3.stats.bins",
                             "stats.bins.count",
                             "a.b.c.d.e.f.g.h.i.j.k",
                             "params.bytes "}) {
        EXPECT_EQ(read(object, path, &value, sizeof(value)), InvalidPath) << path;
    }
    std::string huge(1 << 20, 'x');
    EXPECT_EQ(read(object, huge.c_str(), &value, sizeof(value)), InvalidPath);
    EXPECT_EQ(read(object, ("params." + huge).c_str(), &value, sizeof(value)), InvalidPath);
    std::string dots(1 << 20, '.');
    EXPECT_EQ(read(object, dots.c_str(), &value, sizeof(value)), InvalidPath);
}

TEST(field, access) {
    Object object;
    size_t value = 1;
    EXPECT_EQ(write(object, "stats.fixed", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(read(object, "params.list", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(read(object, "stats.fixed.reset", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(write(object, "stats.fixed.reset", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(
        ctl(&object, false, CTL_QUERY_PROGRAMMATIC, CTL_QUERY_RUNNABLE, "stats.fixed", nullptr, 0),
        InvalidArgument);
    EXPECT_EQ(object.runs, 0);
    EXPECT_EQ(ctl(&object, false, CTL_QUERY_PROGRAMMATIC, CTL_QUERY_RUNNABLE, "stats.fixed.reset",
                  nullptr, 0),
              Success);
    EXPECT_EQ(object.runs, 1);
    EXPECT_EQ(ctl(&object, false, CTL_QUERY_PROGRAMMATIC, static_cast<umf_ctl_query_type_t>(3),
                  "params.bytes", &value, sizeof(value)),
              InvalidArgument);
    EXPECT_EQ(read(object, "params.bytes", nullptr, 8), InvalidArgument);
}

TEST(field, create_fields_are_written_only_during_creation) {
    Object object;
    size_t value = 3;
    EXPECT_EQ(write(object, "params.created", &value, sizeof(value)), NotSupported);
    EXPECT_EQ(object.created, 0u);
    EXPECT_EQ(ctl(&object, true, CTL_QUERY_PROGRAMMATIC, CTL_QUERY_WRITE, "params.created", &value,
                  sizeof(value)),
              Success);
    EXPECT_EQ(object.created, 3u);
}

TEST(field, paths_without_use) {
    Object object;
    size_t value;
    EXPECT_EQ(read(object, "bins.size", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(read(object, "bins.1.count", &value, sizeof(value)), InvalidArgument);
    EXPECT_EQ(read(object, "bins.{}.count", &value, sizeof(value), size_t{1}), InvalidArgument);
}

TEST(field, index_in_the_path) {
    Object object;
    size_t value = 0;
    EXPECT_EQ(read(object, "bins.3.size", &value, sizeof(value)), Success);
    EXPECT_EQ(value, 103u);
    EXPECT_EQ(read(object, "bins.0.stats.used", &value, sizeof(value)), Success);
    EXPECT_EQ(value, 100u);
    EXPECT_EQ(read(object, "bins.6.size", &value, sizeof(value)), InvalidArgument);
    for (const char *path : {"bins.18446744073709551616.size", "bins.18446744073709551619.size",
                             "bins.99999999999999999999999999999999999999.size"}) {
        EXPECT_EQ(read(object, path, &value, sizeof(value)), InvalidArgument) << path;
        EXPECT_EQ(object.index, SIZE_MAX) << path;
    }
    EXPECT_EQ(value, 100u);
}

TEST(field, arguments_for_placeholders) {
    Object object;
    object.bytes = 17;
    size_t value = 0;
    char bins[] = "bins", count[] = "count", stats[] = "stats", used[] = "used", size[] = "size";
    EXPECT_EQ(read(object, "bins.{}.size", &value, sizeof(value), size_t{2}), Success);
    EXPECT_EQ(value, 102u);
    EXPECT_EQ(read(object, "bins.{}.size", &value, sizeof(value), 0), Success);
    EXPECT_EQ(value, 100u);
    EXPECT_EQ(read(object, "bins.{}.size", &value, sizeof(value), SIZE_MAX), InvalidArgument);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), count), Success);
    EXPECT_EQ(value, 17u);
    EXPECT_EQ(read(object, "{}.count", &value, sizeof(value), bins), Success);
    EXPECT_EQ(read(object, "{}.{}", &value, sizeof(value), bins, count), Success);
    EXPECT_EQ(read(object, "{}.{}.{}", &value, sizeof(value), bins, size_t{4}, size), Success);
    EXPECT_EQ(value, 104u);
    EXPECT_EQ(read(object, "bins.{}.{}.{}", &value, sizeof(value), size_t{1}, stats, used),
              Success);
    EXPECT_EQ(value, 101u);
    EXPECT_EQ(read(object, "bins.2.stats.{}", &value, sizeof(value), used, "surplus", 5), Success);
    EXPECT_EQ(value, 102u);
    EXPECT_EQ(read(object, "bins.{}.stats.{}", &value, sizeof(value), size_t{1}, size),
              InvalidPath);
}

TEST(field, arguments_that_are_no_names) {
    Object object;
    size_t value;
    std::string huge(5000, 'x');
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), static_cast<char *>(nullptr)),
              InvalidPath);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), size_t{3}), InvalidPath);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), huge.c_str()), InvalidPath);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), ""), InvalidPath);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), "count.more"), InvalidPath);
    EXPECT_EQ(read(object, "bins.{}", &value, sizeof(value), "{}"), InvalidPath);
}

TEST(field, arguments_are_taken_only_when_a_field_fits) {
    Object object;
    size_t value;
    /* The "argument" would crash if it were read as a name. */
    EXPECT_EQ(read(object, "nothing.{}", &value, sizeof(value), reinterpret_cast<char *>(0x10001)),
              InvalidPath);
    EXPECT_EQ(
        read(object, "bins.{}.nothing", &value, sizeof(value), reinterpret_cast<char *>(0x10001)),
        InvalidPath);
}

TEST(field, configuration_text) {
    Object object;
    for (const char *yes : {"y", "Y", "1", "yes", "1nonsense"}) {
        object.truth = false;
        EXPECT_EQ(configure(object, "params.truth", yes), Success) << yes;
        EXPECT_TRUE(object.truth) << yes;
    }
    for (const char *no : {"n", "N", "0", "no"}) {
        object.truth = true;
        EXPECT_EQ(configure(object, "params.truth", no), Success) << no;
        EXPECT_FALSE(object.truth) << no;
    }
    for (const char *bad : {"", "true", "x", " 1"}) {
        EXPECT_EQ(configure(object, "params.truth", bad), InvalidArgument) << bad;
    }
    EXPECT_EQ(configure(object, "params.text", "as;it is=\xff"), Success);
    EXPECT_EQ(object.text, "as;it is=\xff");
    EXPECT_EQ(configure(object, "params.created", "8"), Success);
    EXPECT_EQ(object.created, 8u);
    EXPECT_EQ(configure(object, "params.list", "bad"), NotSupported);
    char open[] = {'8', '9'};
    EXPECT_EQ(ctl(&object, true, CTL_QUERY_CONFIG_INPUT, CTL_QUERY_WRITE, "params.created", open,
                  sizeof(open)),
              InvalidArgument);
}

TEST(field, numbers_in_text) {
    Object object;
    const struct {
        const char *text;
        int value;
    } ints[] = {{"0", 0},
                {"-0", 0},
                {"+5", 5},
                {"-7", -7},
                {"0x10", 16},
                {"-0X1f", -31},
                {"017", 15},
                {"00", 0},
                {"2147483647", INT_MAX},
                {"-2147483648", INT_MIN}};
    for (const auto &c : ints) {
        EXPECT_EQ(configure(object, "params.number", c.text), Success) << c.text;
        EXPECT_EQ(object.number, c.value) << c.text;
    }
    for (const char *bad : {"", "-", "+", "--1", "+-1", " 1", "1 ", "0x", "1K", "08", "2147483648",
                            "-2147483649", "99999999999999999999999", "1.5", "1e3", "ten"}) {
        EXPECT_EQ(configure(object, "params.number", bad), InvalidArgument) << bad;
    }
    EXPECT_EQ(configure(object, "params.natural", "4294967295"), Success);
    EXPECT_EQ(object.natural, UINT_MAX);
    EXPECT_EQ(configure(object, "params.natural", "4294967296"), InvalidArgument);
    EXPECT_EQ(configure(object, "params.natural", "-1"), InvalidArgument);
    const struct {
        const char *text;
        size_t value;
    } sizes[] = {{"64K", 65536},
                 {"0x10M", 16u << 20},
                 {"2G", size_t{2} << 30},
                 {"1T", size_t{1} << 40},
                 {"16777215T", size_t{16777215} << 40},
                 {"18446744073709551615", SIZE_MAX}};
    for (const auto &c : sizes) {
        EXPECT_EQ(configure(object, "params.bytes", c.text), Success) << c.text;
        EXPECT_EQ(object.bytes, c.value) << c.text;
    }
    for (const char *bad : {"18446744073709551616", "16777216T", "1k", "1KK", "K", "1KB", "-1"}) {
        EXPECT_EQ(configure(object, "params.bytes", bad), InvalidArgument) << bad;
    }
}

TEST(field, words_in_text) {
    Object object;
    EXPECT_EQ(configure(object, "params.color", "green"), Success);
    EXPECT_EQ(object.color, 2);
    EXPECT_EQ(configure(object, "params.color", "4"), Success);
    EXPECT_EQ(object.color, 4);
    for (const char *bad : {"", "gree", "greens", "Green", "3", "red+green"}) {
        EXPECT_EQ(configure(object, "params.color", bad), InvalidArgument) << bad;
    }
    EXPECT_EQ(configure(object, "params.flags", "red+blue"), Success);
    EXPECT_EQ(object.flags, 5u);
    EXPECT_EQ(configure(object, "params.flags", "0x7"), Success);
    EXPECT_EQ(object.flags, 7u);
    for (const char *bad : {"", "+", "red+", "+red", "red++blue", "red,blue", "red+pink"}) {
        EXPECT_EQ(configure(object, "params.flags", bad), InvalidArgument) << bad;
    }
}

TEST(field, text_of_a_caller_need_not_end) {
    Object object;
    std::vector<char> text = {'a', 'b', 'c'}; /* exactly 3 bytes: the sanitizer sees a fourth */
    EXPECT_EQ(write(object, "params.text", text.data(), text.size()), Success);
    EXPECT_EQ(object.text, "abc");
    std::vector<char> huge(1 << 20, 'x');
    EXPECT_EQ(write(object, "params.text", huge.data(), huge.size()), InvalidArgument);
    EXPECT_EQ(object.text, "abc");
}

TEST(field, set_by_name) {
    Object object;
    char why[256];
    EXPECT_EQ(umf_field_set_text(&object, &fields, "created", "8", why, sizeof(why)), Success);
    EXPECT_EQ(object.created, 8u);
    EXPECT_EQ(umf_field_set_text(&object, &fields, "creatd", "8", why, sizeof(why)), InvalidPath);
    EXPECT_STREQ(why, "one of: created, truth, number, natural, bytes, color, flags, text, list, "
                      "either");
    EXPECT_EQ(umf_field_set_text(&object, &fields, "stats.fixed", "8", why, sizeof(why)),
              InvalidPath);
    EXPECT_EQ(umf_field_set_text(&object, &fields, "color", "pink", why, sizeof(why)),
              InvalidArgument);
    EXPECT_STREQ(why, "one of: red, green, blue");
    EXPECT_EQ(umf_field_set_text(&object, &fields, "list", "bad", why, sizeof(why)), NotSupported);
    EXPECT_STREQ(why, "numbers joined by '+'");
    char small[5];
    EXPECT_EQ(umf_field_set_text(&object, &fields, "color", "pink", small, sizeof(small)),
              InvalidArgument);
    EXPECT_STREQ(small, "one ");
    EXPECT_EQ(umf_field_set_text(&object, &fields, "color", "pink", nullptr, 0), InvalidArgument);
    EXPECT_EQ(umf_field_set_text(&object, &fields, "truth", "true", why, sizeof(why)), Success);
    EXPECT_TRUE(object.truth);
    EXPECT_EQ(umf_field_set_text(&object, &fields, "truth", "yesterday", why, sizeof(why)),
              InvalidArgument);
}

int alive;

umf_result_t create(void *params) {
    alive++;
    new (params) Object;
    return Success;
}

umf_result_t refuse(void *params) {
    create(params);
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

void destroy(void *params) {
    alive--;
    of(params)->~Object();
}

umf_params_kind_t toy(umf_result_t (*init)(void *), umf_result_t (*init_text)(void *)) {
    return {{"a toy"}, sizeof(Object), nullptr, fields, init, init_text, destroy};
}

const umf_params_kind_t kind = toy(create, nullptr);

umf_result_t build(const char *text, Object *out = nullptr) {
    void *params = nullptr;
    umf_text_forget();
    umf_text_scope_t scope;
    umf_text_begin(&scope, text, strlen(text), " of provider 'toy'");
    umf_result_t result = umf_params_read(&kind, text, &params);
    umf_text_end(&scope);
    EXPECT_EQ(params != nullptr, result == Success) << text;
    if (params) {
        if (out) {
            *out = *of(params);
        }
        EXPECT_EQ(umf_params_destroy(&kind, params, "test"), Success);
    }
    EXPECT_EQ(alive, 0) << text;
    return result;
}

TEST(params, from_text) {
    Object made;
    EXPECT_EQ(build("", &made), Success);
    EXPECT_EQ(build("   ", &made), Success);
    EXPECT_EQ(build("number=5,text=one,color=blue,flags=red+green", &made), Success);
    EXPECT_EQ(made.number, 5);
    EXPECT_EQ(made.text, "one");
    EXPECT_EQ(made.color, 4);
    EXPECT_EQ(made.flags, 3u);
    EXPECT_EQ(build(" number = 6 ,\ttext = two ", &made), Success);
    EXPECT_EQ(made.number, 6);
    EXPECT_EQ(made.text, "two");
    EXPECT_EQ(build("number=1,number=2", &made), Success);
    EXPECT_EQ(made.number, 2);
    EXPECT_EQ(build("text=,number=3", &made), Success);
    EXPECT_EQ(made.text, "");
    EXPECT_EQ(made.number, 3);
    EXPECT_EQ(build(R"(text="two words, and \"more\" \\",number=4)", &made), Success);
    EXPECT_EQ(made.text, R"(two words, and "more" \)");
    EXPECT_EQ(made.number, 4);
    EXPECT_EQ(build(R"(text="")", &made), Success);
    EXPECT_EQ(made.text, "");
    EXPECT_EQ(build("text=it's=ok", &made), Success);
    EXPECT_EQ(made.text, "it's=ok");
}

TEST(params, mistakes_are_named) {
    const struct {
        const char *text, *error;
    } cases[] = {
        {"numbr=1", "at 1: unknown setting 'numbr' of provider 'toy', expected one of: number, "},
        {"number=1,numbr=1",
         "at 10: unknown setting 'numbr' of provider 'toy', expected one of: number, "},
        {"number=1, color = pink", "at 19: 'pink' cannot be the value of 'color', expected one of: "
                                   "red, green, blue"},
        {"number", "at 1: 'number' is not a setting of provider 'toy', expected name=value"},
        {"number=1,", "at 10: '' is not a setting of provider 'toy', expected name=value"},
        {",number=1", "at 1: '' is not a setting"},
        {"=1", "at 1: '=1' is not a setting"},
        {"number=1 2", "at 10: '2' behind a value, expected ','"},
        {"text=\"open", "at 6: the quote is not closed"},
        {"text=\"open\\\"", "at 6: the quote is not closed"},
        {"text=\"a\"b", "at 9: 'b' behind a value, expected ','"},
        {"bytes=-1", "at 7: '-1' cannot be the value of 'bytes', expected a number such as "},
        {"\xff\x01=1", "at 1: unknown setting '?"
                       "?'"},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(build(c.text), InvalidArgument) << c.text;
        EXPECT_EQ(std::string(umf_text_error()).compare(0, strlen(c.error), c.error), 0)
            << c.text << "\n"
            << umf_text_error();
    }
    EXPECT_EQ(build("list=bad"), NotSupported);
}

TEST(params, failed_create_is_passed_on) {
    void *params = nullptr;
    umf_params_kind_t refuses = toy(refuse, nullptr),
                      refuses_text =
                          toy(create, [](void *) { return UMF_RESULT_ERROR_NOT_SUPPORTED; });
    EXPECT_EQ(umf_params_read(&refuses, "number=1", &params), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umf_params_read(&refuses_text, "number=1", &params), NotSupported);
    EXPECT_EQ(params, nullptr);
    EXPECT_EQ(alive, 0);
}

TEST(params, long_names_and_values) {
    std::string huge(1 << 20, 'x');
    Object made;
    EXPECT_EQ(build(("text=" + huge).c_str(), &made), Success);
    EXPECT_EQ(made.text, huge);
    EXPECT_EQ(build((huge + "=1").c_str()), InvalidArgument);
    EXPECT_EQ(build(("number=" + huge).c_str()), InvalidArgument);
    EXPECT_LT(strlen(umf_text_error()), 1024u);
    EXPECT_NE(std::string(umf_text_error()).find("xxx...' cannot be"), std::string::npos);
}

/* The rules of a field, of each type with rules, and the text of the log. */
struct Limited {
    size_t grain;
    int device;
    unsigned flags;
    int color;
    char path[4];
};

umf_field_t limited(const char *path, umf_field_type_t type, size_t offset, size_t size,
                    unsigned rules, size_t min = 0, size_t max = 0) {
    return {path,    type,    C,      colors, nullptr, nullptr, nullptr,
            nullptr, nullptr, offset, size,   rules,   min,     max};
}

const umf_field_t limited_list[] = {
    limited("params.grain", UMF_FIELD_SIZE, offsetof(Limited, grain), sizeof(size_t),
            UMF_RULE_POW2 | UMF_RULE_RANGE | UMF_RULE_OR_ZERO, 8, 64),
    limited("params.device", UMF_FIELD_INT, offsetof(Limited, device), sizeof(int), UMF_RULE_RANGE),
    limited("params.flags", UMF_FIELD_FLAGS, offsetof(Limited, flags), sizeof(unsigned),
            UMF_RULE_WORDS | UMF_RULE_FILLED),
    limited("params.color", UMF_FIELD_ENUM, offsetof(Limited, color), sizeof(int), UMF_RULE_WORDS),
    limited("params.path", UMF_FIELD_STRING, offsetof(Limited, path), 4, UMF_RULE_FILLED),
};

const umf_params_kind_t limited_kind = {
    {"limited"}, sizeof(Limited), nullptr, UMF_FIELDS(limited_list), nullptr, nullptr, nullptr};

template <typename T> umf_result_t limited_set(void *params, const char *name, T value) {
    return umf_params_set(&limited_kind, params, name, &value, "umfTest");
}

TEST(params, rules) {
    void *params = nullptr;
    ASSERT_EQ(umf_params_create(&limited_kind, &params), Success);
    auto *made = static_cast<Limited *>(params);
    for (size_t grain : {size_t{8}, size_t{64}, size_t{0}}) {
        EXPECT_EQ(limited_set(params, "grain", grain), Success) << grain;
        EXPECT_EQ(made->grain, grain);
    }
    for (size_t grain : {size_t{4}, size_t{12}, size_t{128}, SIZE_MAX}) {
        EXPECT_EQ(limited_set(params, "grain", grain), InvalidArgument) << grain;
    }
    EXPECT_EQ(made->grain, 0u);
    EXPECT_EQ(limited_set(params, "device", 0), Success);
    EXPECT_EQ(limited_set(params, "device", INT_MAX), Success);
    EXPECT_EQ(limited_set(params, "device", -1), InvalidArgument);
    EXPECT_EQ(made->device, INT_MAX);
    EXPECT_EQ(limited_set(params, "flags", 5u), Success);
    EXPECT_EQ(limited_set(params, "flags", 0u), InvalidArgument);
    EXPECT_EQ(limited_set(params, "flags", 8u), InvalidArgument);
    EXPECT_EQ(limited_set(params, "color", 2), Success);
    EXPECT_EQ(limited_set(params, "color", 3), InvalidArgument);
    EXPECT_EQ(umf_params_set(&limited_kind, params, "path", "longer", "umfTest"), Success);
    EXPECT_STREQ(made->path, "lon");
    EXPECT_EQ(umf_params_set(&limited_kind, params, "path", "", "umfTest"), InvalidArgument);
    EXPECT_EQ(umf_params_set(&limited_kind, params, "path", nullptr, "umfTest"), InvalidArgument);
    EXPECT_EQ(umf_params_set(&kind, params, "number", "", "umfTest"), InvalidArgument);
    EXPECT_EQ(umf_params_destroy(&kind, params, "umfTest"), InvalidArgument);
    EXPECT_EQ(umf_params_destroy(&limited_kind, params, "umfTest"), Success);
    EXPECT_EQ(umf_params_destroy(&limited_kind, params, "umfTest"), InvalidArgument);
    EXPECT_EQ(umf_params_destroy(&limited_kind, nullptr, "umfTest"), Success);
}

TEST(params, refusals_name_the_value_and_the_rule) {
    ASSERT_EQ(umfInit(), Success); /* who logs must be started */
    void *params = nullptr;
    ASSERT_EQ(umf_params_create(&limited_kind, &params), Success);
    LogFile log;
    limited_set(params, "grain", size_t{12});
    limited_set(params, "device", -1);
    limited_set(params, "flags", 8u);
    limited_set(params, "color", 3);
    umf_params_set(&limited_kind, params, "path", "", "umfTest");
    for (const char *line :
         {"grain must be a power of two, at least 8 and at most 64, or 0, it is 12",
          "device must be at least 0, it is -1",
          "flags must be made of: red (1), green (2), blue (4), it is 8",
          "color must be one of: red (1), green (2), blue (4), it is 3",
          "path must not be empty"}) {
        EXPECT_EQ(log.count(line), 1u) << line << log.text();
    }
    umf_params_destroy(&limited_kind, params, "umfTest");
    umfTearDown();
}

TEST(params, numbers_in_text) {
    unsigned numbers[4];
    size_t count;
    EXPECT_TRUE(umf_params_parse_numbers("", "+", numbers, 4, &count));
    EXPECT_EQ(count, 0u);
    EXPECT_TRUE(umf_params_parse_numbers("0+12+4294967295", "+", numbers, 4, &count));
    EXPECT_EQ(count, 3u);
    EXPECT_EQ(numbers[2], 4294967295u);
    EXPECT_TRUE(umf_params_parse_numbers("1*2+3*4", "*+", numbers, 4, &count));
    EXPECT_EQ(count, 4u);
    for (const char *wrong : {"+", "1+", "+1", "1-2", "a", "4294967296", "1*2", " 1", "1+2+3+4+5",
                              "99999999999999999999999"}) {
        EXPECT_FALSE(umf_params_parse_numbers(wrong, "+", numbers, 4, &count)) << wrong;
    }
    for (const char *wrong : {"1", "1*", "1*2+", "1*2+3", "1+2", "1*2*3*4"}) {
        EXPECT_FALSE(umf_params_parse_numbers(wrong, "*+", numbers, 4, &count)) << wrong;
    }
}

/* Any bytes are read without a crash, and nothing is left behind. */
TEST(params, random_text) {
    const char *const pieces[] = {"number", "text", "=", ",", "\"", "\\", " ",    "1",
                                  "color",  "red",  "+", "-", "{}", ".",  "\xff", "0x"};
    std::mt19937 random(1);
    for (size_t i = 0; i < scaled(20000); i++) {
        std::string text;
        for (auto n = random() % 12; n > 0; n--) {
            text += random() % 8 ? pieces[random() % 16] : std::string(1, char(1 + random() % 255));
        }
        build(text.c_str());
        Object object;
        size_t value;
        read(object, text.c_str(), &value, sizeof(value), "a", "b", "c", "d", "e", "f", "g", "h");
        configure(object, "params.number", text.c_str());
        configure(object, "params.flags", text.c_str());
    }
}

} // namespace
