/*
 * Handles that are alive. What a caller gives as a handle is looked up here before anything reads
 * through it, so that a destroyed one, one of another kind and garbage are refused. Functions that
 * allocate and free memory do not ask.
 *
 * Destroying an object while another thread uses it is not caught: the lookup tells what was true
 * when it was made.
 */
#ifndef UMF_SRC_BASE_HANDLE_H
#define UMF_SRC_BASE_HANDLE_H

#include <stdbool.h>

#include "system/common.h"

/* One constant for each kind of handle; its address tells the kinds apart. */
typedef struct umf_handle_kind_t {
    const char *name; /* with its article: "a pool" */
} umf_handle_kind_t;

/* The handle is alive from here on. OUT_OF_HOST_MEMORY, logged. Handles are multiples of 16. */
umf_result_t umf_handle_begin(const void *handle, const umf_handle_kind_t *kind);
/* Zeroed memory for an object, alive as a handle of that kind. NULL: no memory, logged. */
void *umf_handle_new(size_t size, const umf_handle_kind_t *kind);
/* Undoes it; NULL is ignored. INVALID_ARGUMENT as umf_handle_end. */
umf_result_t umf_handle_delete(void *handle, size_t size, const umf_handle_kind_t *kind,
                               const char *function);
/* It is not any more. false: it was not; of several that end it at once, one does. Logged with the
 * name of the public function that was called. */
bool umf_handle_end(const void *handle, const umf_handle_kind_t *kind, const char *function);

/* The kind of a live handle, NULL: it is none. No lock is taken. */
const umf_handle_kind_t *umf_handle_kind(const void *handle);

/* Says what the handle is instead of what is wanted ("a pool"). */
UMF_COLD void umf_handle_refuse(const void *handle, const char *wanted, const char *function);

static inline bool umf_handle_check(const void *handle, const umf_handle_kind_t *kind,
                                    const char *function) {
    bool is_right = umf_likely(umf_handle_kind(handle) == kind);
    if (umf_unlikely(!is_right)) {
        umf_handle_refuse(handle, kind->name, function);
    }
    return is_right;
}

#endif
