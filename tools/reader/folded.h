/* Stacks of a recording with what their allocations weigh, for exports that fold stacks. */
#ifndef UMF_READER_FOLDED_H
#define UMF_READER_FOLDED_H

#include "reader.h"

enum {
    FOLDED_LIVE,   /* bytes that live at the end */
    FOLDED_PEAK,   /* bytes that lived at the highest point of all pools */
    FOLDED_BYTES,  /* bytes that were allocated, freed or not */
    FOLDED_ALLOCS, /* allocations */
    FOLDED_WEIGHTS
};

typedef struct folded_stack_t {
    size_t begin, end; /* in `frames`: the pool, then the outermost function, ... */
    uint64_t weights[FOLDED_WEIGHTS];
} folded_stack_t;

typedef struct folded_t {
    char **names; /* of frames, each once */
    size_t name_count;
    uint32_t *frames; /* indices of names */
    size_t frame_count;
    folded_stack_t *stacks;
    size_t stack_count; /* they have the order of the sites of a replay */
    int64_t peak_ns;    /* when all pools had the most */
} folded_t;

/* The unit of the weights, for people and for programs. */
extern const char *const folded_titles[FOLDED_WEIGHTS];

/* Replays the whole recording. False: `error` says why. `folded` is to be ended in any case. */
bool folded_load(folded_t *folded, umf_reader_t *reader, umf_reader_error_t *error);
void folded_end(folded_t *folded);

#endif
