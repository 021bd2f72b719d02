/* In the process that owns the descriptor: a duplicate. */
#include <errno.h>
#include <fcntl.h>

#include "peer/process.h"
#include "peer/transport.h"
#include "system/os.h"

static bool self_applies(const umf_fd_ticket_t *ticket) {
    umf_process_t self;
    umf_process_self(&self);
    return ticket->pid == self.pid && ticket->pid_ns == self.pid_ns &&
           ticket->start_time == self.start_time;
}

static int self_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    return umf_os_dup(ticket->fd, fd);
}

const umf_transport_t umf_transport_self = {
    .name = "self",
    .what = "a duplicate within the process",
    .applies = self_applies,
    .redeem = self_redeem,
    .copies = true,
};
