#include "providers/os/pages.h"

void umf_os_pages_init(umf_os_pages_t *pages) {
    *pages = (umf_os_pages_t){.words[UMF_OS_PAGES_WORDS] = UINT64_MAX};
}

static uint64_t bits(uint32_t count) {
    return count >= 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
}

/* The bits of the 64 pages from `at` on. */
static uint64_t window(const umf_os_pages_t *pages, uint32_t at) {
    uint64_t low = pages->words[at / 64] >> at % 64;
    return at % 64 ? low | pages->words[at / 64 + 1] << (64 - at % 64) : low;
}

static uint32_t part(umf_os_run_t run) {
    return run.count < 64 ? run.count : 64;
}

static umf_os_run_t rest(umf_os_run_t run) {
    return (umf_os_run_t){run.at + part(run), run.count - part(run)};
}

void umf_os_pages_flip(umf_os_pages_t *pages, umf_os_run_t run) {
    for (; run.count; run = rest(run)) {
        uint64_t mask = bits(part(run));
        pages->words[run.at / 64] ^= mask << run.at % 64;
        if (run.at % 64 + part(run) > 64) {
            pages->words[run.at / 64 + 1] ^= mask >> (64 - run.at % 64);
        }
    }
}

bool umf_os_pages_has_all(const umf_os_pages_t *pages, umf_os_run_t run) {
    while (run.count && !(~window(pages, run.at) & bits(part(run)))) {
        run = rest(run);
    }
    return run.count == 0;
}

bool umf_os_pages_has_any(const umf_os_pages_t *pages, umf_os_run_t run) {
    while (run.count && !(window(pages, run.at) & bits(part(run)))) {
        run = rest(run);
    }
    return run.count != 0;
}

/* The first page from `at` on that is in the set (`is_in`), or out of it; `total` if
 * there is none. */
static uint32_t first(const umf_os_pages_t *pages, bool is_in, uint32_t at, uint32_t total) {
    for (; at < total; at += 64) {
        uint64_t there = window(pages, at);
        uint64_t fit = is_in ? there : ~there;
        if (fit) {
            at += (uint32_t)__builtin_ctzll(fit);
            break;
        }
    }
    return at < total ? at : total;
}

bool umf_os_pages_find(const umf_os_pages_t *pages, bool is_in, uint32_t total, uint32_t step,
                       umf_os_run_t *run) {
    for (uint32_t at = 0; at + run->count <= total;) {
        uint64_t there = window(pages, at);
        uint64_t unfit = (is_in ? ~there : there) & bits(run->count);
        if (!unfit) {
            run->at = at;
            return true;
        }
        uint32_t next = at + 64 - (uint32_t)__builtin_clzll(unfit);
        at = (first(pages, is_in, next, total) + step - 1) & ~(step - 1);
    }
    return false;
}

bool umf_os_pages_next(const umf_os_pages_t *pages, uint32_t total, umf_os_run_t *run) {
    uint32_t at = first(pages, true, run->at + run->count, total);
    *run = (umf_os_run_t){at, first(pages, false, at, total) - at};
    return run->count != 0;
}
