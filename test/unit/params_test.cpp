/* Parameters of all kinds: each row of a table `<kind>_params.def` is the expectation of its
 * setting in text. The default that users read is the default, the values that the rules allow are
 * kept, all others are refused with the name of the setting. Values of a kind's own `.set` are in
 * the test of the kind. */
#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

extern "C" {
#include "ctl/params.h"

/* The kinds in the lists; those without parameters, and those that the build lacks, are NULL. */
#define umf_level_zero_params_kind umf_ze_params_kind
#define umf_level_zero_vmm_params_kind umf_ze_vmm_params_kind
#define DECLARE(kind) extern const umf_params_kind_t kind __attribute__((weak));
#define UMF_PROVIDER(id, name, feature) DECLARE(umf_##id##_params_kind)
#include "../../src/providers/providers.def"
#undef UMF_PROVIDER
#define UMF_POOL(id, name, feature) DECLARE(umf_##id##_pool_params_kind)
#include "../../src/pools/pools.def"
#undef UMF_POOL
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

struct Table {
    const char *id;
    const umf_params_kind_t *kind;
};

void PrintTo(const Table &table, std::ostream *out) {
    *out << table.id;
}

std::vector<Table> tables() {
    std::vector<Table> list;
    umfInit(); /* names all kinds, so they are in the program */
    auto add = [&](const char *id, const umf_params_kind_t *kind) {
        if (kind) {
            list.push_back({id, kind});
        }
    };
#define UMF_PROVIDER(id, name, feature) add(#id, &umf_##id##_params_kind);
#include "../../src/providers/providers.def"
#undef UMF_PROVIDER
#define UMF_POOL(id, name, feature) add(#id, &umf_##id##_pool_params_kind);
#include "../../src/pools/pools.def"
#undef UMF_POOL
    return list;
}

class Params : public testing::TestWithParam<Table> {
  protected:
    const umf_params_kind_t &kind = *GetParam().kind;

    /* The bytes of the member after "name=text" over the defaults; none: refused, and what was
     * expected is logged. */
    std::string bytes_of(const umf_field_t &field, const std::string &text) const {
        std::string object(static_cast<const char *>(kind.defaults), kind.size);
        char why[512] = "";
        umf_result_t result = umf_field_set_text(
            object.data(), &kind.fields, umf_field_name(&field), text.c_str(), why, sizeof(why));
        if (result != OK) {
            EXPECT_EQ(result, BAD) << text;
            EXPECT_STRNE(why, "") << text;
            return "";
        }
        return object.substr(field.offset, field.size);
    }
    std::string default_bytes(const umf_field_t &field) const {
        return std::string(static_cast<const char *>(kind.defaults) + field.offset, field.size);
    }
    template <typename Number> static std::string bytes(Number number) {
        return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
    }
    static std::string bytes_as(const umf_field_t &field, long long number) {
        return field.type == UMF_FIELD_SIZE ? bytes(static_cast<size_t>(number))
                                            : bytes(static_cast<int>(number));
    }
    static bool has(const umf_field_t &field, unsigned rule) {
        return field.rules & rule;
    }
    /* Fields that are members, whose values the library itself checks. */
    template <typename Look>
    void each(std::initializer_list<umf_field_type_t> types, Look look) const {
        for (size_t i = 0; i < kind.fields.count; i++) {
            const umf_field_t &field = kind.fields.list[i];
            if (field.size && !field.set &&
                std::find(types.begin(), types.end(), field.type) != types.end()) {
                SCOPED_TRACE(umf_field_name(&field));
                look(field);
            }
        }
    }
};

/* The value that a preset such as "64M", "'private'" or "0, a page" begins with; "": it is given in
 * words. */
std::string value_in(const std::string &preset) {
    if (preset.find(", or ") != std::string::npos) {
        return "";
    }
    if (preset[0] == '\'') {
        return preset.substr(1, preset.find('\'', 1) - 1);
    }
    return isdigit(preset[0]) || preset[0] == '-' ? preset.substr(0, preset.find(',')) : "";
}

bool is_a_word(const umf_field_t &field, int value) {
    const umf_field_word_t *word = field.words;
    while (word->word && word->value != value) {
        word++;
    }
    return word->word;
}

TEST_P(Params, OfNoOtherNameAreSet) {
    char object[1], why[512] = "";
    EXPECT_EQ(umf_field_set_text(object, &kind.fields, "nonsense", "1", why, sizeof(why)),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
}

TEST_P(Params, AreTheDefaultsThatUsersRead) {
    each({UMF_FIELD_BOOL, UMF_FIELD_INT, UMF_FIELD_UINT, UMF_FIELD_SIZE, UMF_FIELD_ENUM,
          UMF_FIELD_FLAGS, UMF_FIELD_STRING},
         [&](const umf_field_t &field) {
             ASSERT_NE(field.preset, nullptr);
             ASSERT_NE(field.help, nullptr);
             const std::string value = value_in(field.preset), expected = default_bytes(field);
             int number = 0;
             memcpy(&number, expected.data(), std::min(sizeof(number), expected.size()));
             if (value.empty() || (field.type == UMF_FIELD_ENUM && !is_a_word(field, number))) {
                 return; /* chosen when the object is created */
             }
             if (field.type == UMF_FIELD_STRING) {
                 EXPECT_STREQ(bytes_of(field, value).c_str(), expected.c_str());
             } else {
                 EXPECT_EQ(bytes_of(field, value), expected) << value;
             }
         });
}

TEST_P(Params, NumbersFollowTheirRules) {
    each({UMF_FIELD_INT, UMF_FIELD_UINT, UMF_FIELD_SIZE}, [&](const umf_field_t &field) {
        std::vector<long long> numbers = {
            0, 1, 2, 3, 7, 8, 100, 4096, INT_MAX, INT_MIN, -1, UINT_MAX, 1LL << 32, LLONG_MAX};
        for (size_t limit : {field.min, field.max}) {
            for (long long near : {-1, 0, 1}) {
                numbers.push_back(static_cast<long long>(limit) + near);
            }
        }
        for (long long number : numbers) {
            const size_t size = static_cast<size_t>(number);
            bool fits = field.type == UMF_FIELD_INT    ? number >= INT_MIN && number <= INT_MAX
                        : field.type == UMF_FIELD_UINT ? number >= 0 && number <= UINT_MAX
                                                       : number >= 0;
            bool is_in_range =
                number >= 0 && size >= field.min && (!field.max || size <= field.max);
            bool is_pow2 = size != 0 && (size & (size - 1)) == 0;
            bool is_allowed = fits && (!has(field, UMF_RULE_RANGE) || is_in_range) &&
                              (!has(field, UMF_RULE_POW2) || is_pow2) &&
                              (!has(field, UMF_RULE_FILLED) || number != 0);
            is_allowed |= number == 0 && has(field, UMF_RULE_OR_ZERO);
            EXPECT_EQ(bytes_of(field, std::to_string(number)),
                      is_allowed ? bytes_as(field, number) : "")
                << number;
        }
        for (const char *text : {"", "x", "1x", "1 2", "99999999999999999999999"}) {
            EXPECT_EQ(bytes_of(field, text), "") << text;
        }
    });
}

TEST_P(Params, WordsAreThoseOfTheirTable) {
    each({UMF_FIELD_ENUM, UMF_FIELD_FLAGS}, [&](const umf_field_t &field) {
        auto expected = [&](int value) {
            return has(field, UMF_RULE_FILLED) && value == 0 ? "" : bytes(value);
        };
        std::string all;
        int values = 0;
        for (const umf_field_word_t *word = field.words; word->word; word++) {
            EXPECT_EQ(bytes_of(field, word->word), expected(word->value)) << word->word;
            all += (all.empty() ? "" : "+") + std::string(word->word);
            values |= word->value;
        }
        EXPECT_EQ(bytes_of(field, all), field.type == UMF_FIELD_FLAGS ? bytes(values) : "");
        for (const char *text : {"", "fly", "+", "read+fly", "fly+read"}) {
            EXPECT_EQ(bytes_of(field, text), "") << text;
        }
        bool is_checked = field.type == UMF_FIELD_ENUM || has(field, UMF_RULE_WORDS);
        EXPECT_EQ(bytes_of(field, "4711"), is_checked ? "" : bytes(4711)) << "when it is used";
        const std::string first = field.words->word;
        EXPECT_EQ(bytes_of(field, first + "x"), "");
        EXPECT_EQ(bytes_of(field, first + "+"), "");
    });
}

TEST_P(Params, BooleansAreWords) {
    each({UMF_FIELD_BOOL}, [&](const umf_field_t &field) {
        EXPECT_EQ(bytes_of(field, "yes"), bytes(true));
        EXPECT_EQ(bytes_of(field, "no"), bytes(false));
        for (const char *text : {"", "maybe", "2", "yes+no"}) {
            EXPECT_EQ(bytes_of(field, text), "") << text;
        }
    });
}

TEST_P(Params, TextsAreCutToTheirRoom) {
    each({UMF_FIELD_STRING}, [&](const umf_field_t &field) {
        EXPECT_STREQ(bytes_of(field, "mine").c_str(), "mine");
        const std::string empty = bytes_of(field, "");
        EXPECT_EQ(empty.empty(), has(field, UMF_RULE_FILLED));
        EXPECT_STREQ(empty.c_str(), "");
        if (field.size <= UMF_NAME_MAX) {
            const std::string text = bytes_of(field, std::string(field.size + 9, 'n'));
            EXPECT_EQ(text.c_str(), std::string(field.size - 1, 'n'));
        }
    });
}

TEST(AllParams, AreFoundByTheListsOfKinds) {
    size_t expected = 0;
#define UMF_PROVIDER(id, name, feature) expected += UMF_WITH_##feature != 0;
#include "../../src/providers/providers.def"
#define UMF_POOL(id, name, feature) expected += UMF_WITH_##feature != 0;
#include "../../src/pools/pools.def"
    EXPECT_EQ(tables().size(), expected - 1) << "proxy pools have no parameters";
}

INSTANTIATE_TEST_SUITE_P(Of, Params, testing::ValuesIn(tables()),
                         [](const auto &param) { return std::string(param.param.id); });

} // namespace
