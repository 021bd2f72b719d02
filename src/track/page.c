#include "track/page.h"

#include <sys/mman.h>

#include "system/os.h"

#define GIB ((uintptr_t)1 << UMF_PAGE_RECORDS_SHIFT)
#define RECORDS (GIB >> UMF_PAGE_RECORD_SHIFT)
#define RECORDS_BYTES (RECORDS * sizeof(umf_page_record_t))

_Atomic uintptr_t umf_page_records[UMF_MAP_ROOT_SIZE] __attribute__((aligned(4096)));

/* Tables are never freed. Only records that are written have memory. */
static bool records_make(uintptr_t gib) {
    void *table = NULL;
    if (umf_os_map(&table, RECORDS_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        return false;
    }
    umf_os_advise(table, RECORDS_BYTES, MADV_NOHUGEPAGE);
    umf_os_advise(table, RECORDS_BYTES, MADV_DONTDUMP);
    uintptr_t of_page_0 = (uintptr_t)table - gib * RECORDS_BYTES, none = 0;
    if (of_page_0 == 0 ||
        !atomic_compare_exchange_strong(&umf_page_records[gib], &none, of_page_0)) {
        umf_os_unmap(table, RECORDS_BYTES); /* another thread has made it */
    }
    return of_page_0 != 0;
}

bool umf_page_records_make(uintptr_t base, size_t size) {
    uintptr_t last = base + (size ? size - 1 : 0);
    if (last >> 21 >= umf_map_global_slots) {
        return false;
    }
    for (uintptr_t gib = base / GIB; gib <= last / GIB; gib++) {
        if (!atomic_load_explicit(&umf_page_records[gib], memory_order_relaxed) &&
            !records_make(gib)) {
            return false;
        }
    }
    return true;
}

void umf_page_publish(uintptr_t addr, const umf_page_record_t *record) {
    umf_page_record_t *page;
    if (!umf_page_record_find(addr, &page)) {
        return;
    }
    __atomic_store_n(&page->pool, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->states, record->states, __ATOMIC_RELEASE);
    __atomic_store_n(&page->magazine, record->magazine, __ATOMIC_RELAXED);
    __atomic_store_n(&page->origin, record->origin, __ATOMIC_RELAXED);
    __atomic_store_n(&page->pool, record->magazine ? record->pool : 0, __ATOMIC_RELEASE);
    atomic_thread_fence(memory_order_seq_cst); /* as in umf_page_conceal */
    uint64_t rotated = umf_map_entry_rotate(umf_map_find(&umf_map_global, addr));
    if ((uint32_t)rotated != umf_map_paged_key(umf_page_key_pool(record->pool))) {
        __atomic_store_n(&page->pool, 0, __ATOMIC_RELAXED);
    }
}

/* A publish at this moment finds the new entries of the map, or its record is found here. */
void umf_page_conceal(uintptr_t base, size_t size) {
    uintptr_t last = base + (size ? size - 1 : 0);
    atomic_thread_fence(memory_order_seq_cst);
    for (uintptr_t page = base >> UMF_PAGE_RECORD_SHIFT; page <= last >> UMF_PAGE_RECORD_SHIFT;
         page++) {
        umf_page_record_t *record;
        if (umf_page_record_find(page << UMF_PAGE_RECORD_SHIFT, &record) &&
            __atomic_load_n(&record->pool, __ATOMIC_RELAXED)) {
            __atomic_store_n(&record->pool, 0, __ATOMIC_RELAXED);
        }
    }
}

/* Replaces the key of a record of the pool. */
static void change_key(umf_page_record_t *page, uint32_t pool, uint16_t key) {
    uint16_t seen = __atomic_load_n(&page->pool, __ATOMIC_RELAXED);
    while (umf_page_key_pool(seen) == pool && seen != key &&
           !__atomic_compare_exchange_n(&page->pool, &seen, key, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

void umf_page_adopt(uintptr_t addr, uint32_t pool, uint32_t owner) {
    umf_page_record_t *page;
    if (umf_page_record_find(addr, &page)) {
        change_key(page, pool, umf_page_key(pool, owner));
    }
}

/* If another pool publishes its record at this moment, that may be withdrawn: frees of its objects
 * take the longer way then. */
void umf_page_withdraw(uintptr_t addr, uint32_t pool, const uint8_t *states) {
    umf_page_record_t *page;
    if (pool && umf_page_record_find(addr, &page) &&
        __atomic_load_n(&page->states, __ATOMIC_RELAXED) == states) {
        change_key(page, pool, 0);
    }
}
