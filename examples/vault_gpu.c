/*
 * Weights in memory of a GPU that outlive the process that loaded them: a child writes a generation
 * of a vault and ends, then this process attaches it, without a copy. The service umfd keeps the
 * driver's descriptors; it needs no GPU and no driver.
 *
 * Each process starts CUDA for itself, so the child begins before this one has. Without a GPU, or
 * without the service, it says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/reason.h>
#include <umf/text.h>
#include <umf/vault.h>

#define COUNT 1000000
#define NOT_HERE 77

static int fails(const char *what) {
    fprintf(stderr, "%s: %s\n", what, umfLastErrorText());
    return 1;
}

/* Whether there is a GPU whose memory can be handed over. */
static int has_gpu(void) {
    umf_memory_provider_handle_t provider;
    if (umfMemoryProviderCreateFromText("cuda_vmm:share=fd", &provider) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    umfMemoryProviderDestroy(provider);
    return 1;
}

static int load(umf_vault_handle_t vault) {
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    uint64_t generation;
    if (umfVaultBegin(vault, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, "coalescing over cuda_vmm:device=0", &pool) !=
            UMF_RESULT_SUCCESS) {
        return fails("draft");
    }
    float *weight = umfPoolMalloc(pool, COUNT * sizeof(float)); /* of the GPU */
    float *loaded = malloc(COUNT * sizeof(float));
    for (int i = 0; loaded && i < COUNT; i++) {
        loaded[i] = (float)i;
    }
    if (!weight || !loaded ||
        umfCopy(weight, loaded, COUNT * sizeof(float), NULL) != UMF_RESULT_SUCCESS ||
        umfVaultPut(draft, "layers.0.weight", weight, COUNT * sizeof(float), "f32", 3, 0) !=
            UMF_RESULT_SUCCESS ||
        umfVaultCommit(draft, NULL, &generation) != UMF_RESULT_SUCCESS) {
        return fails("commit");
    }
    free(loaded);
    printf("process %ld has written generation %llu\n", (long)getpid(),
           (unsigned long long)generation);
    return 0;
}

static int writer(const char *name) {
    umf_vault_handle_t vault;
    if (!has_gpu()) {
        printf("skipped, no GPU for vaults: %s\n", umfLastErrorText());
        return NOT_HERE;
    }
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        printf("skipped, no service of vaults: %s\n", umfLastErrorText());
        return NOT_HERE;
    }
    int status = load(vault);
    umfVaultClose(vault);
    return status;
}

static int reader(const char *name) {
    umf_vault_handle_t vault;
    umf_vault_view_handle_t view;
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    float last = 0;
    params.devices = "cuda_vmm"; /* starts the driver here, if the generation needs it */
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS ||
        umfVaultAttach(vault, &params, &view) != UMF_RESULT_SUCCESS ||
        umfVaultFind(view, "layers.0.weight", &entry) != UMF_RESULT_SUCCESS ||
        umfCopy(&last, (const float *)entry.ptr + COUNT - 1, sizeof(last), NULL) !=
            UMF_RESULT_SUCCESS) {
        return fails("attach");
    }
    printf("process %ld reads %s on GPU %d: %zu bytes, the last is %.0f\n", (long)getpid(),
           entry.key, entry.device, entry.size, (double)last);
    umfVaultDrop(vault, 0); /* it would stay for others */
    umfVaultClose(vault);
    return last != (float)(COUNT - 1);
}

int main(int count, char **words) {
    const char *name = count < 2 ? "example_vault_gpu" : words[1];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int status = writer(name);
        fflush(stdout);
        _exit(status);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("another process");
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE) {
        return 0;
    }
    return status == 0 ? reader(name) : 1;
}
