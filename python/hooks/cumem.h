/*
 * Allocations of vLLM's memory pools: those of my_malloc, by address, and copies of their content
 * on the host. Behind the module cumem_allocator. All functions are thread-safe; they are called
 * without the GIL.
 */
#ifndef UMF_PYTHON_HOOKS_CUMEM_H
#define UMF_PYTHON_HOOKS_CUMEM_H

#include "backup.h"

/* A note of an allocation that was made, or is gone. */
typedef struct note_t {
    bool is_gone;
    int device, tag;
    size_t size;
    void *ptr, *handle;
} note_t;

enum { CUMEM_UNNOTED = -1 }; /* in the place of a tag */

/* NULL if there is no memory. The size is rounded up to the driver's granularity. A note is taken,
 * with the tag, unless that is CUMEM_UNNOTED. */
block_t *cumem_malloc(size_t *size, int device, int tag, failure_t *error);
/* Frees an address of cumem_malloc; does nothing for another. A note is taken if is_noted; an
 * allocation whose own note was not read leaves none. */
void cumem_free(void *ptr, bool is_noted);
/* The notes since the last call, oldest first; free gives the array back. False: there is no
 * memory, and the notes stay. */
bool cumem_take_notes(note_t **notes, size_t *count);
/* All or none; fails for an address of another allocator. Allocations in that state stay in it. */
bool cumem_move(void *const *ptrs, size_t count, bool is_asleep, failure_t *error);
/* Copies the content of each allocation into memory of the host that is made for it and pinned. */
bool cumem_save(void *const *ptrs, size_t count, void **hosts, failure_t *error);
/* Copies memory of the host, of any kind, back into each allocation. */
bool cumem_load(void *const *ptrs, void *const *hosts, const size_t *sizes, size_t count,
                failure_t *error);
/* Gives memory of cumem_save back. */
void cumem_drop(void *host);

#endif
