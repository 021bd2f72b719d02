/*
 * A reader that follows the updates of a vault: it serves from one generation until the next one is
 * there, and changes over between two requests. An update changes one entry and keeps the others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/vault.h>

#define UPDATES 3
#define WAIT_MS 60000

static int fails(const char *what) {
    fprintf(stderr, "%s: %s\n", what, umfLastErrorText());
    return 1;
}

static int put(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool, const char *key,
               int value) {
    int *memory = umfPoolMalloc(pool, sizeof(*memory));
    if (!memory) {
        return 1;
    }
    *memory = value;
    return umfVaultPut(draft, key, memory, sizeof(*memory), NULL, 0, 0) != UMF_RESULT_SUCCESS;
}

/* Generation `last` + 1: "revision" is new, "base" that of the former one. */
static int update(umf_vault_handle_t vault, uint64_t last) {
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    params.from = last;
    if (umfVaultBegin(vault, &params, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, "coalescing over linux_vmm", &pool) != UMF_RESULT_SUCCESS ||
        put(draft, pool, "revision", (int)last + 1) != 0) {
        return fails("draft");
    }
    int is_first = last == 0;
    if ((is_first ? put(draft, pool, "base", 42)
                  : umfVaultKeep(draft, "base") != UMF_RESULT_SUCCESS) ||
        umfVaultCommit(draft, NULL, NULL) != UMF_RESULT_SUCCESS) {
        return fails("commit");
    }
    return 0;
}

static int value_of(umf_vault_view_handle_t view, const char *key) {
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    return umfVaultFind(view, key, &entry) == UMF_RESULT_SUCCESS ? *(int *)entry.ptr : -1;
}

/* Until the last update. One may be passed over: a reader attaches the newest one. */
static int follow(const char *name) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    umf_vault_handle_t vault;
    umf_vault_view_handle_t view;
    uint64_t generation = 0;
    params.timeout_ms = WAIT_MS;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        return fails("reader");
    }
    while (generation < UPDATES) {
        if (umfVaultAttach(vault, &params, &view) != UMF_RESULT_SUCCESS) {
            return fails("attach");
        }
        umfVaultViewGeneration(view, &generation);
        printf("the reader has generation %llu: revision %d, base %d\n",
               (unsigned long long)generation, value_of(view, "revision"), value_of(view, "base"));
        if (value_of(view, "revision") != (int)generation || value_of(view, "base") != 42) {
            return 1;
        }
        if (generation < UPDATES &&
            umfVaultWait(vault, generation, WAIT_MS, &event) != UMF_RESULT_SUCCESS) {
            return fails("wait");
        }
        umfVaultDetach(view); /* after the last use of its memory */
    }
    return umfVaultClose(vault) != UMF_RESULT_SUCCESS;
}

int main(void) {
    char folder[] = "/tmp/umf_example_XXXXXX", name[64], command[64];
    umf_vault_handle_t vault;
    if (!mkdtemp(folder)) {
        perror("a folder");
        return 1;
    }
    snprintf(name, sizeof(name), "file:%s", folder); /* in files; a plain name is in memory */
    pid_t child = fork();
    if (child == 0) {
        int status = follow(name);
        fflush(stdout);
        _exit(status);
    }
    int failed = umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS;
    for (uint64_t last = 0; last < UPDATES && !failed; last++) {
        failed = update(vault, last);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("another process");
    }
    umfVaultClose(vault);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return failed || system(command) != 0 || status != 0;
}
