/*
 * The file provider on a file system with direct access and the devdax provider on a device of its
 * own. init has made both out of emulated NVDIMMs and names in UMF_VM_FSDAX and UMF_VM_DEVDAX where
 * they are.
 */
#include "guest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>

#define MIB ((size_t)1 << 20)
#define HUGE_PAGE (2 * MIB)

/* --- one source of memory --------------------------------------------------------------------- */

typedef umf_memory_provider_handle_t (*provider_create_t)(const char *path);

static umf_memory_provider_handle_t file_provider(const char *path,
                                                  umf_memory_visibility_t visibility) {
    umf_file_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    need(umfFileMemoryProviderParamsCreate(path, &params), "parameters");
    need(umfFileMemoryProviderParamsSetVisibility(params, visibility), "visibility");
    need(umfMemoryProviderCreate(umfFileMemoryProviderOps(), params, &provider), "file provider");
    need(umfFileMemoryProviderParamsDestroy(params), "destroying parameters");
    return provider;
}

static umf_memory_provider_handle_t shared_file_provider(const char *path) {
    return file_provider(path, UMF_MEM_MAP_SHARED);
}

static umf_memory_provider_handle_t private_file_provider(const char *path) {
    return file_provider(path, UMF_MEM_MAP_PRIVATE);
}

/* The kernel has a device's size under its number. */
static size_t device_size(const char *path) {
    char size_path[256];
    size_t size = 0;
    snprintf(size_path, sizeof(size_path), "/sys/bus/dax/devices/%s/size", strrchr(path, '/') + 1);
    FILE *file = fopen(size_path, "r");
    if (!file || fscanf(file, "%zu", &size) != 1) {
        check(false, "reading %s", size_path);
    }
    if (file) {
        fclose(file);
    }
    return size;
}

static umf_result_t devdax_create(const char *path, size_t size,
                                  umf_memory_provider_handle_t *provider) {
    umf_devdax_memory_provider_params_handle_t params;
    need(umfDevDaxMemoryProviderParamsCreate(path, size, &params), "parameters");
    umf_result_t result = umfMemoryProviderCreate(umfDevDaxMemoryProviderOps(), params, provider);
    need(umfDevDaxMemoryProviderParamsDestroy(params), "destroying parameters");
    return result;
}

static umf_memory_provider_handle_t devdax_provider(const char *path) {
    umf_memory_provider_handle_t provider;
    need(devdax_create(path, device_size(path), &provider), "devdax provider");
    return provider;
}

/* --- what both promise ------------------------------------------------------------------------ */

static size_t recommended_page_size(umf_memory_provider_handle_t provider) {
    size_t size = 0;
    need(umfMemoryProviderGetRecommendedPageSize(provider, 0, &size), "page size");
    return size;
}

static void check_page_size(const char *what, umf_memory_provider_handle_t provider,
                            size_t wanted) {
    size_t least = 0;
    need(umfMemoryProviderGetMinPageSize(provider, NULL, &least), "page size");
    check(least == wanted && recommended_page_size(provider) == wanted, "%s: pages of %zu KiB",
          what, least >> 10);
}

/* Does the kernel keep the mapping of `address` in step with the medium (MAP_SYNC)? */
static bool is_synchronous(const void *address) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    bool found = false, inside = false;
    while (file && fgets(line, sizeof(line), file)) {
        uintptr_t start, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
            inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        } else if (inside && !strncmp(line, "VmFlags:", 8)) {
            found = strstr(line, " sf") != NULL;
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* A pattern that identifies the allocation, in each page. */
static void write_pattern(char *base, size_t size, unsigned id) {
    for (size_t at = 0; at < size; at += page_size()) {
        snprintf(base + at, page_size(), "allocation %u, byte %zu", id, at);
    }
}

static bool has_pattern(const char *base, size_t size, unsigned id) {
    bool same = true;
    for (size_t at = 0; at < size; at += page_size()) {
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "allocation %u, byte %zu", id, at);
        same = same && !strcmp(base + at, wanted);
    }
    return same;
}

/* Takes 2 MiB at a time until there is no more: the reason is `reason`, and nothing was lost. */
static void check_full(const char *what, umf_memory_provider_handle_t provider,
                       umf_result_t reason) {
    enum { MOST = 256 };
    static char *taken[MOST];
    unsigned count = 0;
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (count < MOST &&
           (result = umfMemoryProviderAlloc(provider, HUGE_PAGE, 0, (void **)&taken[count])) ==
               UMF_RESULT_SUCCESS) {
        write_pattern(taken[count], HUGE_PAGE, count);
        count++;
    }
    check(count > 8, "%s: %u allocations of 2 MiB", what, count);
    check_result(result, reason, "one more");
    bool kept = true;
    for (unsigned i = 0; i < count; i++) {
        kept &= has_pattern(taken[i], HUGE_PAGE, i);
    }
    check(kept, "%s: all keep their content", what);
    need(umfMemoryProviderFree(provider, taken[count / 2], HUGE_PAGE), "freeing one");
    need(umfMemoryProviderAlloc(provider, HUGE_PAGE, 0, (void **)&taken[count / 2]),
         "taking it again");
    for (unsigned i = 0; i < count; i++) {
        need(umfMemoryProviderFree(provider, taken[i], HUGE_PAGE), "freeing all");
    }
}

static void check_allocations(const char *what, umf_memory_provider_handle_t provider) {
    char *first, *second;
    need(umfMemoryProviderAlloc(provider, 3 * MIB, 0, (void **)&first), what);
    need(umfMemoryProviderAlloc(provider, 5 * MIB, HUGE_PAGE, (void **)&second), what);
    check((uintptr_t)first % HUGE_PAGE == 0 && (uintptr_t)second % HUGE_PAGE == 0,
          "%s: aligned to its pages", what);
    check(is_synchronous(first) && is_synchronous(second), "%s: synchronous mappings", what);
    write_pattern(first, 3 * MIB, 1);
    write_pattern(second, 5 * MIB, 2);
    check(has_pattern(first, 3 * MIB, 1) && has_pattern(second, 5 * MIB, 2),
          "%s: two allocations lie apart", what);
    check_result(umfMemoryProviderPurgeLazy(provider, first, HUGE_PAGE),
                 UMF_RESULT_ERROR_NOT_SUPPORTED, "purge lazy");
    need(umfMemoryProviderFree(provider, first, 3 * MIB), "freeing");
    need(umfMemoryProviderFree(provider, second, 5 * MIB), "freeing");
}

/* Somewhere in the file or device, at a page of the provider. */
static void check_medium(const char *what, const char *path, size_t size, size_t length,
                         unsigned id) {
    int descriptor = open(path, O_RDWR);
    char *base = descriptor >= 0
                     ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
                     : MAP_FAILED;
    bool found = false;
    for (size_t at = 0; base != MAP_FAILED && at + length <= size; at += HUGE_PAGE) {
        found |= has_pattern(base + at, length, id);
    }
    check(found, "%s: the data is there when the provider has gone", what);
    if (base != MAP_FAILED) {
        munmap(base, size);
    }
    close(descriptor);
}

/* --- the other process ------------------------------------------------------------------------ */

static int consumer(provider_create_t create, const char *path, umf_ipc_handle_t handle,
                    size_t size) {
    umf_memory_provider_handle_t provider = create(path);
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t handler;
    char *base;
    need(umfPoolCreate(umfProxyPoolOps(), provider, NULL, 0, &pool), "consumer's pool");
    need(umfPoolGetIPCHandler(pool, &handler), "handler");
    need(umfOpenIPCHandle(handler, handle, (void **)&base), "opening the handle");
    check(has_pattern(base, size, 7), "the consumer sees the producer's content");
    check(is_synchronous(base), "the consumer's mapping is synchronous");
    write_pattern(base, size, 8);
    need(umfCloseIPCHandle(base), "closing");
    need(umfPoolDestroy(pool), "destroying the consumer's pool");
    need(umfMemoryProviderDestroy(provider), "destroying the consumer's provider");
    return report.failures != 0;
}

/* `other` is where the consumer's own provider is: the handle alone must say where the data is. */
static void check_ipc(const char *what, provider_create_t create, const char *path,
                      const char *other) {
    const size_t size = 2 * HUGE_PAGE;
    umf_memory_provider_handle_t provider = create(path);
    umf_memory_pool_handle_t pool;
    umf_ipc_handle_t handle;
    size_t handle_size;
    need(umfPoolCreate(umfProxyPoolOps(), provider, NULL, 0, &pool), "producer's pool");
    char *before = umfPoolMalloc(pool, HUGE_PAGE), *base = umfPoolMalloc(pool, size);
    if (!check(before && base, "%s: two objects", what)) {
        return;
    }
    write_pattern(before, HUGE_PAGE, 6);
    write_pattern(base, size, 7);
    need(umfGetIPCHandle(base, &handle, &handle_size), "getting a handle");
    pid_t child = fork();
    if (child == 0) {
        _exit(consumer(create, other, handle, size));
    }
    int status = 1;
    waitpid(child, &status, 0);
    check(status == 0, "%s: the consumer is content", what);
    check(has_pattern(base, size, 8), "%s: the producer sees its answer", what);
    check(has_pattern(before, HUGE_PAGE, 6), "%s: what lies before it is as it was", what);
    need(umfPutIPCHandle(handle), "putting the handle");
    umfPoolFree(pool, base);
    umfPoolFree(pool, before);
    need(umfPoolDestroy(pool), "destroying the producer's pool");
    need(umfMemoryProviderDestroy(provider), "destroying the producer's provider");
}

/* --- file and device -------------------------------------------------------------------------- */

static void test_file(const char *folder) {
    char path[256], other[256];
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(other, sizeof(other), "%s/other", folder);

    umf_memory_provider_handle_t provider = private_file_provider(path);
    check_page_size("private FSDAX file", provider, page_size());
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
    provider = shared_file_provider("/dev/shm/file");
    check_page_size("shared file without DAX", provider, page_size());
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
    unlink("/dev/shm/file");

    provider = shared_file_provider(path);
    check_page_size("shared FSDAX file", provider, HUGE_PAGE);
    check_allocations("FSDAX", provider);
    char *base;
    need(umfMemoryProviderAlloc(provider, 6 * MIB, 0, (void **)&base), "allocating");
    write_pattern(base, 6 * MIB, 3);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
    struct stat status = {0};
    stat(path, &status);
    size_t file_size = (size_t)status.st_size;
    check(file_size >= 6 * MIB, "FSDAX: a file of %zu MiB stays", file_size >> 20);
    check_medium("FSDAX", path, file_size, 6 * MIB, 3);
    unlink(path);

    check_ipc("FSDAX IPC", shared_file_provider, path, other);
    unlink(path);
    unlink(other);

    provider = shared_file_provider(path);
    check_full("full FSDAX", provider, UMF_RESULT_ERROR_UNKNOWN);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
    unlink(path);
}

static void test_device(const char *path) {
    umf_memory_provider_handle_t provider = NULL;
    check_result(devdax_create("/dev/null", HUGE_PAGE, &provider),
                 UMF_RESULT_ERROR_INVALID_ARGUMENT, "devdax: not a DAX device");
    check_result(devdax_create(path, 0, &provider), UMF_RESULT_ERROR_INVALID_ARGUMENT,
                 "devdax: no size");
    check_result(devdax_create("/dev/dax9.9", HUGE_PAGE, &provider),
                 UMF_RESULT_ERROR_INVALID_ARGUMENT, "devdax: a device that is not here");

    provider = devdax_provider(path);
    check_page_size("devdax", provider, HUGE_PAGE);
    check_allocations("devdax", provider);
    check_full("full devdax", provider, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    char *base;
    need(umfMemoryProviderAlloc(provider, 6 * MIB, 0, (void **)&base), "allocating");
    write_pattern(base, 6 * MIB, 4);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
    check_medium("devdax", path, device_size(path), 6 * MIB, 4);

    check_ipc("devdax IPC", devdax_provider, path, path);
}

int main(void) {
    const char *folder = getenv("UMF_VM_FSDAX"), *device = getenv("UMF_VM_DEVDAX");
    if (folder) {
        test_file(folder);
    } else {
        puts("dax: skipped the file provider, no FSDAX file system is mounted");
    }
    if (device) {
        test_device(device);
    } else {
        puts("dax: skipped the devdax provider, there is no device");
    }
    return folder || device ? report_end("dax") : 77;
}
