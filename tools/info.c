/* umfctl info: lists what this machine and this build offer. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <umf.h>
#include <umf/text.h>

#include "report.h"
#include "umfctl.h"

/* --- library and machine ---------------------------------------------------------------------- */

/* The file that the library's code comes from: with a static library, umfctl itself. */
static void library_file(void) {
    Dl_info info;
    char path[PATH_MAX];
    if (dladdr(__extension__(void *) umfGetCurrentVersion, &info) != 0 && info.dli_fname &&
        realpath(info.dli_fname, path)) {
        report_text("file", path);
    }
}

static void library(void) {
    int version = umfGetCurrentVersion();
    char text[32];
    snprintf(text, sizeof(text), "%d.%d", UMF_MAJOR_VERSION(version), UMF_MINOR_VERSION(version));
    report_section("library", "Library", 12);
    report_text("umfctl", UMFCTL_VERSION);
    report_text("interface", text);
    library_file();
    if (getenv("LD_PRELOAD")) {
        report_text("LD_PRELOAD", getenv("LD_PRELOAD"));
    }
}

/* The value of PRETTY_NAME, without its quotes. */
static void distribution(void) {
    char line[256];
    FILE *file = fopen("/etc/os-release", "re");
    while (file && fgets(line, sizeof(line), file)) {
        char name[sizeof(line)];
        if (sscanf(line, "PRETTY_NAME=\"%255[^\"\n]", name) == 1) {
            report_text("system", name);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

static void machine(void) {
    struct utsname kernel;
    report_section("machine", "Machine", 12);
    distribution();
    if (uname(&kernel) == 0) {
        char text[sizeof(kernel.sysname) + sizeof(kernel.release) + sizeof(kernel.machine) + 3];
        snprintf(text, sizeof(text), "%s %s %s", kernel.sysname, kernel.release, kernel.machine);
        report_text("kernel", text);
    }
    report_number("processors", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    report_bytes("memory", (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

void umfctl_where(void) {
    library();
    machine();
}

/* --- kinds ------------------------------------------------------------------------------------ */

static int kind(const char *name, int available, const char *why, void *arg) {
    (void)arg;
    report_row(&(report_row_t){.name = name,
                               .state = available ? REPORT_OK : REPORT_ABSENT,
                               .note = available || !*why ? NULL : why});
    return 0; /* go on */
}

int umfctl_info(void) {
    umfctl_where();
    report_section("providers", "Providers, sources of memory", 12);
    umf_result_t providers = umfProviderKinds(kind, NULL);
    report_section("pools", "Pools, which divide it", 12);
    umf_result_t pools = umfPoolKinds(kind, NULL);
    machine_nodes();
    machine_devices();
    machine_limits();
    return providers == UMF_RESULT_SUCCESS && pools == UMF_RESULT_SUCCESS ? 0 : 1;
}
