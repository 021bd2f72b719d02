#include "attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"

#define PATIENCE_MS 15000 /* for a connection, and for an answer */
#define RETRY_MS 20
#define FUSE_SUPER_MAGIC 0x65735546 /* <linux/magic.h> has it from Linux 5.15 on */

static bool fail(attach_t *attach, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(attach_t *attach, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(attach->error, sizeof(attach->error), format, args);
    va_end(args);
    return false;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint32_t attach_pid(const char *word) {
    char *end;
    unsigned long pid = strtoul(word, &end, 10);
    return word[0] >= '1' && word[0] <= '9' && *end == '\0' && pid <= INT32_MAX ? (uint32_t)pid : 0;
}

/* --- /proc of a process ----------------------------------------------------------------------- */

static bool read_file(uint32_t pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, size - 1, file) : 0;
    text[got] = '\0';
    if (file) {
        fclose(file);
    }
    return file != NULL;
}

/* The number after a name of /proc/PID/status; the last one of several. */
static unsigned status_number(const char *status, const char *name, unsigned otherwise) {
    const char *line = strstr(status, name);
    if (!line) {
        return otherwise;
    }
    unsigned number = otherwise;
    for (line += strlen(name); *line && *line != '\n';) {
        char *end;
        unsigned long read = strtoul(line, &end, 10);
        if (end == line) {
            break;
        }
        number = (unsigned)read;
        line = end;
    }
    return number;
}

static bool namespace_of(const char *who, const char *what, unsigned long long *inode) {
    char path[64];
    struct stat space;
    snprintf(path, sizeof(path), "/proc/%s/ns/%s", who, what);
    if (stat(path, &space) != 0) {
        return false;
    }
    *inode = space.st_ino;
    return true;
}

const char *attach_name(uint32_t pid, char *text, size_t size) {
    read_file(pid, "comm", text, size);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static bool uses_umf(uint32_t pid) {
    char path[64], line[4500];
    bool is_found = false;
    snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    FILE *file = fopen(path, "re");
    while (file && !is_found && fgets(line, sizeof(line), file)) {
        is_found = strstr(line, "/libumf") != NULL;
    }
    if (file) {
        fclose(file);
    }
    return is_found;
}

static bool fail_silent(attach_t *attach) {
    return uses_umf(attach->pid)
               ? fail(attach,
                      "process %u uses libumf but does not listen: it has no attach socket, which "
                      "this needs; start it as 'umfctl record -- PROGRAM' or 'umfctl top -- "
                      "PROGRAM', or with UMF_RECORD_ATTACH=yes",
                      attach->pid)
               : fail(attach, "process %u does not use libumf, or has no pool", attach->pid);
}

/* --- connecting ------------------------------------------------------------------------------- */

typedef struct target_t {
    unsigned long long space; /* its pid namespace */
    unsigned number;          /* its number there */
    char status[8192];
} target_t;

static bool find(attach_t *attach, target_t *target) {
    char who[16];
    unsigned long long mine, theirs;
    snprintf(who, sizeof(who), "%u", attach->pid);
    if (kill((pid_t)attach->pid, 0) != 0 && errno == ESRCH) {
        return fail(attach, "there is no process %u", attach->pid);
    }
    if (!read_file(attach->pid, "status", target->status, sizeof(target->status))) {
        return fail(attach, "/proc has no entry of process %u", attach->pid);
    }
    unsigned user = status_number(target->status, "Uid:", 0);
    if (getuid() != 0 && user != getuid()) {
        return fail(attach,
                    "process %u belongs to another user (%u); only that one and root may "
                    "look at it",
                    attach->pid, user);
    }
    attach->may_view = true;
    if (!namespace_of(who, "pid", &target->space)) {
        return fail(attach, "process %u cannot be looked at: %s", attach->pid, strerror(errno));
    }
    target->number = status_number(target->status, "NSpid:", attach->pid);
    if (namespace_of("self", "net", &mine) && namespace_of(who, "net", &theirs) && mine != theirs) {
        return fail(attach,
                    "process %u is in another network namespace; go there, for instance by "
                    "'nsenter --target %u --net umfctl ...'",
                    attach->pid, attach->pid);
    }
    return true;
}

static socklen_t address_make(const target_t *target, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, UMF_ATTACH_NAME,
                          target->space, target->number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* While the queue of the other side is full, a connection is tried again for so long. */
static int connect_for(int fd, const struct sockaddr_un *address, socklen_t size, unsigned ms) {
    uint64_t end = now_ms() + ms;
    int error;
    do {
        error = connect(fd, (const struct sockaddr *)address, size) == 0 ? 0 : errno;
        if (error == EAGAIN && ms > 0) {
            poll(NULL, 0, RETRY_MS);
        }
    } while ((error == EAGAIN && now_ms() < end) || error == EINTR);
    return error;
}

/* Whoever came first has the name. */
static bool is_the_one(attach_t *attach) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    bool is_known = getsockopt(attach->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (is_known && (peer.uid == getuid() || peer.uid == 0 || getuid() == 0) &&
        (uint32_t)peer.pid == attach->pid) {
        return true;
    }
    return fail(attach, "another process (%ld, of user %lu) listens under the name of process %u",
                is_known ? (long)peer.pid : 0L, is_known ? (unsigned long)peer.uid : 0ul,
                attach->pid);
}

static bool open_for(attach_t *attach, uint32_t pid, unsigned ms) {
    target_t target;
    struct sockaddr_un address;
    *attach = (attach_t){.fd = -1, .pid = pid};
    if (!find(attach, &target)) {
        return false;
    }
    attach->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attach->fd == -1) {
        return fail(attach, "no socket: %s", strerror(errno));
    }
    int error = connect_for(attach->fd, &address, address_make(&target, &address), ms);
    bool is_open = error == 0 ? is_the_one(attach)
                   : error == ECONNREFUSED
                       ? fail_silent(attach)
                       : fail(attach, "process %u cannot be reached: %s", pid, strerror(error));
    if (!is_open) {
        attach_close(attach);
    }
    return is_open;
}

bool attach_open(attach_t *attach, uint32_t pid) {
    return open_for(attach, pid, PATIENCE_MS);
}

bool attach_open_soon(attach_t *attach, uint32_t pid) {
    return open_for(attach, pid, 0);
}

void attach_close(attach_t *attach) {
    if (attach->fd != -1) {
        close(attach->fd);
    }
    attach->fd = -1;
}

/* --- messages --------------------------------------------------------------------------------- */

umf_attach_request_t attach_request(umf_attach_kind_t kind, const umf_record_object_t *object) {
    return (umf_attach_request_t){
        .magic = UMF_ATTACH_MAGIC,
        .version = UMF_ATTACH_VERSION,
        .kind = (uint32_t)kind,
        .birth = object ? object->birth : 0,
        .object = object ? object->handle : 0,
    };
}

static bool fail_gone(attach_t *attach) {
    attach->is_gone = true;
    bool lives = kill((pid_t)attach->pid, 0) == 0 || errno != ESRCH;
    return fail(attach, lives ? "process %u has closed the connection" : "process %u has ended",
                attach->pid);
}

/* The first descriptor; others are closed. */
static int take_descriptor(struct msghdr *message) {
    int taken = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        bool is_rights = head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS;
        size_t count = is_rights ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
            if (taken == -1) {
                taken = fd;
            } else {
                close(fd);
            }
        }
    }
    return taken;
}

static ssize_t receive(int connection, umf_attach_reply_t *reply, int *fd) {
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec bytes = {reply, sizeof(*reply)};
    struct msghdr message = {
        .msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    *fd = got >= 0 ? take_descriptor(&message) : -1;
    return message.msg_flags & MSG_TRUNC ? 0 : got;
}

static bool is_reply(const umf_attach_reply_t *reply, ssize_t got) {
    return got == (ssize_t)sizeof(*reply) && reply->magic == UMF_ATTACH_MAGIC &&
           reply->version == UMF_ATTACH_VERSION;
}

static bool judge(attach_t *attach, umf_attach_reply_t *reply) {
    char text[sizeof(reply->text)];
    switch (reply->status) {
    case UMF_ATTACH_DONE:
        return true;
    case UMF_ATTACH_DENIED:
        attach->is_gone = true;
        return fail(attach, "process %u refuses: this is another user", attach->pid);
    case UMF_ATTACH_FULL:
        attach->is_gone = true;
        return fail(attach, "as many programs as may look at process %u do so already",
                    attach->pid);
    case UMF_ATTACH_FAILED:
        reply->text[sizeof(reply->text) - 1] = '\0';
        plain_copy(text, sizeof(text), reply->text);
        return fail(attach, "process %u: %s", attach->pid, text);
    default:
        return fail(attach, "process %u has another version of libumf, without this request",
                    attach->pid);
    }
}

static bool wait_for_answer(attach_t *attach) {
    uint64_t end = now_ms() + PATIENCE_MS;
    struct pollfd wait = {.fd = attach->fd, .events = POLLIN};
    for (uint64_t now = now_ms(); now < end; now = now_ms()) {
        int got = poll(&wait, 1, (int)(end - now));
        if (got > 0) {
            return true;
        }
    }
    attach->is_gone = true; /* a late answer would be taken for that of the next request */
    return fail(attach, "process %u does not answer; is it stopped?", attach->pid);
}

/* Reads of a file system that a process serves (FUSE) last as long as it likes. */
static bool is_file(attach_t *attach, int fd) {
    struct stat file;
    struct statfs system;
    if (fd == -1 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
        return fail(attach, "process %u answers without a file", attach->pid);
    }
    return (fstatfs(fd, &system) == 0 && system.f_type != FUSE_SUPER_MAGIC) ||
           fail(
               attach,
               "process %u answers with a file of a file system in user space, which may be served "
               "by anybody; read the file itself by its name",
               attach->pid);
}

static bool send_request(attach_t *attach, const umf_attach_request_t *request) {
    return send(attach->fd, request, sizeof(*request), MSG_NOSIGNAL) == (ssize_t)sizeof(*request) ||
           errno == EPIPE || errno == ECONNRESET ||
           fail(attach, "process %u cannot be reached: %s", attach->pid, strerror(errno));
}

static bool take_answer(attach_t *attach, int *fd) {
    umf_attach_reply_t reply = {0};
    int given = -1;
    ssize_t got = receive(attach->fd, &reply, &given);
    bool is_done = got <= 0 ? fail_gone(attach)
                   : !is_reply(&reply, got)
                       ? fail(attach, "process %u answers in another language", attach->pid)
                       : judge(attach, &reply) && (!fd || is_file(attach, given));
    if (given != -1 && (!is_done || !fd)) {
        close(given);
        given = -1;
    }
    if (fd) {
        *fd = given;
    }
    return is_done;
}

bool attach_ask(attach_t *attach, const umf_attach_request_t *request, int *fd) {
    return send_request(attach, request) && wait_for_answer(attach) && take_answer(attach, fd);
}

bool attach_snapshot_ask(attach_t *attach, umf_attach_kind_t kind) {
    umf_attach_request_t request = attach_request(kind, NULL);
    return send_request(attach, &request);
}

umf_reader_t *attach_snapshot_take(attach_t *attach) {
    umf_reader_error_t error;
    char name[32];
    int fd = -1;
    if (!take_answer(attach, &fd)) {
        return NULL;
    }
    snprintf(name, sizeof(name), "process %u", attach->pid);
    umf_reader_t *reader = umf_reader_open_fd(fd, name, &error);
    if (!reader) {
        fail(attach, "%s", error.text);
    }
    close(fd);
    return reader;
}

umf_reader_t *attach_snapshot(attach_t *attach, umf_attach_kind_t kind) {
    return attach_snapshot_ask(attach, kind) && wait_for_answer(attach)
               ? attach_snapshot_take(attach)
               : NULL;
}

/* --- who listens ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Ascending, each once; returns how many. */
static unsigned unique(uint32_t *pids, unsigned count) {
    unsigned kept = 0;
    qsort(pids, count, sizeof(*pids), compare);
    for (unsigned i = 0; i < count; i++) {
        if (kept == 0 || pids[kept - 1] != pids[i]) {
            pids[kept++] = pids[i];
        }
    }
    return kept;
}

/* Anybody may bind any name, and connections have the name, too: names of no process, or of one
 * that this user may not look at, take no place. */
static bool may_listen(uint32_t pid) {
    char path[64];
    struct stat process;
    snprintf(path, sizeof(path), "/proc/%u", pid);
    return stat(path, &process) == 0 && (getuid() == 0 || process.st_uid == getuid());
}

unsigned attach_list(uint32_t *pids, unsigned most) {
    char line[512];
    unsigned long long mine = 0, space;
    unsigned count = 0, pid;
    FILE *file = fopen("/proc/net/unix", "re");
    namespace_of("self", "pid", &mine);
    while (file && count < most && fgets(line, sizeof(line), file)) {
        const char *name = strchr(line, '@');
        if (name && sscanf(name + 1, UMF_ATTACH_NAME, &space, &pid) == 2 && space == mine &&
            may_listen(pid)) {
            pids[count++] = pid;
            count = count == most ? unique(pids, count) : count;
        }
    }
    if (file) {
        fclose(file);
    }
    return unique(pids, count);
}
