/*
 * Memory that a device with a Level Zero driver and the CPU share: a pool over it, the device
 * writes, the CPU reads and writes, the device copies.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_level_zero.h>

#include "level_zero_device.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* A pool over memory that `gpu` and the CPU share. The context stays the caller's. */
static int make_pool(const gpu_t *gpu, umf_memory_pool_handle_t *pool) {
    umf_level_zero_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    TRY(umfLevelZeroMemoryProviderParamsCreate(&params));
    TRY(umfLevelZeroMemoryProviderParamsSetContext(params, gpu->context));
    TRY(umfLevelZeroMemoryProviderParamsSetDevice(params, gpu->device));
    TRY(umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_SHARED));
    TRY(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider));
    TRY(umfLevelZeroMemoryProviderParamsDestroy(params));
    /* The pool owns its provider: destroying the pool destroys both. */
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      pool));
    return 0;
}

/* The device fills the memory, the CPU changes one number in it, the device copies it back. */
static int use(const gpu_t *gpu, unsigned *numbers, unsigned *copy, size_t count) {
    const unsigned value = 42;
    TRY_ZE(zeCommandListAppendMemoryFill(gpu->list, numbers, &value, sizeof(value),
                                         count * sizeof(value), NULL, 0, NULL));
    printf("the device has filled %zu numbers, the CPU reads %u\n", count, numbers[count - 1]);
    numbers[0] = 7;
    TRY_ZE(zeCommandListAppendMemoryCopy(gpu->list, copy, numbers, count * sizeof(value), NULL, 0,
                                         NULL));
    printf("the device has copied them back: %u, %u, ..., %u\n", copy[0], copy[1], copy[count - 1]);
    return copy[0] == 7 && copy[1] == 42 && copy[count - 1] == 42 ? 0 : 1;
}

int main(void) {
    gpu_t gpu;
    int status = gpu_open(&gpu);
    if (status) {
        return status;
    }

    umf_memory_pool_handle_t pool;
    if (make_pool(&gpu, &pool)) {
        return 1;
    }
    static unsigned copy[1000];
    unsigned *numbers = umfPoolMalloc(pool, sizeof(copy));
    if (!numbers) {
        fprintf(stderr, "no memory: %s\n", umfResultText(umfPoolGetLastAllocationError(pool)));
        return 1;
    }
    status = use(&gpu, numbers, copy, 1000);

    TRY(umfFree(numbers));
    TRY(umfPoolDestroy(pool));
    return gpu_close(&gpu) || status;
}
