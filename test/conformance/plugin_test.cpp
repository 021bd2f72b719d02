#include <cstring>
#include <string>

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/text.h>

namespace {

std::string plugin(const char *name) {
    return std::string(UMF_TEST_PLUGIN_DIR "/umf_test_plugin_") + name + ".so";
}

umf_result_t load(const char *name) {
    return umfLoadPlugin(plugin(name).c_str());
}

struct Kind {
    std::string name, why;
    int found = 0, available = -1;
};

int visit(const char *name, int available, const char *why, void *arg) {
    Kind *kind = static_cast<Kind *>(arg);
    if (kind->name == name) {
        kind->found++;
        kind->available = available;
        kind->why = why;
    }
    return 0;
}

Kind provider(const char *name) {
    Kind kind;
    kind.name = name;
    EXPECT_EQ(umfProviderKinds(visit, &kind), UMF_RESULT_SUCCESS);
    return kind;
}

Kind pool(const char *name) {
    Kind kind;
    kind.name = name;
    EXPECT_EQ(umfPoolKinds(visit, &kind), UMF_RESULT_SUCCESS);
    return kind;
}

/* The library as it is after a fresh start: without plugins. */
class Plugin : public testing::Test {
  protected:
    void TearDown() override {
        umfTearDown();
        umfInit();
    }
};

TEST_F(Plugin, kinds_are_created_by_name) {
    ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider("plugged").found, 1);
    EXPECT_EQ(provider("plugged").available, 0);
    EXPECT_EQ(provider("plugged").why, "only for tests");
    EXPECT_EQ(pool("plugged").available, 1);
    umf_memory_pool_handle_t handle = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("plugged over plugged", &handle), UMF_RESULT_SUCCESS)
        << umfTextError();
    void *ptr = umfPoolMalloc(handle, 100);
    ASSERT_NE(ptr, nullptr);
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(ptr, &found), UMF_RESULT_SUCCESS);
    EXPECT_EQ(found, handle);
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolDestroy(handle), UMF_RESULT_SUCCESS);
}

TEST_F(Plugin, is_loaded_once) {
    ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(load("kinds"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider("plugged").found, 1);
}

TEST_F(Plugin, is_forgotten_by_teardown) {
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider("plugged").found, 1);
        umfTearDown();
        umfInit();
        EXPECT_EQ(provider("plugged").found, 0);
        EXPECT_EQ(pool("plugged").found, 0);
    }
}

bool is_loaded(const char *name) {
    void *library = dlopen(plugin(name).c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library) {
        dlclose(library);
    }
    return library != nullptr;
}

/* Its code and its kinds must not be unloaded while they can be called. */
TEST_F(Plugin, stays_while_a_provider_lives) {
    ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS);
    umf_memory_provider_handle_t handle = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("plugged", &handle), UMF_RESULT_SUCCESS);
    umfTearDown();
    EXPECT_TRUE(is_loaded("kinds"));
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderAlloc(handle, 100, 0, &ptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfMemoryProviderFree(handle, ptr, 100), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfMemoryProviderDestroy(handle), UMF_RESULT_ERROR_UNKNOWN);
    umfInit();
    EXPECT_EQ(provider("plugged").found, 0);
    EXPECT_EQ(umfMemoryProviderDestroy(handle), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(is_loaded("kinds"));
}

TEST_F(Plugin, stays_while_a_pool_lives) {
    ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS);
    umf_memory_pool_handle_t handle = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("plugged over os", &handle), UMF_RESULT_SUCCESS);
    umfTearDown();
    EXPECT_TRUE(is_loaded("kinds"));
    void *ptr = umfPoolMalloc(handle, 100);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(umfPoolFree(handle, ptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolDestroy(handle), UMF_RESULT_ERROR_UNKNOWN);
    umfInit();
    ASSERT_EQ(load("kinds"), UMF_RESULT_SUCCESS); /* again, next to the rest of the first load */
    EXPECT_EQ(umfPoolDestroy(handle), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(is_loaded("kinds"));
    umfTearDown();
    EXPECT_FALSE(is_loaded("kinds"));
    umfInit();
}

TEST_F(Plugin, registers_all_kinds_or_none) {
    EXPECT_EQ(load("half"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider("half").found, 0);
    EXPECT_EQ(load("twins"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider("twin").found, 0);
}

TEST_F(Plugin, does_not_stay_loaded_when_it_is_refused) {
    for (const char *name : {"half", "twins", "other_abi", "cut", "no_list", "no_symbol"}) {
        EXPECT_NE(load(name), UMF_RESULT_SUCCESS) << name;
        EXPECT_EQ(dlopen(plugin(name).c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << name;
    }
}

TEST_F(Plugin, of_another_version_is_refused) {
    EXPECT_EQ(load("other_abi"), UMF_RESULT_ERROR_NOT_SUPPORTED);
}

TEST_F(Plugin, with_a_bad_table_is_refused) {
    EXPECT_EQ(load("cut"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(load("no_list"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(Plugin, without_symbol_or_file_is_unavailable) {
    EXPECT_EQ(load("no_symbol"), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(load("missing"), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(umfLoadPlugin(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

} // namespace
