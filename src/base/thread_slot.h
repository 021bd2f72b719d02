/*
 * One block of memory per (thread, owner), found in a few instructions.
 *
 * A pool is an owner: its thread caches and its per-thread counters are in such blocks. A block is
 * created at the thread's first use, passed to the owner's `thread_exit` when the thread ends, and
 * freed with the thread or with the owner. A thread's table of blocks grows with the indices that
 * it has used.
 *
 * The table's address is the only thread-local storage on a hot path: one initial-exec block of at
 * most 64 bytes, which fits the loader's surplus also when the library is loaded late. A thread
 * without blocks has a table too: the shared empty one, with room for the first indices.
 */
#ifndef UMF_SRC_BASE_THREAD_SLOT_H
#define UMF_SRC_BASE_THREAD_SLOT_H

#include "base/lock.h"
#include "system/atomic.h"
#include "system/common.h"

typedef struct umf_thread_slot_owner_t umf_thread_slot_owner_t;

/* Head of every block; the owner's own data follows. */
typedef struct umf_thread_slot_t {
    umf_thread_slot_owner_t *owner;        /* NULL in the shared empty block */
    struct umf_thread_slot_t *prev, *next; /* of the owner. Sync: THREAD_SLOT lock */
    struct umf_thread_slot_table_t
        *thread;   /* NULL once the thread has lost the block. Sync: THREAD_SLOT lock */
    bool is_taken; /* by umf_thread_slot_take_from_others. Sync: THREAD_SLOT lock, as visited */
    /* The thread works with the block outside of enter and leave. Sync: atomic, only its thread
     * writes */
    uint8_t pins;
    uint32_t
        visited; /* umf_fork_count() + 1 where a thread empties the taken block; 0: none does */
} umf_thread_slot_t;

struct umf_thread_slot_owner_t {
    uint32_t index; /* Immutable after init, as all above `first` */
    bool owns_index;
    uint32_t size;            /* of a block with its head, in whole cache lines */
    umf_thread_slot_t *first; /* Sync: the THREAD_SLOT lock */
    /* Runs in the ending thread, once for each block, without locks held. May be NULL. The block is
     * out of the thread's table already, and the thread gets no new one, but umf_thread_slot_each
     * still visits it. */
    void (*thread_exit)(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block);
};

typedef struct umf_thread_slot_tls_t {
    _Atomic(umf_thread_slot_t *)
        *blocks;            /* by owner's index; an absent block is the shared empty one */
    uint32_t count;         /* of blocks, at least UMF_THREAD_SLOT_COUNT_MIN */
    uint8_t moves;          /* to other parts of page caches (pools/jemalloc/pages_shards.c) */
    bool is_inside;         /* between enter and leave. Sync: atomic, only its thread writes */
    bool is_ending : 1;     /* thread exit handlers are running, or have run */
    bool is_reclaiming : 1; /* reclaim/reclaim.c */
    bool is_telling : 1;    /* reclaim/pressure.c: the thread is in a callback */
    bool is_nested : 1;     /* reclaim/reclaim.c: it serves a request of one */
    bool is_background : 1; /* reclaim/reclaim_thread.c: it is the background thread */
    bool is_refused : 1; /* object/refusal.c: the last error is that of the request being served */
    bool is_short : 1;   /* pools/jemalloc: a hook found no pages, so the page cache must grow */
    uint32_t frees_left; /* until the next tick, see reclaim/reclaim.h */
    uint32_t
        recorded_pool; /* object/recorded.c: index of the pool whose call is recorded; 0: none */
    uint64_t next_id;  /* the next id of a span (track/span.h); reserved for this thread */
    uint64_t number;   /* of the thread, from 1; 0: not assigned yet */
    /* core/pool_ext.c: the pool of umfCurrentPoolMalloc. umf_pool_none: there is none */
    struct umf_memory_pool_t *current;
} umf_thread_slot_tls_t;
_Static_assert(sizeof(umf_thread_slot_tls_t) <= 48, "it fits the loader's surplus");

/* A pool without thread caches and memory, where a thread has no current pool. */
extern UMF_HIDDEN const struct umf_memory_pool_t umf_pool_none;

#define UMF_THREAD_SLOT_TICK_FREES 4096u

/* glibc's loader has a surplus of static thread-local storage for libraries that dlopen loads;
 * musl's has none and refuses them. */
#ifdef __GLIBC__
#define UMF_THREAD_SLOT_TLS __thread __attribute__((tls_model("initial-exec")))
#else
#define UMF_THREAD_SLOT_TLS __thread
#endif
extern UMF_THREAD_SLOT_TLS umf_thread_slot_tls_t umf_thread_slot_tls;

/* The calling thread's table. NULL: it has none. */
struct umf_thread_slot_table_t *umf_thread_slot_own_table(void);

UMF_COLD uint64_t umf_thread_slot_number_slow(void);

/* Threads get numbers in the order of their first call, and keep them until the end. No two threads
 * have the same number, also one after the other, so a number is an identity. */
static inline uint64_t umf_thread_slot_number(void) {
    uint64_t number = umf_thread_slot_tls.number;
    return umf_likely(number != 0) ? number : umf_thread_slot_number_slow();
}

/* Every thread's table has room for the indices below this one. */
#define UMF_THREAD_SLOT_COUNT_MIN 256

/* The shared empty block: zero bytes that mean "no block yet", enough for every
 * owner's hot part. */
#define UMF_THREAD_SLOT_EMPTY_SIZE 4096
extern const union umf_thread_slot_empty_t {
    umf_thread_slot_t head;
    char bytes[UMF_THREAD_SLOT_EMPTY_SIZE];
} umf_thread_slot_empty;

/*
 * Indices, 1 to 2^20 - 1. An index identifies a pool in tables of pools, in entries of the pointer
 * map and in the tables of threads. Get: OUT_OF_RESOURCES when all are taken.
 */
umf_result_t umf_thread_slot_index_get(uint32_t *index);
void umf_thread_slot_index_put(uint32_t index);

/* `index`: an index that the caller has and no other owner uses; 0: a new one is taken. */
umf_result_t umf_thread_slot_owner_init(umf_thread_slot_owner_t *owner, uint32_t index, size_t size,
                                        void (*thread_exit)(umf_thread_slot_owner_t *,
                                                            umf_thread_slot_t *));

/*
 * Takes the blocks of all threads out of their tables. No `thread_exit` of this owner begins
 * afterwards, and one that runs in an ending thread has ended on return. umf_thread_slot_each can
 * still visit the blocks. No thread may be using the owner. Call it before anything that
 * `thread_exit` uses is destroyed.
 */
void umf_thread_slot_owner_close(umf_thread_slot_owner_t *owner);

/* Closes the owner and frees its blocks; does not call `thread_exit`. */
void umf_thread_slot_owner_fini(umf_thread_slot_owner_t *owner);

/* The calling thread's block, created on first use. NULL: no memory, or the thread is ending, so
 * that nothing would free the block. */
umf_thread_slot_t *umf_thread_slot_make(umf_thread_slot_owner_t *owner);

/* Calls `visit` for the block of every thread, under the THREAD_SLOT lock. The threads may be
 * running, so the members that are read must be atomic. */
void umf_thread_slot_each(umf_thread_slot_owner_t *owner,
                          void (*visit)(umf_thread_slot_t *block, void *arg), void *arg);

/*
 * Blocks that other threads may take. The thread touches such a block only between enter and leave,
 * which is a few instructions, or while it has a pin on it. A pin is set between enter and leave. A
 * thread that loses its block finds the empty one at its next access.
 *
 * The two stores need no fence. A thread that takes a block first replaces it in the table of its
 * thread, then makes every thread of the process pass a fence (umf_os_fence_all), and then looks
 * whether the thread is inside. So either it sees that, or the thread sees the empty block.
 */
static inline void umf_thread_slot_enter(void) {
    __atomic_store_n(&umf_thread_slot_tls.is_inside, true, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void umf_thread_slot_leave(void) {
    __atomic_store_n(&umf_thread_slot_tls.is_inside, false, __ATOMIC_RELEASE);
}

/* The calling thread's block with one more pin. NULL: it has none. */
umf_thread_slot_t *umf_thread_slot_pin(const umf_thread_slot_owner_t *owner);
void umf_thread_slot_unpin(umf_thread_slot_t *block);

/*
 * Takes the blocks of other threads that `may_take` agrees to, and passes each to `visit`, which
 * must leave nothing in it; then frees it. A block that its thread is using stays. All stay if the
 * kernel refuses the fence. `may_take` runs under the THREAD_SLOT lock, `visit` without locks. The
 * caller keeps the owner alive. false: a block is in use, or a thread that ends empties one: a
 * later call takes it, or finds it gone.
 */
bool umf_thread_slot_take_from_others(
    umf_thread_slot_owner_t *owner, bool (*may_take)(const umf_thread_slot_t *block, void *arg),
    void (*visit)(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block), void *arg);

/* The calling thread's block, or the empty one. Hot. */
static inline umf_thread_slot_t *umf_thread_slot_get(uint32_t index) {
    if (umf_unlikely(index >= umf_thread_slot_tls.count)) {
        return (umf_thread_slot_t *)(uintptr_t)&umf_thread_slot_empty.head;
    }
    return __atomic_load_n((umf_thread_slot_t **)&umf_thread_slot_tls.blocks[index],
                           __ATOMIC_RELAXED);
}

/* The same for an index below UMF_THREAD_SLOT_COUNT_MIN. Index 0 gives the empty block. */
static inline umf_thread_slot_t *umf_thread_slot_get_low(uint32_t index) {
    return __atomic_load_n((umf_thread_slot_t **)&umf_thread_slot_tls.blocks[index],
                           __ATOMIC_RELAXED);
}

#endif
