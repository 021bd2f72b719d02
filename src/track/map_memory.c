/* The memory of maps: roots, the flat table, the maps of addresses above 48 bits. */
#include <sys/mman.h>

#include "base/meta.h"
#include "system/os.h"
#include "track/map_own.h"

/* Bits of the addresses that the system gives to programs; on x86-64 the upper half is the
 * kernel's. */
#ifdef __x86_64__
#define FLAT_BITS 47
#else
#define FLAT_BITS 48
#endif
#define FLAT_SLOTS ((size_t)1 << (FLAT_BITS - 21))

/* Bytes of the flat table that become writable at once. Each such window may split a mapping in
 * two; it covers 64 GiB of addresses, so there are few. */
#define FLAT_WINDOW ((size_t)256 << 10)

/* A further range of 48 bits of addresses. It has a map of its own, which uses the shards of the
 * main map. Machines have few of these, or none. */
typedef struct umf_map_high_t {
    struct umf_map_high_t *next; /* Immutable, as the number */
    uintptr_t number;            /* the bits of the addresses above the low 48 */
    umf_map_t map;
} umf_map_high_t;

static _Atomic umf_map_entry_t global_root[UMF_MAP_ROOT_SIZE] __attribute__((aligned(4096)));
static umf_map_shard_t global_shards[UMF_MAP_SHARDS];
umf_map_t umf_map_global;
_Atomic umf_map_entry_t *umf_map_global_flat;
size_t umf_map_global_slots;

void umf_map_global_init(void) {
    umf_map_global.root = global_root;
    umf_map_global.shards = global_shards;
    umf_map_global.shard_mask = UMF_MAP_SHARDS - 1;
    for (uint32_t i = 0; i < UMF_MAP_SHARDS; i++) {
        umf_lock_init(&global_shards[i].lock, UMF_RANK_MAP);
    }
    umf_lock_init(&umf_map_global.root_lock, UMF_RANK_MAP_ROOT);
    umf_lock_init(&umf_map_global.nest_lock, UMF_RANK_MAP_NEST);
    umf_os_advise(global_root, sizeof(global_root), MADV_NOHUGEPAGE);
    umf_map_reserve(&umf_map_global);
    umf_map_global_flat = umf_map_global.flat;
    umf_map_global_slots = umf_map_global.flat_slots;
}

/*
 * The flat table is readable everywhere, so that a reader may read any slot, and writable only
 * around tables that are in use. mlockall and systems without overcommit therefore charge almost
 * nothing for it. If addresses are limited, it is not reserved, because it would take too many of
 * them.
 */
void umf_map_reserve(umf_map_t *map) {
    void *flat = NULL;
    if (umf_os_address_limit() != SIZE_MAX ||
        umf_os_map(&flat, FLAT_SLOTS * sizeof(umf_map_entry_t), PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        return;
    }
    umf_os_advise(flat, FLAT_SLOTS * sizeof(umf_map_entry_t), MADV_NOHUGEPAGE);
    umf_os_advise(flat, FLAT_SLOTS * sizeof(umf_map_entry_t), MADV_DONTDUMP);
    map->flat = flat;
    map->flat_slots = FLAT_SLOTS;
}

/* The place of a table in the flat one, made writable. NULL: there is none. */
_Atomic umf_map_entry_t *umf_map_flat_table(umf_map_t *map, uintptr_t addr) {
    size_t slot = addr >> umf_map_shift[1] & ~(size_t)(umf_map_slots[1] - 1);
    if (slot >= map->flat_slots) {
        return NULL;
    }
    /* The mapping itself is aligned to a page alone. */
    size_t offset = umf_align_down(slot * sizeof(umf_map_entry_t), FLAT_WINDOW);
    void *window = (char *)map->flat + offset;
    if (umf_os_protect(window, FLAT_WINDOW, PROT_READ | PROT_WRITE)) {
        return NULL;
    }
    umf_os_advise(window, FLAT_WINDOW, MADV_DODUMP);
    return &map->flat[slot];
}

static bool is_flat(const umf_map_t *map, const _Atomic umf_map_entry_t *table) {
    return (uintptr_t)table - (uintptr_t)map->flat < map->flat_slots * sizeof(*table);
}

static umf_result_t map_init_root(umf_map_t *map) {
    void *root = NULL;
    int err = umf_os_map(&root, UMF_MAP_ROOT_SIZE * sizeof(umf_map_entry_t), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (err) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_os_advise(root, UMF_MAP_ROOT_SIZE * sizeof(umf_map_entry_t), MADV_NOHUGEPAGE);
    map->root = root;
    umf_lock_init(&map->root_lock, UMF_RANK_MAP_ROOT);
    umf_lock_init(&map->nest_lock, UMF_RANK_MAP_NEST);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_map_init(umf_map_t *map) {
    *map = (umf_map_t){.shard_mask = 0};
    map->shards = umf_meta_alloc(sizeof(umf_map_shard_t));
    if (!map->shards) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = map_init_root(map);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(map->shards, sizeof(umf_map_shard_t));
        return result;
    }
    umf_lock_init(&map->shards[0].lock, UMF_RANK_MAP);
    return UMF_RESULT_SUCCESS;
}

/* The map of an address above 48 bits; it takes the low 48 bits of the address. NULL: there is
 * none. */
umf_map_t *umf_map_high(const umf_map_t *map, uintptr_t addr) {
    umf_map_high_t *high = atomic_load_explicit(&map->high, memory_order_acquire);
    while (high && high->number != addr >> 48) {
        high = high->next;
    }
    return high ? &high->map : NULL;
}

static umf_map_high_t *high_map_make_locked(umf_map_t *map, uintptr_t addr) {
    umf_assert_locked(&map->shards[0].lock);
    umf_map_high_t *high = umf_meta_alloc(sizeof(*high));
    if (!high) {
        return NULL;
    }
    high->next = atomic_load_explicit(&map->high, memory_order_relaxed);
    high->number = addr >> 48;
    high->map = (umf_map_t){.shards = map->shards, .shard_mask = 0};
    if (map_init_root(&high->map) != UMF_RESULT_SUCCESS) {
        umf_meta_free(high, sizeof(*high));
        return NULL;
    }
    atomic_store_explicit(&map->high, high, memory_order_release);
    return high;
}

/* The same; makes the map if there is none. NULL: no memory. */
umf_map_t *umf_map_high_made(umf_map_t *map, uintptr_t addr) {
    umf_lock(&map->shards[0].lock);
    umf_map_t *there = umf_map_high(map, addr);
    umf_map_high_t *made = there ? NULL : high_map_make_locked(map, addr);
    umf_unlock(&map->shards[0].lock);
    return made ? &made->map : there;
}

static void table_free(const umf_map_t *map, umf_map_entry_t w, int level) {
    _Atomic umf_map_entry_t *table = UMF_MAP_CHILD(w);
    for (uint32_t i = 0; i < umf_map_slots[level]; i++) {
        umf_map_entry_t child = umf_map_load(&table[i]);
        if (child & 1) {
            if (level == UMF_MAP_LEVELS - 1) {
                umf_map_list_free(umf_map_list_of(child));
            } else {
                table_free(map, child, level + 1);
            }
        }
    }
    if (!is_flat(map, table)) {
        umf_map_free((void *)table, umf_map_slots[level] * sizeof(umf_map_entry_t));
    }
}

/* Frees everything but the shards. */
static void map_fini_root(umf_map_t *map) {
    for (size_t page = 0; page < UMF_MAP_ROOT_SIZE / 512; page++) {
        if (!(map->touched[page / 64] >> page % 64 & 1)) {
            continue;
        }
        for (size_t i = page * 512; i < (page + 1) * 512; i++) {
            umf_map_entry_t w = umf_map_load(&map->root[i]);
            if (w & 1) {
                table_free(map, w, 1);
            }
        }
    }
    if (map->flat) {
        umf_os_unmap((void *)map->flat, map->flat_slots * sizeof(umf_map_entry_t));
    }
    umf_os_unmap((void *)map->root, UMF_MAP_ROOT_SIZE * sizeof(umf_map_entry_t));
    umf_lock_destroy(&map->nest_lock);
    umf_lock_destroy(&map->root_lock);
}

void umf_map_fini(umf_map_t *map) {
    umf_map_high_t *high = atomic_load_explicit(&map->high, memory_order_relaxed);
    while (high) {
        umf_map_high_t *next = high->next;
        map_fini_root(&high->map);
        umf_meta_free(high, sizeof(*high));
        high = next;
    }
    map_fini_root(map);
    umf_map_list_free_unused(&map->shards[0]);
    umf_lock_destroy(&map->shards[0].lock);
    umf_meta_free(map->shards, sizeof(umf_map_shard_t));
    *map = (umf_map_t){.shard_mask = 0};
}
