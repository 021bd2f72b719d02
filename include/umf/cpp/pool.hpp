/** @file
 * Pools in C++: umf::pool owns one, umf::pool_ref names one.
 */
#ifndef UMF_CPP_POOL_HPP
#define UMF_CPP_POOL_HPP 1

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <umf/copy.h>
#include <umf/cpp/error.hpp>
#include <umf/cpp/parameters.hpp>
#include <umf/cpp/provider.hpp>
#include <umf/memory_pool.h>
#include <umf/queue.h>
#include <umf/text.h>

/// @cond
namespace umf {
namespace current {

// One of each device in the process, whatever each shared library hides; the host comes first.
constexpr int devices = 64;
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
inline std::atomic<umf_memory_pool_handle_t>
    pools[1 + devices] = {};

} // namespace current
} // namespace umf
/// @endcond

UMF_CPP_BEGIN

/// @brief Names a pool that another object owns, or none. Copied freely.
class pool_ref {
  public:
    /// For wait_pending: without a limit.
    static constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

    /// @brief Names a pool.
    /// @param handle the pool; NULL: none
    constexpr pool_ref(umf_memory_pool_handle_t handle = nullptr) noexcept : handle_(handle) {}

    /// Refused: the pool would be destroyed at the end of the expression. Give it a name first.
    pool_ref(pool &&) = delete;
    /// Refused likewise.
    pool_ref(const pool &&) = delete;

    /// @brief The pool that owns the memory at an address.
    /// @param ptr any address
    /// @return none if no pool owns it
    static pool_ref of(const void *ptr) noexcept {
        umf_memory_pool_handle_t handle = nullptr;
        return umfPoolByPtr(ptr, &handle) == UMF_RESULT_SUCCESS ? handle : nullptr;
    }

    /// @brief The handle of the C interface.
    /// @return NULL if there is none
    umf_memory_pool_handle_t get() const noexcept {
        return handle_;
    }

    /// @brief Tells whether there is a pool.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }

    /// @brief Allocates memory, without exceptions.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate or ::umfFree; NULL: allocation_error gives the
    ///        cause
    [[nodiscard]] void *try_allocate(std::size_t size, std::size_t alignment = 0) const noexcept {
        return alignment <= 8 ? umfPoolMalloc(handle_, size)
                              : umfPoolAlignedMalloc(handle_, size, alignment);
    }

    /// @brief Allocates memory.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by deallocate or ::umfFree
    /// @throws umf::bad_alloc if there is none
    [[nodiscard]] void *allocate(std::size_t size, std::size_t alignment = 0) const {
        return allocated(try_allocate(size, alignment), size);
    }

    /// @brief Allocates memory filled with zeros, where the pool offers that.
    /// @param size bytes
    /// @return as try_allocate
    [[nodiscard]] void *try_allocate_zeroed(std::size_t size) const noexcept {
        return umfPoolCalloc(handle_, 1, size);
    }

    /// @brief Allocates memory filled with zeros, where the pool offers that.
    /// @param size bytes
    /// @return memory, to be freed by deallocate or ::umfFree
    /// @throws umf::bad_alloc if there is none, or the pool does not write to its memory
    [[nodiscard]] void *allocate_zeroed(std::size_t size) const {
        return allocated(try_allocate_zeroed(size), size);
    }

    /// @brief Allocates memory for work on a queue (umf/queue.h), without exceptions.
    /// @param queue on which the memory is used first
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by ::umfFreeOn, or by ::umfFree when the host has waited; NULL:
    ///         there is none, or the queue is refused, as the log says
    [[nodiscard]] void *try_allocate_on(umf_queue_t queue, std::size_t size,
                                        std::size_t alignment = 0) const noexcept {
        return umfPoolMallocOn(handle_, size, alignment, queue);
    }

    /// @brief Allocates memory for work on a queue (umf/queue.h).
    /// @param queue on which the memory is used first
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the pool
    /// @return memory, to be freed by ::umfFreeOn, or by ::umfFree when the host has waited
    /// @throws umf::bad_alloc if there is none, or the queue is refused
    [[nodiscard]] void *allocate_on(umf_queue_t queue, std::size_t size,
                                    std::size_t alignment = 0) const {
        return allocated(try_allocate_on(queue, size, alignment), size);
    }

    /// @brief Gives memory back.
    /// @param ptr an allocation of this pool; NULL is allowed
    /// @return as ::umfPoolFree
    umf_result_t deallocate(void *ptr) const noexcept {
        return umfPoolFree(handle_, ptr);
    }

    /// @brief Why the last allocation of this thread failed.
    /// @return meaningful only after a failure
    error allocation_error() const {
        return detail::failure(last_code(), std::string("allocating from pool ") + name());
    }

    /// @brief Why the last allocation of this thread failed, as it is thrown.
    /// @param size bytes of the request
    /// @return meaningful only after a failure
    bad_alloc refused(std::size_t size) const noexcept {
        umf_result_t code = last_code();
        return bad_alloc(code, size, name(), umfLastErrorText());
    }

    /// @brief Bytes that may be used at a pointer.
    /// @param ptr an allocation of this pool
    /// @return at least the requested size; 0 if the pool does not report sizes
    std::size_t usable_size(const void *ptr) const noexcept {
        std::size_t size = 0;
        umfPoolMallocUsableSize(handle_, ptr, &size);
        return size;
    }

    /// @brief Gives unused memory back to the provider.
    /// @param keep unused bytes to keep
    /// @return success, or why not
    result<void> trim(std::size_t keep = 0) const {
        return detail::checked(umfPoolTrimMemory(handle_, keep), "trimming a pool");
    }

    /// @brief Returns unused memory to the provider, with blocks freed on a queue: now if its work
    ///        has completed, otherwise later.
    /// @param queue the queue
    /// @param keep unused bytes to keep
    /// @return success, or why not
    result<void> trim_on(umf_queue_t queue, std::size_t keep = 0) const {
        return detail::checked(umfPoolTrimOn(handle_, keep, queue), "trimming a pool on a queue");
    }

    /// @brief Waits until queued work that uses freed memory has completed.
    /// @param timeout how long at most; 0, or a time that is over: only check
    /// @return success, or why not: ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if some has not passed
    result<void> wait_pending(std::chrono::nanoseconds timeout = forever) const {
        auto left = static_cast<std::uint64_t>(timeout.count() > 0 ? timeout.count() : 0);
        auto limit = timeout == forever ? UINT64_MAX : left;
        std::size_t bytes = 0;
        umf_result_t code = umfPoolWaitPending(handle_, limit, &bytes);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(
                code, "waiting for work that uses " + std::to_string(bytes) + " freed bytes",
                code == UMF_RESULT_ERROR_OUT_OF_RESOURCES ? "" : umfLastErrorText());
        }
        return {};
    }

    /// @brief The provider of the pool.
    /// @return none if there is no pool
    provider_ref provider() const noexcept {
        umf_memory_provider_handle_t provider = nullptr;
        umfPoolGetMemoryProvider(handle_, &provider);
        return provider;
    }

    /// @brief The pool's name.
    /// @return valid as long as the pool; "" if there is none
    const char *name() const noexcept {
        const char *name = nullptr;
        umfPoolGetName(handle_, &name);
        return name ? name : "";
    }

    /// @brief Kind of the pool's memory, its device, and which devices can access it.
    ///
    /// It is seen at an allocation of one byte that is freed again, so it fails for a pool that is
    /// full or suspended.
    ///
    /// @return the place of that byte, or why there was none
    result<umf_place_t> place() const {
        void *probe = umfPoolMalloc(handle_, 1);
        if (!probe) {
            return allocation_error();
        }
        umf_place_t place = UMF_PLACE_INIT;
        umfPlaceOf(probe, &place);
        umfPoolFree(handle_, probe);
        return place;
    }

    /// @brief Tells whether two name the same pool.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator==(const pool_ref &one, const pool_ref &other) noexcept {
        return one.handle_ == other.handle_;
    }

    /// @brief Tells whether two name different pools.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator!=(const pool_ref &one, const pool_ref &other) noexcept {
        return !(one == other);
    }

  protected:
    /// The pool; NULL: none.
    umf_memory_pool_handle_t handle_;

  private:
    // A queue that is refused is no error of the pool, which may have had none.
    umf_result_t last_code() const noexcept {
        umf_result_t code = umfPoolGetLastAllocationError(handle_);
        return code == UMF_RESULT_SUCCESS ? UMF_RESULT_ERROR_INVALID_ARGUMENT : code;
    }

    [[nodiscard]] void *allocated(void *ptr, std::size_t size) const {
        if (!ptr) {
            detail::raise(refused(size));
        }
        return ptr;
    }
};

/// @brief Owns a pool, and perhaps the provider below it: destroys both at its end.
///
/// Allocations that were not freed are invalid then. Pools made here record their memory, so that a
/// pointer alone leads to its pool.
class pool : public pool_ref {
  public:
    /// @brief Owns none.
    pool() noexcept = default;

    /// @brief Takes a pool that the C interface made.
    /// @param handle destroyed by this object from now on. It must record its memory.
    explicit pool(umf_memory_pool_handle_t handle) noexcept : pool_ref(handle) {}

    /// @brief Creates a pool and its provider from text (umf/text.h).
    /// @param text such as "disjoint:capacity=8 over os"
    /// @throws umf::exception with the position of the mistake, or why it could not be created
    explicit pool(const std::string &text) : pool(create(text).value()) {}

    /// @brief Creates a pool from parameters.
    /// @param below its provider: an umf::provider that is moved belongs to the pool; any other
    ///        must outlive it
    /// @param params of the kind; not needed after the call
    /// @throws umf::exception if that fails; `below` stays as it was then
    template <class Provider, class Params>
    pool(Provider &&below, const Params &params)
        : pool(create(std::forward<Provider>(below), params).value()) {}

    /// @brief Creates a pool from a table of operations.
    /// @param below its provider: an umf::provider that is moved belongs to the pool; any other
    ///        must outlive it
    /// @param ops the table
    /// @param params passed to its `initialize`
    /// @throws umf::exception if that fails; `below` stays as it was then
    template <class Provider>
    pool(Provider &&below, const umf_memory_pool_ops_t *ops, const void *params = nullptr)
        : pool(create(std::forward<Provider>(below), ops, params).value()) {}

    /// @brief Creates a pool and its provider from text, without exceptions.
    /// @param text such as "disjoint:capacity=8 over os"
    /// @return the pool, or why there is none
    static result<pool> create(const std::string &text) {
        umf_memory_pool_handle_t handle = nullptr;
        umf_result_t code = umfPoolCreateFromText(text.c_str(), &handle);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "creating the pool \"" + text + '"', umfTextError());
        }
        return pool(handle);
    }

    /// @brief Creates a pool from parameters, without exceptions.
    /// @param below its provider: an umf::provider that is moved belongs to the pool; any other
    ///        must outlive it
    /// @param params of the kind; not needed after the call
    /// @return the pool, or why there is none; `below` stays as it was then
    template <class Provider, class Params, class = decltype(std::declval<Params>().status())>
    static result<pool> create(Provider &&below, const Params &params) {
        if (params.status() != UMF_RESULT_SUCCESS) {
            return detail::failure(params.status(), "parameters of a pool", "");
        }
        return create(std::forward<Provider>(below), params.ops(), params.get());
    }

    /// @brief Creates a pool over a provider that it owns from then on, without exceptions.
    /// @param below the provider
    /// @param ops table of the pool
    /// @param params passed to its `initialize`
    /// @return the pool, or why there is none; `below` stays as it was then
    static result<pool> create(umf::provider &&below, const umf_memory_pool_ops_t *ops,
                               const void *params = nullptr) {
        auto made = create_with(below, ops, params, UMF_POOL_CREATE_FLAG_OWN_PROVIDER);
        if (made) {
            static_cast<void>(below.release());
        }
        return made;
    }

    /// @brief Creates a pool over a provider that outlives it, without exceptions.
    /// @param below the provider
    /// @param ops table of the pool
    /// @param params passed to its `initialize`
    /// @return the pool, or why there is none
    static result<pool> create(provider_ref below, const umf_memory_pool_ops_t *ops,
                               const void *params = nullptr) {
        return create_with(below, ops, params, UMF_POOL_CREATE_FLAG_NONE);
    }

    /// @brief Takes the pool of another object, which has none afterwards.
    /// @param other the other object
    pool(pool &&other) noexcept : pool_ref(other.release()) {}

    /// @brief Destroys its pool, and takes the pool of another object.
    /// @param other the other object
    /// @return this object
    pool &operator=(pool &&other) noexcept {
        reset(other.release());
        return *this;
    }

    ~pool() {
        reset();
    }

    /// @brief Gives the ownership away.
    /// @return the pool, to be destroyed by ::umfPoolDestroy
    umf_memory_pool_handle_t release() noexcept {
        return std::exchange(handle_, nullptr);
    }

    /// @brief Destroys its pool, and takes another pool.
    /// @param handle destroyed by this object from now on; NULL: none
    void reset(umf_memory_pool_handle_t handle = nullptr) noexcept {
        umf_memory_pool_handle_t old = std::exchange(handle_, handle);
        if (old) {
            for (auto &current : umf::current::pools) {
                umf_memory_pool_handle_t ended = old;
                current.compare_exchange_strong(ended, nullptr);
            }
            umfPoolDestroy(old);
        }
    }

  private:
    static result<pool> create_with(provider_ref below, const umf_memory_pool_ops_t *ops,
                                    const void *params, umf_pool_create_flags_t flags) {
        umf_memory_pool_handle_t handle = nullptr;
        umf_result_t code = umfPoolCreate(ops, below.get(), params, flags, &handle);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, std::string("creating a pool over ") + below.name());
        }
        return pool(handle);
    }
};

/// The number of the host for current_pool; devices are 0 to 63, as their drivers number them.
inline constexpr int host = -1;

/// @brief The current pool of a device: the one that code uses which was given none.
///
/// It is the same in all parts of a process. The library itself does not use it.
///
/// @param device its number, or umf::host
/// @return none if none was set, the umf::pool that was has ended, or there is no such device
inline pool_ref current_pool(int device = host) noexcept {
    return device >= host && device < current::devices ? current::pools[1 + device].load()
                                                       : nullptr;
}

/// @brief Sets the current pool of a device.
/// @param pool it must outlive its time as the current one, of which its destructor is the end; a
///        pool that umfPoolDestroy ends is set to none before. None is allowed
/// @param device its number, or umf::host
/// @return the pool before; or an error, if there is no such device
inline result<pool_ref> set_current_pool(pool_ref pool, int device = host) {
    if (device < host || device >= current::devices) {
        return error(UMF_RESULT_ERROR_INVALID_ARGUMENT, "setting the current pool of device " +
                                                            std::to_string(device) +
                                                            ": devices are 0 to 63, and umf::host");
    }
    return pool_ref(current::pools[1 + device].exchange(pool.get()));
}

/// @brief Makes a pool the current one as long as it lives, in all threads.
class [[nodiscard]] current_pool_scope {
  public:
    /// @brief Sets the current pool.
    /// @param pool outlives this object
    /// @param device its number, or umf::host
    /// @throws umf::exception if there is no such device
    [[nodiscard]] explicit current_pool_scope(pool_ref pool, int device = host)
        : before_(set_current_pool(pool, device).value()), device_(device) {}

    current_pool_scope(const current_pool_scope &) = delete;
    current_pool_scope &operator=(const current_pool_scope &) = delete;

    /// Sets the pool before, which must not have ended meanwhile.
    ~current_pool_scope() {
        static_cast<void>(set_current_pool(before_, device_));
    }

  private:
    pool_ref before_;
    int device_;
};

UMF_CPP_END

#endif /* UMF_CPP_POOL_HPP */
