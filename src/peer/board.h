/*
 * Board: words in shared memory that show whether a description of memory is still valid.
 *
 * While described memory lives, its word holds a generation: a number that no other description of
 * the board ever has. The producer clears the word before the memory is used again. So the holder
 * of a description finds out with one load whether it still describes the same memory.
 *
 * A board is a file of its own, or the header of a file of shared memory.
 */
#ifndef UMF_SRC_PEER_BOARD_H
#define UMF_SRC_PEER_BOARD_H

#include "base/lock.h"
#include "peer/transport.h"

/* --- the producer's side: the caller locks ---------------------------------------------------- */

typedef struct umf_board_t {
    uint64_t *words; /* mapped, shared with consumers; NULL: none. Sync: atomic */
    uint32_t first;  /* words before it are not used; at least 1, because 0 is no word */
    uint32_t count;  /* of all words */
    uint32_t used, last;
    uint64_t generation; /* the last one */
} umf_board_t;

/* Writes a new generation to a free word. OUT_OF_RESOURCES with a message: there is none. */
umf_result_t umf_board_claim(umf_board_t *board, uint32_t *word, uint64_t *generation);

static inline bool umf_board_is_live(const umf_board_t *board, uint32_t word, uint64_t generation) {
    return word && __atomic_load_n(&board->words[word], __ATOMIC_RELAXED) == generation;
}

/* Clears the word. No effect if it holds another generation, or if `word` is 0. */
void umf_board_retire(umf_board_t *board, uint32_t word, uint64_t generation);
/* Clears all words. */
void umf_board_retire_all(umf_board_t *board);

/* --- the consumer's side: thread-safe --------------------------------------------------------- */

/* A board of another process, open once for all of its memory that is open here. */
typedef struct umf_board_source_t {
    struct umf_board_source_t *next; /* Sync: the lock of the sources, also for `refs` */
    size_t refs;
    uint64_t dev, ino;     /* of the file. Immutable after open, as all members below */
    const uint64_t *words; /* mapped; the producer writes them. Sync: atomic */
    size_t size;           /* bytes of `words` */
} umf_board_source_t;

/* How a kind of provider opens a board. Its own struct begins with an umf_board_source_t. */
typedef struct umf_board_ops_t {
    size_t source_size;
    /* Maps the words; `description` is the argument of umf_board_get. Called without the lock. */
    umf_result_t (*open)(umf_board_source_t *source, const umf_fd_ticket_t *ticket,
                         const void *description);
    /* Undoes open, but for the mapping. NULL: nothing to do. Called without the lock. */
    void (*close)(umf_board_source_t *source);
    /* A known board has one more use. NULL: nothing to do. Called with the lock. */
    void (*join_locked)(umf_board_source_t *source);
} umf_board_ops_t;

/* The boards that a provider has open. */
typedef struct umf_board_sources_t {
    umf_lock_t *lock; /* Immutable, as `ops` */
    const umf_board_ops_t *ops;
    umf_board_source_t *first; /* Sync: lock */
} umf_board_sources_t;

/* Closes all boards. */
void umf_board_sources_fini(umf_board_sources_t *sources);

/* The board that a ticket names, with one more use. Results as `open`; OUT_OF_HOST_MEMORY. */
umf_result_t umf_board_get(umf_board_sources_t *sources, const umf_fd_ticket_t *ticket,
                           const void *description, umf_board_source_t **source);
/* Adds a use of a board that is in use. */
void umf_board_hold(umf_board_sources_t *sources, umf_board_source_t *source);
/* Removes a use. The last one closes the board. */
void umf_board_put(umf_board_sources_t *sources, umf_board_source_t *source);

/* INVALID_ARGUMENT with a message: the description is stale. */
umf_result_t umf_board_check(const umf_board_source_t *source, uint32_t word, uint64_t generation);

/* The address of a word of the board that a ticket names. INVALID_ARGUMENT with a message: the
 * board is not open, or has no such word. */
umf_result_t umf_board_watch(const umf_board_sources_t *sources, const umf_fd_ticket_t *ticket,
                             uint32_t word, const uint64_t **address);

#endif
