/*
 * Pools by name, in order of creation, for "umf.pool.by_name".
 *
 * A pool that was found is pinned: its destruction waits until it is put back, so a query by name
 * and a destroy in another thread do not meet.
 */
#ifndef UMF_SRC_CORE_NAMES_H
#define UMF_SRC_CORE_NAMES_H

#include <umf/memory_pool.h>

#include "ds/list.h"
#include "system/common.h"

/* Without NUL. */
#define UMF_NAMES_LENGTH 64

/* The part of a pool that is listed. Zeroed: not listed. */
typedef struct umf_named_t {
    umf_list_t link;
    uint32_t pins; /* Sync: the POOLS lock, as all here */
    int pin_pid;   /* the process the pins belong to; a fork leaves them behind */
    bool listed;
    bool leaving; /* not to be pinned any more */
    char name[UMF_NAMES_LENGTH + 1];
} umf_named_t;

void umf_names_init(void);

/* 1 to 64 characters out of [A-Za-z0-9_-]. */
bool umf_name_is_valid(const char *name);

/* A pool whose name is not valid is not listed; the log says so. */
void umf_names_add(const char *name, umf_memory_pool_handle_t pool);
/* Waits for pins. Nothing for a pool that is not listed. */
void umf_names_remove(umf_memory_pool_handle_t pool);

size_t umf_names_count(const char *name);

/* The pool of that name with so many before it, pinned; NULL if there is none. */
umf_memory_pool_handle_t umf_names_get(const char *name, size_t index);
/* The next one of that name behind a pinned one (NULL: the first), pinned; puts the pinned one
 * back. */
umf_memory_pool_handle_t umf_names_next(const char *name, umf_memory_pool_handle_t pinned);
void umf_names_put(umf_memory_pool_handle_t pinned);

#endif
