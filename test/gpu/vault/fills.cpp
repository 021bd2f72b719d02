// Hostile and dying clients that fill a generation.
#include "gpu/vault/copies.h"
#include "gpu/vault/hostile.h"

namespace {

TEST_F(VaultGpuCopies, ACopyThatDiffersIsRefused) {
    {
        Vault vault;
        write_on_gpu(vault, 4, 1);
        Hostile hostile(place, false);
        ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_COPIES), ok);
        ASSERT_GE(hostile.slabs.size(), 1u);
        for (umf_vault_slab_t slab : std::vector<umf_vault_slab_t>(hostile.slabs)) {
            int fd = file_of(slab.size);
            slab.kind = UMF_VAULT_KIND_HOST;
            memset(slab.device, 0, sizeof(slab.device));
            slab.device[3] = 7; // a sum
            EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_COPIES, slab, fd), ok);
            close(fd);
        }
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
    }
    Vault vault;
    long before = objects(), files = 0;
    for (int i = 0; i < 2; i++) {
        files = i ? open_files() : 0; // the provider is there
        GpuView view(vault);
        EXPECT_EQ(view.attached, BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
        EXPECT_EQ(vault.stat().evicted, 1u);
        EXPECT_EQ(vault.stat().device_bytes, 0u);
    }
    EXPECT_EQ(open_files(), files);
    EXPECT_EQ(umfVaultClose(vault.handle), OK);
    vault.handle = nullptr;
    EXPECT_LE(objects(), before);
}

TEST_F(VaultGpuCopies, OneThatFillsAndEnds) {
    write(true);
    Vault vault;
    for (bool gives : {false, true}) {
        std::thread reader;
        {
            Hostile hostile(place, false), second(place, false);
            ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_DEVICES), ok);
            ASSERT_EQ(hostile.slabs.size(), count);
            EXPECT_EQ(second.fill(UMF_VAULT_FILL_DEVICES), uint32_t{UMF_VAULT_BUSY});
            EXPECT_EQ(umfVaultEvict(vault.handle, 0), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
            EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr),
                      UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            if (gives) { // one of them, and wrong
                umf_vault_slab_t slab = slab_of(0, hostile.slabs[0].size);
                slab.serial = hostile.slabs[0].serial;
                Exported memory(0, slab.size);
                EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd), ok);
                EXPECT_EQ(hostile.message.words[1], count - 1);
                EXPECT_EQ(vault.stat().device_bytes, slab.size);
            }
            kill(daemon(), SIGKILL); // the next one knows of it
            reader = std::thread([&] {
                start_cuda();
                umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
                params.devices = "cuda_vmm";
                params.timeout_ms = 60000;
                umf_vault_view_handle_t view;
                EXPECT_EQ(umfVaultAttach(vault.handle, &params, &view), OK) << umfLastErrorText();
                EXPECT_EQ(umfVaultDetach(view), OK);
                driver().cuDevicePrimaryCtxRelease(0);
            });
            EXPECT_EQ(second.fill(UMF_VAULT_FILL_DEVICES), uint32_t{UMF_VAULT_BUSY});
        }
        reader.join();
        expect_whole();
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
    }
}

TEST_F(VaultGpuCopies, AProcessThatIsKilledWhileItMakesMemory) {
    write(true);
    Vault vault;
    Hostile looks(place, false);
    for (int i = 0; i < 3; i++) {
        Process other("reader", "0 2 1");
        EXPECT_TRUE(until([&] { // all have copies, so this begins nothing
            return looks.fill(UMF_VAULT_FILL_COPIES) == UMF_VAULT_BUSY || vault.stat().evicted == 0;
        }));
        other.kill();
        expect_whole();
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
    }
}

TEST_F(VaultGpuCopies, CopiesOfOneThatEndsGo) {
    Vault vault;
    {
        Draft draft(vault, nullptr, pieces);
        for (size_t i = 0; i < count; i++) {
            put(draft.handle, draft.pool, key_of(i), pattern(1, i));
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    uint64_t bytes = vault.stat().bytes;
    {
        Hostile hostile(place, false);
        ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_COPIES), ok);
        ASSERT_EQ(hostile.slabs.size(), count);
        umf_vault_slab_t slab = hostile.slabs[0];
        slab.kind = UMF_VAULT_KIND_HOST;
        int fd = file_of(slab.size);
        EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_COPIES, slab, fd), ok);
        close(fd);
        EXPECT_EQ(vault.stat().copy_bytes, slab.size);
        EXPECT_EQ(hostile.call(UMF_VAULT_EVICT, {0}, nullptr, 0), uint32_t{UMF_VAULT_BUSY});
    }
    EXPECT_TRUE(until([&] { return vault.stat().copy_bytes == 0; }));
    EXPECT_EQ(vault.stat().bytes, bytes);
}

// Copies of a fill that is not complete end with its generation, also of slabs that another
// generation shares: that one would lose them at the failure of a later fill, when they may be all
// it has.
TEST_F(VaultGpuCopies, AGenerationThatIsDroppedWhileItGetsCopies) {
    Vault vault("model", 0, 5);
    {
        Draft draft(vault, nullptr, pieces);
        for (size_t i = 0; i < count; i++) {
            put(draft.handle, draft.pool, key_of(i), pattern(1, i));
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    {
        Draft draft(vault, &params, pieces);
        ASSERT_EQ(umfVaultKeep(draft.handle, key_of(0).c_str()), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    Hostile hostile(place, false);
    ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_COPIES), ok); // of generation 2, to learn what it shares
    ASSERT_EQ(hostile.slabs.size(), 1u);
    umf_vault_slab_t slab = hostile.slabs[0];
    ASSERT_EQ(hostile.call(UMF_VAULT_FILL, {2, UMF_VAULT_FILL_END}, nullptr, 0), ok);
    ASSERT_EQ(hostile.call(UMF_VAULT_FILL, {1, UMF_VAULT_FILL_COPIES}, nullptr, 0), ok);
    slab.kind = UMF_VAULT_KIND_HOST;
    memset(slab.device, 0, sizeof(slab.device));
    int fd = file_of(slab.size);
    ASSERT_EQ(hostile.call(UMF_VAULT_FILLED, {1, UMF_VAULT_FILL_COPIES}, &slab, sizeof(slab), fd),
              ok);
    close(fd);
    EXPECT_EQ(vault.stat().copy_bytes, slab.size);
    ASSERT_EQ(umfVaultDrop(vault.handle, 1), OK);
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
    EXPECT_EQ(umfVaultEvict(vault.handle, 2), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
}

// Its piece was given before a commit that failed, and its key got other memory before the next
// one.
TEST_F(VaultGpuCopies, APieceThatNoKeyUses) {
    Vault vault;
    Exported unused(0, 2 * MiB), used(0, 2 * MiB);
    {
        Hostile hostile(place);
        ASSERT_EQ(hostile.give(slab_of(0, 2 * MiB), unused.fd, 0), ok);
        ASSERT_EQ(hostile.give(slab_of(0, 2 * MiB), used.fd, 1), ok);
        hostile.commit(slab_of(0, 2 * MiB));
    }
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().copy_bytes, 4 * MiB);
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    GpuView view(vault);
    EXPECT_EQ(view.attached, OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().evicted, 0u);
}

TEST_F(VaultGpuCopies, AClientWithoutRoomForDescriptorsLetsOthersFill) {
    write(true);
    Vault vault;
    Hostile second(place, false);
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int lowest = dup(second.socket);
    close(lowest);
    rlimit less = limit;
    less.rlim_cur = rlim_t(lowest) + 1;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &less), 0);
    GpuView view(vault);
    umf_reason_t reason = umfLastReason();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(view.attached, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(reason, UMF_REASON_EXHAUSTED);
    EXPECT_EQ(second.fill(UMF_VAULT_FILL_DEVICES), ok);
}

TEST_F(VaultGpuCopies, AViewOfNamesIsResumedWithoutItsMemory) {
    write(false);
    Vault vault;
    GpuView view(vault, "none");
    ASSERT_EQ(view.attached, OK);
    ASSERT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(umfVaultResume(view.handle), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().evicted, 1u);
    EXPECT_EQ(view.find(key_of(1)).ptr, nullptr);
}

TEST_F(VaultGpuCopies, WhatTheServiceRefuses) {
    write(true);
    Hostile hostile(place, false);
    umf_vault_slab_t slab = slab_of(0, 2 * MiB);
    Exported memory(0, 2 * MiB);
    constexpr uint32_t invalid = UMF_VAULT_INVALID;
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd),
              uint32_t{UMF_VAULT_ENDED}); // not begun
    EXPECT_EQ(hostile.call(UMF_VAULT_FILL, {0, UMF_VAULT_FILLS}, nullptr, 0), invalid);
    EXPECT_EQ(hostile.call(UMF_VAULT_FILL, {9, UMF_VAULT_FILL_DEVICES}, nullptr, 0),
              uint32_t{UMF_VAULT_NONE});
    ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_DEVICES), ok);
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd), invalid); // no serial
    slab.serial = hostile.slabs[0].serial;
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, -1), invalid);
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, hostile.socket),
              uint32_t{UMF_VAULT_FOREIGN});
    slab.size += 4096;
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd), invalid);
    slab.size = hostile.slabs[0].size;
    slab.kind = UMF_VAULT_KIND_HOST;
    EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd), invalid);
    // A draft cannot give what only the daemon makes.
    umf_vault_slab_t copy = {};
    copy.size = 4096;
    copy.role = UMF_VAULT_CLASS_COPY;
    copy.kind = UMF_VAULT_KIND_HOST;
    Hostile writer(place);
    int fd = file_of(4096);
    EXPECT_EQ(writer.give(copy, fd), invalid);
    close(fd);
}

TEST_F(VaultGpuFiles, FilesThatTheServiceRefuses) {
    write(false, false, 1, folder.c_str());
    Vault vault;
    Hostile hostile(place, false);
    constexpr uint32_t invalid = UMF_VAULT_INVALID, unsealed = UMF_VAULT_UNSEALED;
    EXPECT_EQ(hostile.fill(UMF_VAULT_FILL_FILES), invalid); // without a number
    EXPECT_EQ(hostile.call(UMF_VAULT_FILL, {0, UMF_VAULT_FILL_FILES, 7, 0}, nullptr, 0), ok);
    EXPECT_EQ(hostile.message.words[1], count);
    umf_vault_slab_t slab = hostile.got[1];
    umf_vault_copied_t copied;
    memcpy(&copied, slab.device, sizeof(copied));
    const uint64_t sum = copied.sum;
    slab.kind = UMF_VAULT_KIND_FILE;
    auto refused = [&](int fd, uint32_t answer) {
        EXPECT_EQ(
            hostile.call(UMF_VAULT_FILLED, {0, UMF_VAULT_FILL_FILES, 7}, &slab, sizeof(slab), fd),
            answer);
    };
    int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC), ends[2];
    ASSERT_EQ(pipe(ends), 0);
    refused(ends[0], unsealed);
    refused(hostile.socket, unsealed);
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    int writable = open(file.c_str(), O_RDWR | O_CLOEXEC);
    refused(writable, unsealed);
    int other = open("/proc", O_RDONLY | O_CLOEXEC);
    refused(other, unsealed);
    if (geteuid() == 0) { // of somebody else
        ASSERT_EQ(chown(file.c_str(), 12345, 12345), 0);
        refused(fd, unsealed);
        ASSERT_EQ(chown(file.c_str(), 0, 0), 0);
    }
    copied = {0, 0}; // without a sum
    memcpy(slab.device, &copied, sizeof(copied));
    refused(fd, invalid);
    copied = {sum, uint64_t(std::filesystem::file_size(file)) - slab.size + 1};
    memcpy(slab.device, &copied, sizeof(copied));
    refused(fd, invalid);
    copied = {sum, UINT64_MAX - 1};
    memcpy(slab.device, &copied, sizeof(copied));
    refused(fd, invalid);
    slab.kind = UMF_VAULT_KIND_HOST;
    copied = {sum, 0};
    memcpy(slab.device, &copied, sizeof(copied));
    refused(fd, invalid);
    slab.kind = UMF_VAULT_KIND_FILE;
    copied = {sum + 1, 0};
    memcpy(slab.device, &copied, sizeof(copied));
    refused(fd, invalid); // of other content than the copy that is there
    memcpy(slab.device, hostile.got[1].device, sizeof(slab.device));
    refused(fd, ok);
    EXPECT_EQ(hostile.message.words[1], count - 1);
    EXPECT_EQ(
        hostile.call(UMF_VAULT_FILLED, {0, UMF_VAULT_FILL_COPIES, 7}, &slab, sizeof(slab), fd),
        ok); // all have a copy
    EXPECT_EQ(hostile.call(UMF_VAULT_FILLED, {0, UMF_VAULT_FILL_FILES, 8}, &slab, sizeof(slab), fd),
              uint32_t{UMF_VAULT_ENDED}); // another file
    for (int one : {ends[0], ends[1], writable, other, fd}) {
        close(one);
    }
    EXPECT_EQ(hostile.call(UMF_VAULT_FILL, {0, UMF_VAULT_FILL_END}, nullptr, 0), ok);
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    expect_whole();
}

// One that fills a generation delivers other bytes. It has no sums, so nothing has told until now;
// a sum of them would say that they are right.
TEST_F(VaultGpuCopies, SumsDoNotProveWhatAnotherClientHasDelivered) {
    for (bool has_sums : {true, false}) {
        Vault vault;
        umf_vault_draft_params_t from = UMF_VAULT_DRAFT_PARAMS_INIT;
        umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        commit.digest = 1;
        params.digest = has_sums;
        {
            Vault writer;
            from.from = write_on_gpu(writer, count, 1);
        }
        ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK);
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
        {
            Hostile hostile(place, false);
            ASSERT_EQ(hostile.fill(UMF_VAULT_FILL_DEVICES), ok);
            for (const umf_vault_slab_t &missing : std::vector<umf_vault_slab_t>(hostile.slabs)) {
                umf_vault_slab_t slab = slab_of(0, missing.size);
                slab.serial = missing.serial;
                Exported memory(0, slab.size);
                EXPECT_EQ(hostile.filled(UMF_VAULT_FILL_DEVICES, slab, memory.fd), ok);
            }
        }
        kill(daemon(), SIGKILL); // the next one knows that it was made again
        Draft draft(vault, &from, on_gpu);
        ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
        EXPECT_EQ(draft.commit(nullptr, &commit), has_sums ? BAD : UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(umfLastReason(), has_sums ? UMF_REASON_BROKEN : UMF_REASON_UNSUPPORTED)
            << umfLastErrorText();
        EXPECT_EQ(draft.commit(), OK); // without sums nothing is promised
        EXPECT_EQ(umfVaultDrop(vault.handle, 0), OK);
    }
}

TEST_F(VaultGpuCopies, AnOlderLibraryGetsAClearAnswer) {
    write(true);
    Hostile older(place, false);
    older.version = UMF_VAULT_VERSION;
    EXPECT_EQ(older.call(UMF_VAULT_ATTACH, {0}, nullptr, 0), uint32_t{UMF_VAULT_OLD});
    EXPECT_EQ(older.message.words[0], uint64_t{UMF_VAULT_VERSION_COPIES});
    EXPECT_EQ(older.call(UMF_VAULT_STAT, {0}, nullptr, 0), ok);
    older.version = UMF_VAULT_VERSION_COPIES + 1;
    EXPECT_EQ(older.call(UMF_VAULT_STAT, {0}, nullptr, 0), uint32_t{UMF_VAULT_OLD});
    expect_whole();
    older.version = UMF_VAULT_VERSION;
    EXPECT_EQ(older.call(UMF_VAULT_ATTACH, {0}, nullptr, 0), ok);
}

} // namespace
