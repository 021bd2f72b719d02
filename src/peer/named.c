/* Shared memory objects with a name. */
#include "peer/named.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "peer/process.h"
#include "system/os.h"

_Static_assert(sizeof(umf_named_head_t) == 32, "heads travel between processes");

static _Atomic size_t named_reaped;

void umf_named_sign(void *head, size_t header_size) {
    umf_named_head_t *to = head;
    umf_process_t self;
    umf_process_self(&self);
    to->boot_id = self.boot_id;
    to->start_time = self.start_time;
    to->pid = self.pid;
    to->pid_ns = self.pid_ns;
    __atomic_store_n(&to->mark, UMF_NAMED_MARK ^ header_size, __ATOMIC_RELEASE);
}

/* --- the owner of an object ---------------------------------------------------------------- */

/* false: the file is not a complete object of this library. */
static bool named_read_head(int fd, umf_named_head_t *head) {
    uint64_t dev, ino, size;
    if (!umf_os_is_own_file(fd) || umf_os_file_id(fd, &dev, &ino, &size) != 0 ||
        umf_os_read_at(fd, head, sizeof(*head), 0) != 0) {
        return false;
    }
    uint64_t header_size = head->mark ^ UMF_NAMED_MARK;
    return header_size != 0 && header_size <= UMF_NAMED_HEADER_MAX && header_size <= size &&
           header_size % umf_os_page_size() == 0 && head->pid != 0;
}

/* Whether the maker still runs. This is certain only for processes of this pid namespace; for
 * others the lock suffices. */
static bool named_maker_runs(const umf_named_head_t *head) {
    umf_process_t self;
    umf_process_self(&self);
    if (head->boot_id != self.boot_id || head->pid_ns != self.pid_ns || head->pid > INT32_MAX) {
        return false;
    }
    uint64_t start_time;
    int error = umf_process_inspect(head->pid, head->start_time, &start_time);
    if (error == ESRCH || error == ENOENT) {
        return false;
    }
    return error != 0 || head->start_time == 0 || start_time == head->start_time;
}

/* Whether an object is an orphan. Then this process holds its lock. */
static bool named_lock_orphan(int fd) {
    umf_named_head_t head;
    if (!named_read_head(fd, &head) || umf_os_flock(fd) != 0) {
        return false;
    }
    if (named_maker_runs(&head)) { /* its lock was removed by others */
        umf_os_unlock_file(fd);
        return false;
    }
    return true;
}

static bool named_is_file(const char *name, uint64_t dev, uint64_t ino) {
    int fd;
    uint64_t its_dev, its_ino, size;
    if (umf_os_shm_open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd) != 0) {
        return false;
    }
    int error = umf_os_file_id(fd, &its_dev, &its_ino, &size);
    umf_os_close(fd);
    return error == 0 && its_dev == dev && its_ino == ino;
}

/* Removes the name of an orphan whose lock this process holds. */
static bool named_remove_orphan(const char *name, int fd) {
    uint64_t dev, ino, size;
    if (umf_os_file_id(fd, &dev, &ino, &size) != 0 || !named_is_file(name, dev, ino) ||
        umf_os_shm_unlink(name) != 0) {
        return false;
    }
    atomic_fetch_add(&named_reaped, 1);
    return true;
}

/* --- reaping ---------------------------------------------------------------------------------- */

static bool named_visit(const char *name, void *arg) {
    size_t *count = arg;
    int fd;
    if (umf_os_shm_open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd) != 0) {
        return true;
    }
    if (named_lock_orphan(fd) && named_remove_orphan(name, fd)) {
        UMF_LOG_INFO("removed /dev/shm/%s, which a process left that has ended", name);
        ++*count;
    }
    umf_os_close(fd);
    return true;
}

size_t umf_named_reap(int *error) {
    size_t count = 0;
    *error = umf_os_shm_each(named_visit, &count);
    return count;
}

size_t umf_named_reaped(void) {
    return atomic_load(&named_reaped);
}

static void named_reap_once(void) {
    static atomic_flag is_done = ATOMIC_FLAG_INIT;
    int error;
    if (!atomic_flag_test_and_set(&is_done)) {
        umf_named_reap(&error);
    }
}

/* --- making and removing ---------------------------------------------------------------------- */

#define NAMED_PATIENCE 100 /* milliseconds */

/* Whether no other process is about to remove the object: it is no orphan, or its lock is held
 * here.
 */
static bool named_is_ours_to_remove(const char *name, int fd) {
    umf_named_head_t head;
    uint64_t dev, ino, size;
    if (!named_read_head(fd, &head) || named_maker_runs(&head)) {
        return true;
    }
    return umf_os_flock(fd) == 0 && umf_os_file_id(fd, &dev, &ino, &size) == 0 &&
           named_is_file(name, dev, ino);
}

/* Removes the object under that name, whichever process made it. A process that is about to remove
 * it as an orphan must not remove its successor. */
static int named_remove_old(const char *name) {
    static const struct timespec moment = {.tv_nsec = 1000000};
    int fd = -1;
    for (int tries = 0; tries < NAMED_PATIENCE; tries++) {
        if (umf_os_shm_open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd) != 0) {
            fd = -1;
            break;
        }
        if (named_is_ours_to_remove(name, fd)) {
            break;
        }
        umf_os_close(fd);
        fd = -1;
        nanosleep(&moment, NULL);
    }
    int error = umf_os_shm_unlink(name);
    if (fd != -1) {
        umf_os_close(fd);
    }
    return error == ENOENT ? 0 : error;
}

static int named_write_head(int fd, size_t header_size) {
    umf_named_head_t head;
    umf_named_sign(&head, header_size);
    int error = umf_os_truncate(fd, header_size);
    return error ? error : umf_os_write_at(fd, &head, sizeof(head), 0);
}

/* Makes an object that is complete before it gets its name. */
static int named_make_whole(const char *name, size_t header_size, int *fd) {
    int made;
    int error = umf_os_shm_make(S_IRUSR | S_IWUSR, &made);
    if (error) {
        return error;
    }
    error = umf_os_flock(made);
    if (!error) {
        error = named_write_head(made, header_size);
    }
    if (!error) {
        error = umf_os_shm_link(made, name);
    }
    if (error) {
        umf_os_close(made);
        return error;
    }
    *fd = made;
    return 0;
}

int umf_named_create(const char *name, size_t header_size, int *fd) {
    named_reap_once();
    int error = named_remove_old(name);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "removing the old object /dev/shm/%s failed", name);
        return error;
    }
    if (named_make_whole(name, header_size, fd) == 0) {
        return 0;
    }
    int made;
    error = umf_os_shm_open(name, O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR, &made);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "making the object /dev/shm/%s failed",
                      name);
        return error;
    }
    error = umf_os_flock(made);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "locking /dev/shm/%s failed", name);
        umf_os_shm_unlink(name);
        umf_os_close(made);
        return error;
    }
    *fd = made;
    return 0;
}

void umf_named_remove(const char *name, const umf_fd_ticket_t *ticket) {
    if (named_is_file(name, ticket->dev, ticket->ino)) {
        umf_os_shm_unlink(name);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

static umf_result_t named_open_failed(const char *name, const umf_fd_ticket_t *ticket, int error) {
    umf_process_t maker = {
        .boot_id = ticket->boot_id,
        .start_time = ticket->start_time,
        .pid = ticket->pid,
        .pid_ns = ticket->pid_ns,
    };
    if (error == ENOENT && umf_process_check(&maker) != UMF_RESULT_SUCCESS) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT; /* the check has logged the reason */
    }
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, "umf_named_open", "opening /dev/shm/%s failed%s",
                  name, error == ENOENT ? " (has its provider been destroyed?)" : "");
    return error == ENOENT                      ? UMF_RESULT_ERROR_UNKNOWN
           : error == EMFILE || error == ENFILE ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

umf_result_t umf_named_open(const char *name, const umf_fd_ticket_t *ticket, int *fd) {
    int got;
    int error = umf_os_shm_open(name, O_RDWR | O_NONBLOCK | O_NOCTTY, 0, &got);
    if (error) {
        return named_open_failed(name, ticket, error);
    }
    error = umf_ticket_check_file(ticket, got);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "/dev/shm/%s is not the object that was described", name);
    } else if (named_lock_orphan(got)) {
        named_remove_orphan(name, got);
        UMF_LOG_ERROR("the process that made /dev/shm/%s has ended without removing it; it is "
                      "removed now",
                      name);
    } else {
        *fd = got;
        return UMF_RESULT_SUCCESS;
    }
    umf_os_close(got);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
