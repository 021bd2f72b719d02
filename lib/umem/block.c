/*
 * Memory whose addresses are pointers: blocks of a pool.
 *
 * Blocks of host memory without a requested alignment begin 16 bytes after a multiple of 32, so
 * that no address is a multiple of more than 16 by chance: a program that connects with an
 * alignment that an address has not need not look for a huge one. The start of the block follows
 * from the address.
 */
#include "umem/own.h"

#include <string.h>

#define HOST_UNIT ((size_t)32)
#define HOST_LEAD ((size_t)16)

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* A block with its slack, content not defined. 0: the status has the reason. */
static uintptr_t block_take(umemVirtual *ctx, const char *what, size_t size, size_t alignment) {
    bool is_host = ctx->type == umemHostDevice;
    size_t lead = is_host && alignment <= HOST_LEAD ? HOST_LEAD : 0, total;
    umf_memory_pool_handle_t pool = umem_pool_of(ctx, alignment, umemMemoryError);
    if (!pool) {
        return 0;
    }
    TRY_RETURN(ctx, __builtin_add_overflow(size, lead + UMEM_SLACK, &total), umemMemoryError,
               return 0, "%s: size %zu is too large", what, size);
    alignment = larger(alignment, is_host ? HOST_UNIT : umem_fundamental_align(ctx));
    uintptr_t start = (uintptr_t)umfPoolAlignedMalloc(pool, total, alignment);
    TRY_RETURN(ctx, start == 0, umemMemoryError, return 0,
               "%s: no memory for %zu bytes of context %s", what, size, umem_get_device_name(ctx));
    if (is_host) {
        memset((char *)start + lead + size, 0, UMEM_SLACK);
    }
    if (ctx->type == umemMMapDevice) {
        umem_mmap_add_block(ctx);
    }
    return start + lead;
}

/* The same, filled with zeros. */
static uintptr_t block_take_clear(umemVirtual *ctx, const char *what, size_t size,
                                  size_t alignment) {
    uintptr_t adr = block_take(ctx, what, size, alignment);
    if (adr == 0) {
        return 0;
    }
    umemStatus before = umem_status_set_aside(ctx);
    umem_block_set(ctx, adr, 0, size);
    if (!umem_status_put_back(ctx, before)) {
        umem_free(ctx, adr);
        return 0;
    }
    return adr;
}

uintptr_t umem_block_alloc(umemVirtual *const ctx, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    return nbytes == 0 ? 0 : block_take(ctx, "umem_alloc", nbytes, 1);
}

uintptr_t umem_block_calloc(umemVirtual *const ctx, size_t nmemb, size_t size) {
    UMEM_KEEP_ERRNO;
    size_t nbytes;
    TRY_RETURN(ctx, __builtin_mul_overflow(nmemb, size, &nbytes), umemMemoryError, return 0,
               "umem_calloc: %zu members of %zu bytes are too many", nmemb, size);
    return nbytes == 0 ? 0 : block_take_clear(ctx, "umem_calloc", nbytes, 1);
}

uintptr_t umem_block_aligned_alloc(umemVirtual *const ctx, size_t alignment, size_t size) {
    UMEM_KEEP_ERRNO;
    if (!umem_alignment_is_good(ctx, alignment, size)) {
        return 0;
    }
    return block_take_clear(ctx, "umem_aligned_alloc", size, alignment);
}

/* Any of its addresses leads to the block. */
uintptr_t umem_block_aligned_origin(umemVirtual *const ctx, uintptr_t aligned_adr) {
    (void)ctx;
    return aligned_adr;
}

void umem_block_free(umemVirtual *const ctx, uintptr_t adr) {
    UMEM_KEEP_ERRNO;
    uintptr_t start = adr;
    if (adr == 0) {
        return;
    }
    if (ctx->type == umemHostDevice && adr % HOST_UNIT == HOST_LEAD) {
        start = adr - HOST_LEAD;
    }
    umem_block_settle(ctx, adr);
    TRY_RETURN(ctx, umfFree((void *)start) != UMF_RESULT_SUCCESS, umemValueError, return,
               "umem_free: %#" PRIxPTR " is not an address of an allocation", adr);
}
