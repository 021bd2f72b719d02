// Memory of GPUs in vaults (umf/vault.h): real processes, each of which starts CUDA for itself, and
// a real service.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu.h"

#include <umf.h>
#include <umf/reason.h>
#include <umf/text.h>
#include <umf/umf.hpp>

#include "fakes/role.h"
#include "fakes/scale.h"
#include "fakes/sum.h"
#include "vault/service.h"

#include "ext/vault/table.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t MiB = size_t{1} << 20;
constexpr size_t bytes_of_entry = (700 << 10) + 8;
constexpr const char *on_gpu = "coalescing over cuda_vmm:device=0";

// Calls that fail where a driver has no memory or no addresses left.
constexpr int needing[] = {FAKE_cuMemExportToShareableHandle,
                           FAKE_cuMemImportFromShareableHandle,
                           FAKE_cuMemAddressReserve,
                           FAKE_cuMemCreate,
                           FAKE_cuMemMap,
                           FAKE_cuMemSetAccess};

long open_files() {
    std::filesystem::directory_iterator first("/proc/self/fd"), end;
    return std::distance(first, end);
}

void start_cuda(int device = 0) {
    CUcontext context;
    driver().cuInit(0);
    driver().cuDevicePrimaryCtxRetain(&context, device);
    driver().cuCtxSetCurrent(context);
}

CUdeviceptr at(const void *ptr) {
    return reinterpret_cast<CUdeviceptr>(ptr);
}

// Made once: bytes cost much under sanitizers.
const std::vector<unsigned char> &pattern(uint64_t seed, size_t entry) {
    static std::map<std::pair<uint64_t, size_t>, std::vector<unsigned char>> made;
    std::vector<unsigned char> &content = made[{seed, entry}];
    while (content.size() < bytes_of_entry) {
        content.push_back(byte_of(seed, entry, content.size()));
    }
    return content;
}

bool has(const void *ptr, const std::vector<unsigned char> &content) {
    std::vector<unsigned char> seen(content.size());
    return ptr && driver().cuMemcpyDtoH(seen.data(), at(ptr), seen.size()) == CUDA_SUCCESS &&
           seen == content;
}

void *put(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool, const std::string &key,
          const std::vector<unsigned char> &content, unsigned flags = 0) {
    void *memory = umfPoolMalloc(pool, content.size());
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(driver().cuMemcpyHtoD(at(memory), content.data(), content.size()), CUDA_SUCCESS);
    EXPECT_EQ(umfVaultPut(draft, key.c_str(), memory, content.size(), "f16", 3, flags), OK);
    return memory;
}

uint64_t write_on_gpu(const Vault &vault, size_t count, uint64_t seed,
                      const umf_vault_commit_params_t *params = nullptr) {
    Draft draft(vault, nullptr, on_gpu);
    uint64_t generation = 0;
    for (size_t i = 0; i < count; i++) {
        put(draft.handle, draft.pool, key_of(i), pattern(seed, i));
    }
    EXPECT_EQ(draft.commit(&generation, params), OK);
    return generation;
}

struct GpuView {
    umf_vault_view_handle_t handle = nullptr;
    umf_result_t attached;

    explicit GpuView(const Vault &vault, const char *devices = "cuda_vmm", uint64_t number = 0) {
        umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
        params.devices = devices;
        params.generation = number;
        attached = umfVaultAttach(vault.handle, &params, &handle);
    }
    ~GpuView() {
        if (handle) {
            EXPECT_EQ(umfVaultDetach(handle), OK);
        }
    }
    GpuView(const GpuView &) = delete;
    GpuView &operator=(const GpuView &) = delete;

    umf_vault_entry_t find(const std::string &key) const {
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        umfVaultFind(handle, key.c_str(), &entry);
        return entry;
    }
    size_t wrong(size_t count, uint64_t seed) const {
        size_t differ = 0;
        for (size_t i = 0; i < count; i++) {
            differ += !has(find(key_of(i)).ptr, pattern(seed, i));
        }
        return differ;
    }
};

CUmemLocation on_device(int device) {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

unsigned long long access_of(const void *ptr, int device = 0) {
    CUmemLocation location = on_device(device);
    unsigned long long flags = 99;
    EXPECT_EQ(driver().cuMemGetAccess(&flags, &location, at(ptr)), CUDA_SUCCESS);
    return flags;
}

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

std::string answer(umf_result_t result, umf_reason_t reason, size_t wrong) {
    return std::to_string(result) + " " + std::to_string(reason) + " " + std::to_string(wrong);
}

class VaultGpu : public Vaults {
  protected:
    void SetUp() override {
        Vaults::SetUp();
        if (!driver().is_real) {
            driver().reset();
        }
        start_cuda();
    }
    void TearDown() override {
        if (!driver().is_real) {
            EXPECT_STREQ(driver().faults(), "");
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
        }
        driver().cuDevicePrimaryCtxRelease(0);
        Vaults::TearDown();
    }
    static long objects() {
        return driver().is_real ? 0 : driver().control()->objects;
    }
};

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

// --- views that change ---------------------------------------------------------------------------

TEST_F(VaultGpu, AViewIsSuspendedAndResumed) {
    Vault vault;
    write_on_gpu(vault, 4, 1);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    const void *ptr = view.find(key_of(1)).ptr;
    CUstream stream;
    CU(cuStreamCreate(&stream, 0));
    CUdeviceptr to;
    CU(cuMemAlloc(&to, bytes_of_entry));
    CU(cuMemcpyAsync(to, at(ptr), bytes_of_entry, stream)); // still runs
    void *queues[] = {stream};
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    params.queues = queues;
    params.num_queues = 1;
    EXPECT_EQ(umfVaultSuspend(view.handle, &params), OK);
    CUmemLocation location = on_device(0);
    unsigned long long flags = 0;
    EXPECT_TRUE(driver().cuMemGetAccess(&flags, &location, at(ptr)) != CUDA_SUCCESS ||
                flags == CU_MEM_ACCESS_FLAGS_PROT_NONE); // not mapped
    EXPECT_TRUE(has(reinterpret_cast<void *>(to), pattern(1, 1)));
    EXPECT_EQ(umfVaultResume(view.handle), OK);
    EXPECT_EQ(view.wrong(4, 1), 0u);
    EXPECT_EQ(access_of(ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    CU(cuMemcpyAsync(to, at(view.find(key_of(2)).ptr), bytes_of_entry, stream));
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK); // waits for all
    EXPECT_TRUE(has(reinterpret_cast<void *>(to), pattern(1, 2)));
    CU(cuMemFree(to));
    CU(cuStreamDestroy(stream));
}

TEST_F(VaultGpu, AViewMovesToAnotherGenerationAtItsAddresses) {
    Vault vault("model", 0, 5);
    for (uint64_t seed = 1; seed < 3; seed++) {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t own;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(seed, 0));
        put(draft.handle, draft.pool, key_of(1), pattern(seed, 1));
        put(draft.handle, own, "own", pattern(seed, 2), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm", 1);
    ASSERT_EQ(view.wrong(2, 1), 0u);
    void *ptr = view.find(key_of(1)).ptr, *own = view.find("own").ptr;
    ASSERT_EQ(umfVaultMove(view.handle, 0, nullptr), OK);
    EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
    EXPECT_EQ(view.find("own").ptr, own);
    EXPECT_EQ(view.wrong(2, 2), 0u);
    EXPECT_TRUE(has(own, pattern(2, 2)));
    EXPECT_EQ(write_on_gpu(vault, 3, 3), 3u);
    EXPECT_EQ(umfVaultMove(view.handle, 3, nullptr), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY);
    EXPECT_EQ(view.wrong(2, 2), 0u);
    if (!driver().is_real) { // a failure in the middle
        long before = objects(), files = open_files();
        for (int function : needing) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                uint64_t former = 0, number = 0;
                umfVaultViewGeneration(view.handle, &former);
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                bool fails = umfVaultMove(view.handle, 3 - former, nullptr) != OK;
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                umfVaultViewGeneration(view.handle, &number);
                EXPECT_EQ(number, fails ? former : 3 - former);
                ASSERT_EQ(umfVaultResume(view.handle), OK) << function << " " << n;
                EXPECT_EQ(view.wrong(2, number), 0u) << function << " " << n;
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                ASSERT_LT(n, 200);
            }
        }
    }
}

TEST_F(VaultGpu, AMoveOfASuspendedViewWaitsForWorkOnItsPrivateMemory) {
    Vault vault("model", 0, 5);
    for (uint64_t seed = 1; seed < 3; seed++) {
        Draft draft(vault, nullptr, on_gpu);
        put(draft.handle, draft.pool, "own", pattern(seed, 0), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm", 1);
    void *own = view.find("own").ptr;
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
    CU(cuMemsetD8Async(at(own), 5, bytes_of_entry, stream));
    EXPECT_EQ(umfVaultMove(view.handle, 2, nullptr), OK);
    EXPECT_TRUE(has(own, pattern(2, 0)));
    CU(cuStreamDestroy(stream));
}

// --- copies in memory of the host ----------------------------------------------------------------

TEST_F(VaultGpu, AGenerationIsStoredInAFolderAndComesBack) {
    const std::string stored = place + "/folder";
    Vault vault, folder(("file:" + stored).c_str());
    {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t own;
        umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
        params.digest = 1;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        put(draft.handle, draft.pool, key_of(1), pattern(1, 1));
        put(draft.handle, own, "own", pattern(1, 2), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(nullptr, &params), OK);
        GpuView view(vault);
        umf_vault_draft_handle_t copy;
        ASSERT_EQ(umfVaultBegin(folder.handle, nullptr, &copy), OK);
        ASSERT_EQ(umfVaultCopy(copy, view.handle, nullptr), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultCommit(copy, nullptr, nullptr), OK);
    }
    ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK); // the device has it no more
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.copy_pool = "proxy over cuda_vmm:device=0";
    {
        View view(folder);
        ASSERT_EQ(view.attached, OK);
        umf_vault_entry_t entry = view.find(key_of(1));
        EXPECT_EQ(entry.device, -1);
        EXPECT_EQ(memcmp(entry.ptr, pattern(1, 1).data(), bytes_of_entry), 0);
        umf_vault_draft_handle_t copy;
        umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
        commit.digest = 1;
        ASSERT_EQ(umfVaultBegin(vault.handle, &params, &copy), OK);
        ASSERT_EQ(umfVaultCopy(copy, view.handle, nullptr), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultCommit(copy, &commit, nullptr), OK);
        GpuView back(vault);
        EXPECT_EQ(back.find("own").device, 0);
        EXPECT_EQ(back.wrong(2, 1), 0u);
        EXPECT_TRUE(has(back.find("own").ptr, pattern(1, 2)));
        EXPECT_EQ(umfVaultVerify(back.handle, nullptr), OK);
    }
    // A folder that was damaged does not come back.
    const std::string path = stored + "/1.vault";
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat about;
    ASSERT_EQ(fstat(fd, &about), 0);
    size_t first = 0; // where the content begins
    std::vector<unsigned char> all(static_cast<size_t>(about.st_size)), want = pattern(1, 0);
    ASSERT_EQ(pread(fd, all.data(), all.size(), 0), about.st_size);
    first = static_cast<size_t>(
        std::search(all.begin(), all.end(), want.begin(), want.begin() + 4096) - all.begin());
    ASSERT_LT(first, all.size());
    ASSERT_EQ(pwrite(fd, "!", 1, static_cast<off_t>(first + 5)), 1);
    close(fd);
    View view(folder);
    umf_vault_draft_handle_t copy;
    ASSERT_EQ(umfVaultBegin(vault.handle, &params, &copy), OK);
    EXPECT_EQ(umfVaultCopy(copy, view.handle, nullptr), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
    EXPECT_EQ(umfVaultAbort(copy), OK);
}

// --- memory that is evicted and made again -------------------------------------------------------

constexpr const char *pieces = "proxy over cuda_vmm:device=0,piece_size=2M"; // one an entry

class VaultGpuCopies : public VaultGpu {
  protected:
    // A generation of `count` pieces with copies, whose writer has closed its vault.
    static void write(bool is_evicted, bool has_private = false, int digest = 1,
                      const char *folder = nullptr) {
        Vault vault("model", 0, 5);
        {
            Draft draft(vault, nullptr, pieces);
            umf_memory_pool_handle_t own;
            EXPECT_EQ(umfVaultDraftPool(draft.handle, pieces, &own), OK);
            for (size_t i = 0; i < count; i++) {
                put(draft.handle, draft.pool, key_of(i), pattern(1, i));
            }
            if (has_private) {
                put(draft.handle, own, "own", pattern(1, 9), UMF_VAULT_PRIVATE);
            }
            umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
            commit.digest = 1;
            EXPECT_EQ(draft.commit(nullptr, &commit), OK);
        }
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.digest = digest;
        params.folder = folder;
        EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
        if (is_evicted) {
            EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
        }
    }
    static void expect_whole(uint64_t number = 0) {
        Vault vault;
        GpuView view(vault, "cuda_vmm", number);
        ASSERT_EQ(view.attached, OK) << umfLastErrorText();
        EXPECT_EQ(view.wrong(count, 1), 0u);
        EXPECT_EQ(access_of(view.find(key_of(0)).ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    }
    static std::vector<int> events(const Vault &vault) {
        std::vector<int> types;
        umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
        while (umfVaultWait(vault.handle, event.number, 0, &event) == OK) {
            types.push_back(event.type);
        }
        return types;
    }
    // Generations of a vault in a folder; nullptr: none.
    static uint64_t files_in(const char *folder) {
        return folder ? Vault(("file:" + std::string(folder)).c_str()).stat().generations : 0;
    }
    void calls_fail_in_a_refill(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        write(true, false, 1, folder);
        Vault vault;
        GpuView(vault).wrong(1, 1); // the providers are there
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
        long before = objects(), files = open_files();
        for (int function : {FAKE_cuMemExportToShareableHandle, FAKE_cuMemCreate,
                             FAKE_cuMemAddressReserve, FAKE_cuMemMap, FAKE_cuMemSetAccess,
                             FAKE_cuStreamCreate, FAKE_cuMemcpyAsync, FAKE_cuStreamSynchronize}) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                {
                    GpuView view(vault);
                    is_reached = driver().control()->fail_at == 0;
                    driver().control()->fail_at = 0;
                    if (view.attached == OK) {
                        EXPECT_EQ(view.wrong(count, 1), 0u) << function << " " << n;
                    } else { // nothing half made
                        uint64_t bytes = vault.stat().device_bytes;
                        EXPECT_TRUE(bytes == 0 || bytes == count * 2 * MiB) << function << " " << n;
                    }
                }
                EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u) << function << " " << n;
                ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                EXPECT_EQ(driver().control()->registered, 0u) << function << " " << n;
                ASSERT_LT(n, 100);
            }
        }
    }
    void calls_fail_in_a_snapshot(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        Vault vault;
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = folder;
        const auto write_two = [] {
            Vault writer;
            Draft draft(writer, nullptr, pieces);
            put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
            put(draft.handle, draft.pool, key_of(1), pattern(1, 1));
            ASSERT_EQ(draft.commit(), OK);
        };
        write_two();
        ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK); // keeps its queues
        ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK);
        std::filesystem::remove_all(folder ? folder : place + "/none");
        long files = open_files(), before = objects();
        for (int function : {FAKE_cuMemImportFromShareableHandle, FAKE_cuMemAddressReserve,
                             FAKE_cuMemMap, FAKE_cuMemSetAccess, FAKE_cuStreamCreate,
                             FAKE_cuMemcpyAsync, FAKE_cuStreamSynchronize}) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                write_two();
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                umf_result_t result = umfVaultSnapshot(vault.handle, 0, &params);
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                umf_vault_stat_t stat = vault.stat();
                EXPECT_EQ(stat.copy_bytes, result == OK && !folder ? stat.device_bytes : 0u)
                    << function << " " << n;
                EXPECT_EQ(files_in(folder), result == OK && folder ? 1u : 0u)
                    << function << " " << n;
                EXPECT_EQ(umfVaultEvict(vault.handle, 0), result == OK ? OK : BAD);
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
                ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK);
                std::filesystem::remove_all(folder ? folder : place + "/none");
                ASSERT_LT(n, 100);
            }
        }
    }
    void service_ends_at_each_step(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        setenv("UMF_UMFD", UMF_TEST_UMFD_STEPS, 1);
        unsigned stride = does_all() ? 1 : 19;
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = folder;
        for (const char *who : {"daemon", "keeper"}) {
            bool was_reached = true;
            for (unsigned step = 1; was_reached; step += stride) {
                SCOPED_TRACE(std::string(who) + " at step " + std::to_string(step));
                {
                    Vault vault;
                    {
                        Vault writer;
                        write_on_gpu(writer, count, 1);
                    }
                    std::ofstream(place + "/die.new")
                        << who << " " << SIGKILL << " " << step << "\n";
                    ASSERT_EQ(rename((place + "/die.new").c_str(), (place + "/die").c_str()), 0);
                    // With a folder copies in memory are replaced.
                    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK) << umfLastErrorText();
                    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
                    EXPECT_EQ(vault.stat().copy_bytes, folder ? 0 : vault.stat().device_bytes);
                    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
                    EXPECT_EQ(vault.stat().device_bytes, 0u);
                    EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u);
                    EXPECT_EQ(umfVaultDrop(vault.handle, 0), OK);
                    EXPECT_EQ(vault.stat().bytes, 0u);
                    was_reached = unlink((place + "/die").c_str()) != 0;
                }
                EXPECT_TRUE(was_reached || step > 20);
                ASSERT_FALSE(HasFailure());
                ASSERT_LT(step, 1000u);
                umfVaultStop(nullptr, 1); // the next order is for another daemon
                ASSERT_TRUE(until([&] { return has_ended(); }));
            }
        }
    }
    static constexpr size_t count = 2;
};

TEST_F(VaultGpuCopies, AnEvictedGenerationComesBackAtTheNextAttach) {
    long before = objects();
    write(false, true);
    {
        Vault vault;
        umf_vault_stat_t stat = vault.stat();
        EXPECT_EQ(stat.copy_bytes, stat.device_bytes);
        EXPECT_EQ(stat.evicted, 0u);
        EXPECT_EQ(umfVaultSnapshot(vault.handle, 1, nullptr), OK); // all have one
        EXPECT_EQ(vault.stat().bytes, stat.bytes);
        EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
        EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
        EXPECT_EQ(vault.stat().evicted, 1u);
        EXPECT_EQ(vault.stat().devices, 0u);
        EXPECT_EQ(vault.stat().bytes, stat.bytes - stat.device_bytes);
        EXPECT_EQ(GpuView(vault, nullptr).attached, UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_NE(std::string(umfLastErrorText()).find("evicted"), std::string::npos);
        {
            GpuView view(vault);
            ASSERT_EQ(view.attached, OK) << umfLastErrorText();
            EXPECT_EQ(view.wrong(count, 1), 0u);
            EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 9)));
            EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
            EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u);
        }
        EXPECT_EQ(vault.stat().evicted, 0u);
        EXPECT_EQ(vault.stat().device_bytes, stat.device_bytes);
        std::vector<int> types = events(vault);
        EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_EVICTED), 1);
        EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpuCopies, SumsOfEvictedContentThatIsKept) {
    Vault vault;
    umf_vault_draft_params_t from = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    {
        Vault writer;
        from.from = write_on_gpu(writer, count, 1);
        ASSERT_EQ(umfVaultSnapshot(writer.handle, 0, nullptr), OK);
        ASSERT_EQ(umfVaultEvict(writer.handle, 0), OK);
    }
    Draft draft(vault, &from, on_gpu);
    ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
    ASSERT_EQ(draft.commit(nullptr, &params), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().evicted, 0u);
    GpuView view(vault);
    EXPECT_EQ(view.wrong(count, 1), 0u);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(umfVaultVerify(view.handle, key_of(i).c_str()), OK);
    }
}

TEST_F(VaultGpuCopies, TheDeviceHasItsMemoryBack) {
    NEEDS_FAKE()
    write(false);
    Vault vault;
    kill(daemon(), SIGKILL);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(driver().control()->used[0], 0u);
    expect_whole();
    EXPECT_EQ(driver().control()->used[0], 0u);
}

// The copy itself is never pinned, whose pages are small: that took longer than the transfer.
TEST_F(VaultGpuCopies, CopiesPassPinnedBuffers) {
    NEEDS_FAKE()
    constexpr size_t size = 256 * MiB;
    const fake_cuda_t *control = driver().control();
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.digest = 1;
    Vault vault;
    {
        Draft draft(vault, nullptr, pieces);
        std::vector<char> bytes(size, 'x');
        bytes[size - 1] = 'y';
        char *block = static_cast<char *>(umfPoolMalloc(draft.pool, size));
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(block), bytes.data(), size),
                  CUDA_SUCCESS);
        ASSERT_EQ(umfVaultPut(draft.handle, "large", block, size, nullptr, 0, 0), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK);
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    long copies = control->calls[FAKE_cuMemcpyAsync];
    {
        GpuView view(vault);
        ASSERT_EQ(view.attached, OK);
        EXPECT_EQ(control->calls[FAKE_cuMemcpyAsync] - copies, long{size / (8 * MiB)});
        EXPECT_GT(control->registered, 0u);
        EXPECT_LT(control->registered, size);
        char last[2] = {};
        auto from = reinterpret_cast<CUdeviceptr>(view.find("large").ptr) + size - 2;
        ASSERT_EQ(driver().cuMemcpyDtoH(last, from, 2), CUDA_SUCCESS);
        EXPECT_EQ(last[0], 'x');
        EXPECT_EQ(last[1], 'y');
    }
    umfVaultClose(vault.handle);
    vault.handle = nullptr;
    EXPECT_EQ(control->registered, 0u);
}

TEST_F(VaultGpuCopies, AViewIsResumedAfterItsMemoryWasEvicted) {
    write(false, true);
    Vault vault;
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    void *ptr = view.find(key_of(1)).ptr, *own = view.find("own").ptr;
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(view.wrong(count, 1), 0u); // who has it keeps it
    ASSERT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
    ASSERT_EQ(umfVaultResume(view.handle), OK) << umfLastErrorText();
    EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
    EXPECT_EQ(view.wrong(count, 1), 0u);
    EXPECT_TRUE(has(own, pattern(1, 9)));
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    ASSERT_EQ(umfVaultMove(view.handle, 0, nullptr), OK) << umfLastErrorText();
    EXPECT_EQ(view.wrong(count, 1), 0u);
}

TEST_F(VaultGpuCopies, TwoProcessesThatNeedItAtOnce) {
    write(true);
    Process one("reader", "0 2 1"), other("reader", "0 2 1");
    for (Process *process : {&one, &other}) { // a wait leaves a reason behind
        const std::string said = process->socket.receive();
        EXPECT_EQ(said.substr(0, 2) + said.substr(said.rfind(' ') + 1), "0 0") << said;
    }
    Vault vault;
    std::vector<int> types = events(vault);
    EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
}

TEST_F(VaultGpuCopies, ThreadsThatNeedItAtOnce) {
    write(true);
    Vault vault;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            start_cuda();
            GpuView view(vault);
            EXPECT_EQ(view.attached, OK) << umfLastErrorText();
            driver().cuDevicePrimaryCtxRelease(0);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::vector<int> types = events(vault);
    EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
}

TEST_F(VaultGpuCopies, AnotherGenerationSharesAPiece) {
    write(false);
    Vault vault;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    {
        Draft draft(vault, &params, pieces);
        put(draft.handle, draft.pool, key_of(1), pattern(2, 1));
        ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView holds(vault, "cuda_vmm", 1); // so that generation 1 stays
    uint64_t bytes = vault.stat().device_bytes;
    EXPECT_EQ(umfVaultEvict(vault.handle, 2), BAD); // its new piece has no copy
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
    EXPECT_EQ(vault.stat().device_bytes, bytes - 2 * MiB); // the second one has the others
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 2, nullptr), OK);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(vault.stat().evicted, 2u);
    EXPECT_EQ(vault.stat().device_bytes, 0u);
    // A draft that keeps evicted memory does not need it.
    params.from = 2;
    {
        Draft draft(vault, &params, pieces);
        ASSERT_EQ(draft.begun, OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
        ASSERT_EQ(draft.commit(), OK) << umfLastErrorText();
    }
    EXPECT_EQ(vault.stat().evicted, 3u);
    expect_whole(1);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    EXPECT_TRUE(has(view.find(key_of(1)).ptr, pattern(2, 1)));
    EXPECT_TRUE(has(view.find(key_of(0)).ptr, pattern(1, 0)));
}

TEST_F(VaultGpuCopies, WhatIsRefused) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.struct_size = 1;
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), BAD);
    EXPECT_EQ(umfVaultSnapshot(nullptr, 0, nullptr), BAD);
    EXPECT_EQ(umfVaultEvict(nullptr, 0), BAD);
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), BAD); // no generation
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(umfVaultSnapshot(folder.handle, 0, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultEvict(folder.handle, 0), UMF_RESULT_ERROR_NOT_SUPPORTED);
    write_generation(vault, 2, 1); // of the host
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    write_on_gpu(vault, 2, 1);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD); // without a copy
    EXPECT_EQ(GpuView(vault).wrong(2, 1), 0u);
}

TEST_F(VaultGpuCopies, TheLimitOfTheVault) {
    Vault vault("small", 24 * MiB);
    write_on_gpu(vault, 4, 1);
    uint64_t bytes = vault.stat().bytes;
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(vault.stat().bytes, bytes);
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
}

TEST_F(VaultGpuCopies, ADaemonThatIsKilledBetween) {
    write(true);
    kill(daemon(), SIGKILL);
    expect_whole();
    {
        Vault vault;
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    }
    kill(keeper(), SIGKILL);
    expect_whole();
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInARefill) {
    calls_fail_in_a_refill(nullptr);
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInARefillFromAFolder) {
    calls_fail_in_a_refill((place + "/folder").c_str());
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInASnapshot) {
    calls_fail_in_a_snapshot(nullptr);
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInASnapshotInAFolder) {
    calls_fail_in_a_snapshot((place + "/folder").c_str());
}

// The daemon, or its keeper, is killed at each step of a snapshot, an eviction and a refill.
TEST_F(VaultGpuCopies, TheServiceEndsAtEachStep) {
    service_ends_at_each_step(nullptr);
}

TEST_F(VaultGpuCopies, TheServiceEndsAtEachStepOfASnapshotInAFolder) {
    service_ends_at_each_step((place + "/folder").c_str());
}

// --- snapshots in a folder -----------------------------------------------------------------------

class VaultGpuFiles : public VaultGpuCopies {
  protected:
    void SetUp() override {
        VaultGpuCopies::SetUp();
        folder = place + "/folder";
        file = folder + "/1.vault";
    }
    static umf_result_t store(const Vault &vault, const std::string &in, uint64_t number = 0) {
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = in.c_str();
        return umfVaultSnapshot(vault.handle, number, &params);
    }
    // The begin of an entry in a file.
    static off_t place_of(const std::string &path, size_t entry) {
        std::ifstream in(path, std::ios::binary);
        std::string all{std::istreambuf_iterator<char>(in), {}};
        const std::vector<unsigned char> &want = pattern(1, entry);
        auto at = std::search(all.begin(), all.end(), want.begin(), want.begin() + 4096,
                              [](char a, unsigned char b) { return (unsigned char)a == b; });
        EXPECT_NE(at, all.end());
        return at - all.begin();
    }
    void expect_broken() {
        Vault vault;
        for (int i = 0; i < 2; i++) {
            GpuView view(vault);
            EXPECT_EQ(view.attached, BAD);
            EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
            EXPECT_EQ(vault.stat().evicted, 1u);
            EXPECT_EQ(vault.stat().device_bytes, 0u);
        }
    }
    std::string folder, file;
};

TEST_F(VaultGpuFiles, AnEvictedGenerationComesBack) {
    long before = objects();
    write(true, true, 1, folder.c_str());
    kill(daemon(), SIGKILL);
    {
        Vault vault;
        EXPECT_EQ(vault.stat().evicted, 1u);
        EXPECT_EQ(vault.stat().copy_bytes, 0u); // of the host nothing is taken
        EXPECT_EQ(vault.stat().device_bytes, 0u);
        GpuView view(vault);
        ASSERT_EQ(view.attached, OK) << umfLastErrorText();
        EXPECT_EQ(view.wrong(count, 1), 0u);
        EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 9)));
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
        EXPECT_EQ(vault.stat().evicted, 0u);
    }
    expect_whole();
    EXPECT_EQ(objects(), before);
}

// It can be read without the service, beyond a boot.
TEST_F(VaultGpuFiles, TheFileIsAGenerationOfAFolder) {
    {
        Vault vault;
        Draft draft(vault, nullptr, pieces);
        umf_memory_pool_handle_t host, own;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &host), OK);
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        void *memory = umfPoolMalloc(host, bytes_of_entry);
        memcpy(memory, pattern(1, 1).data(), bytes_of_entry);
        ASSERT_EQ(umfVaultPut(draft.handle, key_of(1).c_str(), memory, bytes_of_entry, "n", 2, 0),
                  OK);
        memory = umfPoolMalloc(own, 4096);
        ASSERT_EQ(umfVaultPut(draft.handle, "zero", memory, 4096, nullptr, 0, UMF_VAULT_ZERO), OK);
        ASSERT_EQ(draft.commit(), OK) << umfLastErrorText(); // without sums
        ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
        {
            GpuView again(vault);
            ASSERT_EQ(again.attached, OK) << umfLastErrorText();
            EXPECT_TRUE(has(again.find(key_of(0)).ptr, pattern(1, 0)));
            const void *of_host = again.find(key_of(1)).ptr;
            EXPECT_EQ(memcmp(of_host, pattern(1, 1).data(), bytes_of_entry), 0);
        }
        umfVaultDrop(vault.handle, 0);
    }
    Vault stored(("file:" + folder).c_str());
    View view(stored);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    for (size_t i = 0; i < count; i++) {
        umf_vault_entry_t entry = view.find(key_of(i));
        ASSERT_EQ(entry.size, bytes_of_entry);
        EXPECT_EQ(memcmp(entry.ptr, pattern(1, i).data(), bytes_of_entry), 0);
    }
    EXPECT_STREQ(static_cast<const char *>(view.find(key_of(1)).note), "n");
    EXPECT_EQ(view.find("zero").size, 4096u);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK); // it has sums
}

TEST_F(VaultGpuFiles, AGenerationOfTheHost) {
    Vault vault, stored(("file:" + folder).c_str());
    write_generation(vault, 3, 4);
    for (uint64_t n = 1; n <= 2; n++) {
        ASSERT_EQ(store(vault, folder, 1), OK) << umfLastErrorText();
        EXPECT_EQ(stored.stat().current, n);
    }
    View view(stored);
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
    EXPECT_EQ(view.wrong(3, 4), 0u);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK); // nobody fills
}

TEST_F(VaultGpuFiles, ItReplacesCopiesInMemory) {
    write(true);
    Vault vault;
    uint64_t copies = vault.stat().copy_bytes;
    EXPECT_GT(copies, 0u);
    ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText(); // evicted as it is
    EXPECT_EQ(vault.stat().evicted, 1u);
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK); // all have one
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
    ASSERT_EQ(store(vault, place + "/other"), OK) << umfLastErrorText(); // from the first
    std::filesystem::remove_all(folder);
    expect_whole();
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    expect_whole();
}

TEST_F(VaultGpuFiles, TheLimitIsThatOfMemory) {
    Vault vault("small", 24 * MiB);
    write_on_gpu(vault, 4, 1);
    uint64_t bytes = vault.stat().bytes;
    EXPECT_EQ(store(vault, folder), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().bytes, bytes);
}

TEST_F(VaultGpuFiles, MorePiecesThanAMessageHas) {
    constexpr size_t many = 260;
    Vault vault;
    {
        Vault writer;
        Draft draft(writer, nullptr, "proxy over cuda_vmm:device=0,piece_size=2M");
        for (size_t i = 0; i < many; i++) {
            put(draft.handle, draft.pool, key_of(i), {static_cast<unsigned char>(i), 2, 3});
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText();
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    for (size_t i = 0; i < many; i++) {
        EXPECT_TRUE(has(view.find(key_of(i)).ptr, {static_cast<unsigned char>(i), 2, 3}));
    }
}

// What happens to names does not matter: the service has the file.
TEST_F(VaultGpuFiles, AFileThatIsRemovedOrReplaced) {
    write(true, false, 1, folder.c_str());
    const std::string other = place + "/other";
    std::ofstream(other) << "secret";
    ASSERT_EQ(unlink(file.c_str()), 0);
    ASSERT_EQ(symlink(other.c_str(), file.c_str()), 0);
    expect_whole();
    Vault vault;
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    ASSERT_EQ(rename(folder.c_str(), (place + "/moved").c_str()), 0);
    ASSERT_EQ(symlink("/proc", folder.c_str()), 0);
    expect_whole();
}

TEST_F(VaultGpuFiles, AFileThatWasChanged) {
    write(true, false, 0, folder.c_str());
    off_t at = place_of(file, 1);
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    ASSERT_EQ(pread(fd, &byte, 1, at + 5), 1);
    ASSERT_EQ(pwrite(fd, "!", 1, at + 5), 1);
    expect_broken();
    ASSERT_EQ(pwrite(fd, &byte, 1, at + 5), 1);
    close(fd);
    expect_whole(); // as it was
}

TEST_F(VaultGpuFiles, AFileThatWasCut) {
    write(true, false, 1, folder.c_str());
    ASSERT_EQ(truncate(file.c_str(), place_of(file, 1) + 4096), 0);
    expect_broken();
    ASSERT_EQ(truncate(file.c_str(), 0), 0);
    expect_broken();
}

TEST_F(VaultGpuFiles, AFolderThatCannotBeWritten) {
    Vault vault;
    write_on_gpu(vault, 1, 1);
    std::ofstream(folder) << "a file";
    EXPECT_EQ(store(vault, folder), BAD);
    EXPECT_EQ(store(vault, ""), BAD);
    EXPECT_EQ(store(vault, std::string(600, 'x')), BAD);
    ASSERT_EQ(unlink(folder.c_str()), 0);
    // Another one writes there.
    Vault stored(("file:" + folder).c_str());
    umf_vault_draft_handle_t draft;
    ASSERT_EQ(umfVaultBegin(stored.handle, nullptr, &draft), OK);
    EXPECT_EQ(store(vault, folder), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
    EXPECT_EQ(umfVaultAbort(draft), OK);
    EXPECT_EQ(store(vault, folder), OK) << umfLastErrorText();
    EXPECT_EQ(stored.stat().generations, 1u);
}

// --- claims --------------------------------------------------------------------------------------

class VaultGpuClaims : public VaultGpu {
  protected:
    struct Claim {
        umf_vault_claim_t made = UMF_VAULT_CLAIM_INIT;
        umf_result_t result;

        Claim(const Vault &vault, const char *key, size_t size = 0,
              umf_vault_fence_t fence = UMF_VAULT_FENCE_WAIT, const char *devices = "cuda_vmm") {
            umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
            params.size = size;
            params.fence = fence;
            params.devices = devices;
            result = umfVaultClaim(vault.handle, key, &params, &made);
        }
        // Whether all bytes are this one.
        bool is(unsigned char byte) const {
            std::vector<unsigned char> seen(made.size);
            return driver().cuMemcpyDtoH(seen.data(), at(made.ptr), seen.size()) == CUDA_SUCCESS &&
                   !seen.empty() && std::count(seen.begin(), seen.end(), byte) == long(made.size);
        }
    };
};

TEST_F(VaultGpuClaims, TheMemoryOutlivesItsHolder) {
    long before = objects();
    {
        Vault vault;
        size_t size = 0;
        {
            Claim claim(vault, "kv", 3 * MiB);
            ASSERT_EQ(claim.result, OK) << umfLastErrorText();
            size = claim.made.size;
            EXPECT_EQ(size, 4 * MiB);
            EXPECT_EQ(claim.made.device, 0);
            EXPECT_EQ(claim.made.epoch, 1u);
            EXPECT_EQ(*claim.made.now, 1u);
            EXPECT_TRUE(claim.made.is_new);
            EXPECT_TRUE(claim.is(0));
            EXPECT_EQ(access_of(claim.made.ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
            EXPECT_EQ(driver().cuMemsetD8(at(claim.made.ptr), 7, size), CUDA_SUCCESS);
            EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", 1, "half", 4), OK);
            Claim again(vault, "kv"); // without effect
            EXPECT_EQ(again.made.ptr, claim.made.ptr);
            EXPECT_EQ(again.made.epoch, 1u);
            umf_vault_stat_t stat = vault.stat();
            EXPECT_EQ(stat.claims, 1u);
            EXPECT_EQ(stat.devices, 1u);
            EXPECT_EQ(stat.device_bytes, size);
            auto look = [](const umf_vault_claim_stat_t *of, void *) {
                EXPECT_STREQ(of->key, "kv");
                EXPECT_EQ(of->size, 4 * MiB);
                EXPECT_EQ(strncmp(of->device, "GPU-", 4), 0);
                return 0;
            };
            EXPECT_EQ(umfVaultEachClaim(vault.handle, look, nullptr), OK);
            EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
            EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), BAD);
        }
        kill(daemon(), SIGKILL);
        {
            Vault next;
            Claim claim(next, "kv", size);
            ASSERT_EQ(claim.result, OK) << umfLastErrorText();
            EXPECT_EQ(claim.made.epoch, 2u);
            EXPECT_FALSE(claim.made.is_new);
            EXPECT_TRUE(claim.is(7));
            EXPECT_EQ(std::string(static_cast<const char *>(claim.made.note), claim.made.note_size),
                      "half");
            kill(keeper(), SIGKILL);
            EXPECT_EQ(umfVaultClaimNote(next.handle, "kv", 2, nullptr, 0), OK);
            EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
        }
        EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK);
        EXPECT_EQ(vault.stat().bytes, 0u);
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpuClaims, HoldersOfOtherProcesses) {
    Vault vault;
    Process first("claimer", "kv 2097152 0 5");
    ASSERT_EQ(first.socket.receive(), "0 1");
    EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    { // with a fence by epoch both have it mapped
        Claim claim(vault, "kv", 0, UMF_VAULT_FENCE_EPOCH);
        ASSERT_EQ(claim.result, OK) << umfLastErrorText();
        EXPECT_EQ(claim.made.epoch, 2u);
        EXPECT_TRUE(claim.is(5));
        EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
    }
    EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES); // it may still write
    first.kill();
    EXPECT_TRUE(until([&] { return Claim(vault, "kv").result == OK; }));
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
    Process second("claimer", "kv 0 0 6");
    ASSERT_EQ(second.socket.receive().substr(0, 2), "0 ");
    Process third("claimer", "kv 0 2 8"); // ends the second
    ASSERT_EQ(third.socket.receive().substr(0, 2), "0 ");
    Claim claim(vault, "kv", 0, UMF_VAULT_FENCE_KILL);
    ASSERT_EQ(claim.result, OK) << umfLastErrorText();
    EXPECT_TRUE(claim.is(8));
    EXPECT_EQ(claim.made.note_size, 7u);
}

TEST_F(VaultGpuClaims, OneThatWasFenced) {
    Vault one, other;
    Claim first(one, "kv", MiB);
    ASSERT_EQ(first.result, OK);
    Claim second(other, "kv", 0, UMF_VAULT_FENCE_EPOCH);
    ASSERT_EQ(second.result, OK) << umfLastErrorText();
    EXPECT_NE(second.made.ptr, first.made.ptr);
    EXPECT_NE(*first.made.now, first.made.epoch);
    EXPECT_EQ(umfVaultClaimNote(one.handle, "kv", first.made.epoch, "a", 1), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    Claim again(one, "kv", 0, UMF_VAULT_FENCE_EPOCH, nullptr); // the handle knows where it is
    ASSERT_EQ(again.result, OK) << umfLastErrorText();
    EXPECT_EQ(again.made.ptr, first.made.ptr);
    EXPECT_EQ(again.made.epoch, 3u);
}

// While a claim waits, another thread gives back what the handle holds: it no longer knows where
// the memory is.
TEST_F(VaultGpuClaims, OneThatIsGivenBackWhileAnotherWaits) {
    Vault one, other;
    ASSERT_EQ(Claim(one, "kv", MiB).result, OK);
    ASSERT_EQ(Claim(other, "kv", 0, UMF_VAULT_FENCE_EPOCH).result, OK) << umfLastErrorText();
    std::thread waits([&] {
        umf_vault_claim_t made = UMF_VAULT_CLAIM_INIT;
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        params.timeout_ms = 60000;
        EXPECT_EQ(umfVaultClaim(one.handle, "kv", &params, &made), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY) << umfLastErrorText();
    });
    usleep(50000);
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), OK);
    EXPECT_EQ(umfVaultUnclaim(other.handle, "kv"), OK);
    waits.join();
}

TEST_F(VaultGpuClaims, WhatIsRefused) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    EXPECT_EQ(Claim(folder, "kv", MiB).result, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(Claim(vault, "kv").result, BAD); // there is none
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(Claim(vault, "kv", MiB, UMF_VAULT_FENCE_WAIT, "linux_vmm").result, BAD);
    EXPECT_EQ(Claim(vault, "kv", MiB, UMF_VAULT_FENCE_WAIT, "none").result, BAD);
    EXPECT_EQ(vault.stat().claims, 0u);
    Vault holder;
    ASSERT_EQ(Claim(holder, "kv", 2 * MiB).result, OK);
    ASSERT_EQ(Claim(holder, "host", 4096, UMF_VAULT_FENCE_WAIT, nullptr).result, OK);
    // Of another kind or size, also with a fence: the holder loses nothing.
    for (umf_vault_fence_t fence : {UMF_VAULT_FENCE_WAIT, UMF_VAULT_FENCE_EPOCH}) {
        for (auto [key, size, devices] :
             {std::tuple<const char *, size_t, const char *>{"kv", 0, nullptr},
              {"kv", 4096, nullptr},
              {"kv", 4 * MiB, "cuda_vmm"},
              {"host", 0, "cuda_vmm"},
              {"host", 4096, "cuda_vmm"}}) {
            EXPECT_EQ(Claim(vault, key, size, fence, devices).result, BAD) << key << " " << size;
            EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY) << umfLastErrorText();
        }
    }
    EXPECT_EQ(umfVaultClaimNote(holder.handle, "kv", 1, "a", 1), OK);
    EXPECT_EQ(umfVaultForget(vault.handle, "kv"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    Vault small("small", MiB);
    EXPECT_EQ(Claim(small, "kv", 4 * MiB).result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(small.stat().bytes, 0u);
}

TEST_F(VaultGpuClaims, InCpp) {
    umf::vault one("model"), other("model");
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    params.size = MiB;
    params.devices = "cuda_vmm";
    umf::result<umf::vault_claim> claimed = one.claim("kv", params);
    ASSERT_TRUE(claimed) << umfLastErrorText();
    umf::vault_claim first = std::move(claimed).value();
    EXPECT_EQ(first.device(), 0);
    EXPECT_EQ(driver().cuMemsetD8(at(first.data()), 4, first.size()), CUDA_SUCCESS);
    EXPECT_TRUE(first.commit("four"));
    params.size = 0;
    params.fence = UMF_VAULT_FENCE_EPOCH;
    {
        umf::vault_claim second = other.claim("kv", params).value();
        EXPECT_TRUE(first.is_fenced());
        EXPECT_EQ(second.note(), "four");
        unsigned char seen = 0;
        EXPECT_EQ(driver().cuMemcpyDtoH(&seen, at(second.data()), 1), CUDA_SUCCESS);
        EXPECT_EQ(seen, 4);
    }
    EXPECT_TRUE(first.renew()); // the handle knows that it is of a device
    EXPECT_FALSE(first.is_fenced());
    EXPECT_TRUE(first.unclaim());
    EXPECT_EQ(first.device(), -1);
    EXPECT_TRUE(one.forget("kv"));
}

TEST_F(VaultGpuClaims, EachCallOfTheDriverMayFail) {
    NEEDS_FAKE()
    Vault vault;
    ASSERT_EQ(Claim(vault, "first", MiB).result, OK); // the provider is there
    ASSERT_EQ(umfVaultForget(vault.handle, "first"), OK);
    long before = objects(), files = open_files();
    for (int function : {FAKE_cuMemExportToShareableHandle, FAKE_cuMemImportFromShareableHandle,
                         FAKE_cuMemAddressReserve, FAKE_cuMemCreate, FAKE_cuMemMap,
                         FAKE_cuMemSetAccess, FAKE_cuStreamCreate, FAKE_cuStreamSynchronize}) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
            Claim claim(vault, "kv", MiB);
            is_reached = driver().control()->fail_at == 0;
            driver().control()->fail_at = 0;
            if (claim.result == OK) {
                EXPECT_TRUE(claim.is(0)) << function << " " << n;
                EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
            } else {
                EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), BAD);
            }
            EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK);
            EXPECT_TRUE(until([&] { return objects() == before; })) << function << " " << n;
            EXPECT_EQ(open_files(), files) << function << " " << n;
            ASSERT_LT(n, 100);
        }
    }
}

// --- refusals ------------------------------------------------------------------------------------

TEST_F(VaultGpu, NobodyGetsItWithoutAskingForDevices) {
    Vault vault;
    write_on_gpu(vault, 1, 1);
    GpuView view(vault, nullptr);
    EXPECT_EQ(view.attached, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("GPU-"), std::string::npos);
    EXPECT_EQ(GpuView(vault, "linux_vmm").attached, BAD); // it has no such setting
    EXPECT_EQ(vault.stat().readers, 1u);                  // the writer
}

TEST_F(VaultGpu, NamesAreReadWithoutADriver) {
    Vault vault;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    write_on_gpu(vault, 2, 1, &params);
    if (!driver().is_real) {
        driver().control()->gone = 1; // no call of it succeeds
    }
    {
        GpuView view(vault, "none");
        ASSERT_EQ(view.attached, OK);
        umf_vault_entry_t entry = view.find(key_of(1));
        EXPECT_EQ(entry.ptr, nullptr);
        EXPECT_EQ(entry.size, bytes_of_entry);
        EXPECT_EQ(std::string(static_cast<const char *>(entry.note), entry.note_size), "f16");
        EXPECT_EQ(entry.device, -1);
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
        Draft draft(vault);
        EXPECT_EQ(umfVaultCopy(draft.handle, view.handle, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
        EXPECT_EQ(umfVaultResume(view.handle), OK);
    }
    if (!driver().is_real) {
        driver().control()->gone = 0;
    }
}

TEST_F(VaultGpu, OtherProvidersAreRefused) {
    Vault vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    ASSERT_EQ(umfVaultBegin(vault.handle, nullptr, &draft), OK);
    EXPECT_EQ(umfVaultDraftPool(draft, "proxy over cuda:memory_type=device", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("cuda_vmm"), std::string::npos);
    EXPECT_EQ(umfVaultDraftPool(draft, "proxy over cuda_vmm:share=none", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultAbort(draft), OK);
    Vault folder(("file:" + place + "/folder").c_str());
    ASSERT_EQ(umfVaultBegin(folder.handle, nullptr, &draft), OK);
    EXPECT_EQ(umfVaultDraftPool(draft, on_gpu, &pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultAbort(draft), OK);
}

TEST_F(VaultGpu, AProcessThatDoesNotSeeTheDevice) {
    NEEDS_FAKE()
    Vault vault;
    write_on_gpu(vault, 2, 1);
    Process process("reader", "50 2 1");
    EXPECT_EQ(process.socket.receive(), answer(BAD, UMF_REASON_ABSENT, 0));
    EXPECT_EQ(vault.stat().readers, 1u);
}

TEST_F(VaultGpu, AnotherDeviceThatReachesIt) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    Vault vault;
    {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t copied;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &copied), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        put(draft.handle, copied, key_of(1), pattern(1, 1), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm:device=1");
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(view.find(key_of(0)).device, 1);
    EXPECT_EQ(access_of(view.find(key_of(0)).ptr, 1), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    // A copy of its own, on its device.
    const umf_vault_entry_t own = view.find(key_of(1));
    EXPECT_EQ(own.device, 1);
    EXPECT_EQ(access_of(own.ptr, 1), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    start_cuda(1);
    CU(cuMemsetD8(at(own.ptr), 7, own.size));
    CU(cuDevicePrimaryCtxRelease(1));
    start_cuda();
    CU(cuDevicePrimaryCtxRelease(0));
    Process other("reader", "0 2 1 cuda_vmm:device=1");
    EXPECT_EQ(other.socket.receive(), answer(OK, UMF_REASON_NONE, 0));
    EXPECT_EQ(vault.stat().readers, 2u);
}

TEST_F(VaultGpu, EachCallOfTheDriverMayFailInACommit) {
    NEEDS_FAKE()
    long before = objects();
    for (int function : needing) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            for (bool again : {true, false}) {
                Vault vault;
                Draft draft(vault, nullptr, on_gpu);
                void *memory = put(draft.handle, draft.pool, "a", pattern(1, 1));
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                umf_result_t result = draft.commit();
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                EXPECT_TRUE(has(memory, pattern(1, 1))) << function << " " << n;
                if (result != OK && again) {
                    ASSERT_EQ(draft.commit(), OK) << function << " " << n;
                    EXPECT_TRUE(has(memory, pattern(1, 1))) << function << " " << n;
                    EXPECT_EQ(access_of(memory), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
                }
                EXPECT_EQ(umfVaultDrop(vault.handle, 0), OK);
            }
            ASSERT_LT(n, 200);
        }
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpu, MemoryThatIsUnmappedBeforeACommitFailsComesBack) {
    NEEDS_FAKE()
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    void *memory = put(draft.handle, draft.pool, "a", pattern(1, 1));
    fail_call(driver().control(), FAKE_cuMemRelease, CUDA_ERROR_UNKNOWN, 1);
    EXPECT_NE(draft.commit(), OK);
    EXPECT_TRUE(has(memory, pattern(1, 1)));
    EXPECT_EQ(draft.commit(), OK);
    EXPECT_TRUE(has(memory, pattern(1, 1)));
}

TEST_F(VaultGpu, EachCallOfTheDriverMayFailInAnAttach) {
    NEEDS_FAKE()
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    umf_memory_pool_handle_t own;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
    put(draft.handle, draft.pool, "a", pattern(1, 1));
    put(draft.handle, own, "own", pattern(1, 2), UMF_VAULT_PRIVATE);
    ASSERT_EQ(draft.commit(), OK);
    long before = objects(), files = open_files();
    for (int function : needing) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
            {
                GpuView view(vault);
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                if (view.attached == OK) {
                    EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 2)));
                }
            }
            EXPECT_EQ(objects(), before) << function << " " << n;
            EXPECT_EQ(open_files(), files) << function << " " << n;
            ASSERT_LT(n, 200);
        }
    }
}

// --- a hostile writer, who speaks to the service himself -----------------------------------------

struct Hostile {
    int socket;
    uint16_t version = 0; // 0: as the library
    uint64_t sequence = 0, draft = 0;

    explicit Hostile(const std::string &place, bool writes = true)
        : socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        snprintf(name.sun_path, sizeof(name.sun_path), "%s/vault", place.c_str());
        EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr *>(&name), sizeof(name)), 0);
        EXPECT_EQ(call(UMF_VAULT_HELLO, {}, "model", 5), UMF_VAULT_OK);
        if (writes) {
            EXPECT_EQ(call(UMF_VAULT_BEGIN, {}, nullptr, 0), UMF_VAULT_OK);
            draft = message.words[0];
        }
    }
    ~Hostile() {
        close(socket);
    }
    Hostile(const Hostile &) = delete;
    Hostile &operator=(const Hostile &) = delete;

    umf_vault_message_t message{};
    uint64_t serial = 0;
    std::vector<umf_vault_slab_t> got = std::vector<umf_vault_slab_t>(300); // in the answer
    std::vector<umf_vault_slab_t> slabs;                                    // that are to be filled

    uint32_t call(uint16_t op, std::vector<uint64_t> words, const void *body, size_t size,
                  int fd = -1) {
        return call(op, words, body, size, fd == -1 ? std::vector<int>{} : std::vector<int>{fd});
    }
    uint32_t call(uint16_t op, std::vector<uint64_t> words, const void *body, size_t size,
                  const std::vector<int> &fds) {
        umf_vault_message_t request = {};
        request.magic = UMF_VAULT_MAGIC;
        request.version = version               ? version
                          : op < UMF_VAULT_FILL ? UMF_VAULT_VERSION
                                                : UMF_VAULT_VERSION_COPIES;
        request.op = op;
        request.sequence = ++sequence;
        request.body = static_cast<uint32_t>(size);
        std::copy(words.begin(), words.end(), request.words);
        iovec parts[] = {{&request, sizeof(request)}, {const_cast<void *>(body), size}};
        alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
        msghdr header = {};
        header.msg_iov = parts;
        header.msg_iovlen = 2;
        if (!fds.empty()) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
            cmsghdr *rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
            memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
        }
        EXPECT_GT(sendmsg(socket, &header, MSG_NOSIGNAL), 0);
        iovec answers[] = {{&message, sizeof(message)}, {got.data(), got.size() * sizeof(got[0])}};
        msghdr answered = {};
        answered.msg_iov = answers;
        answered.msg_iovlen = 2;
        EXPECT_GT(recvmsg(socket, &answered, 0), 0); // descriptors have no room
        serial = got[0].serial;
        return message.answer;
    }
    // Begins to fill the current generation, and keeps others from it.
    uint32_t fill(umf_vault_fill_t what) {
        uint32_t answer = call(UMF_VAULT_FILL, {0, what}, nullptr, 0);
        bool has_some = answer == UMF_VAULT_OK && message.body;
        size_t count = has_some ? message.body / sizeof(got[0]) : 1;
        slabs.assign(got.begin() + 1, got.begin() + ptrdiff_t(count)); // behind the table
        return answer;
    }
    uint32_t filled(umf_vault_fill_t what, const umf_vault_slab_t &slab, int fd) {
        return call(UMF_VAULT_FILLED, {0, what}, &slab, sizeof(slab), fd);
    }
    uint32_t give(const umf_vault_slab_t &slab, int fd, uint64_t ordinal = 0) {
        return call(UMF_VAULT_GIVE, {draft, ordinal}, &slab, sizeof(slab), fd);
    }
    // A generation of one entry in that slab.
    void commit(umf_vault_slab_t slab) {
        slab.serial = serial;
        struct {
            umf_table_head_t head;
            umf_vault_slab_t slab;
            umf_table_entry_t entry;
            char bytes[8];
        } table = {};
        table.slab = slab;
        table.entry.size = slab.size;
        table.entry.key_size = 1;
        table.bytes[0] = 'a';
        table.head.magic = UMF_TABLE_MAGIC;
        table.head.size = sizeof(table);
        table.head.entries = table.head.slabs = 1;
        table.head.sum = sum_of(reinterpret_cast<unsigned char *>(&table) + sizeof(table.head),
                                sizeof(table) - sizeof(table.head));
        int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        EXPECT_EQ(write(fd, &table, sizeof(table)), ssize_t(sizeof(table)));
        umf_vault_slab_t info = {};
        info.size = sizeof(table);
        info.role = UMF_VAULT_CLASS_TABLE;
        info.kind = UMF_VAULT_KIND_HOST;
        EXPECT_EQ(give(info, fd, 1 << 20), uint32_t{UMF_VAULT_OK});
        close(fd);
        EXPECT_EQ(call(UMF_VAULT_COMMIT, {draft}, nullptr, 0), uint32_t{UMF_VAULT_OK});
    }
};

// Real memory of a device, and its descriptor.
struct Exported {
    CUmemGenericAllocationHandle handle = 0;
    int fd = -1;

    Exported(int device, size_t size) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = on_device(device);
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        EXPECT_EQ(driver().cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuMemExportToShareableHandle(
                      &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                  CUDA_SUCCESS);
    }
    ~Exported() {
        driver().cuMemRelease(handle);
        close(fd);
    }
    Exported(const Exported &) = delete;
    Exported &operator=(const Exported &) = delete;
};

umf_vault_slab_t slab_of(int device, size_t size) {
    umf_vault_slab_t slab = {};
    slab.size = size;
    slab.kind = UMF_VAULT_KIND_DEVICE;
    CUuuid uuid;
    EXPECT_EQ(driver().cuDeviceGetUuid(&uuid, device), CUDA_SUCCESS);
    memcpy(slab.device, &uuid, sizeof(slab.device));
    return slab;
}

class VaultGpuHostile : public VaultGpu {
  protected:
    // What a reader gets of a slab that says this and is that.
    void expect_broken(const umf_vault_slab_t &said, int fd) {
        Vault vault;
        {
            Hostile hostile(place);
            ASSERT_EQ(hostile.give(said, fd), uint32_t{UMF_VAULT_OK});
            hostile.commit(said);
        }
        long before = objects();
        Vault reader;
        GpuView view(reader);
        EXPECT_EQ(view.attached, BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
        EXPECT_EQ(umfVaultClose(reader.handle), OK);
        reader.handle = nullptr;
        EXPECT_EQ(objects(), before);
    }
};

// Memory of a claim that is not what it is said to be.
TEST_F(VaultGpuHostile, ClaimsOfWrongMemory) {
    Vault vault;
    Exported small(0, 2 * MiB);
    int file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(file, 4 * MiB), 0);
    const long page = sysconf(_SC_PAGESIZE);
    for (int fd : {small.fd, file}) {
        Hostile hostile(place, false);
        std::string body("kv", 3);
        umf_vault_slab_t said = slab_of(0, 4 * MiB);
        body.append(reinterpret_cast<const char *>(said.device), sizeof(said.device));
        int word = memfd_create("word", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ASSERT_EQ(ftruncate(word, page), 0);
        auto ask = [&](std::vector<int> fds, const std::string &with) {
            return hostile.call(UMF_VAULT_CLAIM,
                                {4 * MiB, 0, 0, UMF_VAULT_KIND_DEVICE, uint64_t(page)}, with.data(),
                                with.size(), fds);
        };
        EXPECT_EQ(ask({word}, body), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, fd}, "kv"), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, fd}, body + "x"), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, hostile.socket}, body), uint32_t{UMF_VAULT_FOREIGN});
        EXPECT_EQ(vault.stat().claims, 0u);
        EXPECT_EQ(vault.stat().bytes, 0u); // the file with the epoch is gone, too
        ASSERT_EQ(ask({word, fd}, body), uint32_t{UMF_VAULT_OK});
        EXPECT_EQ(hostile.call(UMF_VAULT_UNCLAIM, {}, "kv", 2), uint32_t{UMF_VAULT_OK});
        close(word);
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
        params.devices = "cuda_vmm";
        EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, &claim), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
        EXPECT_EQ(claim.ptr, nullptr);
        EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK); // nobody holds it
    }
    close(file);
}

TEST_F(VaultGpuHostile, AMemoryFileIsNoMemoryOfADevice) {
    int fd = memfd_create("forged", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 4 * MiB), 0);
    expect_broken(slab_of(0, 4 * MiB), fd);
    close(fd);
}

TEST_F(VaultGpuHostile, MemoryOfAnotherSize) {
    Exported memory(0, 4 * MiB);
    expect_broken(slab_of(0, 8 * MiB), memory.fd);
    expect_broken(slab_of(0, 2 * MiB), memory.fd);
    expect_broken(slab_of(0, 4 * MiB - 4096), memory.fd);
    expect_broken(slab_of(0, size_t{1} << 50), memory.fd);
}

TEST_F(VaultGpuHostile, MemoryOfAnotherDevice) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    Exported memory(1, 4 * MiB);
    expect_broken(slab_of(0, 4 * MiB), memory.fd);
}

TEST_F(VaultGpuHostile, TheServiceKeepsFilesOnly) {
    Vault vault;
    Hostile hostile(place);
    int ends[2], file = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(hostile.give(slab_of(0, MiB), ends[0]), uint32_t{UMF_VAULT_FOREIGN});
    EXPECT_EQ(hostile.give(slab_of(0, MiB), hostile.socket), uint32_t{UMF_VAULT_FOREIGN});
    umf_vault_slab_t slab = slab_of(0, MiB);
    slab.kind = 3;
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab.kind = UMF_VAULT_KIND_HOST; // of a device
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab = slab_of(0, MiB);
    memset(slab.device, 0, sizeof(slab.device));
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab = slab_of(0, MiB);
    slab.role = UMF_VAULT_CLASS_TABLE;
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    for (int fd : {ends[0], ends[1], file}) {
        close(fd);
    }
}

// --- hostile and dying clients that fill a generation --------------------------------------------

constexpr uint32_t ok = UMF_VAULT_OK;

int file_of(size_t size) {
    int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, off_t(size)), 0);
    return fd;
}

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

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
