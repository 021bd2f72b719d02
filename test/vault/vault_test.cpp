// umf/vault.h over a real service: commits, reads and refusals.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>

#include <umf.h>
#include <umf/reason.h>

#include "vault/service.h"

namespace {

TEST_F(Vaults, AReaderSeesWhatWasCommitted) {
    Vault writer, reader;
    EXPECT_EQ(reader.stat().current, 0u);
    EXPECT_EQ(View(reader).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(write_generation(writer, 20, 5), 1u);
    View view(reader);
    ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(view.wrong(20, 5), 0u);
    umf_vault_entry_t entry = view.find(key_of(3));
    EXPECT_EQ(entry.note_size, 3u);
    EXPECT_EQ(std::string(static_cast<const char *>(entry.note), 3), "lay");
    EXPECT_STREQ(entry.key, key_of(3).c_str());
    EXPECT_EQ(view.find("layers.3").ptr, nullptr);
    EXPECT_EQ(reader.stat().current, 1u);
    EXPECT_EQ(reader.stat().readers, 2u);
}

TEST_F(Vaults, MemoryOutlivesItsWriter) {
    pid_t child = fork();
    if (child == 0) {
        Vault vault;
        _exit(write_generation(vault, 5, 9) == 1 ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    Vault vault;
    View view(vault);
    ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(view.wrong(5, 9), 0u);
}

TEST_F(Vaults, CommittedMemoryCannotBeWritten) {
    Vault vault;
    Draft draft(vault);
    unsigned char *memory = draft.put("a");
    memory[0] = 7;
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(memory[0], 7); // at its old address
    EXPECT_NE(
        mprotect(memory - reinterpret_cast<uintptr_t>(memory) % 4096, 4096, PROT_READ | PROT_WRITE),
        0);
    EXPECT_NE(umfFree(memory), UMF_RESULT_SUCCESS);
    umf_memory_pool_handle_t pool;
    EXPECT_NE(umfPoolByPtr(memory, &pool), UMF_RESULT_SUCCESS);
    View view(vault);
    void *seen = view.find("a").ptr;
    ASSERT_NE(seen, nullptr);
    EXPECT_NE(mprotect(static_cast<char *>(seen) - reinterpret_cast<uintptr_t>(seen) % 4096, 4096,
                       PROT_READ | PROT_WRITE),
              0);
}

TEST_F(Vaults, GenerationsAreBesideEachOther) {
    Vault writer, reader;
    write_generation(writer, 3, 1);
    View old(reader);
    EXPECT_EQ(write_generation(writer, 4, 2), 2u);
    View now(reader);
    EXPECT_EQ(old.wrong(3, 1), 0u);
    EXPECT_EQ(now.wrong(4, 2), 0u);
    EXPECT_EQ(reader.stat().generations, 2u);
    uint64_t generation = 0;
    EXPECT_EQ(umfVaultViewGeneration(now.handle, &generation), UMF_RESULT_SUCCESS);
    EXPECT_EQ(generation, 2u);
}

TEST_F(Vaults, AGenerationGoesWhenNobodyHasIt) {
    Vault reader;
    {
        Vault writer;
        write_generation(writer, 3, 1);
        write_generation(writer, 3, 2);
        EXPECT_EQ(reader.stat().generations, 2u); // the writer has both
    }
    EXPECT_TRUE(until([&] { return reader.stat().generations == 1; }));
    EXPECT_EQ(View(reader, 1).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(View(reader).wrong(3, 2), 0u);
}

// The service has attached it for a process that has no room for the descriptors.
TEST_F(Vaults, AGenerationGoesAfterAnAttachThatHasFailed) {
    Vault reader;
    {
        Vault writer;
        write_generation(writer, 3, 1);
        rlimit before;
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ASSERT_NE(lowest, -1);
        close(lowest);
        rlimit none = {rlim_t(lowest), before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        umf_result_t attached = View(reader).attached;
        umf_reason_t reason = umfLastReason();
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        EXPECT_EQ(attached, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(reason, UMF_REASON_EXHAUSTED);
        EXPECT_EQ(reader.stat().readers, 1u); // the writer
        write_generation(writer, 3, 2);
    }
    EXPECT_TRUE(until([&] { return reader.stat().generations == 1; }));
}

TEST_F(Vaults, SomeStayToGoBackTo) {
    Vault reader;
    for (uint64_t i = 1; i <= 4; i++) {
        Vault writer("model", 0, 2);
        EXPECT_EQ(write_generation(writer, 1, i), i);
    }
    EXPECT_TRUE(until([&] { return reader.stat().generations == 3; }));
    EXPECT_EQ(View(reader, 2).wrong(1, 2), 0u);
    EXPECT_EQ(View(reader, 1).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(Vaults, AnUpdateOfAPartSharesTheRest) {
    Vault vault;
    write_generation(vault, 20, 1);
    uint64_t before = vault.stat().bytes;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    Draft draft(vault, &params, "proxy over linux_vmm:piece_size=4K");
    draft.put(key_of(7), 4096)[5] = 99;
    ASSERT_EQ(umfVaultKeep(draft.handle, "layers."), UMF_RESULT_SUCCESS);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_LT(vault.stat().bytes, before + 200000);
    View view(vault);
    EXPECT_EQ(view.find(key_of(7)).size, 4096u);
    EXPECT_EQ(static_cast<unsigned char *>(view.find(key_of(7)).ptr)[5], 99);
    EXPECT_EQ(static_cast<unsigned char *>(view.find(key_of(8)).ptr)[5], byte_of(1, 8, 5));
    EXPECT_EQ(view.find(key_of(8)).note_size, 3u);
    // The former generation is complete, too.
    EXPECT_EQ(View(vault, 1).wrong(20, 1), 0u);
}

TEST_F(Vaults, FlagsOfEntries) {
    Vault vault;
    Draft draft(vault);
    umf_memory_pool_handle_t others, zeroes;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "disjoint over linux_vmm", &others),
              UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &zeroes), UMF_RESULT_SUCCESS);
    draft.put("shared")[0] = 1;
    auto *own = static_cast<char *>(umfPoolMalloc(others, 100));
    auto *zero = static_cast<char *>(umfPoolMalloc(zeroes, 100));
    own[0] = 2;
    zero[0] = 3;
    EXPECT_EQ(umfVaultPut(draft.handle, "own", own, 100, nullptr, 0, UMF_VAULT_PRIVATE),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultPut(draft.handle, "zero", zero, 100, nullptr, 0, UMF_VAULT_ZERO),
              UMF_RESULT_SUCCESS);
    // One piece has one class.
    EXPECT_EQ(umfVaultPut(draft.handle, "zero2", own, 100, nullptr, 0, UMF_VAULT_ZERO),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View one(vault), two(vault);
    auto *mine = static_cast<char *>(one.find("own").ptr);
    EXPECT_EQ(mine[0], 2);
    mine[0] = 4;
    EXPECT_EQ(static_cast<char *>(two.find("own").ptr)[0], 2);
    EXPECT_EQ(static_cast<char *>(one.find("zero").ptr)[0], 0);
    static_cast<char *>(one.find("zero").ptr)[0] = 1;
    EXPECT_EQ(one.find("zero").flags, unsigned(UMF_VAULT_ZERO));
    EXPECT_EQ(static_cast<char *>(one.find("shared").ptr)[0], 1);
}

TEST_F(Vaults, AKeyThatIsPutAgainGetsTheNewMemory) {
    Vault vault;
    Draft draft(vault);
    draft.put("a")[0] = 1;
    draft.put("a")[0] = 2;
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(*static_cast<char *>(View(vault).find("a").ptr), 2);
}

TEST_F(Vaults, EachVisitsByPrefix) {
    Vault vault;
    Draft draft(vault);
    for (const char *key : {"b.2", "a.1", "b.1", "b", "c"}) {
        draft.put(key, 10);
    }
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View view(vault);
    std::string seen;
    auto visit = [](const umf_vault_entry_t *entry, void *arg) {
        *static_cast<std::string *>(arg) += std::string(entry->key) + " ";
        return 0;
    };
    EXPECT_EQ(umfVaultEach(view.handle, nullptr, visit, &seen), UMF_RESULT_SUCCESS);
    EXPECT_EQ(seen, "a.1 b b.1 b.2 c ");
    seen.clear();
    EXPECT_EQ(umfVaultEach(view.handle, "b.", visit, &seen), UMF_RESULT_SUCCESS);
    EXPECT_EQ(seen, "b.1 b.2 ");
    EXPECT_EQ(umfVaultEach(
                  view.handle, "", [](const umf_vault_entry_t *, void *) { return 1; }, nullptr),
              UMF_RESULT_ERROR_USER_SPECIFIC);
}

TEST_F(Vaults, AnotherIdentityIsRefused) {
    Vault vault;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.identity = "llama rev 3";
    params.identity_size = 11;
    Draft draft(vault, &params);
    draft.put("a");
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    umf_vault_attach_params_t attach = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_view_handle_t view;
    attach.identity = "llama rev 4";
    attach.identity_size = 11;
    EXPECT_EQ(umfVaultAttach(vault.handle, &attach, &view), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    attach.identity = "llama rev 3";
    ASSERT_EQ(umfVaultAttach(vault.handle, &attach, &view), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultDetach(view), UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, OneDraftAtATime) {
    Vault one, two;
    {
        Draft draft(one);
        EXPECT_EQ(Draft(two).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(one.stat().writer, uint32_t(getpid()));
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        params.timeout_ms = 20;
        EXPECT_EQ(Draft(two, &params).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    }
    EXPECT_EQ(Draft(two).begun, UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, AWriterWaitsForAnother) {
    Vault one, two;
    auto first = std::make_unique<Draft>(one);
    std::thread waits([&] {
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        params.timeout_ms = 60000;
        EXPECT_EQ(Draft(two, &params).begun, UMF_RESULT_SUCCESS);
    });
    first.reset();
    waits.join();
}

TEST_F(Vaults, AReaderWaitsForTheFirstGeneration) {
    Vault writer, reader;
    std::thread waits([&] {
        View view(reader, 0, 60000);
        EXPECT_EQ(view.attached, UMF_RESULT_SUCCESS);
        EXPECT_EQ(view.wrong(2, 3), 0u);
    });
    write_generation(writer, 2, 3);
    waits.join();
    EXPECT_EQ(View(reader, 9, 10).attached, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
}

TEST_F(Vaults, EventsTellWhatHappened) {
    Vault vault, other("other");
    write_generation(vault, 1, 1);
    write_generation(other, 1, 1);
    { Draft draft(vault); }
    EXPECT_EQ(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS);
    std::vector<umf_vault_event_type_t> types;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    while (umfVaultWait(vault.handle, event.number, 0, &event) == UMF_RESULT_SUCCESS) {
        types.push_back(event.type);
    }
    EXPECT_EQ(types,
              (std::vector<umf_vault_event_type_t>{
                  UMF_VAULT_EVENT_COMMITTED, UMF_VAULT_EVENT_ABORTED, UMF_VAULT_EVENT_DROPPED}));
    EXPECT_EQ(umfVaultWait(vault.handle, event.number, 10, &event),
              UMF_RESULT_ERROR_OUT_OF_RESOURCES);
}

// In a pool of its own, as entries of other flags need it.
void put_beside(const Draft &draft, const char *key, unsigned flags) {
    umf_memory_pool_handle_t pool;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "coalescing over linux_vmm:piece_size=256K", &pool),
              UMF_RESULT_SUCCESS);
    void *memory = umfPoolMalloc(pool, entry_size);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(umfVaultPut(draft.handle, key, memory, entry_size, nullptr, 0, flags),
              UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, ContentIsComparedWithItsSums) {
    Vault vault;
    Draft draft(vault);
    draft.put("a")[0] = 7;
    draft.put("b")[0] = 8;
    put_beside(draft, "own", UMF_VAULT_PRIVATE);
    put_beside(draft, "zero", UMF_VAULT_ZERO);
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    ASSERT_EQ(draft.commit(nullptr, &params), UMF_RESULT_SUCCESS);
    View view(vault);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(view.handle, "a"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(view.handle, "zero"), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultVerify(view.handle, "none"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(umfVaultVerify(nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);

    // The one kind of content that can differ here.
    static_cast<unsigned char *>(view.find("own").ptr)[100] ^= 1;
    EXPECT_EQ(umfVaultVerify(view.handle, "own"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    EXPECT_NE(std::string(umfLastErrorText()).find("entry own"), std::string::npos);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultVerify(view.handle, "b"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(View(vault).handle, nullptr), UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, SumsAreKeptWithTheirEntries) {
    Vault vault;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    Draft first(vault);
    first.put("a");
    ASSERT_EQ(first.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(View(vault).handle, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);

    umf_vault_draft_params_t from = UMF_VAULT_DRAFT_PARAMS_INIT;
    from.from = 1;
    params.digest = 1;
    Draft second(vault, &from);
    second.put("b");
    ASSERT_EQ(umfVaultKeep(second.handle, ""), UMF_RESULT_SUCCESS);
    ASSERT_EQ(second.commit(nullptr, &params), UMF_RESULT_SUCCESS);
    View view(vault);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(view.handle, "b"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(view.handle, "a"), UMF_RESULT_SUCCESS); // made by this commit

    from.from = 2;
    Draft third(vault, &from);
    ASSERT_EQ(umfVaultKeep(third.handle, "b"), UMF_RESULT_SUCCESS);
    ASSERT_EQ(third.commit(nullptr, &params), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultVerify(View(vault).handle, "b"), UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, ADropLeavesWhatIsMapped) {
    Vault vault;
    write_generation(vault, 2, 1);
    View view(vault);
    EXPECT_EQ(umfVaultDrop(vault.handle, 7), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().generations, 0u);
    EXPECT_EQ(View(vault).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(view.wrong(2, 1), 0u);
}

TEST_F(Vaults, ADraftOfAnotherCanBeEnded) {
    Vault one, two;
    Draft draft(one);
    draft.put("a");
    EXPECT_EQ(umfVaultDropDraft(two.handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(Draft(two).begun, UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, ReplaceTakesTheCurrentOneFirst) {
    Vault reader;
    {
        Vault writer;
        write_generation(writer, 1, 1);
    }
    EXPECT_TRUE(until([&] { return reader.stat().readers == 0; }));
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.replace = 1;
    Vault writer;
    Draft draft(writer, &params);
    EXPECT_EQ(reader.stat().current, 0u);
    EXPECT_EQ(reader.stat().bytes, 0u);
    draft.fill(1, 2);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(View(reader).wrong(1, 2), 0u);
}

TEST_F(Vaults, TheLimitRefusesAndTheDraftGoesOn) {
    Vault vault("small", 300000);
    Draft draft(vault, nullptr, "proxy over linux_vmm:piece_size=4K");
    draft.put("a", 200000)[0] = 1;
    unsigned char *too_much = draft.put("b", 200000);
    too_much[0] = 2;
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(too_much[0], 2); // it is as it was
    too_much[1] = 3;
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfVaultAbort(draft.handle), UMF_RESULT_SUCCESS);
    draft.handle = nullptr;
    Draft next(vault, nullptr, "proxy over linux_vmm:piece_size=4K");
    next.put("a", 1000);
    EXPECT_EQ(next.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().limit, 300000u);
}

TEST_F(Vaults, MemoryThatAnotherHasMappedWritableIsRefused) {
    Vault vault;
    Draft draft(vault);
    draft.fill(1, 1);
    int go[2], done[2];
    ASSERT_EQ(pipe(go), 0);
    ASSERT_EQ(pipe(done), 0);
    pid_t child = fork(); // has the mappings
    if (child == 0) {
        char byte;
        _exit(read(go[0], &byte, 1) == 1 ? 0 : 1);
    }
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(write(go[1], "x", 1), 1);
    waitpid(child, nullptr, 0);
    // A process that reads /proc can keep the mappings of one that has ended a while.
    EXPECT_TRUE(until([&] { return draft.commit() == UMF_RESULT_SUCCESS; }));
    EXPECT_EQ(View(vault).wrong(1, 1), 0u);
    for (int fd : {go[0], go[1], done[0], done[1]}) {
        close(fd);
    }
}

TEST_F(Vaults, AGroupBecomesCurrentTogether) {
    Vault one("rank0"), two("rank1");
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.group = "step 1";
    params.group_count = 2;
    params.timeout_ms = 60000;
    Draft first(one), second(two);
    first.fill(1, 1);
    second.fill(1, 2);
    std::thread waits([&] { EXPECT_EQ(first.commit(nullptr, &params), UMF_RESULT_SUCCESS); });
    EXPECT_EQ(View(one).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(second.commit(nullptr, &params), UMF_RESULT_SUCCESS);
    waits.join();
    EXPECT_EQ(View(one).wrong(1, 1), 0u);
    EXPECT_EQ(View(two).wrong(1, 2), 0u);
}

TEST_F(Vaults, AGroupThatIsNotCompleteInTimeEnds) {
    Vault one("rank0"), two("rank1");
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.group = "step 1";
    params.group_count = 2;
    params.timeout_ms = 10;
    Draft first(one), second(two);
    first.fill(1, 1);
    second.fill(1, 2);
    EXPECT_EQ(first.commit(nullptr, &params), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(second.commit(nullptr, &params), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(one.stat().current, 0u);
    EXPECT_EQ(two.stat().current, 0u);
}

TEST_F(Vaults, AChildOfForkHasNoHandles) {
    Vault vault;
    write_generation(vault, 1, 1);
    View view(vault);
    umf_vault_entry_t entry = view.find(key_of(0));
    pid_t child = fork();
    if (child == 0) {
        umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
        umf_vault_entry_t again = UMF_VAULT_ENTRY_INIT;
        bool is_right =
            umfVaultStat(vault.handle, &stat) == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
            umfVaultFind(view.handle, "a", &again) == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
            *static_cast<unsigned char *>(entry.ptr) == byte_of(1, 0, 0);
        umf_vault_handle_t own;
        is_right = is_right && umfVaultOpen("model", nullptr, &own) == UMF_RESULT_SUCCESS;
        _exit(is_right ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(vault.stat().current, 1u);
}

TEST_F(Vaults, ThreadsShareAVault) {
    Vault vault;
    write_generation(vault, 3, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 20; round++) {
                View view(vault);
                EXPECT_EQ(view.attached, UMF_RESULT_SUCCESS);
                EXPECT_EQ(view.find(key_of(1)).size, entry_size);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST_F(Vaults, ThousandsOfSlabs) {
    Vault vault;
    Draft draft(vault, nullptr, "proxy over linux_vmm:piece_size=4K");
    for (size_t i = 0; i < 600; i++) { // more than one message has descriptors
        memcpy(draft.put(key_of(i), 100), &i, sizeof(i));
    }
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View view(vault);
    ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
    for (size_t i = 0; i < 600; i++) {
        EXPECT_EQ(memcmp(view.find(key_of(i)).ptr, &i, sizeof(i)), 0);
    }
}

TEST_F(Vaults, AViewLeavesWhatIsMappedBetweenItsSlabs) {
    Vault vault;
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), huge_page = size_t{2} << 20;
    Draft draft(vault, nullptr, "proxy over linux_vmm:piece_size=4K");
    for (const char *key : {"a", "b", "c", "d"}) { // a page and a huge page in turn
        draft.put(key, *key == 'b' || *key == 'd' ? huge_page : page);
    }
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    auto view = std::make_unique<View>(vault);
    ASSERT_EQ(view->attached, UMF_RESULT_SUCCESS);
    auto *small = static_cast<const char *>(view->find("c").ptr);
    void *behind = const_cast<char *>(small) + page;
    void *mine = mmap(behind, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mine, MAP_FAILED);
    if (mine != behind) {
        munmap(mine, page);
        GTEST_SKIP() << "there is something behind a slab, by chance";
    }
    memset(mine, 7, page);
    view.reset();
    EXPECT_EQ(*static_cast<char *>(mine), 7);
    munmap(mine, page);
}

TEST_F(Vaults, WhatIsNotValidIsRefused) {
    umf_vault_handle_t handle = nullptr;
    std::string too_long(256, 'x');
    EXPECT_EQ(umfVaultOpen(nullptr, nullptr, &handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultOpen("", nullptr, &handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultOpen(too_long.c_str(), nullptr, &handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultOpen("a", nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultClose(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(handle, nullptr);
    Vault vault;
    Draft draft(vault);
    int mine = 0;
    unsigned char *memory = draft.put("a", 100);
    EXPECT_EQ(umfVaultPut(draft.handle, "", memory, 100, nullptr, 0, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultPut(draft.handle, too_long.c_str(), memory, 100, nullptr, 0, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultPut(draft.handle, "b", &mine, sizeof(mine), nullptr, 0, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultPut(draft.handle, "b", memory, SIZE_MAX / 2, nullptr, 0, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultPut(draft.handle, "b", memory, 0, nullptr, 0, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultPut(draft.handle, "b", memory, 1, nullptr, 0, 8),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultKeep(draft.handle, ""), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_memory_pool_handle_t pool;
    EXPECT_EQ(umfVaultDraftPool(draft.handle, "disjoint over os", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultDraftPool(draft.handle, "nonsense", &pool),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    EXPECT_EQ(umfVaultFind(reinterpret_cast<umf_vault_view_handle_t>(vault.handle), "a", &entry),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

// A socket to the service of a place, without the library.
int raw_connection(const std::string &place) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/vault", place.c_str());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof(name)), 0);
    return fd;
}

TEST_F(Vaults, GarbageEndsItsConnectionAndNoOther) {
    Vault vault;
    write_generation(vault, 2, 1);
    std::vector<std::string> messages = {"x", std::string(128, 'x'), std::string(40000, '\0'),
                                         std::string("UMFV") + std::string(200, '\1')};
    for (const std::string &message : messages) {
        int fd = raw_connection(place);
        ASSERT_EQ(send(fd, message.data(), message.size(), MSG_NOSIGNAL), ssize_t(message.size()));
        char answer[200];
        EXPECT_EQ(recv(fd, answer, sizeof(answer), 0), 0); // the end
        close(fd);
    }
    // One that does not read its answers.
    int silent = raw_connection(place);
    uint32_t head[32] = {0x56464d55, 1 | 10 << 16, 1}; // the state, without a name
    for (int i = 0; i < 2000; i++) {
        send(silent, head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    EXPECT_EQ(View(vault).wrong(2, 1), 0u);
    close(silent);
    EXPECT_EQ(View(vault).wrong(2, 1), 0u);
}

TEST_F(Vaults, AnotherVersionIsToldSo) {
    Vault vault;
    int fd = raw_connection(place);
    uint32_t head[32] = {0x56464d55, 99 | 1 << 16, 7};
    ASSERT_EQ(send(fd, head, sizeof(head), 0), ssize_t(sizeof(head)));
    uint32_t answer[32] = {};
    ASSERT_EQ(recv(fd, answer, sizeof(answer), 0), ssize_t(sizeof(answer)));
    EXPECT_EQ(answer[2], 7u);
    EXPECT_EQ(answer[4], 13u); // UMF_VAULT_OLD
    close(fd);
}

TEST_F(Vaults, ReasonsTellWhatToDo) {
    Vault vault("small", 1000);
    Draft draft(vault);
    draft.put("a");
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_NE(strstr(umfLastErrorText(), "1000"), nullptr);
    EXPECT_NE(Draft(Vault("small")).begun, UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
    EXPECT_NE(View(vault).attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
}

TEST_F(Vaults, NothingIsStartedThatNobodyAskedFor) {
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    params.start = 0;
    umf_vault_handle_t handle;
    EXPECT_EQ(umfVaultOpen("a", &params, &handle), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(
        umfVaultList(
            nullptr, [](const char *, const umf_vault_stat_t *, void *) { return 0; }, nullptr),
        UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_TRUE(processes().empty());
}

// A listening socket at `name`, as a service manager makes it, and the service over it.
class Activated {
  public:
    explicit Activated(const std::string &name, int type = SOCK_SEQPACKET)
        : listener(socket(AF_UNIX, type | SOCK_CLOEXEC, 0)) {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", name.c_str());
        EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
        EXPECT_EQ(listen(listener, 16), 0);
    }
    ~Activated() {
        close(listener);
    }
    Activated(const Activated &) = delete;
    Activated &operator=(const Activated &) = delete;

    int descriptor() const {
        return listener;
    }

    // Its exit code: it detaches.
    int start(const std::string &place) const {
        std::string folder = "--dir=" + place, variable = "UMF_VAULT_DIR=" + place;
        char process[32], count[] = "LISTEN_FDS=1";
        char *environment[] = {process, count, &variable[0], nullptr};
        pid_t child = fork();
        if (child == 0) { // other threads run: nothing here allocates
            dup2(listener, 3);
            fcntl(3, F_SETFD, 0);
            snprintf(process, sizeof(process), "LISTEN_PID=%d", int(getpid()));
            execle(UMF_TEST_UMFD, "umfd", "--detach", folder.c_str(), nullptr, environment);
            _exit(127);
        }
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

  private:
    int listener;
};

// A program in the place of a service: it answers each request, and then the first one once more,
// as one that was repeated.
void answer_twice(int listener, uint32_t connections) {
    for (uint32_t i = 0; i < connections; i++) {
        int fd = accept(listener, nullptr, nullptr);
        uint32_t request[64] = {}, first[32 + 48] = {};
        while (recv(fd, request, sizeof(request), 0) > 0) {
            uint32_t answer[32] = {0x56464d55, request[1], request[2]};
            if (first[0] != 0) {
                EXPECT_EQ(send(fd, first, sizeof(first), MSG_NOSIGNAL), ssize_t(sizeof(first)));
            } else {
                memcpy(first, answer, sizeof(answer));
                first[5] = 48 * sizeof(uint32_t); // as long as a list of serials
            }
            EXPECT_EQ(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), ssize_t(sizeof(answer)));
        }
        close(fd);
    }
}

TEST_F(Vaults, ALongAnswerToAnEarlierRequestIsIgnored) {
    Activated place_taken(place + "/vault");
    std::thread service(answer_twice, place_taken.descriptor(), 1);
    {
        Vault vault;
        EXPECT_EQ(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultDrop(vault.handle, 2), UMF_RESULT_SUCCESS);
    }
    service.join();
    unlink((place + "/vault").c_str());
}

TEST_F(Vaults, AGenerationIsStoredAndComesBack) {
    Vault vault, folder(("file:" + place + "/stored").c_str());
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.identity = "llama";
    params.identity_size = 5;
    {
        Draft draft(vault, &params);
        draft.fill(20, 5);
        unsigned char *memory = draft.put("tied");
        memory[0] = 42;
        ASSERT_EQ(umfVaultPut(draft.handle, "alias", memory, entry_size, nullptr, 0, 0),
                  UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &draft.pool),
                  UMF_RESULT_SUCCESS);
        draft.put("own", entry_size, UMF_VAULT_PRIVATE)[1] = 8;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &draft.pool),
                  UMF_RESULT_SUCCESS);
        draft.put("zero", entry_size, UMF_VAULT_ZERO);
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    Vault *ways[][2] = {{&vault, &folder}, {&folder, &vault}};
    for (auto &way : ways) {
        View view(*way[0]);
        Draft draft(*way[1]);
        ASSERT_EQ(umfVaultCopy(draft.handle, view.handle, nullptr), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfVaultDetach(view.handle), UMF_RESULT_SUCCESS);
        view.handle = nullptr; // the draft does not need it
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
        umf_vault_attach_params_t wanted = UMF_VAULT_ATTACH_PARAMS_INIT;
        wanted.identity = params.identity;
        wanted.identity_size = params.identity_size;
        View copy(*way[1]);
        umf_vault_view_handle_t same;
        EXPECT_EQ(umfVaultAttach(way[1]->handle, &wanted, &same), UMF_RESULT_SUCCESS);
        EXPECT_EQ(copy.wrong(20, 5), 0u);
        EXPECT_EQ(copy.find(key_of(2)).note_size, 3u);
        EXPECT_EQ(copy.find("tied").ptr, copy.find("alias").ptr);
        EXPECT_EQ(static_cast<unsigned char *>(copy.find("alias").ptr)[0], 42);
        EXPECT_EQ(static_cast<unsigned char *>(copy.find("own").ptr)[1], 8);
        EXPECT_EQ(copy.find("own").flags, unsigned(UMF_VAULT_PRIVATE));
        EXPECT_EQ(copy.find("zero").flags, unsigned(UMF_VAULT_ZERO));
    }
    EXPECT_EQ(vault.stat().current, 2u);
}

// Bytes of shared memory that this process has in its page tables.
size_t resident_shared() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.compare(0, 9, "RssShmem:") == 0) {
            return std::stoul(line.substr(9)) << 10;
        }
    }
    return 0;
}

TEST_F(Vaults, ACopyIntoAFolderNeedsNoMemory) {
    constexpr size_t size = 32 << 20;
    Vault vault, folder(("file:" + place + "/stored").c_str());
    {
        Draft draft(vault, nullptr, "proxy over linux_vmm");
        memset(draft.put("large", size), 7, size);
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    View view(vault);
    Draft draft(folder);
    size_t before = resident_shared();
    ASSERT_EQ(umfVaultCopy(draft.handle, view.handle, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_LT(resident_shared(), before + size / 2);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(static_cast<unsigned char *>(View(folder).find("large").ptr)[size - 1], 7);
}

TEST_F(Vaults, APartIsCopiedBesideOtherEntries) {
    Vault vault, other("other");
    write_generation(vault, 20, 5);
    View view(vault);
    Draft draft(other);
    draft.put("layers.1.weight", 100)[0] = 1;
    ASSERT_EQ(umfVaultCopy(draft.handle, view.handle, "layers.1"), UMF_RESULT_SUCCESS);
    draft.put("layers.10.weight", 200)[0] = 2;
    EXPECT_EQ(umfVaultCopy(draft.handle, view.handle, "nothing"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultCopy(draft.handle, nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View copied(other);
    size_t entries = 0;
    umfVaultEach(
        copied.handle, nullptr,
        [](const umf_vault_entry_t *, void *arg) {
            return int(++*static_cast<size_t *>(arg) == 0);
        },
        &entries);
    EXPECT_EQ(entries, 11u);
    EXPECT_EQ(copied.find("layers.1.weight").size, entry_size);
    EXPECT_EQ(copied.find("layers.10.weight").size, 200u);
    EXPECT_EQ(static_cast<unsigned char *>(copied.find(key_of(19)).ptr)[7], byte_of(5, 19, 7));
}

TEST_F(Vaults, DamagedContentIsNotCopied) {
    Vault vault, folder(("file:" + place + "/stored").c_str());
    write_generation(folder, 20, 5);
    View view(folder);
    std::string file = place + "/stored/1.vault";
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_NE(fd, -1);
    off_t end = lseek(fd, 0, SEEK_END), at = lseek(fd, 65536, SEEK_DATA);
    ASSERT_LT(at, end);
    for (; at < end; at += 4096) { // in the last entry, too
        EXPECT_EQ(pwrite(fd, "!?", 2, at), 2);
    }
    close(fd);
    Draft draft(vault);
    draft.put("before")[0] = 1;
    EXPECT_EQ(umfVaultCopy(draft.handle, view.handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    View left(vault);
    EXPECT_EQ(left.find("before").size, entry_size);
    EXPECT_EQ(left.find(key_of(0)).ptr, nullptr);
}

TEST_F(Vaults, AServiceManagerStartsIt) {
    std::string name = place + "/vault";
    Activated socket(name);
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    params.start = 0;
    for (uint64_t round = 1; round <= 2; round++) { // the socket outlives the service
        umf_vault_handle_t vault = nullptr;
        std::thread client([&] { // it waits in the socket
            EXPECT_EQ(umfVaultOpen("model", &params, &vault), UMF_RESULT_SUCCESS);
        });
        EXPECT_EQ(socket.start(place), 0);
        client.join();
        ASSERT_NE(vault, nullptr);
        EXPECT_EQ(umfVaultClose(vault), UMF_RESULT_SUCCESS);
        Vault model;
        EXPECT_EQ(write_generation(model, 3, round), 1u);
        ASSERT_TRUE(until([&] { return keeper() && daemon(); }));
        pid_t former = keeper();
        kill(former, SIGKILL); // the next one does not know how it was started
        EXPECT_TRUE(until([&] { return keeper() && keeper() != former; }));
        EXPECT_EQ(View(model).wrong(3, round), 0u);
        EXPECT_EQ(socket.start(place), 3); // another one has the place
        EXPECT_EQ(umfVaultStop(nullptr, 1), UMF_RESULT_SUCCESS);
        EXPECT_TRUE(until([&] { return has_ended(); }));
        EXPECT_EQ(access(name.c_str(), F_OK), 0);
    }
}

TEST_F(Vaults, ASocketOfAnotherPlaceIsRefused) {
    EXPECT_EQ(Activated(place + "/other").start(place), 1);
    EXPECT_EQ(Activated(place + "/vault", SOCK_STREAM).start(place), 1);
    EXPECT_TRUE(processes().empty());
    ASSERT_EQ(unlink((place + "/vault").c_str()), 0);
}

TEST_F(Vaults, AFolderThatOthersMayEnterIsRefused) {
    ASSERT_EQ(chmod(place.c_str(), 0755), 0);
    umf_vault_handle_t handle;
    EXPECT_EQ(umfVaultOpen("a", nullptr, &handle), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    ASSERT_EQ(chmod(place.c_str(), 0700), 0);
}

TEST_F(Vaults, TheServiceListsAndStops) {
    {
        Vault one("first"), two("second");
        write_generation(one, 1, 1);
        write_generation(two, 1, 1);
        EXPECT_EQ(umfVaultStop(nullptr, 0), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        std::string names;
        EXPECT_EQ(umfVaultList(
                      nullptr,
                      [](const char *name, const umf_vault_stat_t *stat, void *arg) {
                          EXPECT_EQ(stat->current, 1u);
                          *static_cast<std::string *>(arg) += std::string(name) + " ";
                          return 0;
                      },
                      &names),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(names, "first second ");
    }
    EXPECT_EQ(umfVaultStop(nullptr, 1), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(until([&] { return has_ended(); }));
}

// --- views that change ---------------------------------------------------------------------------

bool is_mapped(const void *ptr) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    ssize_t got = write(ends[1], ptr, 1); // the kernel reads it
    close(ends[0]);
    close(ends[1]);
    return got == 1;
}

void suspend_and_resume(const Vault &vault) {
    View view(vault);
    umf_vault_entry_t before = view.find(key_of(1));
    const void *ptr = before.ptr;
    EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_SUCCESS);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
        EXPECT_FALSE(is_mapped(ptr));
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_SUCCESS);
        EXPECT_EQ(view.wrong(3, 1), 0u);
        EXPECT_TRUE(is_mapped(before.key) && is_mapped(before.note));
    }
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
}

TEST_F(Vaults, AViewIsSuspendedAndResumed) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    write_generation(vault, 3, 1);
    write_generation(folder, 3, 1);
    suspend_and_resume(vault);
    suspend_and_resume(folder);
}

void move_to_others(const Vault &vault) {
    View view(vault);
    const void *ptr = view.find(key_of(1)).ptr;
    EXPECT_EQ(write_generation(vault, 3, 2), 2u);
    EXPECT_EQ(view.wrong(3, 1), 0u);
    uint64_t now = 0;
    EXPECT_EQ(umfVaultMove(view.handle, 0, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultViewGeneration(view.handle, &now), UMF_RESULT_SUCCESS);
    EXPECT_EQ(now, 2u);
    EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
    EXPECT_EQ(view.wrong(3, 2), 0u);
    EXPECT_EQ(umfVaultMove(view.handle, 1, nullptr), UMF_RESULT_SUCCESS); // and back
    EXPECT_EQ(view.wrong(3, 1), 0u);
    EXPECT_EQ(umfVaultMove(view.handle, 9, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_suspend_params_t no_array = UMF_SUSPEND_PARAMS_INIT;
    no_array.num_queues = 1;
    EXPECT_EQ(umfVaultMove(view.handle, 2, &no_array), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultSuspend(view.handle, &no_array), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(write_generation(vault, 4, 3), 3u); // one entry more
    EXPECT_EQ(umfVaultMove(view.handle, 3, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY);
    EXPECT_EQ(view.wrong(3, 1), 0u); // as it was
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultMove(view.handle, 2, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(view.wrong(3, 2), 0u);
}

TEST_F(Vaults, AViewMovesToAnotherGenerationAtItsAddresses) {
    Vault vault("model", 0, 5), folder(("file:" + place + "/folder").c_str(), 0, 5);
    write_generation(vault, 3, 1);
    write_generation(folder, 3, 1);
    move_to_others(vault);
    move_to_others(folder);
}

TEST_F(Vaults, AMoveGivesTheFormerGenerationBack) {
    Vault reader;
    {
        Vault writer;
        write_generation(writer, 1, 1);
    }
    View view(reader);
    {
        Vault writer;
        write_generation(writer, 1, 2);
    }
    EXPECT_EQ(reader.stat().generations, 2u);
    ASSERT_EQ(umfVaultMove(view.handle, 0, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(until([&] { return reader.stat().generations == 1; }));
    EXPECT_EQ(view.wrong(1, 2), 0u);
}

TEST_F(Vaults, PrivateMemoryIsMovedAndNotResumed) {
    Vault vault;
    for (uint64_t seed = 1; seed < 3; seed++) {
        Draft draft(vault);
        auto *own = draft.put("own", entry_size, UMF_VAULT_PRIVATE);
        own[0] = static_cast<unsigned char>(seed);
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    View view(vault, 1);
    auto *own = static_cast<unsigned char *>(view.find("own").ptr);
    own[1] = 77;
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(own[0], 1);
    EXPECT_EQ(own[1], 77);
    EXPECT_EQ(umfVaultMove(view.handle, 2, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(own[0], 2);
    EXPECT_EQ(own[1], 0);
}

TEST_F(Vaults, ASuspendedViewOfAGenerationThatIsGone) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    for (const Vault *of : {&vault, &folder}) {
        write_generation(*of, 1, 1);
        View view(*of, 1);
        EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultDrop(of->handle, 1), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
        EXPECT_FALSE(is_mapped(view.find(key_of(0)).ptr));
    }
    write_generation(folder, 1, 1);
    View view(folder);
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
    ASSERT_EQ(system(("rm -r " + place + "/folder").c_str()), 0);
    EXPECT_EQ(write_generation(folder, 1, 2), 1u);
    EXPECT_EQ(write_generation(folder, 1, 2), 2u); // has its number
    EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
}

TEST_F(Vaults, ASuspendedViewOfAServiceThatEnded) {
    Vault vault;
    write_generation(vault, 1, 1);
    View view(vault);
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), UMF_RESULT_SUCCESS);
    umfVaultStop(nullptr, 1);
    ASSERT_TRUE(until([&] { return has_ended(); }));
    Vault other;
    write_generation(other, 1, 2); // has its number, and other content
    EXPECT_EQ(umfVaultResume(view.handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_FALSE(is_mapped(view.find(key_of(0)).ptr));
    EXPECT_EQ(umfVaultMove(view.handle, 0, nullptr), UMF_RESULT_SUCCESS); // on purpose
    EXPECT_EQ(view.wrong(1, 2), 0u);
}

} // namespace
