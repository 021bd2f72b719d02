/* umf-bench-vault: memory of a GPU, beside the calls of the driver. */
#include "vault.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/vault.h>

#define SLABS 30
#define ROUNDS 7
#define NAME "gpu"
#define FUNCTIONS(DO)                                                                              \
    DO(cuInit, "cuInit", 2000)                                                                     \
    DO(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)                                 \
    DO(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)                                                   \
    DO(cuMemGetInfo, "cuMemGetInfo_v2", 3020)                                                      \
    DO(cuMemHostAlloc, "cuMemHostAlloc", 2020)                                                     \
    DO(cuMemFreeHost, "cuMemFreeHost", 2000)                                                       \
    DO(cuMemAlloc, "cuMemAlloc_v2", 3020)                                                          \
    DO(cuMemFree, "cuMemFree_v2", 3020)                                                            \
    DO(cuMemcpyHtoD, "cuMemcpyHtoD_v2", 3020)                                                      \
    DO(cuMemCreate, "cuMemCreate", 10020)                                                          \
    DO(cuMemRelease, "cuMemRelease", 10020)                                                        \
    DO(cuMemMap, "cuMemMap", 10020)                                                                \
    DO(cuMemUnmap, "cuMemUnmap", 10020)                                                            \
    DO(cuMemSetAccess, "cuMemSetAccess", 10020)                                                    \
    DO(cuMemAddressReserve, "cuMemAddressReserve", 10020)                                          \
    DO(cuMemAddressFree, "cuMemAddressFree", 10020)                                                \
    DO(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020)                        \
    DO(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", 10020)    \
    DO(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020)

static struct {
#define MEMBER(name, symbol, version) PFN_##name##_v##version name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

/* false: there is none; it says why. */
static bool driver_start(void) {
    CUcontext context;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("GPU: not measured, %s\n", dlerror());
        return false;
    }
#define FIND(name, symbol, version)                                                                \
    *(void **)&driver.name = dlsym(library, symbol);                                               \
    if (!driver.name) {                                                                            \
        printf("GPU: not measured, the driver has no %s\n", symbol);                               \
        return false;                                                                              \
    }
    FUNCTIONS(FIND)
#undef FIND
    CUresult result = driver.cuInit(0);
    result = result ? result : driver.cuDevicePrimaryCtxRetain(&context, 0);
    result = result ? result : driver.cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS) {
        printf("GPU: not measured, the driver does not start (%d)\n", (int)result);
    }
    return result == CUDA_SUCCESS;
}

/* 2 GiB; less if 30 slabs of that size have no room beside the memory in use. */
static size_t slab_size(void) {
    size_t left = 0, all = 0;
    driver.cuMemGetInfo(&left, &all);
    size_t size = left / 10 * 9 / SLABS >> 21 << 21;
    return size < (size_t)2 << 30 ? size : (size_t)2 << 30;
}

/* --- the other process ------------------------------------------------------------------------ */

/* Runs `maker` in a process of its own, started anew: CUDA does not survive a fork. It is killed
 * when `socket` was read. */
static pid_t start(const char *role, size_t size, int *socket_of) {
    int ends[2];
    char number[32];
    snprintf(number, sizeof(number), "%zu", size);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return -1;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDIN_FILENO);
        close(ends[0]);
        execl("/proc/self/exe", "umf-bench-vault", role, number, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
    }
    *socket_of = ends[0];
    return child;
}

static void end(pid_t child, int socket_of) {
    if (child <= 0) { /* it was not started: kill(-1) would end all processes of the user */
        return;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(socket_of);
}

static CUmemAllocationProp properties(void) {
    CUmemAllocationProp made;
    memset(&made, 0, sizeof(made));
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return made;
}

typedef struct rights_t {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SLABS * sizeof(int))];
    char byte;
    struct iovec part;
    struct msghdr message;
} rights_t;

static void rights_init(rights_t *rights) {
    memset(rights, 0, sizeof(*rights));
    rights->part = (struct iovec){&rights->byte, 1};
    rights->message.msg_iov = &rights->part;
    rights->message.msg_iovlen = 1;
    rights->message.msg_control = rights->control;
    rights->message.msg_controllen = sizeof(rights->control);
}

/* Makes slabs with the calls of the driver alone, and sends their descriptors. */
static int make_plain(size_t size) {
    CUmemAllocationProp what = properties();
    int fds[SLABS];
    rights_t rights;
    if (!driver_start()) {
        return 1;
    }
    for (int i = 0; i < SLABS; i++) {
        CUmemGenericAllocationHandle handle;
        if (driver.cuMemCreate(&handle, size, &what, 0) != CUDA_SUCCESS ||
            driver.cuMemExportToShareableHandle(
                &fds[i], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS) {
            return 1;
        }
    }
    rights_init(&rights);
    struct cmsghdr *header = CMSG_FIRSTHDR(&rights.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(header), fds, sizeof(fds));
    if (sendmsg(STDIN_FILENO, &rights.message, 0) != 1) {
        return 1;
    }
    pause();
    return 0;
}

/* Commits a generation of as many slabs. */
static int make_vault(size_t size) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    if (umfVaultOpen(NAME, NULL, &vault) != UMF_RESULT_SUCCESS ||
        umfVaultBegin(vault, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, "proxy over cuda_vmm:device=0", &pool) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    for (int i = 0; i < SLABS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "slab.%d", i);
        void *memory = umfPoolMalloc(pool, size);
        if (!memory || umfVaultPut(draft, key, memory, size, NULL, 0, 0) != UMF_RESULT_SUCCESS) {
            return 1;
        }
    }
    if (umfVaultCommit(draft, NULL, NULL) != UMF_RESULT_SUCCESS ||
        write(STDIN_FILENO, "", 1) != 1) {
        return 1;
    }
    pause();
    return 0;
}

bool gpu_role(int count, char **words, int *status) {
    size_t size = count == 3 ? (size_t)strtoull(words[2], NULL, 10) : 0;
    if (size && strcmp(words[1], "--plain") == 0) {
        *status = make_plain(size);
    } else if (size && strcmp(words[1], "--vault") == 0) {
        *status = make_vault(size);
    } else {
        return false;
    }
    return true;
}

/* --- measuring -------------------------------------------------------------------------------- */

/* Imports, maps and gives access, then releases the mappings and handles. `asks`: also which device
 * has the memory, as one must that has a descriptor of another process. Negative: failed. */
static double plain_ms(const int *fds, size_t size, bool asks) {
    CUdeviceptr base = 0;
    CUmemAllocationProp what;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    double begin = now_ms(CLOCK_MONOTONIC);
    CUresult result = driver.cuMemAddressReserve(&base, size * SLABS, (size_t)2 << 20, 0, 0);
    for (size_t i = 0; i < SLABS && result == CUDA_SUCCESS; i++) {
        CUmemGenericAllocationHandle handle;
        result = driver.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fds[i],
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (asks && result == CUDA_SUCCESS) {
            result = driver.cuMemGetAllocationPropertiesFromHandle(&what, handle);
        }
        result = result ? result : driver.cuMemMap(base + i * size, size, 0, handle, 0);
        result = result ? result : driver.cuMemRelease(handle);
    }
    result = result ? result : driver.cuMemSetAccess(base, size * SLABS, &access, 1);
    double passed = now_ms(CLOCK_MONOTONIC) - begin;
    if (result != CUDA_SUCCESS) {
        return -1;
    }
    driver.cuMemUnmap(base, size * SLABS);
    driver.cuMemAddressFree(base, size * SLABS);
    return passed;
}

/* Negative: not measured. */
static double best_plain(size_t size, double *best_asked) {
    int socket_of, fds[SLABS];
    rights_t rights;
    double best = -1;
    pid_t child = start("--plain", size, &socket_of);
    rights_init(&rights);
    if (child > 0 && recvmsg(socket_of, &rights.message, 0) == 1 &&
        CMSG_FIRSTHDR(&rights.message)) {
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&rights.message)), sizeof(fds));
        best = *best_asked = 1e9;
        for (int i = 0; i < ROUNDS && best >= 0; i++) {
            best = least(best, plain_ms(fds, size, false));
            *best_asked = least(*best_asked, plain_ms(fds, size, true));
        }
        for (int i = 0; i < SLABS; i++) {
            close(fds[i]);
        }
    }
    end(child, socket_of);
    return best;
}

static double gpu_attach_ms(umf_vault_handle_t vault) {
    umf_vault_view_handle_t view;
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    params.devices = "cuda_vmm:device=0";
    double begin = now_ms(CLOCK_MONOTONIC);
    if (umfVaultAttach(vault, &params, &view) != UMF_RESULT_SUCCESS) {
        return -1;
    }
    double passed = now_ms(CLOCK_MONOTONIC) - begin;
    umfVaultDetach(view);
    return passed;
}

static double best_vault(size_t size) {
    int socket_of;
    char byte;
    umf_vault_handle_t vault;
    double best = -1;
    pid_t child = start("--vault", size, &socket_of);
    bool is_made = child > 0 && read(socket_of, &byte, 1) == 1;
    end(child, socket_of);
    if (is_made && umfVaultOpen(NAME, NULL, &vault) == UMF_RESULT_SUCCESS) {
        best = 1e9;
        for (int i = 0; i < ROUNDS && best >= 0; i++) {
            best = least(best, gpu_attach_ms(vault));
        }
        umfVaultDrop(vault, 0);
        umfVaultClose(vault);
    }
    return best;
}

/* --- a copy in memory of the host that comes back --------------------------------------------- */

/* Milliseconds of a copy out of pinned memory, by one call of the driver. Negative: failed. */
static double pinned_ms(size_t size) {
    void *from = NULL;
    CUdeviceptr to = 0;
    double best = -1;
    CUresult result = driver.cuMemHostAlloc(&from, size, 0);
    result = result ? result : driver.cuMemAlloc(&to, size);
    if (result == CUDA_SUCCESS) {
        memset(from, 1, size);
        best = 1e9;
    }
    for (int i = 0; i < ROUNDS && result == CUDA_SUCCESS; i++) {
        double begin = now_ms(CLOCK_MONOTONIC);
        result = driver.cuMemcpyHtoD(to, from, size);
        best = least(best, now_ms(CLOCK_MONOTONIC) - begin);
    }
    driver.cuMemFree(to);
    driver.cuMemFreeHost(from);
    return result == CUDA_SUCCESS ? best : -1;
}

/* A generation of the GPU of two slabs, with copies in memory of the host. */
static bool copied_write(size_t size, int digest) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.digest = digest;
    if (umfVaultOpen("copied", NULL, &vault) != UMF_RESULT_SUCCESS) {
        return false;
    }
    bool is_made =
        umfVaultBegin(vault, NULL, &draft) == UMF_RESULT_SUCCESS &&
        umfVaultDraftPool(draft, "proxy over cuda_vmm:device=0", &pool) == UMF_RESULT_SUCCESS;
    for (int i = 0; i < 2 && is_made; i++) {
        void *memory = umfPoolMalloc(pool, size / 2);
        is_made = memory && umfVaultPut(draft, i ? "b" : "a", memory, size / 2, NULL, 0, 0) ==
                                UMF_RESULT_SUCCESS;
    }
    is_made = is_made && umfVaultCommit(draft, NULL, NULL) == UMF_RESULT_SUCCESS &&
              umfVaultSnapshot(vault, 0, &params) == UMF_RESULT_SUCCESS;
    umfVaultClose(vault); /* it has the memory of the GPU until then */
    return is_made;
}

/* Milliseconds of an attach that makes the memory of the GPU again. Negative: failed. */
static double best_refill(size_t size, int digest) {
    umf_vault_handle_t vault;
    double best = -1;
    if (!copied_write(size, digest) || umfVaultOpen("copied", NULL, &vault) != UMF_RESULT_SUCCESS) {
        return -1;
    }
    best = 1e9;
    for (int i = 0; i < ROUNDS && best >= 0; i++) {
        best =
            umfVaultEvict(vault, 0) == UMF_RESULT_SUCCESS ? least(best, gpu_attach_ms(vault)) : -1;
    }
    umfVaultDrop(vault, 0);
    umfVaultClose(vault);
    return best;
}

static void refill(void) {
    char what[96];
    size_t size = slab_size() * 2;
    double pinned = pinned_ms(size), refilled = best_refill(size, 0), summed = best_refill(size, 1);
    if (pinned < 0 || refilled < 0 || summed < 0) {
        not_measured("GPU: refill");
        return;
    }
    snprintf(what, sizeof(what), "GPU: attach %.1f GiB that were evicted",
             (double)size / (double)((size_t)1 << 30));
    anchor(what, refilled, "ms");
    anchor("one copy of the driver out of pinned memory", pinned, "ms");
    row("  the refill as a multiple of it", refilled / pinned, "x", 1 / 0.9);
    anchor("  the same with sums that are compared", summed / pinned, "x");
}

void gpu_attaches(void) {
    char what[96];
    if (!driver_start()) {
        return;
    }
    size_t size = slab_size();
    double asked = -1, plain = size ? best_plain(size, &asked) : -1;
    double attached = size ? best_vault(size) : -1;
    if (plain < 0 || attached < 0) {
        not_measured("GPU: attach");
        return;
    }
    snprintf(what, sizeof(what), "GPU: attach %.1f GiB in %d slabs",
             (double)(size * SLABS) / (double)((size_t)1 << 30), SLABS);
    row(what, attached, "ms", 10);
    anchor("the calls of the driver alone", plain, "ms");
    anchor("  and the question which device has the memory", asked, "ms");
    row("  the attach as a multiple of it", attached / plain, "x", 1.3);
    refill();
}
