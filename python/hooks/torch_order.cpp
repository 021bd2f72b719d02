/* Frees that wait for streams. */
#include "torch_order.hpp"

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <umf.h>

#include "cuda.h"

namespace {

struct use_t {
    int device;
    void *stream;
};

struct waiting_t {
    void *ptr;
    std::vector<use_t> uses;     /* that have no event yet */
    std::vector<CUevent> events; /* that have not passed, or were not asked */
};

constexpr size_t POLLED = 16; /* events asked in one call: it is on the way of an allocation */

/* Not destroyed: torch frees until the very end. */
struct order_t {
    std::mutex mutex;
    std::unordered_map<void *, std::vector<use_t>> uses;
    std::deque<waiting_t> waiting;
    size_t captures = 0;
};

order_t &order = *new order_t;
std::atomic<size_t> used_count{0}, waiting_count{0};

/* An event behind the work of a stream. Without one the stream is waited for. */
CUevent record(const use_t &use) {
    CUevent event = nullptr;
    if (cuda_enter(use.device) != CUDA_SUCCESS) {
        return nullptr; /* the driver is gone, and its work with it */
    }
    CUstream stream = static_cast<CUstream>(use.stream);
    if (cuda()->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        event = nullptr;
    }
    if (!event || cuda()->event_record(event, stream) != CUDA_SUCCESS) {
        cuda()->stream_synchronize(stream);
    }
    cuda_leave();
    return event;
}

void record_all(waiting_t &one) {
    for (const use_t &use : one.uses) {
        if (CUevent event = record(use)) {
            one.events.push_back(event);
        }
    }
    one.uses.clear();
}

bool has_passed(waiting_t &one) {
    while (!one.events.empty() && cuda()->event_query(one.events.back()) != CUDA_ERROR_NOT_READY) {
        cuda()->event_destroy(one.events.back());
        one.events.pop_back();
    }
    return one.uses.empty() && one.events.empty();
}

/* Takes those out that have passed, among the oldest. They are freed without the lock: a free may
 * wait, and may come back here. */
std::vector<void *> take_passed() {
    std::vector<void *> done;
    std::unique_lock<std::mutex> lock(order.mutex, std::try_to_lock);
    if (!lock || order.captures > 0) {
        return done;
    }
    for (size_t asked = 0, at = 0; at < order.waiting.size() && asked < POLLED;) {
        if (has_passed(order.waiting[at])) {
            done.push_back(order.waiting[at].ptr);
            order.waiting.erase(order.waiting.begin() + static_cast<std::ptrdiff_t>(at));
            waiting_count--;
        } else {
            asked++, at++;
        }
    }
    return done;
}

} // namespace

void order_use(void *ptr, int device, void *stream) {
    std::lock_guard<std::mutex> lock(order.mutex);
    std::vector<use_t> &uses = order.uses[ptr];
    for (const use_t &use : uses) {
        if (use.stream == stream && use.device == device) {
            return;
        }
    }
    uses.push_back({device, stream});
    used_count = order.uses.size();
}

/* false: no other stream uses it. */
static bool free_later(void *ptr, void *stream) {
    std::lock_guard<std::mutex> lock(order.mutex);
    auto found = order.uses.find(ptr);
    if (found == order.uses.end()) {
        return false;
    }
    waiting_t one{ptr, {}, {}};
    for (const use_t &use : found->second) {
        if (use.stream != stream) {
            one.uses.push_back(use);
        }
    }
    order.uses.erase(found);
    used_count = order.uses.size();
    if (one.uses.empty()) {
        return false;
    }
    if (order.captures == 0) {
        record_all(one);
    }
    order.waiting.push_back(std::move(one));
    waiting_count++;
    return true;
}

void order_free(void *ptr, void *stream) {
    if (used_count == 0 || !free_later(ptr, stream)) {
        umfFree(ptr);
    }
}

void order_poll() {
    if (waiting_count > 0) {
        for (void *ptr : take_passed()) {
            umfFree(ptr);
        }
    }
}

void order_settle() {
    std::deque<waiting_t> all;
    {
        std::lock_guard<std::mutex> lock(order.mutex);
        if (order.captures > 0) {
            return;
        }
        all.swap(order.waiting);
        waiting_count = 0;
    }
    for (waiting_t &one : all) {
        for (CUevent event : one.events) {
            cuda()->event_synchronize(event);
            cuda()->event_destroy(event);
        }
        umfFree(one.ptr);
    }
}

void order_capture_begins() {
    std::lock_guard<std::mutex> lock(order.mutex);
    order.captures++;
}

void order_capture_ends() {
    std::lock_guard<std::mutex> lock(order.mutex);
    order.captures -= order.captures > 0;
    if (order.captures == 0) {
        for (waiting_t &one : order.waiting) {
            record_all(one);
        }
    }
}
