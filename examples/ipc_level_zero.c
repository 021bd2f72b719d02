/*
 * Memory of a device shared between two processes. The producer fills the memory and sends a handle
 * to the consumer, which opens it, reads it, and answers in the same memory. The content is not
 * copied through the socket between them: only the bytes of the handle are.
 *
 * Both are one program that forks before it uses Level Zero, which does not survive a fork.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_level_zero.h>

#include "level_zero_device.h"

#define SIZE 100000

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Both sides have a pool over memory of the device; the consumer never allocates from its own. */
static int make_pool(const gpu_t *gpu, umf_memory_pool_handle_t *pool) {
    umf_level_zero_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    TRY(umfLevelZeroMemoryProviderParamsCreate(&params));
    TRY(umfLevelZeroMemoryProviderParamsSetContext(params, gpu->context));
    TRY(umfLevelZeroMemoryProviderParamsSetDevice(params, gpu->device));
    TRY(umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE));
    TRY(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider));
    TRY(umfLevelZeroMemoryProviderParamsDestroy(params));
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      pool));
    return 0;
}

static int fill(const gpu_t *gpu, void *memory, unsigned char value) {
    TRY_ZE(zeCommandListAppendMemoryFill(gpu->list, memory, &value, sizeof(value), SIZE, NULL, 0,
                                         NULL));
    return 0;
}

/* 0 if every byte of the memory has that value. */
static int check(const gpu_t *gpu, const void *memory, unsigned char value) {
    static unsigned char copy[SIZE];
    TRY_ZE(zeCommandListAppendMemoryCopy(gpu->list, copy, memory, SIZE, NULL, 0, NULL));
    return copy[0] == value && memcmp(copy, copy + 1, SIZE - 1) == 0 ? 0 : 1;
}

/* --- the producer ----------------------------------------------------------------------------- */

/* A handle is a row of bytes. It may be freed once it is sent; the memory itself must stay until
 * the consumer is done. */
static int send_handle(int consumer, void *memory) {
    umf_ipc_handle_t handle;
    size_t size;
    TRY(umfGetIPCHandle(memory, &handle, &size));
    printf("producer: sending a handle of %zu bytes for %d bytes of memory\n", size, SIZE);
    if (send(consumer, handle, size, 0) != (ssize_t)size) {
        perror("producer: sending the handle");
        return 1;
    }
    TRY(umfPutIPCHandle(handle));
    return 0;
}

static int produce(int consumer) {
    gpu_t gpu;
    umf_memory_pool_handle_t pool;
    int status = gpu_open(&gpu);
    if (status || (status = make_pool(&gpu, &pool))) {
        return status;
    }
    void *memory = umfPoolMalloc(pool, SIZE);
    if (!memory) {
        fprintf(stderr, "producer: no memory\n");
        return 1;
    }
    char done;
    status = fill(&gpu, memory, 1) || send_handle(consumer, memory);
    if (!status && recv(consumer, &done, 1, 0) != 1) {
        fprintf(stderr, "producer: the consumer went away without an answer\n");
        status = 1;
    }
    status = status || check(&gpu, memory, 2);
    printf("producer: %s\n", status ? "there is no answer in the memory" : "found the answer");
    TRY(umfFree(memory));
    TRY(umfPoolDestroy(pool));
    return gpu_close(&gpu) || status;
}

/* --- the consumer ----------------------------------------------------------------------------- */

static int answer(const gpu_t *gpu, umf_memory_pool_handle_t pool, const void *bytes, size_t size) {
    umf_ipc_handler_handle_t handler;
    void *memory;
    TRY(umfPoolGetIPCHandler(pool, &handler));
    TRY(umfOpenIPCHandleSized(handler, bytes, size, &memory));
    int status = check(gpu, memory, 1) || fill(gpu, memory, 2);
    printf("consumer: %s\n", status ? "the memory is not what it should be" : "seen and answered");
    TRY(umfCloseIPCHandle(memory));
    return status;
}

static int consume(int producer) {
    gpu_t gpu;
    umf_memory_pool_handle_t pool;
    static char bytes[4096];
    int status = gpu_open(&gpu);
    if (status || (status = make_pool(&gpu, &pool))) {
        return status;
    }
    ssize_t size = recv(producer, bytes, sizeof(bytes), 0);
    if (size <= 0) {
        fprintf(stderr, "consumer: there is no producer any more\n");
        return 1;
    }
    status = answer(&gpu, pool, bytes, (size_t)size);
    TRY(umfPoolDestroy(pool)); /* unmaps open memory now at the latest */
    if (!status && send(producer, "", 1, 0) != 1) {
        perror("consumer: telling the producer");
        status = 1;
    }
    return gpu_close(&gpu) || status;
}

int main(void) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) {
        perror("making sockets");
        return 1;
    }
    pid_t consumer = fork();
    if (consumer == 0) {
        close(sockets[0]);
        return consume(sockets[1]);
    }
    close(sockets[1]);

    /* The consumer copies our descriptor of the memory, which many systems allow only to a process
     * that was permitted to. */
    prctl(PR_SET_PTRACER, consumer, 0, 0, 0);
    int status = produce(sockets[0]);
    close(sockets[0]);
    int ended = 1;
    waitpid(consumer, &ended, 0);
    return status ? status : !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
}
