/* Start of the daemon of vaults by the first open. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "ext/vault/link.h"

#define IDLE "--idle=60"

static const char *program(void) {
    const char *path = secure_getenv("UMF_UMFD");
    return path && *path ? path : UMF_VAULT_PROGRAM;
}

/* It starts with no signal blocked or ignored, whatever the caller does with them. */
static int spawn(const char *path, char *const *words, pid_t *child) {
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawnattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    error = posix_spawn(child, path, NULL, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    return error;
}

umf_result_t umf_vault_start(const char *folder) {
    char place[UMF_VAULT_PLACE_SIZE + 8];
    char name[] = "umfd", detach[] = "--detach", idle[] = IDLE;
    char *const words[] = {name, place, detach, idle, NULL};
    pid_t child;
    snprintf(place, sizeof(place), "--dir=%s", folder);
    int error = spawn(program(), words, &child);
    if (error != 0) {
        errno = error;
        UMF_LOG_PERROR("the service of vaults cannot be started: %s (UMF_UMFD names the program)",
                       program());
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    int status = 0;
    pid_t ended;
    do {
        ended = waitpid(child, &status, 0);
    } while (ended == -1 && errno == EINTR);
    /* A program may ignore the end of its children; then a failed connection is the answer. */
    bool is_known = ended == child && WIFEXITED(status);
    if (is_known && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != UMFD_RUNS_ALREADY) {
        UMF_LOG_ERROR("the service of vaults, %s, did not start in %s: exit code %d", program(),
                      folder, WEXITSTATUS(status));
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return UMF_RESULT_SUCCESS;
}
