// Memory of GPUs in vaults (umf/vault.h): real processes, each of which starts CUDA for itself, and
// a real service.
#include "gpu/vault/vault.h"

namespace {

// --- other processes -----------------------------------------------------------------------------

// "<entries> <seed>": writes a generation, says its number, and ends when it is told to.
int writer(Socket &socket, const std::string &argument) {
    size_t count = 0;
    unsigned long long seed = 0;
    sscanf(argument.c_str(), "%zu %llu", &count, &seed);
    start_cuda();
    Vault vault;
    socket.send(std::to_string(write_on_gpu(vault, count, seed)));
    socket.receive();
    _exit(testing::Test::HasFailure()); // without giving anything back
}

// "<number of the first GPU> <entries> <seed> [<devices>]": attaches, says result, reason and wrong
// entries.
int reader(Socket &socket, const std::string &argument) {
    int first = 0;
    size_t count = 0;
    unsigned long long seed = 0;
    char devices[32] = "cuda_vmm";
    sscanf(argument.c_str(), "%d %zu %llu %31s", &first, &count, &seed, devices);
    if (!driver().is_real) {
        driver().control()->first_uuid = first;
    }
    start_cuda(strstr(devices, "device=1") ? 1 : 0);
    Vault vault;
    GpuView view(vault, devices);
    std::string said = std::to_string(view.attached) + " " + std::to_string(umfLastReason()) + " " +
                       std::to_string(view.attached == OK ? view.wrong(count, seed) : 0);
    socket.send(said);
    socket.receive();
    return testing::Test::HasFailure();
}

// "<key> <bytes> <fence> <first byte>": claims, says result and epoch, writes the byte to all of it
// and says so, and holds it until it is killed.
int claimer(Socket &socket, const std::string &argument) {
    char key[32];
    size_t size = 0;
    int fence = 0, byte = 0;
    sscanf(argument.c_str(), "%31s %zu %d %d", key, &size, &fence, &byte);
    start_cuda();
    Vault vault;
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    params.size = size;
    params.fence = static_cast<umf_vault_fence_t>(fence);
    params.devices = "cuda_vmm";
    params.timeout_ms = 20000;
    umf_result_t result = umfVaultClaim(vault.handle, key, &params, &claim);
    if (result == OK) {
        driver().cuMemsetD8(at(claim.ptr), static_cast<unsigned char>(byte), claim.size);
        umfVaultClaimNote(vault.handle, key, claim.epoch, "written", 7);
    }
    socket.send(std::to_string(result) + " " + std::to_string(claim.epoch));
    socket.receive();
    _exit(testing::Test::HasFailure());
}

const Roles roles = {{"writer", writer}, {"reader", reader}, {"claimer", claimer}};

// --- writing and reading -------------------------------------------------------------------------

TEST_F(VaultGpu, MemoryOutlivesItsWriter) {
    {
        Process other("writer", "5 9");
        ASSERT_EQ(other.socket.receive(), "1");
        other.kill();
    }
    Vault vault;
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(view.wrong(5, 9), 0u);
    umf_vault_entry_t entry = view.find(key_of(2));
    EXPECT_EQ(entry.device, 0);
    EXPECT_EQ(entry.size, bytes_of_entry);
    EXPECT_EQ(entry.note_size, 3u);
    EXPECT_EQ(access_of(entry.ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    umf_memory_pool_handle_t pool;
    EXPECT_NE(umfPoolByPtr(entry.ptr, &pool), OK);
}

TEST_F(VaultGpu, OthersReadWhatThisOneWrote) {
    Vault vault;
    EXPECT_EQ(write_on_gpu(vault, 4, 3), 1u);
    Process one("reader", "0 4 3"), other("reader", "0 4 3");
    EXPECT_EQ(one.socket.receive(), answer(OK, UMF_REASON_NONE, 0));
    EXPECT_EQ(other.socket.receive(), answer(OK, UMF_REASON_NONE, 0));
    EXPECT_EQ(vault.stat().readers, 3u);
    one.kill();
    EXPECT_TRUE(until([&] { return vault.stat().readers == 2; }));
}

TEST_F(VaultGpu, WrittenMemoryStaysForReading) {
    long before = objects();
    std::vector<unsigned char> content = pattern(1, 1);
    {
        Vault vault;
        Draft draft(vault, nullptr, on_gpu);
        void *memory = put(draft.handle, draft.pool, "a", content);
        umfPoolMalloc(draft.pool, 5 * MiB); // without an entry: it goes
        ASSERT_EQ(draft.commit(), OK);
        EXPECT_TRUE(has(memory, content));
        EXPECT_EQ(access_of(memory), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
        EXPECT_NE(umfFree(memory), OK);
        umf_memory_pool_handle_t pool;
        EXPECT_NE(umfPoolByPtr(memory, &pool), OK);
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpu, FlagsOfEntries) {
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    umf_memory_pool_handle_t own, zero;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
    ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &zero), OK);
    put(draft.handle, draft.pool, "shared", pattern(1, 0));
    put(draft.handle, own, "own", pattern(1, 1), UMF_VAULT_PRIVATE);
    put(draft.handle, zero, "zero", pattern(1, 2), UMF_VAULT_ZERO);
    ASSERT_EQ(draft.commit(), OK);
    GpuView view(vault), other(vault);
    ASSERT_EQ(view.attached, OK);
    EXPECT_TRUE(has(view.find("shared").ptr, pattern(1, 0)));
    EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 1)));
    EXPECT_TRUE(has(view.find("zero").ptr, std::vector<unsigned char>(bytes_of_entry)));
    for (const char *key : {"own", "zero"}) {
        void *memory = view.find(key).ptr;
        EXPECT_EQ(access_of(memory), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
        EXPECT_EQ(driver().cuMemcpyHtoD(at(memory), pattern(7, 7).data(), bytes_of_entry),
                  CUDA_SUCCESS);
        EXPECT_TRUE(has(memory, pattern(7, 7)));
    }
    EXPECT_TRUE(has(other.find("own").ptr, pattern(1, 1)));
    EXPECT_TRUE(has(GpuView(vault).find("own").ptr, pattern(1, 1)));
}

TEST_F(VaultGpu, AnAttachMakesFewCallsForEachSlab) {
    NEEDS_FAKE();
    Vault vault;
    Draft draft(vault, nullptr, "proxy over cuda_vmm:device=0");
    for (size_t i = 0; i < 9; i++) {
        put(draft.handle, draft.pool, key_of(i), pattern(1, 0));
    }
    ASSERT_EQ(draft.commit(), OK);
    GpuView(vault, "cuda_vmm:device=0"); // starts the device
    auto calls = [](int function) { return driver().control()->calls[function]; };
    const int once[] = {FAKE_cuMemAddressReserve, FAKE_cuMemSetAccess, FAKE_cuDeviceGetUuid};
    const int each[] = {FAKE_cuMemImportFromShareableHandle,
                        FAKE_cuMemGetAllocationPropertiesFromHandle, FAKE_cuMemMap,
                        FAKE_cuMemRelease};
    std::map<int, long> before;
    for (int function : once) {
        before[function] = calls(function) + 1;
    }
    for (int function : each) {
        before[function] = calls(function) + 9;
    }
    GpuView view(vault, "cuda_vmm:device=0");
    ASSERT_EQ(view.attached, OK);
    for (auto [function, expected] : before) {
        EXPECT_EQ(calls(function), expected) << function;
    }
}

TEST_F(VaultGpu, AnUpdateOfAPartSharesTheRest) {
    Vault vault;
    write_on_gpu(vault, 6, 1);
    uint64_t before = vault.stat().bytes;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    {
        Draft draft(vault, &params, "proxy over cuda_vmm");
        ASSERT_EQ(draft.begun, OK);
        put(draft.handle, draft.pool, key_of(2), pattern(5, 5));
        ASSERT_EQ(umfVaultKeep(draft.handle, "layers."), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    EXPECT_LE(vault.stat().bytes, before + 4 * MiB + 4096);
    GpuView view(vault), old(vault, "cuda_vmm", 1);
    EXPECT_TRUE(has(view.find(key_of(2)).ptr, pattern(5, 5)));
    EXPECT_TRUE(has(view.find(key_of(3)).ptr, pattern(1, 3)));
    EXPECT_EQ(old.wrong(6, 1), 0u);
}

TEST_F(VaultGpu, KeptEntriesWithoutContentHaveMemoryOfTheirOwn) {
    Vault vault;
    {
        Draft draft(vault, nullptr, "proxy over cuda_vmm");
        put(draft.handle, draft.pool, "small", pattern(1, 0), UMF_VAULT_ZERO);
        void *large = umfPoolMalloc(draft.pool, 6 * MiB);
        ASSERT_EQ(umfVaultPut(draft.handle, "zero", large, 6 * MiB, nullptr, 0, UMF_VAULT_ZERO),
                  OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    Draft draft(vault, &params, "proxy over cuda_vmm");
    ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
    ASSERT_EQ(draft.commit(), OK);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    auto *small = static_cast<char *>(view.find("small").ptr);
    auto *large = static_cast<char *>(view.find("zero").ptr);
    EXPECT_TRUE(small + bytes_of_entry <= large || large + 6 * MiB <= small);
}

TEST_F(VaultGpu, HostAndDeviceInOneGeneration) {
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    umf_memory_pool_handle_t host;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &host), OK);
    put(draft.handle, draft.pool, "weights", pattern(1, 0));
    auto *vocabulary = static_cast<char *>(umfPoolMalloc(host, 100));
    strcpy(vocabulary, "words");
    ASSERT_EQ(umfVaultPut(draft.handle, "vocabulary", vocabulary, 100, nullptr, 0, 0), OK);
    ASSERT_EQ(draft.commit(), OK);
    GpuView view(vault);
    EXPECT_TRUE(has(view.find("weights").ptr, pattern(1, 0)));
    EXPECT_STREQ(static_cast<char *>(view.find("vocabulary").ptr), "words");
    EXPECT_EQ(view.find("vocabulary").device, -1);
    EXPECT_EQ(view.find("weights").device, 0);
}

TEST_F(VaultGpu, StatShowsTheDevice) {
    Vault vault;
    EXPECT_STREQ(vault.stat().device, "");
    write_on_gpu(vault, 3, 1);
    umf_vault_stat_t stat = vault.stat();
    EXPECT_EQ(stat.devices, 1u);
    EXPECT_GE(stat.device_bytes, 3 * bytes_of_entry);
    EXPECT_GT(stat.bytes, stat.device_bytes); // the table
    CUuuid uuid;
    CU(cuDeviceGetUuid(&uuid, 0));
    char text[8];
    snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(uuid.bytes[0]));
    EXPECT_EQ(std::string(stat.device).substr(0, 6), std::string("GPU-") + text);
    EXPECT_EQ(strlen(stat.device), 40u);
    // That name chooses the device.
    umf_memory_provider_handle_t provider;
    std::string by_name = std::string("cuda_vmm:uuid=") + stat.device;
    ASSERT_EQ(umfMemoryProviderCreateFromText(by_name.c_str(), &provider), OK);
    umfMemoryProviderDestroy(provider);
    EXPECT_EQ(umfMemoryProviderCreateFromText("cuda_vmm:uuid=GPU-12", &provider), BAD);
}

TEST_F(VaultGpu, ADaemonThatIsKilledLosesNothing) {
    Vault vault;
    write_on_gpu(vault, 3, 4);
    kill(daemon(), SIGKILL);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(view.wrong(3, 4), 0u);
    kill(keeper(), SIGKILL);
    EXPECT_EQ(GpuView(vault).wrong(3, 4), 0u);
}

TEST_F(VaultGpu, SumsOfItsContent) {
    Vault vault;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    write_on_gpu(vault, 3, 4, &params);
    GpuView view(vault);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
    if (!driver().is_real) { // memory of the software driver can be written past it
        static_cast<unsigned char *>(view.find(key_of(1)).ptr)[100] ^= 1;
        EXPECT_EQ(umfVaultVerify(view.handle, key_of(0).c_str()), OK);
        EXPECT_EQ(umfVaultVerify(view.handle, key_of(1).c_str()), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    }
}

TEST_F(VaultGpu, SumsOfContentThatIsKept) {
    Vault vault;
    umf_vault_draft_params_t from = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    from.from = write_on_gpu(vault, 3, 4);
    {
        Draft draft(vault, &from, on_gpu);
        put(draft.handle, draft.pool, "new", pattern(5, 5));
        ASSERT_EQ(umfVaultKeep(draft.handle, key_of(1).c_str()), OK);
        ASSERT_EQ(draft.commit(nullptr, &params), OK) << umfLastErrorText();
    }
    GpuView view(vault);
    EXPECT_EQ(umfVaultVerify(view.handle, key_of(1).c_str()), OK);
    EXPECT_EQ(umfVaultVerify(view.handle, "new"), OK);
    if (!driver().is_real) { // memory of the software driver can be written past it
        static_cast<unsigned char *>(view.find(key_of(1)).ptr)[100] ^= 1;
        EXPECT_EQ(umfVaultVerify(view.handle, key_of(1).c_str()), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    }
}

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
