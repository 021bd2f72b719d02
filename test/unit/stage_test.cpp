// Large copies by several threads: through pinned memory in two halves, and by the CPU. The machine
// is taken to have as many CPUs as it needs for that.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/suspend.h>

#include "fakes/content.h"
#include "fakes/places.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
/* Stands in for umf_os_cpu_count in this program (the linker's --wrap). */
size_t __wrap_umf_os_cpu_count(void);
}

size_t __wrap_umf_os_cpu_count(void) {
    return 6;
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t FAILED = UMF_RESULT_ERROR_USER_SPECIFIC;
constexpr size_t MiB = size_t{1} << 20;

class Stage : public ::testing::Test {
  protected:
    std::unique_ptr<Places> places = std::make_unique<Places>();

    // Copies `size` bytes between two places and compares.
    void check(const std::string &to, const std::string &from, size_t size) {
        SCOPED_TRACE("from " + from + " to " + to);
        Bytes model(size), now(size);
        fill(model.data(), size, size);
        Place &a = places->at(to), &b = places->at(from);
        char *target = static_cast<char *>(a.take(size)),
             *source = static_cast<char *>(b.take(size));
        ASSERT_NE(target, nullptr);
        ASSERT_NE(source, nullptr);
        b.write(source, model.data(), size);
        umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
        size_t done = 0;
        params.done = &done;
        ASSERT_EQ(umfCopy(target, source, size, &params), OK);
        EXPECT_EQ(done, size);
        a.read(now.data(), target, size);
        EXPECT_TRUE(now == model);
        a.give(target);
        b.give(source);
    }
};

#if UMF_WITH_CUDA

size_t registered() {
    return driver().control()->registered;
}

TEST_F(Stage, pageable_memory_goes_to_a_device_and_back_through_pinned_memory) {
    NEEDS_FAKE();
    for (const char *device : {"cuda_device", "cuda_vmm"}) {
        size_t before = registered();
        check(device, "malloc", 20 * MiB + 12345);
        EXPECT_GT(registered(), before) << "pinned, and kept for the next copy";
        size_t held = registered();
        check("malloc", device, 20 * MiB + 777);
        check(device, "os", 16 * MiB);
        EXPECT_EQ(registered(), held);
    }
    check("cuda_device", "malloc", 15 * MiB);
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(registered(), 0u);
}

TEST_F(Stage, without_pinned_memory_ordinary_memory_does) {
    NEEDS_FAKE();
    fail_call(driver().control(), FAKE_cuMemHostRegister, CUDA_ERROR_OUT_OF_MEMORY, 1);
    check("cuda_device", "malloc", 20 * MiB);
    EXPECT_EQ(driver().control()->fail_at, 0) << "it was tried";
    EXPECT_EQ(registered(), 0u);
}

TEST_F(Stage, a_copy_to_the_device_that_fails_tells_what_is_right) {
    NEEDS_FAKE();
    constexpr size_t size = 48 * MiB;
    Bytes model(size), now(size);
    fill(model.data(), size, 3);
    char *device = static_cast<char *>(places->at("cuda_device").take(size));
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    size_t done = 0;
    params.done = &done;
    for (long n : {1, 2, 5}) {
        ASSERT_EQ(umfFill(device, "", 1, size, nullptr), OK);
        fail_call(driver().control(), FAKE_cuMemcpyAsync, CUDA_ERROR_UNKNOWN, n);
        EXPECT_NE(umfCopy(device, model.data(), size, &params), OK);
        EXPECT_LT(done, size);
        places->at("cuda_device").read(now.data(), device, size);
        EXPECT_TRUE(
            std::equal(now.begin(), now.begin() + static_cast<ptrdiff_t>(done), model.begin()))
            << done;
    }
    places->at("cuda_device").give(device);
}

// A queue of the caller is waited for by stages, one that is being captured is not.
TEST_F(Stage, a_copy_on_a_queue_is_staged_unless_the_queue_is_captured) {
    NEEDS_FAKE();
    constexpr size_t size = 36 * MiB;
    Bytes model(size);
    char *device = static_cast<char *>(places->at("cuda_device").take(size));
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    const long &copies = driver().control()->calls[FAKE_cuMemcpyAsync];
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    params.queue = stream;
    long before = copies;
    ASSERT_EQ(umfCopy(device, model.data(), size, &params), OK);
    EXPECT_GT(copies, before + 1) << "in pieces";
    before = copies;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(umfCopy(device, model.data(), size, &params), OK);
    EXPECT_EQ(copies, before + 1);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphDestroy(graph));
    before = copies;
    fail_call(driver().control(), FAKE_cuStreamSynchronize, CUDA_ERROR_UNKNOWN, 1);
    EXPECT_NE(umfCopy(device, model.data(), size, &params), OK);
    EXPECT_EQ(copies, before) << "none before the work on the queue is done";
    CU(cuStreamDestroy(stream));
    places->at("cuda_device").give(device);
}

// By two threads, with pinned memory that is new each time.
TEST_F(Stage, each_call_of_the_driver_may_fail) {
    NEEDS_FAKE();
    constexpr size_t size = 36 * MiB;
    Bytes model(size), now(size);
    fill(model.data(), size, 6);
    Place &place = places->at("cuda_vmm");
    char *device = static_cast<char *>(place.take(size));
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    size_t done = 0;
    params.done = &done;
    for (bool is_to_device : {true, false}) {
        bool is_reached = true;
        for (long n = 1; is_reached; n += does_all() ? 1 : UMF_TEST_TSAN ? 19 : 7) {
            ASSERT_LT(n, 1000);
            memset(now.data(), 0, size);
            is_to_device ? place.write(device, now.data(), size)
                         : place.write(device, model.data(), size);
            ASSERT_EQ(umfSuspendTrim(), OK);
            fail_cuda(n);
            umf_result_t result = is_to_device ? umfCopy(device, model.data(), size, &params)
                                               : umfCopy(now.data(), device, size, &params);
            is_reached = fail_cuda(0);
            ASSERT_TRUE(is_reached || result == OK) << n;
            if (is_to_device) {
                place.read(now.data(), device, size);
            }
            ASSERT_EQ(memcmp(now.data(), model.data(), result == OK ? size : done), 0) << n;
        }
    }
    place.give(device);
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(registered(), 0u);
}

#endif

TEST_F(Stage, two_providers_of_ones_own_meet_in_the_middle) {
    check("far", "far_other", 5 * MiB + 99);
    check("far_silent", "far", 100);
    check("far", "far_silent", 512 * 1024);
#if UMF_WITH_CUDA
    check("far", "cuda_device", 20 * MiB + 1);
    check("cuda_vmm", "far", 17 * MiB + 1);
#endif
}

TEST_F(Stage, a_provider_that_fails_in_the_middle_tells_what_is_right) {
    constexpr size_t size = 4 * MiB;
    Bytes model(size), now(size);
    fill(model.data(), size, 4);
    Place &to = places->at("far"), &from = places->at("far_other");
    char *target = static_cast<char *>(to.take(size)),
         *source = static_cast<char *>(from.take(size));
    from.write(source, model.data(), size);
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    size_t done = 0, most = 0;
    params.done = &done;
    for (FarProvider *side : {places->far[0].get(), places->far[1].get()}) {
        for (long n = 1; n <= 8; n++) {
            ASSERT_EQ(umfFill(target, "", 1, size, nullptr), OK);
            side->fail_copy_at = n;
            EXPECT_EQ(umfCopy(target, source, size, &params), FAILED);
            to.read(now.data(), target, size);
            EXPECT_TRUE(
                std::equal(now.begin(), now.begin() + static_cast<ptrdiff_t>(done), model.begin()))
                << done;
            most = std::max(most, done);
        }
    }
    EXPECT_GE(most, size / 2);
    EXPECT_EQ(umfCopy(target, source, size, &params), OK);
    EXPECT_EQ(done, size);
    to.give(target);
    from.give(source);
}

// The wait that fails is the one for the only part, which is the last one.
TEST_F(Stage, a_last_part_whose_wait_fails_once_is_an_error) {
    Place &to = places->at("far"), &from = places->at("far_other");
    void *target = to.take(100), *source = from.take(100);
    for (FarProvider *side : {places->far[0].get(), places->far[1].get()}) {
        side->during_wait = [=] { side->fails_wait = false; };
        side->during_copy = [=] { side->fails_wait = true; };
        EXPECT_EQ(umfCopy(target, source, 100, nullptr), FAILED);
        side->during_wait = side->during_copy = nullptr;
        side->fails_wait = false;
    }
    EXPECT_EQ(umfCopy(target, source, 100, nullptr), OK);
    to.give(target);
    from.give(source);
}

// Twice, because the first one is measured.
TEST_F(Stage, large_copies_of_the_cpu_are_divided_among_threads) {
    const std::vector<int> blocked = blocked_signals();
    for (int round = 0; round < 2; round++) {
        check("malloc", "os", (UMF_TEST_TSAN ? 40 : 230) * MiB + 13);
        check("linux_vmm", "malloc", 32 * MiB);
    }
    EXPECT_EQ(blocked_signals(), blocked);
}

TEST_F(Stage, more_than_2_gib_is_copied_and_filled) {
    constexpr size_t size = (size_t{2} << 30) + 1;
    if (!does_all()) {
        GTEST_SKIP() << "takes 4 GiB of memory: UMF_TEST_SCALE=100";
    }
    Place &os = places->at("os");
    char *to = static_cast<char *>(os.take(size)), *from = static_cast<char *>(os.take(size));
    ASSERT_EQ(umfFill(from, "abc", 3, size, nullptr), OK);
    EXPECT_EQ(memcmp(from, "abc", 3), 0);
    EXPECT_EQ(memcmp(from, from + 3, size - 3), 0);
    ASSERT_EQ(umfCopy(to, from, size, nullptr), OK);
    EXPECT_EQ(memcmp(to, from, size), 0);
    os.give(to);
    os.give(from);
}

TEST_F(Stage, large_fills_of_the_cpu_repeat_the_pattern_across_threads) {
    constexpr size_t size = 100 * MiB + 3;
    Bytes memory(size);
    for (size_t length : {1, 2, 7, 16, 4096, 100000}) {
        Bytes pattern(length);
        fill(pattern.data(), length, length);
        ASSERT_EQ(umfFill(memory.data(), pattern.data(), length, size, nullptr), OK);
        EXPECT_EQ(memcmp(memory.data(), pattern.data(), length), 0);
        // What lies one pattern further is the same.
        EXPECT_EQ(memcmp(memory.data(), memory.data() + length, size - length), 0) << length;
    }
}

TEST_F(Stage, large_ranges_that_overlap_are_copied_as_by_memmove) {
    constexpr size_t size = 40 * MiB;
    Bytes memory(size + 4096), model;
    fill(memory.data(), memory.size(), 5);
    model = memory;
    ASSERT_EQ(umfCopy(memory.data() + 4096, memory.data(), size, nullptr), OK);
    memmove(model.data() + 4096, model.data(), size);
    EXPECT_TRUE(memory == model);
    ASSERT_EQ(umfCopy(memory.data(), memory.data() + 100, size, nullptr), OK);
    memmove(model.data(), model.data() + 100, size);
    EXPECT_TRUE(memory == model);
}

} // namespace
