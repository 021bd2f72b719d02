/*
 * Files that are memory: by memfd_create, or where a sandbox denies that an unlinked file in
 * /dev/shm or the folder for temporary files.
 *
 * Only files of memfd_create can be sealed, so that nobody cuts them short below who maps them.
 * Where they are denied to this process, it trusts the unlinked files of its own user instead.
 */
#ifndef UMF_SRC_BASE_MEMORY_FILE_H
#define UMF_SRC_BASE_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* All return 0 or an errno value. A failure here is logged with all that was tried. */
int umf_memory_file(const char *name, int *fd);
/* Gives a range space, so that writing to it cannot fail for want of it. A memfd needs none. */
int umf_memory_file_reserve(int fd, uint64_t offset, uint64_t size);
/* Seals a file of umf_memory_file, if it can have seals. */
int umf_memory_file_seal(int fd, int seals);
/* Whether a file of another process stays as long as it is; EPERM if that is not sure. */
int umf_memory_file_check(int fd);

#endif
