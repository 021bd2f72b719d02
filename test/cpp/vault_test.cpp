// Vaults: a folder needs no service, so this tests objects and results; claims have one. The memory
// of GPUs and the service have tests of their own (test/gpu/vault_test.cpp, test/vault).
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "cpp/heap.h"
#ifdef UMF_TEST_UMFD
#include "vault/service.h"
#endif

static_assert(!std::is_copy_constructible_v<umf::vault> && std::is_move_assignable_v<umf::vault>);
static_assert(!std::is_copy_constructible_v<umf::vault_draft> &&
              !std::is_copy_constructible_v<umf::vault_view>);
static_assert(!std::is_copy_constructible_v<umf::vault_claim> &&
              std::is_nothrow_move_assignable_v<umf::vault_claim>);

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

TEST_F(CppVault, AFolderHasNoClaims) {
    umf::vault vault(name.c_str());
    EXPECT_EQ(vault.claim("a").code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(vault.forget("a").code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    size_t count = 0;
    EXPECT_TRUE(vault.for_each_claim([&](const umf_vault_claim_stat_t &) { count++; }));
    EXPECT_EQ(count, 0u);
}

#ifdef UMF_TEST_UMFD

class CppClaim : public Vaults {
  protected:
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;

    CppClaim() {
        params.size = size;
    }
    static uint32_t holders(const umf::vault &vault) {
        uint32_t count = 0;
        vault.for_each_claim([&](const umf_vault_claim_stat_t &stat) { count += stat.holders; })
            .value();
        return count;
    }
};

TEST_F(CppClaim, TheNextHolderContinues) {
    umf::vault vault("model"), other("model");
    EXPECT_EQ(vault.claim("table").code(), UMF_RESULT_ERROR_INVALID_ARGUMENT); // there is none
    {
        umf::vault_claim claim = vault.claim("table", params).value();
        EXPECT_TRUE(claim.is_new());
        EXPECT_GE(claim.size(), size);
        EXPECT_EQ(claim.epoch(), 1u);
        EXPECT_EQ(claim.note(), "");
        std::memset(claim.data(), 'a', size);
        ASSERT_TRUE(claim.commit("all"));
        EXPECT_FALSE(claim.commit(std::string(257, 'x')));
        EXPECT_FALSE(other.claim("table")); // one at a time
        EXPECT_EQ(holders(vault), 1u);
    }
    EXPECT_EQ(holders(vault), 0u);
    umf::vault_claim claim = other.claim("table").value();
    EXPECT_FALSE(claim.is_new());
    EXPECT_EQ(claim.note(), "all");
    EXPECT_EQ(static_cast<char *>(claim.data())[size - 1], 'a');
    EXPECT_EQ(vault.forget("table").code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES); // it is held
    EXPECT_TRUE(claim.unclaim());
    EXPECT_TRUE(claim.unclaim()); // nothing
    EXPECT_TRUE(!claim && !claim.data() && claim.size() == 0 && claim.is_fenced());
    EXPECT_FALSE(claim.commit("late"));
    EXPECT_FALSE(claim.renew());
    EXPECT_TRUE(vault.forget("table"));
    EXPECT_EQ(vault.stat().value().claims, 0u);
}

TEST_F(CppClaim, IsFencedInAChildOfFork) {
    umf::vault vault("model");
    umf::vault_claim claim = vault.claim("table", params).value();
    pid_t child = fork();
    if (child == 0) {
        bool is_right = claim.is_fenced() && !claim.commit("x") && !claim.renew();
        is_right = is_right && claim.is_fenced() && !claim.unclaim();
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(claim.is_fenced());
    EXPECT_TRUE(claim.commit("mine"));
}

TEST_F(CppClaim, AFencedOneIsRenewed) {
    umf::vault vault("model"), other("model");
    umf::vault_claim claim = vault.claim("table", params).value();
    void *at = claim.data();
    params.fence = UMF_VAULT_FENCE_EPOCH;
    {
        EXPECT_FALSE(claim.is_fenced());
        umf::vault_claim taken = other.claim("table", params).value();
        EXPECT_TRUE(claim.is_fenced());
        EXPECT_FALSE(claim.commit("late"));
        EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
        ASSERT_TRUE(taken.commit("taken"));
        EXPECT_FALSE(claim.renew());
    }
    ASSERT_TRUE(claim.renew());
    EXPECT_FALSE(claim.is_fenced());
    EXPECT_EQ(claim.data(), at);
    EXPECT_EQ(claim.note(), "taken");
    EXPECT_GT(claim.epoch(), 2u);
    EXPECT_TRUE(claim.commit("mine"));
    umf::vault_claim moved = std::move(claim);
    EXPECT_FALSE(claim);
    EXPECT_TRUE(moved.commit("moved"));
    moved = vault.claim("second", params).value(); // gives the first one back
    EXPECT_EQ(holders(vault), 1u);
    EXPECT_EQ(other.claim("table").value().note(), "moved");
    EXPECT_EQ(vault.claim("").code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

#endif
