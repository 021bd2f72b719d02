/* One generation of a vault, published: its memory by runs of pages, and the table of them. */
#ifndef UMF_REMOTE_GENERATION_H
#define UMF_REMOTE_GENERATION_H

#include <stddef.h>
#include <stdint.h>

#include <umf/remote.h>
#include <umf/vault.h>

typedef struct generation_t generation_t;

/* NULL: it failed, and a line says why. The generation has the view afterwards; after a failure it
 * is detached, too. */
generation_t *generation_publish(umf_remote_handle_t remote, const char *name,
                                 umf_vault_view_handle_t view);
/* Requests of peers that are under way are waited for, further ones refused. NULL is ignored. */
void generation_end(generation_t *generation);

uint64_t generation_number(const generation_t *generation);
/* The published range with its table. */
umf_remote_export_handle_t generation_table(const generation_t *generation, uint64_t *size);

/* Memory of a pool that can be published. NULL: none, or the library lacks a part. */
void *block_new(size_t size);

#endif
