/* ext/vault/table.c, ext/vault/commit.c: tables that lie, and commits whose calls of the system
 * fail. */
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>

#include "unit/fault.h"
#include "vault/objects.h"

extern "C" {
#include "ext/vault/table.h"
}

namespace {

// A table of one entry of `role`.
std::vector<uint64_t> table_of(uint32_t role, unsigned flags, uint64_t digest) {
    umf_vault_slab_t slab = {};
    slab.size = uint64_t(1) << 50;
    slab.role = role;
    slab.serial = role == UMF_VAULT_CLASS_ZERO ? 0 : 1;
    umf_table_source_t entry = {};
    entry.key = "key";
    entry.key_size = 3;
    entry.size = slab.size;
    entry.digest = digest;
    entry.flags = static_cast<uint8_t>(flags);
    size_t size = umf_table_size(&entry, 1, 1, 0) + sizeof(uint64_t);
    std::vector<uint64_t> bytes(size / sizeof(uint64_t) + 1);
    umf_table_write(bytes.data(), size, &entry, 1, &slab, 1, nullptr, 0);
    return bytes;
}

const char *wrong_of(const std::vector<uint64_t> &bytes) {
    umf_table_t table;
    return umf_table_check(bytes.data(),
                           reinterpret_cast<const umf_table_head_t *>(&bytes[0])->size, &table);
}

TEST(VaultContent, AnEntryWithoutContentHasNoSum) {
    EXPECT_EQ(wrong_of(table_of(UMF_VAULT_CLASS_SHARED, 0, 5)), nullptr);
    EXPECT_EQ(wrong_of(table_of(UMF_VAULT_CLASS_ZERO, UMF_VAULT_ZERO, 0)), nullptr);
    EXPECT_STREQ(wrong_of(table_of(UMF_VAULT_CLASS_ZERO, UMF_VAULT_ZERO, 5)),
                 "an entry without content has a sum");
}

TEST(VaultContent, ACommitAfterOneThatLeftMemoryUnmapped) {
    char place[] = "/tmp/umf_vault_content_XXXXXX";
    ASSERT_NE(mkdtemp(place), nullptr);
    std::string name = std::string("file:") + place + "/model";
    {
        Vault vault(name.c_str());
        size_t failed = 0;
        bool is_hit = true;
        for (int n = 1; is_hit; n++) {
            Draft draft(vault);
            draft.fill(3, 7);
            fault::Nth nth("map", ENOMEM, true);
            fault::target = n;
            fault::seen = 0;
            umf_os_set_fault(fault::hook);
            bool is_done = draft.commit() == UMF_RESULT_SUCCESS;
            nth.off();
            is_hit = nth.hit();
            failed += !is_done;
            ASSERT_TRUE(is_done || draft.commit() == UMF_RESULT_SUCCESS) << "map " << n;
            View view(vault);
            ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
            EXPECT_EQ(view.wrong(3, 7), 0u);
        }
        EXPECT_GT(failed, 0u);
    }
    std::string command = std::string("rm -rf ") + place;
    EXPECT_EQ(system(command.c_str()), 0);
}

} // namespace
