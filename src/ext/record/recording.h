/*
 * The running recording, and the interfaces between the files of this folder.
 *
 * A thread that records writes into a block of the file that is its own, and takes no lock at an
 * event. Tables that threads share are in private memory: numbers of objects, the hash of stacks,
 * the windows of the table of live allocations. They and the mapping of the file go when the
 * recording ends: umf_record_settle has waited for the threads that are inside by then.
 */
#ifndef UMF_SRC_EXT_RECORD_RECORDING_H
#define UMF_SRC_EXT_RECORD_RECORDING_H

#include <umf/record.h>
#include <umf/record_format.h>

#include "base/lock.h"
#include "base/thread_slot.h"
#include "ext/record/clock.h"
#include "object/event.h"
#include "system/atomic.h"
#include "system/common.h"

#define UMF_RECORD_QUEUES 254u        /* that get a number of their own */
#define UMF_RECORD_NUMBERS (1u << 20) /* indices of pools */
#define UMF_RECORD_LIVE_WINDOW 256u   /* items that have one lock */
#define UMF_RECORD_NUMBER_IGNORED UINT32_MAX

typedef struct umf_record_live_window_t {
    _Atomic(bool) is_locked;
    uint32_t count; /* Sync: is_locked */
} umf_record_live_window_t;

typedef struct umf_record_handle_t {
    _Atomic(const void *) handle;
    _Atomic(uint32_t) number;
} umf_record_handle_t;

/* Immutable after the start, except what says how it is synchronised. A child of fork finds it
 * zeroed. */
typedef struct umf_recording_t {
    bool is_running;
    bool has_filter;   /* only some pools */
    bool has_limits;   /* not all sizes or addresses are recorded */
    bool reports_live; /* at the end */
    bool allows_ended; /* the report leaves out allocations of destroyed pools */
    bool keeps_live;   /* there is a table of live allocations */
    bool by_environment;
    uint64_t generation; /* differs between recordings */
    umf_record_clock_t clock;
    unsigned stack_depth;
    size_t min_size, max_size, rate; /* max_size, rate: 0: no limit, all */

    /* Of the file, and its sections. Another program may write to it, so that no number that is
     * read from it is an index, a size or an address: these are in `sections` and the members
     * below. */
    umf_record_header_t *header;
    size_t file_size;
    umf_record_section_t sections[UMF_RECORD_SECTIONS]; /* Sync: `count` as umf_record_item says */
    _Atomic(uint64_t) dropped, live_dropped;
    _Atomic(uint64_t) ended_count, ended_bytes; /* as in the header */
    umf_record_object_t *objects;
    char *texts;
    umf_record_module_t *modules;
    uint64_t *stacks;
    umf_record_event_t *live;
    umf_record_block_t *blocks;
    _Atomic(uint8_t) *touched; /* by page of the file: writes to it cannot fail */
    _Atomic(size_t) touched_count;

    _Atomic(uint8_t) *owned; /* by block: it is the current one of a thread */
    uint32_t block_count;    /* Sync: umf_record_lock, as the next two */
    uint32_t block_next;
    uint64_t block_number;
    _Atomic(uint32_t)
        block_used; /* blocks that were begun once. Sync: umf_record_lock for writers */

    _Atomic(uint32_t) *pool_numbers; /* by index of a pool. Sync: umf_record_lock for writers */
    umf_record_handle_t *providers;  /* a hash table. Sync: likewise */
    bool is_out_of_objects;          /* it was logged. Sync: umf_record_lock */
    _Atomic(uint64_t) *text_hash;    /* Sync: umf_record_lock */
    _Atomic(uint64_t) *stack_hash;   /* hash above, index below. Sync: stack_lock for writers */
    size_t stack_mask;
    struct umf_record_rules_t *rules; /* NULL: there are none */
    _Atomic(bool) stack_lock;
    umf_record_live_window_t *windows;
    size_t window_count;
    _Atomic(const void *) queues[UMF_RECORD_QUEUES];
    _Atomic(uint32_t) queue_count;
    _Atomic(bool) modules_lock;
    _Atomic(uint64_t) modules_ns; /* when they were looked at */
    uintptr_t own_code, own_size; /* of this library, if it is one of its own; size 0: it is not */
} umf_recording_t;

extern UMF_HIDDEN _Atomic(umf_recording_t *) umf_recording;
umf_lock_t *umf_record_lock(void); /* of rank RECORD: tables to which entries are seldom added */

/* A stack that a thread had, to recognise it: the places of its return addresses, in words from the
 * stack pointer at its beginning. */
#define UMF_RECORD_SEEN_OWN 8u
typedef struct umf_record_seen_t {
    uintptr_t address, fp, end; /* as umf_record_frame_t; end 0: not used */
    uint32_t index;             /* of the stack */
    uint32_t count;
    uint16_t slots[UMF_RECORD_FRAMES]; /* UINT16_MAX: that frame's address is `address` */
    /* Frames of this library before them. Which they are says how long they are, and so where the
     * program's first return address lies. */
    uint32_t own_count;
    uint16_t own_slots[UMF_RECORD_SEEN_OWN];
    uintptr_t own[UMF_RECORD_SEEN_OWN];
} umf_record_seen_t;
#define UMF_RECORD_SEEN 32u

/* State of a thread. */
typedef struct umf_record_thread_t {
    umf_thread_slot_t head;
    _Atomic(bool) is_inside; /* Sync: only its thread writes */
    uint8_t queue_number;    /* of `queue` */
    uint32_t tid;
    uint64_t generation; /* of the recording that the rest is about */
    umf_record_block_t *block;
    uint32_t block_index, count;
    const void *queue;
    umf_record_event_t
        freed; /* from the table of live allocations, by the last free; address 0: none */
    uint64_t freed_address;                     /* of the last free that was recorded */
    uintptr_t stack_low, stack_high, stack_end; /* known to be readable; known not to be */
    umf_record_seen_t seen[UMF_RECORD_SEEN];
} umf_record_thread_t;

/* --- a tiny lock that the fork handlers do not take, because a child does not record --- */

void umf_record_spin(_Atomic(bool) *lock);
static inline void umf_record_unspin(_Atomic(bool) *lock) {
    atomic_store_explicit(lock, false, memory_order_release);
}

/* Adds to a number that the file shows. Of several threads, the last to write has read the latest
 * value. */
static inline void umf_record_add(uint64_t *in_file, _Atomic(uint64_t) *own, uint64_t change) {
    atomic_fetch_add(own, change);
    uint64_t value;
    do {
        value = atomic_load(own);
        __atomic_store_n(in_file, value, __ATOMIC_SEQ_CST);
    } while (atomic_load(own) != value);
}

/* --- record.c, options.c --- */

/* Options of a recording. Its `path` is NULL or `path_room`; `pools` is a copy. */
typedef struct umf_record_options_t {
    umf_record_params_t params;
    char path_room[4096];
    bool by_environment;
} umf_record_options_t;

/* INVALID_ARGUMENT, logged. */
umf_result_t umf_record_params_check(const umf_record_params_t *params);
/* Takes "file,stacks=16,leaks,size=64M,rate=100". INVALID_ARGUMENT: `why` names the wrong option.
 */
umf_result_t umf_record_options_parse(umf_record_options_t *options, const char *text, char *why,
                                      size_t why_size);
/* The path with the number of the process in the place of %p. false: it is too long. */
bool umf_record_path(const char *path, char *to, size_t size);

/* As umfRecordStart. */
umf_result_t umf_record_start(const umf_record_params_t *params, bool by_environment);
/* The path of the running recording; "": it has none. */
void umf_record_path_get(char *path, size_t size);

/* --- file.c --- */

/* Makes file and tables. `path` is NULL for memory. Nothing is left on failure, which is logged. */
umf_result_t umf_record_file_make(const umf_record_params_t *params, const char *path,
                                  umf_recording_t **made);
/* Does another process record into the file? */
bool umf_record_file_is_written(const char *path);
/* As umf_memory_file (base/memory_file.h), for files that inspectors get: its user's only. */
int umf_record_memory_file(const char *name, int *fd);
/* Unmaps all that belongs to the recording, also that of the parent in a child of fork. */
void umf_record_file_unmap(void);
/* Writes to [at, at + size) cannot fail from now on. false: there is no space. */
bool umf_record_touch(umf_recording_t *r, const void *at, size_t size);
/* Has `write` fill a file that gets its name when it is whole, in the place of one that exists.
 * Only its user may read it. Returns an error number; EEXIST: the path is no regular file. */
int umf_record_write_whole(const char *path, int (*write)(int fd, void *arg), void *arg);
/* Logs it; the result. */
umf_result_t umf_record_write_failed(const char *path, int error, const char *function);
/* Writes a copy; `umfRecordSave`. */
umf_result_t umf_record_file_save(umf_recording_t *r, const char *path);
/* The header, with the writer's own sections. */
void umf_record_header_copy(const umf_recording_t *r, umf_record_header_t *header);
/* Takes the second reading of the clocks. */
void umf_record_file_end(umf_recording_t *r, umf_record_header_t *header);
/* A copy of the descriptor of the file. EBADF: there is none, or the program closed it. */
int umf_record_file_dup(int *fd);

/* How many items of a section can be read. */
uint64_t umf_record_count(const umf_recording_t *r, umf_record_section_kind_t kind);
/* The text at an offset that was read from the file, and its greatest length; "": there is none. */
const char *umf_record_text_at(const umf_recording_t *r, uint64_t offset, int *length);
/* Adds an item to a section that grows: its index, or UINT64_MAX if there is no room, which the
 * section's count then shows. The caller has the section's lock. */
uint64_t umf_record_item(umf_recording_t *r, umf_record_section_kind_t kind, uint64_t items);
/* The items that were added can be read. */
void umf_record_item_done(umf_recording_t *r, umf_record_section_kind_t kind, uint64_t items);

/* --- events.c --- */

umf_result_t umf_record_events_init(void);
void umf_record_on_event(const umf_event_t *event);
umf_result_t umf_record_mark(const char *name, size_t length);
/* Waits until no thread is inside of a recording that `umf_recording` no longer leads to. */
void umf_record_settle(void);
void umf_record_events_forked(void);
/* Sums over blocks. */
uint64_t umf_record_events_count(const umf_recording_t *r);

/* --- objects.c --- */

/* The number of the event's object; 0: none; UMF_RECORD_NUMBER_IGNORED: it is not recorded. */
uint32_t umf_record_object(umf_recording_t *r, const umf_event_t *event);
void umf_record_object_is_requested(umf_recording_t *r, umf_memory_pool_handle_t pool);
uint8_t umf_record_queue(umf_recording_t *r, umf_record_thread_t *thread, const void *queue);

/* --- texts.c --- */

/* The offset of a text, added if it is new; UINT64_MAX: no room. */
uint64_t umf_record_text(umf_recording_t *r, const char *text, size_t length);

/* --- live.c --- */

void umf_record_live_add(umf_recording_t *r, const umf_record_event_t *event);
/* false: it is not there. */
bool umf_record_live_remove(umf_recording_t *r, uint64_t address, umf_record_event_t *removed);
void umf_record_live_sum(umf_recording_t *r, uint64_t *count, uint64_t *bytes);

/* Visits a copy of each item of a pool that exists (`of_gone` false), or that was destroyed. */
void umf_record_live_each(umf_recording_t *r, bool of_gone,
                          void (*visit)(const umf_record_event_t *item, void *arg), void *arg);

/* --- leaks.c --- */

void umf_record_leaks_tell(umf_recording_t *r);

/* --- stacks.c, walk.c --- */

/* Prepares walks of stacks. Allocates. */
void umf_record_walk_init(void);
/* Where a walk begins: the frame of the caller of a function of ours. */
typedef struct umf_record_frame_t {
    uintptr_t fp, end; /* frame pointer of the caller, and its stack pointer */
    uintptr_t address; /* of return, in the caller */
} umf_record_frame_t;
/* In the function itself, which must be compiled with a frame pointer. */
#define UMF_RECORD_FRAME_HERE                                                                      \
    {                                                                                              \
        *(const uintptr_t *)__builtin_frame_address(0), (uintptr_t)__builtin_dwarf_cfa(),          \
            (uintptr_t)__builtin_return_address(0)                                                 \
    }
/* The index of the calling thread's stack; 0: it has none, or there is no room. */
uint32_t umf_record_walk(umf_recording_t *r, umf_record_thread_t *thread,
                         const umf_record_frame_t *from);
/* The index of the stack; 0: no room. */
uint32_t umf_record_stack(umf_recording_t *r, const uint64_t *frames, unsigned count);

/* --- modules.c --- */

void umf_record_modules(umf_recording_t *r);
/* Finds the library itself, whose frames stacks do not begin with. */
void umf_record_modules_own(umf_recording_t *r);
/* At most every 100 ms. */
void umf_record_modules_again(umf_recording_t *r, uint64_t now);

static inline uint64_t umf_record_hash(uint64_t word) {
    word *= UINT64_C(0x9E3779B97F4A7C15);
    return word ^ word >> 32;
}

#endif
