/* providers/file/devdax through its ops table, over files that stand in for devices. */
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/text.h>

#include "provider_checks.h"

extern "C" {
#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/file/locator.h"
#include "providers/file/path.h"
extern const umf_memory_provider_descriptor_t umf_devdax_descriptor;

#define UMF_PARAMS_TABLE "providers/file/devdax_params.def"
typedef struct umf_devdax_memory_provider_params_t {
#include "ctl/params_members.h"
} umf_devdax_params_t;
}

namespace {

constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30;
constexpr size_t page = 2 * MiB;

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t UNKNOWN = UMF_RESULT_ERROR_UNKNOWN;
constexpr umf_result_t FULL = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
constexpr umf_result_t SPECIFIC = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;

const char *const path = "/dev/dax0.0";

class Params {
  public:
    umf_devdax_memory_provider_params_handle_t handle = nullptr;
    explicit Params(const std::string &device = path, size_t size = 32 * page) {
        EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate(device.c_str(), size, &handle), OK);
    }
    ~Params() {
        EXPECT_EQ(umfDevDaxMemoryProviderParamsDestroy(handle), OK);
    }
    Params &protection(unsigned flags) {
        EXPECT_EQ(umfDevDaxMemoryProviderParamsSetProtection(handle, flags), OK);
        return *this;
    }
};

class DevDax : public Provider {
  public:
    explicit DevDax(const Params &params = Params())
        : Provider(umfDevDaxMemoryProviderOps(), params.handle) {}
    explicit DevDax(size_t size) : DevDax(Params(path, size)) {}
};

umf_result_t initialize(const Params &params) {
    return try_provider(umfDevDaxMemoryProviderOps(), params.handle);
}

umf_result_t initialize(const std::string &device, size_t size) {
    return initialize(Params(device, size));
}

/* A machine with the devices dax0.0, of 32 pages, and dax1.0, of 4. */
class devdax : public testing::Test {
  protected:
    std::string folder = "/var/tmp/umf_devdax_XXXXXX";

    void SetUp() override {
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        add("dax0.0", 32 * page);
        add("dax1.0", 4 * page);
        umf_os_set_dax_dir(folder.c_str());
    }
    void TearDown() override {
        umf_os_set_dax_dir(nullptr);
        EXPECT_EQ(system(("rm -rf " + folder).c_str()), 0);
    }
    std::string file(const std::string &name) const {
        return folder + "/" + name;
    }
    void add(const std::string &name, size_t size) {
        std::ofstream(file(name)).flush();
        EXPECT_EQ(truncate(file(name).c_str(), static_cast<off_t>(size)), 0);
    }
    size_t count_mappings() const {
        return ::count_mappings(folder);
    }
};

} // namespace

/* --- parameters and creation ------------------------------------------------------------------ */

TEST_F(devdax, ParamsCheckTheirArguments) {
    umf_devdax_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate(nullptr, page, &params), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate("", page, &params), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate(path, page, nullptr), BAD);
    EXPECT_EQ(params, nullptr);
    ASSERT_EQ(umfDevDaxMemoryProviderParamsCreate(path, 0, &params), OK) << "not checked yet";
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, nullptr, page), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, "", page), BAD);
    EXPECT_STREQ(params->path, path);
    EXPECT_EQ(params->size, 0u);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, "/dev/dax1.0", page), OK);
    EXPECT_STREQ(params->path, "/dev/dax1.0");
    EXPECT_EQ(params->size, page);
    for (unsigned protection : {0u, 16u, 32u | 2u, UINT_MAX}) {
        EXPECT_EQ(umfDevDaxMemoryProviderParamsSetProtection(params, protection), BAD);
    }
    for (unsigned protection = 1; protection < 16; protection++) {
        EXPECT_EQ(umfDevDaxMemoryProviderParamsSetProtection(params, protection), OK);
    }
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsDestroy(nullptr), OK);
    Params defaults;
    EXPECT_EQ(defaults.handle->protection, unsigned{UMF_PROTECTION_READ | UMF_PROTECTION_WRITE});
}

TEST_F(devdax, CreationChecks) {
    void *provider = nullptr;
    EXPECT_EQ(umfDevDaxMemoryProviderOps()->initialize(nullptr, &provider), BAD);
    EXPECT_EQ(initialize(path, 0), BAD);
    EXPECT_EQ(initialize(path, page - 1), BAD) << "less than a page";
    EXPECT_EQ(initialize("/dev/pmem0", page), BAD);
    EXPECT_EQ(initialize("dax0.0", page), BAD);
    EXPECT_EQ(initialize("/dev/dax9.9", page), BAD) << "does not exist";
    EXPECT_EQ(initialize("/dev/dax" + std::string(PATH_MAX, 'x'), page), BAD);
    EXPECT_EQ(initialize(path, page), OK);
    EXPECT_EQ(initialize(path, 32 * page), OK);
    mkdir(file("dax_folder").c_str(), 0700);
    EXPECT_EQ(initialize("/dev/dax_folder", page), BAD);
    add("dax_file", 0);
    EXPECT_EQ(initialize("/dev/dax_file", page), BAD) << "not a character device";
    ASSERT_EQ(mkfifo(file("dax_fifo").c_str(), 0600), 0);
    EXPECT_EQ(initialize("/dev/dax_fifo", page), BAD);
}

TEST_F(devdax, SizeOfTheDeviceIsTheLimit) {
    EXPECT_EQ(initialize("/dev/dax1.0", 4 * page + 1), BAD);
    EXPECT_EQ(initialize("/dev/dax1.0", SIZE_MAX), BAD);
    DevDax provider(Params("/dev/dax1.0", 4 * page - 1)); /* whole pages of it */
    EXPECT_NE(provider.must_alloc(3 * page), nullptr);
    void *ptr = nullptr;
    EXPECT_EQ(provider.alloc(1, 0, &ptr), FULL);
}

TEST_F(devdax, WithoutSynchronousMappings) {
    /* The second mapping is that of the device, in the place of the first. */
    static int maps;
    maps = 0;
    umf_os_set_fault(
        [](const char *call) { return strcmp(call, "map") || ++maps != 2 ? 0 : EOPNOTSUPP; });
    EXPECT_EQ(initialize(path, page), UNKNOWN);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(maps, 3);
}

TEST_F(devdax, CharacterDevicesThatAreNotDax) {
    ASSERT_EQ(symlink("/dev/zero", file("dax_zero").c_str()), 0);
    umf_os_dax_t info;
    int fd = -1;
    ASSERT_EQ(umf_os_dax_open("/dev/dax_zero", O_RDWR, &fd), 0);
    EXPECT_EQ(umf_os_dax_info(fd, &info), 0) << "a character device";
    umf_os_set_dax_dir(nullptr); /* the real kernel decides */
    void *ptr = nullptr;
    EXPECT_EQ(umf_os_map_sync(&ptr, page, PROT_READ, 0, fd, 0), EOPNOTSUPP);
    close(fd);
}

TEST_F(devdax, RealDevicesOnly) {
    umf_os_set_dax_dir(nullptr);
    char why[256] = "";
    if (umf_devdax_descriptor.probe(why, sizeof(why)) == OK) {
        EXPECT_STREQ(why, "");
        GTEST_SKIP() << "this machine has a DAX device";
    }
    EXPECT_NE(std::string(why).find("no DAX device"), std::string::npos) << why;
    EXPECT_EQ(initialize(path, page), BAD);
    umf_os_set_dax_dir(folder.c_str());
    EXPECT_EQ(umf_devdax_descriptor.probe(why, sizeof(why)), OK);
}

TEST_F(devdax, Facts) {
    Params params;
    umfDevDaxMemoryProviderParamsSetName(params.handle, std::string(99, 'n').c_str());
    DevDax provider(params);
    expect_facts(provider, page, 1, 64, std::string(63, 'n'), "DEVDAX");
    EXPECT_EQ(provider.ops->ext_purge_lazy, nullptr);
}

TEST_F(devdax, ParamsFromText) {
    EXPECT_STREQ(umf_devdax_descriptor.name, "devdax");
    auto look = [&](const umf_devdax_params_t &params) {
        EXPECT_STREQ(params.path, path);
        EXPECT_EQ(params.size, GiB);
        EXPECT_EQ(params.protection, unsigned{UMF_PROTECTION_READ});
        EXPECT_STREQ(params.name, "mine");
    };
    expect_params_of_text<umf_devdax_params_t>(
        umf_devdax_descriptor, "path=/dev/dax0.0,size=1G,protection=read,name=mine", look,
        {"path=", "size=much", "protection=fly", "visibility=shared"});
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText("devdax", &provider), BAD) << "without a path";
    EXPECT_EQ(umfMemoryProviderCreateFromText("devdax:path=/dev/dax0.0", &provider), BAD);
    ASSERT_EQ(umfMemoryProviderCreateFromText("devdax:path=/dev/dax0.0,size=64M", &provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

/* --- memory ----------------------------------------------------------------------------------- */

TEST_F(devdax, DividesThePagesOfTheDevice) {
    DevDax provider(32 * page);
    std::vector<char *> all;
    for (size_t i = 0; i < 32; i++) {
        all.push_back(provider.must_alloc(i % 2 ? page : 1));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(all[i]) % page, 0u);
        EXPECT_EQ(all[i], all[0] + i * page);
        all[i][0] = all[i][page - 1] = static_cast<char>(i);
    }
    void *untouched = this, *ptr = untouched;
    EXPECT_EQ(provider.alloc(1, 0, &ptr), FULL) << "exhausted";
    for (size_t size : {32 * page + 1, size_t{1} << 48, SIZE_MAX - page, SIZE_MAX}) {
        EXPECT_EQ(provider.alloc(size, 0, &ptr), FULL) << "oversized";
    }
    EXPECT_EQ(ptr, untouched);
    EXPECT_EQ(provider.allocated(), 16 + 16 * page);
    for (size_t i = 0; i < 32; i++) {
        EXPECT_EQ(all[i][page - 1], static_cast<char>(i));
        EXPECT_EQ(provider.free(all[i], i % 2 ? page : 1), OK);
    }
    EXPECT_EQ(provider.must_alloc(32 * page), all[0]) << "joined";
}

TEST_F(devdax, SizesAndAlignments) {
    DevDax provider;
    void *ptr = nullptr;
    EXPECT_EQ(provider.alloc(0, 0, &ptr), BAD);
    for (size_t alignment : {size_t{3}, 3 * MiB, 3 * page, page + 1}) {
        EXPECT_EQ(provider.alloc(page, alignment, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    EXPECT_EQ(provider.alloc(page, size_t{1} << 63, &ptr), FULL);
    for (size_t alignment = 1; alignment <= 8 * page; alignment *= 2) {
        char *got = provider.must_alloc(page, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(got) % alignment, 0u);
        EXPECT_EQ(provider.free(got, page), OK);
    }
    EXPECT_EQ(provider.free(nullptr, 0), OK);
    EXPECT_EQ(provider.free(&provider, 0), BAD);
}

TEST_F(devdax, SplitAndMerge) {
    DevDax provider;
    char *ptr = provider.must_alloc(4 * page);
    EXPECT_EQ(provider.split(ptr, 3 * page, page), BAD);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), OK);
    EXPECT_EQ(provider.merge(ptr, ptr + page, 3 * page), BAD);
    ASSERT_EQ(provider.merge(ptr, ptr + page, 4 * page), OK);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), OK);
    EXPECT_EQ(provider.free(ptr, page), OK);
    EXPECT_EQ(provider.free(ptr + page, 3 * page), OK);
}

TEST_F(devdax, MemoryIsTheDevice) {
    {
        DevDax provider;
        strcpy(provider.must_alloc(page), "kept");
    }
    DevDax provider(Params().protection(UMF_PROTECTION_READ));
    char *ptr = provider.must_alloc(page);
    EXPECT_STREQ(ptr, "kept");
    EXPECT_FALSE(can_write(ptr));
}

TEST_F(devdax, Purge) {
    DevDax provider;
    char *ptr = provider.must_alloc(4 * page);
    strcpy(ptr, "text");
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, ptr, 4 * page), OK);
    ptr[0] = 'x';
    for (auto [start, size] : {std::pair{ptr, 33 * page},
                               {ptr - 1, page},
                               {ptr + 1, page},
                               {ptr, SIZE_MAX},
                               {ptr + 33 * page, page}}) {
        EXPECT_EQ(provider.ops->ext_purge_force(provider.self, start, size), SPECIFIC);
        EXPECT_EQ(provider.native(), UMF_DEVDAX_RESULT_ERROR_PURGE_FORCE_FAILED);
    }
    EXPECT_EQ(provider.native_text(), std::string("force purging failed: ") + strerror(EINVAL));
}

TEST_F(devdax, DestroyLeavesNothing) {
    size_t descriptors = count_open_descriptors();
    for (int i = 0; i < 100; i++) {
        DevDax provider;
        provider.must_alloc(page)[0] = 'x';
        EXPECT_EQ(count_open_descriptors(), descriptors) << "a mapping needs no open device";
    }
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(count_mappings(), 0u);
}

/* --- sharing ---------------------------------------------------------------------------------- */

TEST_F(devdax, PartsOfPagesAreShared) {
    DevDax provider;
    char *ptr = provider.must_alloc(2 * page);
    ptr[MiB] = 'a';
    ptr[3 * MiB - 1] = 'b';
    ASSERT_EQ(provider.split(ptr, 2 * page, MiB), OK);
    char *opened = provider.must_open(provider.get(ptr + MiB, 3 * MiB));
    EXPECT_EQ(opened[0], 'a');
    EXPECT_EQ(opened[2 * MiB - 1], 'b');
    EXPECT_EQ(provider.close(opened, 3 * MiB), OK);
    EXPECT_EQ(count_mappings(), 1u);
}

TEST_F(devdax, OpenOfWhatIsNotThereAnyMore) {
    DevDax provider, consumer(Params("/dev/dax1.0", page));
    provider.must_alloc(4 * page);
    char *ptr = provider.must_alloc(page);
    DevDax::Handle handle = provider.get(ptr, page);
    size_t descriptors = count_open_descriptors();
    void *opened = nullptr;
    ASSERT_EQ(rename(file("dax0.0").c_str(), file("moved").c_str()), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "no device: it has vanished";
    add("dax0.0", 32 * page);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "another device";
    ASSERT_EQ(rename(file("moved").c_str(), file("dax0.0").c_str()), 0);
    ASSERT_EQ(truncate(file("dax0.0").c_str(), 5 * page - 1), 0);
    EXPECT_EQ(consumer.open(handle, &opened), BAD) << "too small";
    ASSERT_EQ(truncate(file("dax0.0").c_str(), 32 * page), 0);
    {
        fault::Nth nth("map", EOPNOTSUPP);
        nth.next();
        EXPECT_EQ(consumer.open(handle, &opened), UNKNOWN) << "not DAX";
    }
    {
        fault::Nth nth("map", ENOMEM);
        nth.next();
        EXPECT_EQ(consumer.open(handle, &opened), SPECIFIC);
        EXPECT_EQ(consumer.native(), UMF_DEVDAX_RESULT_ERROR_ALLOC_FAILED);
    }
    EXPECT_EQ(opened, nullptr);
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(consumer.close(consumer.must_open(handle), page), OK);
}

TEST_F(devdax, FalseSizesAreNoticed) {
    auto check = umf_devdax_descriptor.ext->ipc_check;
    DevDax provider, consumer;
    Provider::Handle handle = provider.get(provider.must_alloc(page), page);
    EXPECT_EQ(check(consumer.self, handle.data(), page), OK);
    for (size_t size : {size_t{0}, page + 1, 2 * page, SIZE_MAX}) {
        EXPECT_EQ(check(consumer.self, handle.data(), size), BAD) << size;
    }
}

/* --- failures --------------------------------------------------------------------------------- */

TEST_F(devdax, EveryFailureLeavesNothing) {
    const umf_memory_provider_ops_t *ops = umfDevDaxMemoryProviderOps();
    auto exercise = [&](const fault::Nth &nth) {
        umf_devdax_memory_provider_params_handle_t params;
        void *self = nullptr, *ptr = nullptr, *opened = nullptr;
        if (umfDevDaxMemoryProviderParamsCreate(path, 32 * page, &params) != OK) {
            return;
        }
        umf_result_t result = ops->initialize(params, &self);
        umfDevDaxMemoryProviderParamsDestroy(params);
        if (result != OK) {
            ASSERT_TRUE(nth.hit());
            return;
        }
        if (ops->alloc(self, page + 1, 0, &ptr) == OK) {
            char data[512];
            ASSERT_EQ(ops->ext_get_ipc_handle(self, ptr, page + 1, data), OK);
            if (ops->ext_open_ipc_handle(self, data, &opened) == OK) {
                ASSERT_EQ(ops->ext_close_ipc_handle(self, opened, page + 1), OK);
            }
            ASSERT_EQ(ops->free(self, ptr, page + 1), OK);
        }
        ASSERT_EQ(ops->finalize(self), OK);
    };
    int runs = expect_failures_leave_nothing(exercise, [&] { EXPECT_EQ(count_mappings(), 0u); });
    EXPECT_GT(runs, 10);
}
