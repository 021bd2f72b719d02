#include "ext/vault/link.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#include "base/last_error.h"
#include "base/lock.h"
#include "base/log.h"
#include "system/os.h"
#include "system/socket.h"

#define REPEAT_FIRST 25 /* ms without an answer after which a request is sent again */
#define REPEAT_SOON 50  /* at most, for the time in which a daemon is usually there again */
#define SOON 1000
#define REPEAT_LAST 400
#define GREETING 100 /* ms without an answer to the first request, at first */
#define START_AGAIN                                                                                \
    100 /* ms after which the daemon is started again: the former one may just have ended */

/* --- links and fork --------------------------------------------------------------------------- */

UMF_LOCK_STATIC(links_lock, UMF_RANK_VAULTS);
static umf_link_t *links; /* Sync: links_lock */

/* In a child: its copies of the sockets would keep the leases of the parent. */
static void forget_parent(void) {
    for (umf_link_t *link = links; link; link = link->next) {
        umf_kept_fd_close(&link->socket);
        if (link->in_child) {
            link->in_child(link);
        }
    }
    links = NULL;
}

static void links_add(umf_link_t *link) {
    static atomic_bool is_watching;
    if (!atomic_exchange(&is_watching, true) && pthread_atfork(NULL, NULL, forget_parent) != 0) {
        atomic_store(&is_watching, false);
    }
    umf_lock(&links_lock);
    link->prev = NULL;
    link->next = links;
    if (links) {
        links->prev = link;
    }
    links = link;
    umf_unlock(&links_lock);
}

static void links_remove(umf_link_t *link) {
    umf_lock(&links_lock);
    if (link->prev) {
        link->prev->next = link->next;
    } else {
        links = link->next;
    }
    if (link->next) {
        link->next->prev = link->prev;
    }
    umf_kept_fd_close(&link->socket);
    umf_unlock(&links_lock);
}

int umf_link_keep(umf_link_t *link, int fd) {
    umf_lock(&links_lock);
    int error = umf_kept_fd_take(&link->socket, fd);
    umf_unlock(&links_lock);
    return error;
}

void umf_link_forget(umf_link_t *link) {
    umf_lock(&links_lock);
    umf_kept_fd_close(&link->socket);
    umf_unlock(&links_lock);
}

bool umf_link_is_ours(const umf_link_t *link) {
    return link->forks == umf_fork_count();
}

/* --- connecting ------------------------------------------------------------------------------- */

void umf_link_nap(unsigned ms) {
    struct timespec time = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&time, NULL);
}

/* The folder of the place, which must be ours: its daemon gets our memory. */
static int open_folder(const char *path, int *fd) {
    struct stat about;
    int error = umf_os_open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, fd);
    if (error != 0) {
        return error;
    }
    if (fstat(*fd, &about) != 0 || (about.st_uid != geteuid() && geteuid() != 0) ||
        (about.st_mode & 077) != 0) {
        umf_os_close(*fd);
        return EPERM;
    }
    return 0;
}

/* ENOENT, ECONNREFUSED: no daemon. */
static int connect_once(umf_link_t *link) {
    int folder, fd;
    int error = open_folder(link->folder, &folder);
    if (error != 0) {
        return error;
    }
    /* The path of the folder may be longer than the name of a socket. */
    char path[64];
    umf_socket_address_t address;
    snprintf(path, sizeof(path), "/proc/self/fd/%d/" UMF_VAULT_SOCKET, folder);
    error = umf_socket_path(path, &address);
    if (error == 0) {
        error = umf_socket_open(&fd);
    }
    if (error == 0) {
        error = umf_socket_connect(fd, &address);
        if (error == 0) {
            error = umf_link_keep(link, fd);
        } else {
            umf_os_close(fd);
        }
    }
    umf_os_close(folder);
    return error;
}

static umf_result_t connect_refused(const umf_link_t *link, int error) {
    errno = error;
    if (error == EPERM) {
        UMF_LOG_ERROR("%s must be a folder of this user with mode 0700, because the service in it "
                      "gets memory (UMF_VAULT_DIR names another one)",
                      link->folder);
        umf_last_reason_set(UMF_REASON_DENIED);
    } else {
        UMF_LOG_PERROR("no service of vaults answers in %s", link->folder);
        umf_last_reason_set(UMF_REASON_ABSENT);
    }
    return error == EAGAIN ? UMF_RESULT_ERROR_OUT_OF_RESOURCES
                           : UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
}

static umf_result_t connect_by(umf_link_t *link, uint64_t deadline) {
    uint64_t start_next = 0;
    for (;;) {
        int error = connect_once(link);
        if (error == 0) {
            return UMF_RESULT_SUCCESS;
        }
        uint64_t now = umf_socket_now();
        bool may_start = (error == ENOENT || error == ECONNREFUSED) && link->starts;
        if ((error != EAGAIN && !may_start) || (now >= deadline && start_next)) {
            return connect_refused(link, error);
        }
        if (may_start && now >= start_next) {
            umf_result_t result = umf_vault_start(link->folder);
            if (result != UMF_RESULT_SUCCESS) {
                return result;
            }
            start_next = umf_socket_now() + START_AGAIN;
        } else {
            umf_link_nap(2);
        }
    }
}

/* --- requests --------------------------------------------------------------------------------- */

typedef enum outcome_t { ANSWERED, LOST, LATE, NO_ROOM, STRANGE } outcome_t;

static outcome_t send_request(umf_link_t *link, const umf_vault_message_t *message,
                              const umf_link_call_t *call, uint64_t deadline) {
    struct iovec parts[] = {
        {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)},
        {.iov_base = (void *)(uintptr_t)call->body, .iov_len = call->body_size}};
    for (;;) {
        int error = umf_socket_send_parts(link->socket.number, parts, 2, call->pass, call->passes);
        if (error == 0) {
            return ANSWERED;
        }
        if (error != EAGAIN && error != ETOOMANYREFS) {
            return LOST;
        }
        if (umf_socket_now() >= deadline) {
            return LATE;
        }
        umf_link_nap(1);
    }
}

static void close_passed(umf_link_call_t *call, const int *passed) {
    for (unsigned i = 0; i < call->passed_count; i++) {
        umf_os_close(passed[i]);
    }
    call->passed_count = 0;
}

/* LATE: this message is not the answer. */
static outcome_t receive_answer(umf_link_t *link, const umf_vault_message_t *request,
                                umf_link_call_t *call) {
    char ignored[8];
    size_t got;
    struct iovec parts[] = {{.iov_base = &call->message, .iov_len = sizeof(call->message)},
                            {.iov_base = call->answer ? call->answer : ignored,
                             .iov_len = call->answer ? UMF_VAULT_BODY_MAX : sizeof(ignored)}};
    call->passed_count = call->passed ? UMF_VAULT_FDS_MAX : 0;
    int error = umf_socket_receive_parts(link->socket.number, parts, 2, &got, call->passed,
                                         call->passed ? &call->passed_count : NULL);
    const umf_vault_message_t *answer = &call->message;
    if (error != 0) {
        call->passed_count = 0;
        bool is_earlier = error == EMSGSIZE && answer->magic == UMF_VAULT_MAGIC &&
                          answer->sequence != request->sequence;
        return error == EAGAIN || is_earlier ? LATE : error == EMFILE ? NO_ROOM : LOST;
    }
    if (got == 0) {
        return LOST;
    }
    bool is_right = got >= sizeof(*answer) && answer->magic == UMF_VAULT_MAGIC &&
                    answer->body == got - sizeof(*answer);
    if (is_right && answer->sequence == 0 && answer->answer != UMF_VAULT_OK) {
        return ANSWERED; /* to the connection */
    }
    if (!is_right || answer->sequence != request->sequence) {
        close_passed(call, call->passed);
        return is_right ? LATE : STRANGE;
    }
    return ANSWERED;
}

static outcome_t exchange(umf_link_t *link, umf_link_call_t *call, uint64_t deadline) {
    umf_vault_message_t request = call->message;
    request.magic = UMF_VAULT_MAGIC;
    request.version = request.op < UMF_VAULT_FILL ? UMF_VAULT_VERSION : UMF_VAULT_VERSION_COPIES;
    request.sequence = ++link->sequence;
    request.body = call->body_size;
    uint64_t repeat = REPEAT_FIRST, start = umf_socket_now();
    while (umf_kept_fd_is_open(&link->socket)) {
        outcome_t outcome = send_request(link, &request, call, deadline);
        uint64_t now = umf_socket_now();
        uint64_t until = now + repeat < deadline ? now + repeat : deadline;
        while (outcome == ANSWERED) {
            int error = umf_socket_wait(link->socket.number, until);
            if (error != 0) {
                outcome = error == ETIMEDOUT ? LATE : LOST;
                break;
            }
            outcome = receive_answer(link, &request, call);
            if (outcome != LATE) {
                return outcome;
            }
            outcome = ANSWERED; /* one of an earlier request, or of a repetition */
        }
        if (outcome != LATE || umf_socket_now() >= deadline) {
            return outcome;
        }
        uint64_t most = umf_socket_now() - start < SOON ? REPEAT_SOON : REPEAT_LAST;
        repeat = repeat * 2 < most ? repeat * 2 : most;
    }
    return LOST;
}

static umf_result_t outcome_result(const umf_link_t *link, outcome_t outcome, bool is_wait) {
    switch (outcome) {
    case ANSWERED:
        return UMF_RESULT_SUCCESS;
    case LATE:
        if (is_wait) {
            umf_last_error_set("vault %s has no event in time", link->name);
        } else {
            UMF_LOG_ERROR("the service of vaults in %s does not answer in %llu ms", link->folder,
                          (unsigned long long)link->timeout_ms);
        }
        umf_last_reason_set(UMF_REASON_TIMEOUT);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    case NO_ROOM:
        return UMF_FAIL(UMF_REASON_EXHAUSTED, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                        "no room for descriptors of the service of vaults: raise the limit of open "
                        "files");
    case LOST:
        return UMF_FAIL(UMF_REASON_GONE, UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE,
                        "the service of vaults in %s has ended", link->folder);
    default:
        return UMF_FAIL(UMF_REASON_IDENTITY, UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE,
                        "the program that answers in %s is no service of vaults", link->folder);
    }
}

static umf_result_t greet(umf_link_t *link, uint64_t deadline, outcome_t *outcome) {
    umf_link_call_t hello = {.message = {.op = UMF_VAULT_HELLO, .words = {link->limit, link->keep}},
                             .body = link->name,
                             .body_size = (uint32_t)strlen(link->name)};
    *outcome = exchange(link, &hello, deadline);
    if (*outcome != ANSWERED) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    umf_result_t result = umf_link_result(link, &hello.message, link->name);
    if (result == UMF_RESULT_SUCCESS) {
        if (link->nonce && link->nonce != hello.message.nonce) {
            UMF_LOG_WARN("both processes of the service of vaults in %s have ended: its content is "
                         "lost, except for mapped memory",
                         link->folder);
        }
        link->nonce = hello.message.nonce;
    }
    return result;
}

/* A daemon that ends closes its connections a moment before its socket. One that was stopped when
 * it had accepted a connection, and had not given it to the keeper yet, is noticed by another one.
 */
static umf_result_t join(umf_link_t *link, uint64_t deadline) {
    for (uint64_t patience = GREETING;;) {
        outcome_t outcome = ANSWERED;
        umf_result_t result = connect_by(link, deadline);
        uint64_t now = umf_socket_now();
        if (result == UMF_RESULT_SUCCESS && link->name[0]) {
            result = greet(link, now + patience < deadline ? now + patience : deadline, &outcome);
        }
        if (outcome == ANSWERED) {
            return result;
        }
        if ((outcome != LOST && outcome != LATE) || umf_socket_now() >= deadline) {
            return outcome_result(link, outcome, false);
        }
        patience = outcome == LATE ? patience * 2 : patience;
        umf_link_forget(link);
        umf_link_nap(2);
    }
}

static umf_result_t reconnect(umf_link_t *link, uint64_t deadline) {
    umf_link_forget(link);
    link->epoch++;
    return join(link, deadline);
}

static uint64_t deadline_of(uint64_t ms) {
    uint64_t now = umf_socket_now();
    return ms < UINT64_MAX - now ? now + ms : UINT64_MAX;
}

void umf_link_lock_take(umf_link_lock_t *lock) {
    for (;;) {
        uint32_t seen = umf_event_count_read(&lock->ended);
        if (!__atomic_exchange_n(&lock->is_taken, 1, __ATOMIC_ACQUIRE)) {
            return;
        }
        umf_event_count_wait(&lock->ended, seen);
    }
}

void umf_link_lock_end(umf_link_lock_t *lock) {
    __atomic_store_n(&lock->is_taken, 0, __ATOMIC_RELEASE);
    umf_event_count_advance(&lock->ended);
}

umf_result_t umf_link_call(umf_link_t *link, umf_link_call_t *call) {
    umf_vault_message_t request = call->message;
    bool is_awaited = !link->is_closing || !link->is_late;
    uint64_t ms = call->is_wait ? call->timeout_ms : is_awaited ? link->timeout_ms : 1;
    uint64_t deadline = deadline_of(ms);
    umf_link_lock_take(&link->lock);
    outcome_t outcome = exchange(link, call, deadline);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (outcome == LOST && call->is_ending) {
        call->message.answer = UMF_VAULT_OK;
        outcome = ANSWERED;
    } else if (outcome == LOST && !call->is_bound) {
        result = reconnect(link, deadline_of(link->timeout_ms));
        if (result == UMF_RESULT_SUCCESS) {
            call->message = request;
            outcome = exchange(link, call, deadline);
        }
    }
    bool is_late = outcome == LATE;
    if (link->is_closing) { /* by the only thread that still uses it */
        link->is_late = is_late;
    }
    umf_link_lock_end(&link->lock);
    if (is_late && !is_awaited) { /* the first of them is in the log */
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return result ? result : outcome_result(link, outcome, call->is_wait);
}

void umf_link_open_plain(umf_link_t *link) {
    link->forks = umf_fork_count();
    links_add(link);
}

umf_result_t umf_link_open(umf_link_t *link) {
    umf_link_open_plain(link);
    umf_result_t result = join(link, deadline_of(link->timeout_ms));
    if (result != UMF_RESULT_SUCCESS) {
        links_remove(link);
    }
    return result;
}

void umf_link_close(umf_link_t *link) {
    if (umf_link_is_ours(link)) {
        links_remove(link);
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

#define REFUSE(reason, result, ...)                                                                \
    return UMF_FAIL(UMF_REASON_##reason, UMF_RESULT_ERROR_##result, __VA_ARGS__)

umf_result_t umf_link_result(const umf_link_t *link, const umf_vault_message_t *answer,
                             const char *what) {
    unsigned long long words[] = {answer->words[0], answer->words[1], answer->words[2]};
    switch ((umf_vault_answer_t)answer->answer) {
    case UMF_VAULT_OK:
        return UMF_RESULT_SUCCESS;
    case UMF_VAULT_NONE:
        REFUSE(ABSENT, INVALID_ARGUMENT, "%s: there is no such generation", what);
    case UMF_VAULT_BUSY:
        REFUSE(BUSY, OUT_OF_RESOURCES, "%s: other clients are there", what);
    case UMF_VAULT_LIMIT:
        REFUSE(LIMIT, OUT_OF_RESOURCES,
               "%s: the limit of the vault is %llu bytes, and it has %llu: drop generations", what,
               words[0], words[1]);
    case UMF_VAULT_WRITABLE:
        REFUSE(WRITABLE, OUT_OF_RESOURCES,
               "%s: slab %llu is mapped writable by another process, such as a child of fork: it "
               "must unmap the memory or end first",
               what, words[2]);
    case UMF_VAULT_UNSEALED:
        REFUSE(UNSUPPORTED, NOT_SUPPORTED, "%s: slab %llu is no memory file that can be sealed",
               what, words[2]);
    case UMF_VAULT_FULL:
        REFUSE(EXHAUSTED, OUT_OF_RESOURCES,
               "%s: a table of the service is full, it has %llu places", what, words[0]);
    case UMF_VAULT_DESCRIPTORS:
        REFUSE(EXHAUSTED, OUT_OF_RESOURCES,
               "%s: the service has %llu open files and may have %llu: raise its limit of open "
               "files, or use larger pieces",
               what, words[1], words[0]);
    case UMF_VAULT_BROKEN:
        REFUSE(BROKEN, INVALID_ARGUMENT,
               "%s: the generation has lost memory and is broken: drop it", what);
    case UMF_VAULT_DENIED:
        REFUSE(DENIED, INVALID_ARGUMENT, "%s: the vault, or its service, belongs to another user",
               what);
    case UMF_VAULT_PENDING:
        REFUSE(TIMEOUT, OUT_OF_RESOURCES, "%s: the others of the group did not commit in time",
               what);
    case UMF_VAULT_ENDED:
        REFUSE(STALE, INVALID_ARGUMENT,
               "%s: the draft, its group or the generation was ended meanwhile", what);
    case UMF_VAULT_OLD:
        REFUSE(UNSUPPORTED, NOT_SUPPORTED,
               "%s: the service in %s speaks version %llu of the protocol, this library version "
               "%d: end the older one of both",
               what, link->folder, words[0], UMF_VAULT_VERSION_COPIES);
    case UMF_VAULT_FOREIGN:
        REFUSE(UNSUPPORTED, INVALID_ARGUMENT,
               "%s: the descriptor of slab %llu cannot be that of a device", what, words[2]);
    case UMF_VAULT_EVICTED:
        REFUSE(BUSY, OUT_OF_RESOURCES,
               "%s: memory of devices of generation %llu was evicted meanwhile: try again", what,
               words[0]);
    case UMF_VAULT_UNCOPIED:
        REFUSE(UNSUPPORTED, INVALID_ARGUMENT,
               "%s: no memory of a device has a copy: take a snapshot first", what);
    case UMF_VAULT_STALE:
        REFUSE(STALE, INVALID_ARGUMENT,
               "%s: the claim is not held here with this epoch; its epoch is %llu", what, words[0]);
    case UMF_VAULT_DIFFERS:
        REFUSE(IDENTITY, INVALID_ARGUMENT, "%s: the memory of the claim has another size", what);
    case UMF_VAULT_UNFENCED:
        REFUSE(DENIED, NOT_SUPPORTED,
               "%s: process %llu holds it, and cannot be ended: it is of another user or namespace",
               what, words[0]);
    default:
        REFUSE(NONE, INVALID_ARGUMENT, "%s: the service refuses the request", what);
    }
}
