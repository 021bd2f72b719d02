/** @file
 * Vaults in C++: named memory that outlives the processes that use it (umf/vault.h).
 *
 * @code{.cpp}
 * #include <cstring>
 * #include <umf/umf.hpp>
 *
 * void write(const float *weights, std::size_t size) {
 *     umf::vault model("model");
 *     umf::vault_draft draft = model.begin().value();
 *     umf::pool_ref pool = draft.pool("coalescing over linux_vmm").value(); // or over cuda_vmm
 *     void *memory = pool.allocate(size);
 *     std::memcpy(memory, weights, size);
 *     draft.put("layers.0.weight", memory, size).value();
 *     draft.commit().value();
 * }
 *
 * void serve() { // any other process of the user
 *     umf::vault model("model");
 *     umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
 *     params.devices = "cuda_vmm"; // for memory of GPUs
 *     umf::vault_view view = model.attach(params).value();
 *     umf_vault_entry_t entry = view.find("layers.0.weight").value();
 *     view.move().value(); // the next generation, at the same addresses
 *     static_cast<void>(entry);
 * }
 * @endcode
 *
 * A vault ends after its drafts, views and claims (umf/cpp/vault_claim.hpp). The objects are used
 * by threads as their handles are.
 */
#ifndef UMF_CPP_VAULT_HPP
#define UMF_CPP_VAULT_HPP 1

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/cpp/queue.hpp>
#include <umf/cpp/vault_claim.hpp>
#include <umf/vault.h>

UMF_CPP_BEGIN

class vault;

/// @brief A generation that is attached. Detached at its end.
class [[nodiscard]] vault_view {
  public:
    /// @brief Takes the generation of another view, which has none afterwards.
    /// @param other the other view
    vault_view(vault_view &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

    /// @brief Detaches, and takes the generation of another view.
    /// @param other the other view
    /// @return this
    vault_view &operator=(vault_view &&other) noexcept {
        vault_view before(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
        return *this;
    }

    /// Detaches. Call detach to get the result of that: while a stream is captured memory of its
    /// device stays, until the vault is closed.
    ~vault_view() {
        static_cast<void>(detach());
    }

    /// @brief The handle of the C interface.
    /// @return NULL if there is none
    umf_vault_view_handle_t get() const noexcept {
        return handle_;
    }

    /// @brief Tells whether there is a generation.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }

    /// @brief Finds an entry: see ::umfVaultFind.
    /// @param key its name
    /// @return the entry, or why there is none
    result<umf_vault_entry_t> find(const char *key) const {
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        umf_result_t code = umfVaultFind(handle_, key, &entry);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, std::string("finding the entry ") + (key ? key : "NULL"));
        }
        return entry;
    }

    /// @brief Calls a function with each entry, sorted by name. An exception must not leave it.
    /// @param prefix of the names; "": all
    /// @param function gets a const umf_vault_entry_t &
    /// @return success, or why not: see ::umfVaultEach
    template <class Function> result<void> for_each(const char *prefix, Function function) const {
        auto visit = [](const umf_vault_entry_t *entry, void *arg) {
            (*static_cast<Function *>(arg))(*entry);
            return 0;
        };
        return detail::checked(umfVaultEach(handle_, prefix, visit, &function),
                               "visiting entries of a view");
    }

    /// @brief Number of the generation.
    /// @return 0 if there is none
    std::uint64_t generation() const noexcept {
        std::uint64_t number = 0;
        umfVaultViewGeneration(handle_, &number);
        return number;
    }

    /// @brief Compares content with the sums of the commit.
    /// @param key name of an entry; NULL: all that have a sum
    /// @return success, or why not: see ::umfVaultVerify
    result<void> verify(const char *key = nullptr) const {
        return detail::checked(umfVaultVerify(handle_, key), "verifying a view");
    }

    /// @brief Takes the shared memory out of this process; addresses and content stay.
    /// @param wait_for queues whose work so far is waited for; none: all work of the devices is
    /// @return success, or why not: see ::umfVaultSuspend
    result<void> suspend(const queues &wait_for = {}) {
        umf_suspend_params_t params = waits(wait_for);
        return detail::checked(umfVaultSuspend(handle_, &params), "suspending a view");
    }

    /// @brief Brings the memory of a suspended view back.
    /// @return success, or why not: see ::umfVaultResume
    result<void> resume() {
        return detail::checked(umfVaultResume(handle_), "resuming a view");
    }

    /// @brief Makes it a view of another generation of the same layout, at the same addresses.
    /// @param generation number of the other generation; 0: the current one
    /// @param wait_for as of suspend
    /// @return success, or why not: see ::umfVaultMove
    result<void> move(std::uint64_t generation = 0, const queues &wait_for = {}) {
        umf_suspend_params_t params = waits(wait_for);
        return detail::checked(umfVaultMove(handle_, generation, &params), "moving a view");
    }

    /// @brief Detaches now. Does nothing if that was done.
    /// @return success; or why not, then the view stays: see ::umfVaultDetach
    result<void> detach() {
        umf_result_t code = handle_ ? umfVaultDetach(handle_) : UMF_RESULT_SUCCESS;
        if (code == UMF_RESULT_SUCCESS) {
            handle_ = nullptr;
        }
        return detail::checked(code, "detaching a view");
    }

  private:
    friend class vault;

    explicit vault_view(umf_vault_view_handle_t handle) noexcept : handle_(handle) {}

    static umf_suspend_params_t waits(const queues &wait_for) {
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        params.queues = wait_for.data();
        params.num_queues = wait_for.size();
        return params;
    }

    umf_vault_view_handle_t handle_;
};

/// @brief A generation that is being written. Aborted at its end, unless it was committed.
class [[nodiscard]] vault_draft {
  public:
    /// @brief Takes the generation of another draft, which has none afterwards.
    /// @param other the other draft
    vault_draft(vault_draft &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

    /// @brief Aborts, and takes the generation of another draft.
    /// @param other the other draft
    /// @return this
    vault_draft &operator=(vault_draft &&other) noexcept {
        vault_draft before(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
        return *this;
    }

    ~vault_draft() {
        static_cast<void>(abort());
    }

    /// @brief The handle of the C interface.
    /// @return NULL if there is none
    umf_vault_draft_handle_t get() const noexcept {
        return handle_;
    }

    /// @brief Tells whether there is a draft.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }

    /// @brief Creates a pool for memory of the draft, which owns it.
    /// @param text such as "coalescing over cuda_vmm:device=0"
    /// @return the pool, valid until the draft ends; or why there is none: see ::umfVaultDraftPool
    result<pool_ref> pool(const char *text) {
        umf_memory_pool_handle_t made = nullptr;
        umf_result_t code = umfVaultDraftPool(handle_, text, &made);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, std::string("a pool of a draft, ") + (text ? text : ""));
        }
        return pool_ref(made);
    }

    /// @brief Gives memory of the draft a name.
    /// @param key its name
    /// @param ptr memory of a pool of the draft
    /// @param size bytes
    /// @param note bytes for readers; copied
    /// @param flags values of ::umf_vault_flag_t
    /// @return success, or why not: see ::umfVaultPut
    result<void> put(const char *key, const void *ptr, std::size_t size, std::string_view note = {},
                     unsigned flags = 0) {
        return detail::checked(umfVaultPut(handle_, key, ptr, size,
                                           note.empty() ? nullptr : note.data(), note.size(),
                                           flags),
                               "an entry of a draft");
    }

    /// @brief Takes over entries of the generation `from`.
    /// @param prefix of their names; "": all
    /// @return success, or why not: see ::umfVaultKeep
    result<void> keep(const char *prefix = "") {
        return detail::checked(umfVaultKeep(handle_, prefix), "keeping entries");
    }

    /// @brief Copies entries of a view, of any vault: from a GPU to the host or a folder, and back.
    /// @param from the view
    /// @param prefix of their names; "": all
    /// @return success, or why not: see ::umfVaultCopy
    result<void> copy(const vault_view &from, const char *prefix = "") {
        return detail::checked(umfVaultCopy(handle_, from.get(), prefix), "copying entries");
    }

    /// @brief Makes it the current generation.
    /// @param params see ::umf_vault_commit_params_t
    /// @return number of the generation; or why there is none, then the draft stays: see
    ///         ::umfVaultCommit
    result<std::uint64_t>
    commit(const umf_vault_commit_params_t &params = UMF_VAULT_COMMIT_PARAMS_INIT) {
        std::uint64_t generation = 0;
        umf_result_t code = umfVaultCommit(handle_, &params, &generation);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "committing a draft");
        }
        handle_ = nullptr;
        return generation;
    }

    /// @brief Ends it now, without a commit. Does nothing if it has ended.
    /// @return success, or why not: see ::umfVaultAbort
    result<void> abort() {
        umf_vault_draft_handle_t ended = std::exchange(handle_, nullptr);
        return detail::checked(ended ? umfVaultAbort(ended) : UMF_RESULT_SUCCESS,
                               "aborting a draft");
    }

  private:
    friend class vault;

    explicit vault_draft(umf_vault_draft_handle_t handle) noexcept : handle_(handle) {}

    umf_vault_draft_handle_t handle_;
};

/// @brief A name, open in this process. Closed at its end.
class [[nodiscard]] vault {
  public:
    /// @brief Opens a vault.
    /// @param name 1 to 255 bytes; `file:<folder>`: a vault in files of a folder
    /// @param params see ::umf_vault_params_t
    /// @throws umf::exception if that fails
    [[nodiscard]] explicit vault(const char *name,
                                 const umf_vault_params_t &params = UMF_VAULT_PARAMS_INIT)
        : vault(create(name, params).value()) {}

    /// @brief Opens a vault, without exceptions.
    /// @param name as of the constructor
    /// @param params see ::umf_vault_params_t
    /// @return the vault, or why there is none: see ::umfVaultOpen
    static result<vault> create(const char *name,
                                const umf_vault_params_t &params = UMF_VAULT_PARAMS_INIT) {
        umf_vault_handle_t made = nullptr;
        umf_result_t code = umfVaultOpen(name, &params, &made);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, std::string("opening the vault ") + (name ? name : ""));
        }
        return result<vault>(vault(made));
    }

    /// @brief Takes the handle of another vault, which has none afterwards.
    /// @param other the other vault
    vault(vault &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

    /// @brief Closes, and takes the handle of another vault.
    /// @param other the other vault
    /// @return this
    vault &operator=(vault &&other) noexcept {
        vault before(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
        return *this;
    }

    /// Closes. Call close to get the result of that.
    ~vault() {
        static_cast<void>(close());
    }

    /// @brief The handle of the C interface.
    /// @return NULL if there is none
    umf_vault_handle_t get() const noexcept {
        return handle_;
    }

    /// @brief Tells whether it is open.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }

    /// @brief Begins to write a generation.
    /// @param params see ::umf_vault_draft_params_t
    /// @return the draft, or why there is none: see ::umfVaultBegin
    result<vault_draft>
    begin(const umf_vault_draft_params_t &params = UMF_VAULT_DRAFT_PARAMS_INIT) const {
        umf_vault_draft_handle_t made = nullptr;
        umf_result_t code = umfVaultBegin(handle_, &params, &made);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "beginning a draft");
        }
        return result<vault_draft>(vault_draft(made));
    }

    /// @brief Maps a generation, read-only.
    /// @param params see ::umf_vault_attach_params_t; its `devices` map memory of devices
    /// @return the view, or why there is none: see ::umfVaultAttach
    result<vault_view>
    attach(const umf_vault_attach_params_t &params = UMF_VAULT_ATTACH_PARAMS_INIT) const {
        umf_vault_view_handle_t made = nullptr;
        umf_result_t code = umfVaultAttach(handle_, &params, &made);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "attaching a generation");
        }
        return result<vault_view>(vault_view(made));
    }

    /// @brief Claims memory that has a key, for writing. The first claim makes it.
    /// @param key 1 to 255 bytes, which this object does not hold
    /// @param params see ::umf_vault_claim_params_t; without a size the memory must be there
    /// @return the memory, or why there is none: see ::umfVaultClaim
    result<vault_claim>
    claim(const char *key,
          const umf_vault_claim_params_t &params = UMF_VAULT_CLAIM_PARAMS_INIT) const {
        vault_claim made(key ? key : "", params.shared);
        umf_result_t code = made.take(handle_, params);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "claiming " + made.key_);
        }
        return result<vault_claim>(std::move(made));
    }

    /// @brief Ends the memory of a key, which no client may hold.
    /// @param key of the memory
    /// @return success, or why not: see ::umfVaultForget
    result<void> forget(const char *key) const {
        return detail::checked(umfVaultForget(handle_, key), "ending the memory of a key");
    }

    /// @brief Calls a function with each claim, held or not. An exception must not leave it.
    /// @param function gets a const umf_vault_claim_stat_t &
    /// @return success, or why not: see ::umfVaultEachClaim
    template <class Function> result<void> for_each_claim(Function function) const {
        auto visit = [](const umf_vault_claim_stat_t *stat, void *arg) {
            (*static_cast<Function *>(arg))(*stat);
            return 0;
        };
        return detail::checked(umfVaultEachClaim(handle_, visit, &function),
                               "visiting the claims of a vault");
    }

    /// @brief Its state.
    /// @return the state, or why there is none: see ::umfVaultStat
    result<umf_vault_stat_t> stat() const {
        umf_vault_stat_t found = UMF_VAULT_STAT_INIT;
        umf_result_t code = umfVaultStat(handle_, &found);
        if (code != UMF_RESULT_SUCCESS) {
            return detail::failure(code, "the state of a vault");
        }
        return found;
    }

    /// @brief Copies memory of devices into memory of the host, or a generation into a file, for
    ///        evict.
    /// @param generation its number; 0: the current one
    /// @param params see ::umf_vault_snapshot_params_t
    /// @return success, or why not: see ::umfVaultSnapshot
    result<void>
    snapshot(std::uint64_t generation = 0,
             const umf_vault_snapshot_params_t &params = UMF_VAULT_SNAPSHOT_PARAMS_INIT) const {
        return detail::checked(umfVaultSnapshot(handle_, generation, &params),
                               "copying memory of devices");
    }

    /// @brief Releases memory of devices that has copies.
    /// @param generation its number; 0: all that have copies
    /// @return success, or why not: see ::umfVaultEvict
    result<void> evict(std::uint64_t generation = 0) const {
        return detail::checked(umfVaultEvict(handle_, generation), "evicting memory of devices");
    }

    /// @brief Drops a generation. Readers retain their mappings.
    /// @param generation its number; 0: the whole vault
    /// @return success, or why not: see ::umfVaultDrop
    result<void> drop(std::uint64_t generation = 0) const {
        return detail::checked(umfVaultDrop(handle_, generation), "dropping a generation");
    }

    /// @brief Closes it now. Does nothing if that was done.
    /// @return success; or why not, then it stays open: see ::umfVaultClose
    result<void> close() {
        umf_result_t code = handle_ ? umfVaultClose(handle_) : UMF_RESULT_SUCCESS;
        if (code == UMF_RESULT_SUCCESS) {
            handle_ = nullptr;
        }
        return detail::checked(code, "closing a vault");
    }

  private:
    explicit vault(umf_vault_handle_t handle) noexcept : handle_(handle) {}

    umf_vault_handle_t handle_;
};

UMF_CPP_END

#endif /* UMF_CPP_VAULT_HPP */
