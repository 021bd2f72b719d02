/*
 * The kind of memory at a range of addresses, and the provider that can copy it.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_MEMORY_KIND_H
#define UMF_SRC_EXT_MOVEMENT_MEMORY_KIND_H

#include "ext/staging/operand.h"

/* Finds the kind of [addr, addr + size), which is about to be written or read. `word` is the
 * caller's word for unknown memory; `helper` (may be NULL) is the provider that copies it then.
 * Cannot fail: untracked memory counts as memory of the host. */
void umf_operand_find(umf_operand_t *operand, const void *addr, size_t size, bool is_written,
                      umf_place_kind_t word, umf_memory_provider_handle_t helper);

/* Checks that the range lies in its allocation and is not suspended. Logs the cause of a failure.
 */
umf_result_t umf_operand_check(const umf_operand_t *operand);

/* Is it memory of the host that needs no question: the caller's stack, the heap or the
 * program's variables? For addresses
 * that are not in the map. */
bool umf_operand_is_plain(uintptr_t addr, size_t size);

/* Does one `copy` take the memory of both? */
bool umf_operand_is_same_domain(const umf_operand_t *a, const umf_operand_t *b);

#endif
