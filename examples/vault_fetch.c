/*
 * Vaults of another machine: a program fetches a generation that umf-remote serves, and reads it.
 * It does so again after each change there.
 *
 *     umf-remote serve --write model.umfr model      (where the vault is)
 *     vault_fetch model.umfr model                   (here)
 *
 * Without arguments it says so and ends.
 */
#include <stdio.h>
#include <string.h>

#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/vault.h>

static int print_entry(const umf_vault_entry_t *entry, void *arg) {
    (void)arg;
    printf("  %-24s %zu bytes\n", entry->key, entry->size);
    return 0;
}

/* The address of a vault in the file: lines of a name and its address. */
static int read_address(const char *path, const char *name, char *address, size_t size) {
    char line[4096];
    size_t length = strlen(name);
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fgets(line, sizeof(line), file)) {
        found = strncmp(line, name, length) == 0 && line[length] == ' ' &&
                strlen(line + length + 1) < size;
        if (found) {
            strcpy(address, line + length + 1);
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static int fetch(umf_vault_handle_t vault, umf_remote_handle_t remote, const char *address) {
    uint64_t generation;
    umf_vault_view_handle_t view;
    if (umfVaultFetch(vault, remote, address, NULL, &generation) != UMF_RESULT_SUCCESS ||
        umfVaultAttach(vault, NULL, &view) != UMF_RESULT_SUCCESS) {
        return -1;
    }
    printf("generation %llu\n", (unsigned long long)generation);
    umfVaultEach(view, NULL, print_entry, NULL);
    return umfVaultDetach(view) == UMF_RESULT_SUCCESS ? 0 : -1;
}

int main(int argc, char **argv) {
    char address[4096];
    umf_vault_handle_t vault;
    umf_remote_handle_t remote;
    if (argc < 3) {
        puts("vault_fetch <file of umf-remote serve --write> <name> [<name here>]");
        return 0;
    }
    if (!read_address(argv[1], argv[2], address, sizeof(address))) {
        fprintf(stderr, "%s has no address of vault %s\n", argv[1], argv[2]);
        return 1;
    }
    if (umfRemoteCreate(NULL, &remote) != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "%s\n", umfLastErrorText());
        return 1;
    }
    int status = 1;
    if (umfVaultOpen(argv[argc > 3 ? 3 : 2], NULL, &vault) == UMF_RESULT_SUCCESS) {
        /* The second time nothing differs, so it is the same generation. */
        status = fetch(vault, remote, address) || fetch(vault, remote, address);
        umfVaultClose(vault);
    }
    if (status) {
        fprintf(stderr, "%s\n", umfLastErrorText());
    }
    umfRemoteDestroy(remote);
    return status;
}
