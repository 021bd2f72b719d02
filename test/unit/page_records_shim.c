#include "page_records_shim.h"

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
