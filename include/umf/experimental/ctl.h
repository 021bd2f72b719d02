/** @file
 * Settings and counters by path.
 *
 * A path is a list of names separated by '.', for instance "umf.logger.level" or
 * "umf.pool.by_handle.{}.stats.alloc_count". "{}" stands for the next of the variable arguments: a
 * name or a text (char *), a handle (void *) or an index (size_t), taken from left to right.
 * Surplus arguments are ignored. Names and values are case-sensitive.
 *
 * The tree:
 *
 *     umf.logger.<name>                       the log
 *     umf.provider.by_handle.{}.<path>        one provider
 *     umf.provider.default.<name>.<path>      stored for providers of that name made later
 *     umf.pool.by_handle.{}.<path>            one pool
 *     umf.pool.by_name.<name>.<path>          the pool, or each pool, of that name
 *     umf.pool.by_name.<name>.<index>.<path>  one of several pools of that name, by age
 *     umf.pool.by_name.<name>.count           how many there are
 *     umf.pool.default.<name>.<path>          stored for pools of that name made later
 *
 * The same nodes can be written from the environment at start, or from a file that UMF_CONF_FILE
 * names:
 *
 *     UMF_CONF="umf.logger.output=stderr;umf.pool.default.disjoint.params.capacity=8"
 *
 * All functions are thread-safe. A handle given for "{}" must be valid.
 */
#ifndef UMF_CTL_H
#define UMF_CTL_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Reads a value.
///
/// @param path of the node
/// @param arg [out] receives the value, which has the node's type; written only on success
/// @param size of `arg` in bytes: the size of that type, or the room for a text or a stored default
/// @param ... one argument for each "{}"
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` or `arg` is NULL, if `size` is 0 or does
///         not fit, if the node cannot be read, or if a name or an index leads to no single pool;
///         ::UMF_RESULT_ERROR_INVALID_CTL_PATH if there is no such node or no such default;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the value is not counted or not available now;
///         otherwise the result of the pool's or provider's own `ext_ctl`
umf_result_t umfCtlGet(const char *path, void *arg, size_t size, ...);

/// @brief Writes a value, or stores a default.
///
/// @param path of the node
/// @param arg the value, of the node's type; copied, never written
/// @param size of `arg` in bytes
/// @param ... one argument for each "{}"; not allowed after "default"
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` or `arg` is NULL, if `size` is 0 or does
///         not fit, if the node cannot be written, or if the value is not allowed;
///         ::UMF_RESULT_ERROR_INVALID_CTL_PATH if there is no such node;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it can be written only before creation, as a
///         default, or if a default is named with "{}";
///         otherwise the result of the pool's or provider's own `ext_ctl`. Writing through a name
///         writes to every pool of that name and gives the first error.
umf_result_t umfCtlSet(const char *path, void *arg, size_t size, ...);

/// @brief Runs a node.
///
/// @param path of the node
/// @param arg NULL, unless the node takes an argument
/// @param size of `arg` in bytes; 0 if and only if `arg` is NULL
/// @param ... one argument for each "{}"
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` is NULL, if only one of `arg` and `size`
///         is given, or if the node cannot be run;
///         ::UMF_RESULT_ERROR_INVALID_CTL_PATH if there is no such node;
///         otherwise the result of the pool's or provider's own `ext_ctl`
umf_result_t umfCtlExec(const char *path, void *arg, size_t size, ...);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CTL_H */
