/*
 * Pages of an extent: a set of pages as a bitmap, and runs in it.
 *
 * The word behind the last page is full, so that a search finds no run behind the end.
 */
#ifndef UMF_SRC_PROVIDERS_OS_PAGES_H
#define UMF_SRC_PROVIDERS_OS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UMF_OS_PAGES_WORDS 8u
#define UMF_OS_PAGES_MAX (UMF_OS_PAGES_WORDS * 64)
/* Longest run that a search can find. */
#define UMF_OS_RUN_MAX 64u

typedef struct umf_os_pages_t {
    uint64_t words[UMF_OS_PAGES_WORDS + 1];
} umf_os_pages_t;

typedef struct umf_os_run_t {
    uint32_t at, count;
} umf_os_run_t;

void umf_os_pages_init(umf_os_pages_t *pages);

/* Adds the pages of the run that are out, and removes those that are in. */
void umf_os_pages_flip(umf_os_pages_t *pages, umf_os_run_t run);

bool umf_os_pages_has_all(const umf_os_pages_t *pages, umf_os_run_t run);
bool umf_os_pages_has_any(const umf_os_pages_t *pages, umf_os_run_t run);

/* Finds the first run of `run->count` pages (up to UMF_OS_RUN_MAX) of `total` pages that are all in
 * (`is_in`) or all out, at a multiple of `step`, a power of two. */
bool umf_os_pages_find(const umf_os_pages_t *pages, bool is_in, uint32_t total, uint32_t step,
                       umf_os_run_t *run);

/* The next run of pages that are in, from `run->at` + `run->count` on. */
bool umf_os_pages_next(const umf_os_pages_t *pages, uint32_t total, umf_os_run_t *run);

#endif
