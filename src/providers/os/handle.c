/* Descriptions of shared allocations: how they are written, and checked when they are read. */
#include "providers/os/handle.h"

#include <string.h>

#include "base/log.h"
#include "providers/os/params.h"
#include "providers/os/share.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"
#include "system/checksum.h"
#include "system/os.h"

/* The ticket, five long and six short fields, without padding. */
_Static_assert(sizeof(umf_os_handle_t) == 96 + 5 * 8 + 6 * 4, "handles travel between processes");

/* Most descriptions have no name; then there is nothing to sum. */
static uint64_t handle_name_sum(const char *name, size_t length) {
    return length ? umf_sum(name, length) : 0;
}

void umf_os_handle_write(umf_os_handle_t *handle, const char *name, void *data) {
    char *to = data;
    handle->name_check = handle_name_sum(name, handle->name_length);
    handle->check = umf_sum_of_fields(handle, sizeof(*handle), &handle->check);
    memset(to, 0, UMF_OS_HANDLE_SIZE);
    memcpy(to, handle, sizeof(*handle));
    memcpy(to + sizeof(*handle), name, handle->name_length);
}

static bool handle_place_is_valid(const umf_os_handle_t *handle) {
    uint64_t page_mask = umf_os_page_size() - 1;
    uint64_t end;
    return ((handle->offset | handle->size | handle->header_size) & page_mask) == 0 &&
           handle->size != 0 && handle->header_size != 0 &&
           handle->header_size <= UMF_OS_SHARE_HEADER_MAX &&
           handle->offset >= handle->header_size &&
           !__builtin_add_overflow(handle->offset, handle->size, &end) && end <= INT64_MAX;
}

static bool handle_slot_is_valid(const umf_os_handle_t *handle) {
    return handle->slot >= UMF_OS_SHARE_FIRST_SLOT &&
           handle->slot < handle->header_size / sizeof(uint64_t) && handle->generation != 0;
}

static bool handle_access_is_valid(const umf_os_handle_t *handle) {
    return handle->visibility == UMF_MEM_MAP_SHARED &&
           umf_protection_is_valid(handle->protection) && handle->reserved == 0;
}

/* The fields were checked before, so the length of the name is valid. */
static bool handle_name_is_valid(const umf_os_handle_t *handle, const char *name) {
    return handle_name_sum(name, handle->name_length) == handle->name_check &&
           umf_name_fills(name, handle->name_length, UMF_OS_SHM_NAME_MAX + 1) && !strchr(name, '/');
}

umf_result_t umf_os_handle_peek(const void *data, umf_os_handle_t *handle) {
    umf_os_handle_t read;
    memcpy(&read, data, sizeof(read));
    if (!handle_place_is_valid(&read) || !handle_slot_is_valid(&read) ||
        !handle_access_is_valid(&read)) {
        UMF_LOG_ERROR("a description of %llu bytes at %llu (slot %u, protection %u, visibility %u) "
                      "cannot be one of shared memory here: is it of another version?",
                      (unsigned long long)read.size, (unsigned long long)read.offset, read.slot,
                      read.protection, read.visibility);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *handle = read;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_os_handle_read(const void *data, umf_os_handle_t *handle, const char **name) {
    umf_os_handle_t read;
    memcpy(&read, data, sizeof(read));
    if (read.check != umf_sum_of_fields(&read, sizeof(read), &read.check)) {
        UMF_LOG_ERROR(
            "this is not a description of shared memory by an OS provider, or it is damaged "
            "(checksum)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_os_handle_peek(data, &read);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const char *text = (const char *)data + sizeof(read);
    if (read.name_length > UMF_OS_SHM_NAME_MAX || !handle_name_is_valid(&read, text)) {
        UMF_LOG_ERROR("the name in a description of shared memory is damaged");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *handle = read;
    *name = text;
    return UMF_RESULT_SUCCESS;
}
