/*
 * The machine: devices, drivers, and the limits that decide how much memory a pool can get.
 *
 * Everything here is read from the system, never from the library. What cannot be read is left out.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "report.h"
#include "umfctl.h"

#define MIB (UINT64_C(1) << 20)

/* --- small files ------------------------------------------------------------------------------ */

/* The first line of the file that the format names, without white space around it. */
__attribute__((format(printf, 3, 4))) static bool read_line(char *line, size_t size,
                                                            const char *format, ...) {
    char path[512];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    FILE *file = fopen(path, "re");
    if (!file) {
        return false;
    }
    bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    if (read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return read;
}

static bool read_number(const char *path, uint64_t *number) {
    char line[64];
    return read_line(line, sizeof(line), "%s", path) && sscanf(line, "%" SCNu64, number) == 1;
}

/* The text after "key:" in a file of such lines. */
static bool read_field(const char *path, const char *key, char *value, size_t size) {
    char line[256];
    size_t length = strlen(key);
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ':') {
            char *start = line + length + 1;
            start += strspn(start, " \t");
            start[strcspn(start, "\n")] = '\0';
            snprintf(value, size, "%s", start);
            found = true;
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static bool read_meminfo(const char *key, uint64_t *number) {
    char value[64];
    return read_field("/proc/meminfo", key, value, sizeof(value)) &&
           sscanf(value, "%" SCNu64, number) == 1;
}

/* --- devices ---------------------------------------------------------------------------------- */

#define PCI "/sys/bus/pci/devices"

static const char *pci_vendor(const char *id) {
    static const struct {
        const char *id, *name;
    } vendors[] = {
        {"0x10de", "NVIDIA"}, {"0x8086", "Intel"},  {"0x1002", "AMD"},
        {"0x1a03", "ASPEED"}, {"0x102b", "Matrox"}, {"0x1af4", "virtual"},
    };
    for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++) {
        if (strcmp(id, vendors[i].id) == 0) {
            return vendors[i].name;
        }
    }
    return "unknown vendor";
}

static bool pci_driver(const char *address, char *driver, size_t size) {
    char path[512], target[512];
    snprintf(path, sizeof(path), PCI "/%s/driver", address);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0) {
        return false;
    }
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(driver, size, "%.*s", (int)size - 1, slash ? slash + 1 : target);
    return true;
}

/* Display and 3D controllers: class 3. */
static void pci_device(const char *address) {
    char class[16], vendor[16], device[16], driver[64], model[96], path[512], text[256];
    if (!read_line(class, sizeof(class), PCI "/%s/class", address) ||
        strncmp(class, "0x03", 4) != 0 ||
        !read_line(vendor, sizeof(vendor), PCI "/%s/vendor", address) ||
        !read_line(device, sizeof(device), PCI "/%s/device", address)) {
        return;
    }
    snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", address);
    if (!read_field(path, "Model", model, sizeof(model))) {
        snprintf(model, sizeof(model), "%s", pci_vendor(vendor));
    }
    bool driven = pci_driver(address, driver, sizeof(driver));
    snprintf(text, sizeof(text), "%s, id %s:%s, %s%s", model, vendor + 2, device + 2,
             driven ? "driver " : "no driver", driven ? driver : "");
    report_text(address, text);
}

/* Libraries opened at run time; libumf needs none of them to start. */
static void driver_library(const char *name, const char *purpose) {
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    const char *why = handle ? NULL : dlerror();
    bool is_missing = why && strstr(why, strerror(ENOENT));
    report_row(&(report_row_t){.name = name,
                               .state = handle       ? REPORT_OK
                                        : is_missing ? REPORT_ABSENT
                                                     : REPORT_WARNING,
                               .value = {.unit = REPORT_TEXT, .text = purpose},
                               .note = is_missing ? "not installed" : why});
    if (handle) {
        dlclose(handle);
    }
}

void machine_devices(void) {
    report_section("gpus", "Graphics and 3D devices", 12);
    struct dirent **entries;
    int count = scandir(PCI, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            pci_device(entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }

    report_section("libraries", "Libraries opened when they are needed", 18);
    driver_library("libhwloc.so.15", "properties of the NUMA nodes");
    driver_library("libtbbmalloc.so.2", "the scalable pool");
    driver_library("libcuda.so.1", "NVIDIA devices");
    driver_library("libze_loader.so.1", "devices with a Level Zero driver");
}

/* --- limits ----------------------------------------------------------------------------------- */

/*
 * Each function reads one limit. false: this machine does not have it. `note` stays NULL unless
 * there is something to report; a row with a note is a warning.
 */
typedef bool (*limit_reader_t)(report_value_t *value, const char **note);

#ifdef __GLIBC__
typedef __rlimit_resource_t resource_t;
#else
typedef int resource_t;
#endif

static bool resource_limit(resource_t resource, report_value_t *value, report_unit_t unit) {
    struct rlimit limit;
    value->unit = unit;
    if (getrlimit(resource, &limit) != 0) {
        return false;
    }
    value->number = limit.rlim_cur == RLIM_INFINITY ? REPORT_UNLIMITED : limit.rlim_cur;
    return true;
}

static bool limit_memlock(report_value_t *value, const char **note) {
    bool here = resource_limit(RLIMIT_MEMLOCK, value, REPORT_BYTES);
    if (value->number < 64 * MIB) {
        *note = "limits pinned memory and memfd_secret; see ulimit -l";
    }
    return here;
}

static bool limit_files(report_value_t *value, const char **note) {
    bool here = resource_limit(RLIMIT_NOFILE, value, REPORT_NUMBER);
    if (value->number < 1024) {
        *note = "shared memory takes a descriptor for each provider and each opened handle "
                "(ulimit -n)";
    }
    return here;
}

static bool limit_address_space(report_value_t *value, const char **note) {
    bool here = resource_limit(RLIMIT_AS, value, REPORT_BYTES);
    if (value->number != REPORT_UNLIMITED) {
        *note = "pools reserve more addresses than they use, and fail at this limit "
                "(ulimit -v)";
    }
    return here;
}

static bool limit_mappings(report_value_t *value, const char **note) {
    value->unit = REPORT_NUMBER;
    if (!read_number("/proc/sys/vm/max_map_count", &value->number)) {
        return false;
    }
    if (value->number < 65530) {
        *note = "a process with many allocations runs out of mappings; vm.max_map_count raises it";
    }
    return true;
}

static bool limit_overcommit(report_value_t *value, const char **note) {
    value->unit = REPORT_NUMBER;
    if (!read_number("/proc/sys/vm/overcommit_memory", &value->number)) {
        return false;
    }
    if (value->number == 2) {
        *note = "reserved memory counts as used: allocations can fail while memory is free";
    }
    return true;
}

/* The version 2 group of this process, else the only one a container sees, else version 1. */
static bool limit_group_memory(report_value_t *value, const char **note) {
    char group[300] = "", line[64];
    (void)note;
    FILE *file = fopen("/proc/self/cgroup", "re");
    char entry[300];
    while (file && fgets(entry, sizeof(entry), file)) {
        if (sscanf(entry, "0::%299[^\n]", group) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    if (!read_line(line, sizeof(line), "/sys/fs/cgroup%s/memory.max", group) &&
        !read_line(line, sizeof(line), "/sys/fs/cgroup/memory.max") &&
        !read_line(line, sizeof(line), "/sys/fs/cgroup/memory/memory.limit_in_bytes")) {
        return false;
    }
    value->unit = REPORT_BYTES;
    /* Version 1 expresses "no limit" by a number close to the largest. */
    if (sscanf(line, "%" SCNu64, &value->number) != 1 || value->number >= UINT64_C(1) << 60) {
        value->number = REPORT_UNLIMITED;
    }
    return true;
}

static bool limit_huge_page_size(report_value_t *value, const char **note) {
    (void)note;
    value->unit = REPORT_BYTES;
    bool here = read_meminfo("Hugepagesize", &value->number);
    value->number *= 1024;
    return here;
}

static bool limit_huge_pages(report_value_t *value, const char **note) {
    (void)note;
    value->unit = REPORT_NUMBER;
    return read_meminfo("HugePages_Total", &value->number);
}

static bool limit_huge_pages_free(report_value_t *value, const char **note) {
    (void)note;
    value->unit = REPORT_NUMBER;
    return read_meminfo("HugePages_Free", &value->number);
}

static bool limit_transparent(report_value_t *value, const char **note) {
    static char mode[64];
    char line[64];
    if (!read_line(line, sizeof(line), "/sys/kernel/mm/transparent_hugepage/enabled") ||
        sscanf(line, "%*[^[][%63[^]]", mode) + sscanf(line, "[%63[^]]", mode) < 1) {
        return false;
    }
    *value = (report_value_t){.unit = REPORT_TEXT, .text = mode};
    if (strcmp(mode, "never") == 0) {
        *note = "large pools are slower with small pages; "
                "/sys/kernel/mm/transparent_hugepage/enabled turns it on";
    }
    return true;
}

static bool limit_shm(report_value_t *value, const char **note) {
    struct statvfs shm;
    value->unit = REPORT_BYTES;
    if (statvfs("/dev/shm", &shm) != 0) {
        *note = "not here: named shared memory (shm_name) does not work";
        value->unit = REPORT_NOTHING;
        return true;
    }
    value->number = (uint64_t)shm.f_blocks * shm.f_frsize;
    if (value->number <= 64 * MIB) {
        *note = "all that named shared memory (shm_name) may take; containers raise it by "
                "--shm-size";
    }
    return true;
}

static bool limit_shm_free(report_value_t *value, const char **note) {
    struct statvfs shm;
    value->unit = REPORT_BYTES;
    if (statvfs("/dev/shm", &shm) != 0) {
        return false;
    }
    value->number = (uint64_t)shm.f_bavail * shm.f_frsize;
    if (value->number < MIB) {
        *note = "full: writing to new named shared memory ends the process by SIGBUS";
    }
    return true;
}

static bool limit_ptrace(report_value_t *value, const char **note) {
    static const char *const notes[] = {
        NULL,
        "anonymous shared memory opens in an ancestor of its producer only, or in a process that "
        "the producer names by prctl(PR_SET_PTRACER, ...)",
        "anonymous shared memory of other processes opens with CAP_SYS_PTRACE only; named shared "
        "memory (shm_name) needs nothing",
        "anonymous shared memory of other processes cannot be opened; use named shared memory "
        "(shm_name)",
    };
    value->unit = REPORT_NUMBER;
    if (!read_number("/proc/sys/kernel/yama/ptrace_scope", &value->number)) {
        value->number = 0; /* without Yama the system behaves as with its scope 0 */
    }
    *note = value->number < 4 ? notes[value->number] : NULL;
    return true;
}

static bool limit_seccomp(report_value_t *value, const char **note) {
    char mode[16];
    if (!read_field("/proc/self/status", "Seccomp", mode, sizeof(mode))) {
        return false;
    }
    bool filtered = strcmp(mode, "2") == 0;
    *value = (report_value_t){.unit = REPORT_TEXT, .text = filtered ? "filtered" : "off"};
    if (filtered) {
        *note = "a filter may forbid pidfd_getfd or mbind; 'umfctl check' finds out";
    }
    return true;
}

static bool limit_pid_namespace(report_value_t *value, const char **note) {
    char link[64];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    if (length < 0) {
        return false;
    }
    link[length] = '\0';
    /* PROC_PID_INIT_INO, the kernel's number of the first namespace. */
    bool first = strcmp(link, "pid:[4026531836]") == 0;
    *value = (report_value_t){.unit = REPORT_TEXT, .text = first ? "the machine's" : "its own"};
    if (!first) {
        *note = "memory can be shared with processes of the same container only, unless they are "
                "started with --pid=host";
    }
    return true;
}

static bool limit_container(report_value_t *value, const char **note) {
    static char name[64];
    (void)note;
    if (access("/run/.containerenv", F_OK) == 0) {
        snprintf(name, sizeof(name), "podman");
    } else if (access("/.dockerenv", F_OK) == 0) {
        snprintf(name, sizeof(name), "docker");
    } else if (!read_line(name, sizeof(name), "/run/systemd/container")) {
        return false;
    }
    *value = (report_value_t){.unit = REPORT_TEXT, .text = name};
    return true;
}

void machine_limits(void) {
    static const struct {
        const char *name;
        limit_reader_t read;
    } limits[] = {
        {"locked memory", limit_memlock},
        {"open files", limit_files},
        {"address space", limit_address_space},
        {"mappings", limit_mappings},
        {"overcommit mode", limit_overcommit},
        {"cgroup memory", limit_group_memory},
        {"huge page size", limit_huge_page_size},
        {"huge pages", limit_huge_pages},
        {"huge pages free", limit_huge_pages_free},
        {"THP mode", limit_transparent},
        {"/dev/shm", limit_shm},
        {"/dev/shm free", limit_shm_free},
        {"ptrace scope", limit_ptrace},
        {"seccomp", limit_seccomp},
        {"pid namespace", limit_pid_namespace},
        {"container", limit_container},
    };
    report_section("limits", "Limits that matter", 15);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        report_row_t row = {.name = limits[i].name};
        if (limits[i].read(&row.value, &row.note)) {
            row.state = row.note ? REPORT_WARNING : REPORT_FACT;
            report_row(&row);
        }
    }
}
