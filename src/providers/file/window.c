/* Windows: reserving addresses and mapping files into them. */
#include "providers/file/window.h"

#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/log.h"
#include "system/os.h"

#define WINDOW_RESERVE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

int umf_window_open(umf_window_t *window, size_t size, size_t alignment) {
    void *base;
    int error = umf_os_reserve_aligned(size, alignment, &base);
    if (!error) {
        *window = (umf_window_t){.base = (uintptr_t)base, .size = size};
    }
    return error;
}

void umf_window_close(const umf_window_t *window) {
    int error = umf_os_unmap((void *)window->base, window->size);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                      "unmapping %zu bytes at %p failed; they stay mapped", window->size,
                      (void *)window->base);
    }
}

static int window_map_file(void **addr, size_t size, int flags, const umf_window_file_t *file,
                           uint64_t offset) {
    if (file->how == UMF_WINDOW_SYNC) {
        return umf_os_map_sync(addr, size, file->prot, flags, file->fd, (size_t)offset);
    }
    flags |= file->how == UMF_WINDOW_SHARED ? MAP_SHARED : MAP_PRIVATE;
    return umf_os_map(addr, size, file->prot, flags, file->fd, (size_t)offset);
}

/* Restores the reservation: a MAP_FIXED that fails late may have removed the old mapping already.
 * The usual error of this call is EEXIST: nothing was removed. */
static void window_mend(void *addr, size_t size) {
    void *got = addr;
    if (umf_os_map(&got, size, PROT_NONE, WINDOW_RESERVE | MAP_FIXED_NOREPLACE, -1, 0) == 0 &&
        got != addr) {
        umf_os_unmap(got, size);
    }
}

int umf_window_map(const umf_window_t *window, size_t at, size_t size,
                   const umf_window_file_t *file, uint64_t offset) {
    void *addr = (void *)(window->base + at);
    int error = window_map_file(&addr, size, MAP_FIXED, file, offset);
    if (error) {
        window_mend(addr, size);
    }
    return error;
}

int umf_window_map_anywhere(size_t size, const umf_window_file_t *file, uint64_t offset,
                            void **ptr) {
    void *addr = NULL;
    int error = window_map_file(&addr, size, 0, file, offset);
    if (!error) {
        *ptr = addr;
    }
    return error;
}
