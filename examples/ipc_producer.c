/*
 * Sharing memory, the producer: it allocates from a pool, sends a handle of the memory to another
 * process (ipc_consumer.c), and reads the answer from the same memory.
 *
 *     ipc_producer /tmp/socket &
 *     ipc_consumer /tmp/socket
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "producer: %s failed: %s\n", #call, umfResultText(result));            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Waits for the consumer at a Unix socket. How both find each other is up to the program. */
static int wait_for_consumer(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    unlink(path);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0) {
        perror("producer: listening");
        return -1;
    }
    int consumer = accept(listener, NULL, NULL);
    close(listener);
    unlink(path);
    return consumer;
}

/* A pool over memory of the operating system that other processes may map. */
static umf_result_t make_pool(umf_memory_pool_handle_t *pool) {
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    umf_result_t result = umfOsMemoryProviderParamsCreate(&params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umfOsMemoryProviderParamsSetVisibility(params, UMF_MEM_MAP_SHARED);
    result = umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider);
    umfOsMemoryProviderParamsDestroy(params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    /* The pool owns its provider: destroying the pool destroys both. */
    result = umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                           pool);
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(provider);
    }
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s <path of a socket to make>\n", argv[0]);
        return 2;
    }

    umf_memory_pool_handle_t pool;
    TRY(make_pool(&pool));
    size_t size = 1000;
    char *text = umfPoolMalloc(pool, size);
    if (text == NULL) {
        fprintf(stderr, "producer: no memory\n");
        return 1;
    }
    snprintf(text, size, "ping");

    /* The consumer opens our memory through /proc, which any process of the same user may do. If
     * /proc cannot be read, it copies our file descriptor, which many systems allow only to a
     * process that has permission. An application names the process that it trusts instead of
     * "any". */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);

    int consumer = wait_for_consumer(argv[1]);
    if (consumer < 0) {
        return 1;
    }

    /* A handle is a row of bytes that describes the address to other processes. It may be freed
     * once it is sent; the memory itself must stay until the consumer is done. */
    umf_ipc_handle_t handle;
    size_t handle_size;
    TRY(umfGetIPCHandle(text, &handle, &handle_size));
    printf("producer: wrote \"%s\", sending a handle of %zu bytes\n", text, handle_size);
    if (send(consumer, handle, handle_size, 0) != (ssize_t)handle_size) {
        perror("producer: sending the handle");
        return 1;
    }
    TRY(umfPutIPCHandle(handle));

    /* The consumer says when it has answered; the answer itself is in the memory. */
    char done;
    if (recv(consumer, &done, 1, 0) != 1) {
        fprintf(stderr, "producer: the consumer went away without an answer\n");
        return 1;
    }
    close(consumer);
    printf("producer: found the answer \"%s\"\n", text);
    int status = strcmp(text, "pong") == 0 ? 0 : 1;

    TRY(umfFree(text));
    TRY(umfPoolDestroy(pool));
    return status;
}
