/* Publishes two ranges, connects to itself and has a child that waits for its end, prints "ready"
 * and the number of the child, and ends with its standard input. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/remote.h>
#include <umf/text.h>

int main(void) {
    char handle[UMF_REMOTE_HANDLE_MAX], text[256] = "built without remote memory";
    size_t length = sizeof(handle);
    umf_memory_pool_handle_t pool;
    umf_remote_handle_t remote;
    umf_remote_export_handle_t first, second;
    umf_remote_memory_handle_t memory;
    if (umfRemoteProbe(text, sizeof(text)) != UMF_RESULT_SUCCESS) {
        printf("%s\n", text);
        return 77;
    }
    if (umfPoolCreateFromText("disjoint over linux_vmm", &pool) != UMF_RESULT_SUCCESS ||
        umfRemoteCreate(NULL, &remote) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    char *block = umfPoolMalloc(pool, 3 << 20);
    if (umfRemotePublish(remote, block, 1 << 20, UMF_REMOTE_GET, &first) != UMF_RESULT_SUCCESS ||
        umfRemotePublish(remote, block + (1 << 20), 2 << 20, UMF_REMOTE_GET | UMF_REMOTE_PUT,
                         &second) != UMF_RESULT_SUCCESS ||
        umfRemoteGetHandle(first, handle, &length) != UMF_RESULT_SUCCESS ||
        umfRemoteOpen(remote, handle, length, &memory) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    int ends[2];
    char byte;
    pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    printf("ready %d\n", (int)child);
    fflush(stdout);
    if (getchar() == 'w') {
        umfRemoteWithdraw(second);
        puts("withdrawn");
        fflush(stdout);
        getchar();
    }
    close(ends[1]);
    waitpid(child, NULL, 0);
    umfRemoteClose(memory);
    umfRemoteDestroy(remote);
    umfFree(block);
    return umfPoolDestroy(pool) != UMF_RESULT_SUCCESS;
}
