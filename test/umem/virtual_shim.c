/* A context that a program in C writes itself: blocks of malloc, counted. */
#include <stdlib.h>
#include <string.h>

#include <umem.h>

typedef struct {
    umemVirtual super;
    umemHost host;
    int blocks;
} counted_t;

static uintptr_t counted_alloc(umemVirtual *const ctx, size_t nbytes) {
    void *block = malloc(nbytes);
    TRY_RETURN(ctx, !block, umemMemoryError, return 0, "no memory for %zu bytes", nbytes);
    ((counted_t *)ctx)->blocks++;
    return (uintptr_t)block;
}

static void counted_free(umemVirtual *const ctx, uintptr_t adr) {
    ((counted_t *)ctx)->blocks -= adr != 0;
    free((void *)adr);
}

static void counted_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes) {
    (void)ctx;
    memset((void *)adr, c, nbytes);
}

static void counted_copy_to(umemVirtual *const src_ctx, uintptr_t src_adr,
                            umemVirtual *const dest_ctx, uintptr_t dest_adr, size_t nbytes) {
    if (dest_ctx->type == umemHostDevice) {
        memcpy((void *)dest_adr, (const void *)src_adr, nbytes);
    } else {
        umem_copy_to_via_host(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
    }
}

static void counted_copy_from(umemVirtual *const dest_ctx, uintptr_t dest_adr,
                              umemVirtual *const src_ctx, uintptr_t src_adr, size_t nbytes) {
    if (src_ctx->type == umemHostDevice) {
        memcpy((void *)dest_adr, (const void *)src_adr, nbytes);
    } else {
        umem_copy_from_via_host(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
    }
}

static const struct umemVtbl counted_operations = {
    .dtor = umemVirtual_dtor,
    .is_accessible_from = umemVirtual_is_accessible_from,
    .alloc = counted_alloc,
    .calloc = umemVirtual_calloc,
    .free = counted_free,
    .aligned_alloc = umemVirtual_aligned_alloc,
    .aligned_origin = umemVirtual_aligned_origin,
    .aligned_free = umemVirtual_aligned_free,
    .set = counted_set,
    .copy_to = counted_copy_to,
    .copy_from = counted_copy_from,
};

static void counted_ctor(counted_t *ctx) {
    umemHost_ctor(&ctx->host);
    umemVirtual_ctor(&ctx->super, &ctx->host);
    ctx->super.vptr = &counted_operations;
    ctx->blocks = 0;
}

/* 0, or the line of what fails. */
#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

int umem_test_context_in_c(const char *filename);

int umem_test_context_in_c(const char *filename) {
    counted_t counted, other;
    umemHost host;
    umemFile file;
    char text[] = "some text", back[sizeof(text)] = "";
    counted_ctor(&counted);
    counted_ctor(&other);
    umemHost_ctor(&host);
    umemFile_ctor(&file, filename, "w+b");

    uintptr_t aligned = umem_aligned_alloc(&counted, 64, 128);
    MUST(aligned != 0 && aligned % 64 == 0 && counted.blocks == 1);
    MUST(((const char *)aligned)[127] == 0);
    umem_copy_from(&counted, aligned, &host, (uintptr_t)text, sizeof(text));
    uintptr_t there = umem_connect(&counted, aligned, 128, &other, 256);
    MUST(there % 256 == 0 && other.blocks == 1);
    MUST(strcmp((const char *)there, text) == 0);
    MUST(umem_alloc(&file, 128) == 0);
    umem_copy_to(&other, there, &file, 0, 128);
    umem_copy_to(&file, 0, &host, (uintptr_t)back, sizeof(back));
    MUST(strcmp(back, text) == 0);
    umem_set_safe(&counted, aligned, 128, 'x', 129);
    MUST(umem_get_status(&counted) == umemIndexError);
    umem_clear_status(&counted);
    umem_sync_from(&counted, aligned, &file, 0, 4);
    umem_disconnect(&counted, aligned, &other, there, 256);
    umem_aligned_free(&counted, aligned);
    MUST(counted.blocks == 0 && other.blocks == 0);
    MUST(umem_is_ok(&counted) && umem_is_ok(&other) && umem_is_ok(&host) && umem_is_ok(&file));
    umem_dtor(&counted);
    umem_dtor(&other);
    umem_dtor(&host);
    umem_dtor(&file);
    return 0;
}
