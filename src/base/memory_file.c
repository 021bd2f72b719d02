#include "base/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "system/os.h"

/* Set when memfd_create was denied. That is final, because a system call filter is
 * never removed. */
static atomic_bool is_denied;

static bool is_denial(int error) {
    return error == ENOSYS || error == EPERM || error == EACCES;
}

/* Tries it once, for a process that has only opened files of others so far. */
static bool is_denied_here(void) {
    int fd = -1;
    if (atomic_load(&is_denied)) {
        return true;
    }
    int error = umf_os_memfd("umf_probe", false, &fd);
    if (error == 0) {
        umf_os_close(fd);
    } else if (is_denial(error)) {
        atomic_store(&is_denied, true);
    }
    return is_denial(error);
}

static const char *temporary_folder(void) {
    const char *folder = secure_getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

static int file_unlinked(int denied, int *fd) {
    const char *folder = temporary_folder();
    int at_shm = umf_os_shm_make(0600, fd);
    int error = at_shm ? umf_os_open(folder, O_TMPFILE | O_RDWR, 0600, fd) : 0;
    if (error) {
        UMF_LOG_ERROR("no memory that can be shared: memfd_create is denied (errno %d), and an "
                      "unlinked file can be made neither in /dev/shm (errno %d) nor in %s (errno "
                      "%d; TMPDIR names another folder)",
                      denied, at_shm, folder, error);
        return error;
    }
    if (!atomic_exchange(&is_denied, true)) {
        UMF_LOG_INFO("memfd_create is denied (errno %d): memory to be shared is an unlinked file "
                     "in %s",
                     denied, at_shm ? folder : "/dev/shm");
    }
    return 0;
}

int umf_memory_file(const char *name, int *fd) {
    int error = umf_os_memfd(name, false, fd);
    if (is_denial(error)) {
        return file_unlinked(error, fd);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "memfd_create failed");
    }
    return error;
}

bool umf_memory_file_is_limited(void) {
    return atomic_load_explicit(&is_denied, memory_order_relaxed);
}

int umf_memory_file_reserve(int fd, uint64_t offset, uint64_t size) {
    if (!umf_memory_file_is_limited()) {
        return 0;
    }
    int error = umf_os_allocate(fd, offset, size);
    return error == EOPNOTSUPP ? 0 : error;
}

int umf_memory_file_seal(int fd, int seals) {
    return umf_memory_file_is_limited() ? 0 : umf_os_add_seals(fd, seals);
}

int umf_memory_file_check(int fd) {
    int error = umf_os_check_seals(fd);
    bool is_trusted = error != 0 && is_denied_here() && umf_os_is_own_unlinked(fd);
    return is_trusted ? 0 : error;
}
