#include "serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENT_LISTENER UMFD_LEASES
#define EVENT_PAIR (UMFD_LEASES + 1)
#define LOOK_MS 3000 /* how often it checks whether it is still needed, without clients */

static umfd_t daemon_of_vaults;
static umfd_request_t request;
static umfd_reply_t reply;

/* --- messages of clients ---------------------------------------------------------------------- */

typedef union control_t {
    char bytes[CMSG_SPACE(UMF_VAULT_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
} control_t;

/* A client that does not read gets no answer; it will repeat its request. */
static void send_reply(int fd, umfd_reply_t *answer) {
    static control_t control;
    struct iovec parts[] = {{.iov_base = &answer->head, .iov_len = sizeof(answer->head)},
                            {.iov_base = answer->body, .iov_len = answer->head.body}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    if (answer->fd_count) {
        memset(&control, 0, sizeof(control));
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(answer->fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(answer->fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), answer->fds, answer->fd_count * sizeof(int));
    }
    while (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 && errno == EINTR) {
    }
}

static void reply_begin(umfd_t *daemon, const umf_vault_message_t *head) {
    reply.head = (umf_vault_message_t){.magic = UMF_VAULT_MAGIC,
                                       .version = UMF_VAULT_VERSION,
                                       .op = head->op,
                                       .sequence = head->sequence,
                                       .event = daemon->state->event,
                                       .nonce = daemon->state->nonce};
    reply.fd_count = 0;
    reply.is_later = false;
}

typedef enum received_t { RECEIVED, NOTHING, ENDED } received_t;

static received_t receive(int fd, bool *has_lost) {
    static control_t control;
    struct iovec parts[] = {{.iov_base = &request.head, .iov_len = sizeof(request.head)},
                            {.iov_base = request.body, .iov_len = sizeof(request.body)}};
    struct msghdr header = {.msg_iov = parts,
                            .msg_iovlen = 2,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t got = umfd_receive(fd, &header);
    if (got == -1) {
        return errno == EAGAIN || errno == EINTR ? NOTHING : ENDED;
    }
    request.fd_count = 0;
    *has_lost = (header.msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
        bool is_rights = part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS;
        size_t count = is_rights ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        for (size_t i = 0; i < count; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            if (request.fd_count < UMF_VAULT_GIVE_MAX) {
                request.fds[request.fd_count++] = passed;
            } else {
                close(passed);
            }
        }
    }
    bool is_right = !(header.msg_flags & MSG_TRUNC) && got >= (ssize_t)sizeof(request.head) &&
                    request.head.magic == UMF_VAULT_MAGIC &&
                    request.head.body == (size_t)got - sizeof(request.head);
    return is_right ? RECEIVED : ENDED;
}

/* --- leases ----------------------------------------------------------------------------------- */

static void lease_end(umfd_t *daemon, uint32_t place) {
    umfd_lease_t *lease = &daemon->state->leases[place];
    umfd_forget_fd(daemon, UMFD_SLOT_LEASE + place, lease->serial);
    epoll_ctl(daemon->events, EPOLL_CTL_DEL, daemon->leases[place],
              NULL); /* the keeper has it, too */
    close(daemon->leases[place]);
    daemon->leases[place] = -1;
    daemon->waits[place] = 0;
    daemon->open--;
    umfd_lease_left(daemon, place);
    umfd_wake(daemon);
}

static void lease_watch(umfd_t *daemon, uint32_t place) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = place};
    epoll_ctl(daemon->events, EPOLL_CTL_ADD, daemon->leases[place], &event);
}

static umf_vault_answer_t lease_begin(umfd_t *daemon, int fd) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != geteuid() && peer.uid != 0)) {
        return UMF_VAULT_DENIED;
    }
    uint32_t place = 0;
    while (place < UMFD_LEASES && (daemon->leases[place] != -1 ||
                                   atomic_load(&daemon->state->leases[place].state) != UMFD_FREE)) {
        place++;
    }
    if (place == UMFD_LEASES) {
        return UMF_VAULT_FULL;
    }
    if (daemon->open >= daemon->open_limit) {
        return UMF_VAULT_DESCRIPTORS;
    }
    umfd_lease_t *lease = &daemon->state->leases[place];
    memset(lease, 0, sizeof(*lease));
    lease->uid = peer.uid;
    lease->pid = (uint32_t)peer.pid;
    lease->serial = ++daemon->state->serial;
    umfd_step();
    if (!umfd_keep_fd(daemon, UMFD_SLOT_LEASE + place, lease->serial, fd)) {
        return UMF_VAULT_DESCRIPTORS;
    }
    daemon->leases[place] = fd;
    daemon->open++;
    umfd_step();
    atomic_store(&lease->state, UMFD_LIVE);
    umfd_step();
    lease_watch(daemon, place);
    return UMF_VAULT_OK;
}

static void accept_one(umfd_t *daemon) {
    int fd = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd == -1 && (errno == EMFILE || errno == ENFILE)) {
        close(daemon->spare);
        fd = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd != -1) {
            close(fd);
        }
        daemon->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return;
    }
    umf_vault_answer_t answer = fd == -1 ? UMF_VAULT_OK : lease_begin(daemon, fd);
    if (answer != UMF_VAULT_OK) {
        umf_vault_message_t none = {0};
        reply_begin(daemon, &none);
        reply.head.answer = answer;
        reply.head.words[0] = answer == UMF_VAULT_FULL ? UMFD_LEASES : daemon->open_limit;
        reply.head.words[1] = daemon->open;
        send_reply(fd, &reply);
        close(fd);
    }
}

static void lease_serve(umfd_t *daemon, uint32_t place) {
    bool has_lost = false;
    received_t received = receive(daemon->leases[place], &has_lost);
    if (received == NOTHING) {
        return;
    }
    if (received == RECEIVED) {
        request.lease = place;
        reply_begin(daemon, &request.head);
        if (request.head.version != UMF_VAULT_VERSION &&
            request.head.version != UMF_VAULT_VERSION_COPIES) {
            reply.head.answer = UMF_VAULT_OLD;
            reply.head.words[0] = UMF_VAULT_VERSION_COPIES;
        } else if (has_lost) {
            reply.head.answer = UMF_VAULT_DESCRIPTORS;
        } else {
            umfd_request(daemon, &request, &reply);
        }
        reply.head.event = daemon->state->event;
    }
    for (unsigned i = 0; i < request.fd_count; i++) {
        if (request.fds[i] != -1) {
            close(request.fds[i]);
        }
    }
    request.fd_count = 0;
    if (received == ENDED) {
        lease_end(daemon, place);
    } else if (!reply.is_later) {
        umfd_step();
        send_reply(daemon->leases[place], &reply);
        umfd_step();
    }
    umfd_wake(daemon);
}

static void process_ended(umfd_t *daemon, uint32_t place) {
    if (atomic_load(&daemon->state->leases[place].state) == UMFD_DYING) {
        umfd_lease_free(daemon, place);
        umfd_wake(daemon);
    }
}

void umfd_wake(umfd_t *daemon) {
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (daemon->leases[i] == -1 || !daemon->waits[i]) {
            continue;
        }
        umf_vault_message_t head = {.op = UMF_VAULT_WAIT, .sequence = daemon->waits[i]};
        reply_begin(daemon, &head);
        if (umfd_event_after(daemon, i, daemon->waits_after[i], &reply.head)) {
            daemon->waits[i] = 0;
            send_reply(daemon->leases[i], &reply);
        }
    }
}

/* --- unused slabs ---------------------------------------------------------------------------- */

/* DYING, or AWAY with the memory that it had. */
static bool is_to_close(const umfd_t *daemon, uint32_t i) {
    uint32_t state = atomic_load(&daemon->state->slabs[i].state);
    return state == UMFD_DYING || (state == UMFD_AWAY && daemon->slabs[i] != -1);
}

void umfd_count_dying(umfd_t *daemon) {
    daemon->dying = 0;
    for (uint32_t i = 0; i < daemon->state->slab_top; i++) {
        daemon->dying += is_to_close(daemon, i);
    }
}

/* Closes a few. The pages may take the kernel a while, so requests come first. */
static void close_dying(umfd_t *daemon) {
    unsigned closed = 0;
    for (uint32_t i = 0; i < daemon->state->slab_top && closed < 16 && daemon->dying; i++) {
        if (!is_to_close(daemon, i)) {
            continue;
        }
        umfd_step();
        umfd_slab_close(daemon, i);
        if (atomic_load(&daemon->state->slabs[i].state) == UMFD_DYING) {
            atomic_store(&daemon->state->slabs[i].state, UMFD_FREE);
        }
        umfd_step();
        daemon->dying--;
        closed++;
    }
    if (closed < 16) { /* a refill may have closed some, too */
        daemon->dying = 0;
    }
}

/* --- start ------------------------------------------------------------------------------------ */

static void state_map(umfd_t *daemon) {
    struct stat about;
    if (fstat(daemon->state_fd, &about) != 0 ||
        (about.st_size == 0 && ftruncate(daemon->state_fd, sizeof(umfd_state_t)) != 0)) {
        _exit(1);
    }
    if (about.st_size != 0 && about.st_size != (off_t)sizeof(umfd_state_t)) {
        fputs("umfd: the state is that of another program\n", stderr);
        _exit(1);
    }
    fcntl(daemon->state_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    void *at =
        mmap(NULL, sizeof(umfd_state_t), PROT_READ | PROT_WRITE, MAP_SHARED, daemon->state_fd, 0);
    if (at == MAP_FAILED) {
        _exit(1);
    }
    daemon->state = at;
    if (atomic_load(&daemon->state->magic) != UMFD_STATE_MAGIC) {
        uint64_t nonce = 0;
        if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
            _exit(1);
        }
        if (about.st_size != 0) { /* pages of a new one cost memory when they are used first */
            memset(daemon->state, 0, sizeof(*daemon->state));
        }
        umfd_state_init(daemon->state, nonce);
    }
}

/* The records and the descriptors that the keeper gave. */
static void match(umfd_t *daemon, const uint64_t *leases, const uint64_t *slabs,
                  const uint64_t *processes) {
    umfd_state_t *state = daemon->state;
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        umfd_lease_t *lease = &state->leases[i];
        bool is_live = atomic_load(&lease->state) == UMFD_LIVE;
        if (daemon->processes[i] != -1 &&
            (atomic_load(&lease->state) == UMFD_FREE || lease->serial != processes[i])) {
            close(daemon->processes[i]);
            daemon->processes[i] = -1;
            daemon->open--;
            umfd_forget_fd(daemon, UMFD_SLOT_PROCESS + i, processes[i]);
        }
        if (daemon->leases[i] != -1 && !(is_live && lease->serial == leases[i])) {
            close(daemon->leases[i]);
            daemon->leases[i] = -1;
            daemon->open--;
            umfd_forget_fd(daemon, UMFD_SLOT_LEASE + i, leases[i]);
        }
        if (daemon->leases[i] != -1) {
            lease_watch(daemon, i);
        } else if (atomic_load(&lease->state) != UMFD_FREE) {
            umfd_lease_left(daemon, i);
        }
    }
    for (uint32_t i = 0; i < UMFD_SLABS; i++) {
        if (daemon->slabs[i] == -1) {
            continue;
        }
        const umfd_slab_t *slab = &state->slabs[i];
        if (i >= state->slab_top || atomic_load(&slab->state) == UMFD_FREE ||
            atomic_load(&slab->state) == UMFD_AWAY || slab->serial != slabs[i]) {
            close(daemon->slabs[i]);
            daemon->slabs[i] = -1;
            daemon->open--;
            umfd_forget_fd(daemon, UMFD_SLOT_SLAB + i, slabs[i]);
        }
    }
    umfd_count_dying(daemon);
}

static void start(umfd_t *daemon) {
    static uint64_t leases[UMFD_LEASES], slabs[UMFD_SLABS], processes[UMFD_LEASES];
    memset(daemon->leases, -1, sizeof(daemon->leases));
    memset(daemon->slabs, -1, sizeof(daemon->slabs));
    memset(daemon->processes, -1, sizeof(daemon->processes));
    daemon->pair = UMFD_PAIR;
    daemon->keeper = daemon->lock = daemon->listener = daemon->state_fd = daemon->program = -1;
    fcntl(UMFD_PAIR, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0);
    struct rlimit files = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &files);
    daemon->open_limit = (unsigned)(files.rlim_cur < 1000000 ? files.rlim_cur : 1000000) / 20 * 19;
    daemon->open = 16;
    daemon->events = epoll_create1(EPOLL_CLOEXEC);
    daemon->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    umfd_receive_all(daemon, leases, slabs, processes);
    state_map(daemon);
    unsigned dropped = umfd_state_check(daemon->state);
    if (dropped) {
        fprintf(stderr, "umfd: %u records of the state contradict others and were dropped\n",
                dropped);
    }
    umfd_step();
    match(daemon, leases, slabs, processes);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = EVENT_LISTENER};
    epoll_ctl(daemon->events, EPOLL_CTL_ADD, daemon->listener, &event);
}

/* --- the loop --------------------------------------------------------------------------------- */

static bool has_clients(const umfd_t *daemon) {
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (daemon->leases[i] != -1) {
            return true;
        }
    }
    return false;
}

/* Without clients: no client can connect if the place was removed, and no client needs an empty
 * service that an open has started. */
static void look(umfd_t *daemon, uint64_t *empty_since) {
    struct stat place;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stat(".", &place) == 0 && place.st_nlink == 0) {
        umfd_exit(daemon);
    }
    if (!umfd_is_empty(daemon)) {
        *empty_since = 0;
    } else if (*empty_since == 0) {
        *empty_since = (uint64_t)now.tv_sec;
    } else if (daemon->idle && (uint64_t)now.tv_sec - *empty_since >= daemon->idle) {
        umfd_exit(daemon);
    }
}

_Noreturn void umfd_serve(unsigned idle) {
    umfd_t *daemon = &daemon_of_vaults;
    daemon->idle = idle;
    start(daemon);
    uint64_t empty_since = 0;
    for (;;) {
        struct epoll_event events[64];
        int timeout = daemon->dying ? 0 : has_clients(daemon) ? -1 : LOOK_MS;
        int count = epoll_wait(daemon->events, events, 64, timeout);
        if (count == 0 && daemon->dying) {
            close_dying(daemon);
        } else if (count == 0) {
            look(daemon, &empty_since);
        }
        for (int i = 0; i < count; i++) {
            uint32_t what = events[i].data.u32;
            if (what == EVENT_LISTENER) {
                empty_since = 0;
                accept_one(daemon);
            } else if (what == EVENT_PAIR) {
                umfd_pair_serve(daemon);
            } else if (what >= UMFD_EVENT_PROCESS) {
                process_ended(daemon, what - UMFD_EVENT_PROCESS);
            } else if (daemon->leases[what] != -1) {
                lease_serve(daemon, what);
            }
        }
    }
}
