// What the headers promise of handles, for each kind of memory and each kind of pool.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>

#include "fakes/forged.h"
#include "fakes/handle.h"
#include "fakes/kinds.h"

namespace {

const umf_result_t OK = UMF_RESULT_SUCCESS, BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

// --- kinds of memory that can be shared ---

std::vector<SourceKind> sharing_kinds() {
    std::vector<SourceKind> kinds;
    for (const SourceKind &kind : source_kinds()) {
        if (kind.shares) {
            kinds.push_back(kind);
        }
    }
#if UMF_WITH_CUDA
    if (!driver().is_real) {
        static const std::vector<std::pair<const char *, const char *>> texts = {
            {"cuda", "cuda:memory_type=device,device=0"},
            {"cuda_vmm_fd", "cuda_vmm:share=fd,piece_size=16M,device=0"},
        };
        for (const auto &text : texts) {
            SourceKind kind = {};
            kind.label = text.first;
            kind.make = [settings = text.second] {
                make_cuda_vmm(); // starts the driver
                auto source = std::make_unique<Source>();
                umfMemoryProviderCreateFromText(settings, &source->handle);
                return source;
            };
            kinds.push_back(kind);
        }
    }
#endif
    return kinds;
}

// Bytes that end where nothing can be read any more.
class Edge {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char *base;

  public:
    Edge()
        : base(static_cast<char *>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        mprotect(base + page, page, PROT_NONE);
    }
    ~Edge() {
        munmap(base, 2 * page);
    }
    Edge(const Edge &) = delete;
    Edge &operator=(const Edge &) = delete;

    char *put(const Bytes &bytes, size_t size) {
        return static_cast<char *>(memcpy(base + page - size, bytes.data(), size));
    }
};

class Handle : public testing::TestWithParam<SourceKind> {
  protected:
    std::unique_ptr<Source> source = GetParam().make();
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    void *ptr = nullptr;
    Bytes good;
    Edge edge;

    void SetUp() override {
        ASSERT_NE(source->handle, nullptr);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), source->handle, nullptr,
                                UMF_POOL_CREATE_FLAG_NONE, &pool),
                  OK);
        ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
        ptr = umfPoolMalloc(pool, size_t{1} << 16);
        ASSERT_NE(ptr, nullptr);
        good = handle_of(static_cast<char *>(ptr) + 64);
    }
    void TearDown() override {
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }

    umf_result_t close(umf_result_t result, void *opened) {
        EXPECT_TRUE(result != OK || umfCloseIPCHandle(opened) == OK);
        return result;
    }
    // So many bytes of a handle arrived.
    umf_result_t open_sized(const Bytes &handle, size_t size) {
        void *opened = nullptr;
        umf_result_t result = umfOpenIPCHandleSized(handler, edge.put(handle, size), size, &opened);
        return close(result, opened);
    }
    // All did, and nobody says how many they are.
    umf_result_t open(const Bytes &handle) {
        void *opened = nullptr;
        auto bytes = reinterpret_cast<umf_ipc_handle_t>(edge.put(handle, handle.size()));
        umf_result_t result = umfOpenIPCHandle(handler, bytes, &opened);
        return close(result, opened);
    }
    // The good one claims to be longer by `more`.
    Bytes longer(uint32_t more) {
        Bytes handle = good;
        uint32_t total = field<uint32_t>(good, 8) + more, data = field<uint32_t>(good, 68) + more;
        memcpy(handle.data() + 8, &total, sizeof(total));
        memcpy(handle.data() + 68, &data, sizeof(data));
        uint64_t sum = sum_of_header(handle.data());
        memcpy(handle.data() + 88, &sum, sizeof(sum));
        return handle;
    }
};

TEST_P(Handle, HasOneSize) {
    size_t size = 0;
    EXPECT_EQ(umfPoolGetIPCHandleSize(pool, &size), OK);
    EXPECT_EQ(size, good.size());
    EXPECT_EQ(handle_of(ptr).size(), size);
}

TEST_P(Handle, IsReadToItsEndAndNoFurther) {
    for (bool was_open : {false, true}) {
        for (size_t size = 0; size < good.size(); size++) {
            ASSERT_EQ(open_sized(good, size), BAD) << size << " bytes, open before: " << was_open;
        }
        EXPECT_EQ(open_sized(good, good.size()), OK);
        EXPECT_EQ(open(good), OK);
    }
}

TEST_P(Handle, IsNotReadBeyondItsEndIfItLies) {
    for (bool was_open : {false, true}) {
        for (uint32_t more : {1u, 8u, 64u, 1024u, 4096u, 1u << 20, UINT32_MAX / 2}) {
            EXPECT_EQ(open_sized(longer(more), good.size()), BAD) << more;
            EXPECT_EQ(open(longer(more)), BAD) << more;
        }
        EXPECT_EQ(open(good), OK) << "open before: " << was_open;
    }
}

TEST_P(Handle, MayBeFollowedByOtherBytes) {
    Bytes more = good;
    more.resize(good.size() + 100, 0x55);
    EXPECT_EQ(open_sized(more, more.size()), OK);
    EXPECT_EQ(open_sized(more, more.size()), OK) << "of what is known";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Handle, testing::ValuesIn(sharing_kinds()),
                         [](const auto &param) { return std::string(param.param.label); });

// A path travels with the handle; what all have room for is not enough for each.
TEST(HandleSize, DependsOnTheLengthOfAPathOnlyIfThatIsLong) {
    char folder[] = "/var/tmp/umf_ipc_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::string deep = std::string(folder) + "/" + std::string(200, 'd'),
                paths[] = {std::string(folder) + "/short", deep + "/" + std::string(100, 'f')};
    ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
    umf_memory_pool_handle_t pools[2] = {};
    size_t sizes[2] = {};
    for (int i = 0; i < 2; i++) {
        std::string text = "proxy over file:visibility=shared,path=" + paths[i];
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pools[i]), OK);
        EXPECT_EQ(umfPoolGetIPCHandleSize(pools[i], &sizes[i]), OK);
    }
    EXPECT_GT(sizes[1], sizes[0]);
    void *ptr = umfPoolMalloc(pools[1], 4096), *opened = nullptr;
    ASSERT_NE(ptr, nullptr);
    Bytes handle = handle_of(ptr);
    Edge edge;
    umf_ipc_handler_handle_t handler = nullptr;
    EXPECT_EQ(umfPoolGetIPCHandler(pools[0], &handler), OK);
    char *bytes = edge.put(handle, handle.size());
    EXPECT_EQ(umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(bytes), &opened), BAD);
    EXPECT_EQ(umfOpenIPCHandleSized(handler, bytes, handle.size(), &opened), OK);
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
    EXPECT_EQ(umfFree(ptr), OK);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(umfPoolDestroy(pools[i]), OK);
        unlink(paths[i].c_str());
    }
    rmdir(deep.c_str());
    rmdir(folder);
}

} // namespace
