/*
 * A ring of messages in shared memory: a producer writes messages of many sizes one after the
 * other, a consumer reads them in place. Nothing is copied between them, and no system call is
 * needed.
 *
 * Both map the block at their own addresses. So a message is named by its offset from the start of
 * the block, in a table of offsets.
 */
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#define SLOTS 1024
#define AREA ((uint64_t)4 << 20)
#define WORDS_MAX 1024
#define MESSAGES 100000

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

typedef struct ring_t {
    alignas(64) _Atomic uint64_t written; /* messages; changed by the producer only */
    alignas(64) _Atomic uint64_t read;    /* by the consumer only */
    struct {
        uint64_t offset; /* from the start of the ring */
        uint64_t words;
    } table[SLOTS];
    uint64_t area[AREA / sizeof(uint64_t)];
} ring_t;

/* Sizes that differ, from 8 bytes to 8 KiB. */
static uint64_t words_of(uint64_t message) {
    return (message * 2654435761u >> 7) % WORDS_MAX + 1;
}

/* Yields to the other process. false: it has ended. */
static int wait_for(int other, unsigned *waits) {
    char byte;
    if (++*waits % 64 == 0) {
        sched_yield();
    }
    return *waits % 65536 != 0 || recv(other, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

/* --- the producer --- */

/* The position of a message in an endless row of bytes, which the area shows part by part. A
 * message does not cross the area's end. */
static uint64_t place(uint64_t row, uint64_t size) {
    uint64_t left = AREA - row % AREA;
    return left < size ? row + left : row;
}

static int produce(ring_t *ring, int consumer) {
    uint64_t ends[SLOTS] = {0}; /* of messages, in the row */
    uint64_t row = 0;
    unsigned waits = 0;
    for (uint64_t message = 0; message < MESSAGES; message++) {
        uint64_t words = words_of(message);
        uint64_t begin = place(row, words * sizeof(uint64_t));
        row = begin + words * sizeof(uint64_t);
        uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        while (message - read >= SLOTS || row - (read ? ends[(read - 1) % SLOTS] : 0) > AREA) {
            if (!wait_for(consumer, &waits)) {
                fprintf(stderr, "the consumer is gone\n");
                return 1;
            }
            read = atomic_load_explicit(&ring->read, memory_order_acquire);
        }
        uint64_t *to = &ring->area[begin % AREA / sizeof(uint64_t)];
        for (uint64_t i = 0; i < words; i++) {
            to[i] = message + i;
        }
        ends[message % SLOTS] = row;
        ring->table[message % SLOTS].offset = (uint64_t)((char *)to - (char *)ring);
        ring->table[message % SLOTS].words = words;
        atomic_store_explicit(&ring->written, message + 1, memory_order_release);
    }
    return 0;
}

/* Runs until the consumer has read all messages and closes the socket. */
static int run_producer(int consumer) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handle_t handle;
    size_t size;
    char byte;
    TRY(umfPoolCreateFromText("disjoint over os:visibility=shared", &pool));
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* see docs/guide/sharing.md */
    ring_t *ring = umfPoolAlignedMalloc(pool, sizeof(*ring), alignof(ring_t));
    if (ring == NULL) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    atomic_init(&ring->written, 0);
    atomic_init(&ring->read, 0);
    TRY(umfGetIPCHandle(ring, &handle, &size));
    ssize_t sent = send(consumer, handle, size, MSG_NOSIGNAL);
    TRY(umfPutIPCHandle(handle));
    int status = sent != (ssize_t)size || produce(ring, consumer);
    while (recv(consumer, &byte, 1, 0) > 0) {
    }
    TRY(umfPoolFree(pool, ring));
    TRY(umfPoolDestroy(pool));
    return status;
}

/* --- the consumer --- */

static int consume(ring_t *ring, int producer, uint64_t *bytes) {
    unsigned waits = 0;
    for (uint64_t message = 0; message < MESSAGES; message++) {
        while (atomic_load_explicit(&ring->written, memory_order_acquire) == message) {
            if (!wait_for(producer, &waits)) {
                fprintf(stderr, "the producer is gone\n");
                return 1;
            }
        }
        uint64_t words = ring->table[message % SLOTS].words, wrong = words != words_of(message);
        const char *from = (const char *)ring + ring->table[message % SLOTS].offset;
        for (uint64_t i = 0; i < words; i++) {
            wrong |= ((const uint64_t *)(const void *)from)[i] ^ (message + i);
        }
        if (wrong) {
            fprintf(stderr, "message %llu is damaged\n", (unsigned long long)message);
            return 1;
        }
        *bytes += words * sizeof(uint64_t);
        atomic_store_explicit(&ring->read, message + 1, memory_order_release);
    }
    return 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int run_consumer(int producer) {
    unsigned char handle[4096];
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t door;
    void *ring;
    uint64_t bytes = 0;
    TRY(umfPoolCreateFromText("disjoint over os:visibility=shared", &pool));
    TRY(umfPoolGetIPCHandler(pool, &door));
    ssize_t size = recv(producer, handle, sizeof(handle), 0);
    if (size <= 0) {
        fprintf(stderr, "no handle came\n");
        return 1;
    }
    TRY(umfOpenIPCHandleSized(door, handle, (size_t)size, &ring));
    double begin = seconds();
    int status = consume(ring, producer, &bytes);
    double time = seconds() - begin;
    TRY(umfCloseIPCHandle(ring));
    TRY(umfPoolDestroy(pool));
    printf("%d messages, %.0f MiB in %.3f s: %.0f MiB/s, %.0f ns for each\n", MESSAGES,
           (double)bytes / (1 << 20), time, (double)bytes / (1 << 20) / time,
           time / MESSAGES * 1e9);
    return status;
}

int main(void) {
    int ends[2], status = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) {
        perror("socketpair");
        return 1;
    }
    pid_t child = fork(); /* before any pool: each process makes its own */
    if (child == 0) {
        close(ends[0]);
        _exit(run_producer(ends[1]));
    }
    close(ends[1]);
    int failed = run_consumer(ends[0]);
    close(ends[0]);
    waitpid(child, &status, 0);
    return failed || status != 0;
}
