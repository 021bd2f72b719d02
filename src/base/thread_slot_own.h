/* The inside of thread slots, shared by their files. */
#ifndef UMF_SRC_BASE_THREAD_SLOT_OWN_H
#define UMF_SRC_BASE_THREAD_SLOT_OWN_H

#include "base/lock.h"
#include "base/thread_slot.h"
#include "system/atomic.h"

/* The table comes along with the blocks, because thread-local memory is scarce. */
typedef struct umf_thread_slot_array_t {
    struct umf_thread_slot_table_t *table;
    _Atomic(umf_thread_slot_t *) blocks[UMF_THREAD_SLOT_COUNT_MIN]; /* or more */
} umf_thread_slot_array_t;

typedef struct umf_thread_slot_table_t {
    _Atomic(umf_thread_slot_t *)
        *blocks;                /* Sync: THREAD_SLOT lock, or its own thread for reading */
    uint32_t count;             /* likewise */
    uint32_t end;               /* no block has this index or one above. Sync: its own thread */
    umf_thread_slot_t *exiting; /* Sync: THREAD_SLOT lock */
    unsigned fork_count;        /* when `exiting` was set. Sync: THREAD_SLOT lock */
    bool is_ending;             /* Sync: THREAD_SLOT lock */
    bool has_exit;              /* the end of its thread is noticed. Sync: THREAD_SLOT lock */
    umf_thread_slot_tls_t *tls; /* Immutable, as the next */
    unsigned made_fork_count;
    umf_thread_slot_array_t first; /* has `blocks` until they grow */
} umf_thread_slot_table_t;

#define UMF_THREAD_SLOT_EMPTY ((umf_thread_slot_t *)(uintptr_t)&umf_thread_slot_empty.head)

extern UMF_HIDDEN umf_lock_t umf_thread_slot_lock; /* UMF_RANK_THREAD_SLOT */

static inline umf_thread_slot_t *umf_thread_slot_table_block(const umf_thread_slot_table_t *table,
                                                             uint32_t index) {
    return atomic_load_explicit(&table->blocks[index], memory_order_relaxed);
}

/* Takes the block out of the list of its owner. */
void umf_thread_slot_unlink_locked(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block);
/* Can the thread's `inside` be read? Without an exit handler the thread may have ended, and its
 * thread-local memory gone. */
bool umf_thread_slot_may_be_read_locked(const umf_thread_slot_table_t *table);

#endif
