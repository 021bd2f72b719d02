/*
 * Where a broker listens, and who may connect.
 *
 * In a folder, a socket gets its name only when it listens, and loses it before it stops. So a name
 * that refuses connections belongs to a process that died, and is removed. Names with ".new" belong
 * to sockets that do not listen yet. They are removed when they are old; a process that misses its
 * name makes another one at its next export.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/log.h"
#include "peer/broker_own.h"
#include "system/os.h"

#define ADDRESS_BACKLOG 128
#define ADDRESS_PATH_MAX sizeof(((struct sockaddr_un *)NULL)->sun_path)
#define ADDRESS_FOLDER_MAX (ADDRESS_PATH_MAX - UMF_BROKER_NAME_SIZE - 1)
#define ADDRESS_PREFIX "umf-"
#define ADDRESS_DIGITS 32
#define ADDRESS_NEW ".new"
#define ADDRESS_NEW_SECONDS 60 /* a ".new" name of that age is stale */
#define ADDRESS_REAP_MAX 256   /* names that one start visits at most */

#define ADDRESS_DEFAULT_TIMEOUT 5000

_Static_assert(sizeof(ADDRESS_PREFIX) - 1 + ADDRESS_DIGITS + sizeof(ADDRESS_NEW) ==
                   UMF_BROKER_NAME_SIZE,
               "names of sockets");

/* --- settings --- */

UMF_LOCK_STATIC(address_lock, UMF_RANK_EXPORTED);
static char address_folder[ADDRESS_FOLDER_MAX + 1]; /* Sync: address_lock */
static atomic_bool address_is_open;
static atomic_int address_timeout = ADDRESS_DEFAULT_TIMEOUT;

umf_result_t umf_broker_set_folder(const char *path) {
    size_t length = strlen(path);
    if (length > ADDRESS_FOLDER_MAX || (length > 0 && path[0] != '/')) {
        UMF_LOG_ERROR("the folder for sockets \"%.80s\" must be an absolute path of at most %zu "
                      "characters (it has %zu)",
                      path, ADDRESS_FOLDER_MAX, length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_lock(&address_lock);
    memcpy(address_folder, path, length + 1);
    umf_unlock(&address_lock);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_broker_get_folder(char *path, size_t size) {
    umf_lock(&address_lock);
    size_t bytes = strlen(address_folder) + 1;
    if (bytes <= size) {
        memcpy(path, address_folder, bytes);
    }
    umf_unlock(&address_lock);
    return bytes <= size ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

void umf_broker_set_open(bool is_open) {
    atomic_store_explicit(&address_is_open, is_open, memory_order_relaxed);
}

bool umf_broker_is_open(void) {
    return atomic_load_explicit(&address_is_open, memory_order_relaxed);
}

umf_result_t umf_broker_set_timeout(int ms) {
    if (ms < 1 || ms > UMF_BROKER_TIMEOUT_MAX) {
        UMF_LOG_ERROR("a time limit of %d ms is not between 1 and %d", ms, UMF_BROKER_TIMEOUT_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    atomic_store_explicit(&address_timeout, ms, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}

int umf_broker_get_timeout(void) {
    return atomic_load_explicit(&address_timeout, memory_order_relaxed);
}

bool umf_broker_admits(uint32_t uid) {
    return umf_os_is_own_user(uid) || uid == 0 || umf_broker_is_open();
}

/* --- addresses --- */

static void address_name(const uint64_t id[2], const char *end, char name[UMF_BROKER_NAME_SIZE]) {
    snprintf(name, UMF_BROKER_NAME_SIZE, ADDRESS_PREFIX "%016llx%016llx%s",
             (unsigned long long)id[0], (unsigned long long)id[1], end);
}

static int address_address(const char *name, umf_socket_address_t *address) {
    char path[ADDRESS_PATH_MAX];
    char folder[ADDRESS_FOLDER_MAX + 1];
    if (umf_broker_get_folder(folder, sizeof(folder)) != UMF_RESULT_SUCCESS || !folder[0]) {
        return EDESTADDRREQ;
    }
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return ENAMETOOLONG;
    }
    return umf_socket_path(path, address);
}

int umf_broker_address(umf_broker_address_kind_t address_kind, const uint64_t id[2],
                       umf_socket_address_t *address) {
    char name[UMF_BROKER_NAME_SIZE];
    address_name(id, "", name);
    return address_kind == UMF_BROKER_ABSTRACT ? umf_socket_abstract(name, address)
                                               : address_address(name, address);
}

/* --- the reaper --- */

/* The end of a name behind prefix and digits. NULL: the name has another form. */
static const char *reap_end(const char *name) {
    const char *digits = name + strlen(ADDRESS_PREFIX);
    if (strncmp(name, ADDRESS_PREFIX, strlen(ADDRESS_PREFIX)) != 0 ||
        strspn(digits, "0123456789abcdef") != ADDRESS_DIGITS) {
        return NULL;
    }
    return digits + ADDRESS_DIGITS;
}

/* Only ECONNREFUSED means that the process died. A denied connection or a full queue is a sign
 * of life. */
static bool reap_is_dead(const umf_socket_address_t *address) {
    int fd;
    if (umf_socket_open(&fd) != 0) {
        return false;
    }
    int error = umf_socket_connect(fd, address);
    umf_os_close(fd);
    return error == ECONNREFUSED;
}

static bool reap_visit(const char *name, void *arg) {
    int *left = arg;
    const char *end = reap_end(name);
    umf_socket_address_t address;
    uint64_t age;
    if (!end || address_address(name, &address) != 0 ||
        umf_os_socket_age(address.name.sun_path, &age) != 0) {
        return true;
    }
    bool is_new = strcmp(end, ADDRESS_NEW) == 0;
    if ((*end == '\0' || (is_new && age >= ADDRESS_NEW_SECONDS)) && reap_is_dead(&address) &&
        umf_os_unlink(address.name.sun_path) == 0) {
        UMF_LOG_INFO("removed the socket %s of a process that has died", address.name.sun_path);
    }
    return --*left > 0;
}

static void address_reap(const char *folder) {
    int left = ADDRESS_REAP_MAX;
    int error = umf_os_each_entry(folder, reap_visit, &left);
    if (error != 0) {
        UMF_LOG_DEBUG("the sockets in %s could not be looked at (errno %d)", folder, error);
    }
}

/* --- listening --- */

static int listen_abstract(const umf_broker_id_t *id, int fd, umf_broker_listener_t *listener) {
    int error = umf_broker_address(UMF_BROKER_ABSTRACT, id->word, &listener->address);
    if (error == 0) {
        error = umf_socket_bind(fd, &listener->address);
    }
    return error != 0 ? error : umf_socket_listen(fd, ADDRESS_BACKLOG);
}

/* The file is created with its final mode, so that other users can connect at no time. */
static int listen_new(int fd, const umf_broker_listener_t *listener,
                      const umf_socket_address_t *fresh) {
    const char *path = fresh->name.sun_path;
    int error = umf_os_fchmod(fd, S_IRUSR | S_IWUSR);
    if (error == 0) {
        error = umf_socket_bind(fd, fresh);
    }
    if (error != 0) {
        return error;
    }
    error = umf_broker_is_open() ? umf_os_chmod_socket(path, 0666) : 0;
    if (error == 0) {
        error = umf_socket_listen(fd, ADDRESS_BACKLOG);
    }
    if (error == 0) {
        error = umf_os_rename(path, listener->address.name.sun_path);
    }
    if (error != 0) {
        umf_os_unlink(path);
    }
    return error;
}

static int listen_in_folder(const umf_broker_id_t *id, int fd, umf_broker_listener_t *listener) {
    char name[UMF_BROKER_NAME_SIZE];
    umf_socket_address_t fresh;
    int error = umf_broker_address(UMF_BROKER_FOLDER, id->word, &listener->address);
    if (error == 0) {
        address_name(id->word, ADDRESS_NEW, name);
        error = address_address(name, &fresh);
    }
    return error != 0 ? error : listen_new(fd, listener, &fresh);
}

int umf_broker_listen(const umf_broker_id_t *id, int fd, umf_broker_listener_t *listener) {
    char folder[ADDRESS_FOLDER_MAX + 1];
    if (umf_broker_get_folder(folder, sizeof(folder)) != UMF_RESULT_SUCCESS) {
        return ENAMETOOLONG;
    }
    umf_broker_listener_t made = {.address_kind =
                                      folder[0] ? UMF_BROKER_FOLDER : UMF_BROKER_ABSTRACT};
    int error = folder[0] ? umf_os_check_shared_folder(folder) : 0;
    if (error == 0 && folder[0]) {
        address_reap(folder);
    }
    if (error == 0) {
        error = folder[0] ? listen_in_folder(id, fd, &made) : listen_abstract(id, fd, &made);
    }
    if (error == 0) {
        *listener = made;
        return 0;
    }
    umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__, "listening in %s failed%s",
                  folder[0] ? folder : "the abstract namespace",
                  error == ENOENT   ? " (does the folder of umf.ipc.socket_dir exist?)"
                  : error == EACCES ? " (may this process write to it?)"
                  : error == EPERM  ? " (all users may remove and replace its content: chmod +t)"
                                    : "");
    return error;
}

void umf_broker_unlisten(const umf_broker_listener_t *listener) {
    if (listener->address_kind == UMF_BROKER_FOLDER) {
        umf_os_unlink(listener->address.name.sun_path);
    }
}
