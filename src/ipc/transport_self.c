/* Within one process: a duplicate of the descriptor. */
#include <errno.h>
#include <fcntl.h>

#include "base/os.h"
#include "ipc/process.h"
#include "ipc/transport.h"

static bool self_applies(const umf_fd_ticket_t *ticket) {
    return ticket->pid == umf_process_pid();
}

static int self_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    return umf_os_dup(ticket->fd, fd);
}

const umf_transport_t umf_transport_self = {
    .name = "same process",
    .applies = self_applies,
    .redeem = self_redeem,
    .copies = true,
};
