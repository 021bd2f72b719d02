/*
 * A user-defined provider: memory in a temporary file, written with the public headers only. Used
 * by custom_provider.c and by plugin/file_plugin.c.
 *
 * Everything is static, so that one file holds the whole provider.
 */
#ifndef UMF_EXAMPLE_FILE_PROVIDER_H
#define UMF_EXAMPLE_FILE_PROVIDER_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umf.h>

typedef struct file_params_t {
    const char *directory; /* where the file is created; it has no name, so nothing remains */
} file_params_t;

typedef struct file_provider_t {
    int fd;
    off_t end; /* of the file: each allocation takes a new part. Changed by one thread at a time */
    char lock;
} file_provider_t;

static __thread int file_last_errno;

static umf_result_t file_fail(void) {
    file_last_errno = errno;
    return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
}

/* `params` is the argument of umfMemoryProviderCreate. Copy the members that are needed later. */
static umf_result_t file_initialize(const void *params, void **provider) {
    const file_params_t *file_params = params;
    if (!file_params || !file_params->directory) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char path[4096];
    size_t length = strlen(file_params->directory);
    if (length > sizeof(path) - 16) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(path, file_params->directory, length);
    strcpy(path + length, "/umf-XXXXXX");
    file_provider_t *self = calloc(1, sizeof(*self));
    if (!self) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    self->fd = mkstemp(path);
    if (self->fd < 0) {
        free(self);
        return file_fail();
    }
    unlink(path);
    *provider = self;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_finalize(void *provider) {
    file_provider_t *self = provider;
    close(self->fd);
    free(self);
    return UMF_RESULT_SUCCESS;
}

static size_t file_page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Takes an unused part of the file. Pools call from several threads. */
static umf_result_t file_extend(file_provider_t *self, size_t size, off_t *offset) {
    while (__atomic_test_and_set(&self->lock, __ATOMIC_ACQUIRE)) {
        usleep(1);
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    *offset = self->end;
    if (ftruncate(self->fd, self->end + (off_t)size) == 0) {
        self->end += (off_t)size;
    } else {
        result = file_fail();
    }
    __atomic_clear(&self->lock, __ATOMIC_RELEASE);
    return result;
}

static umf_result_t file_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    file_provider_t *self = provider;
    size_t page = file_page_size();
    if (size == 0 || size > SIZE_MAX / 4) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (alignment > page) {
        return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    }
    size = (size + page - 1) / page * page;
    off_t offset;
    umf_result_t result = file_extend(self, size, &offset);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, offset);
    if (memory == MAP_FAILED) {
        return file_fail();
    }
    *ptr = memory;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_free(void *provider, void *ptr, size_t size) {
    (void)provider;
    size_t page = file_page_size();
    size = (size + page - 1) / page * page;
    if (ptr && munmap(ptr, size) != 0) {
        return file_fail();
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_last_native_error(void *provider, const char **message,
                                               int32_t *code) {
    (void)provider;
    *message = strerror(file_last_errno);
    *code = file_last_errno;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_recommended_page_size(void *provider, size_t size, size_t *page_size) {
    (void)provider, (void)size;
    *page_size = file_page_size();
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)provider, (void)ptr;
    *page_size = file_page_size();
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t file_get_name(void *provider, const char **name) {
    (void)provider;
    *name = "EXAMPLE_FILE";
    return UMF_RESULT_SUCCESS;
}

/* Operations that are not named stay NULL: the provider does not offer them, and callers get
 * NOT_SUPPORTED. */
static const umf_memory_provider_ops_t file_provider_ops = {
    .version = UMF_PROVIDER_OPS_VERSION_CURRENT,
    .initialize = file_initialize,
    .finalize = file_finalize,
    .alloc = file_alloc,
    .free = file_free,
    .get_last_native_error = file_get_last_native_error,
    .get_recommended_page_size = file_get_recommended_page_size,
    .get_min_page_size = file_get_min_page_size,
    .get_name = file_get_name,
    .get_cache_line_size = file_get_cache_line_size,
};

#endif
