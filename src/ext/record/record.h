/*
 * Recordings (umf/record.h): what umf.c calls.
 */
#ifndef UMF_SRC_EXT_RECORD_RECORD_H
#define UMF_SRC_EXT_RECORD_RECORD_H

#include "system/common.h"

/* Registers the settings "umf.record". Called at each start of the library, before the settings are
 * read. */
void umf_record_settings_init(void);

/* Starts the recording that UMF_RECORD describes. Called at each start of the library, as its last
 * step, with no lock held; only the first call has an effect. */
void umf_record_init(void);

/* Ends a recording that runs. */
void umf_record_fini(void);

/* A child of fork does not record, or into a file of its own. Called after umf_fork_register_outer,
 * so that the child's locks are free by then. */
void umf_record_fork_register(void);

/* A copy of the descriptor of the running recording's file. EBADF: nothing is recorded, or the
 * program has closed it. */
int umf_record_dup(int *fd);

/* The generation of the running recording, which differs from all others; 0: nothing is recorded.
 */
uint64_t umf_record_generation(void);
/* Ends the recording of that generation, if it is the one that runs. */
void umf_record_stop_this(uint64_t generation);

/* The header of the running recording's file, with the numbers of its writer, which another program
 * that writes to the file cannot change. EBADF: nothing is recorded. */
struct umf_record_header_t;
int umf_record_header(struct umf_record_header_t *header);

#endif
