/* The system: rights of a process, and access to its memory. See os.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/os_own.h"

bool umf_os_is_dumpable(void) {
    /* Only read, never set: the library does not import prctl (check_imports). */
    return os_fault("is_dumpable") == 0 && syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
}

/* The text behind "\nNAME:\t" of a status file. NULL: it has none. */
static const char *status_find(const char *status, const char *name) {
    size_t length = strlen(name);
    for (const char *line = status; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            return line + length + 1;
        }
    }
    return NULL;
}

static bool status_ids(const char *status, const char *name, uint32_t ids[4]) {
    const char *at = status_find(status, name);
    return at && sscanf(at, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) == 4;
}

static bool status_capabilities(const char *status, const char *name, uint64_t *set) {
    const char *at = status_find(status, name);
    *set = at ? strtoull(at, NULL, 16) : 0;
    return at != NULL;
}

static unsigned status_depth(const char *status) {
    const char *at = status_find(status, "NSpid");
    unsigned depth = 0;
    for (; at && *at == '\t'; at += strcspn(at, "\t\n")) {
        depth++;
        at++;
    }
    return depth;
}

int umf_os_rights(const char *process, umf_os_rights_t *rights) {
    char path[64], status[16384]; /* a process may have thousands of groups */
    int error = os_fault("rights");
    snprintf(path, sizeof(path), "/proc/%s/status", process);
    if (error == 0) {
        error = umf_os_read_text(path, status, sizeof(status));
    }
    if (error != 0) {
        return error;
    }
    rights->depth = status_depth(status);
    return status_ids(status, "Uid", rights->uids) && status_ids(status, "Gid", rights->gids) &&
                   status_capabilities(status, "CapPrm", &rights->permitted) &&
                   status_capabilities(status, "CapEff", &rights->effective)
               ? 0
               : EIO;
}

static int users_read(const char *process, char *map, size_t size) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/uid_map", process);
    return umf_os_read_text(path, map, size);
}

/* The namespace of a process with more rights than this one cannot be read; its map can. */
bool umf_os_shares_users(const char *process) {
    char path[64], mine[4096], theirs[4096];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%s/ns/user", process);
    if (os_fault("shares_users") != 0 || stat("/proc/self/ns/user", &own) != 0) {
        return false;
    }
    if (stat(path, &other) == 0) {
        return own.st_dev == other.st_dev && own.st_ino == other.st_ino;
    }
    return users_read("self", mine, sizeof(mine)) == 0 && mine[0] &&
           users_read(process, theirs, sizeof(theirs)) == 0 && strcmp(mine, theirs) == 0;
}
