/*
 * Pools by name, in order of creation, for "umf.pool.by_name".
 *
 * A pool that was found is pinned: its destruction waits until it is put back. A query by name is
 * therefore safe while another thread destroys the pool.
 */
#ifndef UMF_SRC_OBJECT_NAMES_H
#define UMF_SRC_OBJECT_NAMES_H

#include <umf/memory_pool.h>

#include "ds/list.h"
#include "system/common.h"

/* The longest name, without NUL. */
#define UMF_NAMES_LENGTH 64

/* The part of a pool that is listed. Zeroed: not listed. */
typedef struct umf_named_t {
    umf_list_t link;
    uint32_t pins; /* Sync: the POOLS lock, as all here */
    int pin_pid;   /* the process of the pins; in a child of fork they do not count */
    bool listed;
    bool leaving; /* it must not be pinned any more */
    char name[UMF_NAMES_LENGTH + 1];
} umf_named_t;

void umf_names_init(void);

/* A valid name is 1 to 64 characters of [A-Za-z0-9_-]. */
bool umf_name_is_valid(const char *name);

/* Lists a pool. A pool whose name is not valid is not listed; the log says so. */
void umf_names_add(const char *name, umf_memory_pool_handle_t pool);
/* Takes a pool off the list and waits for its pins. Does nothing if the pool is not listed. */
void umf_names_remove(umf_memory_pool_handle_t pool);

size_t umf_names_count(const char *name);

/* The pool of that name with this index, pinned. NULL: there is none. */
umf_memory_pool_handle_t umf_names_get(const char *name, size_t index);
/* The pool of that name that follows `pinned` (NULL: the first), pinned. Puts `pinned` back. */
umf_memory_pool_handle_t umf_names_next(const char *name, umf_memory_pool_handle_t pinned);
void umf_names_put(umf_memory_pool_handle_t pinned);

#endif
