/*
 * The bytes that describe a shared allocation of the OS provider to another process.
 *
 * Fixed width, nothing is padding, unused bytes are zero: two descriptions of one allocation are
 * equal byte for byte. The name of the object follows ("" for an anonymous file), filled up with
 * NUL bytes. All descriptions have one size, so a consumer reads it from a provider of its own.
 */
#ifndef UMF_SRC_PROVIDERS_OS_HANDLE_H
#define UMF_SRC_PROVIDERS_OS_HANDLE_H

#include <limits.h>

#include "peer/transport.h"

/* Longest name of a shared memory object; the public interface fixes it. */
#define UMF_OS_SHM_NAME_MAX (NAME_MAX - 2)

typedef struct umf_os_handle_t {
    umf_fd_ticket_t ticket; /* dev and ino are set for named objects, too */
    uint64_t check;         /* sum of all other fields; umf_os_handle_write sets it */
    uint64_t name_check;    /* sum of the name; umf_os_handle_write sets it */
    uint64_t offset;        /* in the file; a multiple of the page size, as all sizes */
    uint64_t size;
    uint64_t generation; /* the slot holds this value while the allocation lives */
    uint32_t slot;       /* in the file's header, see share.h */
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
 * Reads what umf_os_handle_write wrote. INVALID_ARGUMENT with a message if a sum is wrong or a
 * field has a value that is never written. `data` needs no alignment; the name stays in `data`.
 */
umf_result_t umf_os_handle_read(const void *data, umf_os_handle_t *handle, const char **name);

/* Reads a description that was read before, without its sums: damage that leaves every field
 * possible passes. */
umf_result_t umf_os_handle_peek(const void *data, umf_os_handle_t *handle);

#endif
