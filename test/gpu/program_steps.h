/* The steps of a program made by chance; program.h says what it keeps to. */
#ifndef UMF_TEST_GPU_PROGRAM_STEPS_H
#define UMF_TEST_GPU_PROGRAM_STEPS_H

// --- blocks --------------------------------------------------------------------------------------

inline void Program::use() {
    if (Block *block = some_block()) {
        if (block->home != none) {
            read(block, block->home);
        }
        if (below(3) == 0 && block->readers.empty()) {
            move(block, some_queue());
        }
        if (!block->is_old) {
            write(block);
        }
    }
}

// Another stream reads it, and its free waits for that.
inline void Program::use_elsewhere() {
    Block *block = some_block();
    if (!block || block->home == none) {
        return;
    }
    const size_t queue = some_queue();
    order(block->home, queue);
    const bool is_early = below(2);
    if (is_early) {
        EXPECT_EQ(umfUseOn(block->ptr, queues[queue].stream), UMF_RESULT_SUCCESS);
    }
    read(block, queue);
    if (!is_early) {
        EXPECT_EQ(umfUseOn(block->ptr, queues[queue].stream), UMF_RESULT_SUCCESS);
    }
    if (queue != block->home) {
        block->readers.insert(queue);
    }
}

inline void Program::copy() {
    Block *from = some_block(), *to = some_block();
    if (!from || !to || from == to || from->home == none || !from->value || to->is_old) {
        return;
    }
    if (to->home == none) {
        to->home = from->home;
    }
    order(from->home, to->home);
    join_readers(to);
    const size_t size = std::min(from->size, to->size);
    CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to->ptr),
                     reinterpret_cast<CUdeviceptr>(from->ptr), size, queues[to->home].stream));
    order(to->home, from->home);
    to->value = 0;
}

// The host has waited for it.
inline void Program::free_waited(Block *block) {
    wait_for(block);
    given_back(block->ptr, block->size);
    EXPECT_EQ(below(2) ? umfFree(block->ptr) : umfPoolFree(pool, block->ptr), UMF_RESULT_SUCCESS);
    forget(block);
}

inline void Program::free_some(bool may_fail) {
    // Also one that the captured stream used before.
    Block *block = blocks.empty() || below(4) ? some_block() : blocks[below(blocks.size())];
    if (!block || block->graphs) {
        return;
    }
    if (captured == none && !block->is_old && below(6) == 0) {
        free_waited(block);
        return;
    }
    if (block->home == none) {
        block->home = some_queue();
    }
    if (below(3) == 0 && block->home != captured) {
        move(block, some_queue());
    }
    free_on(block, block->home, may_fail);
}

// Another device can reach its memory from now on, which the driver remembers until the memory is
// released. A run of live memory stays.
inline void Program::register_block() {
    Block *block = some_block();
    umf_dmabuf_t dmabuf = UMF_DMABUF_INIT;
    if (!block || umfGetDmabuf(block->ptr, block->size, &dmabuf) != UMF_RESULT_SUCCESS) {
        return;
    }
    close(dmabuf.fd);
    umf_memory_run_t before{}, after{};
    size_t count = 0;
    EXPECT_EQ(umfGetRuns(block->ptr, 1, nullptr, &count), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfGetRuns(block->ptr, 1, &before, &count), UMF_RESULT_SUCCESS);
    take_on(some_queue());
    EXPECT_EQ(umfGetRuns(block->ptr, 1, &after, &count), UMF_RESULT_SUCCESS);
    EXPECT_EQ(before.generation, after.generation);
}

// --- waits ---------------------------------------------------------------------------------------

inline void Program::ask() {
    size_t bytes = 0;
    switch (below(4)) {
    case 0:
        umfPoolTrimOn(pool, below(2) * 65536, queues[some_queue()].stream);
        break;
    case 1:
        umfPoolTrimMemory(pool, below(2) * 65536);
        break;
    case 2:
        umfPoolWaitPending(pool, 0, &bytes);
        break;
    default:
        if (captured == none && is_alone && below(4) == 0) {
            EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), UMF_RESULT_SUCCESS);
        }
    }
}

inline void Program::wait_somewhere() {
    if (captured != none) {
        return;
    }
    if (is_alone && below(4) == 0) {
        CU(cuCtxSynchronize());
    } else {
        CU(cuStreamSynchronize(queues[some_queue()].stream));
    }
}

// A stream is destroyed with work on it, and the next one often gets its handle.
inline void Program::renew_queue() {
    const size_t old = some_queue();
    if (!queues[old].is_own || used_cells == cells || captured != none) {
        return;
    }
    const size_t heir = old == 1 ? 2 : 1;
    for (Block *block : blocks) {
        if (block->readers.erase(old)) {
            block->is_old = !block->graphs && below(2);
            order(block->is_old ? none : old, block->home);
        }
        if (block->home == old) {
            move(block, heir);
            block->readers.erase(heir);
        }
    }
    for (Graph &graph : graphs) {
        if (graph.queue == old) {
            order(old, heir);
            graph.queue = heir;
        }
    }
    EXPECT_EQ(umfQueueEnds(queues[old].stream), UMF_RESULT_SUCCESS);
    CU(cuStreamDestroy(queues[old].stream));
    queues[old] = {create(CU_STREAM_NON_BLOCKING), new_cell(), true, false};
}

// --- sleep and failures --------------------------------------------------------------------------

inline void Program::sleep() {
    static const int functions[] = {FAKE_cuMemCreate, FAKE_cuMemRelease, FAKE_cuMemMap,
                                    FAKE_cuMemUnmap, FAKE_cuMemSetAccess};
    if (captured != none || !is_alone || text.find("vmm") == std::string::npos) {
        return; // memory without pieces is not suspended
    }
    takes_away(true);
    if (!driver().is_real && below(3) == 0) {
        fail_call(driver().control(), functions[below(5)], CUDA_ERROR_OUT_OF_MEMORY,
                  1 + static_cast<long>(below(4)));
    }
    refuses(false); // after a suspend that failed that would have no effect
    const umf_result_t result = umfPoolsSuspend(&pool, 1, nullptr, nullptr);
    refuses(true);
    if (result == UMF_RESULT_SUCCESS) {
        sleeps++;
        EXPECT_EQ(umfPoolMallocOn(pool, 64, 0, queues[0].stream), nullptr);
    }
    for (size_t i = below(3); i > 0; i--) {
        Block *block = some_block();
        if (block && !block->graphs && block->home != none) {
            free_on(block, block->home, false);
        }
    }
    umfPoolsResume(&pool, 1, nullptr, nullptr);
    if (!driver().is_real) {
        driver().control()->fail_at = 0;
    }
    refuses(false);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), UMF_RESULT_SUCCESS);
    refuses(true);
    takes_away(false);
}

// Another mapping shows what is in the block, also after a free while the handle is out.
inline void Program::share_block(bool may_fail) {
    Block *block = some_block();
    umf_ipc_handler_handle_t handler = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    void *view = nullptr;
    if (!shares() || captured != none || !block || block->graphs || block->home == none ||
        !block->value) {
        return;
    }
    const size_t queue = block->home;
    const long failure = driver().control()->fail_at; // of a call of the library
    driver().control()->fail_at = 0;
    wait_for(block);
    driver().control()->fail_at = failure;
    if (umfGetIPCHandle(block->ptr, &handle, &size) != UMF_RESULT_SUCCESS) {
        EXPECT_TRUE(may_fail) << "umfGetIPCHandle";
        return;
    }
    EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
    const umf_result_t opened = umfOpenIPCHandle(handler, handle, &view);
    EXPECT_TRUE(may_fail || opened == UMF_RESULT_SUCCESS);
    driver().control()->fail_at = 0;
    if (opened == UMF_RESULT_SUCCESS) {
        each_part(view, block->size, [&](CUdeviceptr part, uint64_t count) {
            uint32_t last = 0;
            CU(cuMemcpyDtoH(&last, part + 4 * (count - 1), 4));
            EXPECT_EQ(last, block->value);
        });
        EXPECT_EQ(umfCloseIPCHandle(view), UMF_RESULT_SUCCESS);
        shared++;
    }
    if (below(2)) {
        given_back(block->ptr, block->size);
        EXPECT_EQ(umfFreeOn(block->ptr, queues[queue].stream), UMF_RESULT_SUCCESS);
        forget(block);
    }
    EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
}

// Not those that wait: with a failure there, work has failed, too, and is not done.
inline void Program::with_a_failure() {
    static const int functions[] = {
        FAKE_cuMemAlloc,
        FAKE_cuMemFree,
        FAKE_cuMemCreate,
        FAKE_cuMemRelease,
        FAKE_cuMemMap,
        FAKE_cuMemUnmap,
        FAKE_cuMemSetAccess,
        FAKE_cuMemAddressReserve,
        FAKE_cuMemAddressFree,
        FAKE_cuEventCreate,
        FAKE_cuEventRecord,
        FAKE_cuEventDestroy,
        FAKE_cuCtxRecordEvent,
        FAKE_cuStreamQuery,
        FAKE_cuStreamGetId,
        FAKE_cuStreamGetCtx,
        FAKE_cuStreamGetFlags,
        FAKE_cuStreamWaitEvent,
        FAKE_cuStreamIsCapturing,
        FAKE_cuCtxPushCurrent,
        FAKE_cuCtxGetCurrent,
        FAKE_cuPointerGetAttribute,
    };
    if (driver().is_real || !is_alone) {
        return;
    }
    int function = functions[below(sizeof(functions) / sizeof(functions[0]))];
    if (shares() && below(4) == 0) {
        function =
            below(2) ? FAKE_cuMemExportToShareableHandle : FAKE_cuMemImportFromShareableHandle;
    }
    Block *block = some_block();
    const size_t queue = some_queue();
    fail_call(driver().control(), function,
              below(2) ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY,
              1 + static_cast<long>(below(3)));
    switch (below(shares() ? 5 : 4)) {
    case 4:
        share_block(true);
        break;
    case 0:
        if (block && !block->graphs && block->home != none) {
            free_on(block, block->home, true);
        }
        break;
    case 1:
        umfPoolTrimOn(pool, 0, queues[queue].stream);
        break;
    default:
        take_on(queue);
    }
    driver().control()->fail_at = 0;
}

// --- captures and graphs -------------------------------------------------------------------------

inline void Program::begin_capture() {
    const size_t queue = some_queue();
    if (!is_alone || captured != none || graphs.size() == 3 || used_cells == cells ||
        !queues[queue].is_own) {
        return;
    }
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    capture = Graph{nullptr, nullptr, queue, new_cell(), {}, {}};
    ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &capture.pool), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfCaptureBegins(queues[queue].stream), UMF_RESULT_SUCCESS);
    CU(cuStreamBeginCapture(queues[queue].stream, modes[below(3)]));
    captured = queue;
}

inline void Program::work_in_capture() {
    if (captured == none) {
        return;
    }
    CUstream stream = queues[captured].stream;
    if (below(3) == 0) {
        take_on(captured);
    }
    if (below(2) == 0) {
        const size_t size = some_size();
        void *ptr = umfPoolMallocOn(capture.pool, size, 0, stream);
        if (!ptr) {
            return;
        }
        handed_out(ptr, size, stream);
        fill(ptr, size, ++value, captured);
        check(ptr, size, value, captured);
        if (below(4) == 0) {
            capture.kept.push_back(ptr);
        }
        given_back(ptr, size);
        if (capture.kept.empty() || capture.kept.back() != ptr) {
            EXPECT_EQ(umfFreeOn(ptr, stream), UMF_RESULT_SUCCESS);
        }
        return;
    }
    for (Block *block : blocks) {
        if (block->home == captured && block->readers.empty() && !block->is_old && below(3) == 0) {
            fill(block->ptr, block->size, ++value, captured);
            check(block->ptr, block->size, value, captured);
            capture.blocks.push_back({block, value});
            block->graphs++;
            break;
        }
    }
}

inline void Program::end_capture() {
    if (captured == none) {
        return;
    }
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture(queues[captured].stream, &graph));
    EXPECT_EQ(umfCaptureEnds(queues[captured].stream), UMF_RESULT_SUCCESS);
    captured = none;
    CU(cuGraphInstantiateWithFlags(&capture.ready, graph, 0));
    CU(cuGraphDestroy(graph));
    graphs.push_back(capture);
}

inline void Program::launch() {
    if (graphs.empty()) {
        return;
    }
    Graph &graph = graphs[below(graphs.size())];
    const size_t queue = some_queue();
    if (graph.queue == captured) {
        return;
    }
    for (auto &each : graph.blocks) {
        if (is_of_capture(each.first)) {
            return;
        }
    }
    order(graph.queue, queue);
    for (auto &each : graph.blocks) {
        join_readers(each.first);
        move(each.first, queue);
        each.first->value = each.second;
    }
    CU(cuGraphLaunch(graph.ready, queues[queue].stream));
    graph.queue = queue;
}

inline void Program::end_graph(size_t i) {
    Graph graph = graphs[i];
    graphs.erase(graphs.begin() + static_cast<long>(i));
    CU(cuStreamSynchronize(queues[graph.queue].stream));
    CU(cuGraphExecDestroy(graph.ready));
    for (auto &each : graph.blocks) {
        each.first->graphs--;
    }
    for (void *ptr : graph.kept) {
        EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umfPoolDestroy(graph.pool), UMF_RESULT_SUCCESS);
}

// --- all of it -----------------------------------------------------------------------------------

inline bool Program::step() {
    struct {
        const char *name;
        size_t weight;
        std::function<void()> run;
    } const steps[] = {
        {"take on a queue", 30, [&] { take_on(some_queue()); }},
        {"take", 4, [&] { take(); }},
        {"use", 24, [&] { use(); }},
        {"use elsewhere", 10, [&] { use_elsewhere(); }},
        {"copy", 6, [&] { copy(); }},
        {"free", blocks.size() > max_live ? 90u : 26u, [&] { free_some(false); }},
        {"ask", 4, [&] { ask(); }},
        {"wait", 3, [&] { wait_somewhere(); }},
        {"register", 2, [&] { register_block(); }},
        {"renew a queue", 2, [&] { renew_queue(); }},
        {"sleep", 1, [&] { sleep(); }},
        {"share", shares() ? 4U : 0U, [&] { share_block(false); }},
        {"with a failure", 3, [&] { with_a_failure(); }},
        {"begin a capture", 3, [&] { begin_capture(); }},
        {"work in a capture", 12, [&] { work_in_capture(); }},
        {"end a capture", 2, [&] { end_capture(); }},
        {"launch", 5, [&] { launch(); }},
        {"end a graph", 1,
         [&] {
             if (captured == none && !graphs.empty()) {
                 end_graph(below(graphs.size()));
             }
         }},
    };
    size_t sum = 0;
    for (const auto &each : steps) {
        sum += each.weight;
    }
    size_t chosen = below(sum);
    for (const auto &each : steps) {
        if (chosen < each.weight) {
            trace.push_back(each.name);
            if (trace.size() > 12) {
                trace.pop_front();
            }
            each.run();
            break;
        }
        chosen -= each.weight;
    }
    return !testing::Test::HasFailure() && (driver().is_real || !*driver().faults());
}

inline uint32_t Program::changed_words() {
    std::vector<uint32_t> found(cells);
    uint32_t sum = 0;
    EXPECT_EQ(driver().cuMemcpyDtoH(found.data(), words, 4 * cells), CUDA_SUCCESS);
    for (uint32_t each : found) {
        sum += each;
    }
    return sum;
}

inline void Program::end() {
    end_capture();
    while (!graphs.empty()) {
        end_graph(0);
    }
    while (!blocks.empty()) {
        Block *block = blocks.front();
        if (block->home == none) {
            free_waited(block);
        } else {
            free_on(block, block->home, false);
        }
    }
    for (Queue &queue : queues) {
        CU(cuStreamSynchronize(queue.stream));
    }
    if (is_alone) {
        CU(cuCtxSynchronize()); // also for streams that were destroyed with work on them
    }
    EXPECT_EQ(changed_words(), 0u) << "words that kernels did not find as they left them";
    for (Queue &queue : queues) {
        EXPECT_EQ(umfQueueEnds(queue.stream), UMF_RESULT_SUCCESS);
        if (queue.stream && queue.stream != CU_STREAM_PER_THREAD) {
            CU(cuStreamDestroy(queue.stream));
        }
    }
    CU(cuMemFree(words));
}

inline int Program::run(size_t count) {
    start();
    for (size_t i = 0; i < count; i++) {
        if (!step()) {
            std::string last;
            for (const std::string &each : trace) {
                last += each + "; ";
            }
            ADD_FAILURE() << "step " << i << " of " << count << ", the last ones: " << last << "\n"
                          << (driver().is_real ? "" : driver().faults());
            return 1;
        }
    }
    end();
    return 0;
}

#endif
