/*
 * Locator: the bytes by which a provider describes memory to another process that lies at a path: a
 * file, or a device.
 *
 * Fixed width, nothing is padding: two descriptions of one allocation are equal byte for byte. The
 * path follows, filled up with NUL bytes to UMF_LOCATOR_PATH_ROOM: descriptions have one size. Only
 * a path that needs more makes them longer, since with room for the longest (4 KiB) all would be.
 *
 * Whoever opens one needs nothing but the permission to open the path. The identity of the file
 * tells whether the path still means what the producer had open.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_LOCATOR_H
#define UMF_SRC_PROVIDERS_FILE_LOCATOR_H

#include "system/common.h"

typedef enum umf_locator_kind_t {
    UMF_LOCATOR_FILE = 1,
    UMF_LOCATOR_DEVICE = 2,
} umf_locator_kind_t;

typedef struct umf_locator_t {
    uint32_t magic; /* written by write, as version and length */
    uint16_t version;
    uint16_t kind;
    uint32_t length;      /* of all bytes */
    uint32_t path_length; /* without its NUL; written by write */
    uint64_t check;       /* sum of all other fields; written by write */
    uint64_t path_check;  /* sum of the path; written by write */
    uint64_t dev, ino;    /* of the file; of a device its number and 0 */
    uint64_t offset;      /* in the file */
    uint64_t size;        /* of the allocation */
    uint64_t granule;     /* offset and size of a mapping are multiples of it */
    uint32_t protection;  /* umf_mem_protection_flag_t */
    uint32_t visibility;  /* UMF_MEM_MAP_SHARED */
} umf_locator_t;

/* The largest granule: devices may have pages of 1 GiB. */
#define UMF_LOCATOR_GRANULE_MAX ((uint64_t)1 << 30)

#define UMF_LOCATOR_PATH_ROOM 256

/* Bytes with that path. */
size_t umf_locator_size(const char *path);

/* Writes the fields, completed, and the path (shorter than PATH_MAX) to `data`. */
void umf_locator_write(const umf_locator_t *locator, const char *path, void *data);

/*
 * Reads what write wrote. INVALID_ARGUMENT with a message if a sum is wrong, any field has a value
 * that write never gives it, or the kind is another one. No alignment is needed; the path stays in
 * `data`.
 */
umf_result_t umf_locator_read(const void *data, umf_locator_kind_t kind, umf_locator_t *locator,
                              const char **path);

/* What has to be mapped for it: whole granules. */
typedef struct umf_locator_extent_t {
    uint64_t offset;
    size_t size;
    size_t head; /* bytes before the allocation */
} umf_locator_extent_t;

umf_locator_extent_t umf_locator_extent(const umf_locator_t *locator);

/* Whether a caller may call the allocation `size` bytes long: as it is, or as it was asked for
 * before it was rounded up. */
bool umf_locator_fits(const umf_locator_t *locator, size_t size);

/* The same before it is opened: INVALID_ARGUMENT with a message. */
umf_result_t umf_locator_check_size(const umf_locator_t *locator, size_t size);

/* Whether the bytes describe memory of that kind at `own`. INVALID_ARGUMENT as read, and with a
 * message if the path is another one. */
umf_result_t umf_locator_check_path(const void *data, umf_locator_kind_t kind, const char *own);

#endif
