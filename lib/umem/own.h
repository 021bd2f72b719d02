/*
 * Common parts of libumem. It stands on the public interface of libumf; it neither links
 * nor loads a GPU's driver.
 *
 * Contexts whose addresses are pointers (all but File) have the operations of block.c and copy.c
 * and differ in the pool that umem_pool_of finds for them.
 */
#ifndef UMF_LIB_UMEM_OWN_H
#define UMF_LIB_UMEM_OWN_H

#include <errno.h>

#include <umem/umem.h>
#include <umf.h>

/* Programs may use a byte or so behind their blocks. */
#define UMEM_SLACK ((size_t)8)

static inline void umem_errno_put_back(const int *error) {
    errno = *error;
}

/* A declaration: errno is restored at the end of its block, however the block is left. */
#define UMEM_KEEP_ERRNO                                                                            \
    __attribute__((cleanup(umem_errno_put_back), unused)) const int umem_kept_errno = errno

/* status.c */

/*
 * Whether a call failed must not depend on errors before it: the status is set aside during the
 * call and put back behind it, with what the call added. put_back returns whether it added no
 * error.
 */
umemStatus umem_status_set_aside(umemVirtual *ctx);
bool umem_status_put_back(umemVirtual *ctx, umemStatus before);

/* virtual.c */

/* Makes the part that all contexts have. `host`: NULL for none. */
void umem_base_init(umemVirtual *ctx, const struct umemVtbl *vptr, umemDeviceType type,
                    umemHost *host);
/* The checks of umem_aligned_alloc. false: the status is set. */
bool umem_alignment_is_good(umemVirtual *ctx, size_t alignment, size_t size);
/* Duplicates name and mode; a text that is empty or NULL sets ValueError, and both are NULL. */
void umem_names_copy(umemVirtual *ctx, const char *filename, const char *mode,
                     const char **own_filename, const char **own_mode);

/* pools.c */

/* Room for the reason why there is no pool. */
typedef struct umem_why_t {
    char text[384];
} umem_why_t;

/* The pool of a context's blocks of an alignment. NULL: it cannot be made. The status is `error`
 * then, or IOError for a file. */
umf_memory_pool_handle_t umem_pool_of(umemVirtual *ctx, size_t alignment, umemStatusType error);
umf_memory_pool_handle_t umem_pool_of_host(umem_why_t *why);
/* The pool of memory of a device. */
umf_memory_pool_handle_t umem_pool_of_device(int device, umem_why_t *why);
/* A pool each of whose blocks is an allocation of the driver. */
umf_memory_pool_handle_t umem_pool_of_driver(int device, umem_why_t *why);
/* Device of the calling thread; 0 if it has none or there is no driver. */
int umem_current_device(void);
/* Releases unused memory of the pools of devices. */
void umem_pools_trim(void);
/* There is a context of this device: pools that are made from now on give it access. */
void umem_pool_expect_device(int device);
/* Whether `peer` has access to the memory of the device's pool. A text in `why`: that cannot be
 * found out. */
bool umem_pool_serves_peer(int device, int peer, umem_why_t *why);

/* mmap.c */
umf_memory_pool_handle_t umem_mmap_pool(umemMMap *ctx, umem_why_t *why);
/* The context's file has a block more, and stays open until that is freed. */
void umem_mmap_add_block(umemVirtual *ctx);

/* rmm.c */
/* The pool of blocks of an alignment: the options of rmmInitialize choose it. */
umf_memory_pool_handle_t umem_rmm_pool(int device, size_t alignment, umem_why_t *why);

/* block.c */
uintptr_t umem_block_alloc(umemVirtual *const ctx, size_t nbytes);
uintptr_t umem_block_calloc(umemVirtual *const ctx, size_t nmemb, size_t size);
void umem_block_free(umemVirtual *const ctx, uintptr_t adr);
uintptr_t umem_block_aligned_alloc(umemVirtual *const ctx, size_t alignment, size_t size);
uintptr_t umem_block_aligned_origin(umemVirtual *const ctx, uintptr_t aligned_adr);

/* copy.c */
void umem_block_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes);
void umem_block_copy_to(umemVirtual *const src_ctx, uintptr_t src_adr, umemVirtual *const dest_ctx,
                        uintptr_t dest_adr, size_t nbytes);
void umem_block_copy_from(umemVirtual *const dest_ctx, uintptr_t dest_adr,
                          umemVirtual *const src_ctx, uintptr_t src_adr, size_t nbytes);
/* Waits for the work on a stream. */
umf_result_t umem_stream_wait(void *queue, umf_memory_provider_handle_t provider);
/* Waits for work that the context of a block has put on its stream, if it is asynchronous. */
void umem_block_settle(umemVirtual *ctx, uintptr_t adr);

/* access.c */
bool umem_kinds_accessible(umemVirtual *const src_ctx, umemVirtual *const dest_ctx);

/* The operations of contexts whose addresses are pointers, but for one. */
#define UMEM_BLOCK_OPERATIONS(destroy)                                                             \
    .dtor = (destroy), .is_accessible_from = umem_kinds_accessible, .alloc = umem_block_alloc,     \
    .calloc = umem_block_calloc, .free = umem_block_free,                                          \
    .aligned_alloc = umem_block_aligned_alloc, .aligned_origin = umem_block_aligned_origin,        \
    .aligned_free = umem_block_free, .set = umem_block_set, .copy_to = umem_block_copy_to,         \
    .copy_from = umem_block_copy_from

#endif
