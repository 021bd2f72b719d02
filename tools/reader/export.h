/* Writes recordings in the formats of others. False: `error` says why; the output is no whole file
 * then. */
#ifndef UMF_READER_EXPORT_H
#define UMF_READER_EXPORT_H

#include <stdio.h>

#include "reader.h"

/*
 * The JSON of Chrome's trace viewer, which Perfetto reads, too: a counter for each pool with what
 * lives and what it keeps free, instants for marks and refusals, slices for sleep. A counter has no
 * more points than a screen; the highest is always among them.
 */
bool umf_reader_export_chrome(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/*
 * A snapshot as torch.cuda.memory makes them: a pickle. Spans of providers are its segments, the
 * memory of all pools is that of device 0, queues are streams. Of more than a million events the
 * last million is written.
 */
bool umf_reader_export_pytorch(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

#endif
