// umf/vault.h with the name `file:<folder>`: generations are files, without a service.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <umf.h>
#include <umf/reason.h>
#include <umf/record.h>

#include "vault/objects.h"

namespace {

class Folder : public ::testing::Test {
  public:
    void SetUp() override {
        char made[] = "/tmp/umf_vault_folder_XXXXXX";
        ASSERT_NE(mkdtemp(made), nullptr);
        place = made;
        name = "file:" + place + "/model";
    }
    void TearDown() override {
        std::string command = "rm -rf " + place;
        EXPECT_EQ(system(command.c_str()), 0);
    }
    std::string file(const std::string &of) const {
        return place + "/model/" + of;
    }
    bool exists(const std::string &of) const {
        return access(file(of).c_str(), F_OK) == 0;
    }
    // Changes a file of a generation, which is read-only.
    void overwrite(const std::string &of, off_t at, const std::string &bytes) const {
        ASSERT_EQ(chmod(file(of).c_str(), 0600), 0);
        int fd = open(file(of).c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_NE(fd, -1);
        EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), at), ssize_t(bytes.size()));
        close(fd);
    }
    // The reason why generation 1 cannot be attached.
    umf_reason_t why() const {
        Vault vault(name.c_str());
        View view(vault, 1);
        EXPECT_EQ(view.attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
        return umfLastReason();
    }

    std::string place, name;
};

// Waits for a child and returns its exit code.
int code_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Folder, MemoryOutlivesItsWriterWithoutAService) {
    pid_t child = fork();
    if (child == 0) {
        Vault vault(name.c_str());
        _exit(write_generation(vault, 20, 5) == 1 ? 0 : 1);
    }
    ASSERT_EQ(code_of(child), 0);
    Vault vault(name.c_str());
    EXPECT_EQ(vault.stat().current, 1u);
    EXPECT_EQ(vault.stat().generations, 1u);
    EXPECT_GT(vault.stat().bytes, 20 * entry_size);
    View view(vault);
    ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(view.wrong(20, 5), 0u);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_SUCCESS);
    umf_vault_entry_t entry = view.find(key_of(3));
    EXPECT_EQ(std::string(static_cast<const char *>(entry.note), entry.note_size), "lay");
    struct stat info;
    ASSERT_EQ(stat((place + "/model").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    ASSERT_EQ(stat(file("1.vault").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0222, 0u);
}

TEST_F(Folder, TheWriterKeepsItsAddressesReadOnly) {
    Vault vault(name.c_str());
    Draft draft(vault);
    unsigned char *memory = draft.put("a");
    memset(memory, 7, entry_size);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(memory[entry_size - 1], 7);
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char *start = reinterpret_cast<char *>(memory) - reinterpret_cast<uintptr_t>(memory) % page;
    EXPECT_NE(mprotect(start, page, PROT_READ | PROT_WRITE), 0);
    EXPECT_NE(umfFree(memory), UMF_RESULT_SUCCESS);
}

// Whoever may write the folder may remove the file of the lock, also while a draft is written.
TEST_F(Folder, ADraftWhoseLockWasRemovedIsNotCommitted) {
    Vault vault(name.c_str()), other(name.c_str());
    Draft draft(vault);
    memset(draft.put("a"), 1, entry_size);
    ASSERT_EQ(unlink(file("lock").c_str()), 0);
    {
        Draft next(other);
        memset(next.put("a"), 2, entry_size);
        EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
        EXPECT_EQ(next.commit(), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(vault.stat().generations, 1u);
    View view(vault);
    ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(static_cast<unsigned char *>(view.find("a").ptr)[0], 2);
}

TEST_F(Folder, ADraftRemovesTheFileOfAWriterThatWasKilled) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    close(open(file("draft").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    Draft draft(vault);
    EXPECT_FALSE(exists("draft"));
}

TEST_F(Folder, AFileWithoutATableIsBroken) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    const uint64_t none = 0;
    overwrite("1.vault", 16, std::string(reinterpret_cast<const char *>(&none), sizeof(none)));
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
}

TEST_F(Folder, AWaitWithoutAnEventHasItsReasonInEachThread) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    std::thread([&] {
        umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
        EXPECT_EQ(umfVaultWait(vault.handle, 1, 1, &event), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT);
    }).join();
}

TEST_F(Folder, AGenerationHasNoMoreSlabsThanATable) {
    if (getenv("UMF_TEST_EMULATOR")) {
        GTEST_SKIP() << "an emulator takes minutes for so many mappings";
    }
    constexpr size_t most = 16384; // pieces, each with a descriptor
    struct rlimit before, limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = limit.rlim_max < most + 100 ? limit.rlim_max : most + 100;
    if (limit.rlim_cur < most + 100 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        GTEST_SKIP() << "there are not so many descriptors here";
    }
    Vault vault(name.c_str());
    const char *text = "proxy over linux_vmm:piece_size=4K";
    for (size_t count : {most, size_t(1)}) {
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        params.from = count == 1;
        Draft draft(vault, &params);
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, text, &pool), UMF_RESULT_SUCCESS);
        for (size_t i = 0; i < count; i++) {
            void *memory = umfPoolMalloc(pool, 4096);
            ASSERT_NE(memory, nullptr) << i << umfLastErrorText();
            std::string key = std::to_string(count) + "." + std::to_string(i);
            ASSERT_EQ(umfVaultPut(draft.handle, key.c_str(), memory, 4096, nullptr, 0, 0),
                      UMF_RESULT_SUCCESS);
        }
        if (count == 1) {
            ASSERT_EQ(umfVaultKeep(draft.handle, ""), UMF_RESULT_SUCCESS);
            EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            EXPECT_TRUE(exists("1.vault"));
        } else {
            ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS) << umfLastErrorText();
        }
    }
    setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Folder, ClassesOfEntries) {
    Vault vault(name.c_str());
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.identity = "llama";
    params.identity_size = 5;
    Draft draft(vault, &params);
    memset(draft.put("shared"), 1, entry_size);
    for (unsigned flag : {unsigned(UMF_VAULT_PRIVATE), unsigned(UMF_VAULT_ZERO)}) {
        umf_memory_pool_handle_t pool;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &pool),
                  UMF_RESULT_SUCCESS);
        void *memory = umfPoolMalloc(pool, entry_size);
        ASSERT_NE(memory, nullptr);
        memset(memory, 2, entry_size);
        ASSERT_EQ(umfVaultPut(draft.handle, flag == UMF_VAULT_ZERO ? "zero" : "private", memory,
                              entry_size, nullptr, 0, flag),
                  UMF_RESULT_SUCCESS);
    }
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View one(vault), other(vault);
    auto *mine = static_cast<unsigned char *>(one.find("private").ptr);
    ASSERT_NE(mine, nullptr);
    EXPECT_EQ(mine[5], 2);
    mine[5] = 3;
    EXPECT_EQ(static_cast<unsigned char *>(other.find("private").ptr)[5], 2);
    auto *zero = static_cast<unsigned char *>(one.find("zero").ptr);
    EXPECT_EQ(zero[entry_size - 1], 0);
    zero[0] = 1;
    EXPECT_EQ(umfVaultVerify(other.handle, nullptr), UMF_RESULT_SUCCESS);

    umf_vault_attach_params_t wanted = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_view_handle_t view;
    wanted.identity = "gemma";
    wanted.identity_size = 5;
    EXPECT_EQ(umfVaultAttach(vault.handle, &wanted, &view), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY);
}

TEST_F(Folder, AnUpdateOfAPart) {
    Vault vault(name.c_str(), 0, 5);
    write_generation(vault, 20, 1);
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    Draft draft(vault, &params);
    draft.put(key_of(7), 4096)[5] = 99;
    ASSERT_EQ(umfVaultKeep(draft.handle, "layers."), UMF_RESULT_SUCCESS);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS); // a file stands alone
    View view(vault);
    EXPECT_EQ(view.find(key_of(7)).size, 4096u);
    EXPECT_EQ(static_cast<unsigned char *>(view.find(key_of(7)).ptr)[5], 99);
    EXPECT_EQ(static_cast<unsigned char *>(view.find(key_of(8)).ptr)[5], byte_of(1, 8, 5));
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_SUCCESS);
}

TEST_F(Folder, OldGenerationsGoAtACommitAndViewsStay) {
    Vault vault(name.c_str(), 0, 1);
    write_generation(vault, 2, 1);
    View first(vault);
    for (uint64_t i = 2; i <= 4; i++) {
        EXPECT_EQ(write_generation(vault, 2, i), i);
    }
    EXPECT_EQ(vault.stat().generations, 2u);
    EXPECT_FALSE(exists("2.vault"));
    EXPECT_EQ(View(vault, 3).wrong(2, 3), 0u);
    EXPECT_EQ(first.wrong(2, 1), 0u);
    EXPECT_EQ(View(vault, 2).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
}

TEST_F(Folder, NumbersAreNotGivenTwice) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    EXPECT_EQ(write_generation(vault, 1, 2), 2u);
    ASSERT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().current, 0u);
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultDrop(vault.handle, 2), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(write_generation(vault, 1, 3), 3u);
    ASSERT_EQ(symlink("/dev/null", file("999999999999999999.vault").c_str()), 0);
    EXPECT_EQ(Draft(vault).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
}

TEST_F(Folder, AFolderThatIsMadeAgainHasAnotherNumber) {
    Vault vault(name.c_str());
    EXPECT_EQ(vault.stat().service, 0u);
    write_generation(vault, 1, 1);
    const uint64_t first = vault.stat().service;
    EXPECT_NE(first, 0u);
    for (unsigned seed = 2; seed <= 12; seed++) { // up to a number with another digit
        write_generation(vault, 1, seed);
        EXPECT_EQ(Vault(name.c_str()).stat().service, first);
    }
    std::filesystem::remove_all(place + "/model");
    EXPECT_EQ(vault.stat().service, 0u);
    EXPECT_EQ(write_generation(vault, 1, 1), 1u);
    EXPECT_NE(vault.stat().service, 0u);
    EXPECT_NE(vault.stat().service, first);
    // Another program has written the file.
    for (const char *text :
         {"", "12", "7\nx", "\n\n", "99999999999999999999999999999999999999999"}) {
        std::ofstream(file("lock"), std::ios::trunc) << text;
        EXPECT_EQ(vault.stat().service, 0u) << text;
    }
    std::ofstream(file("lock"), std::ios::trunc) << "7\n";
    EXPECT_EQ(write_generation(vault, 1, 1), 8u);
    EXPECT_NE(vault.stat().service, 0u);
}

TEST_F(Folder, AWriterThatIsKilledLeavesNothing) {
    Vault vault(name.c_str());
    write_generation(vault, 2, 1);
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        Vault own(name.c_str());
        Draft draft(own);
        draft.fill(2, 2);
        int fd = open(file("draft").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        _exit(fd == -1 || write(ready[1], "x", 1) != 1 || pause() == 0);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(Draft(vault).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
    kill(child, SIGKILL);
    EXPECT_EQ(code_of(child), -1);
    EXPECT_TRUE(exists("draft"));
    EXPECT_EQ(View(vault).wrong(2, 1), 0u);
    EXPECT_EQ(write_generation(vault, 2, 3), 2u);
    EXPECT_FALSE(exists("draft"));
    EXPECT_EQ(View(vault).wrong(2, 3), 0u);
    close(ready[0]);
    close(ready[1]);
}

TEST_F(Folder, AChildOfForkDoesNotKeepTheDraft) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    auto view = std::make_unique<View>(vault);
    auto draft = std::make_unique<Draft>(vault);
    int done[2];
    ASSERT_EQ(pipe2(done, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
        close(done[1]);
        bool is_refused = umfVaultStat(vault.handle, &stat) == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
                          umfVaultAbort(draft->handle) == UMF_RESULT_ERROR_INVALID_ARGUMENT;
        _exit(!is_refused || read(done[0], &byte, 1) != 0);
    }
    draft.reset();
    EXPECT_EQ(write_generation(vault, 1, 2), 2u);
    close(done[1]);
    close(done[0]);
    EXPECT_EQ(code_of(child), 0);
}

TEST_F(Folder, ReadersAndWritersWait) {
    Vault vault(name.c_str());
    EXPECT_EQ(View(vault).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(View(vault, 0, 1).attached, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT);
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    EXPECT_EQ(umfVaultWait(vault.handle, 0, 1, &event), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT);
    auto draft = std::make_unique<Draft>(vault);
    draft->fill(1, 1);
    std::thread reader([&] {
        Vault own(name.c_str());
        EXPECT_EQ(View(own, 1, 60000).wrong(1, 1), 0u);
    });
    std::thread writer([&] {
        Vault own(name.c_str(), 0, 1);
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        params.timeout_ms = 60000;
        Draft second(own, &params);
        second.fill(1, 2);
        EXPECT_EQ(second.commit(), UMF_RESULT_SUCCESS);
    });
    EXPECT_EQ(draft->commit(), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfVaultWait(vault.handle, 1, 60000, &event), UMF_RESULT_SUCCESS);
    EXPECT_EQ(event.type, UMF_VAULT_EVENT_COMMITTED);
    EXPECT_EQ(event.generation, 2u);
    EXPECT_EQ(event.number, 2u);
    reader.join();
    writer.join();
}

TEST_F(Folder, ReplaceAndLimit) {
    uint64_t bytes;
    {
        Vault unlimited(name.c_str());
        write_generation(unlimited, 15, 1);
        bytes = unlimited.stat().bytes;
    }
    Vault vault(name.c_str(), bytes + bytes / 2);
    {
        Draft draft(vault);
        draft.fill(15, 2);
        EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    }
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.replace = 1;
    Draft draft(vault, &params);
    EXPECT_EQ(vault.stat().current, 0u);
    draft.fill(15, 3);
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(View(vault).wrong(15, 3), 0u);
}

TEST_F(Folder, AFullDiskLeavesTheDraftAsItWas) {
    Vault vault(name.c_str());
    write_generation(vault, 1, 1);
    Draft draft(vault);
    unsigned char *memory = draft.put("a", 300000);
    struct rlimit before, small;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(exists("draft"));
    EXPECT_EQ(vault.stat().current, 1u);
    memset(memory, 8, 300000); // still its own
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View view(vault);
    EXPECT_EQ(static_cast<unsigned char *>(view.find("a").ptr)[299999], 8);
}

TEST_F(Folder, FilesThatWereChangedAreRefused) {
    {
        Vault vault(name.c_str());
        write_generation(vault, 3, 1);
        View view(vault);
        umf_vault_entry_t entry = view.find(key_of(0));
        auto *content = static_cast<const unsigned char *>(entry.ptr);
        struct stat info;
        ASSERT_EQ(stat(file("1.vault").c_str(), &info), 0);
        // The content is behind the first 64 KiB; the byte of the first entry is found by its
        // value.
        std::ifstream stream(file("1.vault"), std::ios::binary);
        std::string all(static_cast<size_t>(info.st_size), '\0');
        stream.read(&all[0], info.st_size);
        size_t at = all.find(std::string(reinterpret_cast<const char *>(content), 300), 65536);
        ASSERT_NE(at, std::string::npos);
        overwrite("1.vault", off_t(at) + 5, "!!");
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    }
    struct stat info;
    ASSERT_EQ(stat(file("1.vault").c_str(), &info), 0);
    overwrite("1.vault", 64 + 100, "!"); // in the table
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    std::string large(8, '\x7f');
    overwrite("1.vault", 16, large); // bytes of the table
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    overwrite("1.vault", 8, large); // bytes of the file
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    ASSERT_EQ(truncate(file("1.vault").c_str(), info.st_size - 1), 0);
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    ASSERT_EQ(truncate(file("1.vault").c_str(), 10), 0);
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    ASSERT_EQ(truncate(file("1.vault").c_str(), 0), 0);
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
    ASSERT_EQ(unlink(file("1.vault").c_str()), 0);
    ASSERT_EQ(mkfifo(file("1.vault").c_str(), 0600), 0);
    EXPECT_NE(why(), UMF_REASON_ABSENT);
    ASSERT_EQ(unlink(file("1.vault").c_str()), 0);
    ASSERT_EQ(symlink("/proc/self/exe", file("1.vault").c_str()), 0);
    EXPECT_NE(why(), UMF_REASON_ABSENT);
}

TEST_F(Folder, TablesThatLieAreRefused) {
    {
        Vault vault(name.c_str());
        write_generation(vault, 3, 1);
    }
    // The table is right, and so is the size in the head, but the slabs end behind the file.
    std::ifstream stream(file("1.vault"), std::ios::binary);
    std::string head(64, '\0');
    stream.read(&head[0], 64);
    uint64_t table, size = 65536;
    memcpy(&table, &head[16], sizeof(table));
    std::string short_size(reinterpret_cast<const char *>(&size), sizeof(size));
    ASSERT_LT(table, size - 64);
    overwrite("1.vault", 8, short_size);
    ASSERT_EQ(truncate(file("1.vault").c_str(), off_t(size)), 0);
    EXPECT_EQ(why(), UMF_REASON_BROKEN);
}

TEST_F(Folder, ARecordingHasMarks) {
    std::string path = place + "/run.umfrec";
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.path = path.c_str();
    params.size = 1 << 20;
    ASSERT_EQ(umfRecordStart(&params), UMF_RESULT_SUCCESS);
    {
        Vault vault(name.c_str());
        write_generation(vault, 1, 1);
        { View view(vault); }
        EXPECT_EQ(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS);
        EXPECT_NE(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS);
    }
    ASSERT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    std::ifstream stream(path, std::ios::binary);
    std::string all(std::filesystem::file_size(path), '\0');
    stream.read(&all[0], std::streamsize(all.size()));
    for (const char *what : {"committed", "attached", "detached", "dropped"}) {
        EXPECT_NE(all.find("vault " + name + " generation 1 " + what), std::string::npos) << what;
    }
}

TEST_F(Folder, WhatIsOfTheServiceIsRefused) {
    Vault vault(name.c_str());
    EXPECT_EQ(umfVaultDropDraft(vault.handle), UMF_RESULT_ERROR_NOT_SUPPORTED);
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.group = "ranks";
    params.group_count = 2;
    Draft draft(vault);
    draft.fill(1, 1);
    EXPECT_EQ(draft.commit(nullptr, &params), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
}

TEST_F(Folder, PathsThatCannotBe) {
    umf_vault_handle_t vault;
    EXPECT_EQ(umfVaultOpen("file:", nullptr, &vault), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultOpen(("file:/" + std::string(600, 'x')).c_str(), nullptr, &vault),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultOpen("file:/dev/null", nullptr, &vault), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    Vault deep(("file:" + place + "/no/such").c_str());
    EXPECT_EQ(deep.stat().current, 0u);
    EXPECT_EQ(Draft(deep).begun, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    std::vector<char> here(4096);
    ASSERT_NE(getcwd(here.data(), here.size()), nullptr);
    ASSERT_EQ(chdir(place.c_str()), 0);
    Vault relative("file:model");
    ASSERT_EQ(chdir(here.data()), 0); // the path is that of the opening
    write_generation(relative, 1, 1);
    EXPECT_TRUE(exists("1.vault"));
}

} // namespace
