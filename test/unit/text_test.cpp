extern "C" {
#include "core/registry.h"
#include "ctl/params.h"
#include "ctl/text.h"
}

#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <umf/plugin.h>
#include <umf/result.h>
#include <umf/text.h>

#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "unit/toy.h"

namespace {

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;

struct Params {
    int number = 0;
    std::string text;
};

int params_alive;
Params last; /* of the last created object */
bool had_params;

umf_result_t paramsInit(void *params) {
    new (params) Params;
    params_alive++;
    return Success;
}

void paramsFini(void *params) {
    static_cast<Params *>(params)->~Params();
    params_alive--;
}

const umf_field_t list[] = {
    {"params.number", UMF_FIELD_INT, UMF_FIELD_CREATE, nullptr, nullptr,
     [](void *params, const void *value) {
         memcpy(&static_cast<Params *>(params)->number, value, sizeof(int));
         return Success;
     },
     nullptr, nullptr, nullptr, 0, 0, 0, 0, 0},
    {"params.text", UMF_FIELD_STRING, UMF_FIELD_CREATE, nullptr, nullptr,
     [](void *params, const void *value) {
         static_cast<Params *>(params)->text = static_cast<const char *>(value);
         return Success;
     },
     nullptr, nullptr, nullptr, 0, 0, 0, 0, 0},
};
const umf_fields_t fields = UMF_FIELDS(list);

const umf_params_kind_t params_kind = {{"parameters"}, sizeof(Params), nullptr,   fields,
                                       paramsInit,     nullptr,        paramsFini};

umf_result_t paramsFromText(const char *text, void **params) {
    return umf_params_read(&params_kind, text, params);
}

void paramsDestroy(void *params) {
    umf_params_destroy(&params_kind, params, "test");
}

umf_result_t initialize(const void *params, void **self) {
    had_params = params != nullptr;
    if (params) {
        last = *static_cast<const Params *>(params);
    }
    if (last.number == 13) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return toy::make(self);
}

/* Kinds: toy (with settings), bare (without), sour (refuses any text), as provider and as pool. */
class Text : public testing::Test {
  protected:
    void SetUp() override {
        last = Params();
        for (const char *name : {"toy", "bare", "sour"}) {
            umf_memory_provider_ops_t &ops = provider_ops[name];
            ops = toy::providerOps();
            ops.initialize = initialize;
            umf_memory_provider_descriptor_t &provider = providers[name];
            provider = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
            provider.name = name;
            provider.ops = &ops;
            umf_memory_pool_ops_t &pool_table = pool_ops[name];
            pool_table = toy::poolOps();
            pool_table.initialize = [](umf_memory_provider_handle_t, const void *params,
                                       void **self) { return initialize(params, self); };
            umf_memory_pool_descriptor_t &pool = pools[name];
            pool = UMF_MEMORY_POOL_DESCRIPTOR_INIT;
            pool.name = name;
            pool.ops = &pool_table;
        }
        for (auto *kind : {&providers["toy"]}) {
            kind->params_from_text = paramsFromText;
            kind->params_destroy = paramsDestroy;
        }
        pools["toy"].params_from_text = paramsFromText;
        pools["toy"].params_destroy = paramsDestroy;
        providers["sour"].params_from_text = [](const char *, void **) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        };
        providers["sour"].probe = [](char *why, size_t size) {
            strncpy(why, "no sugar", size);
            return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
        };
        for (const char *name : {"toy", "bare", "sour"}) {
            ASSERT_EQ(umfRegisterProvider(&providers[name]), Success);
            ASSERT_EQ(umfRegisterPool(&pools[name]), Success);
        }
    }

    void TearDown() override {
        umf_registry_teardown();
        umf_registry_init();
    }

    static umf_result_t provider(const std::string &text) {
        umf_memory_provider_handle_t handle = nullptr;
        umf_result_t result = umfMemoryProviderCreateFromText(text.c_str(), &handle);
        EXPECT_EQ(handle != nullptr, result == Success) << text;
        EXPECT_EQ(*umfTextError() == '\0', result == Success) << text;
        umfMemoryProviderDestroy(handle);
        nothingIsLeft(text);
        return result;
    }

    static umf_result_t pool(const std::string &text) {
        umf_memory_pool_handle_t handle = nullptr;
        umf_result_t result = umfPoolCreateFromText(text.c_str(), &handle);
        EXPECT_EQ(handle != nullptr, result == Success) << text;
        EXPECT_EQ(*umfTextError() == '\0', result == Success) << text;
        if (handle) {
            EXPECT_EQ(toy::alive, 2);
            umfPoolDestroy(handle);
        }
        nothingIsLeft(text);
        return result;
    }

    static void nothingIsLeft(const std::string &text) {
        EXPECT_EQ(toy::alive, 0) << text;
        EXPECT_EQ(params_alive, 0) << text;
    }

    static void expectError(const char *text, const std::string &error) {
        EXPECT_EQ(std::string(umfTextError()).substr(0, error.size()), error) << text;
    }

    std::map<std::string, umf_memory_provider_ops_t> provider_ops;
    std::map<std::string, umf_memory_pool_ops_t> pool_ops;
    std::map<std::string, umf_memory_provider_descriptor_t> providers;
    std::map<std::string, umf_memory_pool_descriptor_t> pools;
};

TEST_F(Text, providers) {
    EXPECT_EQ(provider("toy"), Success);
    EXPECT_TRUE(had_params);
    EXPECT_EQ(provider("bare"), Success);
    EXPECT_FALSE(had_params);
    EXPECT_EQ(provider("toy:number=5,text=abc"), Success);
    EXPECT_EQ(last.number, 5);
    EXPECT_EQ(last.text, "abc");
    EXPECT_EQ(provider("  toy : number = 6 ,\n\ttext = x  "), Success);
    EXPECT_EQ(last.number, 6);
    EXPECT_EQ(last.text, "x");
    EXPECT_EQ(provider(R"(toy:text="a over b, \"c\": d",number=7)"), Success);
    EXPECT_EQ(last.number, 7);
    EXPECT_EQ(last.text, R"(a over b, "c": d)");
}

TEST_F(Text, pools) {
    EXPECT_EQ(pool("bare over bare"), Success);
    EXPECT_EQ(pool("toy:number=1 over bare"), Success);
    EXPECT_EQ(last.number, 1);
    EXPECT_EQ(pool("bare over toy:number=2"), Success);
    EXPECT_EQ(last.number, 2);
    EXPECT_EQ(pool(" toy : number = 3 , text = over\tover\n toy : number = 4 "), Success);
    EXPECT_EQ(last.text, "over");
    EXPECT_EQ(last.number, 3);
    EXPECT_EQ(pool(R"(toy:text="x over y" over toy:text="over")"), Success);
    EXPECT_EQ(last.text, "x over y");
}

TEST_F(Text, the_pool_owns_its_provider) {
    umf_memory_pool_handle_t handle = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("bare over bare", &handle), Success);
    umf_memory_provider_handle_t below = nullptr;
    EXPECT_EQ(umfPoolGetMemoryProvider(handle, &below), Success);
    EXPECT_NE(below, nullptr);
    EXPECT_EQ(umfPoolDestroy(handle), Success);
    EXPECT_EQ(toy::alive, 0);
}

TEST_F(Text, pools_over_a_provider_that_exists) {
    umf_memory_provider_handle_t below = nullptr, found = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("toy:number=1", &below), Success);
    umf_memory_pool_handle_t first = nullptr, second = nullptr;
    ASSERT_EQ(umfPoolCreateFromTextOver(R"(toy:number=2,text="x over y")", below, &first), Success);
    EXPECT_EQ(last.number, 2);
    EXPECT_EQ(last.text, "x over y");
    ASSERT_EQ(umfPoolCreateFromTextOver(" bare ", below, &second), Success);
    EXPECT_EQ(umfPoolGetMemoryProvider(second, &found), Success);
    EXPECT_EQ(found, below);
    umf_memory_pool_handle_t none = nullptr;
    EXPECT_EQ(umfPoolCreateFromTextOver("toy over toy", below, &none), InvalidArgument);
    expectError("toy over toy", "at 5: 'over' is not expected here, expected the end of the text");
    EXPECT_EQ(umfPoolCreateFromTextOver("nix", below, &none), InvalidArgument);
    expectError("nix", "at 1: unknown kind of pool 'nix'");
    EXPECT_EQ(umfPoolCreateFromTextOver("toy", nullptr, &none), InvalidArgument);
    expectError("toy", "the provider is NULL");
    EXPECT_EQ(umfPoolCreateFromTextOver("toy", below, nullptr), InvalidArgument);
    EXPECT_EQ(umfPoolCreateFromTextOver(nullptr, below, &none), InvalidArgument);
    EXPECT_EQ(none, nullptr);
    EXPECT_EQ(umfPoolDestroy(first), Success);
    EXPECT_EQ(umfPoolDestroy(second), Success);
    EXPECT_EQ(toy::alive, 1) << "the provider is the caller's";
    EXPECT_EQ(umfMemoryProviderDestroy(below), Success);
    EXPECT_EQ(toy::alive, 0);
}

TEST_F(Text, mistakes_in_providers) {
    const struct {
        const char *text, *error;
    } cases[] = {
        {"", "at 1: the text ends, expected a kind of provider"},
        {"   ", "at 4: the text ends, expected a kind of provider"},
        {":number=1", "at 1: ':number=1' is not expected here, expected a kind of provider"},
        {"tyo:number=1", "at 1: unknown kind of provider 'tyo', expected one of: toy, os, fixed"},
        {" tyo", "at 2: unknown kind of provider 'tyo'"},
        {"Toy", "at 1: unknown kind of provider 'Toy'"},
        {"toy:", "at 5: nothing behind ':', expected a setting name=value"},
        {"toy: ", "at 6: nothing behind ':'"},
        {"toy:numbr=1", "at 5: unknown setting 'numbr' of provider 'toy', expected one of: number, "
                        "text"},
        {"toy:text=a, numbr=1", "at 13: unknown setting 'numbr' of provider 'toy'"},
        {"toy:number=many", "at 12: 'many' cannot be the value of 'number', expected a whole "
                            "number"},
        {"toy:number=1 text=a", "at 14: 'text=a' is not expected here, expected the end of the "
                                "text"},
        {"toy over bare", "at 5: 'over' is not expected here, expected the end of the text"},
        {"toy:text=\"a", "at 10: the quote is not closed"},
        {"toy:number=1,", "at 14: '' is not a setting of provider 'toy', expected name=value"},
        {"bare:number=1", "at 6: provider 'bare' has no settings, expected none"},
        {"\xff\xfe", "at 1: unknown kind of provider '?"
                     "?'"},
        {"{}", "at 1: unknown kind of provider '{}'"},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(provider(c.text), InvalidArgument) << c.text;
        expectError(c.text, c.error);
    }
}

TEST_F(Text, mistakes_in_pools) {
    const struct {
        const char *text, *error;
    } cases[] = {
        {"", "at 1: the text ends, expected a kind of pool"},
        {"toy", "at 4: the text ends, expected 'over' and a provider"},
        {"toy over", "at 9: the text ends, expected a kind of provider"},
        {"toy over ", "at 10: the text ends, expected a kind of provider"},
        {"toy overtoy", "at 5: 'overtoy' is not expected here, expected 'over' and a provider"},
        {"toy under bare", "at 5: 'under' is not expected here, expected 'over'"},
        {"toy:number=1 number=2 over bare", "at 14: 'number=2' is not expected here, expected "
                                            "'over'"},
        {"os over bare", "at 1: unknown kind of pool 'os', expected one of: "},
        {"toy over proxy", "at 10: unknown kind of provider 'proxy', expected one of: "},
        {"toy:numbr=1 over toy:number=1", "at 5: unknown setting 'numbr' of pool 'toy'"},
        {"toy:number=1 over toy:numbr=1", "at 23: unknown setting 'numbr' of provider 'toy'"},
        {"toy over bare over bare", "at 15: 'over' is not expected here, expected the end"},
        {"bare:a=1 over bare", "at 6: pool 'bare' has no settings"},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(pool(c.text), InvalidArgument) << c.text;
        expectError(c.text, c.error);
    }
}

TEST_F(Text, failures_of_the_kinds) {
    EXPECT_EQ(provider("toy:number=13"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    expectError("", "at 1: provider 'toy' cannot be created: ");
    EXPECT_EQ(pool("bare over toy:number=13"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    expectError("", "at 11: provider 'toy' cannot be created: ");
    EXPECT_EQ(pool("toy:number=13 over toy:number=1"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    expectError("", "at 1: pool 'toy' cannot be created: ");
    EXPECT_EQ(provider("sour:a=1"), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    expectError("", "at 6: settings of provider 'sour' are refused: ");
    EXPECT_EQ(provider("sour"), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    expectError("", "at 1: settings of provider 'sour' are refused: ");
}

/* There is no provider with a native error, and perhaps no log. */
TEST_F(Text, failures_carry_their_cause) {
    EXPECT_NE(provider("file:path=/no/such/folder/x"), Success);
    EXPECT_NE(strstr(umfTextError(), "\"/no/such/folder/x\""), nullptr) << umfTextError();
    EXPECT_NE(strstr(umfTextError(), strerror(ENOENT)), nullptr) << umfTextError();
    EXPECT_NE(pool("proxy over file:path=/no/such/folder/x"), Success);
    expectError("", "at 12: provider 'file' cannot be created: ");
    EXPECT_NE(strstr(umfTextError(), strerror(ENOENT)), nullptr) << umfTextError();
    EXPECT_NE(provider("fixed"), Success);
    EXPECT_NE(strstr(umfTextError(), "umfFixedMemoryProviderParamsCreate"), nullptr)
        << umfTextError();
}

TEST_F(Text, failures_of_pools_carry_their_cause) {
    if (!UMF_WITH_JEMALLOC) {
        GTEST_SKIP() << "no other pool refuses a provider";
    }
    EXPECT_NE(pool("jemalloc over bare"), Success); /* which cannot split */
    std::string why = umfTextError();
    EXPECT_EQ(why.find("at 1: pool 'jemalloc' cannot be created: "), 0u) << why;
    EXPECT_EQ(why.find(umfResultText(InvalidArgument)), std::string::npos) << why;
}

TEST_F(Text, a_cause_is_logged_once) {
    LogFile log;
    EXPECT_NE(provider("file:path=/no/such/folder/x"), Success);
    EXPECT_EQ(log.count(strerror(ENOENT)), 1u) << log.text();
}

TEST_F(Text, nobody_is_sent_to_a_provider_that_does_not_exist) {
    provider_ops["sour"].initialize = [](const void *, void **) {
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    };
    providers["sour"].params_from_text = nullptr;
    umf_registry_teardown();
    umf_registry_init();
    ASSERT_EQ(umfRegisterProvider(&providers["sour"]), Success);
    EXPECT_EQ(provider("sour"), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    expectError("", "at 1: provider 'sour' cannot be created: the provider failed and did not log");
}

/* Known, but not in this build: that is another answer than to a word that means nothing. */
TEST_F(Text, kinds_left_out_of_the_build) {
    if (!UMF_WITH_LEVEL_ZERO) {
        EXPECT_EQ(provider("level_zero"), UMF_RESULT_ERROR_NOT_SUPPORTED);
        expectError("",
                    "at 1: this libumf was built without the provider 'level_zero'; it has: os");
    }
    if (!UMF_WITH_JEMALLOC) {
        EXPECT_EQ(pool("jemalloc over os"), UMF_RESULT_ERROR_NOT_SUPPORTED);
        expectError("", "at 1: this libumf was built without the pool 'jemalloc'; it has: proxy");
    }
    std::map<std::string, std::string> why;
    auto visit = [](const char *name, int available, const char *text, void *arg) {
        if (!available) {
            (*static_cast<std::map<std::string, std::string> *>(arg))[name] = text;
        }
        return 0;
    };
    EXPECT_EQ(umfProviderKinds(visit, &why), Success);
    EXPECT_EQ(umfPoolKinds(visit, &why), Success);
    EXPECT_EQ(why["level_zero"] == "this libumf was built without it", !UMF_WITH_LEVEL_ZERO);
    EXPECT_EQ(why["jemalloc"] == "this libumf was built without it", !UMF_WITH_JEMALLOC);
}

TEST_F(Text, null_and_too_long) {
    umf_memory_provider_handle_t provider_handle = nullptr;
    umf_memory_pool_handle_t pool_handle = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText(nullptr, &provider_handle), InvalidArgument);
    expectError("", "the text is NULL");
    EXPECT_EQ(umfMemoryProviderCreateFromText("toy", nullptr), InvalidArgument);
    EXPECT_EQ(umfPoolCreateFromText(nullptr, &pool_handle), InvalidArgument);
    EXPECT_EQ(umfPoolCreateFromText("toy over toy", nullptr), InvalidArgument);
    EXPECT_EQ(provider("toy:text=" + std::string(UMF_TEXT_MAX - 9, 'x')), Success);
    EXPECT_EQ(last.text.size(), UMF_TEXT_MAX - 9);
    EXPECT_EQ(provider("toy:text=" + std::string(UMF_TEXT_MAX - 8, 'x')), InvalidArgument);
    expectError("", "the text is longer than 65536 bytes");
    EXPECT_EQ(provider(std::string(1 << 20, 'x')), InvalidArgument);
    EXPECT_EQ(pool(std::string(60000, 'x')), InvalidArgument);
    EXPECT_EQ(pool(std::string(60000, ':')), InvalidArgument);
    EXPECT_EQ(pool("toy:" + std::string(60000, '"')), InvalidArgument);
}

TEST_F(Text, the_error_is_of_this_thread_and_of_the_last_creation) {
    EXPECT_EQ(provider("nothing"), InvalidArgument);
    EXPECT_STRNE(umfTextError(), "");
    std::thread([] { EXPECT_STREQ(umfTextError(), ""); }).join();
    EXPECT_EQ(provider("toy"), Success);
    EXPECT_STREQ(umfTextError(), "");
}

/* Any bytes are read without a crash, and nothing is left behind. */
TEST_F(Text, random_text) {
    const char *const pieces[] = {"toy", "bare", "sour", " over ", "over", ":",    ",",  "=",
                                  "\"",  "\\",   " ",    "number", "text", "\xff", "13", "1"};
    std::mt19937 random(4);
    for (size_t i = 0; i < scaled(20000); i++) {
        std::string text = random() % 2 ? "toy:" : "";
        for (auto n = random() % 14; n > 0; n--) {
            text += random() % 8 ? pieces[random() % 16] : std::string(1, char(1 + random() % 255));
        }
        last = Params();
        provider(text);
        last = Params();
        pool(text + " over toy");
    }
}

TEST_F(Text, kinds_are_enumerated) {
    struct Seen {
        std::string names;
        std::map<std::string, std::string> why;
    } seen;
    auto visit = [](const char *name, int available, const char *why, void *arg) {
        Seen *to = static_cast<Seen *>(arg);
        to->names += std::string(name) + " ";
        if (!available) {
            to->why[name] = why;
        } else {
            EXPECT_STREQ(why, "");
        }
        return 0;
    };
    EXPECT_EQ(umfProviderKinds(visit, &seen), Success);
    EXPECT_EQ(seen.names.find("os fixed "), 0u) << seen.names;
    EXPECT_NE(seen.names.find("toy bare sour "), std::string::npos) << seen.names;
    EXPECT_EQ(seen.why["sour"], "no sugar");
    EXPECT_EQ(seen.why.count("toy"), 0u);
    seen = Seen();
    EXPECT_EQ(umfPoolKinds(visit, &seen), Success);
    EXPECT_EQ(seen.names.find("proxy disjoint "), 0u) << seen.names;
    EXPECT_NE(seen.names.find("toy bare sour "), std::string::npos) << seen.names;
    int calls = 0;
    auto stop = [](const char *, int, const char *, void *arg) {
        return ++*static_cast<int *>(arg) == 2 ? 1 : 0;
    };
    EXPECT_EQ(umfProviderKinds(stop, &calls), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(umfPoolKinds(stop, &(calls = 0)), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfProviderKinds(nullptr, nullptr), InvalidArgument);
    EXPECT_EQ(umfPoolKinds(nullptr, nullptr), InvalidArgument);
}

} // namespace
