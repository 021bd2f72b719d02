/* The system: DAX files and devices. See os.h. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "system/os_own.h"

#define OS_DEV_DIR "/dev/"

static _Atomic(const char *) os_dax_dir;

void umf_os_set_dax_dir(const char *dir) {
    atomic_store(&os_dax_dir, dir);
}

static const char *os_get_dax_dir(void) {
    return atomic_load_explicit(&os_dax_dir, memory_order_relaxed);
}

int umf_os_map_sync(void **addr, size_t size, int prot, int flags, int fd, size_t offset) {
    int how = os_get_dax_dir() ? MAP_SHARED : MAP_SHARED_VALIDATE | MAP_SYNC;
    return umf_os_map(addr, size, prot, flags | how, fd, offset);
}

int umf_os_dax_open(const char *path, int flags, int *fd) {
    char other[PATH_MAX];
    const char *dir = os_get_dax_dir();
    if (dir && strncmp(path, OS_DEV_DIR, strlen(OS_DEV_DIR)) == 0) {
        int length = snprintf(other, sizeof(other), "%s/%s", dir, path + strlen(OS_DEV_DIR));
        if (length < 0 || (size_t)length >= sizeof(other)) {
            return ENAMETOOLONG;
        }
        path = other;
    }
    return umf_os_open(path, flags, 0, fd);
}

/* A number that the kernel publishes for a device. 0: there is none. */
static uint64_t os_device_number(dev_t device, const char *name) {
    char path[64], text[32];
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(device), minor(device), name);
    return umf_os_read_text(path, text, sizeof(text)) == 0 ? strtoull(text, NULL, 0) : 0;
}

int umf_os_dax_info(int fd, umf_os_dax_t *dax) {
    struct stat info;
    int error = os_fault("dax_info");
    if (error == 0) {
        error = os_result(fstat(fd, &info));
    }
    if (error != 0) {
        return error;
    }
    if (S_ISCHR(info.st_mode)) {
        *dax = (umf_os_dax_t){
            .dev = info.st_rdev,
            .size = os_device_number(info.st_rdev, "size"),
            .align = os_device_number(info.st_rdev, "align"),
        };
        return 0;
    }
    if (os_get_dax_dir() && S_ISREG(info.st_mode) && info.st_size != 0) {
        *dax = (umf_os_dax_t){.dev = info.st_ino, .size = (uint64_t)info.st_size};
        return 0;
    }
    return ENODEV;
}

/* Every device is an entry of a folder. Directory streams of the C library would allocate. */
int umf_os_dax_probe(void) {
    char entries[1024];
    const char *dir = os_get_dax_dir();
    int fd = -1;
    int error = umf_os_open(dir ? dir : "/sys/bus/dax/devices", O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error != 0) {
        return error;
    }
    long size = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    error = os_result(size);
    close(fd);
    /* "." and ".." take 24 bytes each, so more means that there is a device. */
    return error != 0 ? error : size > 2 * 24 ? 0 : ENOENT;
}
