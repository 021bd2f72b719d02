/*
 * The pools behind the contexts: one for each kind of memory, device and flags. They are made when
 * they are needed and live until the process ends, as contexts do not own memory.
 */
#include "umem/own.h"

#include <stdatomic.h>
#include <string.h>

#include <umf/cuda_device.h>
#include <umf/text.h>

#define DEVICES 64 /* those that may be peers */

typedef enum kind_t { HOST, DEVICE, DRIVER, PINNED, MANAGED } kind_t;

typedef struct pool_t {
    kind_t kind; /* Immutable, as all members */
    int device;
    unsigned flags;
    uint64_t peers; /* devices that have access */
    umf_memory_pool_handle_t pool;
    struct pool_t *next;
} pool_t;

static _Atomic(pool_t *) pools;           /* the newest first; none ever goes */
static _Atomic uint64_t expected_devices; /* those that contexts were made of */

static pool_t *pool_find(kind_t kind, int device, unsigned flags) {
    pool_t *at = atomic_load_explicit(&pools, memory_order_acquire);
    while (at && (at->kind != kind || at->device != device || at->flags != flags)) {
        at = at->next;
    }
    return at;
}

/* Adds a pool, unless another thread was faster: then that one's counts. */
static pool_t *pool_publish(pool_t made, umem_why_t *why) {
    pool_t *own = malloc(sizeof(*own));
    if (!own) {
        umfPoolDestroy(made.pool);
        snprintf(why->text, sizeof(why->text), "there is no memory of the host");
        return NULL;
    }
    *own = made;
    own->next = atomic_load_explicit(&pools, memory_order_acquire);
    do {
        pool_t *other = pool_find(own->kind, own->device, own->flags);
        if (other) {
            umfPoolDestroy(own->pool);
            free(own);
            return other;
        }
    } while (!atomic_compare_exchange_strong_explicit(&pools, &own->next, own, memory_order_acq_rel,
                                                      memory_order_acquire));
    return own;
}

static bool pool_make(const char *text, umf_memory_pool_handle_t *pool, umem_why_t *why) {
    umf_result_t result = umfPoolCreateFromText(text, pool);
    if (result != UMF_RESULT_SUCCESS) {
        snprintf(why->text, sizeof(why->text), "no pool '%s': %s", text, umfTextError());
    }
    return result == UMF_RESULT_SUCCESS;
}

static umf_memory_pool_handle_t handle_of(const pool_t *pool) {
    return pool ? pool->pool : NULL;
}

/* --- memory of the host ----------------------------------------------------------------------- */

umf_memory_pool_handle_t umem_pool_of_host(umem_why_t *why) {
    pool_t made = {.kind = HOST};
    const pool_t *found = pool_find(HOST, 0, 0);
    if (!found && (pool_make("jemalloc over os", &made.pool, why) ||
                   pool_make("disjoint over os", &made.pool, why))) {
        found = pool_publish(made, why);
    }
    return handle_of(found);
}

/* --- memory of devices ------------------------------------------------------------------------ */

int umem_current_device(void) {
    int device = 0;
    return umfCUDADeviceCurrent(&device) == UMF_RESULT_SUCCESS && device > 0 ? device : 0;
}

void umem_pool_expect_device(int device) {
    if (device >= 0 && device < DEVICES) {
        atomic_fetch_or(&expected_devices, UINT64_C(1) << device);
    }
}

/* The devices among those expected that reach the memory of this one. */
static uint64_t peers_of(int device) {
    uint64_t expected = atomic_load(&expected_devices), peers = 0;
    for (int peer = 0; peer < DEVICES; peer++) {
        bool reaches = false;
        uint64_t bit = UINT64_C(1) << peer;
        if ((expected & bit) && peer != device &&
            umfCUDADeviceReaches(peer, device, &reaches) == UMF_RESULT_SUCCESS && reaches) {
            peers |= bit;
        }
    }
    return peers;
}

static void peers_write(uint64_t peers, char *text, size_t size) {
    size_t length = 0;
    text[0] = 0;
    for (int peer = 0; peer < DEVICES && length < size; peer++) {
        if (peers & (UINT64_C(1) << peer)) {
            length += (size_t)snprintf(text + length, size - length, "%s%d",
                                       length ? "+" : ",peers=", peer);
        }
    }
}

/* Virtual memory with access for the peers. Whether that works shows when memory is made. */
static bool device_make(int device, uint64_t peers, umf_memory_pool_handle_t *pool,
                        umem_why_t *why) {
    char list[256], text[320];
    peers_write(peers, list, sizeof(list));
    snprintf(text, sizeof(text), "coalescing over cuda_vmm:device=%d%s", device, list);
    if (!pool_make(text, pool, why)) {
        return false;
    }
    void *tried = umfPoolMalloc(*pool, 1);
    if (!tried && umfPoolGetLastAllocationError(*pool) != UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY) {
        snprintf(why->text, sizeof(why->text), "pool '%s' gives no memory", text);
        umfPoolDestroy(*pool);
        return false;
    }
    umfPoolFree(*pool, tried);
    return true;
}

static const pool_t *device_pool(int device, umem_why_t *why) {
    const pool_t *found = pool_find(DEVICE, device, 0);
    pool_t made = {.kind = DEVICE, .device = device};
    char text[96];
    if (found) {
        return found;
    }
    made.peers = peers_of(device);
    bool done = device_make(device, made.peers, &made.pool, why);
    if (!done) {
        made.peers = 0;
        snprintf(text, sizeof(text), "coalescing over cuda:device=%d,memory_type=device", device);
        done = device_make(device, 0, &made.pool, why) || pool_make(text, &made.pool, why);
    }
    return done ? pool_publish(made, why) : NULL;
}

umf_memory_pool_handle_t umem_pool_of_device(int device, umem_why_t *why) {
    return handle_of(device_pool(device, why));
}

bool umem_pool_serves_peer(int device, int peer, umem_why_t *why) {
    bool reaches = false;
    why->text[0] = 0;
    umf_result_t result = umfCUDADeviceReaches(peer, device, &reaches);
    if (result != UMF_RESULT_SUCCESS) {
        snprintf(why->text, sizeof(why->text),
                 "the access between device %d and device %d is unknown: %s", device, peer,
                 umfResultText(result));
    }
    const pool_t *pool = reaches && peer < DEVICES ? device_pool(device, why) : NULL;
    return pool && (pool->peers & (UINT64_C(1) << peer)) != 0;
}

/* Pools on the cuda provider. */
static umf_memory_pool_handle_t cuda_pool(kind_t kind, const char *of, int device, unsigned flags,
                                          umem_why_t *why) {
    pool_t made = {.kind = kind, .device = device, .flags = flags};
    const pool_t *found = pool_find(kind, device, flags);
    char text[160];
    snprintf(text, sizeof(text), "%s over cuda:device=%d,memory_type=%s,alloc_flags=%u",
             kind == DRIVER ? "proxy" : "coalescing", device, of, flags);
    if (!found && pool_make(text, &made.pool, why)) {
        found = pool_publish(made, why);
    }
    return handle_of(found);
}

umf_memory_pool_handle_t umem_pool_of_driver(int device, umem_why_t *why) {
    return cuda_pool(DRIVER, "device", device, 0, why);
}

void umem_pools_trim(void) {
    for (pool_t *at = atomic_load_explicit(&pools, memory_order_acquire); at; at = at->next) {
        if (at->kind == DEVICE) {
            umfPoolTrimMemory(at->pool, 0);
        }
    }
}

/* --- of contexts ------------------------------------------------------------------------------ */

/* Pinned memory serves every device, so any will do: the first current one, to make no context of
 * another device for it. */
static umf_memory_pool_handle_t pinned_pool(unsigned flags, umem_why_t *why) {
    static _Atomic int device = -1;
    int none = -1;
    if (atomic_load(&device) < 0) {
        atomic_compare_exchange_strong(&device, &none, umem_current_device());
    }
    return cuda_pool(PINNED, "host", atomic_load(&device), flags, why);
}

static umf_memory_pool_handle_t pool_of(umemVirtual *ctx, size_t alignment, umem_why_t *why) {
    switch (ctx->type) {
    case umemHostDevice:
        return umem_pool_of_host(why);
    case umemCudaDevice:
        return umem_pool_of_device(((umemCuda *)ctx)->device, why);
    case umemCudaHostDevice:
        return pinned_pool(((umemCudaHost *)ctx)->flags, why);
    case umemCudaManagedDevice:
        return cuda_pool(MANAGED, "shared", umem_current_device(), ((umemCudaManaged *)ctx)->flags,
                         why);
    case umemRMMDevice:
        return umem_rmm_pool(((umemRMM *)ctx)->device, alignment, why);
    case umemMMapDevice:
        return umem_mmap_pool((umemMMap *)ctx, why);
    default:
        snprintf(why->text, sizeof(why->text), "contexts of this kind have no pool");
        return NULL;
    }
}

umf_memory_pool_handle_t umem_pool_of(umemVirtual *ctx, size_t alignment, umemStatusType error) {
    umem_why_t why = {""};
    umf_memory_pool_handle_t pool = pool_of(ctx, alignment, &why);
    if (!pool) {
        umem_set_status(ctx, ctx->type == umemMMapDevice ? umemIOError : error, why.text);
    }
    return pool;
}
