/*
 * Locator: the bytes that describe memory at a path, in a file or a device, to another process.
 *
 * Fixed width, nothing is padding: two descriptions of one allocation are equal byte for byte. The
 * path follows, filled up with NUL bytes to UMF_LOCATOR_PATH_ROOM, so all descriptions have one
 * size. Only a longer path makes a longer description; room for the longest path (4 KiB) would make
 * all of them long.
 *
 * A consumer needs nothing but the permission to open the path. The identity of the file shows
 * whether the path still names the file that the producer had open.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_LOCATOR_H
#define UMF_SRC_PROVIDERS_FILE_LOCATOR_H

#include "system/common.h"

typedef enum umf_locator_kind_t {
    UMF_LOCATOR_FILE = 1,
    UMF_LOCATOR_DEVICE = 2,
} umf_locator_kind_t;

typedef struct umf_locator_t {
    uint32_t magic; /* umf_locator_write sets it, as version and length */
    uint16_t version;
    uint16_t kind;
    uint32_t length;      /* bytes of the whole description */
    uint32_t path_length; /* without its NUL; umf_locator_write sets it */
    uint64_t check;       /* sum of all other fields; umf_locator_write sets it */
    uint64_t path_check;  /* sum of the path; umf_locator_write sets it */
    uint64_t dev, ino;    /* of the file; for a device its number and 0 */
    uint64_t offset;      /* in the file */
    uint64_t size;        /* of the allocation */
    uint64_t granule;     /* offset and size of a mapping are multiples of it */
    uint32_t protection;  /* umf_mem_protection_flag_t */
    uint32_t visibility;  /* UMF_MEM_MAP_SHARED */
} umf_locator_t;

/* The largest granule: devices may have pages of 1 GiB. */
#define UMF_LOCATOR_GRANULE_MAX ((uint64_t)1 << 30)

#define UMF_LOCATOR_PATH_ROOM 256

/* Bytes of a description with that path. */
size_t umf_locator_size(const char *path);

/* Completes the fields and writes them and the path (shorter than PATH_MAX) to `data`. */
void umf_locator_write(const umf_locator_t *locator, const char *path, void *data);

/*
 * Reads what umf_locator_write wrote. INVALID_ARGUMENT with a message if a sum is wrong, a field
 * has a value that is never written, or the kind is another one. `data` needs no alignment; the
 * path stays in `data`.
 */
umf_result_t umf_locator_read(const void *data, umf_locator_kind_t kind, umf_locator_t *locator,
                              const char **path);

/* The range to map for an allocation: whole granules. */
typedef struct umf_locator_extent_t {
    uint64_t offset;
    size_t size;
    size_t head; /* bytes before the allocation */
} umf_locator_extent_t;

umf_locator_extent_t umf_locator_extent(const umf_locator_t *locator);

/* Whether `size` is the size of the allocation, or the requested size before it was rounded up. */
bool umf_locator_fits(const umf_locator_t *locator, size_t size);

/* The same check before memory is opened. INVALID_ARGUMENT with a message. */
umf_result_t umf_locator_check_size(const umf_locator_t *locator, size_t size);

/* Checks that the bytes describe memory of that kind at the path `own`. INVALID_ARGUMENT as
 * umf_locator_read, and with a message if the path is another one. */
umf_result_t umf_locator_check_path(const void *data, umf_locator_kind_t kind, const char *own);

#endif
