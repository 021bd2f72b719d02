/** @file
 * Pools as memory resources of CUDA C++ (CCCL): for `cuda::mr::any_resource`, `cuda::buffer`,
 * Thrust, RMM and other code that takes a resource by its concept.
 *
 * @code{.cpp}
 * #if defined(__CUDACC__)
 * #include <umf/cuda_resource.hpp>
 *
 * void *scratch(umf::pool &pool, cudaStream_t stream) {
 *     umf::device_resource resource(pool); // refuses memory that is not of a device
 *     return resource.allocate(stream, 1 << 20); // in order with the stream
 * }
 * #endif
 * @endcode
 *
 * It needs the headers of CCCL, which CUDA brings (for a compiler of the host in
 * `<CUDA>/include/cccl`), and those of the runtime of CUDA. Not part of umf/umf.hpp, because these
 * are large. CCCL before 3.1 (CUDA 13.0) has resources on request only, which this header makes;
 * include it before other headers of CCCL there.
 *
 * The concepts changed their names in CCCL 3.1, and a resource here has both:
 *
 * | CCCL | of the host | of streams |
 * |---|---|---|
 * | 3.1 and newer | `synchronous_resource`: allocate_sync | `resource`: allocate |
 * | before | `resource`: allocate | `async_resource`: allocate_async |
 */
#ifndef UMF_CUDA_RESOURCE_HPP
#define UMF_CUDA_RESOURCE_HPP 1

/// @cond
#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE 1
#endif
/// @endcond
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>

#include <type_traits>

#include <umf/cpp/error.hpp>
#include <umf/cpp/pool.hpp>

UMF_CPP_BEGIN

namespace detail {

template <class Property, class... Properties>
inline constexpr bool is_one_of = (... || std::is_same_v<Property, Properties>);

} // namespace detail

/// @brief A pool as a memory resource. Copied freely; the pool must outlive it.
///
/// @tparam Properties where the memory is accessible: `cuda::mr::device_accessible`,
///         `cuda::mr::host_accessible`. The provider's kind of memory must fit.
template <class... Properties> class cuda_resource {
  public:
    /// Alignment where none is given, as that of cudaMalloc.
    static constexpr std::size_t default_alignment = 256;

#if CCCL_VERSION >= 3002000
    /// Queries of a `cuda::mr::any_resource` made of it.
    using default_queries = ::cuda::mr::properties_list<Properties...>;
#endif

    /// @brief Makes the resource.
    /// @param from the pool
    /// @throws umf::exception if its memory has not the properties
    ///         (::UMF_RESULT_ERROR_NOT_SUPPORTED), or if the pool has no byte by which that can be
    ///         seen
    explicit cuda_resource(pool_ref from) : pool_(from) {
        check(from).value();
    }

    /// @brief Tells whether the memory of a pool has the properties, without exceptions.
    ///
    /// Pinned and shared memory is accessible to host and devices, memory of a device by devices
    /// only, other memory of the host by the host only.
    ///
    /// @param from the pool
    /// @return success, or why not
    static result<void> check(pool_ref from) {
        result<umf_place_t> place = from.place();
        if (!place) {
            return place.error();
        }
        bool is_of_device = place->kind != UMF_PLACE_HOST;
        bool is_missing =
            (detail::is_one_of<::cuda::mr::device_accessible, Properties...> && !is_of_device) ||
            (detail::is_one_of<::cuda::mr::host_accessible, Properties...> && !place->is_reachable);
        if (is_missing) {
            return error(UMF_RESULT_ERROR_NOT_SUPPORTED,
                         std::string("the memory of pool ") + from.name() + " over provider " +
                             from.provider().name() + " is not reached by " +
                             (is_of_device ? "the CPU" : "a device") +
                             ", which the properties of the resource promise");
        }
        return {};
    }

    /// @brief Allocates memory for a stream, in order with it.
    /// @param stream on which it is used first
    /// @param size bytes
    /// @param alignment of the address
    /// @return memory, to be freed by deallocate
    /// @throws umf::bad_alloc if there is none, or the stream is refused
    void *allocate(::cuda::stream_ref stream, std::size_t size,
                   std::size_t alignment = default_alignment) const {
        return pool_.allocate_on(stream.get(), size ? size : 1, alignment);
    }

    /// @brief Frees memory when the work that is on a stream now has completed. Does not wait.
    /// @param stream that uses it last
    /// @param ptr the memory
    void deallocate(::cuda::stream_ref stream, void *ptr, std::size_t,
                    std::size_t = default_alignment) const noexcept {
        umfFreeOn(ptr, stream.get());
    }

    /// @brief Allocates memory that every stream may use.
    /// @param size bytes
    /// @param alignment of the address
    /// @return memory, to be freed by deallocate_sync
    /// @throws umf::bad_alloc if there is none
    void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment) const {
        return pool_.allocate(size ? size : 1, alignment);
    }

    /// @brief Frees memory that no work uses any more: the host has waited for it.
    /// @param ptr the memory
    void deallocate_sync(void *ptr, std::size_t, std::size_t = default_alignment) const noexcept {
        pool_.deallocate(ptr);
    }

    /// @brief As allocate_sync, by its name before CCCL 3.1.
    /// @param size bytes
    /// @param alignment of the address
    /// @return as allocate_sync
    void *allocate(std::size_t size, std::size_t alignment = default_alignment) const {
        return allocate_sync(size, alignment);
    }

    /// @brief As deallocate_sync, by its name before CCCL 3.1.
    /// @param ptr the memory
    /// @param size as allocated
    /// @param alignment as allocated
    void deallocate(void *ptr, std::size_t size,
                    std::size_t alignment = default_alignment) const noexcept {
        deallocate_sync(ptr, size, alignment);
    }

    /// @brief As allocate for a stream, by its name before CCCL 3.1.
    /// @param size bytes
    /// @param alignment of the address
    /// @param stream on which it is used first
    /// @return as allocate
    void *allocate_async(std::size_t size, std::size_t alignment, ::cuda::stream_ref stream) const {
        return allocate(stream, size, alignment);
    }

    /// @brief As allocate for a stream, by its name before CCCL 3.1.
    /// @param size bytes
    /// @param stream on which it is used first
    /// @return as allocate
    void *allocate_async(std::size_t size, ::cuda::stream_ref stream) const {
        return allocate(stream, size);
    }

    /// @brief As deallocate for a stream, by its name before CCCL 3.1.
    /// @param ptr the memory
    /// @param size as allocated
    /// @param alignment as allocated
    /// @param stream that uses it last
    void deallocate_async(void *ptr, std::size_t size, std::size_t alignment,
                          ::cuda::stream_ref stream) const noexcept {
        deallocate(stream, ptr, size, alignment);
    }

    /// @brief As deallocate for a stream, by its name before CCCL 3.1.
    /// @param ptr the memory
    /// @param size as allocated
    /// @param stream that uses it last
    void deallocate_async(void *ptr, std::size_t size, ::cuda::stream_ref stream) const noexcept {
        deallocate(stream, ptr, size);
    }

    /// @brief The pool.
    /// @return as given
    pool_ref pool() const noexcept {
        return pool_;
    }

    /// @brief Compares: true if each can free memory of the other, that is, if both are of one
    ///        pool.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator==(const cuda_resource &one, const cuda_resource &other) noexcept {
        return one.pool_ == other.pool_;
    }

    /// @brief Tells whether they are of different pools.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator!=(const cuda_resource &one, const cuda_resource &other) noexcept {
        return !(one == other);
    }

  private:
    pool_ref pool_;
};

/// @brief Tells at compile time that a resource has a property: there is such a function.
/// @param resource the resource
/// @param property the property
/// @return nothing
template <class Property, class... Properties>
constexpr std::enable_if_t<detail::is_one_of<Property, Properties...>>
get_property([[maybe_unused]] const cuda_resource<Properties...> &resource,
             [[maybe_unused]] Property property) noexcept {}

/// Memory that devices can access: over `cuda` (any type of memory) or `cuda_vmm`.
using device_resource = cuda_resource<::cuda::mr::device_accessible>;
/// Memory that devices and the host can access: over `cuda` with memory_type=host or shared.
using pinned_resource = cuda_resource<::cuda::mr::device_accessible, ::cuda::mr::host_accessible>;
/// Memory that the host can access: also over `os` and others, which have no streams.
using host_resource = cuda_resource<::cuda::mr::host_accessible>;

#if CCCL_VERSION >= 3001000
static_assert(
    ::cuda::mr::resource_with<device_resource, ::cuda::mr::device_accessible> &&
    ::cuda::mr::synchronous_resource_with<device_resource, ::cuda::mr::device_accessible> &&
    ::cuda::mr::resource_with<pinned_resource, ::cuda::mr::device_accessible,
                              ::cuda::mr::host_accessible> &&
    ::cuda::mr::resource_with<host_resource, ::cuda::mr::host_accessible> &&
    !::cuda::has_property<device_resource, ::cuda::mr::host_accessible> &&
    !::cuda::has_property<host_resource, ::cuda::mr::device_accessible>);
#else
static_assert(::cuda::mr::resource_with<device_resource, ::cuda::mr::device_accessible> &&
              ::cuda::mr::async_resource_with<device_resource, ::cuda::mr::device_accessible> &&
              ::cuda::mr::async_resource_with<pinned_resource, ::cuda::mr::device_accessible,
                                              ::cuda::mr::host_accessible> &&
              ::cuda::mr::async_resource_with<host_resource, ::cuda::mr::host_accessible> &&
              !::cuda::has_property<device_resource, ::cuda::mr::host_accessible> &&
              !::cuda::has_property<host_resource, ::cuda::mr::device_accessible>);
#endif

UMF_CPP_END

#endif /* UMF_CUDA_RESOURCE_HPP */
