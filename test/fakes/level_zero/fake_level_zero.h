/*
 * The software Level Zero driver: controls and counters for tests. The real loader,
 * libze_loader.so.1, loads it by ZE_ENABLE_ALT_DRIVERS and takes its functions through the tables
 * of ze_ddi.h.
 *
 * It behaves: memory that is real host memory with a limit per device, which the CPU cannot touch
 * where it is a device's; residency; virtual memory with real mappings; IPC with real descriptors;
 * and queues that run late: queued work is done when a thread waits for it, one piece for each
 * query, and without a barrier the newest first.
 *
 * A process that ends with something alive, or has closed a descriptor of the driver, gets a line
 * on on stderr, and ends with status 1.
 */
#ifndef UMF_TEST_FAKES_FAKE_LEVEL_ZERO_H
#define UMF_TEST_FAKES_FAKE_LEVEL_ZERO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fake_ze_function {
#define FAKE_ZE(function, table, member) FAKE_##function,
#include "functions.def"
#undef FAKE_ZE
    FAKE_ZE_FUNCTIONS
};

#define FAKE_ZE_ANY (-1)
#define FAKE_ZE_DRIVERS 2
#define FAKE_ZE_DEVICES 4 /* of each driver */
#define FAKE_ZE_ALL_DEVICES (FAKE_ZE_DRIVERS * FAKE_ZE_DEVICES)
#define FAKE_ZE_ORDER 64

/* The extension with the size of a cache line, which is younger than some headers. */
#define FAKE_ZE_CACHE_LINE_NAME "ZE_extension_device_cache_line_size"
#define FAKE_ZE_CACHE_LINE_TYPE 0x20028

typedef struct fake_ze_request_t {
    int function; /* FAKE_zeMemAllocHost, ... */
    size_t size, alignment;
    uint32_t ordinal;
    uint32_t host_flags, device_flags;
    uint32_t relaxed; /* flags of the descriptor of relaxed limits; 0: none there */
    uint32_t exports; /* flags of the descriptor of external memory to export */
    uint32_t imports; /* the same, to import */
} fake_ze_request_t;

/* Arrays over devices: those of the first driver, then those of the second. */
typedef struct fake_ze_t {
    /* To turn. */
    int drivers;                    /* 0 to FAKE_ZE_DRIVERS; 1 at first */
    int devices;                    /* of each driver, 0 to FAKE_ZE_DEVICES; 2 at first */
    int types[FAKE_ZE_ALL_DEVICES]; /* ze_device_type_t; GPUs at first */
    int parts;                      /* each device has a sub-device; 0 at first */
    uint32_t memories;              /* of each device, the ordinals; 1 at first */
    size_t device_memory[FAKE_ZE_ALL_DEVICES]; /* bytes that may be allocated; 1 GiB at first */
    size_t host_memory;                        /* the same for memory of the host; 4 GiB at first */
    size_t max_alloc_size;                     /* without relaxed limits; 256 MiB at first */
    size_t page_size;                          /* of device and shared memory; 64 KiB at first */
    size_t granularity; /* of virtual memory that is no smaller; 2 MiB at first */
    size_t cache_line;  /* 64 at first, 0: the extension is not there */
    int touchable;      /* memory of devices is open to the CPU; 0 at first */
    int cut;            /* small allocations lie inside pages, aligned as requested; 0 at first */
    int peers;          /* devices of one driver reach each other's memory; 1 at first */
    int keeps_exports;  /* an exported descriptor is the driver's, the same at each query; 0 */
    int waits;          /* there is zeDeviceSynchronize; 1 at first */
    int deaf;           /* wishes for an address are not heard; 0 at first */
    int fail_function;  /* a fake_ze_function or FAKE_ZE_ANY */
    long fail_at;       /* the n-th call from now fails, 0: none, -1: all */
    int fail_on;        /* then all fail: fail_at becomes -1 */
    int fail_with;      /* ze_result_t */
    int fail_stays;     /* that failure becomes `lost` */
    int lost;           /* ze_result_t of all calls; what gives back does so and says it, too */

    /* To read. */
    long calls[FAKE_ZE_FUNCTIONS];
    int order[FAKE_ZE_ORDER]; /* the first calls since `ordered` was set to 0 */
    int ordered;
    fake_ze_request_t last;           /* arguments of the last allocation */
    size_t used[FAKE_ZE_ALL_DEVICES]; /* physical bytes held */
    size_t peak[FAKE_ZE_ALL_DEVICES];
    size_t host_used;
    long residents[FAKE_ZE_ALL_DEVICES]; /* allocations made resident there and not evicted */
    long contexts, allocations, imports, reservations, physicals, mappings; /* alive */
    long queues, lists, fences, pools, events;                              /* alive */
    long descriptors;      /* of IPC, open for allocations of this process */
    long illegal_accesses; /* work that touched memory which was not there; the device is then lost
                            */
    long refused;          /* calls to give back that failed on demand: what they were for stays */
    long wrong_handles;    /* calls without a (living) object of the right driver */
    long device_waits;     /* calls of zeDeviceSynchronize */
    long closed_by_others; /* descriptors of the driver that it found closed when it would */
    long unordered_frees;  /* unmapped or freed while queued work still used it */
} fake_ze_t;

/* Exported by the driver: found with dlsym. */
fake_ze_t *fake_ze(void);
/* As freshly loaded; everything alive is forgotten, which leaks objects that a test left. */
void fake_ze_reset(void);
/* Things alive; 0: nothing leaked. */
long fake_ze_alive(void);
/* Whether the allocation at `ptr` is resident on a device (counted as in the arrays above). */
int fake_ze_is_resident(const void *ptr, int device);

#ifdef __cplusplus
}
#endif

#endif
