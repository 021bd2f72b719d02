// Memory of GPUs, on the software driver or, with UMF_TEST_GPU=real, on a real one.

#include <thread>

#include "gpu/gpu.h"
#include "umem_test.h"

#include <umf.h>
#include <umf/suspend.h>

namespace {

// The driver starts once: pools of libumem live until the process ends.
class Cuda : public Umem {
  protected:
    static int count() {
        static int devices = [] {
            int found = 0;
            EXPECT_EQ(driver().cuInit(0), CUDA_SUCCESS);
            EXPECT_EQ(driver().cuDeviceGetCount(&found), CUDA_SUCCESS);
            return found;
        }();
        return devices;
    }
    void SetUp() override {
        ASSERT_GT(count(), 0);
        Umem::SetUp();
    }
    void TearDown() override {
        if (!driver().is_real) {
            driver().control()->fail_at = 0;
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
        }
        Umem::TearDown();
    }
    static int current_device() {
        CUdevice device = -1;
        EXPECT_EQ(driver().cuCtxGetDevice(&device), CUDA_SUCCESS);
        return device;
    }
    static long calls() {
        long all = 0;
        for (long each : driver().control()->calls) {
            all += each;
        }
        return all;
    }
};

// The constructor has an overload in C++.
void rmm_ctor(umemRMM *ctx, int device, bool async, uintptr_t stream) {
    umemRMM_ctor(ctx, device, async, stream);
}

struct Kind {
    std::string name;
    std::function<std::shared_ptr<void>(const Folder &)> make; // a context
};

template <typename Raw, typename Ctor, typename... Args>
std::shared_ptr<void> made(Ctor ctor, Args... args) {
    auto *raw = new Raw;
    ctor(raw, args...);
    EXPECT_OK(raw);
    return std::shared_ptr<void>(raw, [](void *context) {
        umem_dtor(context);
        delete static_cast<Raw *>(context);
    });
}

std::vector<Kind> kinds() {
    return {
        {"Host", [](const Folder &) { return made<umemHost>(umemHost_ctor); }},
        {"File",
         [](const Folder &folder) {
             static int number = 0;
             std::string name = folder.file(("file" + std::to_string(number++)).c_str());
             return made<umemFile>(umemFile_ctor, name.c_str(), "w+b");
         }},
        {"MMap",
         [](const Folder &folder) {
             return made<umemMMap>(umemMMap_ctor, folder.file("map").c_str(), "w+b");
         }},
        {"Cuda", [](const Folder &) { return made<umemCuda>(umemCuda_ctor, 0); }},
        {"OtherCuda",
         [](const Folder &) {
             int devices = 0;
             driver().cuDeviceGetCount(&devices);
             return made<umemCuda>(umemCuda_ctor, devices - 1);
         }},
        {"CudaHost", [](const Folder &) { return made<umemCudaHost>(umemCudaHost_ctor, 0u); }},
        {"CudaManaged",
         [](const Folder &) {
             return made<umemCudaManaged>(umemCudaManaged_ctor, 0u, false, uintptr_t(0));
         }},
        {"AsyncManaged",
         [](const Folder &) {
             return made<umemCudaManaged>(umemCudaManaged_ctor, 0u, true, uintptr_t(0));
         }},
        {"RMM", [](const Folder &) { return made<umemRMM>(rmm_ctor, 0, false, uintptr_t(0)); }},
        {"AsyncRMM", [](const Folder &) { return made<umemRMM>(rmm_ctor, 0, true, uintptr_t(0)); }},
    };
}

std::string pattern(size_t size, int seed) {
    std::string text(size, 0);
    for (size_t i = 0; i < size; i++) {
        text[i] = static_cast<char>((i * 31 + static_cast<size_t>(seed) * 17) % 251);
    }
    return text;
}

} // namespace

TEST_F(Cuda, TheConstructorMakesTheDeviceCurrent) {
    for (int device = count() - 1; device >= 0; device--) {
        Made<umemCuda> cuda(umemCuda_ctor, device);
        EXPECT_OK(&cuda);
        EXPECT_EQ(cuda->device, device);
        EXPECT_EQ(cuda->super.host_ctx, &cuda->host);
        EXPECT_EQ(current_device(), device);
        EXPECT_EQ(umem_fundamental_align(&cuda), 256u);
        EXPECT_STREQ(umem_get_device_name(&cuda), "Cuda");
    }
}

TEST_F(Cuda, AllocationsLeaveTheCurrentDeviceAlone) {
    Made<umemCuda> first(umemCuda_ctor, 0), last(umemCuda_ctor, count() - 1);
    uintptr_t block = umem_alloc(&first, 1000);
    ASSERT_NE(block, 0u) << umem_get_message(&first);
    umem_set(&first, block, 'x', 1008);
    EXPECT_SAME(content(&first, block, 1008), std::string(1008, 'x'));
    umem_free(&first, block);
    EXPECT_EQ(current_device(), count() - 1);
    EXPECT_OK(&first);
}

TEST_F(Cuda, NoSuchDevice) {
    for (int device : {-1, count(), 1000}) {
        Made<umemCuda> cuda(umemCuda_ctor, device);
        EXPECT_STATUS(&cuda, umemValueError);
    }
}

TEST_F(Cuda, TheDestructorCallsNoDriver) {
    NEEDS_FAKE();
    umemCuda cuda;
    umemCuda_ctor(&cuda, 0);
    umem_free(&cuda, umem_alloc(&cuda, 10));
    long before = calls();
    umem_dtor(&cuda);
    umemCudaHost pinned;
    umemCudaHost_ctor(&pinned, 5);
    EXPECT_EQ(pinned.flags, 5u);
    umem_dtor(&pinned);
    umemRMM rmm;
    umemRMM_ctor(&rmm, 1, true, 77);
    EXPECT_EQ(rmm.device, 1);
    EXPECT_TRUE(rmm.async);
    EXPECT_EQ(rmm.stream, 77u);
    umem_dtor(&rmm);
    EXPECT_EQ(calls(), before);
}

TEST_F(Cuda, ManagedFlags) {
    Made<umemCudaManaged> managed(umemCudaManaged_ctor, 0u, true, uintptr_t(99)),
        of_host(umemCudaManaged_ctor, 2u, false, uintptr_t(0));
    EXPECT_EQ(managed->flags, 1u);
    EXPECT_TRUE(managed->async);
    EXPECT_EQ(managed->stream, 99u);
    EXPECT_EQ(of_host->flags, 2u);
    EXPECT_OK(&managed);
    uintptr_t block = umem_calloc(&of_host, 10, 10);
    EXPECT_NE(block, 0u);
    EXPECT_EQ(reinterpret_cast<char *>(block)[99], 0);
    umem_free(&of_host, block);
    NEEDS_FAKE();
    driver().control()->lacks_managed = 1;
    Made<umemCudaManaged> none(umemCudaManaged_ctor, 0u, false, uintptr_t(0));
    driver().control()->lacks_managed = 0;
    EXPECT_STATUS(&none, umemNotSupportedError);
}

TEST_F(Cuda, MemoryIsOfTheDevice) {
    NEEDS_FAKE();
    const fake_cuda_t *control = driver().control();
    Made<umemCuda> current(umemCuda_ctor, 0);
    for (int device = 0; device < count(); device++) {
        Made<umemRMM> rmm(rmm_ctor, device, false, uintptr_t(0));
        size_t before = control->used[device];
        uintptr_t block = umem_alloc(&rmm, 64 << 20);
        ASSERT_NE(block, 0u) << umem_get_message(&rmm);
        EXPECT_GE(control->used[device], before + (64 << 20));
        umem_free(&rmm, block);
        EXPECT_EQ(control->used[device], before);
        EXPECT_OK(&rmm);
    }
}

TEST_F(Cuda, NoMemoryIsAMemoryError) {
    Made<umemCuda> cuda(umemCuda_ctor, 0);
    Made<umemRMM> rmm(rmm_ctor, 0, false, uintptr_t(0));
    Made<umemCudaManaged> managed(umemCudaManaged_ctor, 0u, false, uintptr_t(0));
    for (void *ctx : {static_cast<void *>(&cuda), static_cast<void *>(&rmm)}) {
        EXPECT_EQ(umem_alloc(ctx, size_t(1) << 50), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
        EXPECT_EQ(umem_calloc(ctx, SIZE_MAX, 16), 0u);
        EXPECT_EQ(umem_aligned_alloc(ctx, 256, size_t(1) << 50), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
    }
}

// All rules for contexts, for each kind.
TEST_F(Cuda, RulesOfAllKinds) {
    for (const Kind &kind : kinds()) {
        SCOPED_TRACE(kind.name);
        auto context = kind.make(folder);
        void *ctx = context.get();
        bool is_file = kind.name == "File";
        EXPECT_EQ(static_cast<umemVirtual *>(ctx)->host_ctx == ctx, kind.name == "Host");
        EXPECT_TRUE(umem_is_accessible_from(ctx, ctx));
        if (!is_file) {
            EXPECT_EQ(umem_alloc(ctx, 0), 0u);
            EXPECT_EQ(umem_calloc(ctx, 0, 4), 0u);
            EXPECT_EQ(umem_calloc(ctx, 4, 0), 0u);
        }
        umem_free(ctx, 0);
        umem_aligned_free(ctx, 0);
        EXPECT_EQ(umem_aligned_origin(ctx, 0), 0u);
        EXPECT_OK(ctx);
        for (size_t size : {1, 100, 4096, 3000000}) {
            uintptr_t block = umem_alloc(ctx, size), cleared = umem_calloc(ctx, size, 2);
            EXPECT_SAME(content(ctx, cleared, size * 2), std::string(size * 2, 0));
            if (!is_file) {
                EXPECT_EQ(block % umem_fundamental_align(ctx), 0u);
            }
            umem_set(ctx, block, 'x', size + 8); // programs use a bit too much
            umem_set(ctx, cleared, 'y', is_file ? 0 : size * 2 + 8);
            EXPECT_SAME(content(ctx, block, size + 8), std::string(size + 8, 'x'));
            umem_free(ctx, block);
            umem_free(ctx, is_file ? 0 : cleared);
        }
        for (size_t alignment : {1, 8, 256, 4096}) {
            for (size_t times : {0, 1, 5}) {
                size_t size = alignment * times;
                uintptr_t block = umem_aligned_alloc(ctx, alignment, size);
                ASSERT_NE(block, 0u) << umem_get_message(ctx);
                EXPECT_EQ(block % alignment, 0u);
                EXPECT_EQ(block % umem_fundamental_align(ctx), 0u);
                EXPECT_SAME(content(ctx, block, size), std::string(size, 0));
                umem_set(ctx, block, 'z', size + 8);
                uintptr_t origin = umem_aligned_origin(ctx, block);
                EXPECT_EQ(origin == 0, is_file);
                umem_free(ctx, origin);
            }
        }
        EXPECT_OK(ctx);
        EXPECT_EQ(umem_aligned_alloc(ctx, 6, 12), 0u);
        EXPECT_STREQ(umem_get_message(ctx), "umem_aligned_alloc: alignment 6 must be power of 2");
        umem_clear_status(ctx);
        EXPECT_EQ(umem_aligned_alloc(ctx, 128, 80), 0u);
        EXPECT_STREQ(umem_get_message(ctx),
                     "umem_aligned_alloc: size 80 must be multiple of alignment 128");
        umem_clear_status(ctx);
        EXPECT_EQ(errno, 0);
    }
}

// A driver aligns its allocations to no more than a unit of its own.
TEST_F(Cuda, AlignmentsBeyondTheDriversUnit) {
    for (const Kind &kind : kinds()) {
        SCOPED_TRACE(kind.name);
        auto ctx = kind.make(folder);
        for (size_t alignment = 512; alignment <= size_t(4) << 20; alignment *= 2) {
            uintptr_t block = umem_aligned_alloc(ctx.get(), alignment, 0);
            ASSERT_NE(block, 0u) << alignment << ": " << umem_get_message(ctx.get());
            EXPECT_EQ(block % alignment, 0u);
            umem_aligned_free(ctx.get(), block);
        }
        EXPECT_OK(ctx.get());
    }
}

TEST_F(Cuda, AllPairsCopy) {
    for (const Kind &from : kinds()) {
        for (const Kind &to : kinds()) {
            SCOPED_TRACE(from.name + " to " + to.name);
            auto src = from.make(folder), dest = to.make(folder);
            // Copies by way of the host are made piece by piece.
            bool has_pieces = from.name == "File" || to.name == "File";
            for (size_t size : {1, 1000, has_pieces ? 5 << 20 : 100000}) {
                uintptr_t source = umem_alloc(src.get(), size),
                          target = umem_calloc(dest.get(), size, 1);
                std::string text = pattern(size, 1), other = pattern(size, 2);
                umem_copy_from(src.get(), source, &host, adr(text.data()), size);
                umem_copy_to(src.get(), source, dest.get(), target, size);
                EXPECT_TRUE(content(dest.get(), target, size) == text);
                umem_copy_to(&host, adr(other.data()), src.get(), source, size);
                umem_copy_from(dest.get(), target, src.get(), source, size);
                std::string back(size, 0);
                umem_copy_from(&host, adr(&back[0]), dest.get(), target, size);
                EXPECT_TRUE(back == other);
                EXPECT_OK(src.get());
                EXPECT_OK(dest.get());
                umem_free(src.get(), source);
                umem_free(dest.get(), target);
            }
            EXPECT_OK(&host);
            EXPECT_EQ(errno, 0);
        }
    }
}

TEST_F(Cuda, AllPairsConnect) {
    for (const Kind &from : kinds()) {
        for (const Kind &to : kinds()) {
            SCOPED_TRACE(from.name + " to " + to.name);
            auto src = from.make(folder), dest = to.make(folder);
            std::string text = pattern(1000, 3), other = pattern(1000, 4);
            uintptr_t source = umem_alloc(src.get(), 1000);
            umem_copy_from(src.get(), source, &host, adr(text.data()), 1000);
            for (size_t alignment : {0, 16, 512}) {
                uintptr_t place = umem_connect(src.get(), source, 1000, dest.get(), alignment);
                EXPECT_TRUE(content(dest.get(), place, 1000) == text);
                umem_copy_to(&host, adr(other.data()), dest.get(), place, 1000);
                umem_sync_from(src.get(), source, dest.get(), place, 1000);
                EXPECT_TRUE(content(src.get(), source, 1000) == other);
                umem_copy_to(&host, adr(text.data()), src.get(), source, 1000);
                umem_sync_to_safe(src.get(), source, 1000, dest.get(), place, 1000, 1000);
                EXPECT_TRUE(content(dest.get(), place, 1000) == text);
                umem_disconnect(src.get(), source, dest.get(), place, alignment);
            }
            EXPECT_OK(src.get());
            EXPECT_OK(dest.get());
            umem_free(src.get(), source);
        }
    }
}

TEST_F(Cuda, WhoReachesWhom) {
    struct Row {
        const char *from, *to;
    } const yes[] = {{"Host", "Host"},         {"Cuda", "CudaManaged"},
                     {"CudaHost", "Host"},     {"CudaHost", "Cuda"},
                     {"CudaHost", "CudaHost"}, {"CudaHost", "CudaManaged"},
                     {"CudaHost", "RMM"},      {"CudaManaged", "Host"},
                     {"MMap", "Host"},         {"CudaManaged", "CudaManaged"},
                     {"Cuda", "Cuda"},         {"RMM", "RMM"},
                     {"MMap", "MMap"}};
    for (const Kind &from : kinds()) {
        for (const Kind &to : kinds()) {
            if ((from.name + to.name).find("Async") != std::string::npos ||
                (from.name + to.name).find("Other") != std::string::npos) {
                continue;
            }
            SCOPED_TRACE(from.name + " to " + to.name);
            bool expected = false;
            for (const Row &row : yes) {
                expected |= from.name == row.from && to.name == row.to;
            }
            auto src = from.make(folder), dest = to.make(folder);
            EXPECT_EQ(umem_is_accessible_from(src.get(), dest.get()), expected);
            EXPECT_OK(src.get());
        }
    }
    Made<umemRMM> one(rmm_ctor, 0, false, uintptr_t(0)), stream(rmm_ctor, 0, false, uintptr_t(7)),
        device(rmm_ctor, 1, false, uintptr_t(0));
    EXPECT_FALSE(umem_is_accessible_from(&one, &stream));
    EXPECT_FALSE(umem_is_accessible_from(&one, &device));
    EXPECT_TRUE(umem_is_same_device(&one, &stream));
    EXPECT_FALSE(umem_is_same_device(&one, &device));
}

TEST_F(Cuda, Peers) {
    if (count() < 2) {
        GTEST_SKIP() << "there is one device";
    }
    Made<umemCuda> one(umemCuda_ctor, 0), other(umemCuda_ctor, 1);
    int can = 0;
    CU(cuDeviceCanAccessPeer(&can, 1, 0));
    EXPECT_FALSE(umem_is_same_device(&one, &other));
    bool reaches = umem_is_accessible_from(&one, &other);
    EXPECT_OK(&one);
    EXPECT_LE(reaches, can != 0);
    NEEDS_FAKE();
    driver().control()->lacks_peers = 1;
    EXPECT_FALSE(umem_is_accessible_from(&one, &other));
    EXPECT_OK(&one);
    driver().control()->lacks_peers = 0;
    fail_call(driver().control(), FAKE_cuDeviceCanAccessPeer, CUDA_ERROR_UNKNOWN, 1);
    EXPECT_FALSE(umem_is_accessible_from(&one, &other));
    EXPECT_STATUS(&one, umemRuntimeError);
    EXPECT_OK(&other);
}

// Work that is queued on the context's stream, or on the default one, is done first.
TEST_F(Cuda, CopiesWaitForWorkBefore) {
    CUstream stream;
    Made<umemCuda> cuda(umemCuda_ctor, 0);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    {
        Made<umemRMM> rmm(rmm_ctor, 0, true, reinterpret_cast<uintptr_t>(stream));
        uintptr_t block = umem_calloc(&rmm, 1000, 1), plain = umem_calloc(&cuda, 1000, 1);
        CU(cuMemsetD8Async(block, 'a', 1000, stream));
        EXPECT_SAME(content(&rmm, block, 1000), std::string(1000, 'a'));
        CU(cuMemsetD8Async(plain, 'b', 1000, nullptr));
        EXPECT_SAME(content(&cuda, plain, 1000), std::string(1000, 'b'));
        umem_set(&rmm, block, 'c', 1000);
        umem_copy_to(&rmm, block, &cuda, plain, 1000);
        EXPECT_SAME(content(&cuda, plain, 1000), std::string(1000, 'c'));
        umem_set(&rmm, block, 'd', 1000);
        umem_free(&rmm, block);
        umem_free(&cuda, plain);
        EXPECT_OK(&rmm);
    }
    CU(cuStreamDestroy(stream));
}

TEST_F(Cuda, ManagedMemoryIsReadAtOnce) {
    Made<umemCuda> cuda(umemCuda_ctor, 0);
    Made<umemCudaManaged> managed(umemCudaManaged_ctor, 0u, false, uintptr_t(0));
    Made<umemCudaHost> pinned(umemCudaHost_ctor, 0u);
    uintptr_t source = umem_alloc(&cuda, 1000), target = umem_calloc(&managed, 1000, 1),
              other = umem_calloc(&pinned, 1000, 1);
    umem_set(&cuda, source, 'a', 1000);
    umem_copy_to(&cuda, source, &managed, target, 1000);
    EXPECT_EQ(reinterpret_cast<char *>(target)[999], 'a');
    umem_set(&managed, target, 'b', 1000);
    EXPECT_EQ(reinterpret_cast<char *>(target)[999], 'b');
    umem_copy_to(&cuda, source, &pinned, other, 1000);
    EXPECT_EQ(reinterpret_cast<char *>(other)[999], 'a');
    umem_free(&cuda, source);
    umem_free(&managed, target);
    umem_free(&pinned, other);
    EXPECT_OK(&managed);
}

// Memory that the program got from the driver itself.
TEST_F(Cuda, AddressesOfTheDriver) {
    Made<umemCuda> cuda(umemCuda_ctor, 0);
    CUdeviceptr given = 0;
    CU(cuMemAlloc(&given, 1 << 20));
    std::string text = pattern(1 << 20, 5);
    umem_copy_to(&host, adr(text.data()), &cuda, given, text.size());
    EXPECT_TRUE(content(&cuda, given, text.size()) == text);
    umem_set(&cuda, given, 'x', 1 << 20);
    EXPECT_SAME(content(&cuda, given, 3), "xxx");
    EXPECT_OK(&cuda);
    umem_free(&cuda, given);
    EXPECT_STATUS(&cuda, umemValueError);
    CU(cuMemFree(given));
}

TEST_F(Cuda, SuspendedMemoryIsARuntimeError) {
    Made<umemCuda> cuda(umemCuda_ctor, 0);
    uintptr_t block = umem_calloc(&cuda, 1000, 1);
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolByPtr(reinterpret_cast<void *>(block), &pool), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), UMF_RESULT_SUCCESS);
    content(&cuda, block, 1000);
    EXPECT_STATUS(&cuda, umemRuntimeError);
    EXPECT_OK(&host);
    umem_clear_status(&cuda);
    umem_set(&cuda, block, 'x', 10);
    EXPECT_STATUS(&cuda, umemRuntimeError);
    umem_clear_status(&cuda);
    EXPECT_EQ(umem_alloc(&cuda, 10), 0u);
    EXPECT_STATUS(&cuda, umemMemoryError);
    umem_clear_status(&cuda);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_SAME(content(&cuda, block, 1000), std::string(1000, 0));
    umem_free(&cuda, block);
    EXPECT_OK(&cuda);
    errno = 0; // of the suspend
}

TEST_F(Cuda, FailedCopiesAreRuntimeErrorsOfTheDevice) {
    NEEDS_FAKE();
    Made<umemCuda> cuda(umemCuda_ctor, 0), other(umemCuda_ctor, 0);
    uintptr_t block = umem_calloc(&cuda, 1000, 1);
    char data[1000];
    auto expect_error = [&](void *ctx) {
        EXPECT_STATUS(ctx, umemRuntimeError);
        for (void *each : {static_cast<void *>(&host), static_cast<void *>(&cuda),
                           static_cast<void *>(&other)}) {
            EXPECT_EQ(umem_is_ok(each), each != ctx);
            umem_clear_status(each);
        }
        EXPECT_EQ(errno, 0);
    };
    auto fail = [](int function) {
        fail_call(driver().control(), function, CUDA_ERROR_UNKNOWN, 1);
    };
    fail(FAKE_cuMemcpyAsync);
    umem_copy_to(&host, adr(data), &cuda, block, 1000);
    expect_error(&cuda);
    fail(FAKE_cuMemcpyAsync);
    umem_copy_from(&host, adr(data), &cuda, block, 1000);
    expect_error(&cuda);
    fail(FAKE_cuMemcpyAsync);
    umem_copy_to(&other, block, &cuda, block + 500, 100);
    expect_error(&other);
    fail(FAKE_cuMemcpyAsync);
    umem_copy_from(&other, block, &cuda, block + 500, 100);
    expect_error(&other);
    fail(FAKE_cuMemsetD8Async);
    umem_set(&cuda, block, 0, 1000);
    expect_error(&cuda);
    driver().control()->fail_at = 0;
    for (uintptr_t wrong : {uintptr_t(0), uintptr_t(5000), adr(data)}) { // no memory of a device
        umem_copy_to(&host, adr(data), &cuda, wrong, 10);
        expect_error(&cuda);
        umem_copy_to(&cuda, wrong, &other, block, 10);
        expect_error(&cuda);
        umem_set(&cuda, wrong, 0, 10);
        expect_error(&cuda);
    }
    umem_free(&cuda, block);
}

// Each call of the driver fails in turn, alone and with all after it: failures are reported,
// and the next use works.
TEST_F(Cuda, EachCallOfTheDriverMayFail) {
    NEEDS_FAKE();
    fake_cuda_t *control = driver().control();
    const std::string text = pattern(5000, 6);
    for (const Kind &kind : kinds()) {
        bool has_come = true;
        for (long n = 1; has_come; n++) {
            for (bool and_after : {false, true}) {
                SCOPED_TRACE(kind.name + " call " + std::to_string(n));
                auto context = kind.make(folder);
                void *ctx = context.get();
                std::string back(5000, 0);
                fail_calls(control, CUDA_ERROR_UNKNOWN, n, and_after);
                uintptr_t block = umem_aligned_alloc(ctx, 512, 5120);
                umem_copy_to(&host, adr(text.data()), ctx, block, 5000);
                umem_set(ctx, block + 5000, 'x', 8);
                umem_copy_from(&host, adr(&back[0]), ctx, block, 5000);
                umem_aligned_free(ctx, block);
                has_come = fail_calls(control, 0, 0, false);
                EXPECT_TRUE(!umem_is_ok(ctx) || back == text);
                EXPECT_TRUE(umem_is_ok(ctx) || has_come) << umem_get_message(ctx);
                EXPECT_OK(&host);
                EXPECT_EQ(errno, 0);
                umem_clear_status(ctx);
                block = umem_calloc(ctx, 100, 1);
                EXPECT_EQ(content(ctx, block, 100), std::string(100, 0));
                umem_free(ctx, block);
                EXPECT_OK(ctx);
            }
        }
    }
}

TEST_F(Cuda, Classes) {
    umem::Cuda cuda(0);
    umem::RMM rmm(0, 0, true);
    umem::CudaHost pinned;
    umem::CudaManaged managed;
    umem::Host memory;
    EXPECT_TRUE(static_cast<umemRMM *>(rmm.get_raw_context())->async);
    EXPECT_EQ(static_cast<umemRMM *>(umem::RMM(0, 5).get_raw_context())->stream, 5u);
    umemRMM documented;
    umemRMM_ctor(&documented, 0, uintptr_t(6));
    EXPECT_EQ(documented.stream, 6u);
    EXPECT_FALSE(documented.async);
    umem_dtor(&documented);
    umem::Context *contexts[] = {&cuda, &rmm, &pinned, &managed, &memory};
    for (umem::Context *context : contexts) {
        umem::Address block = context->alloc(100);
        block.set('a', 100);
        umem::Address here = block.connect(memory, 100), back = block.connect(100);
        EXPECT_EQ(here[99], 'a');
        EXPECT_EQ(back[0], 'a');
        here.set('b', 100);
        here.sync(50);
        back.update(100);
        EXPECT_EQ(back[49], 'b');
        EXPECT_TRUE(context->is_ok()) << context->get_message();
    }
}

TEST_F(Cuda, ThreadsShareThePools) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([i] {
            Made<umemCuda> cuda(umemCuda_ctor, i % count());
            Made<umemHost> own(umemHost_ctor);
            for (size_t size = 100; size < 3000; size += 100) {
                uintptr_t block = umem_alloc(&cuda, size);
                std::string text = pattern(size, i), back(size, 0);
                umem_copy_to(&own, reinterpret_cast<uintptr_t>(text.data()), &cuda, block, size);
                umem_copy_to(&cuda, block, &own, reinterpret_cast<uintptr_t>(&back[0]), size);
                EXPECT_TRUE(back == text);
                umem_free(&cuda, block);
            }
            EXPECT_OK(&cuda);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}
