/*
 * Named shared memory: the memory is an object in /dev/shm, which a consumer opens by its name.
 *
 * So a consumer may start later, and needs no right to look into the producer. The bytes of a
 * handle say which object and where in it; any means may carry them, here a child inherits them.
 * Only the producer's text has the name.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

/* Another program would begin here, with a pool of its own that has no name. */
static int consume(umf_ipc_handle_t handle) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t handler;
    void *ptr = NULL;
    umf_result_t result = umfPoolCreateFromText("proxy over os:visibility=shared", &pool);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolGetIPCHandler(pool, &handler);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfOpenIPCHandle(handler, handle, &ptr);
    }
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "consumer: %s\n", umfResultText(result));
        return 1;
    }
    printf("process %ld reads: %s\n", (long)getpid(), (char *)ptr);
    fflush(stdout);
    int wrong = strcmp(ptr, "found by its name") != 0;
    umfCloseIPCHandle(ptr);
    umfPoolDestroy(pool);
    return wrong;
}

int main(void) {
    char name[64], text[128], path[128];
    umf_memory_pool_handle_t pool;
    umf_ipc_handle_t handle;
    size_t size;
    snprintf(name, sizeof(name), "umf_example_%ld", (long)getpid());
    snprintf(text, sizeof(text), "disjoint over os:visibility=shared,shm_name=%s", name);
    snprintf(path, sizeof(path), "/dev/shm/%s", name);
    umf_result_t result = umfPoolCreateFromText(text, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "%s: %s\n", umfResultText(result), umfTextError());
        return 1;
    }
    char *message = umfPoolMalloc(pool, 4096);
    if (!message || umfGetIPCHandle(message, &handle, &size) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    strcpy(message, "found by its name");
    printf("%s is %s\n", path, access(path, F_OK) == 0 ? "there" : "missing");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(consume(handle));
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("another process");
    }
    umfPutIPCHandle(handle);
    umfFree(message);
    umfPoolDestroy(pool); /* the name ends with the provider */
    return status == 0 && access(path, F_OK) != 0 ? 0 : 1;
}
