/*
 * A context that a program writes itself: memory in a buffer of its own, addresses are offsets from
 * 1000. alloc, free, set and the copies with host memory are its own, the rest the defaults.
 */
#ifndef UMF_TEST_UMEM_OWN_CONTEXT_H
#define UMF_TEST_UMEM_OWN_CONTEXT_H

#include <cstring>

#include <umem.h>

struct Own {
    umemVirtual super;
    umemHost host;
    char memory[65536];
    uintptr_t next;    // offset of the next block
    int blocks;        // allocated and not freed
    int to, from;      // copies that were made
    bool fails_copies; // reports them as failed
};

constexpr uintptr_t OWN_BASE = 1000;

inline Own *own_of(umemVirtual *ctx) {
    return reinterpret_cast<Own *>(ctx);
}

inline char *own_at(umemVirtual *ctx, uintptr_t adr) {
    return own_of(ctx)->memory + (adr - OWN_BASE);
}

inline uintptr_t own_alloc(umemVirtual *const ctx, size_t nbytes) {
    Own *own = own_of(ctx);
    TRY_RETURN(ctx, own->next + nbytes > sizeof(own->memory), umemMemoryError, return 0, "full");
    uintptr_t adr = OWN_BASE + own->next;
    own->next += nbytes;
    own->blocks++;
    return adr;
}

inline void own_free(umemVirtual *const ctx, uintptr_t adr) {
    own_of(ctx)->blocks -= adr != 0;
}

inline void own_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes) {
    memset(own_at(ctx, adr), c, nbytes);
}

inline void own_copy_to(umemVirtual *const src, uintptr_t src_adr, umemVirtual *const dest,
                        uintptr_t dest_adr, size_t nbytes) {
    Own *own = own_of(src);
    own->to++;
    TRY_RETURN(src, own->fails_copies, umemIOError, return, "no copy to");
    if (dest->type == umemHostDevice) {
        memcpy(reinterpret_cast<void *>(dest_adr), own_at(src, src_adr), nbytes);
    } else {
        umem_copy_to_via_host(src, src_adr, dest, dest_adr, nbytes);
    }
}

inline void own_copy_from(umemVirtual *const dest, uintptr_t dest_adr, umemVirtual *const src,
                          uintptr_t src_adr, size_t nbytes) {
    Own *own = own_of(dest);
    own->from++;
    TRY_RETURN(dest, own->fails_copies, umemIOError, return, "no copy from");
    if (src->type == umemHostDevice) {
        memcpy(own_at(dest, dest_adr), reinterpret_cast<void *>(src_adr), nbytes);
    } else {
        umem_copy_from_via_host(dest, dest_adr, src, src_adr, nbytes);
    }
}

inline void own_ctor(Own *own) {
    static const struct umemVtbl operations = {umemVirtual_dtor,
                                               umemVirtual_is_accessible_from,
                                               own_alloc,
                                               umemVirtual_calloc,
                                               own_free,
                                               umemVirtual_aligned_alloc,
                                               umemVirtual_aligned_origin,
                                               umemVirtual_aligned_free,
                                               own_set,
                                               own_copy_to,
                                               own_copy_from};
    memset(static_cast<void *>(own), 0, sizeof(*own));
    memset(own->memory, 0xee, sizeof(own->memory));
    umemHost_ctor(&own->host);
    umemVirtual_ctor(&own->super, &own->host);
    own->super.vptr = &operations;
}

#endif
