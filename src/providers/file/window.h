/*
 * Window: a range of addresses that is kept free of other mappings, so that a file can be mapped
 * into it piece by piece, with nothing between the pieces. It costs addresses, no memory.
 *
 * The caller locks.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_WINDOW_H
#define UMF_SRC_PROVIDERS_FILE_WINDOW_H

#include "system/common.h"

typedef enum umf_window_how_t {
    UMF_WINDOW_PRIVATE,
    UMF_WINDOW_SHARED,
    UMF_WINDOW_SYNC, /* shared, and the file or device must be DAX */
} umf_window_how_t;

/* An open file and how it is mapped. */
typedef struct umf_window_file_t {
    int fd;
    int prot; /* as mmap has it */
    umf_window_how_t how;
} umf_window_file_t;

typedef struct umf_window_t {
    uintptr_t base; /* Immutable after open, as all */
    size_t size;
} umf_window_t;

/* `size` is in pages, `alignment` of the base is a power of two and at least a page. 0 or an errno
 * value, as all here. */
int umf_window_open(umf_window_t *window, size_t size, size_t alignment);
/* Unmaps all that was mapped into it, too. */
void umf_window_close(const umf_window_t *window);

/* Maps a range of the file, in pages, at `at` bytes from the window's base. After a failure the
 * range may be tried again. */
int umf_window_map(const umf_window_t *window, size_t at, size_t size,
                   const umf_window_file_t *file, uint64_t offset);

/* Maps a range of the file wherever there is room; it is unmapped by umf_os_unmap. */
int umf_window_map_anywhere(size_t size, const umf_window_file_t *file, uint64_t offset,
                            void **ptr);

#endif
