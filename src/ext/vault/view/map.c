/* Slabs and tables that are mapped into this process. */
#include <fcntl.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "ext/vault/view/map.h"
#include "system/os.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static size_t rounded(uint64_t size) {
    size_t page = umf_os_page_size();
    return ((size_t)size + page - 1) & ~(page - 1);
}

/* Large slabs begin at a huge page. */
static size_t alignment_of(size_t size) {
    return size >= HUGE_PAGE ? HUGE_PAGE : umf_os_page_size();
}

static uintptr_t aligned(uintptr_t at, size_t size) {
    size_t alignment = alignment_of(size);
    return (at + alignment - 1) & ~(uintptr_t)(alignment - 1);
}

bool umf_vault_is_sealed(int fd, uint64_t size) {
    uint64_t dev, ino, real;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals != -1 && (seals & SEALS) == SEALS && umf_os_file_id(fd, &dev, &ino, &real) == 0 &&
           real == size;
}

umf_result_t umf_vault_table_map(const umf_vault_slab_t *info, int fd, umf_table_t *table,
                                 void **at, size_t *size, const char **wrong) {
    void *mapped = NULL;
    *wrong = NULL;
    if (!umf_vault_is_sealed(fd, info->size) || info->size > SIZE_MAX / 2) {
        *wrong = "its table is not sealed";
        return UMF_RESULT_SUCCESS;
    }
    int error = umf_os_map(&mapped, rounded(info->size), PROT_READ, MAP_SHARED, fd, 0);
    if (error != 0) {
        return umf_vault_no_memory(error, "mapping the table of a generation");
    }
    *at = mapped;
    *size = rounded(info->size);
    *wrong = umf_table_check(mapped, (size_t)info->size, table);
    return UMF_RESULT_SUCCESS;
}

/* --- slabs ------------------------------------------------------------------------------------ */

/* The addresses are free again at once: a mapping over a reservation costs half as much again as
 * one where nothing is. */
umf_result_t umf_vault_view_reserve(umf_vault_view_handle_t view) {
    const umf_table_t *table = &view->table;
    size_t size = 0;
    void *at = NULL;
    for (uint32_t i = 0; i < table->head->slabs; i++) {
        if (table->slabs[i].kind != UMF_VAULT_KIND_HOST) {
            continue;
        }
        size_t needed = rounded(table->slabs[i].size);
        if (needed > ((size_t)1 << 47) || size > ((size_t)1 << 47)) {
            return umf_vault_view_broken(view,
                                         "its slabs are larger than the addresses of a process");
        }
        size = aligned(size, needed) + needed;
    }
    if (size == 0) {
        return UMF_RESULT_SUCCESS;
    }
    size += HUGE_PAGE; /* to begin at one */
    int error =
        umf_os_map(&at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (error == 0) {
        view->near = at;
        error = umf_os_unmap(at, size);
    }
    return error ? umf_vault_no_memory(error, "finding addresses for a view") : UMF_RESULT_SUCCESS;
}

/* Another thread may have mapped something there meanwhile: then the kernel chooses. */
static int map_near(umf_vault_view_handle_t view, size_t size, int prot, int flags, int fd,
                    size_t offset, void **base) {
    void *near = (void *)aligned((uintptr_t)view->near, size);
    *base = near;
    int error = umf_os_map(base, size, prot, flags, fd, offset);
    if (error == 0 && *base == near) {
        view->near = (char *)near + size;
    }
    if (error != 0 || aligned((uintptr_t)*base, size) == (uintptr_t)*base) {
        return error;
    }
    umf_os_unmap(*base, size);
    error = umf_os_reserve_aligned(size, alignment_of(size), base);
    if (error == 0) {
        error = umf_os_map(base, size, prot, flags | MAP_FIXED, fd, offset);
        if (error != 0) {
            umf_os_unmap(*base, size);
        }
    }
    return error;
}

umf_result_t umf_vault_view_map(umf_vault_view_handle_t view, uint32_t i, int fd, uint64_t offset) {
    if (!umf_vault_view_maps(view, i)) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_vault_slab_t *slab = &view->table.slabs[i];
    bool is_zero = slab->role == UMF_VAULT_CLASS_ZERO;
    bool is_shared = slab->role == UMF_VAULT_CLASS_SHARED;
    int prot = is_shared ? PROT_READ : PROT_READ | PROT_WRITE;
    int flags =
        (is_shared ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE) | (is_zero ? MAP_ANONYMOUS : 0);
    size_t size = rounded(slab->size), at = is_zero ? 0 : (size_t)offset;
    void *base = view->bases[i];
    int error = base ? umf_os_map(&base, size, prot, flags | MAP_FIXED, fd, at)
                     : map_near(view, size, prot, flags, fd, at, &base);
    if (error != 0) {
        return umf_vault_no_memory(error, "mapping a slab of a vault");
    }
    view->bases[i] = base;
    return UMF_RESULT_SUCCESS;
}

static char *host_base(umf_vault_view_handle_t view, uint32_t i) {
    return view->table.slabs[i].kind == UMF_VAULT_KIND_HOST ? view->bases[i] : NULL;
}

void umf_vault_view_unmap(umf_vault_view_handle_t view) {
    for (uint32_t i = 0, count = view->bases ? view->table.head->slabs : 0; i < count; i++) {
        char *base = host_base(view, i), *end = base;
        if (!base) {
            continue;
        }
        end += rounded(view->table.slabs[i].size);
        while (i + 1 < count && host_base(view, i + 1) == end) { /* in one call */
            end += rounded(view->table.slabs[++i].size);
        }
        umf_os_unmap(base, (size_t)(end - base));
    }
}

umf_result_t umf_vault_view_hide(umf_vault_view_handle_t view) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < view->table.head->slabs; i++) {
        void *at = host_base(view, i);
        if (!at || view->table.slabs[i].role != UMF_VAULT_CLASS_SHARED) {
            continue;
        }
        int error = umf_os_map(&at, rounded(view->table.slabs[i].size), PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (error != 0) {
            umf_result_t result = umf_vault_no_memory(error, "unmapping a slab of a vault");
            first = first ? first : result;
        }
    }
    return first;
}
