/* The C functions that both hooks of torch_memory_saver export. */
#include <string.h>

#include "lease.h"
#include "saver.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void tms_set_interesting_region(bool is_interesting) {
    saver_config()->is_interesting = is_interesting;
}

EXPORTED bool tms_get_interesting_region(void) {
    return saver_config()->is_interesting;
}

EXPORTED void tms_set_enable_cpu_backup(bool has) {
    saver_config()->has_cpu_backup = has;
}

EXPORTED bool tms_get_enable_cpu_backup(void) {
    return saver_config()->has_cpu_backup;
}

EXPORTED void tms_set_enable_disk_backup(bool has) {
    saver_config()->has_disk_backup = has;
}

EXPORTED bool tms_get_enable_disk_backup(void) {
    return saver_config()->has_disk_backup;
}

EXPORTED void tms_set_retain_cpu_backup(bool retain) {
    saver_set_retain(retain);
}

EXPORTED bool tms_get_retain_cpu_backup(void) {
    return saver_get_retain();
}

/* False: no number of seconds from 0 to LEASE_MAX_SECONDS. */
EXPORTED bool tms_set_backup_lease(double seconds) {
    bool is_valid = seconds >= 0 && seconds <= LEASE_MAX_SECONDS;
    if (is_valid) {
        lease_set_seconds(seconds);
    }
    return is_valid;
}

EXPORTED double tms_get_backup_lease(void) {
    return lease_seconds();
}

/* A tag that is too long is cut: it is the same in each call. */
EXPORTED void tms_set_current_tag(const char *tag) {
    saver_config_t *config = saver_config();
    strncpy(config->tag, tag ? tag : "default", sizeof(config->tag) - 1);
    config->tag[sizeof(config->tag) - 1] = '\0';
}

EXPORTED const char *tms_get_current_tag(void) {
    return saver_config()->tag;
}

EXPORTED void tms_set_cpu_backup_backend(const char *name) {
    saver_config()->cpu_kind = name && strcmp(name, "mmap") == 0 ? BACKUP_MMAP : BACKUP_PINNED;
}

EXPORTED const char *tms_get_cpu_backup_backend(void) {
    return saver_config()->cpu_kind == BACKUP_MMAP ? "mmap" : "pinned";
}

EXPORTED void tms_set_disk_backup_dir(const char *folder) {
    if (folder && *folder) {
        saver_set_folder(folder);
    }
}

EXPORTED void set_memory_margin_bytes(uint64_t bytes) {
    saver_set_margin(bytes);
}

EXPORTED int tms_pause(const char *tag) {
    return saver_pause(tag);
}

EXPORTED int tms_resume(const char *tag) {
    return saver_resume(tag);
}

EXPORTED uint8_t *tms_get_cpu_backup_pointer(const uint8_t *ptr, uint64_t size) {
    return saver_backup_of(ptr, size);
}

/* Beyond torch_memory_saver: why the last call of this thread failed, and what state an address is
 * in (saver_state_t). */
EXPORTED const char *tms_last_error(void) {
    return saver_error();
}

EXPORTED int tms_state_of(const void *ptr) {
    return (int)saver_state_of(ptr);
}
