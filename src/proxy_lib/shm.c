#include "proxy_lib/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "umf_proxy_lib_shm_pid_"

void umf_proxy_shm_name(pid_t pid, char name[UMF_PROXY_SHM_NAME_SIZE]) {
    snprintf(name, UMF_PROXY_SHM_NAME_SIZE, PREFIX "%d", (int)pid);
}

/* Does a live process use the object? A provider holds a lock on its object as long as it or a
 * child of it lives. The process id cannot tell, because it means nothing in another container. */
static bool is_held(const char *name) {
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return true;
    }
    bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return !is_free;
}

static bool is_orphan(const char *name) {
    int pid, length = 0;
    if (sscanf(name, PREFIX "%9d%n", &pid, &length) != 1 || name[length] != '\0' || pid <= 0) {
        return false;
    }
    return kill(pid, 0) != 0 && errno == ESRCH && !is_held(name);
}

void umf_proxy_shm_sweep(void) {
    DIR *folder = opendir(FOLDER);
    if (!folder) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (is_orphan(entry->d_name)) {
            shm_unlink(entry->d_name);
        }
    }
    closedir(folder);
}
