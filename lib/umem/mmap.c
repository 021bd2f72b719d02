/*
 * MMap: pointers into a file, by a pool over libumf's file provider.
 *
 * Two providers on one file would hand out the same bytes, so a process has one pool for each file,
 * whatever names lead to it, and another one for those that only read it. The file is open as long
 * as the pool has blocks or contexts.
 */
#include "umem/own.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <umf/pools/pool_coalescing.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/result.h>

typedef struct file_t {
    dev_t device;
    ino_t inode;
    bool is_private; /* written bytes stay in the process */
    umf_memory_pool_handle_t pool;
    size_t contexts; /* Sync: lock, as the members below */
    size_t blocks;
    struct file_t *next;
} file_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static file_t *files; /* Sync: lock */

static const struct umemVtbl operations;

/* --- the file --------------------------------------------------------------------------------- */

static bool is_to_read(const char *mode) {
    return mode[0] == 'r' && !strchr(mode, '+');
}

/* Makes the file where the mode allows that, and says which one it is. */
static bool file_touch(const umemMMap *ctx, struct stat *found, umem_why_t *why) {
    int flags = O_CLOEXEC | (is_to_read(ctx->mode) ? O_RDONLY : O_RDWR);
    flags |= ctx->mode[0] == 'r' ? 0 : O_CREAT;
    int fd = strchr("rwa", ctx->mode[0]) ? open(ctx->filename, flags, 0666) : -1;
    if (fd < 0 || fstat(fd, found) != 0) {
        snprintf(why->text, sizeof(why->text), "cannot open file '%s' with mode '%s': %s",
                 ctx->filename, ctx->mode, fd < 0 && errno == 0 ? "no such mode" : strerror(errno));
    }
    bool done = fd >= 0 && why->text[0] == 0;
    if (fd >= 0) {
        close(fd);
    }
    return done;
}

static umf_result_t provider_make(const char *filename, bool is_private,
                                  umf_memory_provider_handle_t *provider) {
    umf_file_memory_provider_params_handle_t params;
    umf_result_t result = umfFileMemoryProviderParamsCreate(filename, &params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umfFileMemoryProviderParamsSetVisibility(params,
                                             is_private ? UMF_MEM_MAP_PRIVATE : UMF_MEM_MAP_SHARED);
    result = umfMemoryProviderCreate(umfFileMemoryProviderOps(), params, provider);
    umfFileMemoryProviderParamsDestroy(params);
    return result;
}

static umf_result_t pool_make(const char *filename, bool is_private,
                              umf_memory_pool_handle_t *pool) {
    umf_memory_provider_handle_t provider;
    umf_result_t result = provider_make(filename, is_private, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umfPoolCreate(umfCoalescingPoolOps(), provider, NULL,
                           UMF_POOL_CREATE_FLAG_OWN_PROVIDER, pool);
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(provider);
    }
    return result;
}

/* --- files that are open ---------------------------------------------------------------------- */

static file_t *file_find_locked(const struct stat *of, bool is_private) {
    file_t *at = files;
    while (at &&
           (at->device != of->st_dev || at->inode != of->st_ino || at->is_private != is_private)) {
        at = at->next;
    }
    return at;
}

static file_t *file_of_block_locked(uintptr_t adr) {
    umf_memory_pool_handle_t pool = NULL;
    file_t *at = umfPoolByPtr((void *)adr, &pool) == UMF_RESULT_SUCCESS ? files : NULL;
    while (at && at->pool != pool) {
        at = at->next;
    }
    return at;
}

static file_t *file_open_locked(const umemMMap *ctx, const struct stat *of, bool is_private,
                                umem_why_t *why) {
    file_t *file = calloc(1, sizeof(*file));
    if (!file || (ctx->mode[0] == 'w' && truncate(ctx->filename, 0) != 0)) {
        snprintf(why->text, sizeof(why->text), "cannot open file '%s': %s", ctx->filename,
                 strerror(errno));
        free(file);
        return NULL;
    }
    *file = (file_t){.device = of->st_dev, .inode = of->st_ino, .is_private = is_private};
    umf_result_t result = pool_make(ctx->filename, is_private, &file->pool);
    if (result != UMF_RESULT_SUCCESS) {
        snprintf(why->text, sizeof(why->text), "cannot map file '%s': %s", ctx->filename,
                 umfResultText(result));
        free(file);
        return NULL;
    }
    file->next = files;
    files = file;
    return file;
}

static void file_release_locked(file_t *file) {
    file_t **at = &files;
    if (file->contexts > 0 || file->blocks > 0) {
        return;
    }
    while (*at != file) {
        at = &(*at)->next;
    }
    *at = file->next;
    umfPoolDestroy(file->pool);
    free(file);
}

static file_t *file_of(umemMMap *ctx) {
    pthread_mutex_lock(&lock);
    file_t *file = (file_t *)ctx->fp;
    pthread_mutex_unlock(&lock);
    return file;
}

/* The context's file. Another thread may have opened it meanwhile. */
static file_t *context_open_locked(umemMMap *ctx, const struct stat *of, umem_why_t *why) {
    bool is_private = is_to_read(ctx->mode);
    file_t *file = (file_t *)ctx->fp;
    if (file) {
        return file;
    }
    file = file_find_locked(of, is_private);
    file = file ? file : file_open_locked(ctx, of, is_private, why);
    if (file) {
        file->contexts++;
        ctx->fp = (uintptr_t)file;
    }
    return file;
}

umf_memory_pool_handle_t umem_mmap_pool(umemMMap *ctx, umem_why_t *why) {
    struct stat of;
    file_t *file = file_of(ctx);
    if (file) {
        return file->pool;
    }
    errno = 0;
    if (!ctx->filename) {
        snprintf(why->text, sizeof(why->text), "the file has no name");
        return NULL;
    }
    if (!file_touch(ctx, &of, why)) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    file = context_open_locked(ctx, &of, why);
    pthread_mutex_unlock(&lock);
    return file ? file->pool : NULL;
}

/* --- the context ------------------------------------------------------------------------------ */

void umem_mmap_add_block(umemVirtual *ctx) {
    pthread_mutex_lock(&lock);
    ((file_t *)((umemMMap *)ctx)->fp)->blocks++;
    pthread_mutex_unlock(&lock);
}

/* The block may be of another context. */
static void mmap_free(umemVirtual *const ctx, uintptr_t adr) {
    UMEM_KEEP_ERRNO;
    if (adr == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    file_t *file = file_of_block_locked(adr);
    bool is_block = file && umfPoolFree(file->pool, (void *)adr) == UMF_RESULT_SUCCESS;
    if (is_block) {
        file->blocks--;
        file_release_locked(file);
    }
    pthread_mutex_unlock(&lock);
    TRY_RETURN(ctx, !is_block, umemValueError, return,
               "umem_free: %#" PRIxPTR " is not an address of an allocation", adr);
}

static void mmap_dtor(umemVirtual *const ctx) {
    UMEM_KEEP_ERRNO;
    umemMMap *map = (umemMMap *)ctx;
    pthread_mutex_lock(&lock);
    file_t *file = (file_t *)map->fp;
    if (file) {
        file->contexts--;
        file_release_locked(file);
    }
    pthread_mutex_unlock(&lock);
    free((void *)map->filename);
    free((void *)map->mode);
    map->filename = map->mode = NULL;
    map->fp = 0;
    umemVirtual_dtor(ctx);
}

void umemMMap_ctor(umemMMap *const ctx, const char *filename, const char *mode) {
    UMEM_KEEP_ERRNO;
    umem_base_init(&ctx->super, &operations, umemMMapDevice, &ctx->host);
    umemHost_ctor(&ctx->host);
    ctx->fp = 0;
    umem_names_copy(&ctx->super, filename, mode, &ctx->filename, &ctx->mode);
}

static const struct umemVtbl operations = {
    .dtor = mmap_dtor,
    .is_accessible_from = umem_kinds_accessible,
    .alloc = umem_block_alloc,
    .calloc = umem_block_calloc,
    .free = mmap_free,
    .aligned_alloc = umem_block_aligned_alloc,
    .aligned_origin = umem_block_aligned_origin,
    .aligned_free = mmap_free,
    .set = umem_block_set,
    .copy_to = umem_block_copy_to,
    .copy_from = umem_block_copy_from,
};
