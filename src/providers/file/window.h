/*
 * Window: a reserved range of addresses. A file is mapped into it piece by piece, with nothing
 * between the pieces. It costs addresses, no memory.
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
    int prot; /* as mmap takes it */
    umf_window_how_t how;
} umf_window_file_t;

typedef struct umf_window_t {
    uintptr_t base; /* Immutable after open, as all members */
    size_t size;
} umf_window_t;

/* `size` is a multiple of the page size; `alignment` of the base is a power of two and at least a
 * page. Returns 0 or an errno value, as all functions here. */
int umf_window_open(umf_window_t *window, size_t size, size_t alignment);
/* Unmaps the window and everything that was mapped into it. */
void umf_window_close(const umf_window_t *window);

/* Maps a range of the file, in whole pages, at `at` bytes from the window's base. After a failure
 * the range can be tried again. */
int umf_window_map(const umf_window_t *window, size_t at, size_t size,
                   const umf_window_file_t *file, uint64_t offset);

/* Maps a range of the file at any address; umf_os_unmap unmaps it. */
int umf_window_map_anywhere(size_t size, const umf_window_file_t *file, uint64_t offset,
                            void **ptr);

#endif
