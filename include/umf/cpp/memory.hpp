/** @file
 * Memory of pools for C++: owning pointers, buffers, a `std::pmr::memory_resource` and an allocator
 * for containers.
 */
#ifndef UMF_CPP_MEMORY_HPP
#define UMF_CPP_MEMORY_HPP 1

#include <limits>
#include <memory>
#include <memory_resource>
#include <type_traits>
#include <utility>
#if __has_include(<span>)
#include <span>
#endif

#include <umf/cpp/error.hpp>
#include <umf/cpp/pool.hpp>

UMF_CPP_BEGIN

/// @brief For `std::unique_ptr`: ends an object and frees its memory, in whichever pool.
///
/// It has no size: the pointer leads to the pool, which must record its memory. Memory of objects
/// that need no destructor is not touched, so it may be memory of a device.
///
/// @tparam T type of the object; void: any memory
template <class T> struct deleter {
    /// @brief Ends the object.
    /// @param ptr an object in memory of a pool; not NULL
    void operator()(T *ptr) const noexcept {
        if constexpr (!std::is_void_v<T> && !std::is_trivially_destructible_v<T>) {
            ptr->~T();
        }
        umfFree(const_cast<std::remove_cv_t<T> *>(ptr));
    }
};

/// @brief For arrays of objects that need no destructor: their number is not recorded.
/// @tparam T type of one object
template <class T> struct deleter<T[]> {
    static_assert(std::is_trivially_destructible_v<T>,
                  "umf::deleter<T[]> has no count of objects to destroy: the elements must "
                  "need no destructor; use a container with umf::allocator");

    /// @brief Allocates memory that this object frees.
    /// @param from the pool
    /// @param size bytes
    /// @param alignment of the address
    /// @return memory; NULL if there is none
    [[nodiscard]] void *allocate(pool_ref from, std::size_t size,
                                 std::size_t alignment) const noexcept {
        return from.try_allocate(size, alignment);
    }

    /// @brief Frees the array.
    /// @param ptr an array in memory of a pool; not NULL
    void operator()(T *ptr) const noexcept {
        umfFree(const_cast<std::remove_cv_t<T> *>(ptr));
    }
};

/// @brief Owns an object in memory of a pool; as small as a pointer.
template <class T> using unique_ptr = std::unique_ptr<T, deleter<T>>;

/// @brief Makes an object in memory of a pool.
///
/// @param from pool whose memory the CPU can access, and which records it
/// @param args for the constructor
/// @return the object, which must end before the pool
/// @throws umf::bad_alloc if there is no memory; exceptions of the constructor
template <class T, class... Args>
[[nodiscard]] unique_ptr<T> make_unique(pool_ref from, Args &&...args) {
    static_assert(!std::is_array_v<T>, "umf::make_unique makes one object: use umf::buffer for an "
                                       "array, or a container with umf::allocator");
    unique_ptr<void> memory(from.allocate(sizeof(T), alignof(T)));
    T *object = ::new (memory.get()) T(std::forward<Args>(args)...);
    static_cast<void>(memory.release());
    return unique_ptr<T>(object);
}

/// @brief Owns an array in memory of a pool, on the host or a device. Its content is not defined at
///        first.
///
/// Where the CPU can access the memory, it is used as a container. In C++20 it converts to
/// `std::span` by itself. The elements of a `const` buffer are `const`, as those of a container.
///
/// @tparam T type of the elements, which can be copied as bytes
/// @tparam Deleter how it is freed: umf::deleter, or on a queue by umf::deleter_on
template <class T, class Deleter> class buffer {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "the elements of an umf::buffer are copied as bytes and never destroyed: use a "
                  "container with umf::allocator, such as std::vector<T, umf::allocator<T>>");

  public:
    /// Type of the elements.
    using value_type = T;

    /// @brief An array without memory.
    buffer() noexcept = default;

    /// @brief Allocates an array.
    /// @param from pool that records its memory
    /// @param count how many elements; 0: no memory
    /// @param how how it is freed; for umf::buffer_on the queue
    /// @throws umf::bad_alloc if there is no memory
    buffer(pool_ref from, std::size_t count, Deleter how = {})
        : buffer(how, allocate(from, count, how), count) {
        if (count && empty()) {
            detail::raise(from.refused(bytes_of(count)));
        }
    }

    /// @brief Allocates an array, without exceptions.
    /// @param from pool that records its memory
    /// @param count how many elements; 0: no memory
    /// @param how how it is freed; for umf::buffer_on the queue
    /// @return the array, or why there is none
    static result<buffer> create(pool_ref from, std::size_t count, Deleter how = {}) {
        buffer made(how, allocate(from, count, how), count);
        if (count && made.empty()) {
            return from.allocation_error();
        }
        return result<buffer>(std::move(made));
    }

    /// @brief Takes the array of another object, which has none afterwards.
    /// @param other the other object
    buffer(buffer &&other) noexcept
        : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}

    /// @brief Frees its array, and takes the array of another object.
    /// @param other the other object
    /// @return this object
    buffer &operator=(buffer &&other) noexcept {
        memory_ = std::move(other.memory_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    /// @brief The first element.
    /// @return NULL if there is no memory
    T *data() noexcept {
        return memory_.get();
    }

    /// @brief The first element.
    /// @return NULL if there is no memory
    const T *data() const noexcept {
        return memory_.get();
    }

    /// @brief How many elements.
    /// @return as created
    std::size_t size() const noexcept {
        return size_;
    }

    /// @brief How many bytes.
    /// @return size of the elements together
    std::size_t size_bytes() const noexcept {
        return size_ * sizeof(T);
    }

    /// @brief Tells whether there are no elements.
    /// @return true if so
    bool empty() const noexcept {
        return size_ == 0;
    }

    /// @brief The first element.
    /// @return an iterator
    T *begin() noexcept {
        return data();
    }

    /// @brief The first element.
    /// @return an iterator
    const T *begin() const noexcept {
        return data();
    }

    /// @brief Behind the last element.
    /// @return an iterator
    T *end() noexcept {
        return data() + size_;
    }

    /// @brief Behind the last element.
    /// @return an iterator
    const T *end() const noexcept {
        return data() + size_;
    }

    /// @brief An element.
    /// @param index below size
    /// @return the element
    T &operator[](std::size_t index) noexcept {
        return data()[index];
    }

    /// @brief An element.
    /// @param index below size
    /// @return the element
    const T &operator[](std::size_t index) const noexcept {
        return data()[index];
    }

#if defined(__cpp_lib_span)
    /// @brief The array as a span, with C++20.
    /// @return valid as long as this
    std::span<T> span() noexcept {
        return {data(), size_};
    }

    /// @brief The array as a span, with C++20.
    /// @return valid as long as this
    std::span<const T> span() const noexcept {
        return {data(), size_};
    }
#endif

  private:
    static std::size_t bytes_of(std::size_t count) noexcept {
        // More than there is: the pool refuses it.
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
        return count > most / sizeof(T) ? most : count * sizeof(T);
    }

    [[nodiscard]] static void *allocate(pool_ref from, std::size_t count,
                                        const Deleter &how) noexcept {
        return count ? how.allocate(from, bytes_of(count), alignof(T)) : nullptr;
    }

    buffer(const Deleter &how, void *memory, std::size_t count) noexcept
        : memory_(static_cast<T *>(memory), how), size_(memory ? count : 0) {}

    std::unique_ptr<T[], Deleter> memory_;
    std::size_t size_ = 0;
};

namespace detail {

// Fails if the CPU cannot access the memory of the pool, or if that cannot be determined.
inline result<void> reached_by_cpu(pool_ref pool) {
    result<umf_place_t> place = pool.place();
    if (!place) {
        return place.error();
    }
    if (!place->is_reachable) {
        return error(UMF_RESULT_ERROR_NOT_SUPPORTED,
                     std::string("the CPU does not reach the memory of pool ") + pool.name() +
                         " over provider " + pool.provider().name() +
                         ": containers need memory of the host, pinned or shared memory");
    }
    return {};
}

} // namespace detail

/// @brief Allocates from a pool for `std::pmr`: containers, strings, other resources.
class memory_resource final : public std::pmr::memory_resource {
  public:
    /// @brief Makes the resource.
    /// @param from pool whose memory the CPU can access; it must outlive all allocations
    /// @throws umf::exception if the CPU cannot access it (::UMF_RESULT_ERROR_NOT_SUPPORTED), or if
    ///         the pool has no byte by which that can be seen
    explicit memory_resource(pool_ref from) : pool_(from) {
        detail::reached_by_cpu(from).value();
    }

    /// @brief Tells whether a pool can have a resource, without exceptions.
    /// @param from the pool
    /// @return success, or why not
    static result<void> check(pool_ref from) {
        return detail::reached_by_cpu(from);
    }

    /// @brief The pool.
    /// @return as given
    pool_ref pool() const noexcept {
        return pool_;
    }

  private:
    void *do_allocate(std::size_t size, std::size_t alignment) override {
        return pool_.allocate(size ? size : 1, alignment);
    }

    void do_deallocate(void *ptr, std::size_t, std::size_t) override {
        pool_.deallocate(ptr);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#if defined(__cpp_rtti)
        const auto *resource = dynamic_cast<const memory_resource *>(&other);
        return resource && resource->pool_ == pool_;
#else
        return this == &other;
#endif
    }

    pool_ref pool_;
};

/// @brief Allocates from a pool for containers: `std::vector<int, umf::allocator<int>>`.
///
/// A copy, and one for another type, allocates from the same pool.
///
/// @tparam T type of the elements
template <class T> class allocator {
  public:
    /// Type of the elements.
    using value_type = T;
    /// The pool comes along when a container is moved.
    using propagate_on_container_move_assignment = std::true_type;
    /// The pool comes along when containers are swapped.
    using propagate_on_container_swap = std::true_type;

    /// @brief Makes the allocator.
    /// @param from pool whose memory the CPU can access; it must outlive all allocations
    /// @throws umf::exception if the CPU cannot access it (::UMF_RESULT_ERROR_NOT_SUPPORTED), or if
    ///         the pool has no byte by which that can be seen
    explicit allocator(pool_ref from) : pool_(from) {
        detail::reached_by_cpu(from).value();
    }

    /// @brief Allocates from the same pool as another one.
    /// @param other the other one
    template <class U> allocator(const allocator<U> &other) noexcept : pool_(other.pool()) {}

    /// @brief Allocates memory for elements.
    /// @param count how many
    /// @return memory, to be freed by deallocate
    /// @throws umf::bad_alloc if there is none
    [[nodiscard]] T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            detail::raise(std::bad_array_new_length());
        }
        return static_cast<T *>(pool_.allocate(count ? count * sizeof(T) : 1, alignof(T)));
    }

    /// @brief Gives memory back.
    /// @param ptr result of allocate
    /// @param count as allocated
    void deallocate(T *ptr, [[maybe_unused]] std::size_t count) noexcept {
        pool_.deallocate(ptr);
    }

    /// @brief The pool.
    /// @return as given
    pool_ref pool() const noexcept {
        return pool_;
    }

  private:
    pool_ref pool_;
};

/// @brief Compares: true if each can free memory of the other, that is, if both are of one pool.
/// @param one the first
/// @param other the second
/// @return true if so
template <class T, class U>
bool operator==(const allocator<T> &one, const allocator<U> &other) noexcept {
    return one.pool() == other.pool();
}

/// @brief Tells whether they are of different pools.
/// @param one the first
/// @param other the second
/// @return true if so
template <class T, class U>
bool operator!=(const allocator<T> &one, const allocator<U> &other) noexcept {
    return !(one == other);
}

UMF_CPP_END

#endif /* UMF_CPP_MEMORY_HPP */
