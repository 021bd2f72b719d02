/** @file
 * Recording: the events of pools and providers, as they happen.
 *
 * A recording is written to a file of bounded size that is mapped into the process, so that all
 * events up to the last are in it when the process dies. When it is full the oldest events are
 * overwritten. `umfctl` reads it: `umfctl trace`, `umfctl leaks`, `umfctl diff`
 * (docs/recording.md).
 *
 *     umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
 *     params.path = "run.umfrec";
 *     params.stack_depth = 16;
 *     umfRecordStart(&params);
 *     ...
 *     umfRecordMark("step 12");
 *     ...
 *     umfRecordStop();
 *
 * Without a change of the program: `UMF_RECORD=run.umfrec,stacks,leaks`. Where nothing is recorded
 * nothing is slower: a pool that is recorded leaves its fast paths.
 *
 * All functions are thread-safe. A child of fork does not record, unless the path has `%p`: then it
 * records into a file of its own, with the same parameters. Its parent continues.
 */
#ifndef UMF_RECORD_H
#define UMF_RECORD_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A value of umf_record_params_t::leaks.
#define UMF_RECORD_LEAKS_ALLOW_DESTROYED 2

/// @brief Scope and target of a recording.
typedef struct umf_record_params_t {
    /// sizeof(umf_record_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// The file, which is replaced if it exists, and refused if it is no regular file. It has mode
    /// 0600. A program of the same user that makes it shorter while it is written (`truncate`,
    /// `> FILE`) ends the process by SIGBUS; to remove or rename it is harmless. NULL: memory that
    /// cannot be shortened from outside; it ends with the recording, and ::umfRecordSave writes it
    /// to a file. `%p` in it becomes the number of the process. It is copied, as are the pools
    /// below.
    const char *path;
    /// Bytes of the file, at least 1 MiB, at most 64 GiB; 0: 256 MiB. It takes no more of the disk
    /// than is recorded.
    size_t size;
    /// The most frames of a stack, up to 64; 0: no stacks.
    unsigned stack_depth;
    /// Whether a table of live allocations is kept, so that `umfctl leaks` lists allocations whose
    /// events have been overwritten, too. ::umfRecordStop and the end of the process then log the
    /// live allocations, and those that lived when their pool was destroyed.
    /// ::UMF_RECORD_LEAKS_ALLOW_DESTROYED leaves out the latter: for programs that free all memory
    /// of a pool at once, by its end.
    int leaks;
    /// Only allocations of at least so many bytes; 0: no limit.
    size_t min_size;
    /// Only allocations of at most so many bytes; 0: no limit.
    size_t max_size;
    /// Only one allocation of about so many, and its free; 0 and 1: all.
    size_t rate;
    /// Only these pools; NULL: all, also those that are created later.
    const umf_memory_pool_handle_t *pools;
    /// How many there are.
    size_t pool_count;
} umf_record_params_t;

/// @brief Everything, without stacks, in memory.
#define UMF_RECORD_PARAMS_INIT                                                                     \
    { sizeof(umf_record_params_t), NULL, 0, 0, 0, 0, 0, 0, NULL, 0 }

/// @brief Starts to record.
///
/// Objects that exist already are part of the recording. Of earlier allocations only the frees are
/// recorded.
///
/// @param params NULL: ::UMF_RECORD_PARAMS_INIT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the struct's size is too
///         small, the path is empty or too long, a size or the depth is out of range, `min_size`
///         is above `max_size`, a pool is none, or only one of `pools` and `pool_count` is given;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if a recording is running already, or the file
///         cannot be made, which the log explains; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRecordStart(const umf_record_params_t *params);

/// @brief Ends the recording. Its file is complete on return. Without a path it is gone.
///
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if nothing is recorded
umf_result_t umfRecordStop(void);

/// @brief Writes a copy of the running recording to a file.
///
/// @param path the file, for its user only, which is replaced if it exists
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` is NULL, is no
///         regular file (a device, a pipe, a link) or nothing
///         is recorded; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the file cannot be written, with the
///         reason in the log; no file remains
umf_result_t umfRecordSave(const char *path);

/// @brief Records a mark. Without a recording it does nothing.
///
/// @param name text, of which the first 255 bytes count; the same text again takes no more room
/// @return ::UMF_RESULT_SUCCESS, also if nothing is recorded;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `name` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the recording has no room for another name
umf_result_t umfRecordMark(const char *name);

/// @brief Writes a snapshot: every pool and provider with its figures, every span, and the blocks
///        of each as far as the pool can list them. Needs no recording. If one with `leaks` runs,
///        the snapshot has the live allocations, too, with stacks.
///
/// The snapshot is consistent for each pool. No lock is held for long: threads go on.
///
/// @param path the file, for its user only, which is replaced if it exists
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` is NULL, is no
///         regular file (a device, a pipe, a link);
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the file cannot be written, with the reason in
///         the log; no file remains; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRecordSnapshot(const char *path);

/// @brief How a recording does.
typedef struct umf_record_state_report_t {
    /// sizeof(umf_record_state_report_t) of the headers it was compiled with.
    size_t struct_size;
    /// 1: it is running. If it is not, all that follows is 0.
    int is_running;
    /// Events so far.
    unsigned long long events;
    /// Those of them that are lost because there was no room.
    unsigned long long dropped;
    /// Allocations that live, of those recorded; 0 without `leaks`.
    unsigned long long live_count;
    /// Their bytes.
    unsigned long long live_bytes;
    /// Bytes of the file that are in use.
    size_t used;
} umf_record_state_report_t;

/// @brief Only the size set.
#define UMF_RECORD_STATE_REPORT_INIT                                                               \
    { sizeof(umf_record_state_report_t), 0, 0, 0, 0, 0, 0 }

/// @brief Tells how the recording does.
///
/// @param report [out] `struct_size` is set by the caller
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `report` is NULL or its
///         size too small
umf_result_t umfRecordGetState(umf_record_state_report_t *report);

#ifdef __cplusplus
}
#endif

#endif
