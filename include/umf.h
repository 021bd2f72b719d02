/** @file
 * Unified Memory Framework: pools over providers of memory.
 *
 * A provider (umf/memory_provider.h) is a source of memory in whole pages; a pool
 * (umf/memory_pool.h) divides it. This header brings both, and start and stop of the library.
 */
#ifndef UMF_UNIFIED_MEMORY_FRAMEWORK_H
#define UMF_UNIFIED_MEMORY_FRAMEWORK_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Starts the library, or adds one more user of it.
///
/// The library starts itself when it is loaded, so most programs never call this. It is for
/// programs that load the library with dlopen or control the order of shutdown. The first
/// start reads UMF_LOG, UMF_CONF, UMF_CONF_FILE and the variables about IPC
/// (docs/guide/configuration.md).
///
/// Thread-safe. Each successful call is paired with one ::umfTearDown.
///
/// @return ::UMF_RESULT_SUCCESS, or why the log, the settings, the pointer tracking or the IPC
///         cache could not be set up; the library is then not started by this call.
umf_result_t umfInit(void);

/// @brief Removes one user of the library; the last one stops it.
///
/// Stopping releases everything that the library made for itself, stored defaults of settings
/// included, and closes libraries it opened. Destroy pools and providers before. Objects that are
/// destroyed afterwards, for instance by destructors of static objects, are left alone:
/// ::umfPoolDestroy and ::umfMemoryProviderDestroy then answer ::UMF_RESULT_ERROR_UNKNOWN without
/// touching the handle.
///
/// Thread-safe. A call without a matching start does nothing.
///
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfTearDown(void);

/// @brief The version of the interface the library was built with.
///
/// @return the ::UMF_VERSION_CURRENT of that moment, to be taken apart with ::UMF_MAJOR_VERSION and
///         ::UMF_MINOR_VERSION
int umfGetCurrentVersion(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_UNIFIED_MEMORY_FRAMEWORK_H */
