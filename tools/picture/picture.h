/*
 * The picture of a recording or a snapshot: one HTML file that needs no network and nothing but it.
 * Its size does not grow with the number of events: time is cut into bins, pools and stacks beyond
 * the largest are summed up, and omissions are noted. The viewer is page.html, picture.css and the
 * scripts of this folder, which the build embeds; the data is JSON in an element that is not
 * executed, with every `<` escaped. Its members:
 *
 * - file: its kind, times in ms or ns, losses; `notes`: oddities found by the reader
 * - objects: pools and providers that something else refers to
 * - frames: [function, module]
 * - stacks: lists of frames, the innermost first
 * - sites: [object, stack], where live memory was allocated; -1: none
 * - timeline: `pools`, `site_bytes`, `site_counts`: values at the end of each bin, or at the peak
 * or a refusal in it, as differences, where [n] stands for n times 0 and zeros at the end are left
 * out; `top`: the highest sum within each bin; `rest_*`: sites that are not listed; `arenas`: sums
 * of pages, of the pool with that index in `pools`
 * - marks: what happened at one moment
 * - refusals: when pools found no memory, and who had it
 * - maps: for each pool spans [address, size, flags, cells] and frames: levels (a to p, 0 to 15) of
 *   all cells of all spans, each letter followed by how often it comes
 * - allocs: [address, size, object, stack, time, thread] of the largest that live at the end
 *
 * No function here prints, exits or has state outside its arguments.
 */
#ifndef UMF_PICTURE_H
#define UMF_PICTURE_H

#include "../reader/reader.h"

/* Takes a part of the file; false: it could not, and no more comes. */
typedef bool (*umf_picture_sink_t)(void *arg, const char *bytes, size_t size);

/* False: `error` says why; the output so far is no page then. */
bool umf_picture_write(umf_reader_t *reader, umf_picture_sink_t sink, void *arg,
                       umf_reader_error_t *error);

#endif
