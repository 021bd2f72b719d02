/* Content: the entries of a draft that count at its commit. */
#ifndef UMF_SRC_EXT_VAULT_CONTENT_H
#define UMF_SRC_EXT_VAULT_CONTENT_H

#include "ext/vault/draft.h"

/* Entries by key, each key once, and the slabs that they are in, numbered. */
typedef struct umf_vault_content_t {
    umf_table_source_t *entries;
    uint32_t count, slabs;
    size_t room;
    umf_vault_slab_t *table_slabs;
    size_t table_slabs_room;
    const char **bases;                      /* of the slabs in the table */
    umf_memory_provider_handle_t *providers; /* of slabs of a device; NULL: the host */
} umf_vault_content_t;

/* Sorts the entries and numbers the slabs that have some, in the order of the draft. After a
 * failure there is something to fini, too. */
umf_result_t umf_vault_content_init(umf_vault_draft_handle_t draft, umf_vault_content_t *content);
void umf_vault_content_fini(umf_vault_content_t *content);
/* The sums of the content as it is now. Those of `from` stay. */
umf_result_t umf_vault_content_sum(umf_vault_draft_handle_t draft,
                                   const umf_vault_content_t *content);

#endif
