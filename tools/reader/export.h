/* Writes recordings in the formats of others. False: `error` says why; the output is no whole file
 * then. */
#ifndef UMF_READER_EXPORT_H
#define UMF_READER_EXPORT_H

#include <stdio.h>

#include "reader.h"

/*
 * The JSON of Chrome's trace viewer, which Perfetto reads, too: a counter for each pool with what
 * lives and what it keeps free, instants for marks and refusals, slices for suspends. A counter has
 * no more points than a screen; the highest is always among them.
 */
bool umf_reader_export_chrome(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/*
 * A snapshot as torch.cuda.memory makes them: a pickle. Spans of providers are its segments, the
 * memory of all pools is that of device 0, queues are streams. Of more than a million events the
 * last million is written.
 */
bool umf_reader_export_pytorch(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/*
 * Stacks with the bytes that lived at the highest point, one in a line, the pool first and the
 * innermost function last: what flame graph tools read.
 */
bool umf_reader_export_collapsed(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/*
 * The JSON of speedscope, with four profiles of the same stacks: bytes that live at the end, that
 * lived at the highest point, that were allocated, and the number of allocations. The same as a
 * profile of pprof, with four sample types.
 */
bool umf_reader_export_speedscope(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);
bool umf_reader_export_pprof(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/*
 * A trace of Perfetto: counters of the live and held bytes of each pool, an instant for each mark
 * and refusal, and heap profiles of about twenty moments and of the highest point, by stack.
 */
bool umf_reader_export_perfetto(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

#endif
