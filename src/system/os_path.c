/* The system: files and shared memory objects by name, and folders. See os.h. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "system/os_own.h"

#define OS_SHM_DIR "/dev/shm/"

/* The path of a named object, as shm_open() makes it; that function may need librt. */
static int os_shm_path(const char *name, char *path, size_t size) {
    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return EINVAL;
    }
    int length = snprintf(path, size, OS_SHM_DIR "%s", name);
    return length < 0 || (size_t)length >= size ? ENAMETOOLONG : 0;
}

int umf_os_shm_open(const char *name, int flags, mode_t mode, int *fd) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX];
    int error = os_fault("shm_open");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    return error != 0 ? error : os_open(path, flags | O_NOFOLLOW, mode, fd);
}

int umf_os_shm_make(mode_t mode, int *fd) {
    int error = os_fault("shm_make");
    return error != 0 ? error : os_open(OS_SHM_DIR, O_TMPFILE | O_RDWR, mode, fd);
}

int umf_os_shm_link(int fd, const char *name) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX], own[32];
    int error = os_fault("shm_link");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    if (error != 0) {
        return error;
    }
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    return os_result(linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

int umf_os_shm_unlink(const char *name) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX];
    int error = os_fault("shm_unlink");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    return error != 0 ? error : os_result(unlink(path));
}

/* An entry of a folder, as the kernel writes it. */
typedef struct os_entry_t {
    uint64_t ino;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
} os_entry_t;

/* Visits entries until `visit` returns false. Directory streams of the C library would allocate. */
static int os_each_entry(int fd, bool (*visit)(const char *name, void *arg), void *arg) {
    _Alignas(os_entry_t) char entries[4096];
    long size;
    bool goes_on = true;
    while (goes_on && (size = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0) {
        for (long at = 0; goes_on && at < size;) {
            const os_entry_t *entry = (const void *)(entries + at);
            goes_on = visit(entry->name, arg);
            at += entry->length;
        }
    }
    return goes_on ? os_result(size) : 0;
}

int umf_os_shm_each(bool (*visit)(const char *name, void *arg), void *arg) {
    int fd = -1;
    int error = os_fault("shm_each");
    if (error == 0) {
        error = os_open(OS_SHM_DIR, O_RDONLY | O_DIRECTORY, 0, &fd);
    }
    if (error != 0) {
        return error;
    }
    error = os_each_entry(fd, visit, arg);
    close(fd);
    return error;
}

int umf_os_each_entry(const char *path, bool (*visit)(const char *name, void *arg), void *arg) {
    int fd = -1;
    int error = umf_os_open(path, O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error != 0) {
        return error;
    }
    error = os_each_entry(fd, visit, arg);
    close(fd);
    return error;
}

int umf_os_getcwd(char *path, size_t size) {
    int error = os_fault("getcwd");
    return error != 0 ? error : getcwd(path, size) ? 0 : errno;
}

static int os_chmod_socket(int place, mode_t mode) {
    struct stat info;
    char path[32];
    int error = os_result(fstat(place, &info));
    if (error != 0) {
        return error;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return ENOTSOCK;
    }
    if (info.st_uid != geteuid() || info.st_nlink != 1) {
        return EPERM;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
    return os_result(chmod(path, mode));
}

int umf_os_chmod_socket(const char *path, mode_t mode) {
    int place = -1;
    int error = os_fault("chmod_socket");
    if (error == 0) {
        error = os_open(path, O_PATH | O_NOFOLLOW, 0, &place);
    }
    if (error == 0) {
        error = os_chmod_socket(place, mode);
        close(place);
    }
    return error;
}

int umf_os_check_shared_folder(const char *path) {
    struct stat info;
    int error = os_fault("check_shared_folder");
    if (error == 0) {
        error = os_result(stat(path, &info));
    }
    if (error != 0) {
        return error;
    }
    return (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX) ? EPERM : 0;
}

int umf_os_mkdir(const char *path, mode_t mode) {
    int error = os_fault("mkdir");
    return error != 0 ? error : os_result(mkdir(path, mode));
}

int umf_os_rename(const char *from, const char *to) {
    int error = os_fault("rename");
    return error != 0 ? error : os_result(rename(from, to));
}

int umf_os_unlink(const char *path) {
    int error = os_fault("unlink");
    return error != 0 ? error : os_result(unlink(path));
}

int umf_os_socket_age(const char *path, uint64_t *seconds) {
    struct stat info;
    int error = os_fault("socket_age");
    if (error == 0) {
        error = os_result(lstat(path, &info));
    }
    if (error != 0) {
        return error;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return ENOTSOCK;
    }
    time_t now = time(NULL);
    *seconds = now > info.st_ctime ? (uint64_t)(now - info.st_ctime) : 0;
    return 0;
}
