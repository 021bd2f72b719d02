/** @file
 * Providers in C++: umf::provider owns one, umf::provider_ref names one.
 */
#ifndef UMF_CPP_PROVIDER_HPP
#define UMF_CPP_PROVIDER_HPP 1

#include <string>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/cpp/parameters.hpp>
#include <umf/memory_provider.h>
#include <umf/text.h>

UMF_CPP_BEGIN

class provider;

/// @brief Names a provider that another object owns, or none. Copied freely.
class provider_ref {
  public:
    /// @brief Names a provider.
    /// @param handle the provider; NULL: none
    constexpr provider_ref(umf_memory_provider_handle_t handle = nullptr) noexcept
        : handle_(handle) {}

    /// Refused: the provider would be destroyed at the end of the expression. Give it a name first,
    /// or move it into a pool.
    provider_ref(provider &&) = delete;
    /// Refused likewise.
    provider_ref(const provider &&) = delete;

    /// @brief The handle of the C interface.
    /// @return NULL if there is none
    umf_memory_provider_handle_t get() const noexcept {
        return handle_;
    }

    /// @brief Tells whether there is a provider.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }

    /// @brief Allocates memory.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the provider
    /// @return memory, to be freed by deallocate
    /// @throws umf::bad_alloc if there is none
    [[nodiscard]] void *allocate(std::size_t size, std::size_t alignment = 0) const {
        void *ptr = nullptr;
        umf_result_t code = umfMemoryProviderAlloc(handle_, size, alignment, &ptr);
        if (code != UMF_RESULT_SUCCESS) {
            detail::raise(bad_alloc(code, size, name(), umfLastErrorText()));
        }
        return ptr;
    }

    /// @brief As allocate, without exceptions.
    /// @param size bytes
    /// @param alignment of the address; 0 leaves the choice to the provider
    /// @return memory, or why there is none
    result<void *> try_allocate(std::size_t size, std::size_t alignment = 0) const {
        void *ptr = nullptr;
        umf_result_t code = umfMemoryProviderAlloc(handle_, size, alignment, &ptr);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, std::string("allocating from ") + name());
        }
        return ptr;
    }

    /// @brief Gives memory back.
    /// @param ptr result of allocate
    /// @param size as allocated
    /// @return as ::umfMemoryProviderFree; on failure the memory stays allocated
    umf_result_t deallocate(void *ptr, std::size_t size) const noexcept {
        return umfMemoryProviderFree(handle_, ptr, size);
    }

    /// @brief The smallest page size.
    /// @param ptr an allocation, or NULL for the smallest of all
    /// @return bytes; 0 if the provider does not report it
    std::size_t min_page_size(const void *ptr = nullptr) const noexcept {
        std::size_t size = 0;
        umfMemoryProviderGetMinPageSize(handle_, ptr, &size);
        return size;
    }

    /// @brief The page size best suited for allocations of a given size.
    /// @param size of the allocations
    /// @return bytes; 0 if the provider has no advice
    std::size_t recommended_page_size(std::size_t size) const noexcept {
        std::size_t page = 0;
        umfMemoryProviderGetRecommendedPageSize(handle_, size, &page);
        return page;
    }

    /// @brief Allows the system to drop the content of a range at some later time.
    /// @param ptr start of the range
    /// @param size of the range
    /// @return success, or why not
    result<void> purge_lazy(void *ptr, std::size_t size) const {
        return detail::checked(umfMemoryProviderPurgeLazy(handle_, ptr, size), "purging lazily");
    }

    /// @brief Drops the content of a range now.
    /// @param ptr start of the range
    /// @param size of the range
    /// @return success, or why not
    result<void> purge_force(void *ptr, std::size_t size) const {
        return detail::checked(umfMemoryProviderPurgeForce(handle_, ptr, size), "purging");
    }

    /// @brief The provider's name.
    /// @return valid as long as the provider; "" if there is none
    const char *name() const noexcept {
        const char *name = nullptr;
        umfMemoryProviderGetName(handle_, &name);
        return name ? name : "";
    }

    /// @brief Tells whether two name the same provider.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator==(const provider_ref &one, const provider_ref &other) noexcept {
        return one.handle_ == other.handle_;
    }

    /// @brief Tells whether two name different providers.
    /// @param one the first
    /// @param other the second
    /// @return true if so
    friend bool operator!=(const provider_ref &one, const provider_ref &other) noexcept {
        return !(one == other);
    }

  protected:
    /// The provider; NULL: none.
    umf_memory_provider_handle_t handle_;
};

/// @brief Owns a provider: destroys it at its end. Pools that use it must end before.
class provider : public provider_ref {
  public:
    /// @brief Owns none.
    provider() noexcept = default;

    /// @brief Takes a provider that the C interface made.
    /// @param handle destroyed by this object from now on
    explicit provider(umf_memory_provider_handle_t handle) noexcept : provider_ref(handle) {}

    /// @brief Creates a provider from text (umf/text.h).
    /// @param text such as "os:visibility=shared"
    /// @throws umf::exception with the position of the mistake, or why it could not be created
    explicit provider(const std::string &text) : provider(create(text).value()) {}

    /// @brief Creates a provider from parameters.
    /// @param params of the kind; not needed after the call
    /// @throws umf::exception if that fails
    template <auto Create, auto Destroy, auto Ops>
    explicit provider(const parameters<Create, Destroy, Ops> &params)
        : provider(create(params).value()) {}

    /// @brief Creates a provider from a table of operations.
    /// @param ops the table
    /// @param params passed to its `initialize`
    /// @throws umf::exception if that fails
    explicit provider(const umf_memory_provider_ops_t *ops, const void *params = nullptr)
        : provider(create(ops, params).value()) {}

    /// @brief Creates a provider from text, without exceptions.
    /// @param text such as "os:visibility=shared"
    /// @return the provider, or why there is none
    static result<provider> create(const std::string &text) {
        umf_memory_provider_handle_t handle = nullptr;
        umf_result_t code = umfMemoryProviderCreateFromText(text.c_str(), &handle);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "creating the provider \"" + text + '"', umfTextError());
        }
        return provider(handle);
    }

    /// @brief Creates a provider from parameters, without exceptions.
    /// @param params of the kind; not needed after the call
    /// @return the provider, or why there is none
    template <auto Create, auto Destroy, auto Ops>
    static result<provider> create(const parameters<Create, Destroy, Ops> &params) {
        if (params.status() != UMF_RESULT_SUCCESS) {
            return detail::failure(params.status(), "parameters of a provider", "");
        }
        return create(params.ops(), params.get());
    }

    /// @brief Creates a provider from a table of operations, without exceptions.
    /// @param ops the table
    /// @param params passed to its `initialize`
    /// @return the provider, or why there is none
    static result<provider> create(const umf_memory_provider_ops_t *ops,
                                   const void *params = nullptr) {
        umf_memory_provider_handle_t handle = nullptr;
        umf_result_t code = umfMemoryProviderCreate(ops, params, &handle);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "creating a provider");
        }
        return provider(handle);
    }

    /// @brief Takes the provider of another object, which has none afterwards.
    /// @param other the other object
    provider(provider &&other) noexcept : provider_ref(other.release()) {}

    /// @brief Destroys its provider, and takes the provider of another object.
    /// @param other the other object
    /// @return this object
    provider &operator=(provider &&other) noexcept {
        reset(other.release());
        return *this;
    }

    ~provider() {
        reset();
    }

    /// @brief Gives the ownership away.
    /// @return the provider, to be destroyed by ::umfMemoryProviderDestroy
    umf_memory_provider_handle_t release() noexcept {
        return std::exchange(handle_, nullptr);
    }

    /// @brief Destroys its provider, and takes another provider.
    /// @param handle destroyed by this object from now on; NULL: none
    void reset(umf_memory_provider_handle_t handle = nullptr) noexcept {
        umf_memory_provider_handle_t old = std::exchange(handle_, handle);
        if (old) {
            umfMemoryProviderDestroy(old);
        }
    }
};

UMF_CPP_END

#endif /* UMF_CPP_PROVIDER_HPP */
