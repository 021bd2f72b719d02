/*
 * The view of a process: its pools and providers, read from its memory (umf/view_format.h). The
 * process takes no part in it.
 *
 * All that is read is hostile. Addresses are only passed to the kernel, offsets, counts and texts
 * are bounded, and a read has a budget of bytes and time, so it ends whatever the process writes
 * meanwhile. What cannot be had is UMF_RECORD_UNKNOWN.
 */
#ifndef UMFCTL_VIEW_VIEW_H
#define UMFCTL_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/record_format.h>

#define UMF_VIEW_ROWS 1024

typedef struct umf_view_row_t {
    umf_record_object_t object; /* its parent is a row's index + 1 */
    char kind[16];
    bool has_pages; /* they move; the rest is theirs */
    uint64_t spare, stale, moved;
    uint64_t refusals; /* of a pool: requests that its provider or its group refused */
} umf_view_row_t;

typedef struct umf_view_rows_t {
    bool is_cut; /* there are more */
    bool is_out; /* the budget was spent: what follows from spans is not known */
    uint32_t count;
    umf_view_row_t rows[UMF_VIEW_ROWS];
    char error[256]; /* of a failure */
} umf_view_rows_t;

/* Memory, and what may still be read of it. */
typedef struct umf_view_source_t {
    bool (*read)(void *arg, uint64_t at, void *to, size_t size);
    void *arg;
    uint64_t left; /* bytes */
    uint64_t end;  /* by CLOCK_MONOTONIC, in nanoseconds */
} umf_view_source_t;

/* false: it cannot be read, or the budget is spent. `to` is undefined then. */
bool umf_view_get(umf_view_source_t *source, uint64_t at, void *to, size_t size);
bool umf_view_is_out(umf_view_source_t *source);

/* The address of the table that the ELF object at `base` names. 0: it names none. */
uint64_t umf_view_find(umf_view_source_t *source, uint64_t base);
/* Adds the rows of that table. false: `error` says why not. */
bool umf_view_add(umf_view_source_t *source, uint64_t table, umf_view_rows_t *rows);

/* process.c: a look at a process, in a child that reads its memory for so many milliseconds. Looks
 * at several processes may go on at once. */
typedef struct umf_view_child_t {
    int child, fd;
    uint64_t end;
    void *shared;
} umf_view_child_t;
umf_view_child_t umf_view_begin(uint32_t pid, unsigned ms);
/* false: `error` says why there are no rows. */
bool umf_view_end(umf_view_child_t *child, uint32_t pid, umf_view_rows_t *rows);

/* The processes that have a libumf mapped and that this user may look at; returns how many. */
size_t umf_view_list(uint32_t *pids, size_t most, unsigned ms);

#endif
