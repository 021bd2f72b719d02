/* The clocks of decay behind plain functions: their header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_DECAY_SHIM_H
#define UMF_TEST_UNIT_DECAY_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is a clock due whose pass was due `late` nanoseconds ago? */
bool shim_is_due(uint64_t late);
bool shim_is_tick_due(void);
void shim_tick_soon(void);
uint64_t shim_tick_wait(void);
size_t shim_bytes(void);
void shim_set_thread(bool is_running);
void shim_become_thread(bool is_it);

#ifdef __cplusplus
}
#endif

#endif
