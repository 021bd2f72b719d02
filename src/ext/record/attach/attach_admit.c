/* Whom the attach socket answers: processes that the kernel would let ptrace this one
 * (__ptrace_may_access of Linux), whatever Yama says. */
#include <stdio.h>

#include "ext/record/attach/attach_own.h"
#include "system/os.h"
#include "system/socket.h"

#define CAP_PTRACE ((uint64_t)1 << 19) /* CAP_SYS_PTRACE of linux/capability.h */

const char *umf_attach_forbidden(void) {
    if (umf_os_is_privileged()) {
        return "the program has rights that its user does not have (set-user-ID, set-group-ID or "
               "capabilities of its file)";
    }
    if (!umf_os_is_dumpable()) {
        return "the process is not dumpable (PR_SET_DUMPABLE, or its user has changed), so no "
               "program of its user may ptrace it";
    }
    return NULL;
}

static bool ids_are(const uint32_t ids[3], uint32_t id) {
    return ids[0] == id && ids[1] == id && ids[2] == id;
}

/* With the rights of `own`, which may be those of one thread. */
static bool may_ptrace(const umf_os_rights_t *peer, const umf_os_rights_t *own) {
    bool is_own = umf_os_is_own_user(peer->uids[0]) && ids_are(own->uids, peer->uids[0]) &&
                  ids_are(own->gids, peer->gids[0]) && (own->permitted & ~peer->permitted) == 0;
    return peer->depth == own->depth && (is_own || (peer->effective & CAP_PTRACE));
}

bool umf_attach_admits(int connection) {
    umf_os_rights_t peer, process, thread;
    uint32_t uid, gid, pid;
    char number[16];
    if (umf_attach_forbidden() || umf_socket_peer_ids(connection, &uid, &gid, &pid) != 0 ||
        pid == 0) { /* it is in another pid namespace */
        return false;
    }
    snprintf(number, sizeof(number), "%u", pid);
    if (umf_os_rights(number, &peer) != 0 || umf_os_rights("self", &process) != 0 ||
        umf_os_rights("thread-self", &thread) != 0) {
        return false;
    }
    return ids_are(peer.uids, uid) && ids_are(peer.gids, gid) && may_ptrace(&peer, &process) &&
           may_ptrace(&peer, &thread) && umf_os_shares_users(number);
}
