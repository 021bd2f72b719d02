/* Boards: generations of described memory, at the producer's and at the consumer's side. */
#include "peer/board.h"

#include "base/log.h"
#include "base/meta.h"
#include "system/os.h"

/* --- the producer's side ---------------------------------------------------------------------- */

/* A free word. 0 if none is, in spite of the count: consumers may be able to write to the board. */
static uint32_t board_find_free(const umf_board_t *board) {
    uint32_t at = board->last ? board->last : board->first - 1;
    for (uint32_t tries = 0; tries < board->count; tries++) {
        at = at + 1 < board->count ? at + 1 : board->first;
        if (__atomic_load_n(&board->words[at], __ATOMIC_RELAXED) == 0) {
            return at;
        }
    }
    return 0;
}

umf_result_t umf_board_claim(umf_board_t *board, uint32_t *word, uint64_t *generation) {
    if (board->used == board->count - board->first) {
        UMF_LOG_ERROR("%u allocations of this provider are shared, there is no room for more; free "
                      "some, share larger ones or use a second provider",
                      board->used);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    uint32_t at = board_find_free(board);
    if (at == 0) {
        UMF_LOG_ERROR("a process that shares the memory has overwritten the words that say which "
                      "descriptions are valid");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    board->last = at;
    board->used++;
    board->generation++;
    __atomic_store_n(&board->words[at], board->generation, __ATOMIC_RELEASE);
    *word = at;
    *generation = board->generation;
    return UMF_RESULT_SUCCESS;
}

void umf_board_retire(umf_board_t *board, uint32_t word, uint64_t generation) {
    if (umf_board_is_live(board, word, generation)) {
        __atomic_store_n(&board->words[word], 0, __ATOMIC_SEQ_CST);
        board->used--;
    }
}

void umf_board_retire_all(umf_board_t *board) {
    for (uint32_t word = board->first; board->used && word < board->count; word++) {
        board->used -= __atomic_exchange_n(&board->words[word], 0, __ATOMIC_RELEASE) != 0;
    }
}

/* --- the consumer's side ---------------------------------------------------------------------- */

static umf_result_t source_create(const umf_board_ops_t *ops, const umf_fd_ticket_t *ticket,
                                  const void *description, umf_board_source_t **result) {
    umf_board_source_t *source = umf_meta_alloc(ops->source_size);
    if (!source) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    source->refs = 1;
    source->dev = ticket->dev;
    source->ino = ticket->ino;
    umf_result_t opened = ops->open(source, ticket, description);
    if (opened != UMF_RESULT_SUCCESS) {
        umf_meta_free(source, ops->source_size);
        return opened;
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

static void source_destroy(const umf_board_ops_t *ops, umf_board_source_t *source) {
    umf_os_unmap((void *)(uintptr_t)source->words, source->size);
    if (ops->close) {
        ops->close(source);
    }
    umf_meta_free(source, ops->source_size);
}

/* Device and inode identify the file: they are not reused while it is open or mapped. */
static umf_board_source_t *source_find_locked(const umf_board_sources_t *sources,
                                              const umf_fd_ticket_t *ticket) {
    umf_assert_locked(sources->lock);
    umf_board_source_t *source = sources->first;
    while (source && (source->dev != ticket->dev || source->ino != ticket->ino)) {
        source = source->next;
    }
    return source;
}

/* The known source of the file with one more use, else `made`, which becomes known. NULL if there
 * is neither. */
static umf_board_source_t *source_join(umf_board_sources_t *sources, const umf_fd_ticket_t *ticket,
                                       umf_board_source_t *made) {
    umf_lock(sources->lock);
    umf_board_source_t *source = source_find_locked(sources, ticket);
    if (source) {
        source->refs++;
        if (sources->ops->join_locked) {
            sources->ops->join_locked(source);
        }
    } else if (made) {
        made->next = sources->first;
        sources->first = made;
        source = made;
    }
    umf_unlock(sources->lock);
    return source;
}

umf_result_t umf_board_get(umf_board_sources_t *sources, const umf_fd_ticket_t *ticket,
                           const void *description, umf_board_source_t **result) {
    umf_board_source_t *source = source_join(sources, ticket, NULL);
    if (!source) {
        umf_board_source_t *made;
        umf_result_t created = source_create(sources->ops, ticket, description, &made);
        if (created != UMF_RESULT_SUCCESS) {
            return created;
        }
        source = source_join(sources, ticket, made);
        if (source != made) {
            source_destroy(sources->ops, made);
        }
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

void umf_board_hold(umf_board_sources_t *sources, umf_board_source_t *source) {
    umf_lock(sources->lock);
    source->refs++;
    umf_unlock(sources->lock);
}

void umf_board_put(umf_board_sources_t *sources, umf_board_source_t *source) {
    umf_lock(sources->lock);
    bool is_last = --source->refs == 0;
    if (is_last) {
        umf_board_source_t **link = &sources->first;
        while (*link != source) {
            link = &(*link)->next;
        }
        *link = source->next;
    }
    umf_unlock(sources->lock);
    if (is_last) {
        source_destroy(sources->ops, source);
    }
}

void umf_board_sources_fini(umf_board_sources_t *sources) {
    for (umf_board_source_t *source = sources->first, *next; source; source = next) {
        next = source->next;
        source_destroy(sources->ops, source);
    }
}

umf_result_t umf_board_check(const umf_board_source_t *source, uint32_t word, uint64_t generation) {
    uint64_t now = __atomic_load_n(&source->words[word], __ATOMIC_ACQUIRE);
    if (now != generation) {
        UMF_LOG_ERROR("the producer has freed the memory that was described, or suspended its pool "
                      "since: ask it for a new handle (generation %llu of word %u, now %llu)",
                      (unsigned long long)generation, word, (unsigned long long)now);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_board_watch(const umf_board_sources_t *sources, const umf_fd_ticket_t *ticket,
                             uint32_t word, const uint64_t **address) {
    umf_lock(sources->lock);
    const umf_board_source_t *source = source_find_locked(sources, ticket);
    umf_unlock(sources->lock);
    if (!source || word >= source->size / sizeof(*source->words)) {
        UMF_LOG_ERROR("nothing of the producer that was described is open");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *address = &source->words[word];
    return UMF_RESULT_SUCCESS;
}
