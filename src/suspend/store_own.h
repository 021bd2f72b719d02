/* The inside of a store: what its two ways of copying share. */
#ifndef UMF_SRC_SUSPEND_STORE_OWN_H
#define UMF_SRC_SUSPEND_STORE_OWN_H

#include <pthread.h>

#include "suspend/store.h"

#define STORE_MAX_FILES 8
#define STORE_MAX_THREADS 12

struct umf_store_t {
    umf_memory_provider_handle_t provider; /* Immutable after create, as all */
    umf_suspend_keep_t keep;
    size_t size;
    size_t units;
    umf_pinned_t **pinned;      /* PINNED: one for each unit */
    size_t ready;               /* so many of them were pinned before, from the first on */
    char *memory;               /* HOST, PEER */
    const char *folder;         /* FILE: of the policy, which outlives the store */
    int files[STORE_MAX_FILES]; /* already without names */
    size_t file_count;
};

/* One saving or loading. */
typedef struct umf_store_work_t {
    umf_store_t *store;
    const umf_store_part_t *parts;
    size_t count;
    bool is_load;
} umf_store_work_t;

/* Queues the copies between the parts and `buffer`, which stands for the row from `start` to `end`.
 */
umf_result_t umf_store_copy(const umf_store_work_t *work, void *queue, size_t start, size_t end,
                            char *buffer);

/* Where the device copies by itself: all copies in one queue, and one wait. */
umf_result_t umf_store_run_queue(const umf_store_work_t *work);
/* Where the CPU has a share in each copy: units are divided among threads. */
umf_result_t umf_store_run_threads(const umf_store_work_t *work);

/* As pthread_create; signals are the application's. */
bool umf_store_start_thread(void *(*run)(void *), void *arg, pthread_t *thread);
/* How many threads are worth while for `units`: 1 at least. */
size_t umf_store_threads(size_t units);

#endif
