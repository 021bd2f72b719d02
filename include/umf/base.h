/** @file
 * Types that every other header uses: versions, result codes, ids of properties, kinds of control
 * queries.
 */
#ifndef UMF_BASE_H
#define UMF_BASE_H 1

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A version number made of a major part and a minor part (0..65535).
#define UMF_MAKE_VERSION(_major, _minor) ((_major << 16) | (_minor & 0x0000ffff))

/// @brief The major part of a version made by ::UMF_MAKE_VERSION.
#define UMF_MAJOR_VERSION(_ver) (_ver >> 16)

/// @brief The minor part of a version made by ::UMF_MAKE_VERSION.
#define UMF_MINOR_VERSION(_ver) (_ver & 0x0000ffff)

/// @brief Version of the interface described by these headers.
#define UMF_VERSION_CURRENT UMF_MAKE_VERSION(1, 0)

/// @brief Result of a function.
///
/// Callbacks of user-written pools and providers may return any of these; the library passes them
/// on unchanged. umf/result.h gives the name and a sentence for each.
typedef enum umf_result_t {
    /// Done.
    UMF_RESULT_SUCCESS = 0,
    /// No memory for metadata, or a provider or pool is exhausted.
    UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY = 1,
    /// The provider has an error of its own: ::umfMemoryProviderGetLastNativeError reports it.
    UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC = 2,
    /// An argument is NULL, inconsistent or out of range, or the pointer is not known.
    UMF_RESULT_ERROR_INVALID_ARGUMENT = 3,
    /// The alignment cannot be honoured.
    UMF_RESULT_ERROR_INVALID_ALIGNMENT = 4,
    /// The operation is optional and absent here, or the version of an ops table is unknown.
    UMF_RESULT_ERROR_NOT_SUPPORTED = 5,
    /// A callback of the user requested a stop.
    UMF_RESULT_ERROR_USER_SPECIFIC = 6,
    /// A library that is located at run time, or a symbol of it, is absent.
    UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE = 7,
    /// A limit of the library or of a driver is reached.
    UMF_RESULT_ERROR_OUT_OF_RESOURCES = 8,
    /// There is no such control node.
    UMF_RESULT_ERROR_INVALID_CTL_PATH = 9,
    /// Everything else.
    UMF_RESULT_ERROR_UNKNOWN = 0x7ffffffe
} umf_result_t;

/// @brief Properties of one allocation of a provider: see umf/experimental/memory_properties.h.
typedef struct umf_memory_properties_t *umf_memory_properties_handle_t;

/// @brief Names one property of an allocation of a provider. In brackets: the type of its value.
///
/// Ids unknown to the library are handed to the provider, so a user-written provider may define its
/// own above ::UMF_MEMORY_PROPERTY_MAX_RESERVED.
typedef enum umf_memory_property_id_t {
    /// Not a property; every query of it is refused.
    UMF_MEMORY_PROPERTY_INVALID = -1,
    /// The provider the memory came from (umf_memory_provider_handle_t).
    UMF_MEMORY_PROPERTY_PROVIDER_HANDLE = 0,
    /// The pool that owns the memory, NULL for memory opened through IPC
    /// (umf_memory_pool_handle_t).
    UMF_MEMORY_PROPERTY_POOL_HANDLE = 1,
    /// Start of the allocation (uintptr_t).
    UMF_MEMORY_PROPERTY_BASE_ADDRESS = 10,
    /// Size of the allocation in bytes (size_t).
    UMF_MEMORY_PROPERTY_BASE_SIZE = 11,
    /// Number of the allocation, unique in the process and growing with each new one (uint64_t).
    UMF_MEMORY_PROPERTY_BUFFER_ID = 12,
    /// Kind of memory (umf_usm_memory_type_t).
    UMF_MEMORY_PROPERTY_POINTER_TYPE = 20,
    /// Context of the driver (type defined by the provider).
    UMF_MEMORY_PROPERTY_CONTEXT = 21,
    /// Device of the driver (type defined by the provider).
    UMF_MEMORY_PROPERTY_DEVICE = 22,
    /// 1 if network cards can reach the memory, as of a device with GPUDirect RDMA, else 0 (int).
    /// Memory that the CPU can access has 1, since its pages can be pinned; some file systems
    /// refuse that. Not supported where the driver has no answer.
    UMF_MEMORY_PROPERTY_RDMA_CAPABLE = 0x800,
    /// Last id that later versions of the library may give a meaning to.
    UMF_MEMORY_PROPERTY_MAX_RESERVED = 0x1000
} umf_memory_property_id_t;

/// @brief Action of a control query on a node: see umf/experimental/ctl.h.
typedef enum umf_ctl_query_type {
    /// Read the value into the argument.
    CTL_QUERY_READ = 0,
    /// Write the argument into the value.
    CTL_QUERY_WRITE = 1,
    /// Run the node.
    CTL_QUERY_RUNNABLE = 2
} umf_ctl_query_type_t;

/// @brief Where a control query comes from.
typedef enum ctl_query_source {
    /// Not known; the library does not use it.
    CTL_UNKNOWN_QUERY_SOURCE = 0,
    /// A call of the program: the argument has the type of the node.
    CTL_QUERY_PROGRAMMATIC = 1,
    /// UMF_CONF or UMF_CONF_FILE: the argument is text, its size includes the NUL.
    CTL_QUERY_CONFIG_INPUT = 2
} umf_ctl_query_source_t;

#ifdef __cplusplus
}
#endif

#endif /* UMF_BASE_H */
