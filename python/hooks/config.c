/* The configuration of threads and of the process, out of the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "saver.h"

static bool is_true(const char *name) {
    static const char *const words[] = {"1", "true", "TRUE", "yes", "YES"};
    const char *value = getenv(name);
    for (size_t i = 0; value && i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(value, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

saver_config_t *saver_config(void) {
    static _Thread_local saver_config_t config;
    if (!config.is_read) {
        const char *kind = getenv("TMS_INIT_CPU_BACKUP_BACKEND");
        config = (saver_config_t){.is_read = true,
                                  .is_interesting = is_true("TMS_INIT_ENABLE"),
                                  .has_cpu_backup = is_true("TMS_INIT_ENABLE_CPU_BACKUP"),
                                  .has_disk_backup = is_true("TMS_INIT_ENABLE_DISK_BACKUP"),
                                  .cpu_kind = kind && strcmp(kind, "mmap") == 0 ? BACKUP_MMAP
                                                                                : BACKUP_PINNED};
        snprintf(config.tag, sizeof(config.tag), "default");
    }
    return &config;
}

bool saver_retain_by_environment(void) {
    return is_true("TMS_RETAIN_CPU_BACKUP");
}
