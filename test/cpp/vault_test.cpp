// Vaults: a folder needs no service, so this tests objects and results; the memory of GPUs and the
// service have tests of their own (test/gpu/vault_test.cpp, test/vault).
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "cpp/heap.h"

static_assert(!std::is_copy_constructible_v<umf::vault> && std::is_move_assignable_v<umf::vault>);
static_assert(!std::is_copy_constructible_v<umf::vault_draft> &&
              !std::is_copy_constructible_v<umf::vault_view>);

namespace {

class CppVault : public testing::Test {
  protected:
    void SetUp() override {
        std::string text = testing::TempDir() + "umf_cpp_vault_XXXXXX";
        ASSERT_NE(mkdtemp(text.data()), nullptr);
        folder = text;
        name = "file:" + text + "/model";
        umf::result<umf::vault> made = umf::vault::create(name.c_str());
        if (made.code() == UMF_RESULT_ERROR_NOT_SUPPORTED) {
            GTEST_SKIP() << "this build of the library has no vaults";
        }
        made.value();
    }
    void TearDown() override {
        std::filesystem::remove_all(folder);
    }
    std::string name;
    std::filesystem::path folder;
};

constexpr size_t size = 100000;

uint64_t write(const umf::vault &vault, char value) {
    umf::vault_draft draft = vault.begin().value();
    void *memory = draft.pool("coalescing over linux_vmm").value().allocate(size);
    std::memset(memory, value, size);
    draft.put("weight", memory, size, "f32").value();
    return draft.commit().value();
}

char first(const umf::vault_view &view) {
    return *static_cast<const char *>(view.find("weight").value().ptr);
}

} // namespace

TEST_F(CppVault, IsWrittenAndRead) {
    umf::vault vault(name.c_str());
    EXPECT_EQ(write(vault, 'a'), 1u);
    umf::vault_view view = vault.attach().value();
    umf_vault_entry_t entry = view.find("weight").value();
    EXPECT_EQ(entry.size, size);
    EXPECT_EQ(std::string(static_cast<const char *>(entry.note), entry.note_size), "f32");
    EXPECT_EQ(entry.device, -1);
    EXPECT_EQ(view.find("other").code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    size_t seen = 0;
    view.for_each("", [&](const umf_vault_entry_t &each) { seen += each.size; }).value();
    EXPECT_EQ(seen, size);
    EXPECT_EQ(view.generation(), 1u);
    EXPECT_TRUE(view.verify());
    EXPECT_EQ(vault.stat().value().current, 1u);
    EXPECT_EQ(vault.evict().code(), UMF_RESULT_ERROR_NOT_SUPPORTED); // of a folder
    EXPECT_EQ(vault.snapshot().code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
}

TEST_F(CppVault, AViewGoesComesBackAndMoves) {
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    params.keep = 1;
    umf::vault vault(name.c_str(), params);
    write(vault, 'a');
    umf::vault_view view = vault.attach().value();
    const void *at = view.find("weight").value().ptr;
    ASSERT_TRUE(view.suspend());
    EXPECT_FALSE(view.verify());
    ASSERT_TRUE(view.resume());
    EXPECT_EQ(first(view), 'a');
    write(vault, 'b');
    ASSERT_TRUE(view.move());
    EXPECT_EQ(view.generation(), 2u);
    EXPECT_EQ(view.find("weight").value().ptr, at);
    EXPECT_EQ(first(view), 'b');
    umf::vault_view other = std::move(view);
    EXPECT_FALSE(view);
    EXPECT_EQ(first(other), 'b');
    other = vault.attach().value(); // detaches
    EXPECT_TRUE(other.detach());
    EXPECT_TRUE(other.detach()); // nothing
    EXPECT_EQ(other.find("weight").code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(CppVault, ADraftThatIsLeftIsAborted) {
    umf::vault vault(name.c_str());
    {
        umf::vault_draft draft = vault.begin().value();
        EXPECT_EQ(vault.begin().code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES); // one at a time
        EXPECT_EQ(draft.pool("disjoint over os").code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(draft.put("a", "text", 4).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    write(vault, 'c');
    umf::vault_view view = vault.attach().value();
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    umf::vault_draft draft = vault.begin(params).value();
    ASSERT_TRUE(draft.keep("w"));
    ASSERT_TRUE(draft.copy(view));
    EXPECT_EQ(draft.commit().value(), 2u);
    EXPECT_FALSE(draft);
    EXPECT_TRUE(draft.abort()); // nothing
    EXPECT_TRUE(vault.drop(2));
    EXPECT_TRUE(view.detach());
    EXPECT_TRUE(vault.close());
    EXPECT_THROW(umf::vault(""), umf::exception);
}
