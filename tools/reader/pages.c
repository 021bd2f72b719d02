/* Pages of arenas, out of events. */
#include "own.h"

/* Of a damaged file the sums may contradict each other. */
static void sums_are(umf_reader_pages_t *pages, uint64_t reserved, uint64_t spare) {
    pages->is_known = true;
    pages->reserved = reserved;
    pages->spare = spare < reserved ? spare : reserved;
    if (reserved > pages->reserved_peak) {
        pages->reserved_peak = reserved;
    }
}

void reader_pages_apply(umf_reader_pages_t *pages, const umf_reader_event_t *event) {
    switch (event->kind) {
    case UMF_RECORD_PAGE_CREATE:
        pages->created += event->size;
        break;
    case UMF_RECORD_PAGE_DESTROY:
        pages->destroyed += event->size;
        break;
    case UMF_RECORD_PAGES:
        sums_are(pages, event->address, event->size);
        break;
    case UMF_RECORD_PAGES_MOVED:
        pages->stale = event->address;
        pages->donated = event->size;
        break;
    case UMF_RECORD_DESTROY:
        pages->reserved = pages->spare = pages->stale = 0;
        break;
    default:
        break;
    }
}
