/** @file
 * Memory targets: the members of a memspace (umf/experimental/memspace.h). A target stands for one
 * NUMA node.
 *
 * A target belongs to its memspace. Its handle is valid until the target is removed from the
 * memspace or the memspace is destroyed.
 */
#ifndef UMF_MEMTARGET_H
#define UMF_MEMTARGET_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A memory target.
typedef struct umf_memtarget_t *umf_memtarget_handle_t;

/// @brief A memory target that is not changed through this handle.
typedef const struct umf_memtarget_t *umf_const_memtarget_handle_t;

/// @brief Kind of a memory target.
typedef enum umf_memtarget_type_t {
    /// Not known. No target has this type.
    UMF_MEMTARGET_TYPE_UNKNOWN = 0,
    /// One NUMA node.
    UMF_MEMTARGET_TYPE_NUMA = 1
} umf_memtarget_type_t;

/// @brief Kind of a target.
///
/// @param hMemtarget target
/// @param type [out] its type; written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfMemtargetGetType(umf_const_memtarget_handle_t hMemtarget,
                                 umf_memtarget_type_t *type);

/// @brief How much memory a target has, used or not.
///
/// @param hMemtarget target
/// @param capacity [out] bytes of local memory of the NUMA node, 0 for a node without any; written
///        only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the node does not exist;
///         ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if hwloc is not on this machine;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without it;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_UNKNOWN if hwloc cannot read the machine's topology
umf_result_t umfMemtargetGetCapacity(umf_const_memtarget_handle_t hMemtarget, size_t *capacity);

/// @brief The number of a target.
///
/// @param hMemtarget target
/// @param id [out] the operating system's number of the NUMA node; written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfMemtargetGetId(umf_const_memtarget_handle_t hMemtarget, unsigned *id);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMTARGET_H */
