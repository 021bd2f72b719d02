/*
 * Lists of the pointer map: the spans of a page that contains the edge of a span.
 *
 * The map entry of such a page leads to a list. Readers take no lock. A thread that changes the
 * list or the map entry of the page holds the shard of the page.
 */
#ifndef UMF_SRC_TRACK_MAP_LIST_H
#define UMF_SRC_TRACK_MAP_LIST_H

#include "system/atomic.h"
#include "track/map.h"

#define UMF_MAP_PAGE ((uintptr_t)4096)

typedef struct umf_map_list_t umf_map_list_t;

static inline umf_map_list_t *umf_map_list_of(umf_map_entry_t w) {
    return (umf_map_list_t *)(uintptr_t)(w - UMF_MAP_ENTRY_LIST);
}

/* Memory of tables and lists. */
void *umf_map_alloc(size_t size);
void umf_map_free(void *ptr, size_t size);

/* The map entry of the innermost span that contains `addr`. `slot` is the slot of the page, which
 * may get or lose its list meanwhile. */
umf_map_entry_t umf_map_list_find(const _Atomic(umf_map_entry_t) *slot, uintptr_t addr);

/* Gives the page of `slot`, whose entry is `w`, a list with room for two more entries. NULL: no
 * memory, or the slot has another entry by now. */
umf_map_list_t *umf_map_list_make_room(umf_map_shard_t *shard, _Atomic(umf_map_entry_t) *slot,
                                       umf_map_entry_t w);
/* Replaces the page's list by a plain map entry if the list has no entries. */
void umf_map_list_drop_if_empty(umf_map_shard_t *shard, _Atomic(umf_map_entry_t) *slot,
                                umf_map_list_t *list);

/* Does all of [lo, hi) of the page lead to `map_entry`? */
bool umf_map_list_is_uniform(const umf_map_list_t *list, uint32_t lo, uint32_t hi,
                             umf_map_entry_t map_entry);
/* Adds an entry for a part of the page. The list must have room for it. */
void umf_map_list_insert(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry);
/* Removes `map_entry`, which was inserted: [lo, hi) leads to `under` or to the span around it
 * again. */
void umf_map_list_remove(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t under);
/* Replaces `map_entry` by `to`. Parts of a span that become adjacent are merged. */
void umf_map_list_rename(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t to);
/* Divides the part of the page that `low` covers at `mid`. The list must have room for two entries.
 * `under` as for remove. */
void umf_map_list_split(umf_map_list_t *list, uint32_t mid, umf_map_entry_t low,
                        umf_map_entry_t high, umf_map_entry_t under);

void umf_map_list_free(umf_map_list_t *list);
/* Frees the unused lists. */
void umf_map_list_free_unused(umf_map_shard_t *shard);

#endif
