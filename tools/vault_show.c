/* What umfctl vault shows of vaults, their claims and entries. */
#include "vault_show.h"

#include <inttypes.h>
#include <stdio.h>

#include "report.h"

static void stat_members(const char *name, const umf_vault_stat_t *stat) {
    const report_member_t members[] = {
        {"name", {.unit = REPORT_TEXT, .text = name}},
        {"current", {.unit = REPORT_NUMBER, .number = stat->current}},
        {"generations", {.unit = REPORT_NUMBER, .number = stat->generations}},
        {"bytes", {.unit = REPORT_BYTES, .number = stat->bytes}},
        {"device_bytes", {.unit = REPORT_BYTES, .number = stat->device_bytes}},
        {"devices", {.unit = REPORT_NUMBER, .number = stat->devices}},
        {"device", {.unit = REPORT_TEXT, .text = stat->device}},
        {"copy_bytes", {.unit = REPORT_BYTES, .number = stat->copy_bytes}},
        {"evicted", {.unit = REPORT_NUMBER, .number = stat->evicted}},
        {"readers", {.unit = REPORT_NUMBER, .number = stat->readers}},
        {"writer", {.unit = REPORT_NUMBER, .number = stat->writer}},
        {"limit", {.unit = REPORT_BYTES, .number = stat->limit ? stat->limit : REPORT_UNLIMITED}},
        {"restarts", {.unit = REPORT_NUMBER, .number = stat->restarts}},
        {"claims", {.unit = REPORT_NUMBER, .number = stat->claims}},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void stat_line(const char *name, const umf_vault_stat_t *stat) {
    char line[256], bytes[32], writer[48] = "";
    if (stat->writer) {
        snprintf(writer, sizeof(writer), ", process %" PRIu32 " writes", stat->writer);
    }
    snprintf(line, sizeof(line),
             "  %-20.40s generation %" PRIu64 " of %" PRIu64 ", %s, %" PRIu64 " readers%s", name,
             stat->current, stat->generations, report_bytes_text(stat->bytes, bytes, sizeof(bytes)),
             stat->readers, writer);
    line[80] = '\0';
    report_line(line);
    if (stat->claims) {
        snprintf(line, sizeof(line), "  %-20s %" PRIu32 " claim%s", "", stat->claims,
                 stat->claims == 1 ? "" : "s");
        report_line(line);
    }
    if (stat->devices) {
        snprintf(line, sizeof(line), "  %-20s %s in %" PRIu32 " device%s, the first is %s", "",
                 report_bytes_text(stat->device_bytes, bytes, sizeof(bytes)), stat->devices,
                 stat->devices == 1 ? "" : "s", stat->device);
        report_line(line);
    }
    if (stat->copy_bytes) {
        snprintf(line, sizeof(line), "  %-20s %s of copies, %" PRIu64 " generations evicted", "",
                 report_bytes_text(stat->copy_bytes, bytes, sizeof(bytes)), stat->evicted);
        report_line(line);
    }
}

int vault_show(const char *name, const umf_vault_stat_t *stat, void *arg) {
    (void)arg;
    stat_members(name, stat);
    stat_line(name, stat);
    return 0;
}

int vault_show_claim(const umf_vault_claim_stat_t *stat, void *arg) {
    const report_member_t members[] = {
        {"key", {.unit = REPORT_TEXT, .text = stat->key}},
        {"bytes", {.unit = REPORT_BYTES, .number = stat->size}},
        {"epoch", {.unit = REPORT_NUMBER, .number = stat->epoch}},
        {"holders", {.unit = REPORT_NUMBER, .number = stat->holders}},
        {"process", {.unit = REPORT_NUMBER, .number = stat->process}},
        {"shared", {.unit = REPORT_NUMBER, .number = stat->shared != 0}},
        {"note_bytes", {.unit = REPORT_NUMBER, .number = stat->note_size}},
    };
    char line[384], bytes[32], holder[64] = "not held";
    (void)arg;
    if (stat->holders == 1) {
        snprintf(holder, sizeof(holder), "process %" PRIu32, stat->process);
    } else if (stat->holders) {
        snprintf(holder, sizeof(holder), "%" PRIu32 " clients", stat->holders);
    }
    report_item(members, sizeof(members) / sizeof(members[0]));
    snprintf(line, sizeof(line), "  %10s  epoch %" PRIu64 ", %s  %s",
             report_bytes_text(stat->size, bytes, sizeof(bytes)), stat->epoch, holder, stat->key);
    line[80] = '\0';
    report_line(line);
    return 0;
}

int vault_show_entry(const umf_vault_entry_t *entry, void *arg) {
    (void)arg;
    const report_member_t members[] = {
        {"key", {.unit = REPORT_TEXT, .text = entry->key}},
        {"bytes", {.unit = REPORT_BYTES, .number = entry->size}},
        {"note_bytes", {.unit = REPORT_NUMBER, .number = entry->note_size}},
        {"private", {.unit = REPORT_NUMBER, .number = (entry->flags & UMF_VAULT_PRIVATE) != 0}},
        {"zero", {.unit = REPORT_NUMBER, .number = (entry->flags & UMF_VAULT_ZERO) != 0}},
    };
    char line[320], bytes[32];
    report_item(members, sizeof(members) / sizeof(members[0]));
    snprintf(line, sizeof(line), "  %10s  %s%s",
             report_bytes_text(entry->size, bytes, sizeof(bytes)), entry->key,
             entry->flags & UMF_VAULT_PRIVATE ? "  (private)"
             : entry->flags & UMF_VAULT_ZERO  ? "  (zero)"
                                              : "");
    line[80] = '\0';
    report_line(line);
    return 0;
}
