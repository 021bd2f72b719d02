/*
 * The bytes by which the OS provider describes a shared allocation to another process.
 *
 * Fixed width, nothing is padding, unused bytes are zero: two descriptions of one allocation are
 * equal byte for byte. The name of the object follows ("" for an anonymous file), filled up with
 * NUL bytes: all descriptions have one size, so a consumer knows it from a provider of its own.
 */
#ifndef UMF_SRC_PROVIDERS_OS_HANDLE_H
#define UMF_SRC_PROVIDERS_OS_HANDLE_H

#include <limits.h>

#include "peer/transport.h"

/* Longest name of a shared memory object, as the contract has it. */
#define UMF_OS_SHM_NAME_MAX (NAME_MAX - 2)

typedef struct umf_os_handle_t {
    umf_fd_ticket_t ticket; /* dev and ino hold for named objects, too */
    uint64_t check;         /* sum of all other fields; written by seal */
    uint64_t name_check;    /* sum of the name; written by seal */
    uint64_t offset;        /* in the file, in whole pages as are all sizes */
    uint64_t size;
    uint64_t generation; /* the value of the slot while the allocation lives */
    uint32_t slot;       /* in the file's header, see os_share.h */
    uint32_t header_size;
    uint32_t protection; /* umf_mem_protection_flag_t */
    uint32_t visibility;
    uint32_t name_length;
    uint32_t reserved; /* 0 */
} umf_os_handle_t;

/* Bytes of a description. */
#define UMF_OS_HANDLE_SIZE (sizeof(umf_os_handle_t) + UMF_OS_SHM_NAME_MAX + 1)

/* Writes `handle` and a name of `handle->name_length` characters to `data`, with their sums. */
void umf_os_handle_write(umf_os_handle_t *handle, const char *name, void *data);

/*
 * Reads what write wrote. INVALID_ARGUMENT with a message if the sums are wrong or any field has a
 * value that write never gives it. No alignment is needed; the name stays in `data`.
 */
umf_result_t umf_os_handle_read(const void *data, umf_os_handle_t *handle, const char **name);

/* The same of one that was read before, its sums unseen: what damage left possible passes. */
umf_result_t umf_os_handle_peek(const void *data, umf_os_handle_t *handle);

#endif
