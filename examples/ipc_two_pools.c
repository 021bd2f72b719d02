/*
 * Request and response, each in the memory of its writer. A client puts numbers into a block of its
 * pool and sends the handle over a socket. A server reads them in place, puts the answer into a
 * block of its own pool, and sends that handle back. No number is sent through the socket.
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#define REQUESTS 100
#define NUMBERS 10000

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s does not hold\n", #condition);                                     \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* A pool whose blocks the other process can open. Its handler opens the blocks of the other
 * process, because both pools are of one kind. */
static umf_result_t make_pool(umf_memory_pool_handle_t *pool, umf_ipc_handler_handle_t *door) {
    umf_result_t result = umfPoolCreateFromText("disjoint over os:visibility=shared", pool);
    /* The other process may need the permission to copy a descriptor of ours, see docs/guide. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return result == UMF_RESULT_SUCCESS ? umfPoolGetIPCHandler(*pool, door) : result;
}

/* One message is one handle. The handle may be freed once it is sent, the memory may not. */
static int send_block(int socket, const void *block) {
    umf_ipc_handle_t handle;
    size_t size;
    TRY(umfGetIPCHandle(block, &handle, &size));
    ssize_t sent = send(socket, handle, size, MSG_NOSIGNAL);
    TRY(umfPutIPCHandle(handle));
    EXPECT(sent == (ssize_t)size);
    return 0;
}

/* 1 when the other side has closed the socket. */
static int receive_block(int socket, umf_ipc_handler_handle_t door, void **block) {
    unsigned char handle[4096];
    *block = NULL;
    ssize_t size = recv(socket, handle, sizeof(handle), 0);
    if (size <= 0) {
        return 1;
    }
    TRY(umfOpenIPCHandleSized(door, handle, (size_t)size, block));
    return 0;
}

static int serve(int client) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t door;
    TRY(make_pool(&pool, &door));
    double *answer = umfPoolMalloc(pool, 2 * sizeof(*answer));
    void *request;
    EXPECT(answer != NULL);
    while (receive_block(client, door, &request) == 0) {
        const double *numbers = request;
        answer[0] = answer[1] = 0;
        for (int i = 0; i < NUMBERS; i++) {
            answer[0] += numbers[i];
            answer[1] += numbers[i] * numbers[i];
        }
        TRY(umfCloseIPCHandle(request));
        EXPECT(send_block(client, answer) == 0);
    }
    TRY(umfPoolFree(pool, answer));
    TRY(umfPoolDestroy(pool));
    return 0;
}

static int client(int server) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t door;
    TRY(make_pool(&pool, &door));
    for (int request = 1; request <= REQUESTS; request++) {
        double *numbers = umfPoolMalloc(pool, NUMBERS * sizeof(*numbers));
        void *answer;
        EXPECT(numbers != NULL);
        for (int i = 0; i < NUMBERS; i++) {
            numbers[i] = request;
        }
        EXPECT(send_block(server, numbers) == 0);
        EXPECT(receive_block(server, door, &answer) == 0);
        EXPECT(((double *)answer)[0] == (double)NUMBERS * request);
        EXPECT(((double *)answer)[1] == (double)NUMBERS * request * request);
        /* A close keeps the mapping for the next answer, which is at the same address. */
        TRY(umfCloseIPCHandle(answer));
        TRY(umfPoolFree(pool, numbers));
    }
    TRY(umfPoolDestroy(pool));
    printf("%d requests of %d numbers were answered\n", REQUESTS, NUMBERS);
    return 0;
}

int main(void) {
    int ends[2], status = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) {
        perror("socketpair");
        return 1;
    }
    pid_t child = fork(); /* before any pool: each process makes its own */
    if (child == 0) {
        close(ends[0]);
        _exit(serve(ends[1]));
    }
    close(ends[1]);
    int failed = client(ends[0]);
    close(ends[0]);
    waitpid(child, &status, 0);
    return failed || status != 0;
}
