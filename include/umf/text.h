/** @file
 * Providers and pools from text, for configuration files and command lines.
 *
 *     provider := kind [ ":" setting { "," setting } ]
 *     pool     := kind [ ":" setting { "," setting } ]  " over "  provider
 *     setting  := name "=" value
 *
 *     "os"
 *     "os:numa_mode=bind,numa_list=0"
 *     "disjoint:capacity=8,slab_min_size=1M over os:protection=read+write"
 *     "proxy over os:visibility=shared,shm_name=\"two words\""
 *
 * - Kinds are those of the library and those registered (umf/plugin.h); umfProviderKinds and
 *   umfPoolKinds list them. The settings of a kind are its parameters, in lower case with
 *   underscores; where the settings tree (umf/experimental/ctl.h) has a path "params.<name>" it is
 *   that name (slab_min_size, pool_trace). Of a setting given twice the last one counts. Everything
 *   is case-sensitive.
 * - White space around kinds, names, values and "over" is ignored; "over" needs some before and
 *   after it.
 * - A value without quotes contains neither ',' nor white space. A value in '"' may contain both;
 *   there '\' takes the next character as it is ('\"', '\\').
 * - Numbers are decimal, 0x hexadecimal or 0 octal. Sizes are bytes and may end in K, M, G or T
 *   (powers of 1024). Truth is yes, y, true or 1, or no, n, false or 0.
 * - Choices are words: visibility=shared. Flags and lists join their elements by '+':
 *   protection=read+write, numa_list=0+1.
 *
 * All functions are thread-safe.
 */
#ifndef UMF_TEXT_H
#define UMF_TEXT_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Creates a provider from text.
///
/// @param text a provider as described above, up to 64 KiB; not needed after the call
/// @param hProvider [out] the provider, to be destroyed by ::umfMemoryProviderDestroy; written only
///        on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, or the text has a mistake:
///         grammar, unknown kind or setting, a value that does not fit;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if this library was built without the kind, or the kind
///         needs a parameter that text cannot express (fixed: an address);
///         otherwise as ::umfMemoryProviderCreate. ::umfTextError has the details.
umf_result_t umfMemoryProviderCreateFromText(const char *text,
                                             umf_memory_provider_handle_t *hProvider);

/// @brief Creates a pool and the provider below it from text. The pool owns that provider.
///
/// @param text a pool as described above, up to 64 KiB; not needed after the call
/// @param hPool [out] the pool, to be destroyed by ::umfPoolDestroy, which also destroys the
///        provider; written only on success
/// @return as ::umfMemoryProviderCreateFromText and ::umfPoolCreate. On failure nothing remains.
umf_result_t umfPoolCreateFromText(const char *text, umf_memory_pool_handle_t *hPool);

/// @brief Creates a pool from text over a provider that exists. Several pools may share one.
///
/// @param text the part of a pool's text before " over ": "disjoint:name=cache,capacity=8"; up to
///        64 KiB; not needed after the call
/// @param hProvider stays the caller's, and must outlive the pool
/// @param hPool [out] the pool, to be destroyed by ::umfPoolDestroy; written only on success
/// @return as ::umfPoolCreateFromText; ::UMF_RESULT_ERROR_INVALID_ARGUMENT also if `hProvider` is
///         NULL or the text names a provider. On failure nothing remains.
umf_result_t umfPoolCreateFromTextOver(const char *text, umf_memory_provider_handle_t hProvider,
                                       umf_memory_pool_handle_t *hPool);

/// @brief Why the last creation from text failed in this thread, in words for people.
///
/// For a mistake in the text it names the position (the first character is 1), the word found there
/// and the expected ones: "at 4: unknown setting 'visiblity' of provider 'os', expected one of:
/// ...". For a provider or pool that could not be created it names the cause, the native error text
/// included.
///
/// @return text of the library, valid in this thread until its next creation from text; never NULL;
///         "" if that creation succeeded or there was none
const char *umfTextError(void);

/// @brief Called for one kind.
///
/// May call the library, but must not register kinds.
///
/// @param name of the kind, as used in text; valid while the kind is registered
/// @param available 1 if the kind can work on this machine, otherwise 0
/// @param why if it cannot: the missing part, otherwise ""; valid during the call
/// @param arg as given to the function that enumerates
/// @return 0 to go on, anything else to stop
typedef int (*umf_kind_visitor_t)(const char *name, int available, const char *why, void *arg);

/// @brief Enumerates the kinds of providers.
///
/// Those of the library come first, then others in the order they were registered. Each is probed,
/// which may search for drivers.
///
/// @param visitor called for each kind, with no lock held
/// @param arg handed to `visitor`
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `visitor` is NULL;
///         ::UMF_RESULT_ERROR_USER_SPECIFIC if the visitor stopped
umf_result_t umfProviderKinds(umf_kind_visitor_t visitor, void *arg);

/// @brief Enumerates the kinds of pools.
///
/// @param visitor called for each kind, with no lock held
/// @param arg handed to `visitor`
/// @return as ::umfProviderKinds
umf_result_t umfPoolKinds(umf_kind_visitor_t visitor, void *arg);

#ifdef __cplusplus
}
#endif

#endif /* UMF_TEXT_H */
