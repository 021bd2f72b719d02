#include "owner.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/text.h>

/* Until it is killed. */
static void own(int to, size_t size, unsigned rights) {
    unsigned char handle[UMF_REMOTE_HANDLE_MAX];
    size_t length = sizeof(handle);
    umf_memory_pool_handle_t pool;
    umf_remote_handle_t remote;
    umf_remote_export_handle_t published;
    void *block = umfPoolCreateFromText(REMOTE_POOL, &pool) == UMF_RESULT_SUCCESS
                      ? umfPoolMalloc(pool, size)
                      : NULL;
    if (!block || umfRemoteCreate(NULL, &remote) != UMF_RESULT_SUCCESS) {
        return;
    }
    memset(block, 'x', size);
    if (umfRemotePublish(remote, block, size, rights, &published) == UMF_RESULT_SUCCESS &&
        umfRemoteGetHandle(published, handle, &length) == UMF_RESULT_SUCCESS &&
        write(to, handle, length) == (ssize_t)length) {
        pause();
    }
}

bool owner_start(owner_t *owner, size_t size, unsigned rights) {
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    owner->process = fork();
    if (owner->process == 0) {
        own(ends[1], size, rights);
        _exit(1);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], owner->handle, sizeof(owner->handle));
    owner->handle_size = got > 0 ? (size_t)got : 0;
    close(ends[0]);
    return got > 0;
}

void process_end(pid_t process) {
    if (process > 0) {
        kill(process, SIGTERM);
        waitpid(process, NULL, 0);
    }
}
