// The oracle of the software driver: what no order allows is found, whatever happens first, and
// uses that an order allows are not. With streams that work when a thread waits, and in their own
// threads.

#include <functional>
#include <string>
#include <vector>

#include "gpu.h"

namespace {

constexpr size_t KiB = 1024;

class Oracle : public Gpu, public testing::WithParamInterface<unsigned long> {
  protected:
    CUstream one = nullptr, two = nullptr, blocking = nullptr;
    CUevent event = nullptr;
    char *block = nullptr;

    void SetUp() override {
        NEEDS_FAKE();
        Gpu::SetUp();
        driver().control()->late = GetParam();
        CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
        CU(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
        CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CUdeviceptr made = 0;
        CU(cuMemAlloc(&made, 64 * KiB));
        block = reinterpret_cast<char *>(made);
    }
    void TearDown() override {
        if (!driver().is_real) {
            driver().cuCtxDestroy(context);
            driver().reset();
        }
    }

    void work(const char *name, CUstream stream, const std::vector<fake_cuda_use_t> &uses) {
        EXPECT_EQ(driver().launch(name, uses.data(), uses.size(), stream), CUDA_SUCCESS) << name;
    }
    void reads(const char *name, CUstream stream, size_t at = 0, size_t size = KiB) {
        work(name, stream, {{block + at, size, 0}});
    }
    void writes(const char *name, CUstream stream, size_t at = 0, size_t size = KiB) {
        work(name, stream, {{block + at, size, 1}});
    }
    void order(CUstream first, CUstream second) {
        CU(cuEventRecord(event, first));
        CU(cuStreamWaitEvent(second, event, 0));
    }
    static std::string faults() {
        return driver().faults();
    }
    // Nothing was wrong until now, and now there is one fault, which says all of it.
    static void is_fault(const std::vector<std::string> &words) {
        const std::string text = faults();
        EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
        for (const std::string &word : words) {
            EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
        }
    }
    std::string bytes(size_t from, size_t size) const {
        char text[80];
        snprintf(text, sizeof(text), "bytes 0x%zx to 0x%zx", reinterpret_cast<size_t>(block + from),
                 reinterpret_cast<size_t>(block + from + size - 1));
        return text;
    }
    CUgraphExec capture(CUstream stream, const std::function<void()> &body) {
        CUgraph graph = nullptr;
        CUgraphExec ready = nullptr;
        EXPECT_EQ(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                  CUDA_SUCCESS);
        body();
        EXPECT_EQ(driver().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuGraphInstantiateWithFlags(&ready, graph, 0), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuGraphDestroy(graph), CUDA_SUCCESS);
        return ready;
    }
};

// Virtual memory, mapped and open to the device.
struct Mapped {
    static constexpr size_t size = size_t{2} << 20;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access{};

    Mapped() {
        make();
    }
    void make() {
        CUmemAllocationProp wanted{};
        wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location = wanted.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CU(cuMemAddressReserve(&at, size, 0, 0, 0));
        CU(cuMemCreate(&handle, size, &wanted, 0));
        map();
    }
    void map() {
        CU(cuMemMap(at, size, 0, handle, 0));
        CU(cuMemSetAccess(at, size, &access, 1));
    }
};

} // namespace

// --- bytes that two streams use ------------------------------------------------------------------

TEST_P(Oracle, FindsTwoWritersWithoutAnOrder) {
    writes("first", one);
    writes("second", two);
    is_fault({"second (work ", "first (work ", "without an order", "writes them", bytes(0, KiB)});
}

TEST_P(Oracle, FindsAReaderBesideAWriter) {
    writes("first", one);
    reads("second", two);
    is_fault({"second (work ", " reads ", "first (work ", "writes them"});
}

TEST_P(Oracle, FindsAWriterBesideAReader) {
    reads("first", one);
    writes("second", two);
    is_fault({"second (work ", " writes ", "first (work ", "reads them"});
}

TEST_P(Oracle, FindsTheReaderThatWasForgotten) {
    reads("first", one);
    reads("second", two);
    order(two, blocking);
    writes("third", blocking);
    is_fault({"third (work ", "first (work "});
}

TEST_P(Oracle, NamesTheBytesOfBoth) {
    writes("first", one, KiB, 4 * KiB);
    reads("second", two, 4 * KiB, 4 * KiB);
    is_fault({bytes(4 * KiB, KiB)});
}

TEST_P(Oracle, FindsCopiesAndFills) {
    const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(block);
    CU(cuMemsetD8Async(at, 1, KiB, one));
    CU(cuMemcpyAsync(at + 2 * KiB, at, KiB, two));
    is_fault({"cuMemcpyAsync (work ", "cuMemsetD8Async (work "});
}

TEST_P(Oracle, FindsRowsAndNotWhatIsBetweenThem) {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    rows.srcDevice = reinterpret_cast<CUdeviceptr>(block);
    rows.dstDevice = rows.srcDevice + 32 * KiB;
    rows.srcPitch = rows.dstPitch = KiB;
    rows.WidthInBytes = 100;
    rows.Height = 8;
    CU(cuMemcpy2DAsync(&rows, one));
    writes("between", two, 32 * KiB + 100, KiB - 100);
    EXPECT_EQ(faults(), "");
    writes("row", two, 33 * KiB + 99, 1);
    is_fault({"row (work ", "cuMemcpy2DAsync (work "});
}

TEST_P(Oracle, AnEventThatWasRecordedTooEarlyOrdersNothing) {
    CU(cuEventRecord(event, one));
    writes("first", one);
    CU(cuStreamWaitEvent(two, event, 0));
    writes("second", two);
    is_fault({"second (work ", "first (work "});
}

TEST_P(Oracle, AWaitIsForTheRecordBeforeIt) {
    writes("first", one);
    order(one, two);
    writes("late", one, 0, KiB); // after the first, and recorded behind the wait
    CU(cuEventRecord(event, one));
    writes("second", two);
    is_fault({"second (work ", "late (work "});
}

TEST_P(Oracle, AQueryThatFindsNothingOrdersNothing) {
    writes("first", one);
    CU(cuEventCreate(&event, 0)); // not recorded: it has passed
    CU(cuEventQuery(event));
    writes("second", two);
    is_fault({"second (work ", "first (work "});
}

TEST_P(Oracle, PassesWhatIsOrdered) {
    writes("one stream", one);
    reads("one stream", one);
    order(one, two);
    writes("an event", two);
    order(two, blocking);
    reads("by way of two", blocking);
    CU(cuStreamSynchronize(blocking));
    writes("the host waited", one);
    CU(cuEventRecord(event, one));
    CU(cuEventSynchronize(event));
    writes("for an event", two);
    CU(cuCtxSynchronize());
    writes("for the context", one);
    CU(cuCtxRecordEvent(context, event));
    CU(cuStreamWaitEvent(two, event, 0));
    writes("an event of the context", two);
    CU(cuEventRecord(event, two));
    while (driver().cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
    writes("a query", one);
    EXPECT_EQ(faults(), "");
}

TEST_P(Oracle, PassesReadersSideBySide) {
    writes("source", one);
    order(one, two);
    reads("first", one);
    reads("second", two);
    order(one, two);
    writes("behind both", two);
    writes("other bytes", one, KiB);
    EXPECT_EQ(faults(), "");
}

TEST_P(Oracle, TheDefaultStreamOrdersBlockingOnes) {
    CUstream other = nullptr;
    CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    writes("first", blocking);
    writes("on the default stream", nullptr);
    writes("second", other);
    writes("of the thread", CU_STREAM_PER_THREAD, KiB);
    reads("on the legacy stream", CU_STREAM_LEGACY, KiB);
    EXPECT_EQ(faults(), "");
    writes("not blocking", one, KiB);
    is_fault({"not blocking (work ", "of the thread (work "});
}

TEST_P(Oracle, AStreamThatIsDestroyedHasNotPassed) {
    writes("first", one);
    CU(cuStreamDestroy(one));
    writes("second", two);
    is_fault({"second (work ", "first (work "});
}

TEST_P(Oracle, AContextWaitsForDestroyedStreams) {
    writes("first", one);
    CU(cuStreamDestroy(one));
    CU(cuCtxSynchronize());
    writes("second", two);
    EXPECT_EQ(faults(), "");
}

TEST_P(Oracle, AHandleThatIsUsedAgainIsAnotherStream) {
    unsigned long long old_id = 0, new_id = 0;
    CUstream again = nullptr;
    writes("first", one);
    CU(cuStreamGetId(one, &old_id));
    CU(cuStreamDestroy(one));
    CU(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    CU(cuStreamGetId(again, &new_id));
    EXPECT_EQ(again, one);
    EXPECT_NE(old_id, new_id);
    writes("second", again);
    is_fault({"second (work ", "first (work "});
}

// --- memory that goes ----------------------------------------------------------------------------

TEST_P(Oracle, FindsMemoryThatIsUnmappedUnderWork) {
    Mapped memory;
    CU(cuMemsetD8Async(memory.at + KiB, 1, KiB, one));
    CU(cuMemUnmap(memory.at, memory.size));
    is_fault({"cuMemUnmap takes bytes", "cuMemsetD8Async (work ", "has not waited"});
    EXPECT_EQ(driver().control()->unordered_unmaps, 1);
}

// Also when the work has been done by chance.
TEST_P(Oracle, FindsMemoryThatIsUnmappedWithoutAWait) {
    Mapped memory;
    CU(cuMemsetD8Async(memory.at, 1, KiB, one));
    CU(cuMemsetD8Async(memory.at + KiB, 1, KiB, two));
    CU(cuStreamSynchronize(one));
    CUdeviceptr made = 0;
    CU(cuMemAlloc(&made, KiB));
    CU(cuMemFree(made)); // waits for all, but promises it only for its own memory
    CU(cuMemUnmap(memory.at, memory.size));
    is_fault({"cuMemUnmap takes bytes", "cuMemsetD8Async (work "});
}

TEST_P(Oracle, FindsAccessThatIsTakenAwayUnderWork) {
    Mapped memory;
    CU(cuMemsetD8Async(memory.at, 1, KiB, one));
    memory.access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CU(cuMemSetAccess(memory.at, memory.size, &memory.access, 1));
    is_fault({"cuMemSetAccess takes bytes", "cuMemsetD8Async (work "});
}

TEST_P(Oracle, PassesMemoryThatGoesAfterItsWork) {
    Mapped memory;
    CU(cuMemsetD8Async(memory.at, 1, KiB, one));
    CU(cuStreamSynchronize(one));
    CU(cuMemUnmap(memory.at, memory.size));
    memory.map();
    CU(cuMemsetD8Async(memory.at, 1, KiB, two));
    writes("of cuMemAlloc", one);
    CU(cuMemFree(reinterpret_cast<CUdeviceptr>(block))); // waits by itself
    CU(cuStreamSynchronize(two));
    CU(cuMemUnmap(memory.at, memory.size));
    EXPECT_EQ(faults(), "");
}

// --- blocks of an allocator ----------------------------------------------------------------------

TEST_P(Oracle, FindsABlockThatIsHandedOutUnderWork) {
    driver().handed_out(block, KiB, one);
    writes("first", one);
    driver().given_back(block, KiB);
    driver().handed_out(block, 2 * KiB, two);
    is_fault({"are handed out to stream ", "first (work ", "does not come after", bytes(0, KiB)});
}

TEST_P(Oracle, FindsABlockThatIsHandedOutToTheHostUnderWork) {
    writes("first", one);
    driver().handed_out_to_all(block, KiB);
    is_fault({"are handed out to the host", "first (work "});
}

TEST_P(Oracle, FindsABlockThatIsHandedOutTwice) {
    driver().handed_out(block, 2 * KiB, one);
    driver().handed_out(block + KiB, 2 * KiB, one);
    is_fault({bytes(KiB, 2 * KiB), "while " + bytes(0, 2 * KiB) + " belong to stream "});
}

TEST_P(Oracle, FindsABlockThatIsGivenBackTwice) {
    driver().handed_out(block, KiB, one);
    driver().given_back(block, KiB);
    driver().given_back(block, KiB);
    is_fault({bytes(0, KiB), "were not handed out"});
}

TEST_P(Oracle, PassesBlocksThatFollowTheirWork) {
    driver().handed_out(block, KiB, one);
    writes("first", one);
    driver().given_back(block, KiB);
    driver().handed_out(block, KiB, one);
    writes("second", one);
    order(one, two);
    driver().given_back(block, KiB);
    driver().handed_out(block, KiB, two);
    CU(cuStreamSynchronize(two));
    driver().given_back(block, KiB);
    driver().handed_out_to_all(block, KiB);
    driver().given_back(block, KiB);
    writes("on a blocking stream", blocking);
    driver().handed_out(block, KiB, nullptr); // the default stream comes after that
    EXPECT_EQ(faults(), "");
}

// --- graphs --------------------------------------------------------------------------------------

TEST_P(Oracle, FindsAReplayWithoutAnOrder) {
    CUgraphExec graph = capture(one, [&] { writes("captured", one); });
    writes("first", two);
    EXPECT_EQ(faults(), "") << "nothing runs in a capture";
    CU(cuGraphLaunch(graph, one));
    is_fault({"captured (work ", "first (work "});
}

TEST_P(Oracle, FindsWorkBesideAReplay) {
    CUgraphExec graph = capture(one, [&] { writes("captured", one); });
    CU(cuGraphLaunch(graph, two));
    reads("second", one);
    is_fault({"second (work ", "captured (work "});
}

TEST_P(Oracle, FindsBranchesOfAGraphWithoutAnOrder) {
    CUgraphExec graph = capture(one, [&] {
        order(one, two);
        writes("left", one);
        writes("right", two);
        order(two, one);
    });
    EXPECT_EQ(faults(), "");
    CU(cuGraphLaunch(graph, one));
    is_fault({"right (work ", "left (work ", "branch 1 of a graph"});
}

TEST_P(Oracle, FindsAReplayOverABlockThatBelongsToSomebodyElse) {
    driver().handed_out(block, KiB, one);
    CUgraphExec graph = capture(one, [&] { writes("captured", one); });
    CU(cuGraphLaunch(graph, one));
    driver().given_back(block, KiB);
    driver().handed_out(block, KiB, one);
    CU(cuGraphLaunch(graph, one));
    is_fault({"captured of a graph", "handed out to stream ", "after the capture"});
}

TEST_P(Oracle, FindsMemoryThatIsUnmappedUnderAReplay) {
    Mapped memory;
    CUgraphExec graph = capture(one, [&] { CU(cuMemsetD8Async(memory.at, 1, memory.size, one)); });
    CU(cuGraphLaunch(graph, two));
    CU(cuStreamSynchronize(one));
    CU(cuMemUnmap(memory.at, memory.size));
    is_fault({"cuMemUnmap takes bytes", "cuMemsetD8Async (work "});
}

TEST_P(Oracle, PassesGraphsThatAreOrdered) {
    CUgraphExec graph = capture(one, [&] {
        writes("source", one);
        order(one, two);
        reads("left", one);
        reads("right", two);
        writes("side", two, KiB);
        order(two, one);
        writes("behind", one);
        driver().handed_out(block + 8 * KiB, KiB, one);
        writes("allocated and freed in the capture", one, 8 * KiB);
        driver().given_back(block + 8 * KiB, KiB);
        driver().handed_out(block + 8 * KiB, KiB, one);
        writes("and allocated again", one, 8 * KiB);
    });
    CU(cuGraphLaunch(graph, one));
    CU(cuGraphLaunch(graph, two)); // after the launch before it
    CU(cuGraphLaunch(graph, one));
    reads("behind the graph", one, KiB);
    CU(cuStreamSynchronize(one));
    reads("the host waited", two, KiB);
    CU(cuGraphExecDestroy(graph));
    EXPECT_EQ(faults(), "");
}

// --- captures ------------------------------------------------------------------------------------

TEST_P(Oracle, CapturesEndByWhatTheDriverSays) {
    CUgraph graph = nullptr;
    const auto ends = [&](const std::function<CUresult()> &call) {
        EXPECT_EQ(driver().cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        writes("captured", one);
        CUresult result = call();
        EXPECT_EQ(driver().cuStreamEndCapture(one, &graph),
                  result ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        return result;
    };
    CU(cuEventRecord(event, two));
    EXPECT_EQ(ends([&] { return driver().cuStreamWaitEvent(one, event, 0); }),
              CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    EXPECT_EQ(ends([&] { return driver().cuCtxRecordEvent(context, event); }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(ends([&] { return driver().cuCtxSynchronize(); }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(ends([&] { return driver().cuStreamSynchronize(one); }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(ends([&] {
                  driver().cuEventRecord(event, one);
                  return driver().cuEventQuery(event);
              }),
              CUDA_ERROR_CAPTURED_EVENT);
    CU(cuEventRecord(event, two));
    EXPECT_EQ(ends([&] {
                  return driver().cuEventQuery(event) == CUDA_ERROR_NOT_READY
                             ? CUDA_SUCCESS
                             : driver().cuEventSynchronize(event);
              }),
              CUDA_SUCCESS);
    unsigned long long id = 0;
    EXPECT_EQ(ends([&] { return driver().cuStreamGetId(one, &id); }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    unsigned flags = 0;
    EXPECT_EQ(ends([&] { return driver().cuStreamGetFlags(one, &flags); }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_P(Oracle, ACaptureThatLeavesABranchBehindFails) {
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    order(one, two);
    writes("left behind", two);
    EXPECT_EQ(driver().cuStreamEndCapture(two, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_EQ(driver().cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CU(cuStreamIsCapturing(two, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

INSTANTIATE_TEST_SUITE_P(Each, Oracle, testing::Values(0ul, 1ul, 2ul), [](const auto &seed) {
    return seed.param == 0 ? std::string("prompt") : "late" + std::to_string(seed.param);
});
