#include "ext/staging/crew.h"

#include <pthread.h>
#include <signal.h>

typedef struct crew_t {
    void (*work)(void *arg);
    void *arg;
} crew_t;

static void *crew_thread(void *arg) {
    const crew_t *crew = arg;
    crew->work(crew->arg);
    return NULL;
}

void umf_crew_run(size_t count, void (*work)(void *arg), void *arg) {
    pthread_t threads[UMF_CREW_MAX];
    crew_t crew = {.work = work, .arg = arg};
    size_t started = 0;
    sigset_t all, before;
    sigfillset(&all);
    /* The threads block all signals, because they belong to the application. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < count && started < UMF_CREW_MAX - 1 &&
           pthread_create(&threads[started], NULL, crew_thread, &crew) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(arg);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}
