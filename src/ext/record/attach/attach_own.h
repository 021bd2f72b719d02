/* The inside of attaching, for its files. */
#ifndef UMF_SRC_EXT_RECORD_ATTACH_ATTACH_OWN_H
#define UMF_SRC_EXT_RECORD_ATTACH_ATTACH_OWN_H

#include <umf/record_attach.h>

#include "system/common.h"

#define UMF_ATTACH_CLIENTS 8u /* connections at a time */

/* attach_admit.c: why no program may look at this process; NULL: some may. */
const char *umf_attach_forbidden(void);
/* Whether the process at the other end may ptrace this one. It costs some reads of /proc. */
bool umf_attach_admits(int connection);

/* Is the socket about to be closed? What takes long shall end then. */
bool umf_attach_is_closing(void);

/* The answer, and the descriptor that is sent with it; -1: none. */
typedef struct umf_attach_answer_t {
    umf_attach_reply_t reply;
    int fd;
} umf_attach_answer_t;

__attribute__((format(printf, 2, 3))) void umf_attach_fail(umf_attach_answer_t *answer,
                                                           const char *format, ...);

/* A status other than UMF_ATTACH_FAILED. */
void umf_attach_refuse(umf_attach_answer_t *answer, umf_attach_status_t why);

/* attach_serve.c: executes a request. `client`: its sender. */
void umf_attach_serve(unsigned client, const umf_attach_request_t *request,
                      umf_attach_answer_t *answer);
/* The client has gone. */
void umf_attach_forget(unsigned client);

#endif
