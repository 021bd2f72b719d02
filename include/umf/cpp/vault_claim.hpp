/** @file
 * Claims of vaults in C++: writable memory with a key that outlives its holder (umf/vault.h).
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * void go_on(umf::vault &vault) {
 *     umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
 *     params.size = 1 << 20;
 *     params.timeout_ms = 10000; // for a former holder that ends
 *     umf::vault_claim claim = vault.claim("cache", params).value();
 *     char *memory = static_cast<char *>(claim.data());
 *     std::size_t valid = claim.note().size(); // what the former holder said
 *     memory[valid] = 'x';
 *     claim.commit("x").value();
 * } // given back: the memory stays in the vault
 * @endcode
 */
#ifndef UMF_CPP_VAULT_CLAIM_HPP
#define UMF_CPP_VAULT_CLAIM_HPP 1

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/vault.h>

UMF_CPP_BEGIN

class vault;

/// @brief Writable memory that is held. Given back at its end; it stays in the vault.
///
/// A vault holds a key once, so claim a key once with an object of umf::vault: the end of one of
/// two claims would take the memory of the other. A claim ends before its vault.
class [[nodiscard]] vault_claim {
  public:
    /// @brief Takes the memory of another claim, which has none afterwards.
    /// @param other the other claim
    vault_claim(vault_claim &&other) noexcept
        : vault_(std::exchange(other.vault_, nullptr)), key_(std::move(other.key_)),
          note_(std::move(other.note_)), claim_(other.claim_), is_shared_(other.is_shared_) {}

    /// @brief Gives back, and takes the memory of another claim.
    /// @param other the other claim
    /// @return this
    vault_claim &operator=(vault_claim &&other) noexcept {
        vault_claim taken(std::move(other));
        std::swap(vault_, taken.vault_);
        key_.swap(taken.key_);
        note_.swap(taken.note_);
        std::swap(claim_, taken.claim_);
        std::swap(is_shared_, taken.is_shared_);
        return *this;
    }

    /// Gives back. Call unclaim to get the result of that.
    ~vault_claim() {
        static_cast<void>(unclaim());
    }

    /// @brief Tells whether there is memory.
    explicit operator bool() const noexcept {
        return vault_ != nullptr;
    }

    /// @brief The memory, for reading and writing. A child of fork does not have it.
    /// @return NULL if there is none
    void *data() const noexcept {
        return vault_ ? claim_.ptr : nullptr;
    }

    /// @brief The GPU that the memory is of.
    /// @return its number in this process; -1: memory of the host
    int device() const noexcept {
        return vault_ ? claim_.device : -1;
    }

    /// @brief Bytes of the memory: whole pages.
    /// @return 0 if there is none
    std::size_t size() const noexcept {
        return vault_ ? claim_.size : 0;
    }

    /// @brief Number of this claim of the key: higher each time that another client gets it.
    /// @return as umf_vault_claim_t::epoch
    std::uint64_t epoch() const noexcept {
        return claim_.epoch;
    }

    /// @brief Tells whether this claim has made the memory.
    /// @return true: it is zero
    bool is_new() const noexcept {
        return vault_ && claim_.is_new;
    }

    /// @brief The last note when it was claimed.
    /// @return valid until renew, and until this ends; empty: none
    std::string_view note() const noexcept {
        return note_;
    }

    /// @brief Tells whether another client has the memory now.
    /// @return true: it has, or there is none, as in a child of fork, so write no more
    bool is_fenced() const noexcept {
        return !vault_ || *claim_.now != claim_.epoch;
    }

    /// @brief Stores a note, such as how much of the memory is valid.
    /// @param note at most 256 bytes; copied
    /// @return success, or why not: see ::umfVaultClaimNote
    result<void> commit(std::string_view note) {
        return detail::checked(umfVaultClaimNote(vault_, key_.c_str(), claim_.epoch,
                                                 note.empty() ? nullptr : note.data(), note.size()),
                               "the note of a claim");
    }

    /// @brief Claims it again after another client has had it, at the same addresses. Without
    ///        effect while this holds it.
    /// @param params `fence` and `timeout_ms`; see ::umf_vault_claim_params_t
    /// @return success, or why not: see ::umfVaultClaim
    result<void> renew(const umf_vault_claim_params_t &params = UMF_VAULT_CLAIM_PARAMS_INIT) {
        umf_vault_claim_params_t again = params;
        again.size = 0;
        again.shared = is_shared_;
        return detail::checked(vault_ ? take(vault_, again) : UMF_RESULT_ERROR_INVALID_ARGUMENT,
                               "claiming memory again");
    }

    /// @brief Gives it back now. Does nothing if that was done.
    /// @return success; or why not: the memory has left this process all the same, or, of a GPU
    ///         whose work cannot be waited for, leaves it when the vault ends: see
    ///         ::umfVaultUnclaim
    result<void> unclaim() {
        umf_vault_handle_t ended = std::exchange(vault_, nullptr);
        return detail::checked(ended ? umfVaultUnclaim(ended, key_.c_str()) : UMF_RESULT_SUCCESS,
                               "giving a claim back");
    }

  private:
    friend class vault;

    // Has room for any note, so that nothing can fail once the memory is held.
    vault_claim(const char *key, int is_shared) : key_(key), is_shared_(is_shared) {
        note_.reserve(256);
    }

    umf_result_t take(umf_vault_handle_t vault, const umf_vault_claim_params_t &params) {
        umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
        umf_result_t code = umfVaultClaim(vault, key_.c_str(), &params, &claim);
        if (code == UMF_RESULT_SUCCESS) {
            vault_ = vault;
            note_.assign(claim.note ? static_cast<const char *>(claim.note) : "", claim.note_size);
            claim_ = claim;
        }
        return code;
    }

    umf_vault_handle_t vault_ = nullptr; // NULL: there is no memory
    std::string key_, note_;
    umf_vault_claim_t claim_ = UMF_VAULT_CLAIM_INIT;
    int is_shared_;
};

UMF_CPP_END

#endif /* UMF_CPP_VAULT_CLAIM_HPP */
