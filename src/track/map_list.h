/*
 * Lists of the pointer map: what lies within a page that holds the edge of a span.
 *
 * The map_entry of such a page leads to a list. Readers take no lock; the shard of the page is held
 * by whoever changes its list or its map_entry.
 */
#ifndef UMF_SRC_TRACK_MAP_LIST_H
#define UMF_SRC_TRACK_MAP_LIST_H

#include "track/map.h"

#define UMF_MAP_PAGE ((uintptr_t)4096)

typedef struct umf_map_list_t umf_map_list_t;

static inline umf_map_list_t *umf_map_list_of(umf_map_entry_t w) {
    return (umf_map_list_t *)(uintptr_t)(w - UMF_MAP_ENTRY_LIST);
}

/* The map_entry of the innermost span that contains `addr`; `slot` is the page's, which may get or
 * lose its list meanwhile. */
umf_map_entry_t umf_map_list_find(const _Atomic umf_map_entry_t *slot, uintptr_t addr);

/* Makes the page behind `slot` a list with room for two more entries. NULL: no memory. */
umf_map_list_t *umf_map_list_make_room(umf_map_shard_t *shard, _Atomic umf_map_entry_t *slot);
/* The page, which has this list, is plain again if that has no entries. */
void umf_map_list_drop_if_empty(umf_map_shard_t *shard, _Atomic umf_map_entry_t *slot,
                                umf_map_list_t *list);

/* All of [lo, hi) of the page leads to `map_entry`? */
bool umf_map_list_is_uniform(const umf_map_list_t *list, uint32_t lo, uint32_t hi,
                             umf_map_entry_t map_entry);
/* Needs room for an entry. */
void umf_map_list_insert(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry);
/* Withdraws `map_entry`, which was inserted: [lo, hi) leads to `under` or to what lies around it.
 */
void umf_map_list_remove(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t under);
/* Puts `to` in the place of `map_entry`. The parts of a span that meet thereby become one. */
void umf_map_list_rename(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t to);
/* Divides what `low` covers of the page at `mid`; needs room for two entries. `under` as for
 * remove. */
void umf_map_list_split(umf_map_list_t *list, uint32_t mid, umf_map_entry_t low,
                        umf_map_entry_t high, umf_map_entry_t under);

void umf_map_list_free(umf_map_list_t *list);
/* Those without a page. */
void umf_map_list_free_unused(umf_map_shard_t *shard);

#endif
