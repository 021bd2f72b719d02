/*
 * Sharing memory, the consumer: it opens a handle of ipc_producer.c, reads the producer's data, and
 * answers in the same memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "consumer: %s failed: %s\n", #call, umfResultText(result));            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int connect_to_producer(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    int producer = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    /* The socket may exist a moment before the producer listens. */
    for (int tries = 0; tries < 1200; tries++) {
        if (connect(producer, (struct sockaddr *)&address, sizeof(address)) == 0) {
            return producer;
        }
        usleep(50000);
    }
    perror("consumer: connecting");
    return -1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s <path of the producer's socket>\n", argv[0]);
        return 2;
    }

    /* Handles are opened through a pool over a provider of the same kind, able to share as well. It
     * need not have any memory of its own. */
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    TRY(umfOsMemoryProviderParamsCreate(&params));
    TRY(umfOsMemoryProviderParamsSetVisibility(params, UMF_MEM_MAP_SHARED));
    TRY(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider));
    TRY(umfOsMemoryProviderParamsDestroy(params));
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      &pool));

    /* Handles of both pools have the same size, so the room is known before the handle arrives. */
    size_t handle_size;
    TRY(umfPoolGetIPCHandleSize(pool, &handle_size));
    void *handle = malloc(handle_size);
    int producer = connect_to_producer(argv[1]);
    if (handle == NULL || producer < 0) {
        return 1;
    }
    if (recv(producer, handle, handle_size, 0) != (ssize_t)handle_size) {
        fprintf(stderr, "consumer: no handle came\n");
        return 1;
    }

    umf_ipc_handler_handle_t handler;
    void *opened;
    TRY(umfPoolGetIPCHandler(pool, &handler));
    TRY(umfOpenIPCHandleSized(handler, handle, handle_size, &opened));
    free(handle); /* our own copy; only the producer puts handles */

    char *text = opened;
    printf("consumer: found \"%s\"\n", text);
    int status = strcmp(text, "ping") == 0 ? 0 : 1;
    strcpy(text, "pong");
    TRY(umfCloseIPCHandle(opened));

    if (send(producer, "", 1, 0) != 1) {
        perror("consumer: telling the producer");
        status = 1;
    }
    close(producer);
    TRY(umfPoolDestroy(pool));
    return status;
}
