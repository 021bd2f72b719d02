/*
 * Links to processes of this machine: a socket has the messages, and a window of shared memory the
 * data; UCX has no part in it. The owner listens under a name that is made of its id, which is in
 * each handle. It makes the window and passes its descriptor with the welcome.
 *
 * The window has slots. A part of a transfer has one, which the peer chooses. The owner copies
 * between slot and range itself, after the same checks as for messages of UCX. So a peer holds no
 * memory of the owner, however it ends or stops, and its end is that of the socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/os.h"
#include "system/socket.h"

#define WINDOW (REMOTE_SLOTS * REMOTE_SLOT)
#define BACKLOG 128
#define MESSAGES_AT_ONCE 16 /* then the other links are served */
#define ACCEPTS_AT_ONCE 16  /* any user of the machine can connect, and is refused afterwards */
#define ACCEPT_AGAIN_MS 50u

static int address_of(const unsigned char *id, umf_socket_address_t *address) {
    char name[sizeof("umf-remote-") + 2 * REMOTE_ID] = "umf-remote-";
    size_t at = strlen(name);
    for (size_t i = 0; i < REMOTE_ID; i++, at += 2) {
        snprintf(name + at, sizeof(name) - at, "%02x", id[i]);
    }
    return umf_socket_abstract(name, address);
}

/* Processes of this user, and of root, as for handles of IPC. */
static bool is_admitted(int fd, bool is_owner) {
    uint32_t uid, pid;
    return umf_socket_peer(fd, &uid, &pid) == 0 &&
           (umf_os_is_own_user(uid) || (is_owner ? uid : umf_os_user()) == 0);
}

/* --- links ------------------------------------------------------------------------------------ */

static void link_begin(umf_remote_handle_t remote, remote_link_t *link) {
    link->remote = remote;
    link->is_local = true;
    umf_list_init(&link->queue);
    umf_list_add(&remote->locals, &link->local);
}

static void link_fail(remote_link_t *link) {
    link->has_failed = true;
    link->status = UMF_UCS_CONNECTION_RESET;
}

typedef struct queued_t {
    umf_list_t link;
    remote_message_t message;
} queued_t;

void umf_remote_local_close(remote_link_t *link) {
    if (!link->socket.is_kept) {
        return;
    }
    if (umf_kept_fd_is_open(&link->socket)) {
        umf_socket_shutdown(link->socket.number); /* a child of fork may have it, too */
    }
    umf_kept_fd_close(&link->socket);
    umf_list_remove(&link->local);
    if (link->window) {
        umf_os_unmap(link->window, WINDOW);
        link->window = NULL;
    }
    while (!umf_list_is_empty(&link->queue)) {
        queued_t *queued = UMF_CONTAINER_OF(link->queue.next, queued_t, link);
        umf_list_remove(&queued->link);
        umf_meta_free(queued, sizeof(*queued));
    }
}

static size_t locals_count(umf_remote_handle_t remote) {
    size_t count = 0;
    for (umf_list_t *at = remote->locals.next; at != &remote->locals; at = at->next) {
        count++;
    }
    return count;
}

/* --- windows ---------------------------------------------------------------------------------- */

static char *slot_of(const remote_link_t *link, uint64_t number) {
    return link->window + number % REMOTE_SLOTS * REMOTE_SLOT;
}

static int window_map(remote_link_t *link, int fd) {
    void *mapped = NULL;
    int error = umf_os_map(&mapped, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    link->window = error ? NULL : mapped;
    return error;
}

static int window_make(remote_link_t *link, int *fd) {
    int error = umf_memory_file("umf-window", fd);
    if (error) {
        return error;
    }
    error = umf_os_truncate(*fd, WINDOW);
    error = error ? error : umf_memory_file_reserve(*fd, 0, WINDOW);
    error = error ? error : umf_memory_file_seal(*fd, UMF_OS_SEALS);
    error = error ? error : window_map(link, *fd);
    if (error) {
        umf_os_close(*fd);
    }
    return error;
}

/* A window of another process must not become shorter, since an access would then be fatal. So
 * would be one to a hole in huge pages, when no page is left. */
static void window_take(remote_link_t *link, int fd) {
    struct stat file;
    bool is_good = !link->window && fstat(fd, &file) == 0 && file.st_size >= (off_t)WINDOW &&
                   !umf_os_is_huge(fd) && umf_memory_file_check(fd) == 0 &&
                   window_map(link, fd) == 0;
    if (!is_good) {
        link_fail(link);
    }
    umf_os_close(fd);
}

/* --- messages --------------------------------------------------------------------------------- */

static int send_now(remote_link_t *link, const remote_message_t *message, int pass) {
    return umf_kept_fd_is_open(&link->socket)
               ? umf_socket_send(link->socket.number, message, sizeof(*message), pass)
               : EBADF;
}

static int send_later(remote_link_t *link, const remote_message_t *message) {
    queued_t *queued = link->queued < REMOTE_QUEUE_MAX ? umf_meta_alloc(sizeof(*queued)) : NULL;
    if (!queued) {
        return ENOMEM;
    }
    queued->message = *message;
    umf_list_add_tail(&link->queue, &queued->link);
    link->queued++;
    return 0;
}

static void queue_send(remote_link_t *link) {
    int error = 0;
    while (!error && !umf_list_is_empty(&link->queue)) {
        queued_t *queued = UMF_CONTAINER_OF(link->queue.next, queued_t, link);
        error = send_now(link, &queued->message, -1);
        if (!error) {
            umf_list_remove(&queued->link);
            umf_meta_free(queued, sizeof(*queued));
            link->queued--;
        }
    }
    if (error && error != EAGAIN) {
        link_fail(link);
    }
}

static int post(remote_link_t *link, const remote_message_t *message, int pass) {
    remote_message_t full = *message;
    full.magic = REMOTE_MAGIC;
    full.version = REMOTE_VERSION;
    int error = umf_list_is_empty(&link->queue) ? send_now(link, &full, pass) : EAGAIN;
    return error == EAGAIN && pass == -1 ? send_later(link, &full) : error;
}

void umf_remote_local_send(remote_link_t *link, const remote_message_t *message, const void *data,
                           size_t length, remote_sent_t sent, void *arg) {
    bool is_good = link->socket.is_kept && !link->has_failed &&
                   (length == 0 || (link->window && length <= REMOTE_SLOT));
    if (is_good && length) {
        memcpy(slot_of(link, message->number), data, length);
    }
    if (!is_good || post(link, message, -1) != 0) {
        link_fail(link);
    }
    if (sent) {
        sent(link->remote, arg, link->has_failed ? UMF_UCS_CONNECTION_RESET : UMF_UCS_OK);
    }
}

void umf_remote_local_welcome(remote_link_t *link, const remote_message_t *message) {
    int fd;
    int error = link->window ? EEXIST : window_make(link, &fd);
    if (!error) {
        error = post(link, message, fd);
        umf_os_close(fd);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                      "a process of this machine is not served by shared memory");
        link_fail(link);
    }
}

static bool has_data(const remote_message_t *message) {
    return message->length && (message->kind == REMOTE_PUSH ||
                               (message->kind == REMOTE_DATA && message->answer == REMOTE_FINE));
}

static void take(remote_link_t *link, const remote_message_t *message) {
    remote_data_t from = {.by = link};
    if (has_data(message)) {
        if (!link->window || message->length > REMOTE_SLOT) {
            link_fail(link);
            return;
        }
        from.data = slot_of(link, message->number);
        from.length = (size_t)message->length;
    }
    umf_remote_deliver(link->remote, message, &from);
}

static void receive(remote_link_t *link) {
    for (int i = 0; i < MESSAGES_AT_ONCE && link->socket.is_kept && !link->has_failed; i++) {
        remote_message_t message;
        size_t got = 0;
        int passed = -1;
        int error =
            umf_kept_fd_is_open(&link->socket)
                ? umf_socket_receive(link->socket.number, &message, sizeof(message), &got, &passed)
                : EBADF;
        if (error == EAGAIN) {
            return;
        }
        if (passed != -1) {
            window_take(link, passed);
        }
        if (error || got != sizeof(message)) {
            link_fail(link);
        } else if (!link->has_failed) {
            take(link, &message);
        }
    }
}

/* --- connections ------------------------------------------------------------------------------ */

static int listener_open(umf_remote_handle_t remote) {
    umf_socket_address_t address;
    int fd;
    int error = address_of(remote->id, &address);
    error = error ? error : umf_socket_open(&fd);
    if (error) {
        return error;
    }
    error = umf_socket_bind(fd, &address);
    error = error ? error : umf_socket_listen(fd, BACKLOG);
    if (error) {
        umf_os_close(fd);
        return error;
    }
    return umf_kept_fd_take(&remote->listener, fd);
}

void umf_remote_local_listen(umf_remote_handle_t remote) {
    int error = listener_open(remote);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_INFO, error, __func__,
                      "no socket for processes of this machine, which come by UCX therefore");
    }
}

bool umf_remote_local_connect(umf_remote_handle_t remote, remote_link_t *link,
                              const remote_handle_bytes_t *handle) {
    umf_socket_address_t address;
    int fd;
    if (!remote->is_local || handle->boot == 0 || handle->boot != umf_os_boot_id() ||
        locals_count(remote) >= REMOTE_LOCALS_MAX || address_of(handle->owner, &address) != 0 ||
        umf_socket_open(&fd) != 0) {
        return false;
    }
    if (umf_socket_connect(fd, &address) != 0 || !is_admitted(fd, false)) {
        umf_os_close(fd);
        return false;
    }
    *link = (remote_link_t){0};
    if (umf_kept_fd_take(&link->socket, fd) != 0) {
        return false;
    }
    link_begin(remote, link);
    return true;
}

/* A refused process finds its socket closed, and connects by UCX. */
static void accept_some(umf_remote_handle_t remote) {
    int fd, error = 0;
    if (!umf_kept_fd_is_open(&remote->listener)) {
        umf_kept_fd_close(&remote->listener); /* the program has done so: all come by UCX */
        return;
    }
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        error = umf_socket_accept(remote->listener.number, &fd);
        if (error) {
            break;
        }
        umf_kept_fd_t socket = {0};
        bool is_good = is_admitted(fd, true) && locals_count(remote) < REMOTE_LOCALS_MAX;
        if (umf_kept_fd_take(&socket, fd) != 0) {
            continue;
        }
        remote_link_t *link = is_good ? umf_remote_owner_accepts(remote) : NULL;
        if (link) {
            link->socket = socket;
            link_begin(remote, link);
        } else {
            umf_kept_fd_close(&socket);
        }
    }
    if (error && error != EAGAIN) { /* no descriptor is left */
        remote->accept_after = umf_remote_now() + ACCEPT_AGAIN_MS;
    }
}

/* --- steps of the thread ---------------------------------------------------------------------- */

unsigned umf_remote_local_fill(umf_remote_handle_t remote, struct pollfd *polled,
                               remote_link_t **links) {
    unsigned count = 0;
    if (remote->listener.is_kept && umf_remote_now() >= remote->accept_after) {
        links[count] = NULL;
        polled[count++] = (struct pollfd){.fd = remote->listener.number, .events = POLLIN};
    }
    for (umf_list_t *at = remote->locals.next; at != &remote->locals; at = at->next) {
        remote_link_t *link = UMF_CONTAINER_OF(at, remote_link_t, local);
        short more = umf_list_is_empty(&link->queue) ? 0 : POLLOUT;
        if (!link->has_failed) {
            links[count] = link;
            polled[count++] =
                (struct pollfd){.fd = link->socket.number, .events = (short)(POLLIN | more)};
        }
    }
    return count;
}

void umf_remote_local_serve(umf_remote_handle_t remote, const struct pollfd *polled,
                            remote_link_t *const *links, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (!polled[i].revents) {
            continue;
        }
        if (!links[i]) {
            accept_some(remote);
            continue;
        }
        if (polled[i].revents & POLLOUT) {
            queue_send(links[i]);
        }
        receive(links[i]);
    }
}
