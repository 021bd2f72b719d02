/*
 * Memory of other machines, the owner: it publishes a range of a pool, writes the handle into a
 * file, and waits until a peer (remote_peer.c) has written into the range.
 *
 *     remote_owner /shared/handle [devices key_file] &
 *     remote_peer /shared/handle [devices key_file]
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <umf.h>
#include <umf/remote.h>
#include <umf/text.h>

#define SIZE ((size_t)16 << 20)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "owner: %s failed: %s\n", #call, umfResultText(result));               \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* The handle has the secret of the range: who reads the file may use the range. */
static int write_handle(const char *path, const void *bytes, size_t size) {
    char unfinished[4096];
    snprintf(unfinished, sizeof(unfinished), "%s.new", path);
    FILE *file = fopen(unfinished, "w");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0 ||
        rename(unfinished, path) != 0) {
        perror("owner: writing the handle");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    char text[256] = "this build of the library is without remote memory";
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: %s FILE [DEVICES KEY_FILE]\n", argv[0]);
        return 1;
    }
    if (umfRemoteProbe(text, sizeof(text)) != UMF_RESULT_SUCCESS) {
        puts(text);
        return 77; /* not supported here */
    }
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    if (argc == 4) {
        params.devices = argv[2];
        params.key_file = argv[3];
    }
    umf_memory_pool_handle_t pool;
    umf_remote_handle_t remote;
    umf_remote_export_handle_t published;
    TRY(umfPoolCreateFromText("disjoint over linux_vmm", &pool));
    TRY(umfRemoteCreate(&params, &remote));
    char *block = umfPoolMalloc(pool, SIZE);
    if (!block) {
        return 1;
    }
    memset(block, 'o', SIZE);
    TRY(umfRemotePublish(remote, block, SIZE, UMF_REMOTE_GET | UMF_REMOTE_PUT, &published));

    char handle[UMF_REMOTE_HANDLE_MAX];
    size_t size = sizeof(handle);
    TRY(umfRemoteGetHandle(published, handle, &size));
    if (write_handle(argv[1], handle, size) != 0) {
        return 1;
    }
    volatile char *last = block + SIZE - 1;
    for (int i = 0; i < 3000 && *last != 'p'; i++) {
        usleep(10000);
    }
    int is_done = *last == 'p';
    printf("owner: the peer %s\n", is_done ? "has written" : "has not come");
    TRY(umfRemoteWithdraw(published));
    TRY(umfRemoteDestroy(remote));
    TRY(umfFree(block));
    TRY(umfPoolDestroy(pool));
    return is_done ? 0 : 1;
}
