/** @file
 * The OS provider: memory of the operating system, private or shared, placed on NUMA nodes on
 * request. Its name is "OS" unless another is set.
 *
 * Memory is handed out in whole pages and reads as zero. An alignment is 0 or a multiple or a
 * divisor of the page size; any other gives UMF_RESULT_ERROR_INVALID_ARGUMENT. A size of 0 fails
 * with the native code UMF_OS_RESULT_ERROR_ALLOC_FAILED. umfMemoryProviderFree does not
 * check address and size; the system may refuse them.
 *
 * Private memory without a NUMA mode is arranged for huge pages. Allocations of 2 MiB and more
 * start at multiples of 2 MiB and request huge pages. Those of up to 256 KiB are cut from mappings
 * of 2 MiB, which request huge pages once the provider has more than 8 MiB of them.
 *
 * Freed memory is returned to the system at once, and touching it is a fault. Its addresses are not
 * used again while their mapping has other allocations, unless addresses run out. The addresses of
 * four mappings of 2 to 8 MiB stay reserved for the next. Protection that the program changed is
 * reset; NUMA policy and advice that it gave may stay.
 *
 * Memory freed by pools is the exception, up to 8 MiB of it at once. It keeps its content and its
 * pages, and can be touched, for pools over the same provider: for 2 seconds if no pool takes it,
 * and until one of these pools is trimmed or destroyed. Cached memory and memory in use are
 * together no more than the recent memory in use plus 64 MiB. So protection that the program
 * changed on memory of a pool must be changed back before it is freed.
 *
 * Shared memory (visibility UMF_MEM_MAP_SHARED) can be opened by other processes through umf/ipc.h.
 * It is in an anonymous file made by memfd_create (where that is denied, an unlinked file in
 * /dev/shm or the folder for temporary files), or in the named object `/dev/shm/<name>` if a name
 * is set. Where no file can be made, creation gives UMF_RESULT_ERROR_NOT_SUPPORTED. If the
 * environment variable UMF_MEM_FD_FUNC contains "memfd_secret", a memfd_secret file is used
 * instead; such memory is locked, so RLIMIT_MEMLOCK limits it. Opening anonymous memory needs the
 * permission to reach the producer's descriptor. Any number of processes may open a named object.
 * The provider that made it removes the name when it is destroyed.
 *
 * Shared memory in /dev/shm or in a folder has its space there when it is allocated, so that a
 * write never fails for lack of it: if the file system is full, allocating fails. Such memory
 * cannot be purged (UMF_RESULT_ERROR_NOT_SUPPORTED), because others could take the space; freeing
 * releases it.
 *
 * Parameters are created with defaults, set, and copied by umfMemoryProviderCreate. They may be
 * destroyed or reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_OS_MEMORY_PROVIDER_H
#define UMF_OS_MEMORY_PROVIDER_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief First native code of this kind of provider.
#define UMF_OS_RESULTS_START_FROM 1000

/// @brief How memory is placed on NUMA nodes. The "list" is that of
///        ::umfOsMemoryProviderParamsSetNumaList.
///
/// Only ::UMF_NUMA_MODE_DEFAULT is allowed with shared memory.
typedef enum umf_numa_mode_t {
    /// As the process's own policy says. The list must be empty.
    UMF_NUMA_MODE_DEFAULT = 0,
    /// Only on the nodes of the list, which must not be empty.
    UMF_NUMA_MODE_BIND = 1,
    /// On the nodes of the list round robin, page by page or part by part. The list must not be
    /// empty.
    UMF_NUMA_MODE_INTERLEAVE = 2,
    /// On the nodes of the list while they have room, else on others. An empty list means local.
    UMF_NUMA_MODE_PREFERRED = 3,
    /// Each allocation is divided over the nodes of the list in proportion to weights. The list
    /// must not be empty.
    UMF_NUMA_MODE_SPLIT = 4,
    /// On the node of the CPU that first touches a page. The list must be empty.
    UMF_NUMA_MODE_LOCAL = 5
} umf_numa_mode_t;

/// @brief One part of an allocation in mode ::UMF_NUMA_MODE_SPLIT.
typedef struct umf_numa_split_partition_t {
    /// Share of the pages, relative to the sum of all weights; above 0.
    unsigned weight;
    /// The node, one of the list.
    unsigned target;
} umf_numa_split_partition_t;

/// @brief Parameters of an OS provider.
typedef struct umf_os_memory_provider_params_t *umf_os_memory_provider_params_handle_t;

/// @brief Native codes, as ::umfMemoryProviderGetLastNativeError gives them.
typedef enum umf_os_memory_provider_native_error {
    /// "success"
    UMF_OS_RESULT_SUCCESS = UMF_OS_RESULTS_START_FROM,
    /// "memory allocation failed"
    UMF_OS_RESULT_ERROR_ALLOC_FAILED = 1001,
    /// "allocated address is not aligned"
    UMF_OS_RESULT_ERROR_ADDRESS_NOT_ALIGNED = 1002,
    /// "binding memory to NUMA node failed"
    UMF_OS_RESULT_ERROR_BIND_FAILED = 1003,
    /// "memory deallocation failed"
    UMF_OS_RESULT_ERROR_FREE_FAILED = 1004,
    /// "lazy purging failed"
    UMF_OS_RESULT_ERROR_PURGE_LAZY_FAILED = 1005,
    /// "force purging failed"
    UMF_OS_RESULT_ERROR_PURGE_FORCE_FAILED = 1006,
    /// "HWLOC topology discovery failed"
    UMF_OS_RESULT_ERROR_TOPO_DISCOVERY_FAILED = 1007
} umf_os_memory_provider_native_error_t;

/// @brief Creates parameters with defaults: private memory that can be read and written, no NUMA
///        policy.
///
/// Parameters are checked when the provider is created, which returns
/// ::UMF_RESULT_ERROR_NOT_SUPPORTED for shared memory with a NUMA mode and
/// ::UMF_RESULT_ERROR_INVALID_ARGUMENT for other settings that do not go together: a mode and its
/// list, a name with private memory, partitions or a part size with a mode that has none.
///
/// @param hParams [out] parameters, to be destroyed by ::umfOsMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfOsMemoryProviderParamsCreate(umf_os_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfOsMemoryProviderParamsDestroy(umf_os_memory_provider_params_handle_t hParams);

/// @brief Sets the access to the memory. Default: read and write.
///
/// @param hParams parameters
/// @param protection flags of ::umf_mem_protection_flag_t, checked when the provider is created; 0
///        means no access
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfOsMemoryProviderParamsSetProtection(umf_os_memory_provider_params_handle_t hParams,
                                                    unsigned protection);

/// @brief Makes the memory private or shared. Default: private.
///
/// @param hParams parameters
/// @param visibility checked when the provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfOsMemoryProviderParamsSetVisibility(umf_os_memory_provider_params_handle_t hParams,
                                                    umf_memory_visibility_t visibility);

/// @brief Puts shared memory into the named object `/dev/shm/<name>`. Default: no name.
///
/// An object of that name that exists when the provider is created is replaced.
///
/// @param hParams parameters
/// @param shm_name name without '/', at most NAME_MAX - 2 characters (checked when the provider is
///        created); copied; NULL for none
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfOsMemoryProviderParamsSetShmName(umf_os_memory_provider_params_handle_t hParams,
                                                 const char *shm_name);

/// @brief Sets the list of NUMA nodes. Default: empty.
///
/// A node that does not exist, has no memory or is not allowed to the process is noticed when
/// memory is bound to it: the allocation fails, also if other nodes of the list are there. In a
/// creation text (umf/text.h) it is noticed at creation, and the error names the nodes that can be
/// used.
///
/// @param hParams parameters
/// @param numa_list node numbers of the system; copied
/// @param numa_list_len how many; 0 clears the list
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL, or
///         `numa_list` is NULL and `numa_list_len` is not 0; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfOsMemoryProviderParamsSetNumaList(umf_os_memory_provider_params_handle_t hParams,
                                                  unsigned *numa_list, unsigned numa_list_len);

/// @brief Sets how memory is placed. Default: ::UMF_NUMA_MODE_DEFAULT.
///
/// @param hParams parameters
/// @param numa_mode checked when the provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfOsMemoryProviderParamsSetNumaMode(umf_os_memory_provider_params_handle_t hParams,
                                                  umf_numa_mode_t numa_mode);

/// @brief Sets how many bytes are placed on one node before the next one is used in mode
///        ::UMF_NUMA_MODE_INTERLEAVE. Default: 0, page by page.
///
/// @param hParams parameters
/// @param part_size bytes; rounded up to whole pages
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfOsMemoryProviderParamsSetPartSize(umf_os_memory_provider_params_handle_t hParams,
                                                  size_t part_size);

/// @brief Sets the parts of an allocation in mode ::UMF_NUMA_MODE_SPLIT. Default: an equal part for
///        each node of the list.
///
/// A page in which two parts meet may be on either node.
///
/// @param hParams parameters
/// @param partitions in order of addresses; copied; weights and targets are checked when the
///        provider is created
/// @param partitions_len how many; 0 clears them
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL, or
///         `partitions` is NULL and `partitions_len` is not 0;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfOsMemoryProviderParamsSetPartitions(umf_os_memory_provider_params_handle_t hParams,
                                                    umf_numa_split_partition_t *partitions,
                                                    unsigned partitions_len);

/// @brief Sets the provider's name. Default: "OS".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfOsMemoryProviderParamsSetName(umf_os_memory_provider_params_handle_t hParams,
                                              const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_os_memory_provider_params_handle_t.
///
/// @return constant data of the library, never NULL
const umf_memory_provider_ops_t *umfOsMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_OS_MEMORY_PROVIDER_H */
