/* The inside of a store, shared by its two ways of copying. */
#ifndef UMF_SRC_SUSPEND_STORE_OWN_H
#define UMF_SRC_SUSPEND_STORE_OWN_H

#include <pthread.h>

#include "suspend/store.h"

#define STORE_MAX_FILES 8
#define STORE_MAX_THREADS 12

struct umf_store_t {
    umf_memory_provider_handle_t provider; /* Immutable after create, as all members */
    umf_suspend_keep_t keep;
    size_t size;
    size_t units;
    umf_pinned_t **pinned;      /* PINNED: one for each unit */
    size_t ready;               /* the number of units at the front that were pinned before */
    char *memory;               /* HOST, PEER */
    const char *folder;         /* FILE: the policy's, which outlives the store */
    int files[STORE_MAX_FILES]; /* FILE: files without names */
    size_t file_count;
};

/* One save or load. */
typedef struct umf_store_work_t {
    umf_store_t *store;
    const umf_store_part_t *parts;
    size_t count;
    bool is_load;
} umf_store_work_t;

/* Queues the copies between the parts and `buffer`, which holds the row from `start` to `end`. */
umf_result_t umf_store_copy(const umf_store_work_t *work, void *queue, size_t start, size_t end,
                            char *buffer);

/* For a device that copies without the CPU: all copies in one queue, and one wait. */
umf_result_t umf_store_run_queue(const umf_store_work_t *work);
/* For copies that need the CPU: the units are divided among threads. */
umf_result_t umf_store_run_threads(const umf_store_work_t *work);

/* As pthread_create, with all signals blocked, because they belong to the application. */
bool umf_store_start_thread(void *(*run)(void *), void *arg, pthread_t *thread);
/* The number of threads that pays off for `units`, at least 1. */
size_t umf_store_threads(size_t units);

#endif
