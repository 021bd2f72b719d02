/* Claims: parts of claim.c. Of memory of a device the word with the epoch is in memory of the host.
 */
#ifndef UMF_SRC_EXT_VAULT_CLAIM_H
#define UMF_SRC_EXT_VAULT_CLAIM_H

#include "ext/vault/device.h"
#include "system/os.h"

/* --- claim_memory.c --- */

/* Makes memory of a device. */
typedef struct umf_vault_memory_maker_t {
    umf_memory_provider_handle_t provider; /* NULL: none */
    size_t size;                           /* rounded up to the granularity */
    unsigned char id[UMF_VAULT_DEVICE_SIZE];
} umf_vault_memory_maker_t;

/* `text`: of the provider. Ended by umf_vault_memory_end, also after a failure. */
umf_result_t umf_vault_memory_begin(const char *text, size_t size, umf_vault_memory_maker_t *maker);
/* New memory, zero, which is not mapped here; the descriptor is the caller's. */
umf_result_t umf_vault_memory_make(const umf_vault_memory_maker_t *maker, int *fd);
void umf_vault_memory_end(umf_vault_memory_maker_t *maker);

/* Maps memory of a claim for writing. The descriptor stays the caller's. */
umf_result_t umf_vault_memory_map(umf_vault_handle_t vault, const char *text,
                                  const unsigned char id[UMF_VAULT_DEVICE_SIZE], int fd,
                                  size_t size, umf_vault_held_memory_t *memory);
/* Waits for all work that is queued on its device. Of the host there is none. */
umf_result_t umf_vault_memory_settle(const umf_vault_held_memory_t *memory);
void umf_vault_memory_unmap(umf_vault_held_memory_t *memory);

/* --- claim_each.c --- */

/* The place of the epoch: the last page. */
static inline uint64_t *umf_vault_held_word(const umf_vault_held_t *held) {
    return (uint64_t *)(void *)((char *)held->base + held->size - umf_os_page_size());
}
/* A child of fork reads 0 as the epoch of each claim. */
void umf_vault_claims_in_child(umf_link_t *link);

/* Bytes of a claim without the page of its epoch; 0: a file of another program, which has no room
 * for that page. */
size_t umf_vault_claim_size(uint32_t kind, uint64_t size);

#endif
