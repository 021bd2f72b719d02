/*
 * Pools over a provider of the user's that has queues (umf/plugin.h), and the device behind it: it
 * knows which work uses which memory.
 */
#ifndef UMF_TEST_UNIT_QUEUE_DEVICE_H
#define UMF_TEST_UNIT_QUEUE_DEVICE_H

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/queue.h>

#include "fakes/fake_provider.h"

namespace queues {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

// A queue of the device: work is a count, and passes when a test or a wait says so.
struct DeviceQueue {
    uint64_t id = 0;
    uint64_t queued = 0, passed = 0;
    bool is_captured = false;
    std::map<uint64_t, uint64_t> follows; // how far others have passed when the next work runs
};

struct Mark {
    uint64_t id, queued;
};

// The device of all providers here. It checks uses: work on memory that other work uses,
// without an order between the two, is a fault.
class Device {
  public:
    std::atomic<long> faults{0}, marks{0}, blocking_waits{0}, follows{0}, marks_made{0};
    std::atomic<long> ticks{0}, queue_queries{0}; // which queue is it?
    std::atomic<bool> can_follow{true}, can_settle{true}, can_wait{true};
    std::atomic<umf_result_t> mark_result{OK};

    DeviceQueue *open() {
        std::lock_guard<std::mutex> guard(mutex);
        queues[++ids] = std::make_unique<DeviceQueue>();
        queues[ids]->id = ids;
        return queues[ids].get();
    }
    // Work on [ptr, ptr + size), behind all that the queue has.
    void work(DeviceQueue *queue, void *ptr) {
        std::lock_guard<std::mutex> guard(mutex);
        auto at = users.find(ptr);
        if (at != users.end() && !is_behind(*queue, at->second)) {
            faults++;
        }
        users[ptr] = {queue->id, ++queue->queued};
    }
    void pass(DeviceQueue *queue, uint64_t count) {
        std::lock_guard<std::mutex> guard(mutex);
        queue->passed = std::min(queue->queued, queue->passed + count);
    }
    void capture(DeviceQueue *queue, bool is_captured) {
        std::lock_guard<std::mutex> guard(mutex);
        queue->is_captured = is_captured;
    }
    void forget() {
        std::lock_guard<std::mutex> guard(mutex);
        users.clear();
    }
    bool is_captured(DeviceQueue *queue) {
        std::lock_guard<std::mutex> guard(mutex);
        return queue->is_captured;
    }
    bool is_used(void *ptr) {
        std::lock_guard<std::mutex> guard(mutex);
        auto at = users.find(ptr);
        return at != users.end() && queues[at->second.id]->passed < at->second.queued;
    }

    umf_result_t mark(DeviceQueue *queue, void **out) {
        std::lock_guard<std::mutex> guard(mutex);
        if (mark_result != OK) {
            return mark_result;
        }
        *out = nullptr;
        if (!queue->is_captured) {
            made.push_back(std::make_unique<Mark>(Mark{queue->id, queue->queued}));
            *out = made.back().get();
        }
        marks += !queue->is_captured;
        marks_made++;
        return OK;
    }
    int wait(Mark *mark, bool may_block) {
        std::lock_guard<std::mutex> guard(mutex);
        if (!can_wait) {
            return 0;
        }
        DeviceQueue &queue = *queues[mark->id];
        blocking_waits += may_block;
        queue.passed = may_block ? std::max(queue.passed, mark->queued) : queue.passed;
        bool has_completed = queue.passed >= mark->queued;
        if (has_completed) {
            end(mark);
        }
        return has_completed;
    }
    umf_result_t follow(DeviceQueue *queue, Mark *mark) {
        std::lock_guard<std::mutex> guard(mutex);
        if (!can_follow || queue->is_captured) {
            return UMF_RESULT_ERROR_NOT_SUPPORTED;
        }
        uint64_t &far = queue->follows[mark->id];
        far = std::max(far, mark->queued);
        follows++;
        return OK;
    }
    // Those that no wait has ended.
    void forget_marks() {
        std::lock_guard<std::mutex> guard(mutex);
        made.clear();
        marks = 0;
    }
    void wait_for_all() {
        std::lock_guard<std::mutex> guard(mutex);
        for (auto &each : queues) {
            each.second->passed = each.second->queued;
        }
    }

  private:
    std::mutex mutex;
    uint64_t ids = 0;
    std::map<uint64_t, std::unique_ptr<DeviceQueue>> queues;
    std::map<void *, Mark> users;
    std::vector<std::unique_ptr<Mark>> made;

    void end(Mark *mark) {
        marks--;
        made.erase(std::find_if(made.begin(), made.end(),
                                [&](const auto &each) { return each.get() == mark; }));
    }

    bool is_behind(const DeviceQueue &queue, const Mark &user) {
        auto followed = queue.follows.find(user.id);
        return user.id == queue.id || queues[user.id]->passed >= user.queued ||
               (followed != queue.follows.end() && followed->second >= user.queued);
    }
};

inline Device device;

inline umf_memory_provider_ext_ops_t queue_ext() {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    ext.queue_mark = [](void *, void *queue, void **mark) {
        return device.mark(static_cast<DeviceQueue *>(queue), mark);
    };
    ext.mark_wait = [](void *, void *mark, int may_block) {
        return device.wait(static_cast<Mark *>(mark), may_block != 0);
    };
    ext.queue_id = [](void *, void *queue, uint64_t *id, int *is_of_thread, int *is_captured) {
        device.queue_queries++;
        *id = static_cast<DeviceQueue *>(queue)->id;
        *is_of_thread = 0;
        *is_captured = device.is_captured(static_cast<DeviceQueue *>(queue));
        return OK;
    };
    ext.queue_follow = [](void *, void *queue, void *mark) {
        return device.follow(static_cast<DeviceQueue *>(queue), static_cast<Mark *>(mark));
    };
    ext.wait = [](void *, void *const *, size_t, void *const *, size_t) {
        if (!device.can_wait) {
            return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
        }
        device.wait_for_all();
        return OK;
    };
    ext.free_pending = [](void *, int, size_t *left) {
        device.ticks++;
        *left = 0;
        return OK;
    };
    ext.settle = [](void *) {
        if (!device.can_settle) {
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        device.wait_for_all();
        return OK;
    };
    return ext;
}

inline const umf_memory_provider_ops_t &queue_ops() {
    static const umf_memory_provider_ops_t ops = FakeProvider::table();
    static const umf_memory_provider_ext_ops_t ext = queue_ext();
    static const umf_memory_provider_descriptor_t kind = {sizeof(kind), "with_queues", &ops,   &ext,
                                                          nullptr,      nullptr,       nullptr};
    static const umf_result_t registered = umfRegisterProvider(&kind);
    EXPECT_EQ(registered, OK);
    return ops;
}

class QueuePool : public testing::TestWithParam<const umf_memory_pool_ops_t *(*)()> {
  protected:
    FakeProvider source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    DeviceQueue *first = device.open(), *second = device.open();

    void SetUp() override {
        device.forget();
        device.blocking_waits = 0;
        device.can_settle = device.can_wait = true;
        ASSERT_EQ(umfMemoryProviderCreate(&queue_ops(), &source, &provider), OK);
        umf_result_t result = umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool);
        if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            GTEST_SKIP() << "the library that the pool needs is not here";
        }
        ASSERT_EQ(result, OK);
    }
    void TearDown() override {
        EXPECT_EQ(pool ? umfPoolDestroy(pool) : OK, OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(device.faults, 0);
        EXPECT_EQ(device.marks, 0) << "each mark was ended";
        EXPECT_EQ(source.mistakes, 0u);
        EXPECT_EQ(source.live(), 0u);
    }
    void *make(size_t size, DeviceQueue *queue) {
        void *ptr = umfPoolMallocOn(pool, size, 0, queue);
        EXPECT_NE(ptr, nullptr);
        device.work(queue, ptr);
        return ptr;
    }
};

} // namespace queues

#endif
