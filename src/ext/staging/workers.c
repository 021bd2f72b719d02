#include "ext/staging/workers.h"

#include <pthread.h>
#include <signal.h>

typedef struct workers_t {
    void (*work)(void *arg);
    void *arg;
} workers_t;

static void *worker(void *arg) {
    const workers_t *workers = arg;
    workers->work(workers->arg);
    return NULL;
}

void umf_workers_run(size_t count, void (*work)(void *arg), void *arg) {
    pthread_t threads[UMF_WORKERS_MAX];
    workers_t workers = {.work = work, .arg = arg};
    size_t started = 0;
    sigset_t all, before;
    sigfillset(&all);
    /* The threads block all signals, because they belong to the application. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < count && started < UMF_WORKERS_MAX - 1 &&
           pthread_create(&threads[started], NULL, worker, &workers) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(arg);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}
