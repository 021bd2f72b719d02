/* What every provider of the host's memory that other processes can open promises about sharing,
 * stated once: through its ops table, as its ipc_check, and by way of a pool. Each kind says below
 * how to make its producers and consumers and which wrong descriptions have right sums. The tests
 * beside this one look at what only one kind does. */
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_os_memory.h>

#include "provider_checks.h"

extern "C" {
#include "providers/os/handle.h"
#include "providers/os/share.h"
extern const umf_memory_provider_descriptor_t umf_os_descriptor;
extern const umf_memory_provider_descriptor_t umf_file_descriptor;
extern const umf_memory_provider_descriptor_t umf_devdax_descriptor;
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t DAX_PAGE = size_t{2} << 20;
const size_t small_page = umf_os_page_size();

/* Links what fork needs: without it a child may find a lock of the broker held. */
const umf_result_t is_started = umfInit();

/* A description with right sums, and what its open must give. */
struct Forged {
    std::string what;
    Provider::Handle handle;
    umf_result_t result;
};
using Forgeries = std::vector<Forged>;

struct Kind {
    const char *id; /* in creation text */
    const umf_memory_provider_descriptor_t &descriptor;
    size_t page;
    std::string producer, consumer; /* settings of both ends, which can live at once */
    std::string not_shared; /* settings of memory that cannot be opened; "": there is none */
    int32_t free_failed;    /* native error of a close that failed */
    size_t descriptors;     /* that stay open while the memory is */
    std::function<Forgeries(const Provider::Handle &)> forge; /* of a handle of two pages */
};

/* A provider made with settings in text. */
class Made : public Provider {
    struct Params {
        const umf_memory_provider_descriptor_t &kind;
        void *made = nullptr;
        Params(const umf_memory_provider_descriptor_t &its, const std::string &text) : kind(its) {
            EXPECT_EQ(kind.params_from_text(text.c_str(), &made), OK) << text;
        }
        ~Params() {
            kind.params_destroy(made);
        }
        Params(const Params &) = delete;
        Params &operator=(const Params &) = delete;
    };

  public:
    Made(const Kind &kind, const std::string &text)
        : Provider(kind.descriptor.ops, Params(kind.descriptor, text).made) {}
};

/* --- wrong descriptions, as a hostile or newer producer could send them ------------------------
 */

template <typename Fields> struct Change {
    const char *what;
    void (*apply)(Fields &);
};
#define CHANGE(change)                                                                             \
    {                                                                                              \
#change, [](auto &f) { f.change; }                                                         \
    }

Forgeries forge_os(const Provider::Handle &handle, const std::string &name) {
    Forgeries all;
    auto add = [&](Change<umf_os_handle_t> change, const std::string &text, umf_result_t result) {
        umf_os_handle_t fields;
        const char *old;
        EXPECT_EQ(umf_os_handle_read(handle.data(), &fields, &old), OK);
        change.apply(fields);
        std::string copy(text);
        copy.resize(512);
        Provider::Handle changed(1024);
        umf_os_handle_write(&fields, copy.data(), changed.data());
        all.push_back({change.what, changed, result});
    };
    add(CHANGE(size += 0), name, OK);
    add(CHANGE(name_length = 9), "../shm/xy", BAD);
    add(CHANGE(name_length = 7), "missing", UMF_RESULT_ERROR_UNKNOWN);
    const Change<umf_os_handle_t> wrong[] = {CHANGE(offset++),
                                             CHANGE(offset = 0),
                                             CHANGE(offset = uint64_t{1} << 62),
                                             CHANGE(offset = ~uint64_t{0} - small_page + 1),
                                             CHANGE(size = 0),
                                             CHANGE(size++),
                                             CHANGE(size = uint64_t{1} << 50),
                                             CHANGE(size = ~uint64_t{0} - small_page + 1),
                                             CHANGE(slot = 0),
                                             CHANGE(slot = UMF_OS_SHARE_FIRST_SLOT - 1),
                                             CHANGE(slot = UINT32_MAX),
                                             CHANGE(slot++),
                                             CHANGE(generation = 0),
                                             CHANGE(generation++),
                                             CHANGE(header_size = 0),
                                             CHANGE(header_size = 4096),
                                             CHANGE(header_size *= 2),
                                             CHANGE(protection = 64),
                                             CHANGE(visibility = UMF_MEM_MAP_PRIVATE),
                                             CHANGE(reserved = 1),
                                             CHANGE(name_length++),
                                             CHANGE(name_length = NAME_MAX),
                                             CHANGE(ticket.ino++)};
    for (const auto &change : wrong) {
        add(change, name, BAD);
    }
    return all;
}

/* Of the device dax0.0 with 32 pages, or of a file with less than 2 MiB: its inode and its granule,
 * the page of the system, cannot be others. */
Forgeries forge_locator(const Provider::Handle &handle, umf_locator_kind_t kind,
                        const std::string &path, const std::vector<std::string> &wrong_paths) {
    Forgeries all;
    auto add = [&](Change<umf_locator_t> change, const std::string &text, umf_result_t result) {
        umf_locator_t fields;
        const char *old;
        EXPECT_EQ(umf_locator_read(handle.data(), kind, &fields, &old), OK);
        change.apply(fields);
        Provider::Handle changed(umf_locator_size(text.c_str()));
        umf_locator_write(&fields, text.c_str(), changed.data());
        all.push_back({change.what + (" of " + text), changed, result});
    };
    add(CHANGE(size += 0), path, OK);
    for (const std::string &text : wrong_paths) {
        add(CHANGE(size += 0), text, BAD);
    }
    std::vector<Change<umf_locator_t>> wrong = {
        CHANGE(kind = static_cast<uint16_t>(UMF_LOCATOR_FILE + UMF_LOCATOR_DEVICE - f.kind)),
        CHANGE(dev++),
        CHANGE(offset = 32 * DAX_PAGE),
        CHANGE(offset = uint64_t{1} << 62),
        CHANGE(offset = ~uint64_t{0} - small_page + 1),
        CHANGE(size = 0),
        CHANGE(size = 33 * DAX_PAGE),
        CHANGE(size = uint64_t{1} << 50),
        CHANGE(size = ~uint64_t{0}),
        CHANGE(granule = 0),
        CHANGE(granule = 1),
        CHANGE(granule = 3 * small_page),
        CHANGE(granule = uint64_t{1} << 40),
        CHANGE(protection = 64),
        CHANGE(visibility = UMF_MEM_MAP_PRIVATE)};
    if (kind == UMF_LOCATOR_FILE) {
        wrong.insert(wrong.end(),
                     {CHANGE(ino++), CHANGE(offset = DAX_PAGE), CHANGE(granule = 1u << 30)});
    }
    for (const auto &change : wrong) {
        add(change, path, BAD);
    }
    return all;
}

/* --- the kinds -------------------------------------------------------------------------------- */

Kind os_kind(const std::string &name) {
    const std::string shared = "visibility=shared";
    return {"os",
            umf_os_descriptor,
            small_page,
            name.empty() ? shared : shared + ",shm_name=" + name,
            shared,
            "visibility=private",
            UMF_OS_RESULT_ERROR_FREE_FAILED,
            1,
            [name](const auto &handle) { return forge_os(handle, name); }};
}

Kind file_kind(const std::string &folder) {
    const std::string path = folder + "/memory";
    return {"file",
            umf_file_descriptor,
            small_page,
            "visibility=shared,path=" + path,
            "visibility=shared,path=" + folder + "/consumer",
            "visibility=private,path=" + path,
            UMF_FILE_RESULT_ERROR_FREE_FAILED,
            0,
            [path](const auto &handle) {
                return forge_locator(handle, UMF_LOCATOR_FILE, path,
                                     {"", "memory", path + "/", path + "x", "/dev/zero",
                                      "/" + std::string(PATH_MAX, '/'), "/no/such/file"});
            }};
}

/* On a machine with the devices dax0.0, of 32 pages, and dax1.0, of 4. */
Kind devdax_kind() {
    return {"devdax",
            umf_devdax_descriptor,
            DAX_PAGE,
            "path=/dev/dax0.0,size=64M",
            "path=/dev/dax1.0,size=2M",
            "",
            UMF_DEVDAX_RESULT_ERROR_FREE_FAILED,
            0,
            [](const auto &handle) {
                return forge_locator(
                    handle, UMF_LOCATOR_DEVICE, "/dev/dax0.0",
                    {"", "/dev/zero", "/dev/dax1.0", "/dev/dax7.0", "/etc/passwd"});
            }};
}

class Sharing : public testing::TestWithParam<const char *> {
    std::string folder = "/var/tmp/umf_sharing_XXXXXX";

    void add_device(const std::string &name, size_t size) const {
        const std::string file = folder + "/" + name;
        std::ofstream(file).flush();
        EXPECT_EQ(truncate(file.c_str(), static_cast<off_t>(size)), 0);
    }
    Kind make() const {
        const std::string name = GetParam();
        return name == "os_named" ? os_kind("umf_test_sharing_" + std::to_string(getpid()))
               : name == "file"   ? file_kind(folder)
               : name == "devdax" ? devdax_kind()
                                  : os_kind("");
    }

  protected:
    const bool has_folder = mkdtemp(folder.data()) != nullptr;
    const Kind kind = make();
    const size_t page = kind.page;
    const ipc_check_t check = kind.descriptor.ext->ipc_check;

    void SetUp() override {
        ASSERT_TRUE(has_folder);
        if (GetParam() == std::string("devdax")) {
            add_device("dax0.0", 32 * page);
            add_device("dax1.0", 4 * page);
            umf_os_set_dax_dir(folder.c_str());
        }
    }
    void TearDown() override {
        umf_os_set_dax_dir(nullptr);
        EXPECT_EQ(system(("rm -rf " + folder).c_str()), 0);
    }
};

} // namespace

/* --- the memory ------------------------------------------------------------------------------- */

TEST_P(Sharing, WithAnotherProcess) {
    Made provider(kind, kind.producer);
    expect_shared_with_child(provider, page,
                             [&](auto &body) { return body(Made(kind, kind.consumer)); });
}

TEST_P(Sharing, OpensAreSeparate) {
    Made provider(kind, kind.producer);
    const size_t descriptors = count_open_descriptors();
    with_many_opens(provider, page + 5,
                    [&] { EXPECT_EQ(count_open_descriptors(), descriptors + kind.descriptors); });
    EXPECT_EQ(count_open_descriptors(), descriptors);
}

TEST_P(Sharing, OpensWithTheProducersProtection) {
    const std::string read_only = ",protection=read";
    {
        Made provider(kind, kind.producer + read_only), consumer(kind, kind.consumer);
        char *opened = consumer.must_open(provider.get(provider.must_alloc(page), page));
        EXPECT_TRUE(can_read(opened));
        EXPECT_FALSE(can_write(opened));
        EXPECT_EQ(consumer.close(opened, page), OK);
    }
    Made provider(kind, kind.producer), reader(kind, kind.consumer + read_only);
    char *opened = reader.must_open(provider.get(provider.must_alloc(page), page));
    EXPECT_TRUE(can_write(opened)) << "not with the consumer's";
    EXPECT_EQ(reader.close(opened, page), OK);
}

TEST_P(Sharing, ClosesOnlyWhatWasOpened) {
    Made provider(kind, kind.producer), consumer(kind, kind.consumer);
    expect_closes_what_was_opened(provider, consumer, page, kind.free_failed);
    EXPECT_NE(consumer.free(provider.must_alloc(page), page), OK);
}

TEST_P(Sharing, PrivateMemoryCannotBeShared) {
    if (kind.not_shared.empty()) {
        GTEST_SKIP() << "all memory of the kind is shared";
    }
    Made provider(kind, kind.not_shared);
    const Provider::Handle data(PATH_MAX + 512, 0);
    expect_not_shared(provider, page, data);
    EXPECT_TRUE(!check || check(provider.self, data.data(), page) == BAD);
}

/* --- handles ---------------------------------------------------------------------------------- */

TEST_P(Sharing, HandlesAreOfWholeAllocations) {
    Made provider(kind, kind.producer), other(kind, kind.consumer);
    expect_handles_of_allocations_only(provider, other, page);
}

TEST_P(Sharing, DamagedHandlesAreRefused) {
    Made provider(kind, kind.producer), consumer(kind, kind.consumer);
    expect_damage_is_noticed(provider, consumer, page, check);
}

TEST_P(Sharing, HandlesWithWrongFieldsAreRefused) {
    Made provider(kind, kind.producer), consumer(kind, kind.consumer);
    const Provider::Handle handle = provider.get(provider.must_alloc(2 * page), 2 * page);
    for (const Forged &forged : kind.forge(handle)) {
        void *opened = nullptr;
        EXPECT_EQ(consumer.open(forged.handle, &opened), forged.result) << forged.what;
        EXPECT_EQ(opened != nullptr, forged.result == OK) << forged.what;
        if (opened) {
            EXPECT_EQ(consumer.close(opened, 2 * page), OK);
        }
    }
}

TEST_P(Sharing, PoolsShare) {
    for (const char *pool : {"proxy", "disjoint"}) {
        const std::string over = std::string(pool) + " over " + kind.id + ":";
        expect_pools_share(over + kind.producer, over + kind.consumer);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Sharing, testing::Values("os", "os_named", "file", "devdax"),
                         [](const auto &param) { return std::string(param.param); });
