/*
 * Opens the file again through /proc/<pid>/fd/<n>. Needs less permission than copying the
 * descriptor: to read the process, not to attach to it. The file is first opened without access,
 * because the number may name another file by now, and opening a device can have effects.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "peer/transport.h"
#include "system/os.h"

static int proc_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", ticket->pid, ticket->fd);
    int place;
    int error = umf_os_open(path, O_PATH, 0, &place);
    if (error) {
        return error;
    }
    error = umf_ticket_check_file(ticket, place);
    if (!error) {
        error = umf_os_check_regular(place);
    }
    if (!error) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
        error = umf_os_open(path, O_RDWR, 0, fd);
    }
    umf_os_close(place);
    return error;
}

const umf_transport_t umf_transport_proc = {
    .name = "proc",
    .what = "opening it again through /proc",
    .redeem = proc_redeem,
    .by_pid = true,
};
