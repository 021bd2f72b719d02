/** @file
 * Suspend as a scope: the physical memory of pools is released while an object lives.
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * void sleep(umf::pool &weights, umf::pool &cache) {
 *     umf::suspend_scope suspended({weights, cache});
 *     // suspended.report().bytes are free for others
 * } // everything is back, at the same addresses
 * @endcode
 */
#ifndef UMF_CPP_SUSPEND_HPP
#define UMF_CPP_SUSPEND_HPP 1

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <umf/cpp/error.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/cpp/queue.hpp>
#include <umf/suspend.h>

UMF_CPP_BEGIN

/// @brief Sets the treatment of a pool's content at its next suspend.
/// @param pool a pool that is resident
/// @param keep treatment of the content
/// @param folder for ::UMF_SUSPEND_KEEP_FILE
/// @param device for ::UMF_SUSPEND_KEEP_PEER
/// @return success, or why not: see ::umfPoolSetSuspendPolicy
inline result<void> set_suspend_policy(pool_ref pool, umf_suspend_keep_t keep,
                                       const char *folder = nullptr, int device = -1) {
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = keep;
    policy.folder = folder;
    policy.device = device;
    return detail::checked(umfPoolSetSuspendPolicy(pool.get(), &policy), "a policy of suspend");
}

/// @brief Pools that are suspended as long as it lives.
class [[nodiscard]] suspend_scope {
  public:
    /// @brief Suspends pools: all or none.
    /// @param pools the pools, which must outlive this object; not empty
    /// @param wait_for queues whose work so far is waited for; none: all work is
    /// @throws umf::exception if that fails
    [[nodiscard]] explicit suspend_scope(std::initializer_list<pool_ref> pools,
                                         const queues &wait_for = {})
        : suspend_scope(create(pools, wait_for).value()) {}

    /// @brief Suspends pools, without exceptions.
    /// @param pools the pools, which must outlive the scope; not empty
    /// @param wait_for queues whose work so far is waited for; none: all work is
    /// @return the scope, or why there is none
    static result<suspend_scope> create(std::initializer_list<pool_ref> pools,
                                        const queues &wait_for = {}) {
        suspend_scope scope;
        for (pool_ref pool : pools) {
            scope.pools_.push_back(pool.get());
        }
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        params.queues = wait_for.data();
        params.num_queues = wait_for.size();
        umf_result_t code =
            umfPoolsSuspend(scope.pools_.data(), scope.pools_.size(), &params, &scope.report_);
        if (code != UMF_RESULT_SUCCESS) {
            scope.pools_.clear();
            return detail::failure(code, "suspending pools");
        }
        return result<suspend_scope>(std::move(scope));
    }

    /// @brief Takes the pools of another scope, which has none afterwards.
    /// @param other the other scope
    suspend_scope(suspend_scope &&other) noexcept
        : pools_(std::exchange(other.pools_, {})), report_(other.report_) {}

    suspend_scope &operator=(suspend_scope &&) = delete;

    /// Resumes the pools. Call resume to get the result of that: without memory they stay
    /// suspended.
    ~suspend_scope() {
        static_cast<void>(resume());
    }

    /// @brief Resumes the pools now. Does nothing if that was done.
    /// @return report of the memory brought back; or an error: the pools stay suspended, and it may
    ///        be called again
    result<umf_suspend_report_t> resume() {
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        if (!pools_.empty()) {
            umf_result_t code = umfPoolsResume(pools_.data(), pools_.size(), nullptr, &report);
            if (code != UMF_RESULT_SUCCESS) {
                return detail::failure(code, "resuming pools, for which " +
                                                 std::to_string(report.missing) +
                                                 " bytes are missing");
            }
            pools_.clear();
        }
        return report;
    }

    /// @brief Report of the suspend.
    /// @return valid as long as this
    const umf_suspend_report_t &report() const noexcept {
        return report_;
    }

  private:
    suspend_scope() noexcept = default;

    std::vector<umf_memory_pool_handle_t> pools_;
    umf_suspend_report_t report_ = UMF_SUSPEND_REPORT_INIT;
};

UMF_CPP_END

#endif /* UMF_CPP_SUSPEND_HPP */
