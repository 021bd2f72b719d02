#include "given.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ext/vault/protocol.h"

#define FIRST 3 /* where handed over descriptors begin */

int umfd_given(void) {
    const char *process = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    bool is_given = process && count && strtol(process, NULL, 10) == (long)getpid() &&
                    strtol(count, NULL, 10) >= 1;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!is_given || fcntl(FIRST, F_SETFD, FD_CLOEXEC) == -1 ||
        fcntl(FIRST, F_SETFL, O_NONBLOCK) == -1) {
        return -1;
    }
    return FIRST;
}

static bool has(int fd, int option, int requested) {
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == requested;
}

bool umfd_given_is(int fd) {
    struct sockaddr_un name = {0};
    socklen_t size = sizeof(name);
    struct stat theirs, ours;
    return has(fd, SO_DOMAIN, AF_UNIX) && has(fd, SO_TYPE, SOCK_SEQPACKET) &&
           has(fd, SO_ACCEPTCONN, 1) && getsockname(fd, (struct sockaddr *)&name, &size) == 0 &&
           name.sun_path[0] == '/' && /* the name of one of ours is relative */
           lstat(name.sun_path, &theirs) == 0 && lstat(UMF_VAULT_SOCKET, &ours) == 0 &&
           theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}
