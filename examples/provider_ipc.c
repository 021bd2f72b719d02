/*
 * A provider with IPC: with five more operations, memory of a provider of your own can be shared.
 *
 * The memory is one object of shared memory. A handle has the object's name and an offset in it;
 * the library puts its own checks around that. The child of this program opens the handle with a
 * provider of the same kind, as another program would.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>

enum { NAME_SIZE = 32, OBJECT_SIZE = 1 << 20 };

typedef struct shared_t {
    char name[NAME_SIZE];
    char *base;
    size_t end; /* of what is allocated; a real provider takes freed memory again */
} shared_t;

/* What travels to the other process. */
typedef struct description_t {
    char name[NAME_SIZE];
    size_t offset, size;
} description_t;

/* Maps a part of an object that has the right size. NULL: it cannot be. */
static char *map(const char *name, int flags, size_t offset, size_t size) {
    int fd = shm_open(name, flags, 0600);
    char *base = MAP_FAILED;
    struct stat object;
    if (fd >= 0 && ((flags & O_CREAT) == 0 || ftruncate(fd, OBJECT_SIZE) == 0) &&
        fstat(fd, &object) == 0 && object.st_size == OBJECT_SIZE) {
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    }
    if (fd >= 0) {
        close(fd);
    }
    return base == MAP_FAILED ? NULL : base;
}

static umf_result_t initialize(const void *params, void **provider) {
    shared_t *self = calloc(1, sizeof(*self));
    if (!self) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    snprintf(self->name, sizeof(self->name), "/%s_%ld", (const char *)params, (long)getpid());
    self->base = map(self->name, O_CREAT | O_EXCL | O_RDWR, 0, OBJECT_SIZE);
    if (!self->base) {
        free(self);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    *provider = self;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t finalize(void *provider) {
    shared_t *self = provider;
    munmap(self->base, OBJECT_SIZE);
    shm_unlink(self->name);
    free(self);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    shared_t *self = provider;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), step = alignment > page ? alignment : page;
    size_t start = (self->end + step - 1) / step * step; /* whole pages: others map them */
    if (size > OBJECT_SIZE || start > OBJECT_SIZE - size) {
        *ptr = NULL;
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *ptr = self->base + start;
    self->end = start + size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t release(void *provider, void *ptr, size_t size) {
    (void)provider, (void)ptr, (void)size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t native_error(void *provider, const char **message, int32_t *error) {
    (void)provider;
    *message = "";
    *error = 0;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t page_size(void *provider, size_t size, size_t *page) {
    (void)provider, (void)size;
    *page = (size_t)sysconf(_SC_PAGESIZE);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t least_page_size(void *provider, const void *ptr, size_t *page) {
    (void)ptr;
    return page_size(provider, 0, page);
}

static umf_result_t cache_line(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t name(void *provider, const char **text) {
    (void)provider;
    *text = "SHARED_OBJECT";
    return UMF_RESULT_SUCCESS;
}

/* --- the five operations ---------------------------------------------------------------------- */

static umf_result_t handle_size(void *provider, size_t *size) {
    (void)provider;
    *size = sizeof(description_t);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_handle(void *provider, const void *ptr, size_t size, void *data) {
    const shared_t *self = provider;
    description_t description = {.offset = (size_t)((const char *)ptr - self->base), .size = size};
    memcpy(description.name, self->name, sizeof(description.name));
    memcpy(data, &description, sizeof(description));
    return UMF_RESULT_SUCCESS;
}

static umf_result_t put_handle(void *provider, void *data) {
    (void)provider, (void)data; /* nothing was taken for it */
    return UMF_RESULT_SUCCESS;
}

/* The bytes come from another process: nothing in them is believed before it is checked. */
static umf_result_t open_handle(void *provider, void *data, void **ptr) {
    (void)provider;
    description_t description;
    memcpy(&description, data, sizeof(description));
    if (!memchr(description.name, '\0', NAME_SIZE) || description.size > OBJECT_SIZE ||
        description.offset > OBJECT_SIZE - description.size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char *base = map(description.name, O_RDWR, description.offset, description.size);
    if (!base) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *ptr = base;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t close_handle(void *provider, void *ptr, size_t size) {
    (void)provider;
    return munmap(ptr, size) == 0 ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static const umf_memory_provider_ops_t ops = {
    .version = UMF_PROVIDER_OPS_VERSION_CURRENT,
    .initialize = initialize,
    .finalize = finalize,
    .alloc = alloc,
    .free = release,
    .get_last_native_error = native_error,
    .get_recommended_page_size = page_size,
    .get_min_page_size = least_page_size,
    .get_name = name,
    .get_cache_line_size = cache_line,
    .ext_get_ipc_handle_size = handle_size,
    .ext_get_ipc_handle = get_handle,
    .ext_put_ipc_handle = put_handle,
    .ext_open_ipc_handle = open_handle,
    .ext_close_ipc_handle = close_handle,
};

static umf_result_t make_pool(umf_memory_pool_handle_t *pool) {
    umf_memory_provider_handle_t provider;
    umf_result_t result = umfMemoryProviderCreate(&ops, "umf_example_object", &provider);
    return result == UMF_RESULT_SUCCESS ? umfPoolCreate(umfProxyPoolOps(), provider, NULL,
                                                        UMF_POOL_CREATE_FLAG_OWN_PROVIDER, pool)
                                        : result;
}

/* The other process, with a pool of its own. */
static int consume(umf_ipc_handle_t handle) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t handler;
    void *ptr;
    if (make_pool(&pool) != UMF_RESULT_SUCCESS ||
        umfPoolGetIPCHandler(pool, &handler) != UMF_RESULT_SUCCESS ||
        umfOpenIPCHandle(handler, handle, &ptr) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    printf("process %ld reads: %s\n", (long)getpid(), (char *)ptr);
    fflush(stdout);
    strcpy(ptr, "and answers");
    umf_result_t result = umfCloseIPCHandle(ptr);
    umfPoolDestroy(pool);
    return result != UMF_RESULT_SUCCESS;
}

int main(void) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handle_t handle;
    size_t size;
    if (make_pool(&pool) != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "no shared memory here\n");
        return 1;
    }
    char *text = umfPoolMalloc(pool, 4096);
    if (!text || umfGetIPCHandle(text, &handle, &size) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    strcpy(text, "memory of another provider");
    pid_t child = fork();
    if (child == 0) {
        _exit(consume(handle));
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("another process");
    }
    printf("process %ld reads: %s\n", (long)getpid(), text);
    int failed = status != 0 || strcmp(text, "and answers") != 0;
    umfPutIPCHandle(handle);
    umfFree(text);
    umfPoolDestroy(pool);
    return failed;
}
