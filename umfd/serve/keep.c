/* The daemon's side of the pair: it gives descriptors to the keeper, and starts a keeper that has
 * ended. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdio.h>

#include "given.h"
#include "serve/serve.h"

static int patience = UMFD_PATIENCE;

typedef union control_t {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} control_t;

/* Waits for a message. false: the keeper has ended, or says nothing. */
static bool pair_receive(umfd_t *daemon, umfd_message_t *message, int *fd) {
    struct pollfd wait = {.fd = daemon->pair, .events = POLLIN};
    int count;
    do {
        count = poll(&wait, 1, patience);
    } while (count == -1 && errno == EINTR);
    control_t control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control.bytes)};
    *fd = -1;
    if (count != 1 || umfd_receive(daemon->pair, &header) != sizeof(*message)) {
        return false;
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    }
    return true;
}

static void pair_watch(umfd_t *daemon) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UMFD_LEASES + 1};
    epoll_ctl(daemon->events, EPOLL_CTL_ADD, daemon->pair, &event);
}

/* --- a new keeper ----------------------------------------------------------------------------- */

/* It is killed before the pair ends: it would take that for our end, and kill us. */
static void keeper_end(umfd_t *daemon) {
    if (daemon->keeper != -1) { /* it may be stopped, and must not act beside the next one */
        syscall(SYS_pidfd_send_signal, daemon->keeper, SIGKILL, NULL, 0);
        close(daemon->keeper);
        daemon->keeper = -1;
    }
    if (daemon->pair != -1) {
        close(daemon->pair);
        daemon->pair = -1;
    }
}

static bool keeper_start(umfd_t *daemon) {
    keeper_end(daemon);
    int pair[2];
    if (!umfd_pair_open(pair)) {
        return false;
    }
    char idle[32];
    snprintf(idle, sizeof(idle), "--idle=%u", daemon->idle);
    pid_t child = fork();
    if (child == 0) {
        char *const words[] = {"umfd", "--keep", idle, NULL};
        if (pair[1] == UMFD_PAIR) {
            fcntl(pair[1], F_SETFD, 0);
        } else {
            dup2(pair[1], UMFD_PAIR);
        }
        fexecve(daemon->program, words, environ);
        _exit(127);
    }
    close(pair[1]);
    daemon->pair = pair[0];
    if (child == -1) {
        return false;
    }
    daemon->keeper = (int)syscall(SYS_pidfd_open, child, 0);
    pair_watch(daemon);
    return true;
}

/* Hands one descriptor over and waits until the keeper has it. */
static bool hand_over(umfd_t *daemon, uint32_t slot, uint64_t cookie, int fd) {
    umfd_message_t message = {.op = UMFD_HAVE, .slot = slot, .cookie = cookie};
    if (!umfd_pair_send(daemon->pair, &message, fd)) {
        return false;
    }
    for (;;) {
        int passed;
        if (!pair_receive(daemon, &message, &passed)) {
            return false;
        }
        if (passed != -1) {
            close(passed);
        }
        if (message.op == UMFD_KEPT && message.slot == slot && message.cookie == cookie) {
            return true;
        }
        umfd_message_t alive = {.op = UMFD_ALIVE};
        if (message.op == UMFD_EXIT) {
            _exit(0);
        }
        if (message.op == UMFD_ALIVE && !umfd_pair_send(daemon->pair, &alive, -1)) {
            return false;
        }
    }
}

static bool hand_over_self(umfd_t *daemon) {
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    bool is_kept = self != -1 && hand_over(daemon, UMFD_SLOT_DAEMON, 0, self);
    if (self != -1) {
        close(self);
    }
    return is_kept;
}

static bool hand_over_all(umfd_t *daemon) {
    bool is_kept = hand_over_self(daemon) && hand_over(daemon, UMFD_SLOT_LOCK, 0, daemon->lock) &&
                   hand_over(daemon, UMFD_SLOT_LISTEN, 0, daemon->listener) &&
                   hand_over(daemon, UMFD_SLOT_STATE, 0, daemon->state_fd) &&
                   hand_over(daemon, UMFD_SLOT_PROGRAM, 0, daemon->program);
    for (uint32_t i = 0; is_kept && i < UMFD_LEASES; i++) {
        if (daemon->leases[i] != -1 && atomic_load(&daemon->state->leases[i].state) == UMFD_LIVE) {
            is_kept = hand_over(daemon, UMFD_SLOT_LEASE + i, daemon->state->leases[i].serial,
                                daemon->leases[i]);
        }
        if (is_kept && daemon->processes[i] != -1) {
            is_kept = hand_over(daemon, UMFD_SLOT_PROCESS + i, daemon->state->leases[i].serial,
                                daemon->processes[i]);
        }
    }
    for (uint32_t i = 0; is_kept && i < daemon->state->slab_top; i++) {
        if (daemon->slabs[i] != -1 && atomic_load(&daemon->state->slabs[i].state) != UMFD_FREE) {
            is_kept = hand_over(daemon, UMFD_SLOT_SLAB + i, daemon->state->slabs[i].serial,
                                daemon->slabs[i]);
            umfd_step();
        }
    }
    umfd_message_t all = {.op = UMFD_GIVEN};
    return is_kept && umfd_pair_send(daemon->pair, &all, -1);
}

/* false: none can be started now. None is left that has a part only: the next descriptor has
 * another one started. */
static bool keeper_replace(umfd_t *daemon) {
    bool is_kept = false;
    for (unsigned tries = 0; tries < 5 && !is_kept; tries++) {
        is_kept = keeper_start(daemon) && hand_over_all(daemon);
        patience *= 2;
    }
    patience = UMFD_PATIENCE;
    if (!is_kept) {
        keeper_end(daemon);
        fputs("umfd: no keeper can be started; the content now lives in one process\n", stderr);
    }
    return is_kept;
}

/* --- for the daemon --------------------------------------------------------------------------- */

bool umfd_keep_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie, int fd) {
    return hand_over(daemon, slot, cookie, fd) ||
           (keeper_replace(daemon) && hand_over(daemon, slot, cookie, fd));
}

void umfd_forget_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie) {
    umfd_message_t message = {.op = UMFD_FORGET, .slot = slot, .cookie = cookie};
    if (!umfd_pair_send(daemon->pair, &message, -1) && keeper_replace(daemon)) {
        umfd_pair_send(daemon->pair, &message, -1); /* the new one got it with all others */
    }
}

void umfd_receive_all(umfd_t *daemon, uint64_t *leases, uint64_t *slabs, uint64_t *processes) {
    umfd_message_t message = {.op = UMFD_GIVE}, alive = {.op = UMFD_ALIVE};
    int fd;
    umfd_step();
    if (!umfd_pair_send(daemon->pair, &message, -1)) {
        _exit(1);
    }
    while (pair_receive(daemon, &message, &fd) && message.op != UMFD_GIVEN) {
        if (message.op == UMFD_ALIVE) { /* it came before our request, which took a while */
            umfd_pair_send(daemon->pair, &alive, -1);
        }
        if (message.op != UMFD_HAVE || fd == -1 || message.slot >= UMFD_SLOTS) {
            continue;
        }
        int *fixed[] = {[UMFD_SLOT_LOCK] = &daemon->lock,
                        [UMFD_SLOT_LISTEN] = &daemon->listener,
                        [UMFD_SLOT_STATE] = &daemon->state_fd,
                        [UMFD_SLOT_PROGRAM] = &daemon->program};
        if (message.slot <= UMFD_SLOT_PROGRAM) {
            *fixed[message.slot] = fd;
        } else if (message.slot >= UMFD_SLOT_PROCESS) {
            daemon->processes[message.slot - UMFD_SLOT_PROCESS] = fd;
            processes[message.slot - UMFD_SLOT_PROCESS] = message.cookie;
        } else if (message.slot >= UMFD_SLOT_SLAB) {
            daemon->slabs[message.slot - UMFD_SLOT_SLAB] = fd;
            slabs[message.slot - UMFD_SLOT_SLAB] = message.cookie;
        } else if (message.slot >= UMFD_SLOT_LEASE) {
            daemon->leases[message.slot - UMFD_SLOT_LEASE] = fd;
            leases[message.slot - UMFD_SLOT_LEASE] = message.cookie;
        } else {
            close(fd);
        }
        daemon->open++;
    }
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (message.op != UMFD_GIVEN || daemon->lock == -1 || daemon->listener == -1 ||
        daemon->state_fd == -1 || daemon->program == -1 ||
        getsockopt(daemon->pair, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        _exit(1); /* the keeper starts another one */
    }
    daemon->starts = message.cookie;
    daemon->keeper = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    pair_watch(daemon);
    umfd_step();
}

void umfd_pair_serve(umfd_t *daemon) {
    umfd_message_t message = {0};
    struct pollfd event = {.fd = daemon->pair, .events = POLLIN};
    int fd;
    if (poll(&event, 1, 0) == 0) { /* it was of a keeper that has been replaced since */
        return;
    }
    bool is_there = pair_receive(daemon, &message, &fd);
    if (fd != -1) {
        close(fd);
    }
    umfd_message_t alive = {.op = UMFD_ALIVE};
    if (message.op == UMFD_EXIT) {
        _exit(0);
    }
    if (!is_there || (message.op == UMFD_ALIVE && !umfd_pair_send(daemon->pair, &alive, -1))) {
        keeper_replace(daemon);
    }
}

/* A keeper that is stopped would have the place until it goes on. */
_Noreturn void umfd_exit(umfd_t *daemon) {
    umfd_message_t message = {.op = UMFD_EXIT};
    struct pollfd ended = {.fd = daemon->keeper, .events = POLLIN};
    if (!umfd_pair_send(daemon->pair, &message, -1) || poll(&ended, 1, UMFD_PATIENCE) == 0) {
        if (!umfd_given_is(daemon->listener)) {
            unlink(UMF_VAULT_SOCKET);
        }
        keeper_end(daemon);
    }
    _exit(0);
}
