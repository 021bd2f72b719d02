/* ext/vault/table.c, commit.c, view/map.c: tables that lie, commits whose calls of the system fail,
 * and addresses that are taken. */
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "unit/fault.h"
#include "vault/objects.h"

extern "C" {
#include "ext/vault/table.h"
#include "ext/vault/view/map.h"
#include "system/os.h"
}

namespace {

// A table of one entry of `role`.
std::vector<uint64_t> table_of(uint32_t role, unsigned flags, uint64_t digest) {
    umf_vault_slab_t slab = {};
    slab.size = uint64_t(1) << 50;
    slab.role = role;
    slab.kind = UMF_VAULT_KIND_HOST;
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

// Another thread may map something where a slab was about to be.
TEST(VaultContent, TheSumOfASlabIsThatOfItsPartsInAnyOrder) {
    constexpr size_t PART = UMF_TABLE_SUM_PART, SIZE = 3 * PART + 100;
    std::vector<char> bytes(SIZE), other;
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = static_cast<char>(i * 31 + i / 255);
    }
    const uint64_t whole = umf_table_slab_sum(bytes.data(), 0, SIZE);
    uint64_t last = umf_table_slab_sum(&bytes[2 * PART], 2 * PART, PART + 100);
    uint64_t first = umf_table_slab_sum(bytes.data(), 0, 2 * PART);
    EXPECT_EQ(last + first, whole);
    other = bytes; // two parts change places
    std::swap_ranges(other.begin(), other.begin() + PART, other.begin() + PART);
    EXPECT_NE(umf_table_slab_sum(other.data(), 0, SIZE), whole);
    other = bytes;
    other[SIZE - 1] ^= 1;
    EXPECT_NE(umf_table_slab_sum(other.data(), 0, SIZE), whole);
    EXPECT_NE(umf_table_slab_sum(bytes.data(), 0, SIZE - 1), whole);
}

TEST(VaultContent, ASlabWhosePlaceIsTakenIsMappedElsewhere) {
    constexpr size_t large = size_t(4) << 20, huge_page = size_t(2) << 20;
    umf_table_head_t head = {};
    umf_vault_slab_t slabs[2] = {};
    void *bases[2] = {};
    head.slabs = 2;
    for (umf_vault_slab_t &slab : slabs) {
        slab = {1, large, UMF_VAULT_CLASS_SHARED, UMF_VAULT_KIND_HOST, {}};
    }
    struct umf_vault_view_t view = {};
    view.table.head = &head;
    view.table.slabs = slabs;
    view.bases = bases;
    ASSERT_EQ(umf_vault_view_reserve(&view), UMF_RESULT_SUCCESS);
    void *taken = mmap(view.near, huge_page + large, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(taken, MAP_FAILED);
    ASSERT_EQ(taken, view.near);
    memset(taken, 7, huge_page + large);
    int fd = memfd_create("slab", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, large), 0);
    EXPECT_EQ(umf_vault_view_map(&view, 0, fd, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_vault_view_map(&view, 1, fd, 0), UMF_RESULT_SUCCESS);
    close(fd);
    for (void *base : bases) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % huge_page, 0u);
        EXPECT_EQ(static_cast<char *>(base)[large - 1], 0);
    }
    EXPECT_NE(bases[0], bases[1]);
    umf_vault_view_unmap(&view);
    EXPECT_FALSE(umf_os_is_mapped(reinterpret_cast<uintptr_t>(bases[0]), large));
    EXPECT_FALSE(umf_os_is_mapped(reinterpret_cast<uintptr_t>(bases[1]), large));
    EXPECT_EQ(static_cast<char *>(taken)[huge_page + large - 1], 7);
    munmap(taken, huge_page + large);
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

// The n-th call of the system of this thread fails, whatever it is.
struct Any {
    static int hook(const char *call) {
        if (!pthread_equal(pthread_self(), thread) || ++seen != wanted) {
            return 0;
        }
        name = call;
        return ENOSPC;
    }
    explicit Any(long n) {
        thread = pthread_self();
        seen = 0;
        wanted = n;
        name = "";
        umf_os_set_fault(hook);
    }
    ~Any() {
        off();
    }
    void off() const {
        umf_os_set_fault(nullptr);
    }
    Any(const Any &) = delete;
    Any &operator=(const Any &) = delete;

    static inline pthread_t thread;
    static inline long seen, wanted;
    static inline std::string name;
};

size_t descriptors() {
    std::filesystem::directory_iterator first("/proc/self/fd"), end;
    return size_t(std::distance(first, end));
}

// A folder that is removed at the end, where a sync costs nothing.
struct Place {
    std::string path = std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") +
                       "/umf_vault_content_XXXXXX";
    std::string name;

    Place() {
        EXPECT_NE(mkdtemp(&path[0]), nullptr);
        name = "file:" + path + "/model";
    }
    ~Place() {
        std::error_code ignored;
        EXPECT_GT(std::filesystem::remove_all(path, ignored), 0u);
    }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
};

// A new generation with the entries of `from` and one that is copied from a view: 0: it failed.
uint64_t life(const Vault &vault, uint64_t from, umf_vault_view_handle_t view) {
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    uint64_t generation = 0;
    params.from = from;
    if (umfVaultBegin(vault.handle, &params, &draft) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    bool is_done = umfVaultDraftPool(draft, "proxy over linux_vmm", &pool) == UMF_RESULT_SUCCESS;
    void *memory = is_done ? umfPoolMalloc(pool, 100) : nullptr;
    if (memory) {
        memset(memory, 1, 100);
    }
    is_done = memory &&
              umfVaultPut(draft, "new", memory, 100, nullptr, 0, 0) == UMF_RESULT_SUCCESS &&
              umfVaultKeep(draft, "layers.0") == UMF_RESULT_SUCCESS &&
              umfVaultCopy(draft, view, "layers.1") == UMF_RESULT_SUCCESS &&
              umfVaultCommit(draft, nullptr, &generation) == UMF_RESULT_SUCCESS;
    if (!is_done) {
        EXPECT_EQ(umfVaultAbort(draft), UMF_RESULT_SUCCESS);
    }
    return is_done ? generation : 0;
}

TEST(VaultContent, EachCallOfTheSystemFailsInTurn) {
    Place place;
    Vault vault(place.name.c_str(), 0, 3);
    uint64_t last = write_generation(vault, 3, 7);
    View first(vault);
    size_t before = descriptors(), failed = 0;
    for (long n = 1;; n++) {
        Any any(n);
        uint64_t generation = life(vault, last, first.handle);
        View view(vault);
        any.off();
        SCOPED_TRACE(std::to_string(n) + ": " + Any::name);
        if (Any::name.empty()) {
            break;
        }
        failed += generation == 0 || view.attached != UMF_RESULT_SUCCESS;
        EXPECT_TRUE(generation == 0 || generation > last);
        last = generation ? generation : last;
        ASSERT_EQ(vault.stat().current, last); // nothing half made
        View now(vault);
        ASSERT_EQ(now.attached, UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultVerify(now.handle, nullptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(static_cast<unsigned char *>(now.find(key_of(1)).ptr)[9], byte_of(7, 1, 9));
        ASSERT_NE(last = life(vault, last, first.handle), 0u); // and nothing is in the way
        ASSERT_EQ(access((place.path + "/model/draft").c_str(), F_OK), -1);
    }
    EXPECT_GT(failed, 20u);
    EXPECT_EQ(first.wrong(3, 7), 0u);
    EXPECT_EQ(descriptors(), before);
}

// A writer is killed at a moment of its own choice, again and again.
TEST(VaultContent, AWriterIsKilledAtRandom) {
    Place place;
    Vault vault(place.name.c_str());
    uint64_t last = write_generation(vault, 3, 1);
    for (long n = 1, killed = 1; killed; n += 3) { // at each third call of the system
        pid_t child = fork();
        if (child == 0) {
            Vault own(place.name.c_str());
            Any any(n);
            umf_os_set_fault(
                [](const char *call) { return Any::hook(call) ? kill(getpid(), SIGKILL) : 0; });
            _exit(write_generation(own, 3, 1) ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status);
        ASSERT_TRUE(killed || status == 0);
        uint64_t current = vault.stat().current;
        ASSERT_TRUE(current == last || current == last + 1) << n;
        EXPECT_EQ(View(vault).wrong(3, 1), 0u) << n;
        ASSERT_GT(last = write_generation(vault, 3, 1), current) << n;
    }
}

} // namespace
