/*
 * Recordings (umf/record.h): what umf.c calls.
 */
#ifndef UMF_SRC_RECORD_RECORD_H
#define UMF_SRC_RECORD_RECORD_H

#include "system/common.h"

/* Registers the settings "umf.record". Called at each start of the library, before the settings are
 * read. */
void umf_record_settings_init(void);

/* Starts what UMF_RECORD asks for. Called at each start of the library, as its last step. */
void umf_record_init(void);

#endif
