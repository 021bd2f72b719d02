/*
 * Stage: copies in parts, by several threads. Each thread has a buffer of two halves, so that one
 * is filled while the other is emptied.
 *
 * A row of bytes is copied between two ends. An end is a range of memory, or has functions
 * that give and take parts of a row: files, pieces of memory at many addresses.
 */
#ifndef UMF_SRC_EXT_STAGING_STAGE_H
#define UMF_SRC_EXT_STAGING_STAGE_H

#include "ext/staging/undone.h"

/* All parts but the last have this size, or divide it. */
#define UMF_STAGE_PART ((size_t)8 << 20)

typedef struct umf_stage_end_t umf_stage_end_t;
struct umf_stage_end_t {
    /* Its provider copies, on a queue. NULL: the calling thread does. */
    const umf_operand_t *operand;
    const void *what; /* for the operations below */
    /* Copies `size` bytes at `at` of the row into the buffer, or out of it. Without a queue it is
     * done on return. */
    umf_result_t (*copy)(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                         char *buffer, bool is_into_buffer);
    /* NULL, or: parts need no buffer, because the other end copies straight to and from here. */
    char *(*locate)(const umf_stage_end_t *end, size_t at);
    umf_undone_memory_t *memory; /* the located memory, if it is of the library; else NULL */
};

/* An operation `copy` of an end whose operand's provider copies; `what` is the address of the
 * memory. */
umf_result_t umf_stage_copy_by_provider(const umf_stage_end_t *end, void *queue, size_t at,
                                        size_t size, char *buffer, bool is_into_buffer);

/* The host waits for the work. On a failure `*done` is the number of bytes from the start that are
 * right. */
umf_result_t umf_stage_run(const umf_stage_end_t *to, const umf_stage_end_t *from, size_t size,
                           size_t *done);

#endif
