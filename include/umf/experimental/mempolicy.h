/** @file
 * Memory policies: how a provider made from a memspace (umf/experimental/memspace.h) divides its
 * memory over the targets.
 *
 * A policy is used only while a provider or pool is created; it may be changed, used again or
 * destroyed directly afterwards. One policy must not be changed by a thread while another one uses
 * it.
 */
#ifndef UMF_MEMPOLICY_H
#define UMF_MEMPOLICY_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A memory policy.
typedef struct umf_mempolicy_t *umf_mempolicy_handle_t;

/// @brief A memory policy that is not changed through this handle.
typedef const struct umf_mempolicy_t *umf_const_mempolicy_handle_t;

/// @brief How memory is placed on the targets of a memspace.
typedef enum umf_mempolicy_membind_t {
    /// On the targets round robin, page by page or part by part.
    UMF_MEMPOLICY_INTERLEAVE = 0,
    /// Only on the targets.
    UMF_MEMPOLICY_BIND = 1,
    /// On the targets while they have room, else elsewhere.
    UMF_MEMPOLICY_PREFERRED = 2,
    /// Each allocation is divided over the targets in proportion to weights.
    UMF_MEMPOLICY_SPLIT = 3
} umf_mempolicy_membind_t;

/// @brief One part of an allocation under ::UMF_MEMPOLICY_SPLIT.
typedef struct umf_mempolicy_split_partition_t {
    /// Share of the pages, relative to the sum of all weights; above 0.
    unsigned weight;
    /// The number of the NUMA node, one of the memspace's.
    unsigned target;
} umf_mempolicy_split_partition_t;

/// @brief Creates a policy: part size 0, no partitions.
///
/// @param bind how memory is placed
/// @param hPolicy [out] the policy, to be destroyed by ::umfMempolicyDestroy; written only on
///        success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPolicy` is NULL or there is no such `bind`;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMempolicyCreate(umf_mempolicy_membind_t bind, umf_mempolicy_handle_t *hPolicy);

/// @brief Destroys a policy. Providers and pools made with it are not affected.
///
/// @param hPolicy policy; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfMempolicyDestroy(umf_mempolicy_handle_t hPolicy);

/// @brief Sets how many bytes are placed on one target before the next one is used. Default: 0,
///        page by page.
///
/// @param hPolicy a policy ::UMF_MEMPOLICY_INTERLEAVE
/// @param partSize bytes; rounded up to whole pages when a provider is created
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPolicy` is NULL or another policy
umf_result_t umfMempolicySetInterleavePartSize(umf_mempolicy_handle_t hPolicy, size_t partSize);

/// @brief Sets the parts into which each allocation is divided. Default: an equal part for each
///        target of the memspace, in its order.
///
/// @param hPolicy a policy ::UMF_MEMPOLICY_SPLIT
/// @param partList parts in order of addresses; copied. Weights and targets are checked when a
///        provider is created.
/// @param partListLen how many; 0 restores the default
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPolicy` is NULL or another policy, or if
///         `partList` is NULL and `partListLen` is not 0;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMempolicySetCustomSplitPartitions(umf_mempolicy_handle_t hPolicy,
                                                  umf_mempolicy_split_partition_t *partList,
                                                  size_t partListLen);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMPOLICY_H */
