// While a stream is captured into a graph, whatever the library does leaves the capture alone: in
// every mode, called by the thread that captures and by another.

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fakes/content.h"
#include "fakes/log_file.h"
#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <umf.h>
#include <umf/capture.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

// A captured stream, and a graph of the capture.
class Captures : public testing::Test {
  protected:
    CUstream stream = nullptr, side = nullptr;
    CUdeviceptr data = 0;
    CUcontext context = nullptr;

    void SetUp() override {
        ASSERT_EQ(start_cuda_vmm(), "");
        context = cuda_vmm_context();
        CU(cuMemAlloc(&data, MiB));
        CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override {
        if (stream) {
            driver().cuStreamDestroy(stream);
        }
        driver().cuStreamDestroy(side);
        driver().cuMemFree(data);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
        }
        stop_cuda_vmm();
    }

    // The result of the capture; the graph is run and checked.
    CUresult capture(CUstreamCaptureMode mode, const std::function<void()> &body) {
        CUgraph graph = nullptr;
        EXPECT_EQ(driver().cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuMemsetD8Async(data, 0x11, MiB, stream), CUDA_SUCCESS);
        body();
        driver().cuMemsetD8Async(data, 0x22, MiB / 2, stream);
        CUresult result = driver().cuStreamEndCapture(stream, &graph);
        if (result == CUDA_SUCCESS) {
            replay(graph);
        }
        return result;
    }
    void in_another_thread(const std::function<void()> &body) {
        std::thread([&] {
            CU(cuCtxSetCurrent(context));
            body();
            CU(cuCtxSetCurrent(nullptr));
        }).join();
    }
    static bool is_all(CUdeviceptr ptr, char value, size_t size) {
        std::vector<char> now(size);
        read_cuda(now.data(), reinterpret_cast<const void *>(ptr), size);
        return are_all(now.data(), now.size(), value);
    }

  private:
    void replay(CUgraph graph) {
        CUgraphExec ready = nullptr;
        CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
        CU(cuGraphLaunch(ready, stream));
        CU(cuStreamSynchronize(stream));
        EXPECT_TRUE(is_all(data, 0x22, MiB / 2));
        EXPECT_TRUE(is_all(data + MiB / 2, 0x11, MiB / 2));
        CU(cuGraphExecDestroy(ready));
        CU(cuGraphDestroy(graph));
    }
};

// --- the driver itself ---------------------------------------------------------------------------

// DEPENDS: safe in the relaxed mode; in others some drivers end the capture (driver 580 does not).
enum class Safe { ALWAYS, RELAXED, NEVER, DEPENDS };

// Objects of the calls; there before a call, and gone after it.
struct Things {
    CUstream side = nullptr, made = nullptr, doomed = nullptr;
    CUevent event = nullptr;
    CUdeviceptr block = 0, lost = 0;
    void *pinned = nullptr;
    alignas(4096) char page[4096];

    explicit Things(CUstream stream) : side(stream) {
        make();
    }
    void make() {
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(event, side));
        CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
        CU(cuMemAlloc(&lost, 4 * MiB));
    }
    ~Things() {
        for (CUstream each : {made, doomed}) {
            each ? driver().cuStreamDestroy(each) : CUDA_SUCCESS;
        }
        for (CUdeviceptr each : {block, lost}) {
            each ? driver().cuMemFree(each) : CUDA_SUCCESS;
        }
        pinned ? driver().cuMemFreeHost(pinned) : CUDA_SUCCESS;
        driver().cuMemHostUnregister(page);
        driver().cuEventDestroy(event);
    }
};

// The calls the library makes, and whether a capture outlives them.
struct Call {
    const char *name;
    Safe safe;
    void (*make)(Things &);
};

template <class T, class R> void forget_if_gone(R result, T *thing) {
    if (result == CUDA_SUCCESS) {
        *thing = {};
    }
}

const Call calls_beside[] = {
    {"cuEventRecord", Safe::ALWAYS, [](Things &t) { driver().cuEventRecord(t.event, t.side); }},
    {"cuMemGetInfo", Safe::ALWAYS, [](Things &) { held_cuda(); }},
    {"cuStreamWaitEvent", Safe::ALWAYS,
     [](Things &t) { driver().cuStreamWaitEvent(t.side, t.event, 0); }},
    {"cuStreamGetId", Safe::DEPENDS,
     [](Things &t) {
         unsigned long long id = 0;
         driver().cuStreamGetId(t.side, &id);
     }},
    {"cuStreamGetFlags", Safe::DEPENDS,
     [](Things &t) {
         unsigned flags = 0;
         driver().cuStreamGetFlags(t.side, &flags);
     }},
    {"cuStreamQuery", Safe::DEPENDS, [](Things &t) { driver().cuStreamQuery(t.side); }},
    {"cuEventQuery", Safe::RELAXED, [](Things &t) { driver().cuEventQuery(t.event); }},
    {"cuEventSynchronize", Safe::RELAXED, [](Things &t) { driver().cuEventSynchronize(t.event); }},
    {"cuStreamSynchronize", Safe::RELAXED, [](Things &t) { driver().cuStreamSynchronize(t.side); }},
    {"cuMemAlloc", Safe::RELAXED, [](Things &t) { driver().cuMemAlloc(&t.block, 4 * MiB); }},
    {"cuMemFree", Safe::RELAXED,
     [](Things &t) { forget_if_gone(driver().cuMemFree(t.lost), &t.lost); }},
    {"cuMemHostAlloc", Safe::RELAXED,
     [](Things &t) { driver().cuMemHostAlloc(&t.pinned, 4096, 0); }},
    {"cuMemHostRegister", Safe::RELAXED,
     [](Things &t) { driver().cuMemHostRegister(t.page, sizeof(t.page), 0); }},
    {"cuStreamCreate", Safe::DEPENDS,
     [](Things &t) { driver().cuStreamCreate(&t.made, CU_STREAM_NON_BLOCKING); }},
    {"cuStreamDestroy", Safe::DEPENDS,
     [](Things &t) { forget_if_gone(driver().cuStreamDestroy(t.doomed), &t.doomed); }},
    {"cuCtxSynchronize", Safe::NEVER, [](Things &) { driver().cuCtxSynchronize(); }},
    {"cuCtxRecordEvent", Safe::NEVER,
     [](Things &t) {
         CUcontext now = nullptr;
         driver().cuCtxGetCurrent(&now);
         driver().cuCtxRecordEvent(now, t.event);
     }},
};

} // namespace

// Assumptions of the other tests, with the software driver as with a real one.
TEST_F(Captures, EndByWhatTheDriverSays) {
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUstreamCaptureMode mode :
         {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL}) {
        for (const Call &call : calls_beside) {
            Things things(side);
            bool is_relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
            bool is_safe = call.safe == Safe::ALWAYS || (call.safe != Safe::NEVER && is_relaxed);
            CUresult result = capture(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] {
                in_another_thread([&] {
                    CUstreamCaptureMode own = mode;
                    CU(cuThreadExchangeStreamCaptureMode(&own));
                    call.make(things);
                });
            });
            if (call.safe != Safe::DEPENDS || is_relaxed) {
                EXPECT_EQ(result == CUDA_SUCCESS, is_safe) << call.name << " in mode " << mode;
            }
        }
    }
}

// --- the library ---------------------------------------------------------------------------------

namespace {

struct Kind {
    CUstreamCaptureMode mode;
    bool in_another_thread;
    bool is_told; // else the stream is a blocking one, which is found
};

std::ostream &operator<<(std::ostream &out, const Kind &kind) {
    return out << kind.mode << kind.in_another_thread << kind.is_told;
}

class Capture : public Captures, public testing::WithParamInterface<Kind> {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        Captures::SetUp();
        CU(cuStreamCreate(&stream,
                          GetParam().is_told ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        provider = create_cuda_vmm(0);
        ASSERT_NE(provider, nullptr);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        Captures::TearDown();
    }

    void survives(const std::function<void()> &body) {
        if (GetParam().is_told) {
            ASSERT_EQ(umfCaptureBegins(stream), OK);
        }
        CUresult result = capture(GetParam().mode, [&] {
            GetParam().in_another_thread ? in_another_thread(body) : body();
        });
        EXPECT_EQ(result, CUDA_SUCCESS) << "the capture was ended";
        if (GetParam().is_told) {
            EXPECT_EQ(umfCaptureEnds(stream), OK);
        }
    }
    void fill(void *ptr, unsigned char value, size_t size) {
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), value, size, side));
    }
    std::string name_of_capture() const {
        return GetParam().is_told ? "would end the capture of queue 0x"
                                  : "would end the capture of a blocking stream of context 0x";
    }
};

const char *const provider_texts[] = {"cuda:device=0,memory_type=device",
                                      "cuda:device=0,memory_type=host", "cuda_vmm:device=0"};
const char *const pool_texts[] = {
    "proxy over cuda_vmm",      "coalescing over cuda_vmm",      "disjoint over cuda_vmm",
    "proxy over cuda:device=0", "coalescing over cuda:device=0", "disjoint over cuda:device=0",
};

} // namespace

TEST_P(Capture, OutlivesTheCreationOfProviders) {
    for (const char *text : provider_texts) {
        umf_memory_provider_handle_t made = nullptr;
        void *block = nullptr;
        survives([&] {
            ASSERT_EQ(umfMemoryProviderCreateFromText(text, &made), OK) << umfTextError();
            EXPECT_EQ(umfMemoryProviderAlloc(made, 2 * MiB, 0, &block), OK);
        });
        EXPECT_EQ(umfMemoryProviderFree(made, block, 2 * MiB), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(made), OK);
    }
}

TEST_P(Capture, OutlivesTheEndOfProviders) {
    for (const char *text : provider_texts) {
        umf_memory_provider_handle_t made = nullptr;
        ASSERT_EQ(umfMemoryProviderCreateFromText(text, &made), OK) << umfTextError();
        survives([&] { EXPECT_EQ(umfMemoryProviderDestroy(made), OK); });
    }
}

TEST_P(Capture, OutlivesGrowth) {
    for (const char *text : pool_texts) {
        umf_memory_pool_handle_t grows = nullptr;
        ASSERT_EQ(umfPoolCreateFromText(text, &grows), OK) << umfTextError();
        survives([&] {
            for (size_t size = 1000; size <= 8 * MiB; size *= 2) {
                void *block = umfPoolMalloc(grows, size);
                ASSERT_NE(block, nullptr) << text;
                fill(block, 1, size);
                EXPECT_EQ(umfPoolFree(grows, block), OK);
            }
        });
        EXPECT_EQ(umfPoolDestroy(grows), OK);
    }
}

TEST_P(Capture, OutlivesCallocAndRealloc) {
    for (const char *text : {pool_texts[1], pool_texts[4]}) {
        umf_memory_pool_handle_t zeroes = nullptr;
        ASSERT_EQ(umfPoolCreateFromText(text, &zeroes), OK) << umfTextError();
        void *block = nullptr;
        survives([&] {
            block = umfPoolCalloc(zeroes, 1, 100000);
            ASSERT_NE(block, nullptr) << text;
            block = umfPoolRealloc(zeroes, block, 8 * MiB);
            ASSERT_NE(block, nullptr) << text;
        });
        EXPECT_TRUE(is_all(reinterpret_cast<CUdeviceptr>(block), 0, 100000));
        EXPECT_EQ(umfPoolFree(zeroes, block), OK);
        EXPECT_EQ(umfPoolDestroy(zeroes), OK);
    }
}

// What cannot be waited for stays, and goes at the next chance.
TEST_P(Capture, OutlivesATrim) {
    for (const char *text : {pool_texts[0], pool_texts[1], pool_texts[2]}) {
        umf_memory_pool_handle_t trimmed = nullptr;
        ASSERT_EQ(umfPoolCreateFromText(text, &trimmed), OK) << umfTextError();
        size_t before = held_cuda();
        std::vector<void *> blocks;
        for (int i = 0; i < 6; i++) {
            blocks.push_back(umfPoolMalloc(trimmed, 2 * MiB));
            ASSERT_NE(blocks.back(), nullptr);
            fill(blocks.back(), 1, 2 * MiB);
        }
        size_t full = held_cuda();
        survives([&] {
            for (void *block : blocks) {
                EXPECT_EQ(umfPoolFree(trimmed, block), OK);
            }
            umfPoolTrimMemory(trimmed, 0);
            if (!driver().is_real) {
                EXPECT_EQ(held_cuda(), full) << "it could not be waited for";
            }
        });
        void *block = umfPoolMalloc(trimmed, 32 * MiB);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(umfPoolFree(trimmed, block), OK);
        umfPoolTrimMemory(trimmed, 0);
        if (!driver().is_real) {
            EXPECT_EQ(held_cuda(), before) << text;
        }
        EXPECT_EQ(umfPoolDestroy(trimmed), OK);
    }
}

TEST_P(Capture, OutlivesASleepAfterANamedQueue) {
    for (umf_suspend_keep_t keep : {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST}) {
        umfSuspendTrim();
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        void *block = umfPoolMalloc(pool, 4 * MiB);
        ASSERT_NE(block, nullptr);
        CUevent event = nullptr;
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        void *queues[] = {side}, *events[] = {event};
        umf_suspend_params_t wait = UMF_SUSPEND_PARAMS_INIT;
        for (bool by_event : {false, true}) {
            fill(block, by_event ? 0x5A : 0x3C, 4 * MiB);
            CU(cuEventRecord(event, side));
            wait.queues = queues;
            wait.num_queues = by_event ? 0 : 1;
            wait.events = events;
            wait.num_events = by_event ? 1 : 0;
            survives([&] {
                EXPECT_EQ(umfPoolsSuspend(&pool, 1, &wait, nullptr), OK);
                EXPECT_EQ(umfPoolsResume(&pool, 1, &wait, nullptr), OK);
            });
            EXPECT_TRUE(
                is_all(reinterpret_cast<CUdeviceptr>(block), by_event ? 0x5A : 0x3C, 4 * MiB));
        }
        CU(cuEventDestroy(event));
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
}

// Nothing can use memory that is not there.
TEST_P(Capture, OutlivesAResumeThatNamesNothing) {
    void *block = umfPoolMalloc(pool, 4 * MiB);
    ASSERT_NE(block, nullptr);
    fill(block, 0x3C, 4 * MiB);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    survives([&] { EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK); });
    EXPECT_TRUE(is_all(reinterpret_cast<CUdeviceptr>(block), 0x3C, 4 * MiB));
    EXPECT_EQ(umfPoolFree(pool, block), OK);
}

TEST_P(Capture, RefusesASuspendThatWouldEndIt) {
    void *block = umfPoolMalloc(pool, 4 * MiB), *captured[] = {stream};
    ASSERT_NE(block, nullptr);
    umf_suspend_params_t wait = UMF_SUSPEND_PARAMS_INIT;
    wait.queues = captured;
    wait.num_queues = 1;
    survives([&] {
        LogFile log(3);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), BUSY);
        EXPECT_EQ(log.count(name_of_capture().c_str()), 1u) << log.text();
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, &wait, nullptr), BUSY);
        EXPECT_EQ(log.count("is captured, so it cannot be waited for: end the capture first"), 1u)
            << log.text();
    });
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pool, block), OK);
}

// The memory has no owner afterwards, so it stays mapped rather than be unmapped under queued work.
TEST_P(Capture, KeepsTheMemoryOfAProviderThatEnds) {
    NEEDS_FAKE();
    umf_memory_provider_handle_t ends = create_cuda_vmm(0);
    void *block = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(ends, 8 * MiB, 0, &block), OK);
    fill(block, 1, 8 * MiB);
    LogFile log(2);
    survives([&] {
        EXPECT_EQ(umfMemoryProviderFree(ends, block, 8 * MiB), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(ends), OK);
    });
    EXPECT_EQ(log.count("stays with the process"), 1u) << log.text();
    CU(cuStreamSynchronize(side));
}

namespace {

std::vector<Kind> kinds() {
    std::vector<Kind> list;
    for (CUstreamCaptureMode mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
          CU_STREAM_CAPTURE_MODE_RELAXED}) {
        for (bool in_another_thread : {false, true}) {
            for (bool is_told : {false, true}) {
                list.push_back({mode, in_another_thread, is_told});
            }
        }
    }
    return list;
}

std::string name_of(const testing::TestParamInfo<Kind> &kind) {
    const char *const modes[] = {"global", "thread_local", "relaxed"};
    return std::string(modes[kind.param.mode]) +
           (kind.param.in_another_thread ? "_other_thread" : "_same_thread") +
           (kind.param.is_told ? "_told" : "_blocking");
}

} // namespace

INSTANTIATE_TEST_SUITE_P(Each, Capture, testing::ValuesIn(kinds()), name_of);

// --- unreported captures -------------------------------------------------------------------------

// A non-blocking stream cannot be found: its capture ends, the log names the remedy, and the memory
// is not unmapped under work.
TEST_F(Captures, OfUnknownStreamsAreNamedWhenTheyEnd) {
    NEEDS_FAKE();
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    umf_memory_provider_handle_t provider = create_cuda_vmm(0);
    void *block = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &block), OK);
    CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block), 1, 8 * MiB, side));
    LogFile log(3);
    CUresult result = capture(CU_STREAM_CAPTURE_MODE_RELAXED, [&] {
        EXPECT_EQ(umfMemoryProviderFree(provider, block, 8 * MiB), OK);
    });
    EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(log.count("captured without umfCaptureBegins"), 1u) << log.text();
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}
