/** @file
 * Result codes as text, for messages to people.
 */
#ifndef UMF_RESULT_H
#define UMF_RESULT_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief The name of a result code as the headers spell it: "UMF_RESULT_ERROR_INVALID_ARGUMENT".
///
/// @param result any value
/// @return static text, never NULL. For a value that is no result code: "UMF_RESULT_?".
const char *umfResultName(umf_result_t result);

/// @brief A result code in plain words: "the alignment cannot be honoured".
///
/// @param result any value
/// @return static text without a full stop or a line break, never NULL
const char *umfResultText(umf_result_t result);

#ifdef __cplusplus
}
#endif

#endif /* UMF_RESULT_H */
