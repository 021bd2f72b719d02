#include "pause_shim.h"

#include <stdatomic.h>

#include "track/map_list.h"

static umf_map_shard_t shard;
static _Atomic umf_map_entry_t slot;
static umf_map_list_t *list;

int pause_shim_list_make(void) {
    list = umf_map_list_make_room(&shard, &slot, umf_map_load(&slot));
    return list != NULL;
}

/* The sequence number is its first member. */
void pause_shim_list_change(void) {
    atomic_fetch_add((_Atomic uint32_t *)(void *)list, 1);
}

unsigned long pause_shim_list_find(void) {
    return umf_map_list_find(&slot, 0x1000);
}
