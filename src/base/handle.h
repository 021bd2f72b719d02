/*
 * Live handles. Every handle that a caller passes is looked up here before anything reads through
 * it. So a destroyed handle, one of another kind, and garbage are refused. Functions that allocate
 * and free memory skip this check.
 *
 * A destroy while another thread uses the object is not caught: the lookup returns the state at its
 * own time.
 */
#ifndef UMF_SRC_BASE_HANDLE_H
#define UMF_SRC_BASE_HANDLE_H

#include <stdbool.h>

#include "system/common.h"

/* One constant for each kind of handle; its address distinguishes the kinds. */
typedef struct umf_handle_kind_t {
    const char *name; /* with its article: "a pool" */
} umf_handle_kind_t;

/* Makes a handle alive. OUT_OF_HOST_MEMORY, logged. Handles are multiples of 16. */
umf_result_t umf_handle_begin(const void *handle, const umf_handle_kind_t *kind);
/* Zeroed memory for an object, which is a live handle of that kind. NULL: no memory, logged. */
void *umf_handle_new(size_t size, const umf_handle_kind_t *kind);
/* Undoes umf_handle_new. NULL is ignored. INVALID_ARGUMENT: the handle is not alive, logged. */
umf_result_t umf_handle_delete(void *handle, size_t size, const umf_handle_kind_t *kind,
                               const char *function);
/* Ends the life of a handle. false: it was not alive, which is logged with the name of the public
 * function that was called. If several threads end it at once, one of them succeeds. */
bool umf_handle_end(const void *handle, const umf_handle_kind_t *kind, const char *function);

/* The kind of a live handle. NULL: it is not alive. Takes no lock. */
const umf_handle_kind_t *umf_handle_kind(const void *handle);

/* Logs the kind of the handle, and the expected kind ("a pool"). */
UMF_COLD void umf_handle_refuse(const void *handle, const char *requested, const char *function);

static inline bool umf_handle_check(const void *handle, const umf_handle_kind_t *kind,
                                    const char *function) {
    bool is_right = umf_likely(umf_handle_kind(handle) == kind);
    if (umf_unlikely(!is_right)) {
        umf_handle_refuse(handle, kind->name, function);
    }
    return is_right;
}

#endif
