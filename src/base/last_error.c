/*
 * Slots of static storage, one for each thread that had an error. Thread-local memory is scarce
 * (base/thread_slot.h), and a thread-specific key or the metadata arena may fail or need locks of
 * an inner rank. So a thread finds its slot at the end of the chain of listeners, which has the
 * only thread-local variable.
 *
 * A slot belongs to the thread whose variable it names. It is free if that thread has ended: a
 * thread that finds a slot of its own address took over the memory of an ended one, and after a
 * fork all threads but one are gone. If no slot is free, the kernel is queried about some threads.
 */
#include "base/last_error.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "system/common.h"
#include "system/keep_errno.h"
#include "system/os.h"

#define SLOT_COUNT 1024
#define SLOT_ASKED 16 /* threads that one call queries the kernel about */

typedef struct last_slot_t {
    umf_log_heard_t line; /* the end of the chain; Sync: its thread */
    umf_reason_t reason;  /* Sync: its thread */
    uint32_t count;       /* Sync: its thread */
} last_slot_t;

static last_slot_t slots[SLOT_COUNT];
static _Atomic uintptr_t slot_owners[SLOT_COUNT]; /* 0: free. Writers: lock */
static _Atomic unsigned slot_forks[SLOT_COUNT];   /* the fork count of the owner. Writers: lock */
static int slot_tids[SLOT_COUNT];                 /* Sync: lock */
static uint32_t slot_next_asked;                  /* Sync: lock */
UMF_LOCK_STATIC(slot_lock, UMF_RANK_LOG);

/* Listeners of the thread, the innermost first, and its slot as the last. */
static __thread umf_log_heard_t *top;

static uintptr_t me(void) {
    return (uintptr_t)&top;
}

static bool is_slot(const umf_log_heard_t *line) {
    return (uintptr_t)line >= (uintptr_t)slots && (uintptr_t)line < (uintptr_t)(slots + SLOT_COUNT);
}

static size_t slot_index(const umf_log_heard_t *line) {
    return ((uintptr_t)line - (uintptr_t)slots) / sizeof(*slots);
}

static bool is_mine(size_t i) {
    return atomic_load_explicit(&slot_owners[i], memory_order_relaxed) == me() &&
           atomic_load_explicit(&slot_forks[i], memory_order_relaxed) == umf_fork_count();
}

static bool is_free_locked(size_t i) {
    umf_assert_locked(&slot_lock);
    uintptr_t owner = atomic_load_explicit(&slot_owners[i], memory_order_relaxed);
    return owner == 0 || owner == me() ||
           atomic_load_explicit(&slot_forks[i], memory_order_relaxed) != umf_fork_count();
}

/* A number of a thread that has ended, and that no other has now. */
static bool is_ended_locked(void) {
    umf_assert_locked(&slot_lock);
    size_t i = slot_next_asked++ % SLOT_COUNT;
    if (!umf_os_thread_has_ended(slot_tids[i])) {
        return false;
    }
    atomic_store_explicit(&slot_owners[i], 0, memory_order_relaxed);
    return true;
}

static last_slot_t *search_locked(void) {
    umf_assert_locked(&slot_lock);
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        if (is_free_locked(i)) {
            return &slots[i];
        }
    }
    for (size_t checked = 0; checked < SLOT_ASKED; checked++) {
        if (is_ended_locked()) {
            return &slots[(slot_next_asked - 1) % SLOT_COUNT];
        }
    }
    return NULL;
}

static last_slot_t *slot_take(void) {
    umf_lock(&slot_lock);
    last_slot_t *slot = search_locked();
    if (slot) {
        size_t i = (size_t)(slot - slots);
        memset(slot, 0, sizeof(*slot));
        slot_tids[i] = umf_os_tid();
        atomic_store_explicit(&slot_owners[i], me(), memory_order_relaxed);
        atomic_store_explicit(&slot_forks[i], umf_fork_count(), memory_order_relaxed);
    }
    umf_unlock(&slot_lock);
    return slot;
}

/* Where the chain ends: at a slot of this thread, or nowhere. */
static umf_log_heard_t **chain_end(void) {
    umf_log_heard_t **at = &top;
    while (*at && !is_slot(*at)) {
        at = &(*at)->outer;
    }
    if (*at && !is_mine(slot_index(*at))) {
        *at = NULL;
    }
    return at;
}

static last_slot_t *slot_find(void) {
    return (last_slot_t *)*chain_end();
}

static last_slot_t *slot_get(void) {
    umf_log_heard_t **end = chain_end();
    if (!*end) {
        last_slot_t *slot = slot_take();
        *end = slot ? &slot->line : NULL;
    }
    return (last_slot_t *)*end;
}

void umf_log_hear(umf_log_heard_t *heard) {
    heard->text[0] = '\0';
    heard->outer = top;
    top = heard;
}

/* The slot may have been put at the end of the chain meanwhile, behind `heard`. */
void umf_log_hear_end(const umf_log_heard_t *heard) {
    top = heard->outer;
}

static void write_line(umf_log_heard_t *line, int errnum, const char *format, va_list list) {
    va_list args;
    va_copy(args, list);
    int length = vsnprintf(line->text, sizeof(line->text), format, args);
    va_end(args);
    if (length < 0) {
        line->text[0] = '\0';
    } else if (errnum != 0 && (size_t)length < sizeof(line->text)) {
        char buffer[64];
        snprintf(line->text + length, sizeof(line->text) - (size_t)length, ": %s",
                 umf_os_error_text(errnum, buffer, sizeof(buffer)));
    }
    umf_plain_text(line->text, strlen(line->text));
}

static void slot_write(int errnum, const char *format, va_list args) {
    last_slot_t *slot = slot_get();
    if (slot) {
        write_line(&slot->line, errnum, format, args);
        slot->reason = UMF_REASON_NONE;
        slot->count++;
    }
}

void umf_last_error_store(int errnum, const char *format, va_list args) {
    UMF_KEEP_ERRNO;
    if (top && !is_slot(top) && !*top->text) {
        write_line(top, errnum, format, args);
    }
    slot_write(errnum, format, args);
}

void umf_last_error_set(const char *format, ...) {
    UMF_KEEP_ERRNO;
    va_list args;
    va_start(args, format);
    slot_write(0, format, args);
    va_end(args);
}

void umf_last_reason_set(umf_reason_t reason) {
    UMF_KEEP_ERRNO;
    last_slot_t *slot = slot_get();
    if (slot) {
        slot->reason = reason;
    }
}

uint32_t umf_last_error_count(void) {
    const last_slot_t *slot = slot_find();
    return slot ? slot->count : 0;
}

UMF_API_EXT_1_3 const char *umfLastErrorText(void) {
    const last_slot_t *slot = slot_find();
    return slot ? slot->line.text : "";
}

UMF_API_EXT_1_3 umf_reason_t umfLastReason(void) {
    const last_slot_t *slot = slot_find();
    return slot ? slot->reason : UMF_REASON_NONE;
}

UMF_API_EXT_1_3 void umfLastErrorClear(void) {
    last_slot_t *slot = slot_find();
    if (slot) {
        slot->line.text[0] = '\0';
        slot->reason = UMF_REASON_NONE;
    }
}

UMF_API_EXT_1_3 const char *umfReasonName(umf_reason_t reason) {
#define REASON(name) [UMF_REASON_##name] = "UMF_REASON_" #name
    static const char *const names[] = {
        REASON(NONE),    REASON(STALE),  REASON(IDENTITY),  REASON(LIMIT),       REASON(WRITABLE),
        REASON(TIMEOUT), REASON(BROKEN), REASON(DENIED),    REASON(GONE),        REASON(DEADLINE),
        REASON(BUSY),    REASON(ABSENT), REASON(EXHAUSTED), REASON(UNSUPPORTED),
    };
#undef REASON
    return (size_t)reason < UMF_COUNT_OF(names) ? names[reason] : "UMF_REASON_?";
}
