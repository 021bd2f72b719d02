#include "proxy/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "umf_proxy_lib_shm_pid_"

void umf_proxy_shm_name(pid_t pid, char name[UMF_PROXY_SHM_NAME_SIZE]) {
    snprintf(name, UMF_PROXY_SHM_NAME_SIZE, PREFIX "%d", (int)pid);
}

/* Does a live process use the object? A provider holds a lock on its object as long as it or a
 * child of it lives. The process id is no proof, because it means nothing in another container. */
static bool is_free(int fd, const char *name) {
    struct stat locked, named;
    int now = flock(fd, LOCK_EX | LOCK_NB) == 0 ? shm_open(name, O_RDONLY | O_CLOEXEC, 0) : -1;
    bool is_same = now >= 0 && fstat(fd, &locked) == 0 && fstat(now, &named) == 0 &&
                   locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
    if (now >= 0) {
        close(now);
    }
    return is_same;
}

/* Removes an object while its lock is held here. The name is looked up again under the lock: it may
 * be that of a new object by then. */
static void remove_unless_held(const char *name) {
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    if (is_free(fd, name)) {
        shm_unlink(name);
    }
    close(fd);
}

static bool is_of_dead_process(const char *name) {
    int pid, length = 0;
    if (sscanf(name, PREFIX "%9d%n", &pid, &length) != 1 || name[length] != '\0' || pid <= 0) {
        return false;
    }
    return kill(pid, 0) != 0 && errno == ESRCH;
}

void umf_proxy_shm_sweep(void) {
    DIR *folder = opendir(FOLDER);
    if (!folder) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (is_of_dead_process(entry->d_name)) {
            remove_unless_held(entry->d_name);
        }
    }
    closedir(folder);
}
