/* The kernel copies the descriptor. Needs the permission to attach to the producer (ptrace). */
#include <errno.h>

#include "peer/transport.h"
#include "system/os.h"

static int pidfd_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    umf_process_t producer = umf_ticket_producer(ticket);
    int known = umf_process_trusted_pidfd(&producer);
    if (known != -1) {
        return umf_os_pidfd_getfd(known, ticket->fd, fd);
    }
    int process;
    int error = umf_os_pidfd_open((int)ticket->pid, &process);
    if (error) {
        return error;
    }
    error = umf_os_pidfd_getfd(process, ticket->fd, fd);
    umf_os_close(process);
    return error;
}

const umf_transport_t umf_transport_pidfd = {
    .name = "pidfd",
    .what = "pidfd_getfd",
    .redeem = pidfd_redeem,
    .copies = true,
    .by_pid = true,
};
