/*
 * Threads: one thread allocates, another frees. Pools are thread-safe, and each thread has a cache
 * of free blocks of its own. A block may be freed by any thread, by its address alone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/text.h>

enum { PRODUCERS = 3, MESSAGES = 20000, SLOTS = 256 };

typedef struct message_t {
    size_t size;
    unsigned char text[];
} message_t;

typedef struct queue_t {
    umf_memory_pool_handle_t pool;
    _Atomic(message_t *) slots[SLOTS];
} queue_t;

static void *produce(void *arg) {
    queue_t *queue = arg;
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t size = 1 + i % 500;
        message_t *message = umfPoolMalloc(queue->pool, sizeof(*message) + size);
        if (!message) {
            return "no memory";
        }
        message->size = size;
        memset(message->text, (int)(size & 0xff), size);
        for (size_t at = i;; at++) { /* into any slot that is empty */
            message_t *empty = NULL;
            if (atomic_compare_exchange_strong(&queue->slots[at % SLOTS], &empty, message)) {
                break;
            }
        }
    }
    return NULL;
}

/* Takes all messages of the producers and frees them. Returns how many were damaged. */
static size_t consume(queue_t *queue) {
    size_t wrong = 0;
    for (size_t taken = 0, at = 0; taken < (size_t)PRODUCERS * MESSAGES; at++) {
        message_t *message = atomic_exchange(&queue->slots[at % SLOTS], NULL);
        if (message) {
            unsigned char wanted = message->size & 0xff;
            wrong += message->text[0] != wanted || message->text[message->size - 1] != wanted;
            wrong += umfFree(message) != UMF_RESULT_SUCCESS;
            taken++;
        }
    }
    return wrong;
}

int main(void) {
    static queue_t queue;
    pthread_t threads[PRODUCERS];
    if (umfPoolCreateFromText("disjoint over os", &queue.pool) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    for (int i = 0; i < PRODUCERS; i++) {
        if (pthread_create(&threads[i], NULL, produce, &queue) != 0) {
            return 1;
        }
    }
    size_t wrong = consume(&queue);
    for (int i = 0; i < PRODUCERS; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        wrong += problem != NULL;
    }
    printf("%d threads sent %d messages each, %zu of them wrong\n", PRODUCERS, MESSAGES, wrong);
    umfPoolDestroy(queue.pool); /* no thread uses it any more */
    return wrong != 0;
}
