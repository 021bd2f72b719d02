/*
 * The keeper: descriptors in a table of fixed size. It has one thread, links the C library only,
 * and allocates nothing after its start. See keeper.h.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ext/vault/protocol.h"
#include "given.h"

#define PATIENCE_MAX 16000
/* How long a daemon may take to hand over its descriptors to a keeper that it has started. Without
 * them the keeper cannot start another daemon: both would end. */
#define PATIENCE_START 60000
#define QUIET 100 /* how long an answer holds */

typedef struct slot_t {
    uint64_t cookie;
    int fd; /* 0: none; no descriptor of ours is 0 */
} slot_t;

static slot_t slots[UMFD_SLOTS];
static struct pollfd polled[2 + UMFD_LEASES];
static int daemon_pair = -1;
static bool has_all; /* every descriptor of the daemon: another daemon can go on with them */
static uint64_t daemon_starts;
static volatile sig_atomic_t is_ending;
static sigset_t in_poll; /* signals that are blocked while it polls; SIGTERM is, otherwise */

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- messages --------------------------------------------------------------------------------- */

typedef union control_t {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} control_t;

/* `*fd`: -1 if the message has none. false: the other side has ended. */
static bool pair_receive(umfd_message_t *message, int *fd) {
    control_t control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t got = umfd_receive(daemon_pair, &header);
    *fd = -1;
    if (got == -1 && (errno == EAGAIN || errno == EINTR)) {
        *message = (umfd_message_t){0};
        return true;
    }
    struct cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&header) : NULL;
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    }
    return got == (ssize_t)sizeof(*message);
}

/* --- the daemon ------------------------------------------------------------------------------- */

/* It is killed before the pair ends: it would take that for our end, and kill us. */
static void daemon_drop(void) {
    slot_t *process = &slots[UMFD_SLOT_DAEMON];
    if (process->fd) { /* it may be stopped, and must not act beside the next one */
        syscall(SYS_pidfd_send_signal, process->fd, SIGKILL, NULL, 0);
        close(process->fd);
        *process = (slot_t){0};
    }
    if (daemon_pair != -1) {
        close(daemon_pair);
        daemon_pair = -1;
    }
}

static void daemon_start(const char *idle) {
    int pair[2];
    if (!umfd_pair_open(pair)) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        char *const words[] = {"umfd", "--serve", (char *)(uintptr_t)idle, NULL};
        sigprocmask(SIG_SETMASK, &in_poll, NULL);
        if (pair[1] == UMFD_PAIR) {
            fcntl(pair[1], F_SETFD, 0);
        } else {
            dup2(pair[1], UMFD_PAIR);
        }
        fexecve(slots[UMFD_SLOT_PROGRAM].fd, words, environ);
        _exit(127);
    }
    close(pair[1]);
    daemon_pair = pair[0];
    daemon_starts++;
    int process = child == -1 ? -1 : (int)syscall(SYS_pidfd_open, child, 0);
    if (process > 0) {
        slots[UMFD_SLOT_DAEMON].fd = process;
    }
    if (child == -1) {
        daemon_drop();
    }
}

static _Noreturn void everything_ends(void) {
    if (!umfd_given_is(slots[UMFD_SLOT_LISTEN].fd)) {
        unlink(UMF_VAULT_SOCKET); /* in the place, which is the current folder */
    }
    umfd_message_t message = {.op = UMFD_EXIT};
    if (daemon_pair != -1) {
        umfd_pair_send(daemon_pair, &message, -1);
    }
    _exit(0);
}

/* --- requests of the daemon ------------------------------------------------------------------- */

static void slot_clear(slot_t *slot) {
    if (slot->fd) {
        close(slot->fd);
    }
    *slot = (slot_t){0};
}

static bool give_all(void) {
    for (uint32_t i = 0; i < UMFD_SLOTS; i++) {
        umfd_message_t message = {.op = UMFD_HAVE, .slot = i, .cookie = slots[i].cookie};
        if (slots[i].fd && i != UMFD_SLOT_DAEMON &&
            !umfd_pair_send(daemon_pair, &message, slots[i].fd)) {
            return false;
        }
    }
    umfd_message_t end = {.op = UMFD_GIVEN, .cookie = daemon_starts};
    return umfd_pair_send(daemon_pair, &end, -1);
}

static bool answer(const umfd_message_t *message, int fd) {
    slot_t *slot = message->slot < UMFD_SLOTS ? &slots[message->slot] : NULL;
    if (message->op == UMFD_HAVE && slot && fd > 0) {
        slot_clear(slot);
        *slot = (slot_t){.cookie = message->cookie, .fd = fd};
        umfd_message_t kept = {.op = UMFD_KEPT, .slot = message->slot, .cookie = message->cookie};
        return umfd_pair_send(daemon_pair, &kept, -1);
    }
    if (fd != -1) {
        close(fd);
    }
    if (message->op == UMFD_FORGET && slot && slot->cookie == message->cookie) {
        slot_clear(slot);
    } else if (message->op == UMFD_EXIT) {
        everything_ends();
    } else if (message->op == UMFD_GIVE) {
        return give_all();
    }
    return true;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* Connections of clients are polled and not read: one that stays readable shows a daemon that does
 * not answer. */
static nfds_t fill_polled(bool watches) {
    nfds_t count = 0;
    polled[count++] = (struct pollfd){.fd = daemon_pair, .events = POLLIN};
    for (uint32_t i = 0; watches && i < 1 + UMFD_LEASES; i++) {
        int fd = slots[i == 0 ? (uint32_t)UMFD_SLOT_LISTEN : UMFD_SLOT_LEASE + i - 1].fd;
        if (fd) {
            polled[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    return count;
}

static void on_signal(int number) {
    (void)number;
    is_ending = 1;
}

/* Waits, for ever if `ms` is -1. A signal that came before ends it, too. */
static int poll_for(nfds_t count, int ms) {
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    if (ms == -1) {
        umfd_step_before_wait();
    }
    return ppoll(polled, count, ms == -1 ? NULL : &limit, &in_poll);
}

static void settle_in(void) {
    struct sigaction ends = {.sa_handler = on_signal};
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &in_poll);
    sigdelset(&in_poll, SIGTERM);
    sigaction(SIGTERM, &ends, NULL);
    signal(SIGINT, SIG_IGN); /* of a terminal: its end is SIGTERM */
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd != -1) { /* only root may lower it */
        if (write(fd, "-900", 4) != 4) {
            errno = 0;
        }
        close(fd);
    }
    prctl(PR_SET_DUMPABLE, 0);
}

_Noreturn void umfd_keep(int pair, const char *idle) {
    settle_in();
    daemon_pair = pair;
    has_all = pair == -1;
    /* `queried`: when the daemon was queried, 0: it is not; `quiet`: until when the daemon is not
     * watched. */
    uint64_t queried = 0, quiet = 0, started = 0, patience = UMFD_PATIENCE;
    for (;;) {
        if (is_ending) {
            everything_ends();
        }
        if (daemon_pair == -1) {
            if (!has_all) {
                _exit(1); /* the daemon ended while it gave us everything: both have ended */
            }
            if (started && now_ms() - started < 20) { /* one that ends at once is not hurried */
                struct timespec nap = {.tv_nsec = 20 * 1000000};
                nanosleep(&nap, NULL);
            }
            started = now_ms();
            daemon_start(idle);
            queried = 0;
            quiet = started + QUIET;
            continue;
        }
        uint64_t now = now_ms();
        uint64_t limit = has_all ? patience : PATIENCE_START;
        bool watches = !queried && now >= quiet;
        uint64_t until = queried ? queried + limit : quiet;
        nfds_t count = fill_polled(watches);
        int ready = poll_for(count, watches ? -1 : until > now ? (int)(until - now) : 0);
        if (ready <= 0) { /* a message of the daemon counts before the time, if both were stopped */
            if (ready == 0 && queried && now_ms() >= until) {
                patience = patience * 2 < PATIENCE_MAX ? patience * 2 : PATIENCE_MAX;
                daemon_drop();
            }
        } else if (polled[0].revents) {
            umfd_message_t message;
            int fd;
            if (!pair_receive(&message, &fd)) {
                daemon_drop();
            } else if (message.op == UMFD_ALIVE || message.op == UMFD_GIVEN) {
                has_all = has_all || message.op == UMFD_GIVEN;
                queried = 0; /* after the last descriptor, the answer may be behind it */
                quiet = now_ms() + QUIET;
                patience = UMFD_PATIENCE;
            } else if (message.op && !answer(&message, fd)) {
                daemon_drop();
            }
        } else if (watches) {
            umfd_message_t message = {.op = UMFD_ALIVE};
            queried = now_ms();
            if (!umfd_pair_send(daemon_pair, &message, -1)) {
                daemon_drop();
            }
        }
    }
}

/* --- the start of the first keeper ------------------------------------------------------------ */

static int fails(const char *what) {
    fprintf(stderr, "umfd: %s: %s\n", what, strerror(errno));
    return 1;
}

/* Every descriptor of its parent, and its terminal. */
static void let_go(void) {
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null != -1; i++) {
        dup2(null, i);
    }
    if (null > 2) {
        close(null);
    }
    setsid();
}

static int open_socket(void) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = UMF_VAULT_SOCKET};
    unlink(UMF_VAULT_SOCKET);
    if (fd == -1 || bind(fd, (struct sockaddr *)&name, sizeof(name)) != 0 || listen(fd, 128) != 0) {
        return -1;
    }
    return fd;
}

int umfd_open(const char *folder, bool detaches) {
    int null, given = umfd_given();
    do { /* 0 stands for no descriptor */
        null = open("/dev/null", O_RDWR);
    } while (null != -1 && null < 3);
    unsigned first = given == -1 ? 3u : (unsigned)given + 1;
    /* A filter that the starter had is here, too, and may end a process for a call that is new. */
    if (prctl(PR_GET_SECCOMP) != 0 || syscall(SYS_close_range, first, ~0u, 0u) != 0) {
        for (int i = (int)first; i < 1024; i++) {
            close(i);
        }
    }
    umask(0077);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return fails(folder);
    }
    struct stat about;
    int place = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place == -1 || fstat(place, &about) != 0 || fchdir(place) != 0) {
        return fails(folder);
    }
    if (about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
        fprintf(stderr, "umfd: %s must belong to this user, with mode 0700\n", folder);
        return 1;
    }
    close(place);
    int lock = open("lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock == -1) {
        return fails("lock");
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        return UMFD_RUNS_ALREADY;
    }
    if (given != -1 && !umfd_given_is(given)) {
        fprintf(stderr,
                "umfd: the socket that was handed over is not " UMF_VAULT_SOCKET
                " of %s, with packets in sequence\n",
                folder);
        return 1;
    }
    int listener = given != -1 ? given : open_socket();
    int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int state = memfd_create("umf_vault_state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (listener == -1 || program == -1 || state == -1) {
        return fails("socket, program and state");
    }
    slots[UMFD_SLOT_LOCK].fd = lock;
    slots[UMFD_SLOT_LISTEN].fd = listener;
    slots[UMFD_SLOT_STATE].fd = state;
    slots[UMFD_SLOT_PROGRAM].fd = program;
    if (detaches) {
        pid_t child = fork();
        if (child != 0) {
            _exit(child == -1);
        }
        let_go();
    }
    return 0;
}
