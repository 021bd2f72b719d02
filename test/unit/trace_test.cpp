// The benchmark's recorded sequences: what their file may say, and that pools can serve them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <umf/experimental/ctl.h>
#include <umf/pools/pool_proxy.h>
#include <umf/text.h>

#include "../../benchmark/trace.h"
#include "fakes/fake_provider.h"
#include "fakes/ranged_vmm.h"
#include "fakes/scale.h"

namespace {

constexpr size_t MiB = size_t{1} << 20;

const char good[] = "# by hand\n"
                    "t 6291456 8388608\n"
                    "\n"
                    "a 10 1048576\n"
                    "a 7 4194304\n"
                    "a 18446744 1000\n"
                    "f 7\n"
                    "a 7 2097152\n"
                    "f 10\n"
                    "f 7\n";

std::string error_of(const std::string &text) {
    std::istringstream file(text);
    trace::Trace trace;
    std::string error;
    EXPECT_FALSE(trace::read(file, trace, error)) << text;
    return error;
}

} // namespace

TEST(Trace, IsRead) {
    std::istringstream file(good);
    trace::Trace trace;
    std::string error;
    ASSERT_TRUE(trace::read(file, trace, error)) << error;
    EXPECT_EQ(trace.allocated, 6 * MiB);
    EXPECT_EQ(trace.reserved, 8 * MiB);
    EXPECT_EQ(trace.peak_live, 5 * MiB + 1000);
    EXPECT_EQ(trace.blocks, 4u);
    const trace::Event events[] = {{0, MiB},     {1, 4 * MiB}, {2, 1000}, {1, 0},
                                   {3, 2 * MiB}, {0, 0},       {3, 0}};
    ASSERT_EQ(trace.events.size(), std::size(events));
    for (size_t i = 0; i < trace.events.size(); i++) {
        EXPECT_EQ(trace.events[i].id, events[i].id) << i;
        EXPECT_EQ(trace.events[i].size, events[i].size) << i;
    }
}

TEST(Trace, TellsWhatIsWrong) {
    const char *form = "must be 'a <block> <bytes>', 'f <block>', '+ <bytes>', '- <blocks ago>' or "
                       "'t <allocated> <reserved>'";
    for (const char *line : {"x",
                             "a",
                             "a ",
                             "a 1",
                             "a 1 ",
                             "a 1 x",
                             "a 1 2 3",
                             "a 1 2x",
                             "a  1 2",
                             "a -1 2",
                             "a 1 -2",
                             "a1 2",
                             "aa 1 2",
                             "f",
                             "f x",
                             "f 1 2",
                             "+",
                             "+ 1 2",
                             "-",
                             "- 1 2",
                             "- -1",
                             "t 1",
                             "t 1 2 3",
                             " a 1 2",
                             "a 1 2\r",
                             "a 1 0x10",
                             "a 1 99999999999999999999",
                             "a 99999999999999999999 1",
                             "A 1 2"}) {
        EXPECT_EQ(error_of("a 5 1\n" + std::string(line) + "\n"), std::string("line 2: ") + form)
            << line;
    }
    EXPECT_EQ(error_of("a 1 0\n"), "line 1: a block of 0 bytes");
    EXPECT_EQ(error_of("a 1 5\n\na 1 5\n"), "line 3: block 1 is allocated already");
    EXPECT_EQ(error_of("a 1 5\nf 1\nf 1\n"), "line 3: block 1 is not allocated");
    EXPECT_EQ(error_of("f 1\n"), "line 1: block 1 is not allocated");
    EXPECT_EQ(error_of("+ 5\n- 1\n- 1\n"), "line 3: block 0 is not allocated");
    EXPECT_EQ(error_of("+ 5\n- 0\n"), "line 2: block 1 is not allocated");
    EXPECT_EQ(error_of("+ 5\n- 2\n"), "line 2: block 18446744073709551615 is not allocated");
    EXPECT_EQ(error_of("a 1 5\n+ 5\n"), "line 2: block 1 is allocated already");
    EXPECT_EQ(error_of("a 1 70368744177664\na 2 1\n"), "line 2: more blocks or bytes than can be");
    EXPECT_EQ(error_of(""), "no events");
    EXPECT_EQ(error_of("# nothing\nt 1 2\n"), "no events");
    EXPECT_EQ(error_of(std::string("a 1 2\n\0a 2 2\n", 13)), std::string("line 2: ") + form);

    trace::Trace trace;
    std::string error;
    EXPECT_FALSE(trace::read_file("/there/is/none", trace, error));
    EXPECT_EQ(error, "cannot be opened");
    EXPECT_FALSE(trace::read_file("/proc", trace, error));
    EXPECT_EQ(error, "cannot be read");
}

// Each line without the number of its block.
TEST(Trace, CountsBlocks) {
    std::istringstream file("+ 5\n+ 6\n- 2\n+ 7\n- 1\n- 2\n");
    trace::Trace trace;
    std::string error;
    ASSERT_TRUE(trace::read(file, trace, error)) << error;
    const trace::Event events[] = {{0, 5}, {1, 6}, {0, 0}, {2, 7}, {2, 0}, {1, 0}};
    ASSERT_EQ(trace.events.size(), std::size(events));
    for (size_t i = 0; i < trace.events.size(); i++) {
        EXPECT_EQ(trace.events[i].id, events[i].id) << i;
        EXPECT_EQ(trace.events[i].size, events[i].size) << i;
    }
}

// --- recordings ----------------------------------------------------------------------------------

namespace {

size_t counter(umf_memory_pool_handle_t pool, const char *name) {
    size_t value = 0;
    const std::string path = std::string("umf.pool.by_handle.{}.stats.") + name;
    EXPECT_EQ(umfCtlGet(path.c_str(), &value, sizeof(value), pool), UMF_RESULT_SUCCESS) << name;
    return value;
}

struct Needed {
    double reserved;
    size_t moves; // of pages: a driver needs the same time for each, whatever its size
};

Needed needed_by(const trace::Trace &trace, const char *text) {
    umf_memory_pool_handle_t pool = nullptr;
    RangedVmm::reset();
    umf_memory_provider_handle_t provider = RangedVmm::create();
    EXPECT_EQ(umfPoolCreateFromTextOver(text, provider, &pool), UMF_RESULT_SUCCESS)
        << umfTextError();
    if (!pool) {
        return {};
    }
    EXPECT_TRUE(trace::replay(trace, pool, nullptr)) << text;
    const Needed needed = {static_cast<double>(counter(pool, "reserved_peak")),
                           RangedVmm::maps() - RangedVmm::calls("page_create")};
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    EXPECT_EQ(RangedVmm::faults(), "");
    return needed;
}

} // namespace

struct Recording {
    const char *name;
    double of_pytorch; // reserved of live when it was recorded
    double most;       // of an arena
    double least_off;  // of one whose pages stay
    size_t moves;      // of pages, at most
};

class Recorded : public testing::TestWithParam<Recording> {};

// PyTorch's requests in trainings on a GPU (traces/README.md), in their real sizes: no page is
// touched.
TEST_P(Recorded, NeedsLittleMoreThanItUses) {
    const Recording &recording = GetParam();
    if (std::getenv("UMF_TEST_EMULATOR")) {
        GTEST_SKIP() << "the emulator has a record of its own for each page of 128 GiB";
    }
    if (UMF_TEST_ASAN && !does_all() && strcmp(recording.name, "fixed") != 0) {
        GTEST_SKIP() << "the sanitizer sees the same code in the shortest one";
    }
    const std::string path = std::string(UMF_TEST_TRACES) + "/" + recording.name;
    trace::Trace trace;
    std::string error;
    ASSERT_TRUE(trace::read_file(path.c_str(), trace, error)) << path << ": " << error;
    const auto live = static_cast<double>(trace.peak_live);
    EXPECT_NEAR(static_cast<double>(trace.reserved) / live, recording.of_pytorch, 0.001);

    const Needed arena = needed_by(trace, "coalescing:arena=yes,arena_page=2M,arena_size=128G");
    const Needed off =
        needed_by(trace, "coalescing:arena=yes,arena_page=2M,arena_size=128G,donate=off");
    EXPECT_GE(arena.reserved, live);
    EXPECT_GT(arena.moves, 0U);
    EXPECT_LE(arena.moves, recording.moves);
    EXPECT_EQ(off.moves, 0U);
    EXPECT_LE(arena.reserved / live, recording.most);
    EXPECT_GE(off.reserved / live, recording.least_off) << "a recording that shows nothing";
    RecordProperty("moves", std::to_string(arena.moves));
    RecordProperty("reserved_of_live", std::to_string(arena.reserved / live));
}

INSTANTIATE_TEST_SUITE_P(OnAGpu, Recorded,
                         testing::Values(Recording{"training", 1.526, 1.011, 1.04, 1200},
                                         Recording{"checkpointing", 1.614, 1.011, 1.14, 6300},
                                         Recording{"streams", 1.282, 1.011, 1.03, 850},
                                         Recording{"fixed", 1.036, 1.011, 1.02, 700}),
                         [](const auto &of) { return std::string(of.param.name); });

TEST(Trace, IsServedByPools) {
    std::istringstream file(good);
    trace::Trace trace;
    std::string error;
    ASSERT_TRUE(trace::read(file, trace, error)) << error;
    for (const char *text : {"coalescing over linux_vmm", "disjoint over linux_vmm",
                             "coalescing over os", "proxy over os"}) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText(text, &pool), UMF_RESULT_SUCCESS) << text;
        size_t calls = 0, most = 0, count = 0;
        EXPECT_TRUE(trace::replay(trace, pool, [&] {
            calls++;
            umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool);
            most = std::max(most, count);
        })) << text;
        EXPECT_EQ(calls, 4u);
        EXPECT_EQ(most, 3u);
        umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool);
        EXPECT_EQ(count, 0u) << "remaining blocks are freed at the end";
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
}

TEST(Trace, APoolWithoutMemoryIsNoSuccess) {
    std::istringstream file(good);
    trace::Trace trace;
    std::string error;
    ASSERT_TRUE(trace::read(file, trace, error)) << error;
    FakeProvider fake;
    fake.limit = 4 * MiB;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(trace::replay(trace, pool, nullptr));
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(provider);
    EXPECT_EQ(fake.live(), 0u);
}
