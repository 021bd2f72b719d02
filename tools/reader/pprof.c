/*
 * pprof's profile.proto, not compressed: a location for each frame by name, since frames of a
 * recording have names here and no addresses that pprof could look up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "folded.h"
#include "own.h"
#include "protobuf.h"

/* Numbers of the members in the messages. */
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_TIME = 9,
    PROFILE_DEFAULT = 14,
    TYPE_NAME = 1,
    TYPE_UNIT = 2,
    SAMPLE_LOCATIONS = 1,
    SAMPLE_VALUES = 2,
    MAPPING_ID = 1,
    MAPPING_HAS_FUNCTIONS = 7,
    LOCATION_ID = 1,
    LOCATION_MAPPING = 2,
    LOCATION_LINE = 4,
    LINE_FUNCTION = 1,
    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
};

/* The texts before the names of frames. */
static const char *const first_texts[] = {"",      "live", "peak", "allocated", "allocations",
                                          "bytes", "count"};
enum { TEXT_LIVE = 1, TEXT_BYTES = 5, TEXT_COUNT = 6, FIRST_TEXTS = 7 };

/* --- the profile ------------------------------------------------------------------------------ */

typedef struct profile_t {
    const folded_t *folded;
    message_t whole, part, inner;
} profile_t;

static void put_types(profile_t *profile) {
    for (unsigned weight = 0; weight < FOLDED_WEIGHTS; weight++) {
        put_varint(&profile->part, TYPE_NAME, TEXT_LIVE + weight);
        put_varint(&profile->part, TYPE_UNIT, weight == FOLDED_ALLOCS ? TEXT_COUNT : TEXT_BYTES);
        put_message(&profile->whole, PROFILE_SAMPLE_TYPE, &profile->part);
    }
    put_varint(&profile->whole, PROFILE_DEFAULT, TEXT_LIVE + FOLDED_PEAK);
}

/* Locations are numbered from 1; the innermost comes first. */
static void put_sample(profile_t *profile, const folded_stack_t *stack) {
    for (size_t at = stack->end; at > stack->begin; at--) {
        put_number(&profile->inner, (uint64_t)profile->folded->frames[at - 1] + 1);
    }
    put_message(&profile->part, SAMPLE_LOCATIONS, &profile->inner);
    for (size_t weight = 0; weight < FOLDED_WEIGHTS; weight++) {
        put_number(&profile->inner, stack->weights[weight]);
    }
    put_message(&profile->part, SAMPLE_VALUES, &profile->inner);
    put_message(&profile->whole, PROFILE_SAMPLE, &profile->part);
}

/* One mapping for all: pprof could do without, but not every viewer of its files. */
static void put_mapping(profile_t *profile) {
    put_varint(&profile->part, MAPPING_ID, 1);
    put_varint(&profile->part, MAPPING_HAS_FUNCTIONS, true);
    put_message(&profile->whole, PROFILE_MAPPING, &profile->part);
}

static void put_frame(profile_t *profile, size_t name) {
    put_varint(&profile->inner, LINE_FUNCTION, name + 1);
    put_varint(&profile->part, LOCATION_ID, name + 1);
    put_varint(&profile->part, LOCATION_MAPPING, 1);
    put_message(&profile->part, LOCATION_LINE, &profile->inner);
    put_message(&profile->whole, PROFILE_LOCATION, &profile->part);
    put_varint(&profile->part, FUNCTION_ID, name + 1);
    put_varint(&profile->part, FUNCTION_NAME, FIRST_TEXTS + name);
    put_message(&profile->whole, PROFILE_FUNCTION, &profile->part);
}

static void put_texts(profile_t *profile) {
    for (size_t i = 0; i < FIRST_TEXTS; i++) {
        put_part(&profile->whole, PROFILE_STRING, first_texts[i], strlen(first_texts[i]));
    }
    for (size_t i = 0; i < profile->folded->name_count; i++) {
        const char *name = profile->folded->names[i];
        put_part(&profile->whole, PROFILE_STRING, name, strlen(name));
    }
}

bool umf_reader_export_pprof(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    folded_t folded;
    profile_t profile = {.folded = &folded};
    bool is_done = folded_load(&folded, reader, error);
    if (is_done) {
        put_types(&profile);
        for (size_t i = 0; i < folded.stack_count; i++) {
            put_sample(&profile, &folded.stacks[i]);
        }
        put_mapping(&profile);
        for (size_t i = 0; i < folded.name_count; i++) {
            put_frame(&profile, i);
        }
        put_texts(&profile);
        put_varint(&profile.whole, PROFILE_TIME, umf_reader_info(reader)->realtime);
        is_done = !profile.whole.has_failed || reader_fail(error, "there is no memory for it");
    }
    if (is_done) {
        fwrite(profile.whole.bytes, 1, profile.whole.size, out);
        is_done = (fflush(out) == 0 && !ferror(out)) ||
                  reader_fail(error, "the profile could not be written: %s", strerror(errno));
    }
    free(profile.whole.bytes);
    free(profile.part.bytes);
    free(profile.inner.bytes);
    folded_end(&folded);
    return is_done;
}
