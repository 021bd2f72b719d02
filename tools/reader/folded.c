/* Stacks with weights: frames by name, so that calls from several places in a function are one. */
#include "folded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"

#define NAME 256

const char *const folded_titles[FOLDED_WEIGHTS] = {
    [FOLDED_LIVE] = "live at the end",
    [FOLDED_PEAK] = "live at the highest point",
    [FOLDED_BYTES] = "allocated in total",
    [FOLDED_ALLOCS] = "allocations in total",
};

/* A table that is being made: names by their hash, and the names of addresses that were met. */
typedef struct making_t {
    folded_t *folded;
    umf_reader_t *reader;
    uint32_t *slots; /* name + 1; 0: free */
    size_t slot_count;
    size_t name_room, frame_room, stack_room;
} making_t;

static bool grow(void **items, size_t *room, size_t count, size_t size) {
    if (count < *room) {
        return true;
    }
    size_t more = *room ? 2 * *room : 256;
    void *grown = more > SIZE_MAX / size ? NULL : realloc(*items, more * size);
    if (grown) {
        *items = grown;
        *room = more;
    }
    return grown != NULL;
}

/* --- names ------------------------------------------------------------------------------------ */

static size_t hash_of(const char *text) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    }
    return (size_t)(hash ^ hash >> 32);
}

/* The slot that has the name, or the free one where it belongs. */
static uint32_t *slot_of(making_t *making, const char *name) {
    size_t at = hash_of(name) & (making->slot_count - 1);
    while (making->slots[at] && strcmp(making->folded->names[making->slots[at] - 1], name) != 0) {
        at = (at + 1) & (making->slot_count - 1);
    }
    return &making->slots[at];
}

static bool widen(making_t *making) {
    uint32_t *old = making->slots;
    size_t count = making->slot_count ? 2 * making->slot_count : 1024;
    uint32_t *slots = calloc(count, sizeof(*slots));
    if (!slots) {
        return false;
    }
    making->slots = slots;
    making->slot_count = count;
    for (size_t i = 0; i < making->folded->name_count; i++) {
        *slot_of(making, making->folded->names[i]) = (uint32_t)i + 1;
    }
    free(old);
    return true;
}

/* The index of a name, which is added if it is new. False: no memory. */
static bool number_of(making_t *making, const char *name, uint32_t *number) {
    folded_t *folded = making->folded;
    if (2 * folded->name_count >= making->slot_count && !widen(making)) {
        return false;
    }
    uint32_t *slot = slot_of(making, name);
    if (*slot == 0) {
        char *copy = NULL;
        if (folded->name_count >= UINT32_MAX - 1 ||
            !grow((void **)&folded->names, &making->name_room, folded->name_count,
                  sizeof(*folded->names)) ||
            !(copy = strdup(name))) {
            return false;
        }
        folded->names[folded->name_count++] = copy;
        *slot = (uint32_t)folded->name_count;
    }
    *number = *slot - 1;
    return true;
}

static bool add_frame(making_t *making, const char *name) {
    folded_t *folded = making->folded;
    uint32_t number;
    if (!number_of(making, name, &number) || !grow((void **)&folded->frames, &making->frame_room,
                                                   folded->frame_count, sizeof(*folded->frames))) {
        return false;
    }
    folded->frames[folded->frame_count++] = number;
    return true;
}

/* Functions without the place in them, else the place in the module; the outermost first. */
static bool add_address(making_t *making, uint64_t address) {
    const umf_reader_frame_t *frames;
    size_t count = umf_reader_resolve_all(making->reader, address, &frames);
    bool is_added = true;
    while (is_added && count > 0) {
        const umf_reader_frame_t *frame = &frames[--count];
        const char *slash = strrchr(frame->module, '/');
        char text[NAME];
        if (frame->function) {
            snprintf(text, sizeof(text), "%.180s (%.64s)", frame->function,
                     slash ? slash + 1 : frame->module);
        } else {
            umf_reader_frame_text(frame, text, sizeof(text));
        }
        is_added = add_frame(making, text);
    }
    return is_added;
}

/* --- stacks ----------------------------------------------------------------------------------- */

static bool add_site(making_t *making, const umf_reader_site_t *site) {
    folded_t *folded = making->folded;
    char label[NAME];
    const uint64_t *addresses;
    size_t count = umf_reader_caller_stack(making->reader, site->stack, &addresses);
    if (!grow((void **)&folded->stacks, &making->stack_room, folded->stack_count,
              sizeof(*folded->stacks))) {
        return false;
    }
    folded_stack_t *stack = &folded->stacks[folded->stack_count++];
    *stack = (folded_stack_t){
        .begin = folded->frame_count,
        .weights = {[FOLDED_LIVE] = site->use.bytes,
                    [FOLDED_PEAK] = site->use.peak_bytes,
                    [FOLDED_BYTES] = site->alloc_bytes,
                    [FOLDED_ALLOCS] = site->allocs},
    };
    bool is_added =
        add_frame(making, umf_reader_label(making->reader, site->object, label, sizeof(label)));
    while (is_added && count > 0) {
        is_added = add_address(making, addresses[--count]);
    }
    stack->end = folded->frame_count;
    return is_added;
}

static bool add_sites(making_t *making, umf_reader_replay_t *replay, umf_reader_error_t *error) {
    const umf_reader_site_t *site;
    for (uint32_t i = 0; (site = umf_reader_replay_site(replay, i)) != NULL; i++) {
        if (!add_site(making, site)) {
            return reader_fail(error, "%s: there is no memory for its stacks",
                               umf_reader_info(making->reader)->name);
        }
    }
    return true;
}

bool folded_load(folded_t *folded, umf_reader_t *reader, umf_reader_error_t *error) {
    *folded = (folded_t){0};
    making_t making = {.folded = folded, .reader = reader};
    umf_reader_replay_t *replay = umf_reader_replay_begin(reader, error);
    bool is_loaded = replay && umf_reader_replay_run(replay, INT64_MAX, error) &&
                     add_sites(&making, replay, error);
    folded->peak_ns = is_loaded ? umf_reader_replay_total(replay)->peak_ns : 0;
    umf_reader_replay_free(replay);
    free(making.slots);
    return is_loaded;
}

void folded_end(folded_t *folded) {
    for (size_t i = 0; i < folded->name_count; i++) {
        free(folded->names[i]);
    }
    free(folded->names);
    free(folded->frames);
    free(folded->stacks);
}
