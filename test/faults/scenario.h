/*
 * One life of a pool: created, filled, on queues, shared with itself, suspended and resumed,
 * copied, trimmed, freed and destroyed. Any call of it may fail. A block counts from the copy on
 * that filled it with success.
 */
#ifndef UMF_TEST_FAULTS_SCENARIO_H
#define UMF_TEST_FAULTS_SCENARIO_H

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/ipc.h>
#include <umf/queue.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "backends.h"
#include "fakes/content.h"

namespace faults {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

struct Block {
    void *ptr = nullptr;
    size_t size = 0;
    uint64_t seed = 0;
    bool is_known = false; // it has the bytes of its seed
};

class Scenario {
    const Backend &backend;
    umf_memory_provider_handle_t provider = nullptr; // of `pool`, where that does not own it
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<Block> blocks;
    std::vector<void *> queues;
    Bytes buffer = Bytes(size_t{1} << 20);

  public:
    explicit Scenario(const Backend &b, std::vector<void *> q) : backend(b), queues(std::move(q)) {}

    // All that may meet the fault. `text`: of the pool. false: it could not be created.
    bool run(const std::string &text, size_t round) {
        if (!create(text)) {
            pool = nullptr;
            return false;
        }
        choose_keep(round);
        for (size_t size : {size_t{64}, size_t{300}, size_t{5000}, size_t{70000}, size_t{300000},
                            size_t{1} << 20}) {
            take(size);
        }
        use_queues();
        share();
        sleep();
        copy();
        for (size_t i = 0; i < blocks.size(); i += 3) {
            give(&blocks[i]);
        }
        umfPoolTrimMemory(pool, 0);
        take(200000);
        return true;
    }

    // With no faults any more: all content is right, and everything goes back.
    void end() {
        if (pool) {
            end_pool();
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
            provider = nullptr;
        }
    }

    // While calls fail. Any result may come; the handles are gone.
    void end_with_faults() {
        if (pool) {
            umfPoolDestroy(pool);
            pool = nullptr;
        }
        if (provider) {
            umfMemoryProviderDestroy(provider);
            provider = nullptr;
        }
    }

  private:
    bool create(const std::string &text) {
        if (!backend.make_provider) {
            return umfPoolCreateFromText((text + " over " + backend.text).c_str(), &pool) == OK;
        }
        provider = backend.make_provider();
        return provider && umfPoolCreateFromTextOver(text.c_str(), provider, &pool) == OK;
    }
    void end_pool() {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        if (umfPoolGetResidency(pool, &now) == OK && now.state != UMF_SUSPEND_STATE_RESIDENT) {
            EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        }
        for (Block &block : blocks) {
            check(block);
            give(&block);
            EXPECT_EQ(block.ptr, nullptr) << "a block of " << block.size << " cannot be freed";
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
    }
    void choose_keep(size_t round) {
        if (!backend.keeps.empty()) {
            umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
            policy.keep = backend.keeps[round % backend.keeps.size()];
            policy.folder = "/tmp";
            policy.device = 1;
            umfPoolSetSuspendPolicy(pool, &policy);
        }
    }
    void take(size_t size) {
        Block block;
        block.ptr = umfPoolMalloc(pool, size);
        block.size = size;
        block.seed = size + blocks.size();
        if (block.ptr) {
            fill(buffer.data(), size, block.seed);
            block.is_known = umfCopy(block.ptr, buffer.data(), size, nullptr) == OK;
            blocks.push_back(block);
        }
    }
    void check(const Block &block) {
        if (block.ptr && block.is_known) {
            memset(buffer.data(), 0, block.size);
            EXPECT_EQ(umfCopy(buffer.data(), block.ptr, block.size, nullptr), OK);
            EXPECT_TRUE(is_filled(buffer.data(), block.size, block.seed))
                << "a block of " << block.size << " has lost its content";
        }
    }
    // A free that fails has freed nothing.
    void give(Block *block) {
        if (block->ptr &&
            (umfPoolFree(pool, block->ptr) == OK || umfPoolFree(pool, block->ptr) == OK)) {
            block->ptr = nullptr;
        }
    }
    void copy() {
        if (blocks.size() > 1) {
            Block &to = blocks[blocks.size() - 1], &from = blocks[blocks.size() - 2];
            size_t size = std::min(to.size, from.size);
            to.is_known = false;
            if (umfCopy(to.ptr, from.ptr, size, nullptr) == OK && from.is_known) {
                to.size = size;
                to.seed = from.seed;
                to.is_known = true;
            }
        }
    }
    void share() {
        umf_ipc_handle_t handle = nullptr;
        umf_ipc_handler_handle_t handler = nullptr;
        size_t size = 0;
        void *opened = nullptr;
        if (!backend.has_ipc || blocks.empty() ||
            umfGetIPCHandle(blocks.back().ptr, &handle, &size) != OK) {
            return;
        }
        if (umfPoolGetIPCHandler(pool, &handler) == OK &&
            umfOpenIPCHandle(handler, handle, &opened) == OK) {
            const Block &block = blocks.back();
            if (block.is_known && umfCopy(buffer.data(), opened, block.size, nullptr) == OK) {
                EXPECT_TRUE(is_filled(buffer.data(), block.size, block.seed));
            }
            if (umfCloseIPCHandle(opened) != OK) {
                umfCloseIPCHandle(opened);
            }
        }
        if (umfPutIPCHandle(handle) != OK) {
            umfPutIPCHandle(handle);
        }
    }
    void sleep() {
        if (!backend.keeps.empty()) {
            umfPoolsSuspend(&pool, 1, nullptr, nullptr);
            umfPoolsResume(&pool, 1, nullptr, nullptr);
        }
    }
    // Work on each queue uses a block that is freed behind it, and taken again.
    void use_queues() {
        for (void *queue : queues) {
            for (int i = 0; i < 2; i++) {
                Block block;
                block.size = 40000;
                block.ptr = umfPoolMallocOn(pool, block.size, 0, queue);
                if (!block.ptr) {
                    continue;
                }
                backend.use(block.ptr, block.size, queue);
                if (umfFreeOn(block.ptr, queue) != OK && umfFreeOn(block.ptr, queue) != OK) {
                    blocks.push_back(block);
                }
            }
        }
        if (!queues.empty()) {
            size_t left;
            umfPoolWaitPending(pool, 1000000, &left);
        }
    }
};

} // namespace faults

#endif
