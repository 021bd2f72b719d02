/*
 * File: addresses are offsets in a file that the first allocation opens. An allocation reserves
 * nothing; it returns the position after the last read or write.
 *
 * There is no buffer: written bytes are in the file. Before each use the descriptor is compared
 * with the file that was opened, because programs close descriptors of others, and
 * their next file gets the same number.
 */
#include "umem/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* musl has it from 1.2.5 on, its function too. */
#ifndef STATX_BASIC_STATS
#include <linux/stat.h>
#endif

static const struct umemVtbl operations;

static umemFile *file_of(umemVirtual *ctx) {
    return (umemFile *)ctx;
}

/* The birth distinguishes a file from a later one that gets the same inode; 0: unknown. */
typedef struct identity_t {
    dev_t device;
    ino_t inode;
    int64_t born;
} identity_t;

/* An open file; `fp` of the context is its address. */
typedef struct opened_t {
    int fd;
    identity_t is; /* of the file behind it */
} opened_t;

static opened_t *opened_of(const umemFile *file) {
    return (opened_t *)file->fp;
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

/* --- the descriptor --------------------------------------------------------------------------- */

/* A sandbox may refuse the newer call. */
static bool file_identify(int fd, identity_t *is) {
    struct statx info;
    struct stat plain;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) == 0) {
        *is = (identity_t){
            .device = makedev(info.stx_dev_major, info.stx_dev_minor),
            .inode = info.stx_ino,
            .born = info.stx_btime.tv_sec * 1000000000 + info.stx_btime.tv_nsec,
        };
        return true;
    }
    bool done = fstat(fd, &plain) == 0;
    if (done) {
        *is = (identity_t){.device = plain.st_dev, .inode = plain.st_ino};
    }
    return done;
}

static bool is_same_file(const identity_t *a, const identity_t *b) {
    return a->device == b->device && a->inode == b->inode &&
           (a->born == b->born || a->born == 0 || b->born == 0);
}

static bool is_ours(const opened_t *opened) {
    identity_t now;
    return file_identify(opened->fd, &now) && is_same_file(&now, &opened->is);
}

/* The descriptor of an open file; -1: the status of `blamed` says why there is none. */
static int file_fd(const umemFile *file, void *blamed) {
    const opened_t *opened = opened_of(file);
    TRY_RETURN(blamed, !opened, umemIOError, return -1, "file '%s' is closed", name_of(file));
    TRY_RETURN(blamed, !is_ours(opened), umemIOError, return -1,
               "the program has closed descriptor %d, which was open on file '%s'", opened->fd,
               name_of(file));
    return opened->fd;
}

/* fopen parses the modes. The copy of its descriptor is not inherited by programs that are started.
 */
static int fd_open(const umemFile *file) {
    FILE *stream = fopen(file->filename, file->mode);
    int fd = stream ? fcntl(fileno(stream), F_DUPFD_CLOEXEC, 0) : -1, error = errno;
    if (stream) {
        fclose(stream);
    }
    errno = error;
    return fd;
}

static bool file_open(umemFile *file) {
    opened_t *opened = malloc(sizeof(*opened));
    int fd = opened ? fd_open(file) : -1;
    bool done = fd >= 0 && file_identify(fd, &opened->is);
    if (!done) {
        io_fail(file, file, "open");
        if (fd >= 0) {
            close(fd);
        }
        free(opened);
        return false;
    }
    opened->fd = fd;
    file->fp = (uintptr_t)opened;
    return true;
}

static void file_close(umemFile *file, void *blamed) {
    opened_t *opened = opened_of(file);
    file->fp = 0;
    if (opened && is_ours(opened) && close(opened->fd) != 0) {
        io_fail(blamed, file, "close");
    }
    free(opened);
}

/* --- opening and closing ---------------------------------------------------------------------- */

void umemFile_ctor(umemFile *const ctx, const char *filename, const char *mode) {
    UMEM_KEEP_ERRNO;
    umem_base_init(&ctx->super, &operations, umemFileDevice, &ctx->host);
    umemHost_ctor(&ctx->host);
    ctx->fp = 0;
    umem_names_copy(&ctx->super, filename, mode, &ctx->filename, &ctx->mode);
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

/* The position; -1: the file cannot be opened, and the status has the reason. */
static uintptr_t file_position(umemFile *file) {
    if (!file->fp) {
        TRY_RETURN(file, !file->filename, umemIOError, return UINTPTR_MAX, "the file has no name");
        return file_open(file) ? 0 : UINTPTR_MAX;
    }
    int fd = file_fd(file, file);
    off_t at = fd < 0 ? -1 : lseek(fd, 0, SEEK_CUR);
    if (fd >= 0 && at < 0) {
        io_fail(file, file, "find the position in");
    }
    return (uintptr_t)at;
}

static uintptr_t file_alloc(umemVirtual *const ctx, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    (void)nbytes;
    return file_position(file_of(ctx));
}

/* --- reading and writing ---------------------------------------------------------------------- */

/* The descriptor at the position `adr`; -1: the status of `blamed` says why. */
static int file_seek(const umemFile *file, void *blamed, uintptr_t adr) {
    int fd = file_fd(file, blamed);
    if (fd >= 0 && (adr > INT64_MAX || lseek(fd, (off_t)adr, SEEK_SET) < 0)) {
        errno = adr > INT64_MAX ? EOVERFLOW : errno;
        io_fail(blamed, file, "seek in");
        return -1;
    }
    return fd;
}

/* Bytes until the end of the file or a failure, which leaves its cause in errno. */
static size_t fd_read(int fd, char *to, size_t nbytes) {
    size_t got = 0;
    ssize_t n = 1;
    errno = 0;
    while (got < nbytes && n > 0) {
        n = read(fd, to + got, nbytes - got);
        got += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    errno = n < 0 ? errno : 0;
    return got;
}

static bool file_read(umemFile *file, void *blamed, uintptr_t adr, void *to, size_t nbytes) {
    int fd = file_seek(file, blamed, adr);
    if (fd < 0) {
        return false;
    }
    size_t got = fd_read(fd, to, nbytes);
    if (got < nbytes && errno != 0) {
        io_fail(blamed, file, "read");
    } else if (got < nbytes) {
        umem_format_status(blamed, umemIOError,
                           "file '%s' has %zu of the %zu bytes at offset %" PRIuPTR, name_of(file),
                           got, nbytes, adr);
    }
    return got == nbytes;
}

/* Behind a seek. */
static bool file_put(const umemFile *file, void *blamed, int fd, const char *from, size_t nbytes) {
    while (nbytes > 0) {
        ssize_t n = write(fd, from, nbytes);
        if (n < 0 && errno != EINTR) {
            io_fail(blamed, file, "write");
            return false;
        }
        from += n > 0 ? n : 0;
        nbytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool file_write(umemFile *file, void *blamed, uintptr_t adr, const void *from,
                       size_t nbytes) {
    int fd = file_seek(file, blamed, adr);
    return fd >= 0 && file_put(file, blamed, fd, from, nbytes);
}

static bool file_fill(umemFile *file, uintptr_t adr, int c, size_t nbytes) {
    char piece[4096];
    memset(piece, c, nbytes < sizeof(piece) ? nbytes : sizeof(piece));
    int fd = file_seek(file, file, adr);
    bool done = fd >= 0;
    while (done && nbytes > 0) {
        size_t size = nbytes < sizeof(piece) ? nbytes : sizeof(piece);
        done = file_put(file, file, fd, piece, size);
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

/* The block begins at the position. The word before the aligned address has that position; the new
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

/* Reads by another descriptor: that of the file may be for writing only, and keeps its position. */
static bool read_beside(int of, uintptr_t adr, void *to, size_t nbytes) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", of);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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
    int fd = file_fd(file, file);
    if (fd < 0 || read_beside(fd, word, &start, sizeof(start))) {
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
