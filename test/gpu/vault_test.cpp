// Memory of GPUs in vaults (umf/vault.h): real processes, each of which starts CUDA for itself, and
// a real service.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu.h"

#include <umf.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "fakes/role.h"
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

// "<number of the first GPU> <entries> <seed>": attaches, says result, reason and wrong entries.
int reader(Socket &socket, const std::string &argument) {
    int first = 0;
    size_t count = 0;
    unsigned long long seed = 0;
    sscanf(argument.c_str(), "%d %zu %llu", &first, &count, &seed);
    if (!driver().is_real) {
        driver().control()->first_uuid = first;
    }
    start_cuda();
    Vault vault;
    GpuView view(vault);
    std::string said = std::to_string(view.attached) + " " + std::to_string(umfLastReason()) + " " +
                       std::to_string(view.attached == OK ? view.wrong(count, seed) : 0);
    socket.send(said);
    socket.receive();
    return testing::Test::HasFailure();
}

const Roles roles = {{"writer", writer}, {"reader", reader}};

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
    write_on_gpu(vault, 2, 1);
    GpuView view(vault, "cuda_vmm:device=1");
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(view.find(key_of(0)).device, 1);
    EXPECT_EQ(access_of(view.find(key_of(0)).ptr, 1), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
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
    uint64_t sequence = 0, draft = 0;

    explicit Hostile(const std::string &place) : socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        snprintf(name.sun_path, sizeof(name.sun_path), "%s/vault", place.c_str());
        EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr *>(&name), sizeof(name)), 0);
        EXPECT_EQ(call(UMF_VAULT_HELLO, {}, "model", 5), UMF_VAULT_OK);
        EXPECT_EQ(call(UMF_VAULT_BEGIN, {}, nullptr, 0), UMF_VAULT_OK);
        draft = message.words[0];
    }
    ~Hostile() {
        close(socket);
    }
    Hostile(const Hostile &) = delete;
    Hostile &operator=(const Hostile &) = delete;

    umf_vault_message_t message{};
    uint64_t serial = 0;

    uint32_t call(uint16_t op, std::vector<uint64_t> words, const void *body, size_t size,
                  int fd = -1) {
        umf_vault_message_t request = {};
        request.magic = UMF_VAULT_MAGIC;
        request.version = UMF_VAULT_VERSION;
        request.op = op;
        request.sequence = ++sequence;
        request.body = static_cast<uint32_t>(size);
        std::copy(words.begin(), words.end(), request.words);
        iovec parts[] = {{&request, sizeof(request)}, {const_cast<void *>(body), size}};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header = {};
        header.msg_iov = parts;
        header.msg_iovlen = 2;
        if (fd != -1) {
            header.msg_control = control;
            header.msg_controllen = sizeof(control);
            cmsghdr *rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
        }
        EXPECT_GT(sendmsg(socket, &header, MSG_NOSIGNAL), 0);
        iovec answers[] = {{&message, sizeof(message)}, {&serial, sizeof(serial)}};
        msghdr answered = {};
        answered.msg_iov = answers;
        answered.msg_iovlen = 2;
        EXPECT_GT(recvmsg(socket, &answered, 0), 0);
        return message.answer;
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

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
