/* umf-bench-vault: a generation from umf-remote, beside plain gets of as many bytes from another
 * process, both through UCX over the loopback device, in turns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf.h>
#include <umf/remote.h>
#include <umf/text.h>
#include <umf/vault.h>

#include "owner.h"
#include "vault.h"

#define MIB ((size_t)1 << 20)
#define GET (64 * MIB)
#define ROUNDS 5
#define BAR 0.95 /* of the speed of plain gets */

static size_t size_of_fetch(void) {
    const char *text = getenv("UMF_BENCH_FETCH_MIB");
    size_t mib = text ? strtoul(text, NULL, 10) : 0;
    return (mib ? mib : 512) * MIB;
}

static bool vault_fill(size_t size) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    if (umfVaultOpen("served", NULL, &vault) != UMF_RESULT_SUCCESS ||
        umfVaultBegin(vault, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, REMOTE_POOL, &pool) != UMF_RESULT_SUCCESS) {
        return false;
    }
    bool is_put = true;
    for (int i = 0; i < 2 && is_put; i++) {
        void *slab = umfPoolMalloc(pool, size / 2);
        is_put = slab && umfVaultPut(draft, i ? "b" : "a", memset(slab, 'a' + i, size / 2),
                                     size / 2, NULL, 0, 0) == UMF_RESULT_SUCCESS;
    }
    return is_put && umfVaultCommit(draft, NULL, NULL) == UMF_RESULT_SUCCESS &&
           umfVaultClose(vault) == UMF_RESULT_SUCCESS;
}

/* The process of `umf-remote serve`, and the address of its vault. */
static pid_t server_start(const char *program, char *address, size_t size) {
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t process = fork();
    if (process == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(program, "umf-remote", "serve", "served", (char *)NULL);
        perror(program);
        _exit(1);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    bool has_line = from && fgets(address, (int)size, from);
    if (from) {
        fclose(from);
    }
    char *name = has_line ? strchr(address, ' ') : NULL;
    if (name) {
        memmove(address, name + 1, strlen(name));
    }
    return name ? process : -1;
}

/* Into new memory of the same kind. */
static bool gets(umf_remote_handle_t remote, const owner_t *owner, size_t size, double *ms) {
    umf_remote_memory_handle_t memory;
    umf_memory_pool_handle_t pool;
    double start = now_ms(CLOCK_MONOTONIC);
    if (umfPoolCreateFromText(REMOTE_POOL, &pool) != UMF_RESULT_SUCCESS) {
        return false;
    }
    char *to = umfPoolMalloc(pool, size);
    bool is_good = to && umfRemoteOpen(remote, owner->handle, owner->handle_size, &memory) ==
                             UMF_RESULT_SUCCESS;
    for (size_t at = 0; at < size && is_good; at += GET) {
        size_t part = size - at < GET ? size - at : GET;
        is_good = umfRemoteGet(memory, at, to + at, part, NULL) == UMF_RESULT_SUCCESS;
    }
    *ms = now_ms(CLOCK_MONOTONIC) - start;
    is_good = is_good && umfRemoteClose(memory) == UMF_RESULT_SUCCESS;
    umfFree(to);
    return umfPoolDestroy(pool) == UMF_RESULT_SUCCESS && is_good;
}

static bool fetch(umf_remote_handle_t remote, const char *address, double *ms) {
    umf_vault_handle_t vault;
    umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
    params.keep = 0;
    if (umfVaultOpen("fetched", NULL, &vault) != UMF_RESULT_SUCCESS) {
        return false;
    }
    double start = now_ms(CLOCK_MONOTONIC);
    bool is_good = umfVaultFetch(vault, remote, address, &params, NULL) == UMF_RESULT_SUCCESS;
    *ms = now_ms(CLOCK_MONOTONIC) - start;
    is_good = is_good && umfVaultDrop(vault, 0) == UMF_RESULT_SUCCESS;
    return umfVaultClose(vault) == UMF_RESULT_SUCCESS && is_good;
}

void fetches(const char *program) {
    size_t size = size_of_fetch();
    owner_t owner = {0};
    char address[4096], what[80];
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote = NULL;
    double best_gets = 1e9, best_fetch = 1e9;
    params.flags = UMF_REMOTE_NETWORK_ONLY;
    bool is_good = owner_start(&owner, size, UMF_REMOTE_GET) && vault_fill(size);
    pid_t server = is_good ? server_start(program, address, sizeof(address)) : -1;
    is_good = server > 0 && umfRemoteCreate(&params, &remote) == UMF_RESULT_SUCCESS;
    for (int i = 0; i < ROUNDS && is_good; i++) {
        double ms_gets, ms_fetch;
        is_good = gets(remote, &owner, size, &ms_gets) && fetch(remote, address, &ms_fetch);
        best_gets = is_good ? least(best_gets, ms_gets) : best_gets;
        best_fetch = is_good ? least(best_fetch, ms_fetch) : best_fetch;
    }
    if (is_good) {
        snprintf(what, sizeof(what), "fetch of %zu MiB in 2 slabs, times plain gets", size / MIB);
        row(what, best_fetch / best_gets, "x", 1 / BAR);
        anchor("the fetch", best_fetch, "ms");
        anchor("gets of 64 MiB from another process", best_gets, "ms");
    } else {
        not_measured("fetch of a generation");
    }
    umfRemoteDestroy(remote);
    process_end(server);
    process_end(owner.process);
}
