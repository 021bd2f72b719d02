#include "peer/thread.h"

#include <errno.h>
#include <signal.h>

/* Only used pages cost memory, and sanitizers use many. */
#define STACK ((size_t)256 << 10)

int umf_peer_thread_start(pthread_t *thread, void *(*run)(void *)) {
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, run, NULL);
    if (error == EINVAL) {
        /* The thread-local memory of the program does not fit our stack, so the default size is
         * used. */
        error = pthread_create(thread, NULL, run, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static void *be_last(void *end) {
    sigset_t none;
    (*(void (*const *)(void))end)();
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    return NULL;
}

void umf_peer_thread_leave(void (*const *end)(void)) {
    pthread_t last;
    if (pthread_create(&last, NULL, be_last, (void *)(uintptr_t)end) == 0) {
        pthread_detach(last);
    }
}
