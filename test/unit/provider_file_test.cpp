/* providers/file/file through its ops table: a file that grows, full disks, and sharing by path. */
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/text.h>

#include "fakes/threads.h"

#include "provider_checks.h"

extern "C" {
#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/file/locator.h"
#include "providers/file/path.h"
extern const umf_memory_provider_descriptor_t umf_file_descriptor;

#define UMF_PARAMS_TABLE "providers/file/file_params.def"
typedef struct umf_file_memory_provider_params_t {
#include "ctl/params_members.h"
} umf_file_params_t;
}

namespace {

constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30;
const size_t page = umf_os_page_size();

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t UNKNOWN = UMF_RESULT_ERROR_UNKNOWN;
constexpr umf_result_t SPECIFIC = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;

/* A folder of this test, removed with all that is in it. Not in /tmp, which may lie in memory. */
class Folder {
  public:
    std::string path;
    Folder() {
        const char *tmp = getenv("TMPDIR");
        path = std::string(tmp ? tmp : "/var/tmp") + "/umf_file_XXXXXX";
        EXPECT_NE(mkdtemp(path.data()), nullptr);
    }
    ~Folder() {
        umount2(mounted().c_str(), MNT_DETACH);
        EXPECT_EQ(system(("rm -rf " + path).c_str()), 0);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    std::string operator/(const std::string &name) const {
        return path + "/" + name;
    }
    std::string mounted() const {
        return path + "/mounted";
    }
    /* A small disk at `mounted`; false if this user may not make one. */
    bool mount_disk(size_t size) {
        std::string options = "size=" + std::to_string(size);
        return mkdir(mounted().c_str(), 0700) == 0 &&
               mount("umf_test", mounted().c_str(), "tmpfs", 0, options.c_str()) == 0;
    }
};

class Params {
  public:
    umf_file_memory_provider_params_handle_t handle = nullptr;
    explicit Params(const std::string &path, bool shared = false) {
        EXPECT_EQ(umfFileMemoryProviderParamsCreate(path.c_str(), &handle), OK);
        if (shared) {
            EXPECT_EQ(umfFileMemoryProviderParamsSetVisibility(handle, UMF_MEM_MAP_SHARED), OK);
        }
    }
    ~Params() {
        EXPECT_EQ(umfFileMemoryProviderParamsDestroy(handle), OK);
    }
    Params &protection(unsigned flags) {
        EXPECT_EQ(umfFileMemoryProviderParamsSetProtection(handle, flags), OK);
        return *this;
    }
};

class File : public Provider {
  public:
    explicit File(const Params &params) : Provider(umfFileMemoryProviderOps(), params.handle) {}
    explicit File(const std::string &path, bool shared = true) : File(Params(path, shared)) {}

    size_t page_size() const {
        size_t size = 0;
        EXPECT_EQ(ops->get_min_page_size(self, nullptr, &size), OK);
        return size;
    }
    umf_result_t purge(void *ptr, size_t size) const {
        return ops->ext_purge_force(self, ptr, size);
    }
};

umf_result_t initialize(const Params &params) {
    return try_provider(umfFileMemoryProviderOps(), params.handle);
}

umf_result_t initialize(const std::string &path, bool shared = false) {
    return initialize(Params(path, shared));
}

struct stat stat_of(const std::string &path) {
    struct stat st = {};
    EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
    return st;
}
size_t length_of(const std::string &path) {
    return static_cast<size_t>(stat_of(path).st_size);
}
size_t space_of(const std::string &path) {
    return static_cast<size_t>(stat_of(path).st_blocks) * 512;
}

void write_file(const std::string &path, const std::string &content, size_t length) {
    std::ofstream(path) << content;
    EXPECT_EQ(truncate(path.c_str(), static_cast<off_t>(length)), 0);
}
std::string read_file(const std::string &path, size_t length) {
    std::string content(length, '\0');
    std::ifstream(path).read(content.data(), static_cast<std::streamsize>(length));
    return content;
}

/* Log lines of the library in its lifetime. */
class Log {
    Folder folder;

  public:
    Log() {
        EXPECT_EQ(umf_log_set_output((folder / "log").c_str()), OK);
    }
    ~Log() {
        umf_log_set_output("/dev/null");
    }
    std::string text() {
        std::ifstream file(folder / "log");
        return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
};

/* Makes every file DAX. */
class Dax {
  public:
    Dax() {
        umf_os_set_dax_dir("/nowhere");
    }
    ~Dax() {
        umf_os_set_dax_dir(nullptr);
    }
};

/* Both visibilities. */
class file : public testing::Test {
  protected:
    Folder folder;
    std::string path = folder / "memory";
};

} // namespace

/* --- parameters and creation ------------------------------------------------------------------ */

TEST_F(file, ParamsCheckTheirArguments) {
    umf_file_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFileMemoryProviderParamsCreate(nullptr, &params), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsCreate("", &params), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsCreate("x", nullptr), BAD);
    EXPECT_EQ(params, nullptr) << "the output is untouched";
    ASSERT_EQ(umfFileMemoryProviderParamsCreate("x", &params), OK);
    EXPECT_EQ(umfFileMemoryProviderParamsSetPath(params, nullptr), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsSetPath(params, ""), BAD);
    EXPECT_STREQ(params->path, "x");
    EXPECT_EQ(umfFileMemoryProviderParamsSetPath(params, "other"), OK);
    EXPECT_STREQ(params->path, "other");
    EXPECT_EQ(umfFileMemoryProviderParamsSetProtection(params, UINT_MAX), OK)
        << "checked at creation";
    EXPECT_EQ(umfFileMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfFileMemoryProviderParamsDestroy(nullptr), OK);
}

TEST_F(file, Defaults) {
    Params params(path);
    EXPECT_EQ(params.handle->protection, unsigned{UMF_PROTECTION_READ | UMF_PROTECTION_WRITE});
    EXPECT_EQ(params.handle->visibility, UMF_MEM_MAP_PRIVATE);
    EXPECT_STREQ(params.handle->name, "FILE");
}

TEST_F(file, CreationChecks) {
    void *provider = nullptr;
    EXPECT_EQ(umfFileMemoryProviderOps()->initialize(nullptr, &provider), BAD);
    for (unsigned protection : {16u, UINT_MAX, 3u | 64u}) {
        EXPECT_EQ(initialize(Params(path).protection(protection)), BAD);
    }
    for (int visibility : {0, 3}) {
        Params params(path);
        umfFileMemoryProviderParamsSetVisibility(params.handle,
                                                 static_cast<umf_memory_visibility_t>(visibility));
        EXPECT_EQ(initialize(params), BAD);
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0) << "a refused creation makes no file";
    for (unsigned protection = 0; protection < 16; protection++) {
        EXPECT_EQ(initialize(Params(path).protection(protection)), OK) << protection;
        EXPECT_EQ(initialize(Params(path, true).protection(protection)), OK) << protection;
    }
}

TEST_F(file, MakesAFileOf2MiBForItsUserAlone) {
    mode_t mask = umask(0);
    EXPECT_EQ(initialize(path), OK);
    umask(mask);
    EXPECT_EQ(stat_of(path).st_mode, mode_t{S_IFREG | 0600});
    EXPECT_EQ(length_of(path), 2 * MiB);
    EXPECT_GE(space_of(path), 2 * MiB) << "space that is not there is no space";
}

TEST_F(file, WhatCannotBeOpened) {
    Log log;
    EXPECT_EQ(initialize(folder / "no/folder"), BAD);
    EXPECT_NE(log.text().find("the folder must exist"), std::string::npos) << log.text();
    for (size_t length : {PATH_MAX - 1, PATH_MAX, PATH_MAX + 1, 20 * PATH_MAX}) {
        EXPECT_EQ(initialize(std::string(length, 'p')), BAD) << length;
    }
    EXPECT_EQ(initialize(folder / std::string(NAME_MAX + 1, 'n')), BAD);
    EXPECT_EQ(initialize(folder.path), BAD) << "a folder";
    EXPECT_EQ(initialize("/dev/zero"), BAD);
    ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
    EXPECT_EQ(initialize(folder / "fifo"), BAD);
    EXPECT_NE(log.text().find("not a regular file"), std::string::npos) << log.text();
    EXPECT_NE(initialize("/proc/self/status"), OK) << "looks like a file, cannot be written";
}

TEST_F(file, PathsThatAreCutDoNotNameAnotherFile) {
    /* The longest path there can be, and one that has it as its beginning. */
    std::string longest = folder.path;
    while (longest.size() < PATH_MAX - 1) {
        longest += longest.size() % 2 ? "/." : "//";
    }
    longest.resize(PATH_MAX - 1);
    longest[PATH_MAX - 2] = 'x';
    EXPECT_EQ(initialize(longest), OK);
    EXPECT_EQ(initialize(longest + "/"), BAD);
    EXPECT_EQ(initialize(longest + "yz"), BAD);
}

TEST_F(file, ReadOnlyFileSystem) {
    if (!folder.mount_disk(4 * MiB) ||
        mount(nullptr, folder.mounted().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
        GTEST_SKIP() << "only root can mount a read-only file system";
    }
    Log log;
    EXPECT_EQ(initialize(folder / "mounted/memory"), BAD);
    EXPECT_NE(log.text().find("read-only"), std::string::npos) << log.text();
}

TEST_F(file, AnExistingFileKeepsLengthAndContent) {
    write_file(path, "old content", 5 * MiB);
    {
        File provider(path);
        char *ptr = provider.must_alloc(page);
        EXPECT_STREQ(ptr, "old content");
        EXPECT_EQ(length_of(path), 5 * MiB);
        provider.must_alloc(3 * MiB);
    }
    EXPECT_EQ(length_of(path), 5 * MiB);
    EXPECT_EQ(read_file(path, 11), "old content");
    EXPECT_EQ(initialize(path), OK);
    EXPECT_EQ(length_of(path), 5 * MiB);

    write_file(path, "short", 5);
    EXPECT_EQ(initialize(path), OK);
    EXPECT_EQ(length_of(path), 2 * MiB);
    EXPECT_EQ(read_file(path, 5), "short");
}

TEST_F(file, Facts) {
    Params params(path);
    EXPECT_EQ(umfFileMemoryProviderParamsSetName(params.handle, std::string(99, 'n').c_str()), OK);
    File provider(params);
    expect_facts(provider, page, GiB, 64, std::string(63, 'n'), "FILE");
    EXPECT_EQ(provider.ops->ext_purge_lazy, nullptr);
}

TEST_F(file, ParamsFromText) {
    EXPECT_STREQ(umf_file_descriptor.name, "file");
    auto look = [&](const umf_file_params_t &params) {
        EXPECT_STREQ(params.path, "/tmp/a b");
        EXPECT_EQ(params.visibility, UMF_MEM_MAP_SHARED);
        EXPECT_EQ(params.protection, unsigned{UMF_PROTECTION_READ});
        EXPECT_STREQ(params.name, "mine");
    };
    expect_params_of_text<umf_file_params_t>(
        umf_file_descriptor, "path=\"/tmp/a b\",visibility=shared,protection=read,name=mine", look,
        {"path=", "visibility=half", "protection=fly", "size=1"});
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText("file", &provider), BAD) << "without a path";
    ASSERT_EQ(umfMemoryProviderCreateFromText(("file:path=" + path).c_str(), &provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

/* --- allocating: the rules of carve are tested with the fixed provider ------------------------ */

TEST_F(file, SizesAndAlignments) {
    for (bool shared : {false, true}) {
        path += "x";
        File provider(path, shared);
        void *ptr = nullptr;
        EXPECT_EQ(provider.alloc(0, 0, &ptr), BAD);
        EXPECT_EQ(provider.alloc(SIZE_MAX, 0, &ptr), BAD) << "its rounding overflows";
        EXPECT_EQ(provider.alloc(SIZE_MAX - page + 2, 0, &ptr), BAD);
        for (size_t size : {SIZE_MAX - page + 1, SIZE_MAX / 2, size_t{1} << 62, size_t{1} << 48,
                            size_t{1} << 45}) {
            EXPECT_EQ(provider.alloc(size, 0, &ptr), UNKNOWN) << size;
        }
        EXPECT_EQ(provider.alloc(page, size_t{1} << 63, &ptr), UNKNOWN);
        for (size_t alignment : {size_t{3}, page + 8, 3 * page, page + page / 2}) {
            EXPECT_EQ(provider.alloc(page, alignment, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
        }
        EXPECT_EQ(ptr, nullptr);
        EXPECT_EQ(length_of(path), 2 * MiB) << "what cannot be has not used the disk";
        std::vector<std::pair<char *, size_t>> all;
        for (size_t alignment = 1; alignment <= 16 * MiB; alignment *= 2) {
            for (size_t size : {size_t{1}, page, 3 * page, 2 * MiB + 1}) {
                char *got = provider.must_alloc(size, alignment);
                ASSERT_EQ(reinterpret_cast<uintptr_t>(got) % alignment, 0u) << size;
                ASSERT_EQ(reinterpret_cast<uintptr_t>(got) % page, 0u);
                got[0] = got[size - 1] = 'x';
                all.push_back({got, size});
            }
        }
        for (auto [got, size] : all) {
            EXPECT_EQ(provider.free(got, size), OK);
        }
        EXPECT_EQ(provider.allocated(), 0u);
    }
}

TEST_F(file, FreeChecksWhatItIsGiven) {
    File provider(path);
    char *ptr = provider.must_alloc(2 * page);
    EXPECT_EQ(provider.free(nullptr, 0), OK);
    EXPECT_EQ(provider.free(ptr + page, page), BAD);
    EXPECT_EQ(provider.free(ptr, page), BAD);
    EXPECT_EQ(provider.free(&provider, 0), BAD);
    EXPECT_EQ(provider.free(ptr, 2 * page), OK);
    EXPECT_EQ(provider.free(ptr, 2 * page), BAD);
    EXPECT_EQ(provider.free(provider.must_alloc(100), 0), OK);
    EXPECT_EQ(provider.allocated(), 0u);
    EXPECT_EQ(provider.peak(), 2 * page);
}

TEST_F(file, FreedSpaceIsUsedAgain) {
    File provider(path);
    for (int i = 0; i < 1000; i++) {
        char *ptr = provider.must_alloc(MiB);
        memset(ptr, i, 3 * page);
        ASSERT_EQ(provider.free(ptr, MiB), OK);
    }
    EXPECT_EQ(length_of(path), 2 * MiB);
}

TEST_F(file, GrowsInOnePiece) {
    for (bool shared : {false, true}) {
        File provider(path, shared);
        char *first = provider.must_alloc(page), *last = first;
        for (size_t i = 1; i < 40000; i++) { /* 156 MiB, many steps */
            char *ptr = provider.must_alloc(page);
            ASSERT_EQ(ptr, last + page) << i;
            ptr[0] = static_cast<char>(i);
            last = ptr;
        }
        for (size_t i = 1; i < 40000; i++) {
            ASSERT_EQ(first[i * page], static_cast<char>(i));
            ASSERT_EQ(provider.merge(first, first + i * page, (i + 1) * page), OK);
        }
        EXPECT_EQ(provider.free(first, 40000 * page), OK);
        EXPECT_EQ(provider.must_alloc(40000 * page), first) << "joined across the steps";
        EXPECT_LE(length_of(path), 40000 * page + 64 * MiB) << "steps are bounded";
        EXPECT_LE(count_mappings(path), 4u) << "steps are one mapping";
    }
}

TEST_F(file, LargeAllocationsUseTheFreeEnd) {
    File provider(path);
    char *small = provider.must_alloc(page);
    char *large = provider.must_alloc(100 * MiB);
    EXPECT_EQ(large, small + page);
    EXPECT_LE(length_of(path), 102 * MiB);
    large[0] = large[100 * MiB - 1] = 'x';
    EXPECT_EQ(provider.free(small, page), OK);
    EXPECT_EQ(provider.free(large, 100 * MiB), OK);
    EXPECT_EQ(provider.must_alloc(102 * MiB), small);
    EXPECT_LE(length_of(path), 102 * MiB);
}

/* More than one window: nothing is lost, nothing is confused. */
TEST_F(file, GrowsBeyondAWindow) {
    File provider(path);
    char *small = provider.must_alloc(page);
    memset(small, 's', page);
    std::vector<char *> all;
    for (int i = 0; i < 5; i++) {
        all.push_back(provider.must_alloc(600 * MiB));
        all.back()[0] = all.back()[600 * MiB - 1] = static_cast<char>('a' + i);
    }
    char *huge = provider.must_alloc(5 * GiB);
    huge[5 * GiB - 1] = 'h';
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(all[static_cast<size_t>(i)][0], 'a' + i);
        File::Handle handle = provider.get(all[static_cast<size_t>(i)], 600 * MiB);
        char *opened = provider.must_open(handle);
        EXPECT_EQ(opened[0], 'a' + i);
        EXPECT_EQ(opened[600 * MiB - 1], 'a' + i);
        EXPECT_EQ(provider.close(opened, 600 * MiB), OK);
        EXPECT_EQ(provider.free(all[static_cast<size_t>(i)], 600 * MiB), OK);
    }
    EXPECT_TRUE(all_are(small, page, 's'));
    EXPECT_EQ(provider.purge(huge + 4 * GiB, GiB), OK);
    EXPECT_EQ(huge[5 * GiB - 1], 0);
    EXPECT_EQ(provider.free(huge, 5 * GiB), OK);
    EXPECT_EQ(provider.free(small, page), OK);
}

TEST_F(file, LittleAddressSpace) {
    EXPECT_TRUE(in_child([&] {
        struct rlimit limit = {address_space() + 700 * MiB, RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit) != 0) {
            return false;
        }
        File provider(path);
        char *a = provider.must_alloc(100 * MiB), *b = provider.must_alloc(100 * MiB);
        a[100 * MiB - 1] = b[100 * MiB - 1] = 'x';
        void *ptr = nullptr;
        return provider.alloc(GiB, 0, &ptr) == UNKNOWN && provider.free(a, 100 * MiB) == OK &&
               provider.free(b, 100 * MiB) == OK && provider.alloc(page, 0, &ptr) == OK;
    }));
}

TEST_F(file, SplitAndMerge) {
    File provider(path);
    char *ptr = provider.must_alloc(4 * MiB);
    EXPECT_EQ(provider.split(ptr, 3 * MiB, MiB), BAD);
    EXPECT_EQ(provider.split(ptr + page, MiB, page), BAD);
    ASSERT_EQ(provider.split(ptr, 4 * MiB, MiB), OK);
    ASSERT_EQ(provider.split(ptr + MiB, 3 * MiB, MiB), OK);
    EXPECT_EQ(provider.merge(ptr, ptr + 2 * MiB, 3 * MiB), BAD);
    ASSERT_EQ(provider.merge(ptr, ptr + MiB, 2 * MiB), OK);
    EXPECT_EQ(provider.free(ptr + 2 * MiB, 2 * MiB), OK);
    EXPECT_EQ(provider.free(ptr, 2 * MiB), OK);
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST_F(file, PrivateMemoryDoesNotReachTheFile) {
    {
        File private_one(path, false);
        memset(private_one.must_alloc(page), 'p', page);
        EXPECT_EQ(read_file(path, 1), std::string(1, '\0'));
        File shared_one(path, true);
        memset(shared_one.must_alloc(page), 's', page);
        EXPECT_EQ(read_file(path, page), std::string(page, 's'));
    }
    EXPECT_EQ(read_file(path, page), std::string(page, 's')) << "stays after the end";
}

TEST_F(file, Protection) {
    for (bool shared : {false, true}) {
        expect_protections(3 * MiB, [&](unsigned flags, auto &body) {
            body(File(Params(path, shared).protection(flags)));
        });
    }
}

TEST_F(file, PurgeDropsWholePagesAndKeepsTheirSpace) {
    for (bool shared : {false, true}) {
        File provider(path, shared);
        char *ptr = provider.must_alloc(MiB);
        memset(ptr, 'x', MiB);
        ASSERT_EQ(provider.purge(ptr + 1, 4 * page), OK);
        EXPECT_TRUE(all_are(ptr, page, 'x'));
        EXPECT_TRUE(all_are(ptr + page, 3 * page, 0));
        EXPECT_TRUE(all_are(ptr + 4 * page, MiB - 4 * page, 'x'));
        EXPECT_EQ(provider.purge(ptr + 1, page), OK) << "no whole page in it";
        EXPECT_GE(space_of(path), 2 * MiB);
        for (auto [start, size] : {std::pair{ptr, GiB},
                                   {reinterpret_cast<char *>(&provider), page},
                                   {ptr, SIZE_MAX},
                                   {ptr + 512 * MiB, page}}) {
            EXPECT_EQ(provider.purge(start, size), SPECIFIC);
            EXPECT_EQ(provider.native(), UMF_FILE_RESULT_ERROR_PURGE_FORCE_FAILED);
        }
        fault::Nth nth(shared ? "zero" : "advise", EPERM);
        nth.next();
        EXPECT_EQ(provider.purge(ptr, MiB), SPECIFIC);
        EXPECT_EQ(provider.native_text(), std::string("force purging failed: ") + strerror(EPERM));
    }
}

/* Space that is punched out may be taken by another program before it is reserved again. */
TEST_F(file, PurgeWhereRangesCannotBeZeroedKeepsTheirSpace) {
    File provider(path);
    char *ptr = provider.must_alloc(MiB);
    memset(ptr, 'x', MiB);
    umf_os_set_fault([](const char *call) {
        return strcmp(call, "zero") == 0 ? EOPNOTSUPP : strcmp(call, "allocate") == 0 ? ENOSPC : 0;
    });
    EXPECT_EQ(provider.purge(ptr + 1, MiB - page), OK);
    umf_os_set_fault(nullptr);
    EXPECT_TRUE(all_are(ptr, page, 'x'));
    EXPECT_TRUE(all_are(ptr + page, MiB - 2 * page, 0));
    EXPECT_TRUE(all_are(ptr + MiB - page, page, 'x'));
    EXPECT_GE(space_of(path), 2 * MiB);
    for (const char *call : {"write_at", "meta_alloc"}) {
        static const char *failing;
        failing = call;
        umf_os_set_fault([](const char *name) {
            return strcmp(name, "zero") == 0 ? EOPNOTSUPP : strcmp(name, failing) == 0 ? ENOMEM : 0;
        });
        EXPECT_EQ(provider.purge(ptr, MiB), SPECIFIC) << call;
        umf_os_set_fault(nullptr);
        EXPECT_GE(space_of(path), 2 * MiB);
    }
}

TEST_F(file, DestroyUnmapsAndKeepsTheFile) {
    size_t descriptors = count_open_descriptors();
    size_t addresses = address_space();
    for (int i = 0; i < 100; i++) {
        File provider(path);
        provider.must_alloc(3 * MiB)[0] = 'x';
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_mappings(path), 0u);
    EXPECT_LT(address_space(), addresses + GiB);
    EXPECT_EQ(read_file(path, 1), "x");
}

/* --- full disks ------------------------------------------------------------------------------- */

namespace {

/* Takes all there is by pages; every page is written. */
std::vector<char *> fill(const File &provider) {
    std::vector<char *> all;
    void *ptr = nullptr;
    umf_result_t result;
    while ((result = provider.alloc(page, 0, &ptr)) == OK) {
        all.push_back(static_cast<char *>(ptr));
        memset(ptr, static_cast<int>(all.size()), page);
    }
    EXPECT_EQ(result, UNKNOWN);
    return all;
}

void expect_filled(const std::vector<char *> &all) {
    for (size_t i = 0; i < all.size(); i++) {
        ASSERT_TRUE(all_are(all[i], page, static_cast<char>(i + 1))) << i;
    }
}

} // namespace

TEST_F(file, FullDiskLosesNothing) {
    if (!folder.mount_disk(8 * MiB)) {
        GTEST_SKIP() << "only root can mount a small disk";
    }
    std::string on_disk = folder / "mounted/memory", other = folder / "mounted/other";
    write_file(other, "", 0);
    { std::ofstream(other) << std::string(2 * MiB, 'o'); }
    Log log;
    {
        File provider(on_disk);
        std::vector<char *> all = fill(provider);
        EXPECT_GE(all.size(), 5 * MiB / page) << "the disk was used up to its end";
        expect_filled(all);
        std::string text = log.text();
        EXPECT_NE(text.find("disk full: growing \"" + on_disk + "\""), std::string::npos) << text;
        EXPECT_NE(text.find("free space on its file system and try again"), std::string::npos);
        EXPECT_NE(text.find(strerror(ENOSPC)), std::string::npos) << text;

        void *ptr = nullptr;
        EXPECT_EQ(provider.alloc(GiB, 0, &ptr), UNKNOWN);
        EXPECT_EQ(ptr, nullptr);
        EXPECT_EQ(provider.free(all.back(), page), OK);
        EXPECT_EQ(provider.alloc(page, 0, &ptr), OK) << "freed memory is there all the same";
        EXPECT_EQ(ptr, all.back());
        memset(ptr, static_cast<int>(all.size()), page);

        ASSERT_EQ(unlink(other.c_str()), 0); /* room is made */
        char *more = provider.must_alloc(MiB);
        memset(more, 'm', MiB);
        expect_filled(all);
        EXPECT_TRUE(all_are(more, MiB, 'm'));
        EXPECT_EQ(more, all.back() + page) << "in one piece with the old pages";
    }
    EXPECT_EQ(initialize(folder / "mounted/memory"), OK);
}

TEST_F(file, DiskThatIsFullAtCreation) {
    if (!folder.mount_disk(MiB)) {
        GTEST_SKIP() << "only root can mount a small disk";
    }
    Log log;
    EXPECT_EQ(initialize(folder / "mounted/memory"), UNKNOWN);
    EXPECT_NE(log.text().find("disk full"), std::string::npos) << log.text();
}

TEST_F(file, HolesOfALongerFileGetTheirSpaceFirst) {
    if (!folder.mount_disk(4 * MiB)) {
        GTEST_SKIP() << "only root can mount a small disk";
    }
    std::string on_disk = folder / "mounted/memory";
    write_file(on_disk, "content", GiB); /* one page of it has space */
    File provider(on_disk);
    std::vector<char *> all = fill(provider);
    EXPECT_GE(all.size(), 3 * MiB / page);
    expect_filled(all);
    EXPECT_EQ(length_of(on_disk), GiB);
}

/* The same without a disk of our own, with the errors a file system can give. */
TEST_F(file, GrowthThatFailsAndWorksLater) {
    const struct {
        int error;
        const char *text;
    } cases[] = {
        {ENOSPC, "disk full: growing"},
        {EDQUOT, "disk full for this user (quota)"},
        {EROFS, "has become read-only"},
        {EFBIG, "ulimit -f"},
        {EIO, "growing"},
    };
    static int error;
    for (const auto &c : cases) {
        Log log;
        File provider(path);
        char *first = provider.must_alloc(2 * MiB);
        memset(first, 'f', 2 * MiB);
        error = c.error;
        umf_os_set_fault([](const char *call) { return strcmp(call, "allocate") ? 0 : error; });
        void *ptr = nullptr;
        EXPECT_EQ(provider.alloc(page, 0, &ptr), UNKNOWN);
        umf_os_set_fault(nullptr);
        EXPECT_NE(log.text().find(c.text), std::string::npos) << log.text();
        EXPECT_NE(log.text().find(path), std::string::npos) << log.text();
        EXPECT_TRUE(all_are(first, 2 * MiB, 'f'));
        EXPECT_EQ(provider.must_alloc(page), first + 2 * MiB);
    }
}

/* Many file systems fill the disk to its last byte before they say that it is full. */
TEST_F(file, WhatCannotFitIsNotTried) {
    File provider(path);
    static int tries;
    tries = 0;
    umf_os_set_fault([](const char *call) {
        tries += strcmp(call, "allocate") == 0;
        return 0;
    });
    void *ptr = nullptr;
    EXPECT_EQ(provider.alloc(size_t{1} << 45, 0, &ptr), UNKNOWN);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(tries, 0);
}

/* Disk space that a failed step took is released, and nothing else. */
TEST_F(file, FailedStepsGiveBackWhatTheyTook) {
    static int punches;
    auto fail = [](const char *call) {
        punches += strcmp(call, "punch") == 0;
        return strcmp(call, "allocate") ? 0 : EIO;
    };
    void *ptr = nullptr;
    File provider(path);
    punches = 0;
    umf_os_set_fault(fail);
    EXPECT_EQ(provider.alloc(9 * MiB, 0, &ptr), UNKNOWN);
    umf_os_set_fault(nullptr);
    EXPECT_GT(punches, 0);

    std::string longer = folder / "longer";
    std::ofstream(longer) << std::string(20 * MiB, 'u');
    File over_content(longer);
    punches = 0;
    umf_os_set_fault(fail);
    EXPECT_EQ(over_content.alloc(9 * MiB, 0, &ptr), UNKNOWN);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(punches, 0) << "that is content of the file";
    EXPECT_EQ(read_file(longer, 20 * MiB), std::string(20 * MiB, 'u'));
}

/* A step that does not fit is not the end: the request itself may. */
TEST_F(file, SmallerStepsWhereTheDiskIsNearlyFull) {
    File provider(path);
    provider.must_alloc(2 * MiB);
    fault::Nth nth("allocate", ENOSPC);
    nth.next();
    provider.must_alloc(page);
    EXPECT_TRUE(nth.hit());
    EXPECT_EQ(length_of(path), 2 * MiB + page);
}

TEST_F(file, MappingThatFails) {
    File provider(path);
    char *first = provider.must_alloc(2 * MiB);
    memset(first, 'f', 2 * MiB);
    umf_os_set_fault([](const char *call) { return strcmp(call, "map") ? 0 : ENOMEM; });
    void *ptr = nullptr;
    EXPECT_EQ(provider.alloc(page, 0, &ptr), UNKNOWN);
    EXPECT_EQ(provider.alloc(2 * GiB, 0, &ptr), UNKNOWN);
    umf_os_set_fault(nullptr);
    EXPECT_TRUE(all_are(first, 2 * MiB, 'f'));
    char *next = provider.must_alloc(page);
    EXPECT_EQ(next, first + 2 * MiB);
    next[0] = 'n';
}

TEST_F(file, LimitOfFileSizesIsNoSignal) {
    EXPECT_TRUE(in_child([&] {
        struct rlimit limit = {4 * MiB, RLIM_INFINITY};
        File provider(path);
        void *ptr = nullptr;
        return setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
               provider.alloc(8 * MiB, 0, &ptr) == UNKNOWN &&
               provider.alloc(4 * MiB, 0, &ptr) == OK && provider.alloc(page, 0, &ptr) == UNKNOWN;
    }));
}

/* File systems without fallocate: the file gets its length, and stays longer if it is. */
TEST_F(file, FileSystemThatCannotSetSpaceAside) {
    umf_os_set_fault([](const char *call) { return strcmp(call, "allocate") ? 0 : EOPNOTSUPP; });
    {
        File provider(path);
        EXPECT_EQ(length_of(path), 2 * MiB);
        char *ptr = provider.must_alloc(9 * MiB);
        memset(ptr, 'x', 9 * MiB);
        EXPECT_GE(length_of(path), 9 * MiB);
        size_t length = length_of(path);
        EXPECT_EQ(initialize(path), OK);
        EXPECT_EQ(length_of(path), length);
    }
    umf_os_set_fault(nullptr);
}

/* --- FSDAX ------------------------------------------------------------------------------------ */

TEST_F(file, FsdaxHasPagesOf2MiB) {
    Dax dax;
    File shared_one(path, true), private_one(folder / "private", false);
    EXPECT_EQ(private_one.page_size(), page) << "private memory has nothing of it";
    EXPECT_EQ(shared_one.page_size(), 2 * MiB);
    char *a = shared_one.must_alloc(1), *b = shared_one.must_alloc(3 * MiB);
    EXPECT_EQ(b, a + 2 * MiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % (2 * MiB), 0u);
    EXPECT_EQ(length_of(path) % (2 * MiB), 0u);
    void *ptr = nullptr;
    EXPECT_EQ(shared_one.alloc(page, 3 * MiB, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    memset(a, 'a', 2 * MiB);
    memset(b, 'b', 4 * MiB);
    EXPECT_EQ(shared_one.purge(b + 1, 4 * MiB - 1), OK);
    EXPECT_TRUE(all_are(b, 2 * MiB, 'b')) << "only whole pages go";
    EXPECT_TRUE(all_are(b + 2 * MiB, 2 * MiB, 0));
    EXPECT_EQ(shared_one.free(b, 3 * MiB), OK);
    EXPECT_EQ(shared_one.free(a, 1), OK);
}

TEST_F(file, FsdaxSharesWholePages) {
    Dax dax;
    File provider(path), consumer(path);
    provider.must_alloc(2 * MiB);
    char *ptr = provider.must_alloc(4 * MiB);
    ptr[0] = 'a';
    ptr[MiB] = 'b';
    ptr[4 * MiB - 1] = 'c';
    ASSERT_EQ(provider.split(ptr, 4 * MiB, MiB), OK);
    File::Handle handle = provider.get(ptr + MiB, 3 * MiB);
    char *opened = consumer.must_open(handle);
    EXPECT_EQ(opened[0], 'b') << "the offset is not a page's";
    EXPECT_EQ(opened[3 * MiB - 1], 'c');
    EXPECT_EQ(opened[-static_cast<ptrdiff_t>(MiB)], 'a') << "the whole page was mapped";
    size_t mapped = count_mappings(path);
    EXPECT_EQ(consumer.close(opened, 3 * MiB), OK);
    EXPECT_LT(count_mappings(path), mapped);
    char *small = provider.must_alloc(100);
    EXPECT_EQ(consumer.close(consumer.must_open(provider.get(small, 100)), 100), OK);
}

/* --- sharing ---------------------------------------------------------------------------------- */

/* A consumer on the same path must not disturb its producer. */
TEST_F(file, ConsumerOfTheSamePath) {
    File provider(path);
    char *ptr = provider.must_alloc(20 * MiB);
    memset(ptr, 'p', 20 * MiB);
    File::Handle handle = provider.get(ptr, 20 * MiB);
    size_t length = length_of(path);
    EXPECT_TRUE(in_child([&] {
        File consumer(path);
        char *opened = consumer.must_open(handle);
        return all_are(opened, 20 * MiB, 'p') && consumer.close(opened, 20 * MiB) == OK;
    }));
    EXPECT_EQ(length_of(path), length);
    EXPECT_TRUE(all_are(ptr, 20 * MiB, 'p'));
}

TEST_F(file, HandlesAreEqualAndOfOneSize) {
    File provider(path);
    char *ptr = provider.must_alloc(page + 5);
    File::Handle handle = provider.get(ptr, page + 5);
    EXPECT_EQ(handle, provider.get(ptr, page + 5));
    EXPECT_EQ(handle.size(), umf_locator_size(path.c_str()));
    EXPECT_EQ(provider.get(provider.must_alloc(GiB), GiB).size(), handle.size());
}

TEST_F(file, RelativePathsTravelAsAbsoluteOnes) {
    char before[PATH_MAX];
    ASSERT_NE(getcwd(before, sizeof(before)), nullptr);
    ASSERT_EQ(chdir(folder.path.c_str()), 0);
    File provider(std::string("relative"));
    ASSERT_EQ(chdir(before), 0);
    char *ptr = provider.must_alloc(page);
    File consumer(path);
    EXPECT_EQ(consumer.close(consumer.must_open(provider.get(ptr, page)), page), OK);
}

TEST_F(file, OpenOfWhatIsNotThereAnyMore) {
    auto provider = std::make_unique<File>(path);
    File consumer(folder / "consumer");
    char *ptr = provider->must_alloc(8 * MiB);
    File::Handle handle = provider->get(ptr, 8 * MiB);
    size_t descriptors = count_open_descriptors();
    void *untouched = this, *opened = untouched;
    Log log;

    ASSERT_EQ(rename(path.c_str(), (folder / "moved").c_str()), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "no file";
    EXPECT_NE(log.text().find(path), std::string::npos) << log.text();
    write_file(path, "another", 16 * MiB);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "another file";
    EXPECT_NE(log.text().find("not the file that was described"), std::string::npos) << log.text();
    unlink(path.c_str());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "a fifo";
    unlink(path.c_str());
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "a folder";
    rmdir(path.c_str());
    ASSERT_EQ(symlink("/dev/zero", path.c_str()), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "a device";
    unlink(path.c_str());

    provider.reset();
    ASSERT_EQ(rename((folder / "moved").c_str(), path.c_str()), 0);
    char *again = consumer.must_open(handle);
    EXPECT_EQ(consumer.close(again, 8 * MiB), OK);
    ASSERT_EQ(truncate(path.c_str(), 8 * MiB - 1), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "too short: touching it would be a signal";
    EXPECT_NE(log.text().find("behind the end of the file"), std::string::npos) << log.text();
    EXPECT_EQ(opened, untouched);
    EXPECT_EQ(count_open_descriptors(), descriptors - 1);
}

TEST_F(file, FalseSizesAreNoticed) {
    auto check = umf_file_descriptor.ext->ipc_check;
    File provider(path);
    char *ptr = provider.must_alloc(page + 100);
    File::Handle handle = provider.get(ptr, page + 100);
    for (size_t size : {page + 100, 2 * page, page + 1}) {
        EXPECT_EQ(check(provider.self, handle.data(), size), OK) << size;
    }
    for (size_t size : {size_t{0}, size_t{1}, page, 2 * page + 1, SIZE_MAX}) {
        EXPECT_EQ(check(provider.self, handle.data(), size), BAD) << size;
    }
    /* A part that begins inside of a page: its page ends before the next does. */
    ASSERT_EQ(provider.split(ptr, page + 100, 1000), OK);
    handle = provider.get(ptr + 1000, page - 900);
    size_t part = 2 * page - 1000;
    EXPECT_EQ(check(provider.self, handle.data(), part), OK);
    EXPECT_EQ(check(provider.self, handle.data(), part + 1), BAD);
    char *opened = provider.must_open(handle);
    ptr[1000] = 'x';
    ptr[2 * page - 1] = 'y';
    EXPECT_EQ(opened[0], 'x');
    EXPECT_EQ(opened[part - 1], 'y');
    EXPECT_EQ(provider.close(opened, part), OK);
}

TEST_F(file, MappingOfAnOpenFails) {
    File provider(path);
    File::Handle handle = provider.get(provider.must_alloc(page), page);
    fault::Nth nth("map", ENOMEM);
    nth.next();
    void *opened = nullptr;
    EXPECT_EQ(provider.open(handle, &opened), SPECIFIC);
    EXPECT_EQ(provider.native(), UMF_FILE_RESULT_ERROR_ALLOC_FAILED);
    EXPECT_EQ(provider.native_text(), std::string("memory allocation failed: ") + strerror(ENOMEM));
    EXPECT_EQ(opened, nullptr);
}

/* --- pools ------------------------------------------------------------------------------------ */

/* --- threads and forks ------------------------------------------------------------------------ */

TEST_F(file, ManyThreads) {
    for (bool shared : {false, true}) {
        File provider(path, shared);
        run_threads<unsigned>(4, [&](unsigned t) {
            std::mt19937 random(t);
            std::vector<std::pair<char *, size_t>> live;
            for (int i = 0; i < 1500; i++) {
                size_t size = random() % (i % 50 ? 8 * page : 4 * MiB) + 1;
                char *ptr = provider.must_alloc(size, i % 9 ? 0 : 16 * page);
                memset(ptr, static_cast<int>('a' + t), size);
                live.push_back({ptr, size});
                if (shared && i % 10 == 0) {
                    char *opened = provider.must_open(provider.get(ptr, size));
                    ASSERT_TRUE(all_are(opened, size, static_cast<char>('a' + t)));
                    ASSERT_EQ(provider.close(opened, size), OK);
                }
                if (live.size() > 20) {
                    auto [old, old_size] = live[random() % 10];
                    ASSERT_TRUE(all_are(old, old_size, static_cast<char>('a' + t)));
                    live.erase(std::find(live.begin(), live.end(), std::pair{old, old_size}));
                    ASSERT_EQ(provider.free(old, old_size), OK);
                }
            }
            for (auto [ptr, size] : live) {
                ASSERT_TRUE(all_are(ptr, size, static_cast<char>('a' + t)));
                ASSERT_EQ(provider.free(ptr, size), OK);
            }
        });
        EXPECT_EQ(provider.allocated(), 0u);
    }
}

TEST_F(file, ChildGoesOn) {
    File provider(path);
    char *kept = provider.must_alloc(page);
    strcpy(kept, "from the parent");
    EXPECT_TRUE(in_child([&] {
        char *ptr = provider.must_alloc(5 * MiB);
        ptr[5 * MiB - 1] = 'x';
        return strcmp(kept, "from the parent") == 0 && provider.free(ptr, 5 * MiB) == OK &&
               provider.free(kept, page) == OK;
    }));
    EXPECT_STREQ(kept, "from the parent");
    EXPECT_EQ(provider.free(kept, page), OK);
}

/* --- failures --------------------------------------------------------------------------------- */

namespace {

/* All a provider does, checked only for what holds when any one call fails. */
void exercise(const std::string &path, bool shared, const fault::Nth &nth) {
    const umf_memory_provider_ops_t *ops = umfFileMemoryProviderOps();
    umf_file_memory_provider_params_handle_t params;
    void *self = nullptr, *ptr = nullptr, *opened = nullptr;
    if (umfFileMemoryProviderParamsCreate(path.c_str(), &params) != OK) {
        return;
    }
    umfFileMemoryProviderParamsSetVisibility(params,
                                             shared ? UMF_MEM_MAP_SHARED : UMF_MEM_MAP_PRIVATE);
    umf_result_t result = ops->initialize(params, &self);
    umfFileMemoryProviderParamsDestroy(params);
    if (result != OK) {
        ASSERT_TRUE(nth.hit());
        ASSERT_EQ(self, nullptr);
        return;
    }
    for (size_t size : {page, 3 * MiB, 2 * GiB}) {
        result = ops->alloc(self, size, 2 * page, &ptr);
        if (result != OK) {
            ASSERT_TRUE(nth.hit());
            continue;
        }
        char data[PATH_MAX + 512];
        *static_cast<char *>(ptr) = 'y';
        if (shared && size < GiB && ops->ext_get_ipc_handle(self, ptr, size, data) == OK &&
            ops->ext_open_ipc_handle(self, data, &opened) == OK) {
            *static_cast<char *>(opened) = 'x';
            ASSERT_EQ(*static_cast<char *>(ptr), 'x');
            ASSERT_EQ(ops->ext_close_ipc_handle(self, opened, size), OK);
        }
        bool is_split = size > page && ops->ext_allocation_split(self, ptr, size, page) == OK;
        ops->ext_purge_force(self, ptr, page);
        ASSERT_EQ(ops->free(self, ptr, is_split ? page : size), OK);
        if (is_split) {
            ASSERT_EQ(ops->free(self, static_cast<char *>(ptr) + page, size - page), OK);
        }
    }
    ASSERT_EQ(ops->finalize(self), OK);
}

} // namespace

TEST_F(file, EveryFailureLeavesNothing) {
    for (bool shared : {false, true}) {
        size_t addresses = address_space();
        int runs = expect_failures_leave_nothing(
            [&](const fault::Nth &nth) { exercise(path, shared, nth); },
            [&] {
                EXPECT_EQ(count_mappings(path), 0u);
                EXPECT_LT(address_space(), addresses + 512 * MiB);
            });
        EXPECT_GT(runs, shared ? 35 : 20);
    }
}
