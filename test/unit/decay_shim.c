#include "decay_shim.h"

#include "base/thread_slot.h"
#include "cache/decay.h"

bool shim_is_due(uint64_t late) {
    umf_decay_t decay = {.next = umf_decay_now() - late};
    return umf_decay_is_due(&decay);
}

bool shim_is_tick_due(void) {
    return umf_decay_is_tick_due();
}

void shim_tick_soon(void) {
    umf_decay_tick_soon();
}

uint64_t shim_tick_wait(void) {
    return umf_decay_tick_wait();
}

size_t shim_bytes(void) {
    return umf_decay_bytes();
}

void shim_set_thread(bool is_running) {
    umf_decay_set_thread(is_running);
}

void shim_become_thread(bool is_it) {
    umf_thread_slot_tls.is_background = is_it;
}
