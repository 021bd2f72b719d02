#include "page_records_shim.h"

#include "pools/shared/starts.h"
#include "track/page.h"

bool shim_page_make(uintptr_t base, size_t size) {
    return umf_page_records_make(base, size);
}

void shim_page_publish(uintptr_t addr, uint32_t pool, uint16_t magazine, uint8_t *states) {
    umf_page_record_t record = {.states = states, .pool = (uint16_t)pool, .magazine = magazine};
    umf_page_publish(addr, &record);
}

void shim_page_withdraw(uintptr_t addr, uint32_t pool, const uint8_t *states) {
    umf_page_withdraw(addr, pool, states);
}

uint32_t shim_page_pool(uintptr_t addr) {
    return umf_page_record_at(addr)->pool;
}

void *shim_page_record(uintptr_t addr) {
    return umf_page_record_at(addr);
}

/* A page of 48 B (kind 1) or of 32 B (kind 2). */
static umf_starts_sizes_t sizes;
UMF_LOCK_STATIC(starts_lock, UMF_RANK_ARENA);

void shim_starts_make(void *page, uint32_t kind, uintptr_t addr) {
    static _Atomic size_t made;
    umf_starts_pool_t pool = {.sizes = &sizes, .lock = &starts_lock, .index = 5, .bins = 2};
    umf_starts_set_size(&sizes, 1, 48);
    umf_starts_set_size(&sizes, 2, 32);
    umf_starts_make(&pool, page, kind, addr, 0, &made);
}

uint32_t shim_starts_kind(const void *page) {
    return __atomic_load_n(&((const umf_starts_t *)page)->kind, __ATOMIC_ACQUIRE);
}

bool shim_page_is_of_kind(uintptr_t addr, uint32_t kind) {
    const umf_page_record_t *record = umf_page_record_at(addr);
    return UMF_PAGE_LOAD(record, pool) == 5 &&
           UMF_PAGE_LOAD(record, magazine) == umf_magazine_offset(kind - 1);
}
