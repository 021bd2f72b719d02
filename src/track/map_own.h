/* The inside of the pointer map, shared by its files. */
#ifndef UMF_SRC_TRACK_MAP_OWN_H
#define UMF_SRC_TRACK_MAP_OWN_H

#include "track/map.h"
#include "track/map_list.h"
#include "track/map_run.h"

/* Of an address, for the map of its 48 bits. */
#define UMF_MAP_LOW_BITS(addr) ((addr) & (((uintptr_t)1 << 48) - 1))

/* --- map_memory.c ----------------------------------------------------------------------------- */

/* The place of a table in the flat one, made writable. NULL: there is none. */
_Atomic(umf_map_entry_t) *umf_map_flat_table(umf_map_t *map, uintptr_t addr);
/* The map of an address above 48 bits; it takes the low 48 bits of the address. NULL: there is
 * none. */
umf_map_t *umf_map_high(const umf_map_t *map, uintptr_t addr);
/* The same; makes the map if there is none. NULL: no memory. */
umf_map_t *umf_map_high_made(umf_map_t *map, uintptr_t addr);

#endif
