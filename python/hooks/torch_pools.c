/*
 * Pools of libumf behind pools of PyTorch, which calls an allocator without telling whose pool it
 * is: each pool takes a slot, and each slot has a function of its own. A free finds its pool by the
 * pointer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <umf.h>
#include <umf/queue.h>
#include <umf/reclaim.h>

#include "cuda.h"

#define EXPORTED __attribute__((visibility("default")))

typedef struct slot_t {
    _Atomic(umf_memory_pool_handle_t) pool; /* NULL: free */
    int device;
} slot_t;

enum { SLOT_COUNT = 64 };

static slot_t slots[SLOT_COUNT];
/* Held while a pool takes or leaves its slot, and while something of it is freed. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

EXPORTED int umf_torch_take_slot(void *pool, int device);
EXPORTED int umf_torch_take_slot(void *pool, int device) {
    int found = -1;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < SLOT_COUNT && found < 0; i++) {
        if (!atomic_load(&slots[i].pool)) {
            slots[i].device = device;
            atomic_store(&slots[i].pool, pool);
            found = i;
        }
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Before a pool that nothing is allocated from is destroyed: waits for who freed the last of it. */
EXPORTED void umf_torch_quiesce(void);
EXPORTED void umf_torch_quiesce(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

EXPORTED void umf_torch_leave_slot(int slot);
EXPORTED void umf_torch_leave_slot(int slot) {
    pthread_mutex_lock(&mutex);
    atomic_store(&slots[slot].pool, NULL);
    pthread_mutex_unlock(&mutex);
}

/* A segment is of one stream, on which torch uses it. */
static void *slot_malloc(const slot_t *slot, ssize_t size, int device, void *stream) {
    umf_memory_pool_handle_t pool = atomic_load(&slot->pool);
    if (!pool || size <= 0 || device != slot->device) {
        return NULL;
    }
    void *ptr = umfPoolMallocOn(pool, (size_t)size, 0, stream);
    if (!ptr) {
        /* Pools on its provider have released memory; those on others may have free memory, too. */
        umfReclaim(NULL, SIZE_MAX, NULL);
        ptr = umfPoolMallocOn(pool, (size_t)size, 0, stream);
    }
    return ptr;
}

EXPORTED void umf_torch_free(void *ptr, ssize_t size, int device, void *stream);
EXPORTED void umf_torch_free(void *ptr, ssize_t size, int device, void *stream) {
    (void)size;
    umf_memory_pool_handle_t pool = NULL;
    if (!ptr || umfPoolByPtr(ptr, &pool) != UMF_RESULT_SUCCESS) {
        return;
    }
    pthread_mutex_lock(&mutex);
    umf_result_t result = umfFreeOn(ptr, stream);
    /* Torch gives segments back to have the memory elsewhere. */
    if (result == UMF_RESULT_SUCCESS) {
        umfPoolTrimOn(pool, 0, stream);
    } else {
        if (result != UMF_RESULT_ERROR_NOT_SUPPORTED) { /* the provider has queues, not this one */
            cuda_drain(device);
        }
        umfFree(ptr);
        umfPoolTrimMemory(pool, 0);
    }
    pthread_mutex_unlock(&mutex);
}

#define SLOT(number)                                                                               \
    EXPORTED void *umf_torch_malloc_##number(ssize_t size, int device, void *stream);              \
    EXPORTED void *umf_torch_malloc_##number(ssize_t size, int device, void *stream) {             \
        return slot_malloc(&slots[number], size, device, stream);                                  \
    }
#define SLOTS_OF_8(d0, d1, d2, d3, d4, d5, d6, d7)                                                 \
    SLOT(d0) SLOT(d1) SLOT(d2) SLOT(d3) SLOT(d4) SLOT(d5) SLOT(d6) SLOT(d7)

SLOTS_OF_8(0, 1, 2, 3, 4, 5, 6, 7)
SLOTS_OF_8(8, 9, 10, 11, 12, 13, 14, 15)
SLOTS_OF_8(16, 17, 18, 19, 20, 21, 22, 23)
SLOTS_OF_8(24, 25, 26, 27, 28, 29, 30, 31)
SLOTS_OF_8(32, 33, 34, 35, 36, 37, 38, 39)
SLOTS_OF_8(40, 41, 42, 43, 44, 45, 46, 47)
SLOTS_OF_8(48, 49, 50, 51, 52, 53, 54, 55)
SLOTS_OF_8(56, 57, 58, 59, 60, 61, 62, 63)
