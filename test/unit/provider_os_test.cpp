/* providers/os/os through its ops table: private and shared memory, and sharing between processes.
 */
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/scale.h"
#include "fakes/threads.h"
#include "provider_checks.h"

extern "C" {
#include "base/log.h"
#include "base/meta.h"
#include "providers/os/handle.h"
#include "providers/os/params.h"
#include "providers/os/share.h"
extern const umf_memory_provider_descriptor_t umf_os_descriptor;
}

namespace {

/* The thread sanitizer takes wishes for some addresses only. */
#if defined(__has_feature)
#define UMF_CHOOSES_ADDRESSES !__has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define UMF_CHOOSES_ADDRESSES 0
#else
#define UMF_CHOOSES_ADDRESSES 1
#endif

constexpr size_t MiB = size_t{1} << 20;
const size_t page = umf_os_page_size();

class Params {
  public:
    umf_os_memory_provider_params_handle_t handle = nullptr;
    Params() {
        EXPECT_EQ(umfOsMemoryProviderParamsCreate(&handle), UMF_RESULT_SUCCESS);
    }
    ~Params() {
        EXPECT_EQ(umfOsMemoryProviderParamsDestroy(handle), UMF_RESULT_SUCCESS);
    }
    Params &shared(const char *name = nullptr) {
        umfOsMemoryProviderParamsSetVisibility(handle, UMF_MEM_MAP_SHARED);
        umfOsMemoryProviderParamsSetShmName(handle, name);
        return *this;
    }
    Params &protection(unsigned flags) {
        umfOsMemoryProviderParamsSetProtection(handle, flags);
        return *this;
    }
};

class Os : public Provider {
  public:
    explicit Os(const Params &params) : Provider(umfOsMemoryProviderOps(), params.handle) {}
};

umf_result_t initialize(const Params &params) {
    return try_provider(umfOsMemoryProviderOps(), params.handle);
}

/* Links what fork needs: without it a child may find a lock of the broker held. */
const umf_result_t is_started = umfInit();

/* The descriptor of the only shared file of this process. */
int shared_file() {
    int found = -1;
    for (int fd = 0; fd < 1024; fd++) {
        char target[256] = {};
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        if (readlink(path.c_str(), target, sizeof(target) - 1) > 0 && strstr(target, "memfd:umf")) {
            EXPECT_EQ(found, -1);
            found = fd;
        }
    }
    return found;
}

struct stat stat_of(int fd) {
    struct stat st = {};
    EXPECT_EQ(fstat(fd, &st), 0);
    return st;
}

size_t file_bytes(int fd) {
    return static_cast<size_t>(stat_of(fd).st_blocks) * 512;
}

std::string shm_name(const char *what) {
    return "umf_test_" + std::string(what) + "_" + std::to_string(getpid());
}
std::string shm_path(const std::string &name) {
    return "/dev/shm/" + name;
}
bool exists(const std::string &name) {
    return access(shm_path(name).c_str(), F_OK) == 0;
}

} // namespace

/* --- parameters and creation ------------------------------------------------------------------ */

TEST(os, ParamsCheckTheirArguments) {
    const umf_result_t bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    Params params;
    EXPECT_EQ(umfOsMemoryProviderParamsCreate(nullptr), bad);
    EXPECT_EQ(umfOsMemoryProviderParamsDestroy(nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfOsMemoryProviderParamsSetName(params.handle, nullptr), bad);
    EXPECT_EQ(umfOsMemoryProviderParamsSetNumaList(params.handle, nullptr, 1), bad);
    EXPECT_EQ(umfOsMemoryProviderParamsSetPartitions(params.handle, nullptr, 1), bad);
    EXPECT_EQ(umfOsMemoryProviderParamsSetNumaList(params.handle, nullptr, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfOsMemoryProviderParamsSetPartitions(params.handle, nullptr, 0),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfOsMemoryProviderParamsSetShmName(params.handle, nullptr), UMF_RESULT_SUCCESS);
}

TEST(os, ParamsAreCopiedAndCleared) {
    size_t before = umf_meta_used();
    {
        Params params;
        unsigned nodes[] = {0, 1};
        umf_numa_split_partition_t partitions[] = {{1, 0}, {2, 1}};
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(umfOsMemoryProviderParamsSetNumaList(params.handle, nodes, 2),
                      UMF_RESULT_SUCCESS);
            EXPECT_EQ(umfOsMemoryProviderParamsSetPartitions(params.handle, partitions, 2),
                      UMF_RESULT_SUCCESS);
            EXPECT_EQ(umfOsMemoryProviderParamsSetShmName(params.handle, "name"),
                      UMF_RESULT_SUCCESS);
        }
        nodes[0] = 9;
        partitions[0].weight = 9;
        EXPECT_EQ(params.handle->numa_list[0], 0u);
        EXPECT_EQ(params.handle->partitions[0].weight, 1u);
        EXPECT_EQ(umfOsMemoryProviderParamsSetNumaList(params.handle, nullptr, 0),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(params.handle->numa_list, nullptr);
    }
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(os, CreationChecks) {
    void *provider = nullptr;
    EXPECT_EQ(umfOsMemoryProviderOps()->initialize(nullptr, &provider),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (unsigned protection : {16u, UINT_MAX, 3u | 64u}) {
        EXPECT_EQ(initialize(Params().protection(protection)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned protection = 0; protection < 16; protection++) {
        EXPECT_EQ(initialize(Params().protection(protection)), UMF_RESULT_SUCCESS);
    }
    for (int visibility : {0, 3}) {
        Params params;
        umfOsMemoryProviderParamsSetVisibility(params.handle,
                                               static_cast<umf_memory_visibility_t>(visibility));
        EXPECT_EQ(initialize(params), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    for (auto mode : {UMF_NUMA_MODE_BIND, UMF_NUMA_MODE_INTERLEAVE, UMF_NUMA_MODE_PREFERRED,
                      UMF_NUMA_MODE_SPLIT, UMF_NUMA_MODE_LOCAL}) {
        Params params;
        unsigned node = 0;
        params.shared();
        umfOsMemoryProviderParamsSetNumaMode(params.handle, mode);
        EXPECT_EQ(initialize(params), UMF_RESULT_ERROR_NOT_SUPPORTED) << mode;
        umfOsMemoryProviderParamsSetNumaList(params.handle, &node, 1);
        EXPECT_EQ(initialize(params), UMF_RESULT_ERROR_NOT_SUPPORTED) << mode;
    }
    Params named; /* the name is checked for private memory, too */
    umfOsMemoryProviderParamsSetShmName(named.handle, "a/b");
    EXPECT_EQ(initialize(named), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umfOsMemoryProviderParamsSetShmName(named.handle, std::string(NAME_MAX, 'n').c_str());
    EXPECT_EQ(initialize(named), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umfOsMemoryProviderParamsSetShmName(named.handle, nullptr);
    EXPECT_EQ(initialize(named), UMF_RESULT_SUCCESS) << "NULL clears it";
    EXPECT_EQ(initialize(Params().shared("a/b")), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(initialize(Params().shared("/a")), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(initialize(Params().shared(std::string(NAME_MAX - 1, 'n').c_str())),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    std::string longest = shm_name("longest"); /* of this process: tests run at the same time */
    longest.resize(NAME_MAX - 2, 'n');
    EXPECT_EQ(initialize(Params().shared(longest.c_str())), UMF_RESULT_SUCCESS);
    EXPECT_EQ(initialize(Params().shared(".")), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(initialize(Params().shared("")), UMF_RESULT_SUCCESS);
}

/* What would have no effect is refused: a program that sets it expects one. */
TEST(os, ParamsThatDoNotGoTogether) {
    unsigned node = 0;
    umf_numa_split_partition_t part = {1, 0};
    Params named;
    umfOsMemoryProviderParamsSetShmName(named.handle, "umf_test_private");
    EXPECT_EQ(initialize(named), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (auto mode : {UMF_NUMA_MODE_DEFAULT, UMF_NUMA_MODE_BIND, UMF_NUMA_MODE_INTERLEAVE,
                      UMF_NUMA_MODE_PREFERRED, UMF_NUMA_MODE_SPLIT, UMF_NUMA_MODE_LOCAL}) {
        bool has_list = mode != UMF_NUMA_MODE_DEFAULT && mode != UMF_NUMA_MODE_LOCAL;
        Params parts, sizes;
        for (const Params *params : {&parts, &sizes}) {
            umfOsMemoryProviderParamsSetNumaMode(params->handle, mode);
            umfOsMemoryProviderParamsSetNumaList(params->handle, &node, has_list);
            EXPECT_EQ(initialize(*params), UMF_RESULT_SUCCESS) << mode;
        }
        umfOsMemoryProviderParamsSetPartitions(parts.handle, &part, 1);
        EXPECT_EQ(initialize(parts), mode == UMF_NUMA_MODE_SPLIT
                                         ? UMF_RESULT_SUCCESS
                                         : UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << mode;
        umfOsMemoryProviderParamsSetPartSize(sizes.handle, page);
        EXPECT_EQ(initialize(sizes), mode == UMF_NUMA_MODE_INTERLEAVE
                                         ? UMF_RESULT_SUCCESS
                                         : UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << mode;
    }
}

TEST(os, Facts) {
    Os provider{Params()};
    expect_facts(provider, page, MiB, umf_os_cache_line_size(), "OS", "OS");
    Params named;
    umfOsMemoryProviderParamsSetName(named.handle, std::string(99, 'x').c_str());
    Os other(named);
    const char *name;
    EXPECT_EQ(other.ops->get_name(other.self, &name), UMF_RESULT_SUCCESS);
    EXPECT_EQ(name, std::string(63, 'x'));
}

TEST(os, Settings) {
    Os private_one{Params()}, shared_one(Params().shared());
    int enabled = -1;
    EXPECT_EQ(private_one.ctl("params.ipc_enabled", &enabled, sizeof(enabled), CTL_QUERY_READ),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(enabled, 0);
    EXPECT_EQ(shared_one.ctl("params.ipc_enabled", &enabled, sizeof(enabled), CTL_QUERY_READ),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(enabled, 1);
    EXPECT_EQ(shared_one.ctl("params.ipc_enabled", &enabled, sizeof(enabled), CTL_QUERY_WRITE),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(shared_one.ctl("params.ipc_enabled", &enabled, 1, CTL_QUERY_READ),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(shared_one.ctl("params.other", &enabled, sizeof(enabled), CTL_QUERY_READ),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
}

/* --- text ------------------------------------------------------------------------------------- */

namespace {

umf_result_t from_text(const char *text, umf_os_params_t **params) {
    void *made = nullptr;
    umf_result_t result = umf_os_descriptor.params_from_text(text, &made);
    *params = static_cast<umf_os_params_t *>(made);
    return result;
}

} // namespace

TEST(os, ParamsFromText) {
    umf_os_params_t *params;
    EXPECT_NE(from_text("x", &params), UMF_RESULT_SUCCESS); /* the thread's text error stays */
    size_t before = umf_meta_used();
    EXPECT_STREQ(umf_os_descriptor.name, "os");
    ASSERT_EQ(from_text("visibility=shared,protection=read+exec,shm_name=abc,numa_mode=split,"
                        "numa_list=0+12,part_size=2M,partitions=0*3+12*1,name=mine",
                        &params),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(params->visibility, UMF_MEM_MAP_SHARED);
    EXPECT_EQ(params->protection, unsigned{UMF_PROTECTION_READ | UMF_PROTECTION_EXEC});
    EXPECT_STREQ(params->shm_name, "abc");
    EXPECT_EQ(params->numa_mode, UMF_NUMA_MODE_SPLIT);
    ASSERT_EQ(params->numa_list_len, 2u);
    EXPECT_EQ(params->numa_list[1], 12u);
    EXPECT_EQ(params->part_size, 2 * MiB);
    ASSERT_EQ(params->partitions_len, 2u);
    EXPECT_EQ(params->partitions[0].target, 0u);
    EXPECT_EQ(params->partitions[0].weight, 3u);
    EXPECT_EQ(params->partitions[1].target, 12u);
    EXPECT_STREQ(params->name, "mine");
    umf_os_descriptor.params_destroy(params);
    for (const char *wrong :
         {"numa_list=", "numa_list=1+", "numa_list=+1", "numa_list=1-2", "numa_list=4294967296",
          "numa_list=a", "partitions=0", "partitions=0*", "partitions=0*1+", "partitions=*1",
          "partitions=0@1", "visibility=half", "protection=read+fly", "nonsense=1",
          "part_size=x"}) {
        umf_result_t result = from_text(wrong, &params);
        if (result == UMF_RESULT_SUCCESS) {
            EXPECT_STREQ(wrong, "numa_list=") << "accepted";
            umf_os_descriptor.params_destroy(params);
        }
    }
    EXPECT_EQ(umf_meta_used(), before);
}

/* --- private memory --------------------------------------------------------------------------- */

TEST(os, PrivateMemoryIsZeroAndCounted) {
    Os provider{Params()};
    for (size_t size : {size_t{1}, page, page + 1, MiB, 2 * MiB, 5 * MiB + 3}) {
        char *ptr = provider.must_alloc(size);
        EXPECT_TRUE(all_are(ptr, size, 0));
        memset(ptr, 'x', size);
        EXPECT_EQ(provider.allocated(), size);
        size_t first = (size + page) / 2 / page * page;
        EXPECT_EQ(provider.split(ptr, size, first), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.merge(ptr, ptr + first, size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(provider.allocated(), 0u);
    EXPECT_EQ(provider.peak(), 5 * MiB + 3);
}

/* Its owner is unknown, but memory that could not be freed as two parts stays one. */
TEST(os, PrivateSplitTakesWholePages) {
    Os provider{Params()};
    char local[2];
    EXPECT_EQ(provider.merge(local, local + 1, 2), UMF_RESULT_SUCCESS);
    char *parts = provider.must_alloc(4 * page);
    for (size_t first : {size_t{1}, size_t{100}, page - 1, page + 1}) {
        EXPECT_EQ(provider.split(parts, 4 * page, first), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(provider.split(parts, 4 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(parts, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(parts + page, 3 * page), UMF_RESULT_SUCCESS);
    char *ptr = provider.must_alloc(4 * page);
    EXPECT_EQ(provider.split(ptr + page, 100 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.merge(ptr, ptr + 3 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 4 * page);
    EXPECT_EQ(provider.free(ptr, 4 * page), UMF_RESULT_SUCCESS);
}

/* The fixed text of each native error, then the system's. */
TEST(os, NativeErrorTexts) {
    Params params;
    unsigned node = 0;
    umfOsMemoryProviderParamsSetNumaMode(params.handle, UMF_NUMA_MODE_BIND);
    umfOsMemoryProviderParamsSetNumaList(params.handle, &node, 1);
    Os provider{Params()}, bound(params);
    char *ptr = provider.must_alloc(MiB); /* a mapping of its own */
    void *none = nullptr;
    auto text = [](const char *fixed, int error) {
        return std::string(fixed) + ": " + strerror(error);
    };
    auto fails = [](const char *call, int error, const std::function<umf_result_t()> &body) {
        fault::Nth nth(call, error, true); /* an allocation that finds nothing is repeated */
        nth.next();
        EXPECT_EQ(body(), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC) << call;
    };
    fails("map", ENOMEM, [&] { return provider.alloc(MiB, 0, &none); });
    EXPECT_EQ(provider.native_text(), text("memory allocation failed", ENOMEM));
    fails("mbind", EPERM, [&] { return bound.alloc(page, 0, &none); });
    EXPECT_EQ(provider.native_text(), text("binding memory to NUMA node failed", EPERM));
    fails("unmap", EINVAL, [&] { return provider.free(ptr, MiB); });
    EXPECT_EQ(provider.native_text(), text("memory deallocation failed", EINVAL));
    fails("advise", EAGAIN, [&] { return provider.ops->ext_purge_lazy(provider.self, ptr, page); });
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_PURGE_LAZY_FAILED);
    EXPECT_EQ(provider.native_text(), text("lazy purging failed", EAGAIN));
    fails("advise", EIO, [&] { return provider.ops->ext_purge_force(provider.self, ptr, page); });
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_PURGE_FORCE_FAILED);
    EXPECT_EQ(provider.native_text(), text("force purging failed", EIO));
    EXPECT_EQ(provider.free(ptr, MiB), UMF_RESULT_SUCCESS);
}

TEST(os, Alignments) {
    Os private_one{Params()}, shared_one(Params().shared());
    for (Os *provider : {&private_one, &shared_one}) {
        std::vector<std::pair<char *, size_t>> all;
        for (size_t alignment : {size_t{0}, size_t{1}, size_t{64}, page / 2, page, 2 * page,
                                 3 * page, 7 * page, MiB, 2 * MiB, 3 * MiB, 4 * MiB, 64 * MiB}) {
            for (size_t size : {size_t{1}, page, 3 * page, 2 * MiB, 3 * MiB + 1}) {
                char *ptr = provider->must_alloc(size, alignment);
                ASSERT_EQ(reinterpret_cast<uintptr_t>(ptr) % (alignment ? alignment : page), 0u)
                    << size << " aligned to " << alignment;
                memset(ptr, 'x', size);
                all.push_back({ptr, size});
            }
        }
        for (auto [ptr, size] : all) {
            EXPECT_EQ(provider->free(ptr, size), UMF_RESULT_SUCCESS);
        }
        void *ptr = nullptr;
        for (size_t alignment : {size_t{3}, page + 8, page + page / 2, SIZE_MAX}) {
            EXPECT_EQ(provider->alloc(page, alignment, &ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        }
        EXPECT_EQ(provider->alloc(page, SIZE_MAX / 2 + 1, &ptr),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(ptr, nullptr);
        EXPECT_EQ(provider->allocated(), 0u);
    }
}

TEST(os, SizesThatCannotBe) {
    Os private_one{Params()}, shared_one(Params().shared());
    for (Os *provider : {&private_one, &shared_one}) {
        for (size_t size : {size_t{0}, SIZE_MAX, SIZE_MAX - page, SIZE_MAX / 2, size_t{1} << 62}) {
            void *ptr = nullptr;
            EXPECT_EQ(provider->alloc(size, 0, &ptr), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
            EXPECT_EQ(provider->native(), UMF_OS_RESULT_ERROR_ALLOC_FAILED);
            EXPECT_EQ(provider->native_text().find("memory allocation failed: "), 0u);
            EXPECT_EQ(ptr, nullptr);
        }
        EXPECT_EQ(provider->must_alloc(1) != nullptr, true);
    }
}

/* Where blocks were that are all free again. */
static std::vector<char *> freed_blocks(const Os &provider, size_t count, size_t size) {
    std::vector<char *> blocks(count);
    for (char *&block : blocks) {
        block = provider.must_alloc(size);
    }
    for (char *block : blocks) {
        EXPECT_EQ(provider.free(block, size), UMF_RESULT_SUCCESS);
    }
    return blocks;
}

/* Also of mappings that were freed and are used again. */
TEST(os, AlignmentsOfMappingsUsedAgain) {
    Params params;
    Os provider(params);
    const size_t size = 4 * MiB;
    std::vector<char *> blocks = freed_blocks(provider, 16, size);
    for (char *&block : blocks) {
        block = provider.must_alloc(size, 8 * MiB);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (8 * MiB), 0u);
    }
    for (char *block : blocks) {
        EXPECT_EQ(provider.free(block, size), UMF_RESULT_SUCCESS);
    }
}

/* Pieces of threads lie in groups, which may be smaller than the alignment. */
TEST(os, AlignmentsBesideOtherThreads) {
    Params params;
    Os provider(params);
    provider.must_alloc(page);
    std::thread([&] { provider.must_alloc(page); }).join();
    for (size_t alignment = page; alignment <= MiB; alignment *= 2) {
        for (size_t size = page; size <= MiB / 4; size *= 4) {
            for (int i = 0; i < 40; i++) {
                provider.must_alloc(page);
                ASSERT_EQ(reinterpret_cast<uintptr_t>(provider.must_alloc(size, alignment)) %
                              alignment,
                          0u)
                    << size << " aligned to " << alignment;
            }
        }
    }
}

TEST(os, FewFreedMappingsStay) {
    Params params;
    Os provider(params);
    const size_t size = 2 * MiB;
    std::vector<char *> blocks = freed_blocks(provider, 40, size);
    auto is_mapped = [&](char *block) {
        std::vector<unsigned char> pages(size / 4096); /* the kernel's, below an emulator, too */
        return mincore(block, size, pages.data()) == 0;
    };
    EXPECT_LE(std::count_if(blocks.begin(), blocks.end(), is_mapped), 8);
}

TEST(os, FreeChecksWhatItIsGiven) {
    Os private_one{Params()}, shared_one(Params().shared());
    for (Os *provider : {&private_one, &shared_one}) {
        char *ptr = provider->must_alloc(2 * page);
        EXPECT_EQ(provider->free(nullptr, 0), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider->free(ptr, 0), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider->native(), UMF_OS_RESULT_ERROR_FREE_FAILED);
        EXPECT_EQ(provider->free(ptr + 1, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider->allocated(), 2 * page);
        memset(ptr, 'x', 2 * page);
        EXPECT_EQ(provider->free(ptr, 2 * page), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider->allocated(), 0u);
    }
    char *ptr = shared_one.must_alloc(2 * page);
    EXPECT_EQ(shared_one.free(ptr, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(shared_one.free(ptr + page, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(shared_one.free(ptr, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(shared_one.free(ptr, 2 * page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
}

TEST(os, Protection) {
    expect_protections(page, [](unsigned flags, auto &body) {
        body(Os(Params().protection(flags)));
        body(Os(Params().shared().protection(flags)));
    });
}

TEST(os, PrivatePurge) {
    Os provider{Params()};
    char *ptr = provider.must_alloc(4 * page);
    memset(ptr, 'x', 4 * page);
    EXPECT_EQ(provider.ops->ext_purge_lazy(provider.self, ptr, 4 * page), UMF_RESULT_SUCCESS);
    memset(ptr, 'y', 4 * page);
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, ptr + page, 2 * page),
              UMF_RESULT_SUCCESS);
    EXPECT_TRUE(all_are(ptr, page, 'y'));
    EXPECT_TRUE(all_are(ptr + page, 2 * page, 0));
    EXPECT_TRUE(all_are(ptr + 3 * page, page, 'y'));
    EXPECT_EQ(provider.ops->ext_purge_lazy(provider.self, ptr + 1, page),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_PURGE_LAZY_FAILED);
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, ptr + 1, page),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_PURGE_FORCE_FAILED);
    EXPECT_EQ(provider.free(ptr, 4 * page), UMF_RESULT_SUCCESS);
}

TEST(os, LargePrivateMemoryIsPlacedForHugePages) {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string mode((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (mode.empty() || mode.find("[never]") != std::string::npos) {
        GTEST_SKIP() << "no transparent huge pages on this machine";
    }
    Os provider{Params()};
    std::mt19937 random(1);
    std::vector<std::pair<char *, size_t>> live;
    for (int i = 0; i < 500; i++) {
        if (live.size() > 20 || (!live.empty() && random() % 2)) {
            size_t at = random() % live.size();
            ASSERT_EQ(provider.free(live[at].first, live[at].second), UMF_RESULT_SUCCESS);
            live.erase(live.begin() + static_cast<long>(at));
        } else {
            size_t size = 2 * MiB + random() % (4 * MiB);
            char *ptr = provider.must_alloc(size, random() % 2 ? 0 : random() % 2 ? page : 4 * MiB);
            ASSERT_EQ(reinterpret_cast<uintptr_t>(ptr) % (2 * MiB), 0u);
            ptr[0] = ptr[size - 1] = 'x';
            live.push_back({ptr, size});
        }
    }
    for (auto [ptr, size] : live) {
        ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
    }
}

/* Whatever the order of frees: freed memory is used again, so that the tables kept for every
 * address ever used stay small. */
TEST(os, PrivateMemoryDoesNotWander) {
    Os provider{Params()};
    std::set<char *> places;
    for (int round = 0; round < 100; round++) {
        char *low_to_high[] = {nullptr, nullptr, nullptr};
        for (char *&ptr : low_to_high) {
            ptr = provider.must_alloc(3 * MiB);
            places.insert(ptr);
        }
        std::sort(std::begin(low_to_high), std::end(low_to_high));
        for (int i = 0; i < 3; i++) {
            char *ptr = low_to_high[round % 2 ? i : 2 - i];
            ASSERT_EQ(provider.free(ptr, 3 * MiB), UMF_RESULT_SUCCESS);
        }
    }
    EXPECT_LE(places.size(), 12u);
}

namespace {

uintptr_t address_of(const void *ptr) {
    return reinterpret_cast<uintptr_t>(ptr);
}

/* Whether /proc/self/smaps has the flag, such as " hg", for the mapping at `ptr`. */
bool has_vm_flag(const void *ptr, const char *flag) {
    std::ifstream smaps("/proc/self/smaps");
    std::string line;
    bool is_here = false;
    while (std::getline(smaps, line)) {
        unsigned long begin, end;
        if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
            is_here = begin <= address_of(ptr) && address_of(ptr) < end;
        } else if (is_here && line.rfind("VmFlags:", 0) == 0) {
            return line.find(flag) != std::string::npos;
        }
    }
    return false;
}

bool is_resident(char *ptr) {
    std::vector<unsigned char> state(page / 4096); /* as above */
    EXPECT_EQ(mincore(ptr, page, state.data()), 0);
    return state[0] & 1;
}

} // namespace

TEST(os, PiecesShareMappingsOfTheSizeOfAHugePage) {
    Os provider{Params()};
    std::set<char *> live;
    std::set<uintptr_t> extents;
    for (int i = 0; i < 200; i++) {
        char *ptr = provider.must_alloc(64 << 10);
        EXPECT_EQ(address_of(ptr) % (64 << 10), 0u) << "one word of the pointer map";
        EXPECT_TRUE(live.insert(ptr).second);
        extents.insert(address_of(ptr) / (2 * MiB));
    }
    EXPECT_EQ(extents.size(), (200u + 31) / 32);
    char *twice = *live.begin();
    live.erase(twice);
    EXPECT_EQ(provider.free(twice, 64 << 10), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(twice, 64 << 10), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_FREE_FAILED);
    for (char *ptr : live) {
        EXPECT_EQ(provider.free(ptr, 64 << 10), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(provider.allocated(), 0u);
}

/* Below 8 MiB one touched byte must not cost a huge page. */
TEST(os, HugePagesAreAskedForFromEightMiBOn) {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string mode((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (mode.empty() || mode.find("[never]") != std::string::npos) {
        GTEST_SKIP() << "no transparent huge pages on this machine";
    }
    Os provider{Params()};
    char *first = provider.must_alloc(256 << 10);
    EXPECT_EQ(has_vm_flag(first, " nh"), mode.find("[always]") != std::string::npos);
    std::vector<char *> all{first};
    while (all.size() < 32) {
        EXPECT_FALSE(has_vm_flag(first, " hg")) << all.size();
        all.push_back(provider.must_alloc(256 << 10));
    }
    EXPECT_FALSE(has_vm_flag(all.back(), " hg"));
    all.push_back(provider.must_alloc(256 << 10));
    EXPECT_TRUE(has_vm_flag(all.back(), " hg"));
    EXPECT_TRUE(has_vm_flag(first, " hg"));
    EXPECT_FALSE(has_vm_flag(first, " nh"));
    for (char *ptr : all) {
        EXPECT_EQ(provider.free(ptr, 256 << 10), UMF_RESULT_SUCCESS);
    }
}

/* A use after a free is a fault. */
TEST(os, FreedMemoryCannotBeTouched) {
    for (bool has_guards : {true, false}) {
        auto no_advice = [](const char *call) { return strcmp(call, "advise") == 0 ? EINVAL : 0; };
        if (!has_guards) {
            umf_os_set_fault(no_advice);
        }
        Os provider{Params()};
        umf_os_set_fault(nullptr);
        for (size_t size :
             {page, size_t{16} << 10, size_t{256} << 10, MiB, 2 * MiB, 4 * MiB, 16 * MiB}) {
            for (size_t alignment : {size_t{0}, page, size_t{64} << 10, 2 * MiB}) {
                char *before = provider.must_alloc(size, alignment);
                char *ptr = provider.must_alloc(size, alignment);
                char *after = provider.must_alloc(size, alignment);
                memset(before, 'b', size);
                memset(ptr, 'x', size);
                memset(after, 'a', size);
                ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
                for (size_t at : {size_t{0}, size / 2, size - 1}) {
                    EXPECT_FALSE(can_read(ptr + at)) << size << " at " << at;
                    EXPECT_FALSE(can_write(ptr + at)) << size << " at " << at;
                }
                EXPECT_TRUE(all_are(before, size, 'b')) << size;
                EXPECT_TRUE(all_are(after, size, 'a')) << size;
                char *again = provider.must_alloc(size, alignment);
                EXPECT_TRUE(all_are(again, size, 0)) << size;
                memset(again, 'y', size);
                for (char *rest : {before, after, again}) {
                    EXPECT_EQ(provider.free(rest, size), UMF_RESULT_SUCCESS);
                    EXPECT_FALSE(can_read(rest)) << size;
                }
            }
        }
        EXPECT_EQ(provider.allocated(), 0u);
    }
}

/* A part of an allocation is one, too. */
TEST(os, FreedPartsCannotBeTouched) {
    Os provider{Params()};
    char *ptr = provider.must_alloc(4 * page); /* a piece of an extent, however large pages are */
    memset(ptr, 'x', 4 * page);
    ASSERT_EQ(provider.free(ptr + page, 2 * page), UMF_RESULT_SUCCESS);
    for (size_t i = 0; i < 4; i++) {
        EXPECT_EQ(can_read(ptr + i * page), i == 0 || i == 3) << i;
    }
    EXPECT_EQ(provider.free(ptr + page, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_TRUE(all_are(ptr, page, 'x'));
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + 3 * page, page), UMF_RESULT_SUCCESS);
}

/* One piece that lives on in each extent does not use up the addresses. */
TEST(os, PlacesOfFreedPiecesServeWhereAddressesAreShort) {
    if (UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP() << "a sanitizer needs addresses itself";
    }
    EXPECT_TRUE(in_child([] {
        constexpr size_t EXTENT = 2 * MiB;
        Os provider{Params()};
        struct rlimit limit = {};
        size_t used = 0;
        std::ifstream("/proc/self/statm") >> used;
        limit.rlim_cur = limit.rlim_max = used * page + 8 * EXTENT;
        void *ptr = nullptr;
        if (provider.alloc(page, 0, &ptr) != UMF_RESULT_SUCCESS ||
            setrlimit(RLIMIT_AS, &limit) != 0) {
            return false;
        }
        for (size_t i = 1; i < 32 * EXTENT / page; i++) {
            void *next = nullptr;
            if (provider.alloc(page, 0, &next) != UMF_RESULT_SUCCESS ||
                !all_are(static_cast<char *>(next), page, 0)) {
                return false;
            }
            memset(next, 'x', page);
            if (i % (EXTENT / page) != 0 && provider.free(next, page) != UMF_RESULT_SUCCESS) {
                return false;
            }
        }
        return true;
    }));
}

/* Freed memory goes back to the system at once; what comes again is fresh. */
TEST(os, FreedMemoryComesBackAsNew) {
    for (size_t size : {page, size_t{64} << 10, 2 * MiB, 8 * MiB}) {
        Os provider{Params()};
        char *other = provider.must_alloc(size); /* keeps an extent */
        char *ptr = provider.must_alloc(size);
        memset(ptr, 'x', size);
        ASSERT_EQ(mprotect(ptr, page, PROT_NONE), 0);
        ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
        EXPECT_FALSE(is_resident(ptr + size - page)) << size;
        char *again = provider.must_alloc(size);
        EXPECT_EQ(again == ptr, size >= 2 * MiB) << size;
        EXPECT_TRUE(all_are(again, size, 0)) << size;
        memset(again, 'y', size);
        if (mlock(again, page) == 0) {
            ASSERT_EQ(provider.free(again, size), UMF_RESULT_SUCCESS) << "locked, " << size;
            again = provider.must_alloc(size);
            EXPECT_TRUE(all_are(again, size, 0)) << size;
            EXPECT_FALSE(has_vm_flag(again, " lo")) << size;
        }
        EXPECT_EQ(provider.free(again, size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.free(other, size), UMF_RESULT_SUCCESS);
    }
}

TEST(os, PiecesThatCannotBeClearedAreNotUsedAgain) {
    Os provider{Params()};
    char *ptr = provider.must_alloc(page);
    memset(ptr, 'x', page);
    umf_os_set_fault([](const char *call) {
        bool fails = strcmp(call, "protect") == 0 || strcmp(call, "map") == 0;
        fails |= strcmp(call, "advise") == 0;
        return fails || strcmp(call, "unmap") == 0 ? ENOMEM : 0;
    });
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_FREE_FAILED);
    EXPECT_EQ(provider.allocated(), page);
    EXPECT_TRUE(all_are(ptr, page, 'x'));
    umf_os_set_fault([](const char *call) {
        return strcmp(call, "advise") == 0 || strcmp(call, "map") == 0 ? ENOMEM : 0;
    });
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
    umf_os_set_fault(nullptr);
    EXPECT_FALSE(can_read(ptr)) << "unmapped";
    for (int i = 0; i < 600; i++) {
        char *other = provider.must_alloc(page);
        ASSERT_TRUE(all_are(other, page, 0));
        ASSERT_NE(other, ptr);
    }
}

/* Where address space is short, pieces are mapped one by one. */
TEST(os, PiecesWithoutAnExtent) {
    Os provider{Params()};
    for (const char *call : {"map", "meta_alloc"}) {
        void *ptr = nullptr;
        fault::Nth nth(call, ENOMEM);
        nth.next();
        EXPECT_EQ(provider.alloc(3 * page, 0, &ptr), UMF_RESULT_SUCCESS) << call;
        EXPECT_TRUE(nth.hit());
        nth.off();
        memset(ptr, 'x', 3 * page);
        EXPECT_EQ(provider.free(ptr, 3 * page), UMF_RESULT_SUCCESS);
    }
}

TEST(os, PiecesOutliveTheirProvider) {
    char *ptr;
    {
        Os provider{Params()};
        ptr = provider.must_alloc(page);
        EXPECT_EQ(provider.free(provider.must_alloc(2 * MiB), 2 * MiB), UMF_RESULT_SUCCESS);
    }
    ptr[0] = 'x';
    EXPECT_EQ(munmap(ptr, page), 0); // the neighbour may belong to others
}

/* Random sizes and alignments, freed whole, in two parts or with what lies next to them. */
TEST(os, PiecesAgainstAModel) {
    Os provider{Params()};
    const size_t rounds = 2000 * 4096 / page; /* as many bytes, whatever the size of pages */
    for (unsigned seed = 1; seed <= scaled(3); seed++) {
        std::mt19937 random(seed);
        std::map<char *, size_t> live;
        auto check_and_free = [&](std::map<char *, size_t>::iterator it) {
            auto [ptr, size] = *it;
            ASSERT_TRUE(all_are(ptr, size, static_cast<char>('a' + size / page % 26)));
            auto next = std::next(it);
            if (random() % 3 == 0 && next != live.end() && ptr + size == next->first) {
                size += next->second;
                live.erase(next);
            } else if (random() % 3 == 0 && size > page) {
                size_t first = (1 + random() % (size / page - 1)) * page;
                ASSERT_EQ(provider.free(ptr + first, size - first), UMF_RESULT_SUCCESS);
                size = first;
            }
            ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
            live.erase(ptr);
        };
        for (size_t round = 0; round < rounds && !HasFatalFailure(); round++) {
            if (live.size() > 150 || (!live.empty() && random() % 5 < 2)) {
                check_and_free(std::next(live.begin(), static_cast<long>(random() % live.size())));
                continue;
            }
            size_t size = (1 + random() % (random() % 8 ? 20 : 600)) * page;
            size_t alignment = random() % 3 ? 0 : page << random() % 8;
            char *ptr = provider.must_alloc(size, alignment);
            ASSERT_EQ(address_of(ptr) % (alignment ? alignment : page), 0u);
            auto after = live.lower_bound(ptr);
            ASSERT_TRUE(after == live.end() || ptr + size <= after->first);
            ASSERT_TRUE(after == live.begin() ||
                        std::prev(after)->first + std::prev(after)->second <= ptr);
            ASSERT_TRUE(all_are(ptr, size, 0));
            memset(ptr, static_cast<char>('a' + size / page % 26), size);
            live[ptr] = size;
        }
        while (!live.empty() && !HasFatalFailure()) {
            check_and_free(live.begin());
        }
    }
}

TEST(os, PiecesForManyThreads) {
    Os provider{Params()};
    run_threads<unsigned>(4, [&](unsigned t) {
        std::mt19937 random(t);
        std::vector<std::pair<char *, size_t>> live;
        for (size_t i = 0; i < scaled(1500); i++) {
            if (live.size() > 30 || (!live.empty() && random() % 2)) {
                auto [ptr, size] = live.back();
                live.pop_back();
                EXPECT_TRUE(all_are(ptr, page, static_cast<char>('a' + t)));
                EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
            } else {
                size_t size = random() % 50 ? (1 + random() % 40) * page : 2 * MiB;
                char *ptr = provider.must_alloc(size);
                EXPECT_TRUE(all_are(ptr, page, 0));
                memset(ptr, static_cast<char>('a' + t), page);
                live.push_back({ptr, size});
            }
        }
        for (auto [ptr, size] : live) {
            EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
        }
    });
    EXPECT_EQ(provider.allocated(), 0u);
}

/* --- shared memory of one process ------------------------------------------------------------- */

TEST(os, SharedMemoryIsGivenBackAndUsedAgain) {
    size_t descriptors = count_open_descriptors();
    {
        Os provider(Params().shared());
        int file = shared_file();
        ASSERT_GE(file, 0);
        size_t header = file_bytes(file);
        std::mt19937 random(3);
        for (int i = 0; i < 100; i++) {
            size_t size = MiB + random() % MiB;
            char *ptr = provider.must_alloc(size);
            ASSERT_TRUE(all_are(ptr, size, 0)) << "round " << i;
            memset(ptr, 'x', size);
            ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
        }
        EXPECT_LE(file_bytes(file), header + 16 * page);
        EXPECT_LE(stat_of(file).st_size, static_cast<off_t>(256 * MiB));
        EXPECT_EQ(count_open_descriptors(), descriptors + 1);
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
}

/* The requested bytes are counted, also where a free gets whole pages. */
TEST(os, SharedMemoryIsCountedAsItWasAskedFor) {
    Os provider(Params().shared());
    char *other = provider.must_alloc(10000);
    for (size_t freed_size : {size_t{5000}, (4999 + page) / page * page}) {
        char *ptr = provider.must_alloc(5000);
        EXPECT_EQ(provider.allocated(), 15000u);
        EXPECT_NE(provider.free(ptr, 0), UMF_RESULT_SUCCESS);
        EXPECT_EQ(provider.allocated(), 15000u);
        ASSERT_EQ(provider.free(ptr, freed_size), UMF_RESULT_SUCCESS) << freed_size;
        EXPECT_EQ(provider.allocated(), 10000u) << freed_size;
    }
    EXPECT_EQ(provider.free(other, 10000), UMF_RESULT_SUCCESS);
}

TEST(os, MemoryThatCannotBeMappedIsNoPartOfTheFile) {
    Os provider(Params().shared());
    int file = shared_file();
    char *first = provider.must_alloc(MiB);
    const off_t before = stat_of(file).st_size;
    for (int i = 0; i < 200; i++) {
        void *ptr = nullptr;
        fault::Nth nth("map");
        ASSERT_TRUE(nth.next());
        ASSERT_NE(provider.alloc(MiB, 0, &ptr), UMF_RESULT_SUCCESS);
    }
    char *second = provider.must_alloc(MiB);
    EXPECT_EQ(stat_of(file).st_size, before);
    EXPECT_EQ(provider.free(first, MiB), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(second, MiB), UMF_RESULT_SUCCESS);
}

TEST(os, SharedFileGrowsOnDemand) {
    Os provider(Params().shared());
    int file = shared_file();
    EXPECT_LE(stat_of(file).st_size, static_cast<off_t>(4 * MiB));
    std::vector<char *> all;
    for (int i = 0; i < 40; i++) {
        all.push_back(provider.must_alloc(50 * MiB));
        all.back()[0] = static_cast<char>(i);
    }
    EXPECT_LE(stat_of(file).st_size, static_cast<off_t>(4096 * MiB));
    for (int i = 0; i < 40; i++) {
        EXPECT_EQ(all[static_cast<size_t>(i)][0], static_cast<char>(i));
        EXPECT_EQ(provider.free(all[static_cast<size_t>(i)], 50 * MiB), UMF_RESULT_SUCCESS);
    }
    EXPECT_LE(file_bytes(file), MiB);
}

TEST(os, DescriptorsAreClosed) {
    size_t before = count_open_descriptors();
    for (int i = 0; i < 2000; i++) {
        ASSERT_EQ(initialize(Params().shared()), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(count_open_descriptors(), before);
}

TEST(os, SharedSplitAndMerge) {
    Os provider(Params().shared());
    const umf_result_t bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    char *ptr = provider.must_alloc(4 * page);
    memset(ptr, 'x', 4 * page);
    EXPECT_EQ(provider.split(ptr + page, 2 * page, page), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(provider.merge(ptr, ptr + page, 2 * page), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(provider.split(ptr, 3 * page, page), bad);
    EXPECT_EQ(provider.split(ptr, 4 * page, page + 1), bad);
    EXPECT_EQ(provider.split(ptr, 4 * page, 4 * page), bad);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.split(ptr + page, 3 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.merge(ptr, ptr + 2 * page, 3 * page), bad);
    EXPECT_EQ(provider.merge(ptr, ptr + page, 4 * page), bad);
    ASSERT_EQ(provider.merge(ptr, ptr + page, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(all_are(ptr, 4 * page, 'x'));
    EXPECT_EQ(provider.free(ptr + 2 * page, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(all_are(ptr, 2 * page, 'x'));
    EXPECT_EQ(provider.allocated(), 2 * page);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 0u);
    ptr = provider.must_alloc(page + 100);
    ASSERT_EQ(provider.split(ptr, page + 100, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + page, 100), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), page);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
}

TEST(os, SharedPurgeReachesTheFile) {
    Os provider(Params().shared());
    int file = shared_file();
    char *ptr = provider.must_alloc(8 * MiB);
    for (auto purge : {provider.ops->ext_purge_lazy, provider.ops->ext_purge_force}) {
        memset(ptr, 'x', 8 * MiB);
        EXPECT_EQ(purge(provider.self, ptr + MiB, 7 * MiB), UMF_RESULT_SUCCESS);
        EXPECT_LE(file_bytes(file), 2 * MiB);
        EXPECT_TRUE(all_are(ptr, MiB, 'x'));
        EXPECT_TRUE(all_are(ptr + MiB, 7 * MiB, 0));
    }
    EXPECT_EQ(provider.free(ptr, 8 * MiB), UMF_RESULT_SUCCESS);
}

/* A write to memory on a file system that has become full would end the process. */
TEST(os, NamedMemoryHasItsSpaceUntilItIsFreed) {
    std::string name = "umf_test_space_" + std::to_string(getpid()), file = "/dev/shm/" + name;
    auto space = [&] {
        struct stat info = {};
        EXPECT_EQ(stat(file.c_str(), &info), 0);
        return static_cast<size_t>(info.st_blocks) * 512;
    };
    Os provider(Params().shared(name.c_str()));
    size_t before = space();
    char *ptr = provider.must_alloc(8 * MiB);
    EXPECT_GE(space(), before + 8 * MiB) << "before it is written";
    for (auto purge : {provider.ops->ext_purge_lazy, provider.ops->ext_purge_force}) {
        memset(ptr, 'x', 8 * MiB);
        EXPECT_EQ(purge(provider.self, ptr + MiB, 7 * MiB), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_GE(space(), before + 8 * MiB);
        EXPECT_TRUE(all_are(ptr, 8 * MiB, 'x'));
    }
    EXPECT_EQ(provider.free(ptr, 8 * MiB), UMF_RESULT_SUCCESS);
    EXPECT_LT(space(), before + MiB);
    fault::Nth nth("allocate", ENOSPC);
    nth.next();
    void *none = nullptr;
    EXPECT_EQ(provider.ops->alloc(provider.self, 8 * MiB, 0, &none),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_ALLOC_FAILED);
}

TEST(os, SharedMemoryOfMemfdSecretOnRequest) {
    setenv("UMF_MEM_FD_FUNC", "memfd_secret", 1);
    void *self = nullptr;
    umf_result_t result = umfOsMemoryProviderOps()->initialize(Params().shared().handle, &self);
    unsetenv("UMF_MEM_FD_FUNC");
    if (result != UMF_RESULT_SUCCESS) {
        EXPECT_EQ(result, UMF_RESULT_ERROR_UNKNOWN);
        GTEST_SKIP() << "no memfd_secret on this machine";
    }
    EXPECT_EQ(shared_file(), -1);
    const umf_memory_provider_ops_t *ops = umfOsMemoryProviderOps();
    for (int i = 0; i < 30; i++) {
        void *ptr = nullptr;
        ASSERT_EQ(ops->alloc(self, MiB, 0, &ptr), UMF_RESULT_SUCCESS);
        ASSERT_TRUE(all_are(static_cast<char *>(ptr), MiB, 0));
        memset(ptr, 'x', MiB);
        if (i == 0) {
            char data[512];
            void *opened = nullptr;
            ASSERT_EQ(ops->ext_get_ipc_handle(self, ptr, MiB, data), UMF_RESULT_SUCCESS);
            ASSERT_EQ(ops->ext_open_ipc_handle(self, data, &opened), UMF_RESULT_SUCCESS);
            EXPECT_EQ(static_cast<char *>(opened)[MiB - 1], 'x');
            EXPECT_EQ(ops->ext_close_ipc_handle(self, opened, MiB), UMF_RESULT_SUCCESS);
        }
        ASSERT_EQ(ops->free(self, ptr, MiB), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(ops->finalize(self), UMF_RESULT_SUCCESS);
}

/* The limit of locked memory is small; the message names it. */
TEST(os, MemfdSecretThatFailsIsExplained) {
    std::string file = "/tmp/umf_os_log_" + std::to_string(getpid());
    ASSERT_EQ(umf_log_set_output(file.c_str()), UMF_RESULT_SUCCESS);
    setenv("UMF_MEM_FD_FUNC", "memfd_secret", 1);
    {
        fault::Nth nth("map", EAGAIN);
        nth.next();
        EXPECT_EQ(initialize(Params().shared()), UMF_RESULT_ERROR_UNKNOWN);
    }
    unsetenv("UMF_MEM_FD_FUNC");
    ASSERT_EQ(umf_log_set_output("/dev/null"), UMF_RESULT_SUCCESS);
    std::stringstream said;
    said << std::ifstream(file).rdbuf();
    unlink(file.c_str());
    EXPECT_NE(said.str().find("memfd_secret"), std::string::npos) << said.str();
    EXPECT_TRUE(said.str().find("RLIMIT_MEMLOCK") != std::string::npos ||
                said.str().find("secretmem.enable=1") != std::string::npos)
        << said.str();
}

/* --- names ------------------------------------------------------------------------------------ */

TEST(os, NamedObjectLivesAsLongAsItsProvider) {
    std::string name = shm_name("lives");
    {
        Os provider(Params().shared(name.c_str()));
        struct stat st;
        ASSERT_EQ(stat(shm_path(name).c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & 0777, 0600u);
        EXPECT_LT(st.st_size, static_cast<off_t>(1) << 32);
        EXPECT_EQ(provider.handle_size(), UMF_OS_HANDLE_SIZE);
    }
    EXPECT_FALSE(exists(name));
}

TEST(os, OldObjectIsRemovedFirstAndOnlyTheOwnNameAtLast) {
    std::string name = shm_name("old");
    std::ofstream(shm_path(name)) << "something old";
    auto first = std::make_unique<Os>(Params().shared(name.c_str()));
    char *ptr = first->must_alloc(page);
    EXPECT_EQ(ptr[0], 0);
    auto second = std::make_unique<Os>(Params().shared(name.c_str()));
    EXPECT_EQ(first->free(ptr, page), UMF_RESULT_SUCCESS);
    first.reset();
    EXPECT_TRUE(exists(name)) << "removed by the provider whose name it was before";
    second.reset();
    EXPECT_FALSE(exists(name));
}

TEST(os, AnyNumberOfConsumersOfANamedObject) {
    std::string name = shm_name("any");
    Os provider(Params().shared(name.c_str()));
    char *ptr = provider.must_alloc(page);
    strcpy(ptr, "hello");
    Os::Handle handle = provider.get(ptr, page);
    for (int i = 0; i < 5; i++) {
        EXPECT_TRUE(in_child([&] {
            Os consumer(Params().shared(i % 2 ? shm_name("other").c_str() : nullptr));
            char *opened = consumer.must_open(handle);
            bool ok = opened && strcmp(opened, "hello") == 0 && exists(name);
            opened[10 + i] = 'c';
            return ok && consumer.close(opened, page) == UMF_RESULT_SUCCESS;
        }));
        EXPECT_EQ(ptr[10 + i], 'c');
        EXPECT_TRUE(exists(name));
    }
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
}

TEST(os, NameThatMeansAnotherObjectByNow) {
    std::string name = shm_name("again");
    auto provider = std::make_unique<Os>(Params().shared(name.c_str()));
    char *ptr = provider->must_alloc(page);
    Os::Handle handle = provider->get(ptr, page);
    Os consumer(Params().shared());
    void *opened = nullptr;
    provider.reset();
    munmap(ptr, page);
    EXPECT_EQ(consumer.open(handle, &opened), UMF_RESULT_ERROR_UNKNOWN) << "the name is gone";
    Os successor(Params().shared(name.c_str()));
    successor.get(successor.must_alloc(page), page);
    EXPECT_EQ(consumer.open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(opened, nullptr);
}

/* The producer is killed: only a consumer can notice it and remove the object. */
TEST(os, OrphanIsRefusedAndRemoved) {
    std::string name = shm_name("orphan");
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        Os provider(Params().shared(name.c_str()));
        Os::Handle handle = provider.get(provider.must_alloc(page), page);
        (void)!write(fds[1], handle.data(), handle.size());
        pause();
    }
    Os::Handle handle(UMF_OS_HANDLE_SIZE);
    ASSERT_EQ(read(fds[0], handle.data(), handle.size()), static_cast<ssize_t>(handle.size()));
    close(fds[0]);
    close(fds[1]);
    Os consumer(Params().shared());
    char *opened = consumer.must_open(handle);
    EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_SUCCESS);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0); /* from now on any process of this user may remove the object */
    /* The lock goes with the last trace of the process, which a reader of it can keep a while.
     */
    void *ptr = nullptr;
    umf_result_t result;
    for (int tries = 0; tries < 6000; tries++) {
        result = consumer.open(handle, &ptr);
        if (result != UMF_RESULT_SUCCESS) {
            break;
        }
        EXPECT_EQ(consumer.close(static_cast<char *>(ptr), page), UMF_RESULT_SUCCESS);
        usleep(10000);
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_FALSE(exists(name));
}

/* --- between processes ------------------------------------------------------------------------ */

/* More files than there are ranges of addresses for them, and each range more than once. */
TEST(os, ManyFilesAreOpenAtOnce) {
    constexpr int files = 70, parts = 3;
    Os consumer(Params().shared());
    std::vector<std::unique_ptr<Os>> producers;
    std::vector<char *> here, opened;
    std::vector<Os::Handle> handles;
    for (int i = 0; i < files; i++) {
        producers.push_back(std::make_unique<Os>(Params().shared()));
        for (int part = 0; part < parts; part++) {
            here.push_back(producers.back()->must_alloc(page));
            handles.push_back(producers.back()->get(here.back(), page));
        }
    }
    for (int round = 0; round < 2; round++) {
        opened.clear();
        for (const Os::Handle &handle : handles) {
            opened.push_back(consumer.must_open(handle));
            snprintf(opened.back(), page, "%d, %zu", round, opened.size());
        }
        EXPECT_EQ(std::set<char *>(opened.begin(), opened.end()).size(), handles.size());
        for (size_t i = 0; i < handles.size(); i++) {
            EXPECT_EQ(here[i], std::to_string(round) + ", " + std::to_string(i + 1));
            EXPECT_EQ(consumer.close(opened[i], page), UMF_RESULT_SUCCESS);
        }
    }
    for (size_t i = 0; i < here.size(); i++) {
        EXPECT_EQ(producers[i / parts]->free(here[i], page), UMF_RESULT_SUCCESS);
    }
}

TEST(os, WhatIsOpenedOfAFileLiesAsInTheFile) {
    Os producer(Params().shared()), consumer(Params().shared());
    char *ptrs[4], *opened[4];
    Os::Handle handles[4];
    umf_os_handle_t fields[4];
    for (int i = 0; i < 4; i++) {
        ptrs[i] = producer.must_alloc(page);
        handles[i] = producer.get(ptrs[i], page);
        memcpy(&fields[i], handles[i].data(), sizeof(fields[i]));
        opened[i] = consumer.must_open(handles[i]);
    }
#if UMF_CHOOSES_ADDRESSES
    for (int i = 2; i < 4; i++) { // the first one may stay alone
        EXPECT_EQ(static_cast<uint64_t>(opened[i] - opened[1]),
                  fields[i].offset - fields[1].offset);
    }
    EXPECT_EQ(consumer.close(opened[2], page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.must_open(handles[2]), opened[2]) << "back in its place";
#endif
    char *second = consumer.must_open(handles[2]);
    EXPECT_NE(second, opened[2]) << "memory in use is not replaced";
    strcpy(second, "same memory");
    EXPECT_STREQ(opened[2], "same memory");
    EXPECT_EQ(consumer.close(second, page), UMF_RESULT_SUCCESS);
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(consumer.close(opened[i], page), UMF_RESULT_SUCCESS);
        EXPECT_EQ(producer.free(ptrs[i], page), UMF_RESULT_SUCCESS);
    }
}

TEST(os, MemoryIsFreedByItsProviderOnly) {
    Os provider(Params().shared()), other(Params().shared());
    EXPECT_EQ(other.free(provider.must_alloc(page), page),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
}

TEST(os, HandlesArePutByTheirProcess) {
    Os provider(Params().shared());
    Os::Handle handle = provider.get(provider.must_alloc(page), page);
    EXPECT_TRUE(
        in_child([&] { return provider.put(handle) == UMF_RESULT_ERROR_INVALID_ARGUMENT; }));
}

TEST(os, FreedMemoryIsNotOpened) {
    Os provider(Params().shared()), consumer(Params().shared());
    char *ptr = provider.must_alloc(page);
    Os::Handle handle = provider.get(ptr, page);
    char *opened = consumer.must_open(handle);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
    void *again = nullptr;
    EXPECT_EQ(consumer.open(handle, &again), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ptr = provider.must_alloc(page);
    Os::Handle next = provider.get(ptr, page);
    EXPECT_NE(handle, next);
    EXPECT_EQ(consumer.open(handle, &again), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.open(handle, &again), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(again, nullptr);
    EXPECT_EQ(consumer.close(consumer.must_open(next), page), UMF_RESULT_SUCCESS);
}

TEST(os, DestroyedProviderEndsItsExports) {
    Os consumer(Params().shared());
    auto provider = std::make_unique<Os>(Params().shared());
    char *ptr = provider->must_alloc(page);
    Os::Handle handle = provider->get(ptr, page);
    char *opened = consumer.must_open(handle);
    provider.reset();
    strcpy(ptr, "still there");
    EXPECT_STREQ(opened, "still there");
    void *again = nullptr;
    EXPECT_EQ(consumer.open(handle, &again), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.open(handle, &again), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    munmap(ptr, page);
}

TEST(os, EndedProducer) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    EXPECT_TRUE(in_child([&] {
        Os provider(Params().shared());
        Os::Handle handle = provider.get(provider.must_alloc(page), page);
        return write(fds[1], handle.data(), handle.size()) == static_cast<ssize_t>(handle.size());
    }));
    Os consumer(Params().shared());
    Os::Handle handle(consumer.handle_size());
    ASSERT_EQ(read(fds[0], handle.data(), handle.size()), static_cast<ssize_t>(handle.size()));
    close(fds[0]);
    close(fds[1]);
    size_t before = count_open_descriptors();
    void *ptr = nullptr;
    EXPECT_EQ(consumer.open(handle, &ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ptr, nullptr);
    EXPECT_EQ(count_open_descriptors(), before);
}

/* A file that is none of ours, though the description fits it. */
TEST(os, FilesOfOtherKinds) {
    Os consumer(Params().shared());
    std::string name = shm_name("foreign");
    for (off_t size : {off_t{0}, static_cast<off_t>(UMF_OS_SHARE_HEADER_MAX + 4 * page)}) {
        int fd = open(shm_path(name).c_str(), O_CREAT | O_RDWR, 0600);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(ftruncate(fd, size), 0);
        umf_os_handle_t fields = {};
        ASSERT_EQ(umf_ticket_make(fd, &fields.ticket), UMF_RESULT_SUCCESS);
        fields.header_size = UMF_OS_SHARE_HEADER_MAX;
        fields.offset = UMF_OS_SHARE_HEADER_MAX;
        fields.size = page;
        fields.slot = UMF_OS_SHARE_FIRST_SLOT;
        fields.generation = 1;
        fields.visibility = UMF_MEM_MAP_SHARED;
        Os::Handle handle(UMF_OS_HANDLE_SIZE);
        umf_os_handle_write(&fields, "", handle.data());
        size_t before = count_open_descriptors();
        void *opened = nullptr;
        EXPECT_EQ(consumer.open(handle, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
        EXPECT_EQ(count_open_descriptors(), before);
        close(fd);
        unlink(shm_path(name).c_str());
    }
}

TEST(os, WatchedWordTellsOfTheEnd) {
    auto watch = umf_os_descriptor.ext->ipc_watch;
    Os provider(Params().shared()), consumer(Params().shared());
    char *ptr = provider.must_alloc(page);
    Os::Handle handle = provider.get(ptr, page);
    const uint64_t *word = nullptr;
    uint64_t expected = 0;
    EXPECT_EQ(watch(consumer.self, handle.data(), &word, &expected),
              UMF_RESULT_ERROR_INVALID_ARGUMENT)
        << "not open yet";
    char *opened = consumer.must_open(handle);
    ASSERT_EQ(watch(consumer.self, handle.data(), &word, &expected), UMF_RESULT_SUCCESS);
    EXPECT_EQ(__atomic_load_n(word, __ATOMIC_ACQUIRE), expected);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
    EXPECT_NE(__atomic_load_n(word, __ATOMIC_ACQUIRE), expected);
    ptr = provider.must_alloc(page);
    Os::Handle next = provider.get(ptr, page);
    EXPECT_NE(__atomic_load_n(word, __ATOMIC_ACQUIRE), expected);
    EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_SUCCESS);
    Os private_one{Params()};
    EXPECT_EQ(watch(private_one.self, handle.data(), &word, &expected),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

/* Parts of an exported allocation: a part that goes takes the export of the whole with it. */
TEST(os, SplitAndMergeOfExports) {
    Os provider(Params().shared()), consumer(Params().shared());
    void *opened = nullptr;
    char *ptr = provider.must_alloc(4 * page);
    Os::Handle whole = provider.get(ptr, 4 * page);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.close(consumer.must_open(whole), 4 * page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.free(ptr + page, 3 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.open(whole, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    Os::Handle low = provider.get(ptr, page);
    EXPECT_EQ(consumer.close(consumer.must_open(low), page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);

    ptr = provider.must_alloc(4 * page);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), UMF_RESULT_SUCCESS);
    low = provider.get(ptr, page);
    Os::Handle high = provider.get(ptr + page, 3 * page);
    ASSERT_EQ(provider.merge(ptr, ptr + page, 4 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.open(high, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(consumer.close(consumer.must_open(low), page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.free(ptr, 4 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.open(low, &opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(os, SlotsRunOutAndComeBack) {
    umf_os_share_t *share;
    ASSERT_EQ(umf_os_share_create(nullptr, &share), UMF_RESULT_SUCCESS);
    const uint32_t count = UMF_OS_SHARE_HEADER_MAX / 8 - UMF_OS_SHARE_FIRST_SLOT;
    uint32_t slot = 0;
    uint64_t generation = 0, last = 0;
    std::set<uint32_t> seen;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_EQ(umf_board_claim(&share->board, &slot, &generation), UMF_RESULT_SUCCESS);
        ASSERT_GT(generation, last);
        last = generation;
        ASSERT_TRUE(seen.insert(slot).second);
    }
    EXPECT_EQ(*seen.begin(), UMF_OS_SHARE_FIRST_SLOT) << "the head of the file is no slot";
    EXPECT_EQ(umf_board_claim(&share->board, &slot, &generation),
              UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    umf_board_retire(&share->board, 77, 1); /* not that slot's generation */
    EXPECT_EQ(umf_board_claim(&share->board, &slot, &generation),
              UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    umf_board_retire(&share->board, slot, last);
    EXPECT_EQ(umf_board_claim(&share->board, &slot, &generation), UMF_RESULT_SUCCESS);
    EXPECT_EQ(generation, last + 1);
    umf_os_share_destroy(share);
}

/* --- forks ------------------------------------------------------------------------------------ */

TEST(os, ChildDoesNotDisturbItsParentsFile) {
    std::string name = shm_name("fork");
    Os provider(Params().shared(name.c_str()));
    char *kept = provider.must_alloc(page), *both = provider.must_alloc(page);
    memset(kept, 'k', page);
    Os::Handle handle = provider.get(kept, page);
    int fds[2], go[2];
    ASSERT_EQ(pipe(fds), 0);
    ASSERT_EQ(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = provider.free(kept, page) == UMF_RESULT_SUCCESS;
        char *own = provider.must_alloc(page);
        ok = ok && own && own[0] == 0;
        strcpy(own, "from the child");
        strcpy(both, "seen by both");
        Os::Handle mine = provider.get(own, page), none = mine;
        ok = ok && provider.ops->ext_get_ipc_handle(provider.self, both, page, none.data()) ==
                       UMF_RESULT_ERROR_INVALID_ARGUMENT;
        ok = ok && write(fds[1], mine.data(), mine.size()) == static_cast<ssize_t>(mine.size());
        char byte;
        ok = ok && read(go[0], &byte, 1) == 1; /* until the parent has looked */
        ok = ok && provider.free(own, page) == UMF_RESULT_SUCCESS;
        ok = ok && umfOsMemoryProviderOps()->finalize(provider.self) == UMF_RESULT_SUCCESS;
        _exit(ok && exists(name) ? 0 : 1);
    }
    close(fds[1]);
    Os::Handle mine(provider.handle_size());
    ASSERT_EQ(read(fds[0], mine.data(), mine.size()), static_cast<ssize_t>(mine.size()));
    char *opened = provider.must_open(mine);
    EXPECT_STREQ(opened, "from the child");
    EXPECT_STREQ(both, "seen by both");
    EXPECT_TRUE(all_are(kept, page, 'k')) << "dropped by the child's free";
    char *fresh = provider.must_alloc(page);
    EXPECT_STRNE(fresh, "from the child");
    EXPECT_EQ(provider.close(provider.must_open(handle), page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.close(opened, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(write(go[1], "x", 1), 1);
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    for (int fd : {fds[0], go[0], go[1]}) {
        close(fd);
    }
    EXPECT_TRUE(exists(name)) << "removed by the child";
    EXPECT_EQ(provider.close(provider.must_open(handle), page), UMF_RESULT_SUCCESS);
}

/* --- threads ---------------------------------------------------------------------------------- */

TEST(os, ManyThreadsShare) {
    size_t descriptors = count_open_descriptors();
    size_t mappings = count_mappings("memfd:umf");
    {
        Os provider(Params().shared()), consumer(Params().shared());
        char *common = provider.must_alloc(page);
        Os::Handle common_handle = provider.get(common, page);
        run_threads(4, [&](int t) {
            for (size_t i = 0; i < 300; i++) {
                size_t size = (i % 7 + 1) * page;
                char *ptr = provider.must_alloc(size, i % 5 ? 0 : 2 * page);
                ASSERT_TRUE(all_are(ptr, size, 0));
                memset(ptr, 'a' + t, size);
                char *opened = consumer.must_open(provider.get(ptr, size));
                char *second = consumer.must_open(common_handle);
                ASSERT_TRUE(all_are(opened, size, static_cast<char>('a' + t)));
                ASSERT_EQ(consumer.close(second, page), UMF_RESULT_SUCCESS);
                ASSERT_EQ(consumer.close(opened, size), UMF_RESULT_SUCCESS);
                ASSERT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
            }
        });
        EXPECT_EQ(provider.allocated(), page);
        EXPECT_EQ(provider.free(common, page), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_mappings("memfd:umf"), mappings);
}

/* --- failures --------------------------------------------------------------------------------- */

namespace {

/* All a provider does, checked only for what holds when any one call fails. */
void exercise(const std::string &name, bool shared, const fault::Nth &nth) {
    const umf_memory_provider_ops_t *ops = umfOsMemoryProviderOps();
    umf_os_memory_provider_params_handle_t params;
    void *self = nullptr, *consumer = nullptr, *ptr = nullptr, *opened = nullptr;
    if (umfOsMemoryProviderParamsCreate(&params) != UMF_RESULT_SUCCESS) {
        return;
    }
    if (shared) {
        umfOsMemoryProviderParamsSetVisibility(params, UMF_MEM_MAP_SHARED);
        umfOsMemoryProviderParamsSetShmName(params, name.c_str());
    }
    umf_result_t result = ops->initialize(params, &self);
    umf_result_t other = ops->initialize(params, &consumer);
    umfOsMemoryProviderParamsDestroy(params);
    for (size_t size : {page, 3 * MiB}) {
        if (result == UMF_RESULT_SUCCESS &&
            ops->alloc(self, size, 2 * page, &ptr) == UMF_RESULT_SUCCESS) {
            char data[1024];
            if (shared && other == UMF_RESULT_SUCCESS &&
                ops->ext_get_ipc_handle(self, ptr, size, data) == UMF_RESULT_SUCCESS &&
                ops->ext_open_ipc_handle(consumer, data, &opened) == UMF_RESULT_SUCCESS) {
                *static_cast<char *>(opened) = 'x';
                ASSERT_EQ(*static_cast<char *>(ptr), 'x');
                ASSERT_EQ(ops->ext_close_ipc_handle(consumer, opened, size), UMF_RESULT_SUCCESS);
            }
            umf_result_t split = ops->ext_allocation_split(self, ptr, size, page);
            bool is_split = split == UMF_RESULT_SUCCESS && size > page;
            ASSERT_EQ(ops->free(self, ptr, is_split ? page : size), UMF_RESULT_SUCCESS);
            if (is_split) {
                ASSERT_EQ(ops->free(self, static_cast<char *>(ptr) + page, size - page),
                          UMF_RESULT_SUCCESS);
            }
        }
    }
    ASSERT_TRUE((result == UMF_RESULT_SUCCESS && other == UMF_RESULT_SUCCESS) || nth.hit());
    if (result == UMF_RESULT_SUCCESS) {
        ASSERT_EQ(ops->finalize(self), UMF_RESULT_SUCCESS);
    }
    if (other == UMF_RESULT_SUCCESS) {
        ASSERT_EQ(ops->finalize(consumer), UMF_RESULT_SUCCESS);
    }
}

} // namespace

TEST(os, EveryFailureLeavesNothing) {
    std::string name = shm_name("faults");
    for (const auto &kind :
         {std::pair{false, std::string()}, {true, std::string()}, {true, name}}) {
        size_t mappings = count_mappings("memfd:umf");
        int runs = expect_failures_leave_nothing(
            [&](const fault::Nth &nth) { exercise(kind.second, kind.first, nth); },
            [&] {
                EXPECT_EQ(count_mappings("memfd:umf"), mappings);
                EXPECT_EQ(count_mappings(name), 0u);
                unlink(shm_path(name).c_str()); /* a failed look at the name leaves it */
            });
        EXPECT_GT(runs, kind.first ? 20 : 3);
    }
}

/* A free that the system refuses leaves the memory allocated, and the export alive. */
TEST(os, FailedUnmapKeepsTheMemory) {
    Os provider(Params().shared()), consumer(Params().shared());
    char *ptr = provider.must_alloc(page);
    Os::Handle handle = provider.get(ptr, page);
    char *opened = consumer.must_open(handle);
    {
        fault::Nth nth("unmap", ENOMEM);
        nth.next();
        EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    }
    EXPECT_EQ(provider.native_text(),
              std::string("memory deallocation failed: ") + strerror(ENOMEM));
    EXPECT_EQ(provider.allocated(), page);
    {
        fault::Nth nth("unmap", ENOMEM);
        nth.next();
        EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    }
    opened[1] = 'y';
    EXPECT_EQ(ptr[1], 'y');
    EXPECT_EQ(consumer.close(opened, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.close(consumer.must_open(handle), page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
}

/* What cannot be cleared is never handed out again: fresh memory reads as zero. */
TEST(os, RangeThatCannotBeClearedIsNotUsedAgain) {
    Os provider(Params().shared());
    char *ptr = provider.must_alloc(page);
    memset(ptr, 'x', page);
    {
        fault::Nth nth("punch", EIO);
        nth.next();
        EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
        EXPECT_TRUE(nth.hit());
    }
    std::vector<char *> all;
    for (int i = 0; i < 100; i++) {
        all.push_back(provider.must_alloc(page));
        ASSERT_TRUE(all_are(all.back(), page, 0));
    }
    for (char *p : all) {
        EXPECT_EQ(provider.free(p, page), UMF_RESULT_SUCCESS);
    }
}

TEST(os, FailedBindingReleasesTheMemory) {
    Params params;
    unsigned node = 0;
    umfOsMemoryProviderParamsSetNumaMode(params.handle, UMF_NUMA_MODE_BIND);
    umfOsMemoryProviderParamsSetNumaList(params.handle, &node, 1);
    Os provider(params);
    void *ptr = nullptr;
    const size_t before = address_space();
    for (int i = 0; i < 200; i++) {
        fault::Nth nth("mbind", EPERM);
        nth.next();
        EXPECT_EQ(provider.alloc(MiB, 0, &ptr), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider.native(), UMF_OS_RESULT_ERROR_BIND_FAILED);
        EXPECT_EQ(ptr, nullptr);
        EXPECT_EQ(provider.allocated(), 0u);
    }
    EXPECT_LT(address_space(), before + 50 * MiB) << "of 200";
}
