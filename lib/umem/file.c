/*
 * File: addresses are offsets in a file that the first allocation opens. An allocation reserves
 * nothing; it tells the position behind what was read or written last.
 */
#include "umem/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct umemVtbl operations;

static umemFile *file_of(umemVirtual *ctx) {
    return (umemFile *)ctx;
}

static FILE *stream_of(const umemFile *file) {
    return (FILE *)file->fp;
}

static const char *name_of(const umemFile *file) {
    return file->filename ? file->filename : "";
}

static bool is_file(const umemVirtual *ctx) {
    return ctx->vptr->copy_to == operations.copy_to;
}

/* A system call has failed: the status of `blamed` gets its cause. */
static void io_fail(void *blamed, const umemFile *file, const char *what) {
    int error = errno;
    umem_format_status(blamed, umemIOError, "cannot %s file '%s': %s", what, name_of(file),
                       strerror(error));
}

/* --- opening and closing ---------------------------------------------------------------------- */

void umemFile_ctor(umemFile *const ctx, const char *filename, const char *mode) {
    UMEM_KEEP_ERRNO;
    umem_base_init(&ctx->super, &operations, umemFileDevice, &ctx->host);
    umemHost_ctor(&ctx->host);
    ctx->fp = 0;
    umem_names_copy(&ctx->super, filename, mode, &ctx->filename, &ctx->mode);
}

static void file_close(umemFile *file, void *blamed) {
    FILE *stream = stream_of(file);
    file->fp = 0;
    if (stream && fclose(stream) != 0) {
        io_fail(blamed, file, "close");
    }
}

static void file_free(umemVirtual *const ctx, uintptr_t adr) {
    UMEM_KEEP_ERRNO;
    (void)adr;
    file_close(file_of(ctx), ctx);
}

static void file_dtor(umemVirtual *const ctx) {
    UMEM_KEEP_ERRNO;
    umemFile *file = file_of(ctx);
    file_close(file, ctx);
    free((void *)file->filename);
    free((void *)file->mode);
    file->filename = file->mode = NULL;
    umemVirtual_dtor(ctx);
}

/* The position; -1: the file cannot be opened, and the status tells why. */
static uintptr_t file_position(umemFile *file) {
    if (file->fp) {
        off_t at = ftello(stream_of(file));
        if (at < 0) {
            io_fail(file, file, "find the position in");
        }
        return (uintptr_t)at;
    }
    TRY_RETURN(file, !file->filename, umemIOError, return UINTPTR_MAX, "the file has no name");
    FILE *stream = fopen(file->filename, file->mode);
    if (!stream) {
        io_fail(file, file, "open");
        return UINTPTR_MAX;
    }
    file->fp = (uintptr_t)stream;
    return 0;
}

static uintptr_t file_alloc(umemVirtual *const ctx, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    (void)nbytes;
    return file_position(file_of(ctx));
}

/* --- reading and writing ---------------------------------------------------------------------- */

static bool file_seek(umemFile *file, void *blamed, uintptr_t adr) {
    TRY_RETURN(blamed, !file->fp, umemIOError, return false, "file '%s' is closed", name_of(file));
    if (adr > INT64_MAX || fseeko(stream_of(file), (off_t)adr, SEEK_SET) != 0) {
        errno = adr > INT64_MAX ? EOVERFLOW : errno;
        io_fail(blamed, file, "seek in");
        return false;
    }
    return true;
}

static bool file_read(umemFile *file, void *blamed, uintptr_t adr, void *to, size_t nbytes) {
    if (!file_seek(file, blamed, adr)) {
        return false;
    }
    clearerr(stream_of(file));
    size_t got = fread(to, 1, nbytes, stream_of(file));
    if (got < nbytes && ferror(stream_of(file))) {
        io_fail(blamed, file, "read");
    } else if (got < nbytes) {
        umem_format_status(blamed, umemIOError,
                           "file '%s' has %zu of the %zu bytes at offset %" PRIuPTR, name_of(file),
                           got, nbytes, adr);
    }
    return got == nbytes;
}

/* Behind a seek. */
static bool file_put(umemFile *file, void *blamed, const void *from, size_t nbytes) {
    bool done = fwrite(from, 1, nbytes, stream_of(file)) == nbytes;
    if (!done) {
        io_fail(blamed, file, "write");
    }
    return done;
}

static bool file_write(umemFile *file, void *blamed, uintptr_t adr, const void *from,
                       size_t nbytes) {
    return file_seek(file, blamed, adr) && file_put(file, blamed, from, nbytes);
}

static bool file_fill(umemFile *file, uintptr_t adr, int c, size_t nbytes) {
    char piece[4096];
    memset(piece, c, nbytes < sizeof(piece) ? nbytes : sizeof(piece));
    bool done = file_seek(file, file, adr);
    while (done && nbytes > 0) {
        size_t size = nbytes < sizeof(piece) ? nbytes : sizeof(piece);
        done = file_put(file, file, piece, size);
        nbytes -= size;
    }
    return done;
}

static void file_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (nbytes > 0) {
        file_fill(file_of(ctx), adr, c, nbytes);
    }
}

/* --- allocations that are cleared ------------------------------------------------------------- */

static uintptr_t file_calloc(umemVirtual *const ctx, size_t nmemb, size_t size) {
    UMEM_KEEP_ERRNO;
    size_t nbytes;
    TRY_RETURN(ctx, __builtin_mul_overflow(nmemb, size, &nbytes), umemMemoryError, return 0,
               "umem_calloc: %zu members of %zu bytes are too many", nmemb, size);
    uintptr_t adr = file_position(file_of(ctx));
    bool done = adr != UINTPTR_MAX && (nbytes == 0 || file_fill(file_of(ctx), adr, 0, nbytes));
    return done ? adr : UINTPTR_MAX;
}

/* The block begins at the position. The word before the aligned address tells where that was; the
 * position is behind the block at the end. */
static uintptr_t file_aligned_alloc(umemVirtual *const ctx, size_t alignment, size_t size) {
    UMEM_KEEP_ERRNO;
    umemFile *file = file_of(ctx);
    if (!umem_alignment_is_good(ctx, alignment, size)) {
        return 0;
    }
    uintptr_t start = file_position(file), word;
    if (start == UINTPTR_MAX) {
        return 0;
    }
    uintptr_t adr = (start + sizeof(start) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    word = adr - sizeof(start);
    bool done = file_fill(file, start, 0, word - start) &&
                file_write(file, file, word, &start, sizeof(start)) &&
                file_fill(file, adr, 0, size);
    return done ? adr : 0;
}

/* Reads beside the stream, which may be for writing only and keeps its position. */
static bool read_beside(umemFile *file, uintptr_t adr, void *to, size_t nbytes) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(stream_of(file)));
    int fd = fflush(stream_of(file)) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return false;
    }
    bool done = pread(fd, to, nbytes, (off_t)adr) == (ssize_t)nbytes;
    close(fd);
    return done;
}

static uintptr_t file_aligned_origin(umemVirtual *const ctx, uintptr_t aligned_adr) {
    UMEM_KEEP_ERRNO;
    umemFile *file = file_of(ctx);
    uintptr_t start = 0, word = aligned_adr - sizeof(start);
    if (aligned_adr == 0) {
        return 0;
    }
    TRY_RETURN(ctx, aligned_adr < sizeof(start), umemValueError, return 0,
               "umem_aligned_origin: %" PRIuPTR " is not of umem_aligned_alloc", aligned_adr);
    if (file->fp && read_beside(file, word, &start, sizeof(start))) {
        return start;
    }
    return file_read(file, file, word, &start, sizeof(start)) ? start : 0;
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Between two files errors are those of the first argument. */
static void copy_files(void *first, umemFile *src, uintptr_t src_adr, umemFile *dest,
                       uintptr_t dest_adr, size_t nbytes) {
    char piece[16384];
    bool done = true;
    for (size_t at = 0, size; done && at < nbytes; at += size) {
        size = nbytes - at < sizeof(piece) ? nbytes - at : sizeof(piece);
        done = file_read(src, first, src_adr + at, piece, size) &&
               file_write(dest, first, dest_adr + at, piece, size);
    }
}

static void file_copy_to(umemVirtual *const src_ctx, uintptr_t src_adr, umemVirtual *const dest_ctx,
                         uintptr_t dest_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (nbytes == 0) {
        return;
    }
    if (dest_ctx->type == umemHostDevice) {
        file_read(file_of(src_ctx), src_ctx, src_adr, (void *)dest_adr, nbytes);
    } else if (is_file(dest_ctx)) {
        copy_files(src_ctx, file_of(src_ctx), src_adr, file_of(dest_ctx), dest_adr, nbytes);
    } else {
        umem_copy_to_via_host(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
    }
}

static void file_copy_from(umemVirtual *const dest_ctx, uintptr_t dest_adr,
                           umemVirtual *const src_ctx, uintptr_t src_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (nbytes == 0) {
        return;
    }
    if (src_ctx->type == umemHostDevice) {
        file_write(file_of(dest_ctx), dest_ctx, dest_adr, (const void *)src_adr, nbytes);
    } else if (is_file(src_ctx)) {
        copy_files(dest_ctx, file_of(src_ctx), src_adr, file_of(dest_ctx), dest_adr, nbytes);
    } else {
        umem_copy_from_via_host(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
    }
}

static const struct umemVtbl operations = {
    .dtor = file_dtor,
    .is_accessible_from = umem_kinds_accessible,
    .alloc = file_alloc,
    .calloc = file_calloc,
    .free = file_free,
    .aligned_alloc = file_aligned_alloc,
    .aligned_origin = file_aligned_origin,
    .aligned_free = file_free,
    .set = file_set,
    .copy_to = file_copy_to,
    .copy_from = file_copy_from,
};
