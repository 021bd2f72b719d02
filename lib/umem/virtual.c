/*
 * What contexts have in common: their first part, and the operations that a program's own context
 * can take over. Those use the context's other operations and copies from and to its host memory.
 */
#include "umem/own.h"

#include <stdlib.h>
#include <string.h>

typedef void (*copy_word_t)(umemVirtual *ctx, uintptr_t adr, void *host, uintptr_t *word);

void umem_base_init(umemVirtual *ctx, const struct umemVtbl *vptr, umemDeviceType type,
                    umemHost *host) {
    memset(ctx, 0, sizeof(*ctx));
    ctx->vptr = vptr;
    ctx->type = type;
    ctx->host_ctx = host;
}

bool umem_alignment_is_good(umemVirtual *ctx, size_t alignment, size_t size) {
    TRY_RETURN(ctx, !umem_ispowerof2(alignment), umemValueError, return false,
               "umem_aligned_alloc: alignment %zu must be power of 2", alignment);
    TRY_RETURN(ctx, size % alignment != 0, umemValueError, return false,
               "umem_aligned_alloc: size %zu must be multiple of alignment %zu", size, alignment);
    return true;
}

static bool name_is_given(umemVirtual *ctx, const char *what, const char *name) {
    TRY_RETURN(ctx, !name || !*name, umemValueError, return false, "invalid 0-length %s", what);
    return true;
}

void umem_names_copy(umemVirtual *ctx, const char *filename, const char *mode,
                     const char **own_filename, const char **own_mode) {
    *own_filename = *own_mode = NULL;
    if (!name_is_given(ctx, "filename", filename) || !name_is_given(ctx, "mode", mode)) {
        return;
    }
    char *copied_filename = strdup(filename), *copied_mode = strdup(mode);
    if (!copied_filename || !copied_mode) {
        free(copied_filename);
        free(copied_mode);
        umem_format_status(ctx, umemMemoryError, "no memory for the name '%s'", filename);
        return;
    }
    *own_filename = copied_filename;
    *own_mode = copied_mode;
}

/* --- operations for a program's own table ----------------------------------------------------- */

void umemVirtual_dtor(umemVirtual *const ctx) {
    UMEM_KEEP_ERRNO;
    umem_clear_status(ctx);
    if (ctx->host_ctx && ctx->host_ctx != ctx) {
        umem_dtor(ctx->host_ctx);
    }
}

bool umemVirtual_is_accessible_from(umemVirtual *const src_ctx, umemVirtual *const dest_ctx) {
    (void)src_ctx;
    (void)dest_ctx;
    return false;
}

uintptr_t umemVirtual_calloc(umemVirtual *const ctx, size_t nmemb, size_t size) {
    UMEM_KEEP_ERRNO;
    size_t nbytes;
    TRY_RETURN(ctx, __builtin_mul_overflow(nmemb, size, &nbytes), umemMemoryError, return 0,
               "umem_calloc: %zu members of %zu bytes are too many", nmemb, size);
    uintptr_t adr = nbytes == 0 ? 0 : umem_alloc(ctx, nbytes);
    if (adr == 0) {
        return 0;
    }
    umemStatus before = umem_status_set_aside(ctx);
    umem_set(ctx, adr, 0, nbytes);
    if (!umem_status_put_back(ctx, before)) {
        umem_free(ctx, adr);
        return 0;
    }
    return adr;
}

static void word_write(umemVirtual *ctx, uintptr_t adr, void *host, uintptr_t *word) {
    umem_copy_from(ctx, adr, host, (uintptr_t)word, sizeof(*word));
}

static void word_read(umemVirtual *ctx, uintptr_t adr, void *host, uintptr_t *word) {
    umem_copy_to(ctx, adr, host, (uintptr_t)word, sizeof(*word));
}

/* Reads or writes a word at an address. false: the status has the reason. */
static bool word_copy(copy_word_t copy, umemVirtual *ctx, uintptr_t adr, uintptr_t *word) {
    umemHost own;
    umemHost_ctor(&own);
    umemStatus before = umem_status_set_aside(ctx);
    copy(ctx, adr, ctx->host_ctx ? ctx->host_ctx : &own, word);
    bool done = umem_status_put_back(ctx, before);
    umem_dtor(&own);
    return done;
}

uintptr_t umemVirtual_aligned_alloc(umemVirtual *const ctx, size_t alignment, size_t size) {
    UMEM_KEEP_ERRNO;
    if (!umem_alignment_is_good(ctx, alignment, size)) {
        return 0;
    }
    size_t least = umem_fundamental_align(ctx), total;
    alignment = alignment < least ? least : alignment;
    TRY_RETURN(ctx,
               __builtin_add_overflow(size, alignment - 1 + sizeof(uintptr_t) + UMEM_SLACK, &total),
               umemMemoryError, return 0, "umem_aligned_alloc: size %zu is too large", size);
    uintptr_t origin = umem_calloc(ctx, total, 1);
    if (origin == 0) {
        return 0;
    }
    uintptr_t adr = (origin + sizeof(uintptr_t) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (!word_copy(word_write, ctx, adr - sizeof(uintptr_t), &origin)) {
        umem_free(ctx, origin);
        return 0;
    }
    return adr;
}

uintptr_t umemVirtual_aligned_origin(umemVirtual *const ctx, uintptr_t aligned_adr) {
    UMEM_KEEP_ERRNO;
    uintptr_t origin = 0;
    if (aligned_adr == 0) {
        return 0;
    }
    TRY_RETURN(ctx, aligned_adr < sizeof(origin), umemValueError, return 0,
               "umem_aligned_origin: %" PRIuPTR " is not of umem_aligned_alloc", aligned_adr);
    return word_copy(word_read, ctx, aligned_adr - sizeof(origin), &origin) ? origin : 0;
}

void umemVirtual_aligned_free(umemVirtual *const ctx, uintptr_t aligned_adr) {
    UMEM_KEEP_ERRNO;
    uintptr_t origin = umem_aligned_origin(ctx, aligned_adr);
    if (origin != 0 || aligned_adr == 0) {
        umem_free(ctx, origin);
    }
}

/* --- a context without operations ------------------------------------------------------------- */

static void not_implemented(umemVirtual *ctx, const char *what) {
    umem_format_status(ctx, umemNotImplementedError, "%s: this context has no such operation",
                       what);
}

static uintptr_t virtual_alloc(umemVirtual *const ctx, size_t nbytes) {
    (void)nbytes;
    not_implemented(ctx, "umem_alloc");
    return 0;
}

static void virtual_free(umemVirtual *const ctx, uintptr_t adr) {
    (void)adr;
    not_implemented(ctx, "umem_free");
}

static void virtual_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes) {
    (void)adr;
    (void)c;
    (void)nbytes;
    not_implemented(ctx, "umem_set");
}

static void virtual_copy_to(umemVirtual *const src_ctx, uintptr_t src_adr,
                            umemVirtual *const dest_ctx, uintptr_t dest_adr, size_t nbytes) {
    (void)src_adr;
    (void)dest_ctx;
    (void)dest_adr;
    (void)nbytes;
    not_implemented(src_ctx, "umem_copy_to");
}

static void virtual_copy_from(umemVirtual *const dest_ctx, uintptr_t dest_adr,
                              umemVirtual *const src_ctx, uintptr_t src_adr, size_t nbytes) {
    (void)dest_adr;
    (void)src_ctx;
    (void)src_adr;
    (void)nbytes;
    not_implemented(dest_ctx, "umem_copy_from");
}

static const struct umemVtbl virtual_operations = {
    .dtor = umemVirtual_dtor,
    .is_accessible_from = umemVirtual_is_accessible_from,
    .alloc = virtual_alloc,
    .calloc = umemVirtual_calloc,
    .free = virtual_free,
    .aligned_alloc = umemVirtual_aligned_alloc,
    .aligned_origin = umemVirtual_aligned_origin,
    .aligned_free = umemVirtual_aligned_free,
    .set = virtual_set,
    .copy_to = virtual_copy_to,
    .copy_from = virtual_copy_from,
};

void umemVirtual_ctor(umemVirtual *const ctx, umemHost *const host) {
    umem_base_init(ctx, &virtual_operations, umemVirtualDevice, host);
}
