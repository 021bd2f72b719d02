/*
 * Weights that outlive the process that loaded them: a child writes a generation of a vault and
 * ends, then this process attaches it, read-only and without a copy.
 *
 * The vault is in files of a folder here, so it needs no service. With a plain name, such as
 * "model", it is in memory, which the service umfd keeps: vault_weights model
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/vault.h>

#define COUNT 100000

static int fails(const char *what) {
    fprintf(stderr, "%s: %s\n", what, umfLastErrorText());
    return 1;
}

/* The memory comes from a pool of the draft; after the commit no process can write it. */
static int load(const char *name) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    uint64_t generation;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        return fails("open");
    }
    if (umfVaultBegin(vault, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, "coalescing over linux_vmm", &pool) != UMF_RESULT_SUCCESS) {
        return fails("draft");
    }
    float *weight = umfPoolMalloc(pool, COUNT * sizeof(float));
    for (int i = 0; weight && i < COUNT; i++) {
        weight[i] = (float)i;
    }
    if (!weight ||
        umfVaultPut(draft, "layers.0.weight", weight, COUNT * sizeof(float), "f32", 3, 0) !=
            UMF_RESULT_SUCCESS ||
        umfVaultCommit(draft, NULL, &generation) != UMF_RESULT_SUCCESS) {
        return fails("commit");
    }
    printf("process %ld has written generation %llu\n", (long)getpid(),
           (unsigned long long)generation);
    umfVaultClose(vault);
    return 0;
}

static int use(const char *name) {
    umf_vault_handle_t vault;
    umf_vault_view_handle_t view;
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS ||
        umfVaultAttach(vault, NULL, &view) != UMF_RESULT_SUCCESS ||
        umfVaultFind(view, "layers.0.weight", &entry) != UMF_RESULT_SUCCESS) {
        return fails("attach");
    }
    const float *weight = entry.ptr;
    printf("process %ld reads %s: %zu bytes of type %.*s, the last is %.0f\n", (long)getpid(),
           entry.key, entry.size, (int)entry.note_size, (const char *)entry.note,
           (double)weight[COUNT - 1]);
    int wrong = weight[COUNT - 1] != (float)(COUNT - 1);
    umfVaultDrop(vault, 0); /* it would stay for others */
    umfVaultClose(vault);
    return wrong;
}

int main(int count, char **words) {
    char folder[] = "/tmp/umf_example_XXXXXX", name[64], command[64];
    if (count < 2 && !mkdtemp(folder)) {
        perror("a folder");
        return 1;
    }
    snprintf(name, sizeof(name), "file:%s", folder);
    const char *vault = count < 2 ? name : words[1];
    pid_t child = fork();
    if (child == 0) {
        int status = load(vault);
        fflush(stdout);
        _exit(status);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("another process");
    }
    status = status == 0 ? use(vault) : 1;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return count < 2 && system(command) != 0 ? 1 : status;
}
