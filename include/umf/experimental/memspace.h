/** @file
 * Memspaces: lists of memory targets, from which providers and pools are made.
 *
 * A memspace is made from node numbers, target by target, or by filtering a copy of a predefined
 * one. Predefined memspaces describe this machine. The library makes them at their first use, and
 * keeps them until its last ::umfTearDown. They must not be changed or destroyed: functions that
 * would do so give ::UMF_RESULT_ERROR_INVALID_ARGUMENT. To start from one, clone it.
 *
 * Facts about the machine come from hwloc, which is opened at run time (libhwloc.so.15). The
 * library reads the machine once, when that is first needed; a child of fork keeps the facts of its
 * parent. Nodes that the process may not use, because a control group or container forbids it, are
 * in no predefined memspace. Without hwloc the predefined memspaces and capacities are missing, and
 * everything else works.
 *
 * All functions are thread-safe, but one memspace must not be changed by a thread while another one
 * uses it. Handles of targets stay valid, and targets keep their order, until they are removed.
 */
#ifndef UMF_MEMSPACE_H
#define UMF_MEMSPACE_H 1

#include <umf/experimental/mempolicy.h>
#include <umf/experimental/memtarget.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A memspace.
typedef struct umf_memspace_t *umf_memspace_handle_t;

/// @brief A memspace that is not changed through this handle.
typedef const struct umf_memspace_t *umf_const_memspace_handle_t;

/// @brief Decides whether a target stays in a memspace. It must not change the memspace.
///
/// @param hMemspace the memspace that is being filtered
/// @param hMemtarget one of its targets
/// @param args as given to ::umfMemspaceUserFilter
/// @return 0: remove it; positive: keep it; negative: stop with an error
typedef int (*umf_memspace_filter_func_t)(umf_const_memspace_handle_t hMemspace,
                                          umf_const_memtarget_handle_t hMemtarget, void *args);

/// @brief Creates a pool over memory of a memspace.
///
/// It is a jemalloc pool with its default settings or, where that was compiled out or built for
/// smaller pages than the machine's, a disjoint pool. It owns a provider as
/// ::umfMemoryProviderCreateFromMemspace makes it.
///
/// @param hMemspace memspace with at least one target; may be destroyed afterwards
/// @param hPolicy how memory is placed, or NULL; may be destroyed afterwards
/// @param hPool [out] the pool, to be destroyed by ::umfPoolDestroy; written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` is NULL or empty, or `hPool` is NULL;
///         otherwise the result of ::umfMemoryProviderCreateFromMemspace or ::umfPoolCreate
umf_result_t umfPoolCreateFromMemspace(umf_const_memspace_handle_t hMemspace,
                                       umf_const_mempolicy_handle_t hPolicy,
                                       umf_memory_pool_handle_t *hPool);

/// @brief Creates a provider of memory of a memspace: an OS provider
///        (umf/providers/provider_os_memory.h) with private memory that can be read and written.
///
/// Without a policy memory comes only from the targets; over ::umfMemspaceHostAllGet it is placed
/// as the process's own policy says. With a policy memory is placed over all targets as that says.
/// Of ::umfMemspaceHighestCapacityGet itself, unlike a clone of it, only the first target is used.
///
/// A node that does not exist, has no memory or is not allowed to the process is noticed when
/// memory is allocated: the allocation fails, also if other nodes are there.
///
/// @param hMemspace memspace with at least one target; may be destroyed afterwards
/// @param hPolicy how memory is placed, or NULL; may be destroyed afterwards
/// @param hProvider [out] the provider, to be destroyed by ::umfMemoryProviderDestroy; written only
///        on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` is NULL or empty, `hProvider` is
///         NULL, a partition of the policy has weight 0 or a target outside of the memspace, or its
///         part size cannot be rounded up to pages;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemoryProviderCreateFromMemspace(umf_const_memspace_handle_t hMemspace,
                                                 umf_const_mempolicy_handle_t hPolicy,
                                                 umf_memory_provider_handle_t *hProvider);

/// @brief Creates a memspace from node numbers.
///
/// @param nodeIds the operating system's numbers of NUMA nodes; neither duplicates nor whether the
///        nodes exist is checked
/// @param numIds how many, at least 1
/// @param hMemspace [out] the memspace, targets in the order of the array; to be destroyed by
///        ::umfMemspaceDestroy; written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `nodeIds` or `hMemspace` is NULL or `numIds` is
///         0;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceCreateFromNumaArray(unsigned *nodeIds, size_t numIds,
                                            umf_memspace_handle_t *hMemspace);

/// @brief Destroys a memspace and its targets.
///
/// @param hMemspace memspace, not a predefined one
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` is NULL or predefined
umf_result_t umfMemspaceDestroy(umf_memspace_handle_t hMemspace);

/// @brief The predefined memspace of all NUMA nodes, by number. Nodes without memory are among
///        them; a filter by a capacity of 1 on a clone leaves those with memory.
///
/// @return the same handle each time; NULL if the machine's topology cannot be read
umf_const_memspace_handle_t umfMemspaceHostAllGet(void);

/// @brief The predefined memspace of all NUMA nodes, the largest first; those of one size by
///        number.
///
/// @return the same handle each time; NULL if the machine's topology cannot be read
umf_const_memspace_handle_t umfMemspaceHighestCapacityGet(void);

/// @brief The predefined memspace of the nodes with the highest bandwidth: for each NUMA node, seen
///        from its CPUs, the best node local to them. By number, each once.
///
/// @return the same handle each time; NULL if the machine's topology cannot be read, or if the
///         machine's firmware does not report bandwidths, as is common
umf_const_memspace_handle_t umfMemspaceHighestBandwidthGet(void);

/// @brief The predefined memspace of the nodes with the lowest latency: for each NUMA node, seen
///        from its CPUs, the best node local to them. By number, each once.
///
/// @return the same handle each time; NULL if the machine's topology cannot be read, or if the
///         machine's firmware does not report latencies, as is common
umf_const_memspace_handle_t umfMemspaceLowestLatencyGet(void);

/// @brief Creates an empty memspace.
///
/// @param hMemspace [out] the memspace, to be destroyed by ::umfMemspaceDestroy; written only on
///        success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceNew(umf_memspace_handle_t *hMemspace);

/// @brief How many targets a memspace has.
///
/// @param hMemspace memspace; NULL is allowed
/// @return the number of targets; 0 for NULL
size_t umfMemspaceMemtargetNum(umf_const_memspace_handle_t hMemspace);

/// @brief A target of a memspace.
///
/// @param hMemspace memspace; NULL is allowed
/// @param targetNum its place, from 0
/// @return the target, which belongs to the memspace; NULL if there is none
umf_const_memtarget_handle_t umfMemspaceMemtargetGet(umf_const_memspace_handle_t hMemspace,
                                                     unsigned targetNum);

/// @brief Adds a copy of a target at the end of a memspace.
///
/// @param hMemspace memspace, not a predefined one
/// @param hMemtarget target, usually of another memspace
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, the memspace is predefined
///         or has a target of that number already;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceMemtargetAdd(umf_memspace_handle_t hMemspace,
                                     umf_const_memtarget_handle_t hMemtarget);

/// @brief Removes the target with the number of another one, or with its own, from a memspace. The
///        last target may be removed.
///
/// @param hMemspace memspace, not a predefined one
/// @param hMemtarget target, of this memspace or another one; if it is the removed one itself, its
///        handle is not valid any more
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, the memspace is predefined
///         or has no target of that number
umf_result_t umfMemspaceMemtargetRemove(umf_memspace_handle_t hMemspace,
                                        umf_const_memtarget_handle_t hMemtarget);

/// @brief Creates a copy of a memspace with targets of its own, in the same order. The copy of a
///        predefined memspace is an ordinary one.
///
/// @param hMemspace memspace
/// @param hNewMemspace [out] the copy, to be destroyed by ::umfMemspaceDestroy; written only on
///        success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceClone(umf_const_memspace_handle_t hMemspace,
                              umf_memspace_handle_t *hNewMemspace);

/// @brief Keeps the targets whose number is listed and removes the others.
///
/// @param hMemspace memspace, not a predefined one; unchanged on failure
/// @param ids node numbers; those of no target are ignored
/// @param size how many, at least 1
/// @return ::UMF_RESULT_SUCCESS, also when nothing is left;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` or `ids` is NULL, `size` is 0 or the
///         memspace is predefined;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceFilterById(umf_memspace_handle_t hMemspace, unsigned *ids, size_t size);

/// @brief Keeps the targets with at least that capacity and removes the others, among them nodes
///        that do not exist.
///
/// @param hMemspace memspace, not a predefined one; unchanged on failure
/// @param size bytes
/// @return ::UMF_RESULT_SUCCESS, also when nothing is left;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` is NULL or predefined, or `size` is
///         negative;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         otherwise, if the machine's topology cannot be read, the result of
///         ::umfMemtargetGetCapacity
umf_result_t umfMemspaceFilterByCapacity(umf_memspace_handle_t hMemspace, int64_t size);

/// @brief Keeps the targets that a function of the caller chooses and removes the others.
///
/// @param hMemspace memspace, not a predefined one; unchanged on failure
/// @param filter called once for each target, in order, in this thread
/// @param args passed on to `filter`; may be NULL
/// @return ::UMF_RESULT_SUCCESS, also when nothing is left;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hMemspace` or `filter` is NULL or the memspace
///         is predefined;
///         ::UMF_RESULT_ERROR_USER_SPECIFIC if `filter` answered a negative number;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfMemspaceUserFilter(umf_memspace_handle_t hMemspace,
                                   umf_memspace_filter_func_t filter, void *args);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMSPACE_H */
