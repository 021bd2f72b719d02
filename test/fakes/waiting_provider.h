/*
 * A provider with queues whose operations stop at a gate: memory of the system, work that has
 * passed when the gate of waits is open. It takes no lock, which a child of fork would find taken.
 */
#ifndef UMF_TEST_FAKES_WAITING_PROVIDER_H
#define UMF_TEST_FAKES_WAITING_PROVIDER_H

#include <atomic>
#include <functional>

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <gtest/gtest.h>

#include <umf/memory_provider.h>
#include <umf/plugin.h>

#include "fakes/plain_ops.h"

// Lets other threads go on. Signals may end it early.
inline void nap() {
    timespec moment = {0, 200000};
    nanosleep(&moment, nullptr);
}

inline void wait_until(const std::function<bool()> &is_so) {
    while (!is_so()) {
        nap();
    }
}

class Gate {
  public:
    std::atomic<int> inside{0};
    std::atomic<bool> is_closed{false};

    void pass() {
        inside++;
        wait_until([this] { return !is_closed; });
        inside--;
    }
    void wait_for(int threads) {
        wait_until([this, threads] { return inside >= threads; });
    }
};

struct WaitingProvider {
    Gate waits;                           // marks do not pass while it is closed
    Gate waits_for_all;                   // no wait for all queues ends while it is closed
    std::atomic<long> all_waits{0};       // waits for all queues
    std::function<void()> on_pending;     // runs in each tick, and where memory is missing
    std::atomic<long> marks{0};           // that are not ended
    std::atomic<void *> passing{nullptr}; // the queue whose marks pass all the same
    std::atomic<uint64_t> of_thread{0};   // the handle that stands for a queue of each thread

    umf_memory_provider_handle_t create() {
        static const umf_memory_provider_ops_t ops = table();
        static const umf_memory_provider_ext_ops_t ext = extension();
        static const umf_memory_provider_descriptor_t kind = plain_kind("waiting", &ops, &ext);
        static const umf_result_t registered = umfRegisterProvider(&kind);
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(registered, UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfMemoryProviderCreate(&ops, this, &provider), UMF_RESULT_SUCCESS);
        return provider;
    }

  private:
    static WaitingProvider *of(void *provider) {
        return static_cast<WaitingProvider *>(provider);
    }
    static umf_memory_provider_ops_t table() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = [](const void *params, void **self) {
            *self = const_cast<void *>(params);
            return UMF_RESULT_SUCCESS;
        };
        ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
        ops.alloc = alloc;
        ops.free = [](void *, void *ptr, size_t size) {
            return munmap(ptr, size) == 0 ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_UNKNOWN;
        };
        ops.ext_allocation_split = [](void *, void *, size_t, size_t) {
            return UMF_RESULT_SUCCESS;
        };
        ops.ext_allocation_merge = [](void *, void *, void *, size_t) {
            return UMF_RESULT_SUCCESS;
        };
        ops.get_name = [](void *, const char **name) {
            *name = "waiting";
            return UMF_RESULT_SUCCESS;
        };
        return ops;
    }
    // By skipping bytes.
    static umf_result_t alloc(void *, size_t size, size_t alignment, void **ptr) {
        size_t whole = size + alignment;
        void *all =
            mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        auto begin = reinterpret_cast<uintptr_t>(all);
        uintptr_t first = alignment ? (begin + alignment - 1) / alignment * alignment : begin;
        if (first > begin) {
            munmap(all, first - begin);
        }
        if (first + size < begin + whole) {
            munmap(reinterpret_cast<void *>(first + size), begin + whole - first - size);
        }
        *ptr = reinterpret_cast<void *>(first);
        return UMF_RESULT_SUCCESS;
    }
    static umf_memory_provider_ext_ops_t extension() {
        umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        ext.queue_mark = [](void *provider, void *queue, void **mark) {
            of(provider)->marks++;
            *mark = queue ? queue : provider;
            return UMF_RESULT_SUCCESS;
        };
        ext.mark_wait = [](void *provider, void *mark, int may_block) {
            if (may_block) {
                of(provider)->waits.pass();
            }
            bool has_completed =
                may_block || !of(provider)->waits.is_closed || mark == of(provider)->passing;
            of(provider)->marks -= has_completed;
            return has_completed ? 1 : 0;
        };
        ext.queue_id = [](void *provider, void *queue, uint64_t *id, int *is_of_thread,
                          int *is_captured) {
            auto handle = reinterpret_cast<uintptr_t>(queue);
            *is_of_thread = handle != 0 && handle == of(provider)->of_thread;
            *id = *is_of_thread ? 0 : handle + 1;
            *is_captured = 0;
            return UMF_RESULT_SUCCESS;
        };
        ext.wait = [](void *provider, void *const *, size_t, void *const *, size_t) {
            of(provider)->all_waits++;
            of(provider)->waits_for_all.pass();
            return UMF_RESULT_SUCCESS;
        };
        ext.free_pending = [](void *provider, int, size_t *left) {
            *left = 0;
            if (of(provider)->on_pending) {
                of(provider)->on_pending();
            }
            return UMF_RESULT_SUCCESS;
        };
        return ext;
    }
};

#endif
