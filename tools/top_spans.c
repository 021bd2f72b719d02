/* The live screen of umfctl top: the spans of one pool. */
#include "top.h"

#ifdef UMFCTL_WITH_CURSES

#include <curses.h>
#include <stdio.h>
#include <string.h>

#include "top_put.h"

typedef struct use_t {
    uint64_t bytes[UMF_RECORD_STATE_UNKNOWN + 1];
    uint64_t total, largest_free;
} use_t;

static void span_use(const umf_reader_t *reader, const umf_record_span_t *span, use_t *use) {
    size_t count;
    const umf_record_run_t *runs = umf_reader_runs(reader, &count);
    for (uint32_t i = 0; i < span->run_count && (size_t)span->first_run + i < count; i++) {
        const umf_record_run_t *run = &runs[span->first_run + i];
        uint64_t bytes = run->size * run->count;
        if (run->state <= UMF_RECORD_STATE_UNKNOWN) {
            use->bytes[run->state] += bytes;
        }
        if (run->state == UMF_RECORD_STATE_FREE && bytes > use->largest_free) {
            use->largest_free = bytes;
        }
    }
    use->total += span->size;
}

/* Live memory as '#', cached as 'o', free as '.', unknown as '?', by address. */
static void bar_make(const umf_reader_t *reader, const umf_record_span_t *span, char *bar,
                     size_t width) {
    static const char marks[] = " #o.?";
    size_t count;
    const umf_record_run_t *runs = umf_reader_runs(reader, &count);
    memset(bar, '.', width);
    bar[width] = '\0';
    for (uint32_t i = 0; i < span->run_count && (size_t)span->first_run + i < count; i++) {
        const umf_record_run_t *run = &runs[span->first_run + i];
        uint64_t from = run->base - span->base, bytes = run->size * run->count;
        if (span->size == 0 || from > span->size || bytes > span->size - from || run->state > 4 ||
            run->state == UMF_RECORD_STATE_FREE) {
            continue;
        }
        size_t first = (size_t)((double)from / (double)span->size * (double)width);
        size_t last = (size_t)((double)(from + bytes - 1) / (double)span->size * (double)width);
        for (size_t at = first; at <= last && at < width; at++) {
            bar[at] = bar[at] == '#' ? '#' : marks[run->state];
        }
    }
}

static void span_show(const umf_reader_t *reader, const umf_record_span_t *span, int line) {
    char bar[41], text[160], size[16], live[16];
    use_t use = {{0}, 0, 0};
    span_use(reader, span, &use);
    bar_make(reader, span, bar, sizeof(bar) - 1);
    snprintf(text, sizeof(text), "  %014llx %8s %8s  %s%s", (unsigned long long)span->base,
             top_bytes(span->size, size, sizeof(size)),
             top_bytes(use.bytes[UMF_RECORD_STATE_LIVE], live, sizeof(live)), bar,
             span->flags & UMF_RECORD_SPAN_IS_AWAY ? " away" : "");
    top_put(line, A_NORMAL, text);
}

static void sums_show(const umf_reader_t *snapshot, uint32_t number, const use_t *use,
                      size_t spans) {
    static const char *const names[] = {"", "live", "cached", "free", "unknown"};
    char text[160], total[16], part[16];
    int length = snprintf(text, sizeof(text), "%.47s #%u: %zu span%s, %s held",
                          umf_reader_object(snapshot, number)->name, number, spans,
                          spans == 1 ? "" : "s", top_bytes(use->total, total, sizeof(total)));
    for (size_t i = 1; i <= UMF_RECORD_STATE_UNKNOWN && length < 140; i++) {
        if (use->bytes[i]) {
            length += snprintf(text + length, sizeof(text) - (size_t)length, ", %s %s",
                               top_bytes(use->bytes[i], part, sizeof(part)), names[i]);
        }
    }
    top_put(0, A_BOLD, text);
    double free_bytes = (double)use->bytes[UMF_RECORD_STATE_FREE];
    snprintf(text, sizeof(text), "largest free piece %s, %.0f%% of the free memory is elsewhere",
             top_bytes(use->largest_free, part, sizeof(part)),
             free_bytes > 0 ? 100 * (1 - (double)use->largest_free / free_bytes) : 0);
    top_put(1, A_NORMAL, text);
}

void top_spans_show(const umf_reader_t *snapshot, uint32_t number, size_t first,
                    const char *pages) {
    size_t count, own = 0;
    int line = *pages ? 4 : 3;
    use_t use = {{0}, 0, 0};
    const umf_record_span_t *spans = umf_reader_spans(snapshot, &count);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].object != number) {
            continue;
        }
        span_use(snapshot, &spans[i], &use);
        if (own++ >= first && line < LINES - 2) {
            span_show(snapshot, &spans[i], line++);
        }
    }
    sums_show(snapshot, number, &use, own);
    if (*pages) {
        top_put(2, A_NORMAL, pages + strspn(pages, " "));
    }
    top_put(*pages ? 3 : 2, A_UNDERLINE,
            "  ADDRESS            SIZE     LIVE  # live, o cached, . free, ? unknown");
}

#endif
