/* The table of transports, and what must hold before and after one is used. */
#include "ipc/transport.h"

#include <errno.h>

#include "base/log.h"
#include "base/os.h"
#include "ipc/process.h"

/* In the order they are tried: cheapest and least demanding first. */
static const umf_transport_t *const transports[] = {
    &umf_transport_self,
    &umf_transport_proc,
    &umf_transport_pidfd,
};
#define TRANSPORTS UMF_COUNT_OF(transports)

_Static_assert(sizeof(umf_fd_ticket_t) == 48, "tickets travel between processes");

umf_result_t umf_ticket_make(int fd, umf_fd_ticket_t *ticket) {
    umf_process_t self;
    umf_process_self(&self);
    umf_fd_ticket_t made = {
        .boot_id = self.boot_id,
        .start_time = self.start_time,
        .pid = self.pid,
        .pid_ns = self.pid_ns,
        .fd = fd,
    };
    uint64_t size;
    int error = umf_os_file_id(fd, &made.dev, &made.ino, &size);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("asking for the identity of descriptor %d failed", fd);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    *ticket = made;
    return UMF_RESULT_SUCCESS;
}

int umf_ticket_check_file(const umf_fd_ticket_t *ticket, int fd) {
    uint64_t dev, ino, size;
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    if (error) {
        return error;
    }
    return dev == ticket->dev && ino == ticket->ino ? 0 : ESTALE;
}

static umf_result_t ticket_check(const umf_fd_ticket_t *ticket) {
    if (ticket->fd < 0 || ticket->pid == 0 || ticket->pid > INT32_MAX || ticket->reserved != 0) {
        UMF_LOG_ERROR("descriptor %d of process %u cannot exist: the handle is damaged", ticket->fd,
                      ticket->pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_process_t self;
    umf_process_self(&self);
    if (ticket->boot_id == self.boot_id && ticket->pid_ns != self.pid_ns) {
        UMF_LOG_ERROR(
            "the producer's process id %u holds in another pid namespace (container); use "
            "named shared memory between containers",
            ticket->pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_process_t producer = {
        .boot_id = ticket->boot_id,
        .start_time = ticket->start_time,
        .pid = ticket->pid,
        .pid_ns = ticket->pid_ns,
    };
    return umf_process_check(&producer);
}

/* One way, and the identity of what it gave. */
static int transport_try(const umf_transport_t *transport, const umf_fd_ticket_t *ticket, int *fd) {
    int got;
    int error = transport->redeem(ticket, &got);
    if (error) {
        return error;
    }
    error = umf_ticket_check_file(ticket, got);
    if (error) {
        umf_os_close(got);
        return error;
    }
    *fd = got;
    return 0;
}

static const char *transport_hint(int error) {
    switch (error) {
    case EPERM:
    case EACCES:
        return ": permission towards the producer is missing (same user? the producer may allow it "
               "with prctl(PR_SET_PTRACER, ...), see also kernel.yama.ptrace_scope)";
    case EMFILE:
    case ENFILE:
        return ": no descriptor is left (ulimit -n)";
    case ESTALE:
    case EBADF:
    case ENOENT:
        return ": the producer has closed the descriptor, its provider is destroyed";
    case ESRCH:
        return ": the producer has ended";
    default:
        return "";
    }
}

/* `errors` holds one value for each way; 0 for one that was not tried. */
static void transport_report(umf_log_level_t level, const umf_fd_ticket_t *ticket,
                             const int errors[TRANSPORTS]) {
    for (size_t i = 0; i < TRANSPORTS; i++) {
        if (errors[i]) {
            umf_log_write(level, errors[i], "umf_ticket_redeem",
                          "getting descriptor %d of process %u by way of \"%s\" failed%s",
                          ticket->fd, ticket->pid, transports[i]->name, transport_hint(errors[i]));
        }
    }
}

static umf_result_t transport_result(const int errors[TRANSPORTS]) {
    bool supported = false;
    for (size_t i = 0; i < TRANSPORTS; i++) {
        if (errors[i] == EMFILE || errors[i] == ENFILE || errors[i] == ENOMEM) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        supported = supported || (errors[i] && errors[i] != ENOSYS);
    }
    return supported ? UMF_RESULT_ERROR_INVALID_ARGUMENT : UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t ticket_redeem(const umf_fd_ticket_t *ticket, bool copy_only, int *fd) {
    umf_result_t result = ticket_check(ticket);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int errors[TRANSPORTS] = {0};
    for (size_t i = 0; i < TRANSPORTS; i++) {
        const umf_transport_t *transport = transports[i];
        if ((transport->applies && !transport->applies(ticket)) ||
            (copy_only && !transport->copies)) {
            continue;
        }
        errors[i] = transport_try(transport, ticket, fd);
        if (errors[i] == 0) {
            transport_report(UMF_LOG_LEVEL_DEBUG, ticket, errors);
            return UMF_RESULT_SUCCESS;
        }
    }
    transport_report(UMF_LOG_LEVEL_ERROR, ticket, errors);
    return transport_result(errors);
}

umf_result_t umf_ticket_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    return ticket_redeem(ticket, false, fd);
}

umf_result_t umf_ticket_redeem_copy(const umf_fd_ticket_t *ticket, int *fd) {
    return ticket_redeem(ticket, true, fd);
}
