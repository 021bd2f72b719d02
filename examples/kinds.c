/* Which providers and pools this machine offers, and why not the others. */
#include <stdio.h>

#include <umf.h>
#include <umf/text.h>

static int print_kind(const char *name, int available, const char *why, void *arg) {
    (void)arg;
    printf("  %-12s %s%s\n", name,
           available ? "available" : "not available: ", available || !why ? "" : why);
    return 0; /* go on */
}

int main(void) {
    int version = umfGetCurrentVersion();
    printf("API version %d.%d\n", UMF_MAJOR_VERSION(version), UMF_MINOR_VERSION(version));
    printf("providers, sources of memory:\n");
    if (umfProviderKinds(print_kind, NULL) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    printf("pools, which divide it:\n");
    return umfPoolKinds(print_kind, NULL) != UMF_RESULT_SUCCESS;
}
