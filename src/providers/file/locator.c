/* Descriptions of memory at a path: how they are written, and checked when they are read. */
#include "providers/file/locator.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"
#include "system/checksum.h"
#include "system/os.h"

#define LOCATOR_MAGIC UINT32_C(0x50464D55) /* "UMFP" */
#define LOCATOR_VERSION 1

/* Seven fields of 8 bytes, five of 4, two of 2, without padding. */
_Static_assert(sizeof(umf_locator_t) == 7 * 8 + 5 * 4 + 2 * 2, "handles travel between processes");

static size_t locator_size_of(size_t path_length) {
    size_t room = path_length + 1;
    return sizeof(umf_locator_t) + (room > UMF_LOCATOR_PATH_ROOM ? room : UMF_LOCATOR_PATH_ROOM);
}

size_t umf_locator_size(const char *path) {
    return locator_size_of(strlen(path));
}

void umf_locator_write(const umf_locator_t *locator, const char *path, void *data) {
    umf_locator_t fields = *locator;
    size_t length = strlen(path);
    fields.magic = LOCATOR_MAGIC;
    fields.version = LOCATOR_VERSION;
    fields.length = (uint32_t)locator_size_of(length);
    fields.path_length = (uint32_t)length;
    fields.path_check = umf_sum(path, length);
    fields.check = umf_sum_of_fields(&fields, sizeof(fields), &fields.check);
    memset(data, 0, fields.length);
    memcpy(data, &fields, sizeof(fields));
    memcpy((char *)data + sizeof(fields), path, length);
}

static bool locator_is_ours(umf_locator_t *locator) {
    return locator->magic == LOCATOR_MAGIC && locator->version == LOCATOR_VERSION &&
           locator->check == umf_sum_of_fields(locator, sizeof(*locator), &locator->check);
}

static bool locator_place_is_valid(const umf_locator_t *locator) {
    uint64_t end;
    return umf_is_pow2(locator->granule) && locator->granule >= umf_os_page_size() &&
           locator->granule <= UMF_LOCATOR_GRANULE_MAX && locator->size != 0 &&
           !__builtin_add_overflow(locator->offset, locator->size, &end) &&
           end <= INT64_MAX - UMF_LOCATOR_GRANULE_MAX;
}

static bool locator_access_is_valid(const umf_locator_t *locator) {
    return locator->visibility == UMF_MEM_MAP_SHARED &&
           umf_protection_is_valid(locator->protection);
}

/* The fields were checked before, so the length of the path is valid. */
static bool locator_path_is_valid(const umf_locator_t *locator, const char *path) {
    return locator->path_length != 0 && locator->path_length < PATH_MAX &&
           locator->length == locator_size_of(locator->path_length) &&
           umf_sum(path, locator->path_length) == locator->path_check &&
           umf_name_fills(path, locator->path_length, locator->length - sizeof(*locator)) &&
           path[0] == '/';
}

umf_result_t umf_locator_read(const void *data, umf_locator_kind_t kind, umf_locator_t *locator,
                              const char **path) {
    umf_locator_t read;
    memcpy(&read, data, sizeof(read));
    if (!locator_is_ours(&read) || read.kind != kind) {
        UMF_LOG_ERROR("this is not a description of memory in a %s by such a provider, it is of "
                      "another version, or it is damaged",
                      kind == UMF_LOCATOR_FILE ? "file" : "DAX device");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!locator_place_is_valid(&read) || !locator_access_is_valid(&read)) {
        UMF_LOG_ERROR("a description of %llu bytes at %llu (pages of %llu, protection %u, "
                      "visibility %u) cannot be right",
                      (unsigned long long)read.size, (unsigned long long)read.offset,
                      (unsigned long long)read.granule, read.protection, read.visibility);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const char *text = (const char *)data + sizeof(read);
    if (!locator_path_is_valid(&read, text)) {
        UMF_LOG_ERROR("the path in a description of memory is damaged");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *locator = read;
    *path = text;
    return UMF_RESULT_SUCCESS;
}

umf_locator_extent_t umf_locator_extent(const umf_locator_t *locator) {
    uint64_t offset = umf_align_down(locator->offset, locator->granule);
    uint64_t end = umf_align_up(locator->offset + locator->size, locator->granule);
    return (umf_locator_extent_t){
        .offset = offset,
        .size = (size_t)(end - offset),
        .head = (size_t)(locator->offset - offset),
    };
}

bool umf_locator_fits(const umf_locator_t *locator, size_t size) {
    umf_locator_extent_t extent = umf_locator_extent(locator);
    size_t rounded, whole;
    return size == locator->size ||
           (size <= extent.size - extent.head && umf_round_up(size, locator->granule, &rounded) &&
            umf_round_up(locator->size, locator->granule, &whole) && rounded == whole);
}

umf_result_t umf_locator_check_size(const umf_locator_t *locator, size_t size) {
    if (!umf_locator_fits(locator, size)) {
        UMF_LOG_ERROR("%zu bytes are to be opened, but %llu were described", size,
                      (unsigned long long)locator->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_locator_check_path(const void *data, umf_locator_kind_t kind, const char *own) {
    umf_locator_t locator;
    const char *path;
    umf_result_t result = umf_locator_read(data, kind, &locator, &path);
    if (result == UMF_RESULT_SUCCESS && strcmp(path, own) != 0) {
        UMF_LOG_ERROR("this description is of memory of \"%s\", not of \"%s\"", path, own);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}
