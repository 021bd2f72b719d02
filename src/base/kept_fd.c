#include "base/kept_fd.h"

#include <errno.h>

#include "base/log.h"

int umf_kept_fd_take(umf_kept_fd_t *kept, int fd) {
    int error = umf_os_identity(fd, &kept->identity);
    if (error != 0) {
        umf_os_close(fd);
        return error;
    }
    kept->number = fd;
    kept->is_kept = true;
    return 0;
}

bool umf_kept_fd_is_open(const umf_kept_fd_t *kept) {
    return kept->is_kept && umf_os_has_identity(kept->number, &kept->identity);
}

int umf_kept_fd_check(const umf_kept_fd_t *kept, const char *what) {
    if (umf_kept_fd_is_open(kept)) {
        return 0;
    }
    UMF_LOG_ERROR("descriptor %d is no longer %s, which the library opened: the program has closed "
                  "it. A program that closes descriptors that it does not know must do so before "
                  "it uses the library",
                  kept->is_kept ? kept->number : -1, what);
    return EBADF;
}

void umf_kept_fd_close(umf_kept_fd_t *kept) {
    if (umf_kept_fd_is_open(kept)) {
        umf_os_close(kept->number);
    }
    kept->is_kept = false;
}
