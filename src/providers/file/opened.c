/* Mappings of other processes' memory. */
#include "providers/file/opened.h"

#include <errno.h>

#include "base/log.h"
#include "base/meta.h"
#include "providers/shared/table.h"
#include "system/os.h"

void umf_opened_init(umf_opened_t *opened) {
    *opened = (umf_opened_t){0};
    umf_lock_init(&opened->lock, UMF_RANK_PROVIDER);
}

void umf_opened_fini(umf_opened_t *opened) {
    umf_table_fini(&opened->table, sizeof(umf_locator_t));
    umf_lock_destroy(&opened->lock);
}

int umf_opened_map(umf_opened_t *opened, const umf_locator_t *locator,
                   const umf_window_file_t *file, void **ptr) {
    umf_locator_extent_t extent = umf_locator_extent(locator);
    umf_locator_t *copy = umf_meta_alloc(sizeof(*copy));
    if (!copy) {
        return ENOMEM;
    }
    *copy = *locator;
    void *base;
    int error = umf_window_map_anywhere(extent.size, file, extent.offset, &base);
    if (error) {
        goto free_copy;
    }
    char *start = (char *)base + extent.head;
    if (!umf_table_put(&opened->lock, &opened->table, start, copy)) {
        error = ENOMEM;
        goto unmap;
    }
    *ptr = start;
    return 0;

unmap:
    umf_os_unmap(base, extent.size);
free_copy:
    umf_meta_free(copy, sizeof(*copy));
    return error;
}

static bool opened_fits(const void *locator, size_t size) {
    return umf_locator_fits(locator, size);
}

int umf_opened_unmap(umf_opened_t *opened, void *ptr, size_t size) {
    umf_locator_t *locator =
        umf_table_take_if(&opened->lock, &opened->table, ptr, opened_fits, size);
    if (!locator) {
        UMF_LOG_ERROR("%zu bytes at %p were not opened by this provider", size, ptr);
        return EINVAL;
    }
    umf_locator_extent_t extent = umf_locator_extent(locator);
    int error = umf_os_unmap((char *)ptr - extent.head, extent.size);
    if (error && umf_table_put_back(&opened->lock, &opened->table, ptr, locator)) {
        return error;
    }
    umf_meta_free(locator, sizeof(*locator));
    return error;
}
