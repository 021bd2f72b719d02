/* Copies by way of a buffer in host memory, piece by piece. Each half is a copy of its own context.
 */
#include "umem/own.h"

#define PIECE ((size_t)4 << 20)

/* One half of a piece; false: it failed, and the status of its context has the reason. */
static bool half(umemVirtual *ctx, uintptr_t adr, umemHost *host, uintptr_t buffer, size_t nbytes,
                 bool is_source) {
    umemStatus before = umem_status_set_aside(ctx);
    if (is_source) {
        umem_copy_to(ctx, adr, host, buffer, nbytes);
    } else {
        umem_copy_from(ctx, adr, host, buffer, nbytes);
    }
    return umem_status_put_back(ctx, before);
}

static void copy_pieces(umemVirtual *src, uintptr_t src_adr, umemVirtual *dest, uintptr_t dest_adr,
                        size_t nbytes, uintptr_t buffer) {
    umemHost host;
    umemHost_ctor(&host);
    for (size_t done = 0, size; done < nbytes; done += size) {
        size = nbytes - done < PIECE ? nbytes - done : PIECE;
        if (!half(src, src_adr + done, &host, buffer, size, true) ||
            !half(dest, dest_adr + done, &host, buffer, size, false)) {
            break;
        }
    }
    umem_dtor(&host);
}

static void copy(umemVirtual *first, umemVirtual *src, uintptr_t src_adr, umemVirtual *dest,
                 uintptr_t dest_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    umem_why_t why;
    size_t size = nbytes < PIECE ? nbytes : PIECE;
    if (nbytes == 0) {
        return;
    }
    umf_memory_pool_handle_t pool = umem_pool_of_host(&why);
    void *buffer = pool ? umfPoolMalloc(pool, size) : NULL;
    TRY_RETURN(first, !buffer, umemMemoryError, return,
               "copy of %zu bytes: no memory for a buffer of the host", nbytes);
    copy_pieces(src, src_adr, dest, dest_adr, nbytes, (uintptr_t)buffer);
    umfPoolFree(pool, buffer);
}

void umem_copy_to_via_host(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                           uintptr_t dest_adr, size_t nbytes) {
    copy(src_ctx, src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
}

void umem_copy_from_via_host(void *const dest_ctx, uintptr_t dest_adr, void *const src_ctx,
                             uintptr_t src_adr, size_t nbytes) {
    copy(dest_ctx, src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
}
