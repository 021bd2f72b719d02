// Memory of a pool that UCX registers in the callbacks of umf/registration.h: it can be read
// through UCX before a suspend and after the resume, on the host and on a GPU.

#include <cstring>
#include <map>
#include <vector>

#include "fakes/raw_ucx.h"
#include "gpu.h"

#include <umf.h>
#include <umf/registration.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = size_t{4} << 20;
constexpr int HOST = 0, CUDA = 1; // UCX's numbers of kinds of memory

// Records of UCX: those that overlap what goes, go.
struct Registered {
    ucx::Raw &raw;
    int type;
    std::map<char *, std::pair<size_t, void *>> records;
    int made = 0, ended = 0;

    void *find(char *block) const {
        auto next = records.upper_bound(block);
        if (next == records.begin()) {
            return nullptr;
        }
        auto one = std::prev(next);
        return block < one->first + one->second.first ? one->second.second : nullptr;
    }
    static umf_result_t mapped(void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
        auto *own = static_cast<Registered *>(arg);
        void *record = own->raw.map(run->base, run->size, own->type);
        if (!record) {
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        own->records[static_cast<char *>(run->base)] = {run->size, record};
        own->made++;
        return OK;
    }
    static void unmapping(void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
        auto *own = static_cast<Registered *>(arg);
        char *begin = static_cast<char *>(run->base), *end = begin + run->size;
        for (auto one = own->records.begin(); one != own->records.end();) {
            if (one->first < end && begin < one->first + one->second.first) {
                EXPECT_TRUE(own->raw.unmap(one->second.second));
                one = own->records.erase(one);
                own->ended++;
            } else {
                ++one;
            }
        }
    }
};

class Ucx : public Gpu {
  protected:
    ucx::Raw raw;
    void *endpoint = nullptr; // to the worker itself

    // UCX reads the environment when it is loaded. Its hooks see no calls of the driver that are
    // not made through the linker, so it has to ask the driver which memory is a GPU's.
    static void SetUpTestSuite() {
        setenv("UCX_MEMTYPE_CACHE", "n", 1);
    }
    void TearDown() override {
        raw.close();
        Gpu::TearDown();
    }

    // False: the reason is in `missing`.
    bool open(const char *transports, int type, std::string &missing) {
        if (!raw.load()) {
            missing = std::string("UCX is not here: ") + dlerror();
            return false;
        }
        if (!raw.open(transports)) {
            missing = std::string("UCX has not the transports ") + transports;
            return false;
        }
        ucx::ContextAttributes attributes = {4, 0, 0, 0, {}};
        using Query = ucx::Status (*)(void *, ucx::ContextAttributes *);
        if (raw.find<Query>("ucp_context_query")(raw.context, &attributes) != 0 ||
            !(attributes.memory_types & uint64_t{1} << type)) {
            missing = "this UCX knows no memory of CUDA";
            return false;
        }
        std::string address = raw.address();
        endpoint = raw.connect(address);
        return endpoint != nullptr;
    }

    void get(void *to, char *from, void *record) {
        ucx::RequestParams none = {};
        void *key = raw.key(endpoint, record);
        ASSERT_NE(key, nullptr);
        void *request = raw.find<ucx::Transfer>("ucp_get_nbx")(
            endpoint, to, SIZE, reinterpret_cast<uintptr_t>(from), key, &none);
        if (ucx::is_request(request)) {
            auto status = raw.find<ucx::Check>("ucp_request_check_status");
            while (status(request) == 1) {
                raw.progress(raw.worker);
            }
            EXPECT_EQ(status(request), 0);
            raw.find<void (*)(void *)>("ucp_request_free")(request);
        } else {
            EXPECT_EQ(request, nullptr) << "UCX refuses it";
        }
        raw.find<void (*)(void *)>("ucp_rkey_destroy")(key);
    }

    // Reads a block through UCX, suspends and resumes its pool, and reads it again.
    void read_around_a_suspend(const char *text, int type) {
        umf_memory_pool_handle_t pool = nullptr;
        Registered registered{raw, type, {}};
        umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;
        callbacks.mapped = Registered::mapped;
        callbacks.unmapping = Registered::unmapping;
        callbacks.arg = &registered;
        ASSERT_EQ(umfPoolCreateFromText(text, &pool), OK);
        ASSERT_EQ(umfPoolAddMemoryCallback(pool, &callbacks), OK);
        char *block = static_cast<char *>(umfPoolMalloc(pool, SIZE));
        ASSERT_NE(block, nullptr);
        ASSERT_NE(registered.find(block), nullptr) << "registered before it is used";
        write(block, 'a', type);
        EXPECT_EQ(read(block, registered), 'a');
        int made = registered.made;
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(registered.find(block), nullptr) << "no record of memory that is gone";
        EXPECT_EQ(registered.ended, made);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        ASSERT_NE(registered.find(block), nullptr);
        EXPECT_EQ(read(block, registered), 'a') << "the content of before the suspend";
        write(block, 'b', type);
        EXPECT_EQ(read(block, registered), 'b') << "not an old physical page";
        EXPECT_EQ(umfFree(block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_TRUE(registered.records.empty());
        EXPECT_EQ(registered.made, registered.ended);
    }

    void write(char *block, char value, int type) {
        if (type == HOST) {
            memset(block, value, SIZE);
        } else {
            CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(block), static_cast<unsigned char>(value),
                          SIZE));
            CU(cuCtxSynchronize());
        }
    }
    // What each byte is, through UCX; 0: they differ.
    char read(char *block, const Registered &registered) {
        std::vector<char> bytes(SIZE);
        get(bytes.data(), block, registered.find(block));
        return bytes == std::vector<char>(SIZE, bytes[0]) ? bytes[0] : '\0';
    }
};

} // namespace

TEST_F(Ucx, ReadsMemoryOfTheHostAroundASuspend) {
    std::string missing;
    if (!open("self", HOST, missing)) {
        GTEST_SKIP() << missing;
    }
    read_around_a_suspend("disjoint over linux_vmm", HOST);
}

TEST_F(Ucx, ReadsMemoryOfAGpuAroundASuspend) {
    if (!driver().is_real) {
        GTEST_SKIP() << "UCX needs a GPU to copy from it";
    }
    CUcontext primary = nullptr; // that of providers made from text
    CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CU(cuCtxSetCurrent(primary));
    std::string missing;
    if (!open("self,cuda_copy", CUDA, missing)) {
        GTEST_SKIP() << missing;
    }
    read_around_a_suspend("disjoint over cuda_vmm:device=0", CUDA);
    read_around_a_suspend("proxy over cuda_vmm:device=0", CUDA);
    CU(cuCtxSetCurrent(context));
    CU(cuDevicePrimaryCtxRelease(0));
}
