/* The providers of the fault test: how to start their driver, and what of it is alive. */
#ifndef UMF_TEST_FAULTS_BACKENDS_H
#define UMF_TEST_FAULTS_BACKENDS_H

#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

#include <umf/queue.h>
#include <umf/suspend.h>

#include "fakes/vmm_kinds.h"
#include "injector.h"
#if UMF_WITH_LEVEL_ZERO
#include "lists.h"
#endif

namespace faults {

struct Backend {
    std::string name;
    std::string text;                      // of the provider
    std::vector<const char *> pools;       // the first in each run, one of the others by turns
    std::vector<umf_suspend_keep_t> keeps; // empty: it cannot be suspended
    bool has_ipc;
    std::function<std::string()> start; // "" or why it cannot be tested here
    std::function<void()> stop;
    std::function<void(Counts *)> count;    // calls of the driver so far
    std::function<bool(const Fault &)> arm; // false: it is no function of the driver
    std::function<bool()> disarm;           // whether the fault has come
    std::function<long()> alive;            // objects of the driver
    std::function<std::string()> misuse;    // mistakes that the driver saw
    std::function<umf_memory_provider_handle_t()> make_provider; // none: it is made from `text`
    std::function<std::vector<void *>()> make_queues;
    std::function<void(const std::vector<void *> &)> end_queues;
    // Work of the queue uses a block that was handed out on it, and is freed behind that work.
    std::function<void(void *ptr, size_t size, void *queue)> use;
};

inline Backend of_system(const std::string &name, const std::string &text) {
    Backend b;
    b.name = name;
    b.text = text;
    b.pools = {"disjoint", "proxy", "coalescing", "jemalloc", "scalable"};
    b.has_ipc = true;
    b.start = [] { return std::string(); };
    b.stop = [] {};
    b.count = [](Counts *) {};
    b.arm = [](const Fault &) { return false; };
    b.disarm = [] { return false; };
    b.alive = [] { return 0L; };
    b.misuse = [] { return std::string(); };
    b.make_queues = [] { return std::vector<void *>(); };
    b.end_queues = [](const std::vector<void *> &) {};
    b.use = [](void *, size_t, void *) {};
    return b;
}

inline std::string own_name() {
    return "umf_faults_" + std::to_string(getpid());
}

#if UMF_WITH_CUDA

inline Backend of_cuda(const std::string &name, const std::string &text) {
    Backend b = of_system(name, text);
    b.pools = {"coalescing", "disjoint", "proxy"};
    b.start = start_cuda_vmm;
    b.stop = [] {
        driver().cuCtxSetCurrent(nullptr);
        driver().cuDevicePrimaryCtxRelease(0);
    };
    b.count = [](Counts *counts) { count_driver(driver().control(), cuda_names, counts); };
    // No result by which the driver says that memory, and so its context, is gone.
    b.arm = [](const Fault &fault) {
        return arm_driver(driver().control(), cuda_names, fault,
                          fault.n % 2 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
    };
    b.disarm = [] { return fail_calls(driver().control(), CUDA_SUCCESS, 0, false); };
    b.alive = [] { return driver().control()->objects; };
    b.misuse = [] {
        const fake_cuda_t *control = driver().control();
        long wrong = control->illegal_accesses + control->unordered_unmaps + control->dead_uses;
        return std::string(driver().faults()) + (wrong ? "illegal accesses" : "");
    };
    b.make_queues = [] {
        std::vector<void *> made;
        for (int i = 0; i < 2; i++) {
            CUstream stream = nullptr;
            driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
            made.push_back(stream);
        }
        return made;
    };
    b.end_queues = [](const std::vector<void *> &queues) {
        for (void *queue : queues) {
            umfQueueEnds(queue);
            driver().cuStreamSynchronize(static_cast<CUstream>(queue));
            driver().cuStreamDestroy(static_cast<CUstream>(queue));
        }
    };
    b.use = [](void *ptr, size_t size, void *queue) {
        CUstream stream = static_cast<CUstream>(queue);
        fake_cuda_use_t use = {ptr, size, 1};
        driver().handed_out(ptr, size, stream);
        driver().launch("kernel", &use, 1, stream);
        driver().given_back(ptr, size);
    };
    return b;
}

#endif

#if UMF_WITH_LEVEL_ZERO

inline Backend of_level_zero(const std::string &name) {
    Backend b = of_system(name, name);
    b.pools = {"coalescing", "disjoint", "proxy"};
    b.start = [] {
        static const std::string missing = ze_is_missing();
        if (missing.empty()) {
            ze().reset();
            ze().control()->granularity = 64 << 10;
        }
        return missing.empty() && ze().is_real ? "failures need the software driver" : missing;
    };
    b.stop = [] { ze().reset(); };
    b.count = [](Counts *counts) { count_driver(ze().control(), ze_names, counts); };
    b.arm = [](const Fault &fault) {
        return arm_driver(ze().control(), ze_names, fault, ZE_RESULT_ERROR_UNKNOWN);
    };
    b.disarm = [] { return fail_calls(ze().control(), ZE_RESULT_SUCCESS, 0, false); };
    b.alive = [] { return ze().alive(); };
    b.misuse = [] {
        const fake_ze_t *control = ze().control();
        long wrong = control->illegal_accesses + control->unordered_frees + control->wrong_handles;
        return std::string(wrong ? "illegal accesses" : "");
    };
    return b;
}

// The same in a context of the test, with queues in it.
inline Backend with_lists(Backend b, umf_memory_provider_handle_t (Lists::*make)() const) {
    static Lists lists;
    b.name += "_queues";
    b.has_ipc = false;
    b.pools = {"coalescing", "disjoint"};
    b.start = [start = b.start] {
        std::string missing = start();
        if (missing.empty()) {
            lists.start();
        }
        return missing;
    };
    b.make_provider = [make] { return (lists.*make)(); };
    b.make_queues = [] { return lists.make(2); };
    b.end_queues = [](const std::vector<void *> &queues) { lists.end(queues); };
    b.use = [](void *ptr, size_t size, void *queue) { lists.use(ptr, size, queue); };
    return b;
}

#endif

inline std::vector<Backend> backends() {
    const std::vector<umf_suspend_keep_t> all = {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                                 UMF_SUSPEND_KEEP_FILE};
    std::vector<Backend> made = {
        of_system("os", "os"),
        of_system("os_shared", "os:visibility=shared"),
        of_system("os_named", "os:visibility=shared,shm_name=" + own_name()),
        of_system("file", "file:visibility=shared,path=/dev/shm/" + own_name() + "_file"),
        of_system("linux_vmm", "linux_vmm:piece_size=1M"),
    };
    made[0].has_ipc = false;
    made[4].keeps = {UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE};
#if UMF_WITH_CUDA
    if (!driver().is_real) {
        made.push_back(of_cuda("cuda", "cuda:device=0"));
        made.push_back(of_cuda("cuda_vmm", "cuda_vmm:share=fd,piece_size=1M"));
        made.back().pools.push_back("jemalloc");
        made.back().keeps = all;
        made.back().keeps.push_back(UMF_SUSPEND_KEEP_PEER);
    }
#endif
#if UMF_WITH_LEVEL_ZERO
    made.push_back(of_level_zero("level_zero"));
    made.push_back(of_level_zero("level_zero_vmm"));
    made.back().pools.push_back("jemalloc");
    made.back().keeps = {UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE, UMF_SUSPEND_KEEP_PEER};
    made.back().has_ipc = false;
    made.push_back(with_lists(of_level_zero("level_zero"), &Lists::make_provider));
    made.push_back(with_lists(of_level_zero("level_zero_vmm"), &Lists::make_vmm_provider));
    made.back().keeps = {UMF_SUSPEND_KEEP_HOST};
#endif
    return made;
}

} // namespace faults

#endif
