/* Connections: a range and its place in another context. */
#include "umem/own.h"

static bool is_linked(void *one, void *other) {
    return umem_is_accessible_from(one, other) && umem_is_accessible_from(other, one);
}

/* Nothing to copy or free: both contexts use the one range. */
static bool is_shared(void *src, uintptr_t src_adr, void *dest, uintptr_t dest_adr) {
    return src_adr == dest_adr && is_linked(src, dest);
}

static uintptr_t place_alloc(umemVirtual *ctx, size_t alignment, size_t nbytes) {
    size_t rest = alignment ? nbytes % alignment : 0, size;
    if (alignment == 0) {
        return umem_alloc(ctx, nbytes);
    }
    TRY_RETURN(ctx, __builtin_add_overflow(nbytes, rest ? alignment - rest : 0, &size),
               umemMemoryError, return 0, "umem_connect: %zu bytes are too many", nbytes);
    return umem_aligned_alloc(ctx, alignment, size);
}

static void place_free(umemVirtual *ctx, size_t alignment, uintptr_t adr) {
    if (alignment) {
        umem_aligned_free(ctx, adr);
    } else {
        umem_free(ctx, adr);
    }
}

/* false: the status of one of the two has the reason. */
static bool try_copy(umemVirtual *src, uintptr_t src_adr, umemVirtual *dest, uintptr_t dest_adr,
                     size_t nbytes) {
    umemStatus of_src = umem_status_set_aside(src);
    umemStatus of_dest = umem_status_set_aside(dest); /* empty if the two are one */
    umem_copy_to(src, src_adr, dest, dest_adr, nbytes);
    bool dest_is_good = umem_status_put_back(dest, of_dest);
    return umem_status_put_back(src, of_src) && dest_is_good;
}

uintptr_t umem_connect(void *const src_ctx, uintptr_t src_adr, size_t nbytes, void *const dest_ctx,
                       size_t dest_alignment) {
    UMEM_KEEP_ERRNO;
    umemVirtual *dest = dest_ctx;
    if ((dest_alignment == 0 || src_adr % dest_alignment == 0) && is_linked(src_ctx, dest)) {
        return src_adr;
    }
    umemStatus before = umem_status_set_aside(dest);
    uintptr_t adr = place_alloc(dest, dest_alignment, nbytes);
    bool is_place = umem_status_put_back(dest, before) &&
                    (adr != 0 || (dest->type == umemFileDevice && dest_alignment == 0));
    if (!is_place) {
        return 0;
    }
    if (!try_copy(src_ctx, src_adr, dest, adr, nbytes)) {
        place_free(dest, dest_alignment, adr);
        return 0;
    }
    return adr;
}

void umem_disconnect(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                     uintptr_t dest_adr, size_t dest_alignment) {
    UMEM_KEEP_ERRNO;
    if (!is_shared(src_ctx, src_adr, dest_ctx, dest_adr)) {
        place_free(dest_ctx, dest_alignment, dest_adr);
    }
}

void umem_sync_to(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx, uintptr_t dest_adr,
                  size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (!is_shared(src_ctx, src_adr, dest_ctx, dest_adr)) {
        umem_copy_to(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
    }
}

void umem_sync_from(void *const dest_ctx, uintptr_t dest_adr, void *const src_ctx,
                    uintptr_t src_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (!is_shared(src_ctx, src_adr, dest_ctx, dest_adr)) {
        umem_copy_from(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
    }
}

void umem_sync_to_safe(void *const src_ctx, uintptr_t src_adr, size_t src_size,
                       void *const dest_ctx, uintptr_t dest_adr, size_t dest_size, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (!is_shared(src_ctx, src_adr, dest_ctx, dest_adr)) {
        umem_copy_to_safe(src_ctx, src_adr, src_size, dest_ctx, dest_adr, dest_size, nbytes);
    }
}

void umem_sync_from_safe(void *const dest_ctx, uintptr_t dest_adr, size_t dest_size,
                         void *const src_ctx, uintptr_t src_adr, size_t src_size, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (!is_shared(src_ctx, src_adr, dest_ctx, dest_adr)) {
        umem_copy_from_safe(dest_ctx, dest_adr, dest_size, src_ctx, src_adr, src_size, nbytes);
    }
}
