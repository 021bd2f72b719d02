/* Linux_vmm provider: virtual memory over anonymous memory files. See vmm.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <umf/providers/provider_linux_vmm.h>

#include "base/aligned_map.h"
#include "base/kept_fd.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/vmm/ops.h"
#include "system/annotate.h"
#include "system/os.h"

typedef enum linux_vmm_seal_t { LINUX_VMM_SEAL_NOW, LINUX_VMM_SEAL_LATER } linux_vmm_seal_t;

static const umf_field_word_t linux_vmm_seals[] = {
    {"now", LINUX_VMM_SEAL_NOW},
    {"later", LINUX_VMM_SEAL_LATER},
    {NULL, 0},
};

#define UMF_PARAMS umf_linux_vmm_params
#define UMF_PARAMS_TABLE "providers/vmm/linux_vmm_params.def"
typedef struct umf_linux_vmm_memory_provider_params_t {
#include "ctl/params_members.h"
} umf_linux_vmm_params_t;
#include "ctl/params_define.h"

/* The file of pages that one process has made. */
typedef struct linux_pages_t {
    umf_kept_fd_t file; /* Immutable once it is listed, as the next */
    unsigned forks;     /* umf_fork_count() of the process */
    uint64_t end;       /* Sync: the lock of the files */
} linux_pages_t;

#define PAGES_FILES 16u /* a process has its own, and those of the parents before it */

typedef struct linux_vmm_t {
    umf_vmm_t vmm;
    umf_name_t name;  /* Immutable after create */
    bool seals_later; /* files can be sealed against writes. Immutable after create */
    umf_lock_t grow;  /* of the files of pages */
    linux_pages_t pages[PAGES_FILES];
    unsigned pages_count; /* Sync: grow */
} linux_vmm_t;
UMF_VMM_FIRST(linux_vmm_t);

/* --- back end --------------------------------------------------------------------------------- */

static umf_result_t linux_vmm_fail(int error, const char *what, size_t size) {
    errno = error;
    UMF_LOG_PERROR("%s %zu bytes failed%s", what, size,
                   error == EMFILE ? " (raise the limit of open files, or the piece size)" : "");
    return error == EBADF ? UMF_RESULT_ERROR_UNKNOWN : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static umf_result_t linux_vmm_reserve(void *backend, size_t size, size_t alignment,
                                      uintptr_t *base) {
    (void)backend;
    void *start;
    int error = umf_os_reserve_aligned(size, alignment, &start);
    if (error) {
        return linux_vmm_fail(error, "reserving", size);
    }
    *base = (uintptr_t)start;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_unreserve(void *backend, uintptr_t base, size_t size) {
    (void)backend;
    int error = umf_os_unmap((void *)base, size);
    return error ? linux_vmm_fail(error, "giving back the addresses of", size) : UMF_RESULT_SUCCESS;
}

static umf_kept_fd_t *physical_file(umf_physical_t physical) {
    return (umf_kept_fd_t *)(uintptr_t)physical;
}

/* Takes the file over, also if it fails. */
static umf_result_t linux_vmm_keep(int fd, size_t size, umf_physical_t *physical) {
    umf_kept_fd_t *file = umf_meta_alloc(sizeof(*file));
    if (!file) {
        umf_os_close(fd);
        return linux_vmm_fail(ENOMEM, "remembering the file of", size);
    }
    int error = umf_kept_fd_take(file, fd);
    if (error) {
        umf_meta_free(file, sizeof(*file));
        return linux_vmm_fail(error, "identifying the file of", size);
    }
    *physical = (umf_physical_t)(uintptr_t)file;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_create(void *backend, size_t size, umf_physical_t *physical) {
    const linux_vmm_t *linux_vmm = backend;
    int fd;
    int error = umf_memory_file("umf_vmm", &fd);
    if (error) {
        umf_result_t result = linux_vmm_fail(error, "making a memory file of", size);
        bool is_denied = error == EPERM || error == EACCES || error == ENOSYS || error == EROFS;
        return is_denied ? UMF_RESULT_ERROR_NOT_SUPPORTED : result;
    }
    error = umf_os_truncate(fd, size);
    if (!error) {
        error = umf_memory_file_reserve(fd, 0, size);
    }
    if (!error) { /* importers rely on the size, so it is sealed */
        int seals = UMF_OS_SEALS | F_SEAL_GROW;
        error = umf_memory_file_seal(fd, linux_vmm->seals_later ? seals & ~F_SEAL_SEAL : seals);
    }
    if (error) {
        umf_os_close(fd);
        return linux_vmm_fail(error, "sizing a memory file to", size);
    }
    return linux_vmm_keep(fd, size, physical);
}

static umf_result_t linux_vmm_destroy(void *backend, umf_physical_t physical) {
    (void)backend;
    umf_kept_fd_t *file = physical_file(physical);
    umf_kept_fd_close(file);
    umf_meta_free(file, sizeof(*file));
    return UMF_RESULT_SUCCESS;
}

static int physical_check(umf_physical_t physical) {
    return umf_kept_fd_check(physical_file(physical), "a memory file of a provider");
}

static umf_result_t linux_vmm_map(void *backend, uintptr_t base, size_t size,
                                  umf_physical_t physical) {
    (void)backend;
    void *at = (void *)base;
    int error = physical_check(physical);
    if (!error) {
        error = umf_os_map(&at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           physical_file(physical)->number, 0);
    }
    return error ? linux_vmm_fail(error, "mapping", size) : UMF_RESULT_SUCCESS;
}

/* Replaces the mapping by one without access, which keeps the addresses reserved. */
static umf_result_t linux_vmm_unmap(void *backend, uintptr_t base, size_t size) {
    (void)backend;
    void *at = (void *)base;
    int error = umf_os_map(&at, size, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return error ? linux_vmm_fail(error, "unmapping", size) : UMF_RESULT_SUCCESS;
}

/* --- pages: all in one sparse file, because a process may open few files. The end of the file is
 * far away, so the offset of a page that was destroyed is not needed again. A forked child has a
 * file of its own for new pages, and does not release those of its parent. --- */

#define OFFSET_BITS 56u /* above it, the number of the file */

static const linux_pages_t *pages_of(const linux_vmm_t *made, umf_physical_t physical) {
    return &made->pages[physical >> OFFSET_BITS];
}

static size_t page_offset(umf_physical_t physical) {
    return physical & ((UINT64_C(1) << OFFSET_BITS) - 1);
}

static int pages_check(const linux_pages_t *pages) {
    return umf_kept_fd_check(&pages->file, "the file of the pages of a provider");
}

/* The file of this process is the last one. */
static int pages_own_locked(linux_vmm_t *made, linux_pages_t **own) {
    unsigned count = made->pages_count;
    int fd;
    *own = count ? &made->pages[count - 1] : NULL;
    if (*own && (*own)->forks == umf_fork_count()) {
        return pages_check(*own);
    }
    if (count == PAGES_FILES) {
        return ENFILE;
    }
    *own = &made->pages[count];
    int error = umf_memory_file("umf_vmm_pages", &fd);
    if (!error) { /* importers rely on it */
        error = umf_memory_file_seal(fd, UMF_OS_SEALS);
        if (error) {
            umf_os_close(fd);
        }
    }
    error = error ? error : umf_kept_fd_take(&(*own)->file, fd);
    if (!error) {
        (*own)->forks = umf_fork_count();
        made->pages_count++;
    }
    return error;
}

static int pages_extend_locked(linux_vmm_t *made, size_t size, umf_physical_t *physical) {
    linux_pages_t *own;
    int error = pages_own_locked(made, &own);
    error = error ? error : umf_os_truncate(own->file.number, own->end + size);
    error = error ? error : umf_memory_file_reserve(own->file.number, own->end, size);
    if (!error) {
        *physical = (umf_physical_t)(own - made->pages) << OFFSET_BITS | own->end;
        own->end += size;
    }
    return error;
}

static umf_result_t linux_vmm_create_page(void *backend, size_t size, umf_physical_t *physical) {
    linux_vmm_t *made = backend;
    umf_lock(&made->grow);
    int error = pages_extend_locked(made, size, physical);
    umf_unlock(&made->grow);
    return error ? linux_vmm_fail(error, "making a page of", size) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_destroy_page(void *backend, size_t size, umf_physical_t physical) {
    const linux_pages_t *pages = pages_of(backend, physical);
    if (pages->forks != umf_fork_count()) {
        return UMF_RESULT_SUCCESS;
    }
    int error = pages_check(pages);
    error = error ? error : umf_os_punch(pages->file.number, page_offset(physical), size);
    return error ? linux_vmm_fail(error, "releasing a page of", size) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_map_page(void *backend, uintptr_t base, size_t size,
                                       umf_physical_t physical) {
    const linux_pages_t *pages = pages_of(backend, physical);
    void *at = (void *)base;
    int error = pages_check(pages);
    error = error ? error
                  : umf_os_map(&at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                               pages->file.number, page_offset(physical));
    return error ? linux_vmm_fail(error, "mapping", size) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_page_file(void *backend, umf_physical_t physical, int *fd,
                                        uint64_t *offset) {
    const linux_pages_t *pages = pages_of(backend, physical);
    int error = pages_check(pages);
    if (error) {
        return linux_vmm_fail(error, "sharing", 0);
    }
    *fd = pages->file.number;
    *offset = page_offset(physical);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_map_file(void *backend, uintptr_t base, size_t size, int fd,
                                       uint64_t offset) {
    (void)backend;
    uint64_t dev, ino, length;
    void *at = (void *)base;
    int error = umf_os_file_id(fd, &dev, &ino, &length);
    if (!error &&
        (offset + size > length || umf_os_is_huge(fd) || umf_memory_file_check(fd) != 0)) {
        UMF_LOG_ERROR("a description is of %zu bytes that its file does not have, may lose, or has "
                      "in huge pages",
                      size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    error = error
                ? error
                : umf_os_map(&at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset);
    return error ? linux_vmm_fail(error, "mapping", size) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_memory(void *backend, size_t *bytes) {
    (void)backend;
    *bytes = umf_os_memory();
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_show(void *backend, uintptr_t base, size_t size, int fd) {
    (void)backend;
    void *at = (void *)base;
    int error = umf_os_map(&at, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    return error ? linux_vmm_fail(error, "mapping read-only", size) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_export(void *backend, umf_physical_t physical, int *fd) {
    (void)backend;
    int error = physical_check(physical);
    if (!error) {
        error = umf_os_dup(physical_file(physical)->number, fd);
    }
    return error ? linux_vmm_fail(error, "sharing", 0) : UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_import(void *backend, int fd, size_t size, umf_physical_t *physical) {
    (void)backend;
    uint64_t dev, ino, real_size;
    int copy;
    int error = umf_os_file_id(fd, &dev, &ino, &real_size);
    if (!error && real_size != size) {
        UMF_LOG_ERROR("a description says %zu bytes of a file that has %llu", size,
                      (unsigned long long)real_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!error && umf_memory_file_check(fd) != 0) {
        UMF_LOG_ERROR("a description is of a file that may become shorter while it is mapped; "
                      "those of this provider cannot");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!error) {
        error = umf_os_dup(fd, &copy);
    }
    if (error) {
        return linux_vmm_fail(error, "opening", size);
    }
    return linux_vmm_keep(copy, size, physical);
}

static const umf_vmm_backend_t linux_vmm_backend = {
    .reserve = linux_vmm_reserve,
    .unreserve = linux_vmm_unreserve,
    .create = linux_vmm_create,
    .destroy = linux_vmm_destroy,
    .map = linux_vmm_map,
    .unmap = linux_vmm_unmap,
    .export_fd = linux_vmm_export,
    .import = linux_vmm_import,
    .memory = linux_vmm_memory,
    .create_page = linux_vmm_create_page,
    .destroy_page = linux_vmm_destroy_page,
    .map_page = linux_vmm_map_page,
    .page_file = linux_vmm_page_file,
    .map_file = linux_vmm_map_file,
    .show = linux_vmm_show,
    .unreserve_unmaps = true,
    .kind = 1,
};

/* --- operations ------------------------------------------------------------------------------- */

static umf_result_t linux_vmm_init(linux_vmm_t *made, const void *params) {
    const umf_linux_vmm_params_t *requested =
        umf_params_or_defaults(&umf_linux_vmm_params_kind, params, "umfMemoryProviderCreate");
    if (!requested) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_name_copy(made->name, requested->name);
    made->seals_later = requested->seal == LINUX_VMM_SEAL_LATER;
    umf_result_t result =
        umf_vmm_init(&made->vmm, &linux_vmm_backend, umf_os_page_size(), requested->piece_size);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock_init(&made->grow, UMF_RANK_GROW);
    }
    return result;
}

UMF_PROVIDER_INITIALIZE(linux_vmm, linux_vmm_t)

static umf_result_t linux_vmm_finalize(void *provider) {
    linux_vmm_t *made = provider;
    umf_vmm_fini(&made->vmm);
    for (unsigned i = 0; i < made->pages_count; i++) {
        umf_kept_fd_close(&made->pages[i].file);
    }
    umf_lock_destroy(&made->grow);
    umf_meta_free(made, sizeof(*made));
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_GET_NAME(linux_vmm, linux_vmm_t, umf_linux_vmm_params)

/* --- queues: the CPU copies and fills at once, so a queue holds nothing ----------------------- */

static umf_result_t linux_vmm_queue_create(void *provider, void **queue) {
    *queue = provider;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_queue_done(void *provider, void *queue) {
    (void)provider, (void)queue;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_copy(void *provider, void *queue, void *dst, const void *src,
                                   size_t size) {
    (void)provider, (void)queue;
    umf_copy_poisoned(dst, src, size);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_fill(void *provider, void *queue, void *dst, uint8_t value,
                                   size_t size) {
    (void)provider, (void)queue;
    umf_fill_poisoned(dst, value, size);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t linux_vmm_wait(void *provider, void *const *queues, size_t num_queues,
                                   void *const *events, size_t num_events) {
    (void)provider, (void)queues, (void)num_queues, (void)events, (void)num_events;
    return UMF_RESULT_SUCCESS;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t linux_vmm_ops = {
    UMF_PROVIDER_OPS(linux_vmm),
    UMF_VMM_OPS,
    .get_last_native_error = umf_provider_op_no_native_error,
    .get_name = linux_vmm_get_name,
    .get_cache_line_size = umf_provider_op_cache_line_size,
};

static const umf_memory_provider_ext_ops_t linux_vmm_ext_ops = {
    .struct_size = sizeof(linux_vmm_ext_ops),
    UMF_VMM_EXT_OPS,
    UMF_VMM_RANGE_OPS,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE,
    .queue_create = linux_vmm_queue_create,
    .queue_destroy = linux_vmm_queue_done,
    .queue_wait = linux_vmm_queue_done,
    .copy = linux_vmm_copy,
    .fill = linux_vmm_fill,
    .wait = linux_vmm_wait,
    .vm_give = umf_vmm_give,
    .vm_take = umf_vmm_take,
};

UMF_API_EXT_1 const umf_memory_provider_ops_t *umfLinuxVmmMemoryProviderOps(void) {
    return &linux_vmm_ops;
}

UMF_PROVIDER_DESCRIPTOR(linux_vmm, umf_linux_vmm_params, .ops = &linux_vmm_ops,
                        .ext = &linux_vmm_ext_ops);
