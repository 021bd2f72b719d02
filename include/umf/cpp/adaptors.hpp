/** @file
 * Adaptors: objects in front of a pool that limit, count, log, retry or align requests. They stack
 * in one line, on memory of the host or of a device.
 *
 * @code{.cpp}
 * #include <vector>
 * #include <umf/umf.hpp>
 *
 * int main() {
 *     umf::pool pool("disjoint over os");
 *     umf::statistics_adaptor counted(umf::limit_adaptor(pool, 1 << 20));
 *     umf::adaptor_resource resource(counted);
 *     std::pmr::vector<int> numbers(1000, &resource);
 *     return counted.statistics().bytes == 4000 ? 0 : 1;
 * }
 * @endcode
 *
 * Rules for all of them:
 * - The first argument is a pool, or an adaptor. One that has a name is referred to and must
 *   outlive the new object; an adaptor that is made in the same line is moved into it. A pool that
 *   is made in the same line is refused by the compiler.
 * - Memory is freed through the adaptor that allocated it, with its size. If it is freed by
 *   ::umfFree or through the pool, the counts of the adaptors stay.
 * - They count requests. The memory that a pool holds for them is counted by the pool
 *   (umf/experimental/ctl.h), and limited by a group (umf/reclaim.h), for all users of the pool.
 * - Several threads may use one at once. It is moved by one thread while no other uses it.
 */
#ifndef UMF_CPP_ADAPTORS_HPP
#define UMF_CPP_ADAPTORS_HPP 1

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <type_traits>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/cpp/memory.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/fwd.hpp>
#include <umf/queue.h>

UMF_CPP_BEGIN

/// @cond
namespace detail {

// A request on its way down, and on its way up why it was refused, if that was not the pool.
struct request {
    std::size_t size;
    std::size_t alignment;
    const umf_queue_t *queue; // NULL: not on a queue
    char refusal[128];

    request(std::size_t bytes, std::size_t align, const umf_queue_t *on) noexcept
        : size(bytes), alignment(align), queue(on) {
        refusal[0] = '\0';
    }
};

// The end of a stack.
class pool_below {
  public:
    explicit pool_below(pool_ref pool) noexcept : pool_(pool) {}

    void *take(request &wanted) noexcept {
        return wanted.queue ? pool_.try_allocate_on(*wanted.queue, wanted.size, wanted.alignment)
                            : pool_.try_allocate(wanted.size, wanted.alignment);
    }
    umf_result_t give(void *ptr, std::size_t, const umf_queue_t *queue) noexcept {
        return queue ? umfFreeOn(ptr, *queue) : pool_.deallocate(ptr);
    }
    pool_ref pool() const noexcept {
        return pool_;
    }

  private:
    pool_ref pool_;
};

// An adaptor that has a name.
template <class Adaptor> class named_below {
  public:
    explicit named_below(Adaptor &adaptor) noexcept : adaptor_(&adaptor) {}

    void *take(request &wanted) noexcept {
        return adaptor_->take(wanted);
    }
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        return adaptor_->give(ptr, size, queue);
    }
    pool_ref pool() const noexcept {
        return adaptor_->pool();
    }

  private:
    Adaptor *adaptor_;
};

template <class T, class = void> struct is_adaptor : std::false_type {};
template <class T>
struct is_adaptor<T, std::void_t<decltype(std::declval<T &>().take(std::declval<request &>()))>>
    : std::true_type {};

// What an adaptor has below it, by the argument of its constructor.
template <class Argument> struct below {
    using named = std::remove_reference_t<Argument>;
    using plain = std::remove_cv_t<named>;
    static constexpr bool over_adaptor = is_adaptor<plain>::value;
    static_assert(over_adaptor || std::is_base_of_v<pool_ref, plain> ||
                      std::is_same_v<plain, umf_memory_pool_handle_t>,
                  "an adaptor stands in front of an umf::pool, or of another adaptor");
    static_assert(!over_adaptor || std::is_same_v<named, plain>,
                  "an adaptor changes the one below it, which cannot be const");
    using type = std::conditional_t<
        !over_adaptor, pool_below,
        std::conditional_t<std::is_lvalue_reference_v<Argument>, named_below<plain>, plain>>;
};
template <class Argument> using below_t = typename below<Argument>::type;

template <class Below, class Argument>
using if_below = std::enable_if_t<std::is_same_v<below_t<Argument>, Below>>;

// The memory of a request; raises the reason of the adaptor or the pool that refuses it.
template <class Source> [[nodiscard]] void *taken(Source &source, request wanted) {
    void *ptr = source.take(wanted);
    if (!ptr) {
        raise(*wanted.refusal ? bad_alloc(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, wanted.size,
                                          source.pool().name(), wanted.refusal)
                              : source.pool().refused(wanted.size));
    }
    return ptr;
}

inline void raise_to(std::atomic<std::size_t> &most, std::size_t value) noexcept {
    std::size_t seen = most.load(std::memory_order_relaxed);
    while (seen < value && !most.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

} // namespace detail
/// @endcond

/// @brief The functions that all adaptors have.
/// @tparam Self the adaptor
/// @tparam Below the adaptor below it
template <class Self, class Below> class adaptor {
  public:
    /// @brief Allocates memory, without exceptions.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate of this object; NULL: there is none, or an
    ///         adaptor refuses the request
    [[nodiscard]] void *try_allocate(std::size_t size, std::size_t alignment = 0) noexcept {
        detail::request wanted(size, alignment, nullptr);
        return self().take(wanted);
    }

    /// @brief Allocates memory.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate of this object
    /// @throws umf::bad_alloc with the reason of the adaptor or the pool that refuses it
    [[nodiscard]] void *allocate(std::size_t size, std::size_t alignment = 0) {
        return detail::taken(self(), detail::request(size, alignment, nullptr));
    }

    /// @brief Allocates memory for work on a queue (umf/queue.h), without exceptions.
    /// @param queue on which the memory is used first
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate_on of this object, or by deallocate when the host
    ///         has waited; NULL: there is none, an adaptor refuses it, or the queue is refused
    [[nodiscard]] void *try_allocate_on(umf_queue_t queue, std::size_t size,
                                        std::size_t alignment = 0) noexcept {
        detail::request wanted(size, alignment, &queue);
        return self().take(wanted);
    }

    /// @brief Allocates memory for work on a queue (umf/queue.h).
    /// @param queue on which the memory is used first
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate_on of this object, or by deallocate when the host
    ///         has waited
    /// @throws umf::bad_alloc with the reason of the adaptor or the pool that refuses it
    [[nodiscard]] void *allocate_on(umf_queue_t queue, std::size_t size,
                                    std::size_t alignment = 0) {
        return detail::taken(self(), detail::request(size, alignment, &queue));
    }

    /// @brief Gives memory back.
    /// @param ptr memory of this object; NULL is allowed
    /// @param size as allocated
    /// @return as ::umfPoolFree; on failure no count changes
    umf_result_t deallocate(void *ptr, std::size_t size) noexcept {
        return ptr ? self().give(ptr, size, nullptr) : UMF_RESULT_SUCCESS;
    }

    /// @brief Gives memory back when the work that is on a queue now has completed.
    /// @param queue the queue
    /// @param ptr memory of this object; NULL is allowed
    /// @param size as allocated
    /// @return as ::umfFreeOn; on failure no count changes
    umf_result_t deallocate_on(umf_queue_t queue, void *ptr, std::size_t size) noexcept {
        return ptr ? self().give(ptr, size, &queue) : UMF_RESULT_SUCCESS;
    }

    /// @brief The pool at the end of the stack.
    /// @return as given
    pool_ref pool() const noexcept {
        return below_.pool();
    }

  protected:
    /// @cond
    template <class Argument>
    explicit adaptor(std::in_place_t, Argument &&below) : below_(std::forward<Argument>(below)) {}

    Below below_;
    /// @endcond

  private:
    Self &self() noexcept {
        return static_cast<Self &>(*this);
    }
};

/// @brief Refuses a request that would make those in use together larger than a limit.
///
/// A request that is refused fails with ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY and does not reach
/// the pool. The limit is one of this object; umf/reclaim.h has limits of pools.
///
/// @tparam Below the adaptor below it, deduced
template <class Below> class limit_adaptor : public adaptor<limit_adaptor<Below>, Below> {
  public:
    /// @brief Stands in front of a pool or an adaptor.
    /// @param below the pool or the adaptor
    /// @param limit bytes
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    limit_adaptor(Argument &&below, std::size_t limit)
        : limit_adaptor::adaptor(std::in_place, std::forward<Argument>(below)), limit_(limit) {}

    /// @brief Takes the place of another object, which is not used any more.
    /// @param other the other object
    limit_adaptor(limit_adaptor &&other) noexcept
        : limit_adaptor::adaptor(std::move(other)), limit_(other.limit_), used_(other.used()) {}

    /// @brief The limit.
    /// @return bytes
    std::size_t limit() const noexcept {
        return limit_;
    }

    /// @brief The requests in use.
    /// @return bytes
    std::size_t used() const noexcept {
        return used_.load(std::memory_order_relaxed);
    }

    /// @cond
    void *take(detail::request &wanted) noexcept {
        std::size_t used = this->used();
        do {
            if (used > limit_ || wanted.size > limit_ - used) {
                std::snprintf(wanted.refusal, sizeof(wanted.refusal),
                              "the limit of %zu bytes would be exceeded: %zu are in use", limit_,
                              used);
                return nullptr;
            }
        } while (!used_.compare_exchange_weak(used, used + wanted.size, std::memory_order_relaxed));
        void *ptr = this->below_.take(wanted);
        if (!ptr) {
            used_.fetch_sub(wanted.size, std::memory_order_relaxed);
        }
        return ptr;
    }
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        umf_result_t result = this->below_.give(ptr, size, queue);
        if (result == UMF_RESULT_SUCCESS) {
            used_.fetch_sub(size, std::memory_order_relaxed);
        }
        return result;
    }
    /// @endcond

  private:
    std::size_t limit_;
    std::atomic<std::size_t> used_{0};
};

/// @cond
template <class Argument>
limit_adaptor(Argument &&, std::size_t) -> limit_adaptor<detail::below_t<Argument &&>>;
/// @endcond

/// @brief Counts of an umf::statistics_adaptor.
struct allocation_statistics {
    /// Bytes in use.
    std::size_t bytes;
    /// The most bytes that were in use at once.
    std::size_t peak_bytes;
    /// Bytes of all requests that were served.
    std::size_t total_bytes;
    /// Blocks in use.
    std::size_t blocks;
    /// The most blocks that were in use at once.
    std::size_t peak_blocks;
    /// Requests that were served.
    std::size_t total_blocks;
    /// Requests that were refused.
    std::size_t failures;
};

/// @brief Counts the requests that pass through it.
/// @tparam Below the adaptor below it, deduced
template <class Below> class statistics_adaptor : public adaptor<statistics_adaptor<Below>, Below> {
  public:
    /// @brief Stands in front of a pool or an adaptor.
    /// @param below the pool or the adaptor
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    explicit statistics_adaptor(Argument &&below)
        : statistics_adaptor::adaptor(std::in_place, std::forward<Argument>(below)) {}

    /// @brief Takes the place of another object, which is not used any more.
    /// @param other the other object
    statistics_adaptor(statistics_adaptor &&other) noexcept
        : statistics_adaptor::adaptor(std::move(other)), bytes_(other.bytes_.load()),
          peak_bytes_(other.peak_bytes_.load()), total_bytes_(other.total_bytes_.load()),
          blocks_(other.blocks_.load()), peak_blocks_(other.peak_blocks_.load()),
          total_blocks_(other.total_blocks_.load()), failures_(other.failures_.load()) {}

    /// @brief The counts.
    /// @return each is right by itself; beside requests of other threads they may differ from each
    ///         other by these
    allocation_statistics statistics() const noexcept {
        return {bytes_, peak_bytes_, total_bytes_, blocks_, peak_blocks_, total_blocks_, failures_};
    }

    /// @brief Lowers the peaks to the bytes and blocks in use now.
    void reset_peaks() noexcept {
        peak_bytes_ = bytes_.load();
        peak_blocks_ = blocks_.load();
    }

    /// @cond
    void *take(detail::request &wanted) noexcept {
        void *ptr = this->below_.take(wanted);
        if (!ptr) {
            failures_.fetch_add(1, std::memory_order_relaxed);
            return nullptr;
        }
        std::size_t size = wanted.size;
        total_bytes_.fetch_add(size, std::memory_order_relaxed);
        total_blocks_.fetch_add(1, std::memory_order_relaxed);
        detail::raise_to(peak_bytes_, bytes_.fetch_add(size, std::memory_order_relaxed) + size);
        detail::raise_to(peak_blocks_, blocks_.fetch_add(1, std::memory_order_relaxed) + 1);
        return ptr;
    }
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        umf_result_t result = this->below_.give(ptr, size, queue);
        if (result == UMF_RESULT_SUCCESS) {
            bytes_.fetch_sub(size, std::memory_order_relaxed);
            blocks_.fetch_sub(1, std::memory_order_relaxed);
        }
        return result;
    }
    /// @endcond

  private:
    std::atomic<std::size_t> bytes_{0}, peak_bytes_{0}, total_bytes_{0}, blocks_{0},
        peak_blocks_{0}, total_blocks_{0}, failures_{0};
};

/// @cond
template <class Argument>
explicit statistics_adaptor(Argument &&) -> statistics_adaptor<detail::below_t<Argument &&>>;
/// @endcond

/// @brief A call that passed through an umf::logging_adaptor.
struct allocation_event {
    /// The call.
    enum class action {
        allocate,   ///< memory was allocated
        deallocate, ///< memory was freed
        fail        ///< a request, if ptr is NULL, or a free was refused
    };
    /// The call, or that it failed.
    action what;
    /// The memory; NULL for a request that was refused.
    void *ptr;
    /// Bytes of the request, or as given to deallocate.
    std::size_t size;
    /// Of the request; 0: any.
    std::size_t alignment;
    /// True for the calls with a queue.
    bool is_on_queue;
    /// The queue; NULL without one, and for a default stream.
    umf_queue_t queue;
};

/// @brief Calls a function after each request and each free.
/// @tparam Below the adaptor below it, deduced
/// @tparam Sink type of the function, deduced
template <class Below, class Sink>
class logging_adaptor : public adaptor<logging_adaptor<Below, Sink>, Below> {
    static_assert(std::is_invocable_v<Sink &, const allocation_event &>,
                  "the sink of an umf::logging_adaptor takes a const umf::allocation_event &");

  public:
    /// @brief Stands in front of a pool or an adaptor.
    /// @param below the pool or the adaptor
    /// @param sink called as `sink(const umf::allocation_event &)`, by several threads at once; it
    ///        throws nothing. umf::csv_sink writes lines
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    logging_adaptor(Argument &&below, Sink sink)
        : logging_adaptor::adaptor(std::in_place, std::forward<Argument>(below)),
          sink_(std::move(sink)) {}

    /// @cond
    void *take(detail::request &wanted) noexcept {
        void *ptr = this->below_.take(wanted);
        emit(ptr ? allocation_event::action::allocate : allocation_event::action::fail, ptr,
             wanted.size, wanted.alignment, wanted.queue);
        return ptr;
    }
    // The line comes before the free: afterwards another thread may have the address.
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        emit(allocation_event::action::deallocate, ptr, size, 0, queue);
        umf_result_t result = this->below_.give(ptr, size, queue);
        if (result != UMF_RESULT_SUCCESS) {
            emit(allocation_event::action::fail, ptr, size, 0, queue);
        }
        return result;
    }
    /// @endcond

  private:
    void emit(allocation_event::action what, void *ptr, std::size_t size, std::size_t alignment,
              const umf_queue_t *queue) noexcept {
        sink_(allocation_event{what, ptr, size, alignment, queue != nullptr,
                               queue ? *queue : nullptr});
    }

    Sink sink_;
};

/// @cond
template <class Argument, class Sink>
logging_adaptor(Argument &&, Sink) -> logging_adaptor<detail::below_t<Argument &&>, Sink>;
/// @endcond

/// @brief For umf::logging_adaptor: writes a line of comma-separated values for each event.
class csv_sink {
  public:
    /// @brief Writes the line of names.
    /// @param file open until the last event; it is neither flushed nor closed
    explicit csv_sink(std::FILE *file) : file_(file) {
        std::fputs("action,pointer,size,alignment,queue\n", file_);
    }

    /// @brief Writes a line.
    /// @param event the event
    void operator()(const allocation_event &event) const noexcept {
        static constexpr const char *names[] = {"allocate", "free", "fail"};
        std::fprintf(file_, "%s,%p,%zu,%zu,%p\n", names[static_cast<int>(event.what)], event.ptr,
                     event.size, event.alignment, event.queue);
    }

  private:
    std::FILE *file_;
};

/// @brief Calls a function when a request fails, and repeats the request if it returns true.
///
/// Callbacks of the library (umf/reclaim.h) are for all pools, and are called before a pool fails.
///
/// @tparam Below the adaptor below it, deduced
/// @tparam Callback type of the function, deduced
template <class Below, class Callback>
class failure_callback_adaptor : public adaptor<failure_callback_adaptor<Below, Callback>, Below> {
    static_assert(std::is_invocable_r_v<bool, Callback &, std::size_t, unsigned>,
                  "the callback of an umf::failure_callback_adaptor is called as "
                  "bool(std::size_t bytes, unsigned attempt)");

  public:
    /// @brief Stands in front of a pool or an adaptor.
    /// @param below the pool or the adaptor
    /// @param callback called as `callback(bytes, attempt)`, by several threads at once, with no
    ///        lock held; `attempt` is 0 at first and one more each time. It may free memory. It
    ///        returns true to repeat the request, and throws nothing
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    failure_callback_adaptor(Argument &&below, Callback callback)
        : failure_callback_adaptor::adaptor(std::in_place, std::forward<Argument>(below)),
          callback_(std::move(callback)) {}

    /// @cond
    void *take(detail::request &wanted) noexcept {
        for (unsigned attempt = 0;; attempt++) {
            void *ptr = this->below_.take(wanted);
            if (ptr || !callback_(wanted.size, attempt)) {
                return ptr;
            }
            wanted.refusal[0] = '\0';
        }
    }
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        return this->below_.give(ptr, size, queue);
    }
    /// @endcond

  private:
    Callback callback_;
};

/// @cond
template <class Argument, class Callback>
failure_callback_adaptor(Argument &&, Callback)
    -> failure_callback_adaptor<detail::below_t<Argument &&>, Callback>;
/// @endcond

/// @brief Raises the alignment of requests.
/// @tparam Below the adaptor below it, deduced
template <class Below> class aligned_adaptor : public adaptor<aligned_adaptor<Below>, Below> {
  public:
    /// @brief Stands in front of a pool or an adaptor.
    /// @param below the pool or the adaptor
    /// @param alignment the least alignment, a power of two; with another number the pool refuses
    ///        the requests
    /// @param threshold bytes from which on a request gets it
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    aligned_adaptor(Argument &&below, std::size_t alignment, std::size_t threshold = 0)
        : aligned_adaptor::adaptor(std::in_place, std::forward<Argument>(below)),
          alignment_(alignment), threshold_(threshold) {}

    /// @cond
    void *take(detail::request &wanted) noexcept {
        if (wanted.size >= threshold_ && wanted.alignment < alignment_) {
            wanted.alignment = alignment_;
        }
        return this->below_.take(wanted);
    }
    umf_result_t give(void *ptr, std::size_t size, const umf_queue_t *queue) noexcept {
        return this->below_.give(ptr, size, queue);
    }
    /// @endcond

  private:
    std::size_t alignment_;
    std::size_t threshold_;
};

/// @cond
template <class Argument>
aligned_adaptor(Argument &&, std::size_t, std::size_t = 0)
    -> aligned_adaptor<detail::below_t<Argument &&>>;
/// @endcond

/// @brief Allocates through an adaptor for `std::pmr`: containers, strings, other resources.
/// @tparam Below the adaptor, deduced
template <class Below> class adaptor_resource final : public std::pmr::memory_resource {
  public:
    /// @brief Makes the resource.
    /// @param below the adaptor, over a pool whose memory the CPU can access
    /// @throws umf::exception if the CPU cannot access it (::UMF_RESULT_ERROR_NOT_SUPPORTED), or if
    ///         the pool has no byte by which that can be seen
    template <class Argument, class = detail::if_below<Below, Argument &&>>
    explicit adaptor_resource(Argument &&below) : below_(std::forward<Argument>(below)) {
        detail::reached_by_cpu(below_.pool()).value();
    }

    adaptor_resource(const adaptor_resource &) = delete;
    adaptor_resource &operator=(const adaptor_resource &) = delete;

    /// @brief The pool at the end of the stack.
    /// @return as given
    pool_ref pool() const noexcept {
        return below_.pool();
    }

  private:
    void *do_allocate(std::size_t size, std::size_t alignment) override {
        return detail::taken(below_, detail::request(size ? size : 1, alignment, nullptr));
    }

    void do_deallocate(void *ptr, std::size_t size, std::size_t) override {
        below_.give(ptr, size ? size : 1, nullptr);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    Below below_;
};

/// @cond
template <class Argument>
explicit adaptor_resource(Argument &&) -> adaptor_resource<detail::below_t<Argument &&>>;
/// @endcond

UMF_CPP_END

#endif /* UMF_CPP_ADAPTORS_HPP */
