/*
 * The software CUDA driver: controls and counters for tests. It is built from the same symbol list
 * as the code that calls it and becomes libcuda.so.1 for the first process that loads it.
 *
 * An environment variable makes it an older driver: the functions in UMF_FAKE_CUDA_HIDE, separated
 * by commas, cannot be found in it.
 *
 * It behaves: contexts with a stack per thread, memory that is real host memory with a limit per
 * device, virtual memory with real mappings that each device may access as it was allowed to, IPC
 * with real descriptors, and streams that run late. At first queued work is done when a thread
 * waits for it, one piece for each query. With `late`, or UMF_FAKE_CUDA_LATE=<seed> in the
 * environment, each stream works in a thread of its own, after delays. Handles of destroyed streams
 * are used again. A capture ends by what ends it on the real one: by calls that are not safe,
 * depending on the modes of both sides, and by whatever synchronises its context.
 *
 * And it tracks uses of bytes (test/fakes/oracle.h): fake_cuda_faults names uses that no
 * order allows, in whatever order the work happened to be done.
 */
#ifndef UMF_TEST_FAKES_FAKE_CUDA_H
#define UMF_TEST_FAKES_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fake_cuda_function {
#define UMF_CUDA(function, version, symbol, optional) FAKE_##function,
#include "../../../src/providers/cuda/driver.def"
#include "extra.def"
#undef UMF_CUDA
    FAKE_CUDA_FUNCTIONS
};

#define FAKE_CUDA_ANY (-1)
#define FAKE_CUDA_DEVICES 4

/* Whether handles of memory may go to other machines. */
enum fake_cuda_fabric {
    FAKE_CUDA_FABRIC_NONE,      /* no device can */
    FAKE_CUDA_FABRIC_FORBIDDEN, /* the devices can, the machine is not set up for it */
    FAKE_CUDA_FABRIC_PERMITTED
};

typedef struct fake_cuda_t {
    /* To turn. */
    int devices;                             /* 0 to FAKE_CUDA_DEVICES; 2 at first */
    size_t device_memory[FAKE_CUDA_DEVICES]; /* bytes that may be allocated; 1 GiB at first */
    size_t granularity;                      /* of virtual memory; 2 MiB at first */
    size_t misalign;                         /* added to the address of the next allocations */
    int fail_function;                       /* a fake_cuda_function or FAKE_CUDA_ANY */
    long fail_at;                            /* the n-th call from now fails, 0: none, -1: all */
    int fail_on;                             /* then all fail: fail_at becomes -1 */
    int fail_with;                           /* CUresult */
    int gone;                                /* the driver has shut down */
    int keeps_memory;                        /* released memory stays used; 1 at first where the
                                              * environment has UMF_FAKE_CUDA_KEEPS_MEMORY */
    int fabric;                              /* a fake_cuda_fabric */
    int host_node;                           /* nearest to each device; -1 at first: none */
    char bus_id[32];                         /* of each device on PCI; "" at first: none */
    int has_rdma;                            /* devices say that they have GPUDirect RDMA */
    int refuses_rdma;                        /* and refuse memory for it */
    int lacks_dmabuf;                        /* devices make no DMA buffers */
    int lacks_managed;                       /* devices have no managed memory */
    int lacks_peers;                         /* no device reaches another */
    int first_uuid;                          /* number in the UUID of the first device */
    unsigned long late;                      /* seed of the delays of streams with threads, 0: they
                                              * have none; to turn before streams have work */

    /* To read. */
    long calls[FAKE_CUDA_FUNCTIONS];
    size_t used[FAKE_CUDA_DEVICES]; /* physical bytes held */
    size_t peak[FAKE_CUDA_DEVICES];
    size_t pinned;         /* bytes of host memory allocated pinned */
    size_t registered;     /* bytes of host memory of others that were pinned */
    long contexts;         /* alive, primary ones included */
    long objects;          /* allocations, handles, mappings, reservations, streams, events alive */
    long illegal_accesses; /* work that touched memory which was not there */
    long unordered_unmaps; /* unmapped or freed while queued work still used it */
    long dead_uses;        /* a context, or a stream of one, was used that is destroyed: the real
                            * driver ends the process then */
    long rdma_made;        /* handles of memory for GPUDirect RDMA */
    long staged_copies;    /* between devices whose contexts have no access to each other */
    long per_thread_calls; /* of forms for the default stream of the thread */
    int prefetched;        /* device of the last prefetch that was done; -1: the host */
} fake_cuda_t;

/* Exported by the driver: found with dlsym. */
fake_cuda_t *fake_cuda(void);
/* As freshly loaded; everything alive is forgotten, which leaks objects that a test left. */
void fake_cuda_reset(void);

/* --- the oracle ------------------------------------------------------------------------------- */

/* Mistakes of the program or of the library, a line each, up to the next call. A byte is
 * used by two pieces of work without an order, unmapped under work, or handed out while work uses
 * it: both pieces are named. */
const char *fake_cuda_faults(void);

typedef struct fake_cuda_use_t {
    const void *ptr;
    size_t size;
    int writes;
} fake_cuda_use_t;

/* Queues a kernel that does nothing but use these bytes. */
CUresult fake_cuda_launch(const char *name, const fake_cuda_use_t *uses, size_t count,
                          CUstream stream);

/* An allocator handed a block out: for work queued on a stream from now on, or for any work and the
 * host itself. Work that used the bytes must come before that. */
void oracle_handed_out(const void *ptr, size_t size, CUstream stream);
void oracle_handed_out_to_all(const void *ptr, size_t size);
/* The program gives it back, before it calls the allocator. */
void oracle_given_back(const void *ptr, size_t size);
/* A suspend begins, or its resume has ended: memory of blocks goes and comes. */
void oracle_takes_away(int yes);

#ifdef __cplusplus
}
#endif

#endif
