/* umfctl trace: pages of arenas. */
#include <stdio.h>

#include "record.h"
#include "report.h"

static const umf_reader_pages_t *pages_of(const umf_reader_t *reader, umf_reader_replay_t *replay,
                                          uint32_t number) {
    const umf_reader_pages_t *pages = &umf_reader_replay_object(replay, number)->pages;
    return pages->is_known && !umf_reader_is_left_out(reader, number) ? pages : NULL;
}

static void as_line(const char *label, const umf_reader_pages_t *pages) {
    char cells[5][32], line[256];
    snprintf(line, sizeof(line), "    %-18.18s %10s %10s %10s %10s %10s", label,
             report_bytes_text(pages->reserved_peak, cells[0], sizeof(cells[0])),
             report_bytes_text(pages->reserved, cells[1], sizeof(cells[1])),
             report_bytes_text(pages->spare, cells[2], sizeof(cells[2])),
             report_bytes_text(pages->stale, cells[3], sizeof(cells[3])),
             report_bytes_text(pages->donated, cells[4], sizeof(cells[4])));
    report_line(line);
}

static report_value_t bytes(uint64_t number) {
    return (report_value_t){.unit = REPORT_BYTES, .number = number};
}

static void as_members(const char *label, const umf_reader_pages_t *pages) {
    const report_member_t members[] = {
        {"label", {.unit = REPORT_TEXT, .text = label}},
        {"peak", bytes(pages->reserved_peak)},
        {"reserved", bytes(pages->reserved)},
        {"spare", bytes(pages->spare)},
        {"stale", bytes(pages->stale)},
        {"donated", bytes(pages->donated)},
        {"created", bytes(pages->created)},
        {"destroyed", bytes(pages->destroyed)},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

void trace_show_pages(const umf_reader_t *reader, umf_reader_replay_t *replay) {
    char label[RECORD_LABEL];
    bool is_first = true;
    for (uint32_t i = 1; i < umf_reader_info(reader)->object_count; i++) {
        const umf_reader_pages_t *pages = pages_of(reader, replay, i);
        if (!pages) {
            continue;
        }
        if (is_first) {
            report_list("pages", "Pages of arenas");
            report_line("    name                     peak   reserved      spare      stale    "
                        "donated");
        }
        is_first = false;
        umf_reader_label(reader, i, label, sizeof(label));
        as_line(label, pages);
        as_members(label, pages);
    }
}
