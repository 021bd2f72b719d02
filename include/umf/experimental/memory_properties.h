/** @file
 * Properties of the memory at an address.
 *
 * Known is memory of pools that record it, and memory opened through umf/ipc.h. Where pools are
 * nested, the innermost one counts. Properties describe the whole allocation of the provider, which
 * may hold many allocations of the pool.
 */
#ifndef UMF_MEMORY_PROPERTIES_H
#define UMF_MEMORY_PROPERTIES_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Finds the properties of the memory at an address. Thread-safe.
///
/// @param ptr any address inside the memory
/// @param props_handle [out] the properties. Not to be freed; valid until the memory is returned to
///        its provider or the IPC mapping is closed.
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the memory is not known;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED after the library was torn down
umf_result_t umfGetMemoryPropertiesHandle(const void *ptr,
                                          umf_memory_properties_handle_t *props_handle);

/// @brief Size of the value of a property.
///
/// @param props_handle properties
/// @param memory_property_id which
/// @param size [out] bytes
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `props_handle` or `size` is NULL, or the id is
///         ::UMF_MEMORY_PROPERTY_INVALID;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the provider has no properties of its own;
///         otherwise the provider's result
umf_result_t umfGetMemoryPropertySize(umf_memory_properties_handle_t props_handle,
                                      umf_memory_property_id_t memory_property_id, size_t *size);

/// @brief The value of a property.
///
/// @param props_handle properties
/// @param memory_property_id which; its type is listed at ::umf_memory_property_id_t
/// @param property_value [out] the value, written only on success
/// @param max_property_size room at `property_value` in bytes; not 0
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if a pointer is NULL, the room is too small, or the
///         id is ::UMF_MEMORY_PROPERTY_INVALID;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the provider has no properties of its own;
///         otherwise the provider's result
umf_result_t umfGetMemoryProperty(umf_memory_properties_handle_t props_handle,
                                  umf_memory_property_id_t memory_property_id, void *property_value,
                                  size_t max_property_size);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_PROPERTIES_H */
