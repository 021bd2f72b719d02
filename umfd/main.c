/* umfd: the two processes that keep vaults. See keeper/keeper.h and docs/vault.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ext/vault/protocol.h"
#include "keeper/keeper.h"

static const char usage[] =
    "usage: umfd [--dir=FOLDER] [--detach] [--idle=SECONDS]\n"
    "Keeps the vaults of this user: named memory that outlives the processes that use it.\n"
    "  --dir=FOLDER    its place (default: UMF_VAULT_DIR, $XDG_RUNTIME_DIR/umf, /tmp/umf-UID)\n"
    "  --detach        returns when the place is open; the service goes on without a terminal\n"
    "  --idle=SECONDS  ends after this time without clients and content (default: never)\n";

int main(int count, char **words) {
    const char *folder = NULL, *idle = "--idle=0";
    bool detaches = false;
    bool serves = count > 1 && strcmp(words[1], "--serve") == 0;
    bool keeps = count > 1 && strcmp(words[1], "--keep") == 0;
    for (int i = serves || keeps ? 2 : 1; i < count; i++) {
        if (strncmp(words[i], "--dir=", 6) == 0) {
            folder = words[i] + 6;
        } else if (strncmp(words[i], "--idle=", 7) == 0) {
            idle = words[i];
        } else if (strcmp(words[i], "--detach") == 0) {
            detaches = true;
        } else {
            fputs(usage, strcmp(words[i], "--help") == 0 ? stdout : stderr);
            return strcmp(words[i], "--help") == 0 ? 0 : 2;
        }
    }
    if (serves) {
        umfd_serve((unsigned)strtoul(idle + 7, NULL, 10));
    }
    if (keeps) {
        umfd_keep(UMFD_PAIR, idle);
    }
    char place[UMF_VAULT_PLACE_SIZE];
    if (!folder) {
        if (!umf_vault_place(place)) {
            fputs("umfd: the name of the place is too long\n", stderr);
            return 1;
        }
        folder = place;
    }
    int failed = umfd_open(folder, detaches);
    if (failed) {
        if (failed == UMFD_RUNS_ALREADY) {
            fprintf(stderr, "umfd: another one has the place %s\n", folder);
        }
        return failed;
    }
    umfd_keep(-1, idle);
}
