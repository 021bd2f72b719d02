/** @file
 * Parameters of the kinds of providers and pools as C++ objects.
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * umf::pool make() {
 *     umf::os_params os;
 *     os.set(umfOsMemoryProviderParamsSetVisibility, UMF_MEM_MAP_SHARED);
 *     return umf::pool(umf::provider(os), umf::disjoint_params());
 * }
 * @endcode
 */
#ifndef UMF_CPP_PARAMETERS_HPP
#define UMF_CPP_PARAMETERS_HPP 1

#include <type_traits>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/providers/provider_os_memory.h>

UMF_CPP_BEGIN

namespace detail {
template <class Handle> Handle handle_of(umf_result_t (*destroy)(Handle));

template <class T> struct as_it_is { using type = T; };
} // namespace detail

/// @brief Owns the parameters of one kind. Used for any number of providers or pools.
///
/// Two threads must not use one object at once. The first call that fails decides the result of
/// creating a provider or pool from it, so setters need no check.
///
/// @tparam Create function of the kind that makes parameters
/// @tparam Destroy function of the kind that destroys them
/// @tparam Ops function of the kind that gives its table
template <auto Create, auto Destroy, auto Ops> class parameters {
  public:
    /// The handle of the C interface.
    using handle_type = decltype(detail::handle_of(Destroy));

    /// @brief Creates parameters.
    /// @param args arguments that the function of the kind takes before its output: a path, a
    ///        device, none
    template <class... Args, class = std::enable_if_t<
                                 std::is_invocable_v<decltype(Create), Args..., handle_type *>>>
    explicit parameters(Args... args) noexcept : status_(Create(args..., &handle_)) {}

    /// @brief Takes the parameters of another object, which has none afterwards.
    /// @param other the other object
    parameters(parameters &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), status_(other.status_) {}

    parameters(const parameters &) = delete;
    parameters &operator=(const parameters &) = delete;
    parameters &operator=(parameters &&) = delete;

    ~parameters() {
        if (handle_) {
            Destroy(handle_);
        }
    }

    /// @brief Sets a parameter.
    /// @param setter function of the kind: `umfDisjointPoolParamsSetCapacity`
    /// @param args its arguments after the handle
    /// @return this object
    template <class... Params>
    parameters &set(umf_result_t (*setter)(handle_type, Params...),
                    typename detail::as_it_is<Params>::type... args) noexcept {
        if (status_ == UMF_RESULT_SUCCESS) {
            status_ = setter(handle_, args...);
        }
        return *this;
    }

    /// @brief The handle of the C interface.
    /// @return still owned by this object
    handle_type get() const noexcept {
        return handle_;
    }

    /// @brief The result of the first call that failed.
    /// @return ::UMF_RESULT_SUCCESS if none did
    umf_result_t status() const noexcept {
        return status_;
    }

    /// @brief The table of the kind.
    /// @return NULL if the library was built without it
    static auto ops() noexcept {
        return Ops();
    }

  private:
    handle_type handle_ = nullptr;
    umf_result_t status_;
};

/// Parameters of the provider `os`.
using os_params = parameters<umfOsMemoryProviderParamsCreate, umfOsMemoryProviderParamsDestroy,
                             umfOsMemoryProviderOps>;
/// Parameters of the provider `file`, from a path.
using file_params = parameters<umfFileMemoryProviderParamsCreate,
                               umfFileMemoryProviderParamsDestroy, umfFileMemoryProviderOps>;
/// Parameters of the provider `devdax`, from a path and a size.
using devdax_params = parameters<umfDevDaxMemoryProviderParamsCreate,
                                 umfDevDaxMemoryProviderParamsDestroy, umfDevDaxMemoryProviderOps>;
/// Parameters of the provider `fixed`, from an address and a size.
using fixed_params = parameters<umfFixedMemoryProviderParamsCreate,
                                umfFixedMemoryProviderParamsDestroy, umfFixedMemoryProviderOps>;
/// Parameters of the provider `linux_vmm`.
using linux_vmm_params =
    parameters<umfLinuxVmmMemoryProviderParamsCreate, umfLinuxVmmMemoryProviderParamsDestroy,
               umfLinuxVmmMemoryProviderOps>;
/// Parameters of the provider `cuda`.
using cuda_params = parameters<umfCUDAMemoryProviderParamsCreate,
                               umfCUDAMemoryProviderParamsDestroy, umfCUDAMemoryProviderOps>;
/// Parameters of the provider `cuda_vmm`, from the number of a device.
using cuda_vmm_params =
    parameters<umfCUDAVmmMemoryProviderParamsCreate, umfCUDAVmmMemoryProviderParamsDestroy,
               umfCUDAVmmMemoryProviderOps>;
/// Parameters of the provider `level_zero`.
using level_zero_params =
    parameters<umfLevelZeroMemoryProviderParamsCreate, umfLevelZeroMemoryProviderParamsDestroy,
               umfLevelZeroMemoryProviderOps>;
/// Parameters of the provider `level_zero_vmm`.
using level_zero_vmm_params =
    parameters<umfLevelZeroVmmMemoryProviderParamsCreate,
               umfLevelZeroVmmMemoryProviderParamsDestroy, umfLevelZeroVmmMemoryProviderOps>;

/// Parameters of the pool `coalescing`.
using coalescing_params =
    parameters<umfCoalescingPoolParamsCreate, umfCoalescingPoolParamsDestroy, umfCoalescingPoolOps>;
/// Parameters of the pool `disjoint`.
using disjoint_params =
    parameters<umfDisjointPoolParamsCreate, umfDisjointPoolParamsDestroy, umfDisjointPoolOps>;
/// Parameters of the pool `jemalloc`.
using jemalloc_params =
    parameters<umfJemallocPoolParamsCreate, umfJemallocPoolParamsDestroy, umfJemallocPoolOps>;
/// Parameters of the pool `scalable`.
using scalable_params =
    parameters<umfScalablePoolParamsCreate, umfScalablePoolParamsDestroy, umfScalablePoolOps>;

/// @brief The pool `proxy`, which has no parameters.
struct proxy_params {
    /// @brief There is nothing to hand over.
    /// @return NULL
    static void *get() noexcept {
        return nullptr;
    }

    /// @brief Nothing can fail.
    /// @return ::UMF_RESULT_SUCCESS
    static umf_result_t status() noexcept {
        return UMF_RESULT_SUCCESS;
    }

    /// @brief The table of the kind.
    /// @return never NULL
    static const umf_memory_pool_ops_t *ops() noexcept {
        return umfProxyPoolOps();
    }
};

UMF_CPP_END

#endif /* UMF_CPP_PARAMETERS_HPP */
