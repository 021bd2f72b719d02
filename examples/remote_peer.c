/*
 * Memory of other machines, the peer: it reads the handle that remote_owner.c has written, gets the
 * range and puts its own bytes there.
 *
 *     remote_peer /shared/handle [devices key_file]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "peer: %s failed: %s\n", #call, umfLastErrorText());                   \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: %s FILE [DEVICES KEY_FILE]\n", argv[0]);
        return 1;
    }
    char handle[UMF_REMOTE_HANDLE_MAX];
    FILE *file = fopen(argv[1], "r");
    size_t length = file ? fread(handle, 1, sizeof(handle), file) : 0;
    if (!file || fclose(file) != 0) {
        perror("peer: reading the handle");
        return 1;
    }
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    if (argc == 4) {
        params.devices = argv[2];
        params.key_file = argv[3];
    }
    umf_remote_handle_t remote;
    umf_remote_memory_handle_t memory;
    size_t size;
    TRY(umfRemoteCreate(&params, &remote));
    TRY(umfRemoteOpen(remote, handle, length, &memory));
    TRY(umfRemoteGetSize(memory, &size));
    char *buffer = malloc(size);
    if (!buffer) {
        return 1;
    }

    /* Several operations at once; each is waited for. */
    umf_remote_op_handle_t low, high;
    TRY(umfRemoteGet(memory, 0, buffer, size / 2, &low));
    TRY(umfRemoteGet(memory, size / 2, buffer + size / 2, size - size / 2, &high));
    TRY(umfRemoteWait(low, UINT64_MAX));
    TRY(umfRemoteWait(high, UINT64_MAX));
    printf("peer: got %zu bytes, '%c' to '%c'\n", size, buffer[0], buffer[size - 1]);
    int is_right = buffer[0] == 'o' && buffer[size - 1] == 'o';

    memset(buffer, 'p', size);
    TRY(umfRemotePut(memory, 0, buffer, size - 1, NULL));
    TRY(umfRemotePut(memory, size - 1, buffer, 1, NULL)); /* the owner looks at the last byte */
    TRY(umfRemoteClose(memory));
    TRY(umfRemoteDestroy(remote));
    free(buffer);
    return is_right ? 0 : 1;
}
