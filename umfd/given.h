/* Socket activation: a service manager listens, and hands its socket to the service that it starts
 * (LISTEN_PID, LISTEN_FDS). */
#ifndef UMFD_GIVEN_H
#define UMFD_GIVEN_H

#include <stdbool.h>

/* The socket that was handed over to this process; -1: none. Its environment says so once. */
int umfd_given(void);
/* Whether it is a listening socket with the name of the place, which is the current folder, and
 * another program gave it that name: it stays when the service ends. */
bool umfd_given_is(int fd);

#endif
