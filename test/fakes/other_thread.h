/* A thread that does one step at a time, on request. */
#ifndef UMF_TEST_FAKES_OTHER_THREAD_H
#define UMF_TEST_FAKES_OTHER_THREAD_H

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

class OtherThread {
  public:
    OtherThread() = default;
    OtherThread(const OtherThread &) = delete;
    OtherThread &operator=(const OtherThread &) = delete;

    // Returns when it is done.
    void operator()(std::function<void()> step) {
        std::packaged_task<void()> task(std::move(step));
        auto done = task.get_future();
        {
            std::lock_guard<std::mutex> guard(lock);
            next = std::move(task);
        }
        changed.notify_one();
        done.get();
    }
    ~OtherThread() {
        (*this)([this] { is_over = true; });
        thread.join();
    }

  private:
    void run() {
        while (!is_over) {
            std::packaged_task<void()> task;
            std::unique_lock<std::mutex> guard(lock);
            changed.wait(guard, [this] { return next.valid(); });
            task = std::move(next);
            guard.unlock();
            task();
        }
    }
    std::mutex lock;
    std::condition_variable changed;
    std::packaged_task<void()> next;
    bool is_over = false;
    std::thread thread{[this] { run(); }};
};

#endif
