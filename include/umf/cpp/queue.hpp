/** @file
 * Queues in C++: memory that is freed while a device still works on it (umf/queue.h).
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * void launch(float *values, std::size_t count, umf_queue_t stream);
 *
 * void step(umf::pool &pool, umf_queue_t stream) {
 *     umf::buffer_on<float> values(pool, 1000, stream);
 *     launch(values.data(), values.size(), stream);
 * } // freed on the stream: used again after the kernel, without a wait
 * @endcode
 */
#ifndef UMF_CPP_QUEUE_HPP
#define UMF_CPP_QUEUE_HPP 1

#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <umf/cpp/error.hpp>
#include <umf/cpp/memory.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/queue.h>

UMF_CPP_BEGIN

/// @brief Native queues (`cudaStream_t`, `CUstream`, ...): a list in braces, or any range of them.
class queues {
  public:
    /// @brief No queue.
    queues() noexcept = default;

    /// @brief Queues one by one.
    /// @param list the queues
    queues(std::initializer_list<void *> list) : list_(list) {}

    /// @brief The queues of a range, such as a vector of streams.
    /// @param range copied
    template <class Range,
              class = decltype(static_cast<void *>(*std::begin(std::declval<const Range &>())))>
    queues(const Range &range) : list_(std::begin(range), std::end(range)) {}

    /// @brief The queues in a row.
    /// @return NULL if there are none; valid as long as this
    void *const *data() const noexcept {
        return list_.empty() ? nullptr : list_.data();
    }

    /// @brief How many.
    /// @return 0 if there are none
    std::size_t size() const noexcept {
        return list_.size();
    }

    /// @brief The first queue.
    /// @return an iterator
    void *const *begin() const noexcept {
        return list_.data();
    }

    /// @brief Behind the last queue.
    /// @return an iterator
    void *const *end() const noexcept {
        return list_.data() + list_.size();
    }

  private:
    std::vector<void *> list_;
};

/// @brief Names queues that use the memory, too: its free on a queue waits for them.
/// @param ptr memory that is allocated
/// @param used_by the queues
/// @return success, or why not: see ::umfUseOn
inline result<void> use_on(const void *ptr, const queues &used_by) {
    for (umf_queue_t queue : used_by) {
        umf_result_t code = umfUseOn(ptr, queue);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "naming a queue that uses memory");
        }
    }
    return {};
}

/// @brief For `std::unique_ptr`: frees memory on a queue, whichever pool it is of. Does not touch
///        it.
/// @tparam T type of an object that needs no destructor, or an array of such; void: any memory
template <class T> struct deleter_on {
    static_assert(std::is_void_v<T> || std::is_trivially_destructible_v<std::remove_extent_t<T>>,
                  "memory that is freed on a queue is not touched: its objects must need no "
                  "destructor");

    /// The queue that uses the memory last.
    umf_queue_t queue;

    /// @brief Names the queue.
    /// @param last that uses the memory last
    deleter_on(umf_queue_t last = nullptr) noexcept : queue(last) {}

    /// @brief Allocates memory that this object frees.
    /// @param from the pool
    /// @param size bytes
    /// @param alignment of the address
    /// @return memory; NULL if there is none
    [[nodiscard]] void *allocate(pool_ref from, std::size_t size,
                                 std::size_t alignment) const noexcept {
        return from.try_allocate_on(queue, size, alignment);
    }

    /// @brief Frees the memory when the work that is on the queue now has completed.
    /// @param ptr memory of a pool; not NULL
    void operator()(std::remove_extent_t<T> *ptr) const noexcept {
        umfFreeOn(const_cast<std::remove_cv_t<std::remove_extent_t<T>> *>(ptr), queue);
    }
};

/// @brief Owns memory that is freed on a queue.
template <class T> using unique_ptr_on = std::unique_ptr<T, deleter_on<T>>;

/// @brief An array that is allocated and freed on a queue: `buffer_on<float>(pool, count, queue)`.
template <class T> using buffer_on = buffer<T, deleter_on<T[]>>;

UMF_CPP_END

#endif /* UMF_CPP_QUEUE_HPP */
