/* Definitions shared by the files of the reader. */
#ifndef UMF_READER_OWN_H
#define UMF_READER_OWN_H

#include "reader.h"

#define NOTES 16u

/* Where the bytes come from: a descriptor, or memory if `bytes` is not NULL. */
typedef struct reader_source_t {
    int fd;
    const unsigned char *bytes;
    uint64_t size;
} reader_source_t;

/* A block that has events. */
typedef struct reader_block_t {
    uint64_t number;
    uint64_t place; /* index of the block in the file */
    uint32_t thread, count;
    const umf_record_event_t *events;
} reader_block_t;

struct symbols_t;

struct umf_reader_t {
    umf_reader_info_t info;
    char *name;
    reader_source_t source;
    umf_record_header_t header;

    umf_record_object_t *objects;
    char *texts; /* with a zero after the end */
    uint64_t text_bytes;
    umf_record_module_t *modules;
    uint64_t *stack_items;
    uint64_t stack_item_count;
    uint32_t *stack_starts; /* by number of the stack: its first item */
    uint32_t *stack_of_item;
    umf_reader_live_t *live;
    size_t live_count;
    umf_record_span_t *spans;
    size_t span_count;
    umf_record_run_t *runs;
    size_t run_count;
    umf_record_name_t *names; /* by address */
    size_t name_count;
    char *name_texts; /* with a zero after the end */
    uint64_t name_text_bytes;

    reader_block_t *blocks; /* of one thread side by side, by number */
    size_t block_count;
    umf_record_event_t *events;
    uint32_t *threads;
    size_t *thread_blocks; /* the first block of each thread, and the end */

    bool *left_out; /* by number of the object; NULL: none is */

    double ns_per_tick;
    struct symbols_t *symbols;
    bool uses_servers;
    void (*progress)(uint64_t done, uint64_t total); /* NULL: nobody asked */
    umf_reader_frame_t unknown; /* the frame of an address while there is no memory */
    char *notes[NOTES + 1];
};

/* Fills in `error`, which may be NULL. Returns false. */
bool reader_fail(umf_reader_error_t *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void reader_note(umf_reader_t *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads as much of the bytes as the file has, and fills up with zeroes. Returns how much it had. */
size_t reader_read(const reader_source_t *source, uint64_t offset, void *to, size_t size);

/* The next place from `offset` on that is no hole in the file; its size if there is none. */
uint64_t reader_next_data(const reader_source_t *source, uint64_t offset);

/* Memory for `count` items, at least one, filled with zeroes. Refuses what this machine does not
 * have. NULL: `error` says why. */
void *reader_memory(const umf_reader_t *reader, uint64_t count, size_t size,
                    umf_reader_error_t *error);

/* Items of a section that the file really has. */
uint64_t reader_capacity(const umf_reader_t *reader, umf_record_section_kind_t kind);

/* Each false: `error` says why. */
bool reader_check_header(umf_reader_t *reader, umf_reader_error_t *error);
bool reader_load_tables(umf_reader_t *reader, umf_reader_error_t *error);
bool reader_load_stacks(umf_reader_t *reader, umf_reader_error_t *error);
bool reader_load_blocks(umf_reader_t *reader, umf_reader_error_t *error);
bool reader_load_live(umf_reader_t *reader, umf_reader_error_t *error);
bool reader_load_names(umf_reader_t *reader, umf_reader_error_t *error);

#define READER_INLINED_MOST 16u /* frames of one address */

/* The items of an address in the file's names; returns how many, at most READER_INLINED_MOST. */
size_t reader_names_of(const umf_reader_t *reader, uint64_t address,
                       const umf_record_name_t **names);

/* Applies an event of the object that has the pages. */
void reader_pages_apply(umf_reader_pages_t *pages, const umf_reader_event_t *event);

/* The parts of umf_record_event_t::what, in range. */
uint32_t reader_object_of(const umf_reader_t *reader, uint64_t what);
uint32_t reader_stack_of(const umf_reader_t *reader, uint64_t what);

/* From now on what this machine has comes first, and the names in the file are used for the rest.
 * Frames that were resolved before are not valid any more. */
void reader_resolve_here(umf_reader_t *reader);
void reader_symbols_free(struct symbols_t *symbols);

#endif
