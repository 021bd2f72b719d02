/*
 * Files that are memory, made by memfd_create. Where a sandbox denies that, they are unlinked files
 * in /dev/shm or in the folder for temporary files.
 *
 * Only files of memfd_create can be sealed, so that no process shortens them while others have them
 * mapped. A process that may not make such files trusts the unlinked files of its own user instead.
 */
#ifndef UMF_SRC_BASE_MEMORY_FILE_H
#define UMF_SRC_BASE_MEMORY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return 0 or an errno value. A failure to make a file is logged with everything that was
 * tried. */
int umf_memory_file(const char *name, int *fd);
/* Whether the files lie on a file system, which may become full. A memfd does not. */
bool umf_memory_file_is_limited(void);
/* Reserves space for a range of a limited file, so that a write cannot fail for lack of space. */
int umf_memory_file_reserve(int fd, uint64_t offset, uint64_t size);
/* Seals a file of umf_memory_file, if it supports seals. */
int umf_memory_file_seal(int fd, int seals);
/* Whether a file of another process keeps its length. EPERM: that is not certain. */
int umf_memory_file_check(int fd);

#endif
