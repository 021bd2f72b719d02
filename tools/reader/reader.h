/*
 * Reads recordings and snapshots (umf/record_format.h): of writers that are alive, that died, and
 * of unknown ones. It needs libc only, trusts nothing in a file, prints nothing and has no state
 * outside its objects. An object is used by one thread at a time.
 *
 * A file is copied into memory as it is opened, so nothing changes or shrinks underneath. Indices
 * that this interface hands out are in range, texts have an end, times are nanoseconds since the
 * recording's start. Faults of the file that could be left out are texts of umf_reader_note.
 */
#ifndef UMF_READER_H
#define UMF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/record_format.h>

typedef struct umf_reader_t umf_reader_t;

/* Why something could not be done: the file, the place in it, the value. */
typedef struct umf_reader_error_t {
    char text[512];
} umf_reader_error_t;

/* NULL: `error` says why. `name` is what messages call the file. */
umf_reader_t *umf_reader_open(const char *path, umf_reader_error_t *error);
umf_reader_t *umf_reader_open_fd(int fd, const char *name, umf_reader_error_t *error);
umf_reader_t *umf_reader_open_bytes(const void *bytes, size_t size, const char *name,
                                    umf_reader_error_t *error);
void umf_reader_close(umf_reader_t *reader);

/*
 * Selects a part: from now on the reader hands out the events and the live allocations of it, as if
 * the recording had begun at `from` and ended at `to`, and the process had had only the pools of
 * that name. Called before events are read, and once.
 */
typedef struct umf_reader_part_t {
    int64_t from, to; /* times, both included; INT64_MIN and INT64_MAX: the whole */
    const char *pool; /* its name, or its label; NULL: all */
} umf_reader_part_t;
/* False: `error` says why. */
bool umf_reader_select(umf_reader_t *reader, const umf_reader_part_t *part,
                       umf_reader_error_t *error);
/* Is a time selected? Then the section UMF_RECORD_LIVE, which is of the end, has no answers. */
bool umf_reader_has_times(const umf_reader_t *reader);
/* Is the object a pool that is not selected? */
bool umf_reader_is_left_out(const umf_reader_t *reader, uint32_t number);

/* The time of the first mark with this text. False: `error` says why. */
bool umf_reader_find_mark(const umf_reader_t *reader, const char *text, int64_t *ns,
                          umf_reader_error_t *error);

/* --- content of the file ---------------------------------------------------------------------- */

typedef struct umf_reader_info_t {
    const char *name;
    umf_record_file_kind_t kind;
    uint32_t flags; /* umf_record_flag_t */
    uint32_t pid;
    uint64_t realtime; /* of the start, CLOCK_REALTIME in ns */
    uint64_t dropped, live_dropped, rate, min_size, max_size; /* see umf_record_header_t */
    uint64_t ended_count, ended_bytes;                        /* likewise */
    uint64_t event_count;      /* in the blocks; those of an unknown kind are not handed out */
    int64_t first_ns, last_ns; /* times of the first and the last event; 0 without any */
    int64_t from_ns, to_ns;    /* of umf_reader_part_t */
    uint32_t object_count;     /* numbers are 1 to object_count - 1 */
    uint32_t stack_count;      /* likewise */
    uint32_t thread_count;     /* indices are 0 to thread_count - 1 */
    uint64_t older_count;      /* events of memory that lived before the recording began */
    uint32_t module_count;
} umf_reader_info_t;

const umf_reader_info_t *umf_reader_info(const umf_reader_t *reader);

/* Oddities of the file, one text each; NULL after the last. */
const char *umf_reader_note(const umf_reader_t *reader, size_t index);

/* A pool or provider; one with kind 0 and an empty name if there is no such number. */
const umf_record_object_t *umf_reader_object(const umf_reader_t *reader, uint32_t number);

/* Its name as people see it, such as "disjoint #3"; returns `text`. */
const char *umf_reader_label(const umf_reader_t *reader, uint32_t number, char *text, size_t size);

/* The text at an offset in UMF_RECORD_TEXTS; "" if there is none. */
const char *umf_reader_text(const umf_reader_t *reader, uint64_t offset);

/* What gettid said in the thread with this index. */
uint32_t umf_reader_thread(const umf_reader_t *reader, uint32_t index);

/* Nanoseconds since the start, of a reading of the recording's clock. */
int64_t umf_reader_ns(const umf_reader_t *reader, uint64_t ticks);

/* The spans of a snapshot, and the runs that they refer to. */
const umf_record_span_t *umf_reader_spans(const umf_reader_t *reader, size_t *count);
const umf_record_run_t *umf_reader_runs(const umf_reader_t *reader, size_t *count);

/* --- stacks ----------------------------------------------------------------------------------- */

typedef struct umf_reader_frame_t {
    const char *module;    /* path of the file; "" if the address is in none */
    const char *function;  /* NULL: not known */
    uint64_t offset;       /* in the function, else in the module's file, else the address */
    const char *source;    /* path of the source file; NULL: not known */
    uint32_t line;         /* 0: not known */
    bool is_inlined;       /* in the next frame of the same address */
    bool is_other_version; /* the file has another build id than the process had */
} umf_reader_frame_t;

/* The frames of a stack, the innermost first; returns how many. Stack 0 has none. */
size_t umf_reader_stack(const umf_reader_t *reader, uint32_t stack, const uint64_t **frames);

/* Likewise from the caller of libumf on: what called the library says more than its own functions.
 */
size_t umf_reader_caller_stack(umf_reader_t *reader, uint32_t stack, const uint64_t **frames);

/* The function that has the code at a return address. The names that are in the recording come
 * first; otherwise it opens files named in the recording. Texts live with the reader. */
umf_reader_frame_t umf_reader_resolve(umf_reader_t *reader, uint64_t address);

/* Likewise with the functions that are inlined there, the innermost first; returns how many frames
 * there are, at least one. They are valid until the next call. */
size_t umf_reader_resolve_all(umf_reader_t *reader, uint64_t address,
                              const umf_reader_frame_t **frames);

/* Was an address looked up without libdw? Then source lines and inlined functions are missing. */
bool umf_reader_lines_are_missing(const umf_reader_t *reader);

/* From now on debug information that is not on this machine is requested from the servers of
 * DEBUGINFOD_URLS. Without it nothing connects to a network. */
void umf_reader_use_servers(umf_reader_t *reader);

typedef struct umf_reader_names_t {
    uint64_t addresses, functions, lines; /* addresses in stacks; those with a function, a line */
    uint64_t bytes;                       /* that were written */
} umf_reader_names_t;

/* Writes the names of all addresses in stacks at the end of the file that was read, in place of
 * those that it has; nothing if it has no stacks. The descriptor is open for reading and writing.
 * False: `error` says why, and the rest of the file is as it was. */
bool umf_reader_names_write(umf_reader_t *reader, int fd, umf_reader_names_t *names,
                            umf_reader_error_t *error);

/* "function at file.c:12 (libx.so)", "function+0x1c (libx.so)", "libx.so+0x12c0" or "0x7f...";
 * returns `text`. */
const char *umf_reader_frame_text(const umf_reader_frame_t *frame, char *text, size_t size);
/* "file.c:12", "" if the line is not known; returns `text`. */
const char *umf_reader_line_text(const umf_reader_frame_t *frame, char *text, size_t size);

/* --- events ----------------------------------------------------------------------------------- */

/* Events of later kinds are not handed out. */
#define UMF_READER_KIND_LAST UMF_RECORD_PAGES_MOVED

typedef struct umf_reader_event_t {
    int64_t ns;
    uint64_t address, size;
    umf_record_event_kind_t kind;
    uint32_t object; /* below object_count */
    uint32_t stack;  /* below stack_count */
    uint32_t thread; /* index, below thread_count */
    uint32_t queue;
    bool is_older; /* made before the recording began; `ns` is the beginning */
} umf_reader_event_t;

typedef struct umf_reader_cursor_t umf_reader_cursor_t;

/* All events of all threads. Their times ascend, between first_ns and last_ns. NULL: `error` says
 * why. Ends before the reader does. */
umf_reader_cursor_t *umf_reader_iterate(const umf_reader_t *reader, umf_reader_error_t *error);
bool umf_reader_next(umf_reader_cursor_t *cursor, umf_reader_event_t *event);
void umf_reader_cursor_free(umf_reader_cursor_t *cursor);

/* Of each way through many events `progress` is told from time to time how many of them are done,
 * and that all are when the cursor ends. */
void umf_reader_set_progress(umf_reader_t *reader, void (*progress)(uint64_t done, uint64_t total));

/*
 * Adds memory that lived before a recording began to its file, by a snapshot of the same process
 * that was taken after the beginning. It comes before the names. The descriptor is that of the file
 * that was read, open for reading and writing; `bytes`: that were added. False: `error` says why,
 * and the file has the content that it had.
 */
bool umf_reader_older_write(const umf_reader_t *recording, const umf_reader_t *snapshot, int fd,
                            uint64_t *bytes, umf_reader_error_t *error);
/* Is the thread with this index that of memory from before the recording? */
bool umf_reader_is_older(const umf_reader_t *reader, uint32_t thread);

/* --- live allocations ------------------------------------------------------------------------- */

typedef struct umf_reader_live_t {
    uint64_t address, size;
    int64_t ns; /* when it was allocated */
    uint32_t object, stack;
    uint32_t thread; /* index; UINT32_MAX: not known */
    uint32_t site;   /* index, in a replay */
} umf_reader_live_t;

/* The section UMF_RECORD_LIVE, its used items; of all pools. */
const umf_reader_live_t *umf_reader_live(const umf_reader_t *reader, size_t *count);

/*
 * A replay applies events, one after the other, and tracks live allocations. It begins with those
 * that UMF_RECORD_LIVE has and no event has made: they existed before the recording.
 */
typedef struct umf_reader_replay_t umf_reader_replay_t;

umf_reader_replay_t *umf_reader_replay_begin(const umf_reader_t *reader, umf_reader_error_t *error);
void umf_reader_replay_free(umf_reader_replay_t *replay);

typedef enum umf_reader_change_kind_t {
    UMF_READER_NO_CHANGE,
    UMF_READER_ALLOCATED,    /* `what` lives now */
    UMF_READER_FREED,        /* `what` lived until now */
    UMF_READER_RESTORED,     /* the free of `what` was refused: it lives on */
    UMF_READER_FREE_UNKNOWN, /* the freed memory has no record: allocated before the start */
    UMF_READER_BAD_FREE,     /* a free of memory that was not live was refused */
    UMF_READER_ENDED,        /* a pool ended, and with it what lived in it: `what` has the sum */
} umf_reader_change_kind_t;

typedef struct umf_reader_change_t {
    umf_reader_change_kind_t kind;
    umf_reader_live_t what;     /* of pools; its object is the pool */
    umf_reader_live_t replaced; /* size 0, or what lived there before: its free is missing */
} umf_reader_change_t;

/* False: no memory. `change` may be NULL. */
bool umf_reader_replay_apply(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                             umf_reader_change_t *change);

/* Applies all events up to and at `until`; INT64_MAX: to the end. False: `error` says why. */
bool umf_reader_replay_run(umf_reader_replay_t *replay, int64_t until, umf_reader_error_t *error);

/* Bytes and allocations: now, at the highest point of the sum of all pools so far, and when a pool
 * found no memory for the last time so far. */
typedef struct umf_reader_use_t {
    uint64_t bytes, count;
    uint64_t peak_bytes, peak_count;
    uint64_t refused_bytes, refused_count;
} umf_reader_use_t;

/* The place of an allocation: a pool and a stack. */
typedef struct umf_reader_site_t {
    uint32_t object, stack;
    umf_reader_use_t use;
    uint64_t allocs, alloc_bytes;      /* in total */
    uint64_t ended_count, ended_bytes; /* that lived when the pool was destroyed */
} umf_reader_site_t;

/* Pages of an arena, in bytes. Sums are known from the first event UMF_RECORD_PAGES on, also after
 * a loss of events; the other figures are sums of events. */
typedef struct umf_reader_pages_t {
    bool is_known;
    uint64_t reserved, reserved_peak; /* of all pages */
    uint64_t spare, stale;            /* spare: at most `reserved` */
    uint64_t donated;                 /* since the pool was created */
    uint64_t created, destroyed;
} umf_reader_pages_t;

/* A pool or provider; of a provider only requests of the program count as `use`. */
typedef struct umf_reader_object_use_t {
    umf_reader_use_t use;
    uint64_t own_peak, allocs, frees, refused;
    int64_t own_peak_ns;
    uint64_t held, held_peak; /* from its provider, by the events */
    bool is_suspended;
    umf_reader_pages_t pages;
} umf_reader_object_use_t;

/* The whole; `refusal` is the event of the last refusal, with kind 0 if there was none. */
typedef struct umf_reader_total_t {
    umf_reader_use_t use;
    int64_t now, peak_ns;
    uint64_t allocs, frees, unknown_frees, bad_frees, missing_frees, refused;
    umf_reader_event_t refusal;
} umf_reader_total_t;

const umf_reader_total_t *umf_reader_replay_total(const umf_reader_replay_t *replay);
const umf_reader_object_use_t *umf_reader_replay_object(umf_reader_replay_t *replay,
                                                        uint32_t number);
/* NULL after the last. */
const umf_reader_site_t *umf_reader_replay_site(umf_reader_replay_t *replay, uint32_t index);
/* Everything that lives in pools, in no order: `position` begins with 0; NULL after the last. */
const umf_reader_live_t *umf_reader_replay_next(const umf_reader_replay_t *replay,
                                                size_t *position);
/* Likewise what providers have given; the object is the pool, or the provider. */
const umf_reader_live_t *umf_reader_replay_next_provided(const umf_reader_replay_t *replay,
                                                         size_t *position);

#endif
