#include <cstring>
#include <string>

#include <gtest/gtest.h>

extern "C" {
#include "base/dl.h"
#include "system/os.h"
}

namespace {

const char *const libm = "libm.so.6";

struct table_t {
    double (*cosine)(double);
    void (*absent)(void);
    double (*sine)(double);
};

table_t unset() {
    table_t table;
    std::memset(static_cast<void *>(&table), 0x5a, sizeof(table));
    return table;
}

bool is_unset(const table_t &table) {
    table_t other = unset();
    return std::memcmp(&table, &other, sizeof(table)) == 0;
}

} // namespace

TEST(dl, absent_library_gives_null_and_a_reason) {
    char why[128] = "";
    EXPECT_EQ(umf_dl_open("libumf_no_such_library.so.9", false, why, sizeof(why)), nullptr);
    EXPECT_NE(std::string(why).find("libumf_no_such_library.so.9"), std::string::npos) << why;
}

TEST(dl, reason_is_cut_to_its_place) {
    char why[8];
    std::memset(why, 'x', sizeof(why));
    EXPECT_EQ(umf_dl_open("libumf_no_such_library.so.9", false, why, 5), nullptr);
    EXPECT_EQ(std::strlen(why), 4u);
    EXPECT_EQ(why[5], 'x');
    EXPECT_EQ(umf_dl_open("libumf_no_such_library.so.9", false, nullptr, 0), nullptr);
}

TEST(dl, loaded_only_does_not_load) {
    char why[128] = "";
    EXPECT_EQ(umf_dl_open("libcrypt.so.1", true, why, sizeof(why)), nullptr);
    EXPECT_STRNE(why, "");
    void *library = umf_dl_open("libc.so.6", true, why, sizeof(why));
    EXPECT_NE(library, nullptr) << why;
    umf_dl_close(library);
}

TEST(dl, a_privileged_program_loads_nothing) {
    char why[256] = "";
    umf_os_set_fault([](const char *call) { return strcmp(call, "is_privileged") == 0 ? 1 : 0; });
    void *library = umf_dl_open("libcrypt.so.1", false, why, sizeof(why));
    void *loaded = umf_dl_open("libc.so.6", false, nullptr, 0);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(library, nullptr);
    EXPECT_NE(std::string(why).find("set-user-ID"), std::string::npos) << why;
    EXPECT_NE(loaded, nullptr);
    umf_dl_close(loaded);
}

TEST(dl, symbol) {
    void *library = umf_dl_open(libm, false, nullptr, 0);
    ASSERT_NE(library, nullptr);
    EXPECT_NE(umf_dl_symbol(library, "cos"), nullptr);
    EXPECT_EQ(umf_dl_symbol(library, "umf_no_such_symbol"), nullptr);
    umf_dl_close(library);
}

TEST(dl, close_of_null_is_quiet) {
    umf_dl_close(nullptr);
}

TEST(dl, table_is_filled_and_optional_ones_may_be_absent) {
    const umf_dl_symbol_t symbols[] = {
        {"cos", offsetof(table_t, cosine), false},
        {"umf_no_such_symbol", offsetof(table_t, absent), true},
        {"sin", offsetof(table_t, sine), true},
    };
    void *library = umf_dl_open(libm, false, nullptr, 0);
    ASSERT_NE(library, nullptr);
    table_t table = unset();
    ASSERT_EQ(umf_dl_load(library, libm, symbols, 3, &table), UMF_RESULT_SUCCESS);
    EXPECT_EQ(table.cosine(0.0), 1.0);
    EXPECT_EQ(table.sine(0.0), 0.0);
    EXPECT_EQ(table.absent, nullptr);
    umf_dl_close(library);
}

TEST(dl, missing_symbol_leaves_the_table_untouched) {
    const umf_dl_symbol_t symbols[] = {
        {"cos", offsetof(table_t, cosine), false},
        {"umf_no_such_symbol", offsetof(table_t, absent), false},
    };
    void *library = umf_dl_open(libm, false, nullptr, 0);
    ASSERT_NE(library, nullptr);
    table_t table = unset();
    EXPECT_EQ(umf_dl_load(library, libm, symbols, 2, &table),
              UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_TRUE(is_unset(table));
    umf_dl_close(library);
}

TEST(dl, knows_where_a_function_comes_from) {
    EXPECT_TRUE(umf_dl_is_from("getppid", "libc.so"));
    EXPECT_FALSE(umf_dl_is_from("getppid", "libc.so.6.of.another"));
    EXPECT_FALSE(umf_dl_is_from("getppid", "libumf_proxy.so"));
    EXPECT_FALSE(umf_dl_is_from("no_such_function_anywhere", "libc.so"));
}
