// The promises of the headers on handles, for each kind of memory and each kind of pool.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/memory_pool_ext.h>

#include "fakes/current_free.h"
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
    // All did, and no count is known.
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
    EXPECT_EQ(open_sized(more, more.size()), OK) << "of the known size";
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

// --- objects that are freed while a handle of them is out ---

// A table of one's own: the core has no facts about its memory.
const umf_memory_pool_ops_t *user_ops() {
    static umf_memory_pool_ops_t ops = *umfDisjointPoolOps();
    return &ops;
}

struct FreedKind {
    PoolKind pool;
    SourceKind source;
};

std::ostream &operator<<(std::ostream &out, const FreedKind &kind) {
    return out << kind.pool << " over " << kind.source;
}

std::vector<FreedKind> freed_kinds() {
    std::vector<FreedKind> kinds;
    for (const SourceKind &source : sharing_kinds()) {
        bool is_one = strcmp(source.label, "os_shared") == 0 ||
                      strcmp(source.label, "linux_vmm") == 0 ||
                      strcmp(source.label, "file_shared") == 0;
        for (const PoolKind &pool : pool_kinds()) {
            if (is_one && fits(pool, source) && strcmp(pool.id, "proxy") != 0) {
                kinds.push_back({pool, source});
            }
        }
        if (is_one) {
            PoolKind user = {};
            user.id = "user";
            user.ops = user_ops;
            kinds.push_back({user, source});
        }
    }
    return kinds;
}

class Freed : public testing::TestWithParam<FreedKind> {
  protected:
    std::unique_ptr<Source> source = GetParam().source.make();
    umf_memory_pool_handle_t pool = nullptr;
    const std::vector<size_t> sizes = {64, 1000, 8192, 100000, size_t{3} << 20};

    void SetUp() override {
        ASSERT_NE(source->handle, nullptr);
        ASSERT_EQ(umfPoolCreate(GetParam().pool.ops(), source->handle, nullptr,
                                UMF_POOL_CREATE_FLAG_NONE, &pool),
                  OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }

    char *alloc(size_t size) {
        auto ptr = static_cast<char *>(umfPoolMalloc(pool, size));
        EXPECT_NE(ptr, nullptr);
        return ptr;
    }
    umf_ipc_handle_t get(const void *ptr) {
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        EXPECT_EQ(umfGetIPCHandle(ptr, &handle, &size), OK);
        return handle;
    }
    // Allocates as much again, several times over, and writes to it: nothing of that is where `ptr`
    // was.
    void expect_not_reused(const char *ptr, size_t size) {
        std::vector<char *> made;
        size_t count = std::max<size_t>(4, std::min<size_t>(200, (size_t{1} << 20) / size));
        for (size_t i = 0; i < count; i++) {
            made.push_back(alloc(size));
            EXPECT_TRUE(made.back() + size <= ptr || ptr + size <= made.back())
                << size << " bytes were handed out again";
            memset(made.back(), 'x', size);
        }
        for (char *each : made) {
            EXPECT_EQ(umfFree(each), OK);
        }
    }
};

TEST_P(Freed, ObjectIsNotHandedOutAgainBeforeThePut) {
    for (size_t size : sizes) {
        char *other = alloc(size), *ptr = alloc(size);
        size_t count = alloc_count(pool);
        memset(ptr, 'p', size);
        umf_ipc_handle_t handle = get(ptr);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(alloc_count(pool), count - 1);
        expect_not_reused(ptr, size);
        EXPECT_EQ(std::string(ptr, size), std::string(size, 'p'));
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_EQ(alloc_count(pool), count - 1);
        EXPECT_EQ(umfFree(other), OK);
        EXPECT_EQ(alloc_count(pool), count - 2);
    }
}

TEST_P(Freed, ObjectGoesBackToThePoolWithThePut) {
    for (size_t size : {size_t{64}, size_t{8192}}) {
        char *ptr = alloc(size);
        umf_ipc_handle_t handle = get(ptr);
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        std::vector<char *> made;
        bool is_back = false;
        for (int i = 0; i < 4096 && !is_back; i++) {
            made.push_back(alloc(size));
            // Coalesced memory may be divided in another way.
            is_back = made.back() <= ptr && ptr < made.back() + size;
        }
        EXPECT_TRUE(is_back) << size;
        for (char *each : made) {
            EXPECT_EQ(umfPoolFree(pool, each), OK);
        }
    }
}

TEST_P(Freed, HandleOfAnyAddressKeepsTheWholeObject) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        umf_ipc_handle_t last = get(ptr + size - 1), middle = get(ptr + size / 2);
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        expect_not_reused(ptr, size);
        EXPECT_EQ(umfPutIPCHandle(last), OK);
        expect_not_reused(ptr, size);
        EXPECT_EQ(umfPutIPCHandle(middle), OK);
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(Freed, ObjectIsNotFreedTwice) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        umf_ipc_handle_t handle = get(ptr);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(umfFree(ptr), BAD);
        EXPECT_EQ(umfPoolFree(pool, ptr), BAD);
        EXPECT_FALSE(umfPoolTryFree(pool, ptr));
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_EQ(umfPutIPCHandle(handle), BAD);
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(Freed, ObjectHasNoNewHandles) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        umf_ipc_handle_t handle = get(ptr + 8), none = nullptr;
        size_t bytes = 0;
        EXPECT_EQ(umfFree(ptr), OK);
        for (size_t at : {size_t{0}, size_t{8}, size - 1}) {
            EXPECT_EQ(umfGetIPCHandle(ptr + at, &none, &bytes), BAD) << size << " " << at;
        }
        EXPECT_EQ(none, nullptr);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
    }
}

TEST_P(Freed, NeighboursAreFreedAsEver) {
    for (size_t size : sizes) {
        std::vector<char *> all;
        for (int i = 0; i < 20; i++) {
            all.push_back(alloc(size));
        }
        umf_ipc_handle_t handle = get(all[7]);
        for (char *each : all) {
            bool is_freed = each == all[3] ? umfPoolTryFree(pool, each) : current_free(pool, each);
            EXPECT_TRUE(is_freed || umfFree(each) == OK);
        }
        EXPECT_EQ(alloc_count(pool), 0u);
        expect_not_reused(all[7], size);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_EQ(alloc_count(pool), 0u);
    }
}

TEST_P(Freed, ThePutMayComeFromAnotherThread) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        umf_ipc_handle_t handle = get(ptr);
        std::thread([&] { EXPECT_EQ(umfFree(ptr), OK); }).join();
        expect_not_reused(ptr, size);
        std::thread([&] { EXPECT_EQ(umfPutIPCHandle(handle), OK); }).join();
        EXPECT_EQ(alloc_count(pool), 0u) << size;
    }
}

TEST_P(Freed, TrimKeepsWhatWaits) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        memset(ptr, 'p', size);
        umf_ipc_handle_t handle = get(ptr);
        EXPECT_EQ(umfFree(ptr), OK);
        umfPoolTrimMemory(pool, 0);
        EXPECT_EQ(std::string(ptr, size), std::string(size, 'p'));
        expect_not_reused(ptr, size);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        umfPoolTrimMemory(pool, 0);
    }
}

// The handle leads to the old content, never to content of another object.
TEST_P(Freed, OpenLeadsToNoOtherObject) {
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        memset(ptr, 'p', size);
        umf_ipc_handle_t handle = get(ptr);
        EXPECT_EQ(umfFree(ptr), OK);
        expect_not_reused(ptr, size);
        void *opened = nullptr;
        if (umfOpenIPCHandle(handler, handle, &opened) == OK) {
            EXPECT_EQ(std::string(static_cast<char *>(opened), size), std::string(size, 'p'));
            EXPECT_EQ(umfCloseIPCHandle(opened), OK);
        }
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
    }
}

TEST_P(Freed, ReallocMovesOrStays) {
    if (!GetParam().pool.reallocs) {
        GTEST_SKIP() << "this pool does not reallocate";
    }
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        memset(ptr, 'p', size);
        umf_ipc_handle_t handle = get(ptr + size / 2);
        EXPECT_EQ(umfPoolRealloc(pool, ptr, size / 4), ptr) << "all of its room stays its own";
        expect_not_reused(ptr, size);
        size_t room = 0;
        EXPECT_EQ(umfPoolMallocUsableSize(pool, ptr, &room), OK);
        auto moved = static_cast<char *>(umfPoolRealloc(pool, ptr, room + 1));
        ASSERT_NE(moved, nullptr);
        EXPECT_NE(moved, ptr);
        EXPECT_EQ(std::string(moved, size), std::string(size, 'p'));
        expect_not_reused(ptr, size);
        EXPECT_EQ(umfFree(ptr), BAD) << "realloc has freed it";
        EXPECT_EQ(umfFree(moved), OK);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_EQ(alloc_count(pool), 0u);
    }
}

TEST_P(Freed, ReallocToNothingIsAFree) {
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        umf_ipc_handle_t handle = get(ptr + size / 2);
        EXPECT_EQ(umfPoolRealloc(pool, ptr, 0), nullptr);
        EXPECT_EQ(alloc_count(pool), 0u);
        expect_not_reused(ptr, size);
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_EQ(alloc_count(pool), 0u);
    }
}

TEST_P(Freed, PoolMayGoBeforeThePut) {
    std::vector<umf_ipc_handle_t> handles;
    for (size_t size : sizes) {
        char *ptr = alloc(size);
        handles.push_back(get(ptr));
        handles.push_back(get(ptr + size / 2));
        EXPECT_EQ(umfFree(ptr), OK);
    }
    EXPECT_EQ(umfPutIPCHandle(handles.back()), OK);
    handles.pop_back();
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(source->live_bytes(), 0u);
    for (umf_ipc_handle_t handle : handles) {
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
    }
    SetUp();
}

TEST_P(Freed, ChildOfAForkPutsItsOwn) {
    char *ptr = alloc(1000);
    umf_ipc_handle_t handle = get(ptr);
    EXPECT_EQ(umfFree(ptr), OK);
    pid_t child = fork();
    if (child == 0) {
        bool ok = umfFree(ptr) == BAD && umfPutIPCHandle(handle) == OK && alloc_count(pool) == 0;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_not_reused(ptr, 1000);
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
}

// Each object keeps its content as long as it is in use or pending.
TEST_P(Freed, BesideOtherThreads) {
    std::vector<std::thread> threads;
    for (unsigned char id = 1; id <= 4; id++) {
        threads.emplace_back([this, id] {
            struct Object {
                unsigned char *ptr;
                size_t size;
                unsigned char content;
                umf_ipc_handle_t handle;
                bool is_freed;
            };
            std::vector<Object> objects;
            uint32_t random = id;
            auto next = [&](uint32_t below) {
                random = random * 1664525 + 1013904223;
                return (random >> 8) % below;
            };
            auto end = [&](size_t i) {
                Object o = objects[i];
                for (size_t at = 0; at < o.size; at += 64) {
                    ASSERT_EQ(o.ptr[at], o.content);
                }
                EXPECT_TRUE(o.is_freed || umfFree(o.ptr) == OK);
                EXPECT_EQ(umfPutIPCHandle(o.handle), OK);
                objects.erase(objects.begin() + static_cast<ptrdiff_t>(i));
            };
            for (int round = 0; round < 2000; round++) {
                size_t size = 64u << next(8);
                auto ptr = static_cast<unsigned char *>(umfPoolMalloc(pool, size));
                ASSERT_NE(ptr, nullptr);
                auto content = static_cast<unsigned char>(4 * round + id);
                memset(ptr, content, size);
                umf_ipc_handle_t handle = next(2) ? get(ptr + next(2) * size / 2) : nullptr;
                bool is_freed = handle && next(2) && umfFree(ptr) == OK;
                objects.push_back({ptr, size, content, handle, is_freed});
                if (objects.size() > 50) {
                    end(next(50));
                }
            }
            while (!objects.empty()) {
                end(objects.size() - 1);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Freed, testing::ValuesIn(freed_kinds()), [](const auto &param) {
    return std::string(param.param.pool.id) + "_" + param.param.source.label;
});

// A handle of a proxy pool names an allocation of the provider, which is gone with the free.
TEST(FreedOfProxy, IsRefusedAtOnce) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os:visibility=shared", &pool), OK);
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    void *ptr = umfPoolMalloc(pool, 100000), *opened = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    EXPECT_EQ(umfGetIPCHandle(ptr, &handle, &size), OK);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfOpenIPCHandleSized(handler, handle, size, &opened), BAD);
    void *next = umfPoolMalloc(pool, 100000);
    EXPECT_EQ(umfOpenIPCHandleSized(handler, handle, size, &opened), BAD);
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    EXPECT_EQ(umfFree(next), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

} // namespace
