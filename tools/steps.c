/* The steps of umfctl check. They use the public interface only. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/experimental/memspace.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "steps_own.h"
#include "umfctl.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* --- outcomes --------------------------------------------------------------------------------- */

report_state_t step_failed(char *why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, STEP_WHY_SIZE, format, args);
    va_end(args);
    return REPORT_FAILED;
}

report_state_t step_call_failed(char *why, const char *call, umf_result_t result) {
    return step_failed(why, "%.*s: %s", (int)strcspn(call, "("), call, umfctl_reason(result));
}

/* --- memory ----------------------------------------------------------------------------------- */

static unsigned char pattern(size_t seed, size_t i) {
    return (unsigned char)(seed * 131 + i * 7 + (i >> 8));
}

void step_fill(void *memory, size_t size, size_t seed) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)memory)[i] = pattern(seed, i);
    }
}

bool step_is_filled(const void *memory, size_t size, size_t seed) {
    for (size_t i = 0; i < size; i++) {
        if (((const unsigned char *)memory)[i] != pattern(seed, i)) {
            return false;
        }
    }
    return true;
}

umf_result_t step_pool_create(const char *pool, const char *provider,
                              umf_memory_pool_handle_t *hPool) {
    char text[sizeof(((step_t *)0)->pool) + sizeof(((step_t *)0)->provider) + 8];
    snprintf(text, sizeof(text), "%s over %s", pool, provider);
    return umfPoolCreateFromText(text, hPool);
}

/* --- providers -------------------------------------------------------------------------------- */

static report_state_t provider_holds(umf_memory_provider_handle_t provider, size_t expected,
                                     char *why) {
    size_t bytes;
    umfLastErrorClear();
    umf_result_t result = umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &bytes,
                                    sizeof(bytes), provider);
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH || result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return REPORT_OK; /* it does not count */
    }
    EXPECT(result == UMF_RESULT_SUCCESS, "reading its counter: %s", umfctl_reason(result));
    EXPECT(bytes == expected, "it counts %zu allocated bytes, %zu are right", bytes, expected);
    return REPORT_OK;
}

static report_state_t use_provider(umf_memory_provider_handle_t provider, char *why) {
    void *memory[2];
    size_t size[2];
    TRY(umfMemoryProviderGetRecommendedPageSize(provider, 0, &size[0]));
    EXPECT(size[0] > 0 && size[0] <= (size_t)1 << 30, "its page size is %zu", size[0]);
    size[1] = 5 * size[0];
    for (size_t i = 0; i < COUNT_OF(memory); i++) {
        TRY(umfMemoryProviderAlloc(provider, size[i], 0, &memory[i]));
        step_fill(memory[i], size[i], i);
    }
    report_state_t counter = provider_holds(provider, size[0] + size[1], why);
    if (counter != REPORT_OK) {
        return counter;
    }
    for (size_t i = 0; i < COUNT_OF(memory); i++) {
        EXPECT(step_is_filled(memory[i], size[i], i), "memory changed by itself");
        TRY(umfMemoryProviderFree(provider, memory[i], size[i]));
    }
    counter = provider_holds(provider, 0, why);
    if (counter != REPORT_OK) {
        return counter;
    }
    TRY(umfMemoryProviderDestroy(provider));
    return REPORT_OK;
}

/* An unknown kind may have required settings, so a refusal is no failure. */
report_state_t step_provider(const step_t *step, char *why) {
    umf_memory_provider_handle_t provider;
    umfLastErrorClear();
    umf_result_t result = umfMemoryProviderCreateFromText(step->provider, &provider);
    if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT && !strchr(step->provider, ':')) {
        snprintf(why, STEP_WHY_SIZE, "it needs settings: %s", umfTextError());
        return REPORT_SKIPPED;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return step_call_failed(why, "creating it", result);
    }
    return use_provider(provider, why);
}

static umf_result_t make_fixed(void *memory, size_t size, umf_memory_provider_handle_t *provider) {
    umf_fixed_memory_provider_params_handle_t params;
    umf_result_t result = umfFixedMemoryProviderParamsCreate(memory, size, &params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, provider);
    umfFixedMemoryProviderParamsDestroy(params);
    return result;
}

static char fixed_memory[1 << 20];

/* The CPU cannot read this memory, so it is only allocated and freed. */
report_state_t step_device(const step_t *step, char *why) {
    umf_memory_provider_handle_t provider;
    void *memory;
    size_t size;
    TRY(umfMemoryProviderCreateFromText(step->provider, &provider));
    TRY(umfMemoryProviderGetRecommendedPageSize(provider, 0, &size));
    TRY(umfMemoryProviderAlloc(provider, size, 0, &memory));
    report_state_t counter = provider_holds(provider, size, why);
    if (counter != REPORT_OK) {
        return counter;
    }
    TRY(umfMemoryProviderFree(provider, memory, size));
    TRY(umfMemoryProviderDestroy(provider));
    return REPORT_OK;
}

report_state_t step_fixed(const step_t *step, char *why) {
    umf_memory_provider_handle_t provider;
    (void)step;
    TRY(make_fixed(fixed_memory, sizeof(fixed_memory), &provider));
    return use_provider(provider, why);
}

/* --- pools ------------------------------------------------------------------------------------ */

static report_state_t pool_holds(umf_memory_pool_handle_t pool, size_t expected, char *why) {
    size_t count;
    TRY(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool));
    EXPECT(count == expected, "it counts %zu live allocations, %zu are right", count, expected);
    return REPORT_OK;
}

/* Not every pool offers every operation. */
static bool is_offered(umf_memory_pool_handle_t pool, const void *memory) {
    return memory || umfPoolGetLastAllocationError(pool) != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static report_state_t use_calloc_and_realloc(umf_memory_pool_handle_t pool, char *why) {
    char *memory = umfPoolCalloc(pool, 10, 100);
    if (!is_offered(pool, memory)) {
        return REPORT_OK;
    }
    EXPECT(memory, "no memory from calloc");
    for (size_t i = 0; i < 1000; i++) {
        EXPECT(memory[i] == 0, "memory from calloc is not zero");
    }
    step_fill(memory, 1000, 1);
    char *larger = umfPoolRealloc(pool, memory, 50000);
    if (is_offered(pool, larger)) {
        EXPECT(larger, "no memory from realloc");
        EXPECT(step_is_filled(larger, 1000, 1), "realloc lost the content of the memory");
        memory = larger;
    }
    TRY(umfPoolFree(pool, memory));
    return REPORT_OK;
}

report_state_t step_use_sizes(umf_memory_pool_handle_t pool, char *why) {
    static const size_t sizes[] = {1, 8, 17, 100, 1000, 4096, 10000, 70000};
    enum { ROUNDS = 8, OBJECTS = ROUNDS * COUNT_OF(sizes) };
    void *objects[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++) {
        size_t size = sizes[i % COUNT_OF(sizes)];
        umfLastErrorClear();
        objects[i] = i % 3 ? umfPoolMalloc(pool, size) : umfPoolAlignedMalloc(pool, size, 64);
        EXPECT(objects[i], "no memory for %zu bytes: %s", size,
               umfctl_reason(umfPoolGetLastAllocationError(pool)));
        EXPECT(i % 3 || (uintptr_t)objects[i] % 64 == 0, "%p is not aligned to 64", objects[i]);
        step_fill(objects[i], size, i);
    }
    report_state_t counter = pool_holds(pool, OBJECTS, why);
    if (counter != REPORT_OK) {
        return counter;
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        size_t size = sizes[i % COUNT_OF(sizes)];
        umf_memory_pool_handle_t found;
        EXPECT(step_is_filled(objects[i], size, i), "an object of %zu bytes changed by itself",
               size);
        TRY(umfPoolByPtr((char *)objects[i] + size / 2, &found));
        EXPECT(found == pool, "%p leads to another pool", objects[i]);
        TRY(i % 2 ? umfFree(objects[i]) : umfPoolFree(pool, objects[i]));
    }
    return REPORT_OK;
}

report_state_t step_use_pool(umf_memory_pool_handle_t pool, char *why) {
    report_state_t state = step_use_sizes(pool, why);
    if (state == REPORT_OK) {
        state = use_calloc_and_realloc(pool, why);
    }
    if (state == REPORT_OK) {
        state = pool_holds(pool, 0, why);
    }
    if (state != REPORT_OK) {
        return state;
    }
    umfLastErrorClear();
    umf_result_t trimmed = umfPoolTrimMemory(pool, 0);
    EXPECT(trimmed == UMF_RESULT_SUCCESS || trimmed == UMF_RESULT_ERROR_NOT_SUPPORTED,
           "returning unused memory: %s", umfctl_reason(trimmed));
    TRY(umfPoolDestroy(pool));
    return REPORT_OK;
}

report_state_t step_pool(const step_t *step, char *why) {
    umf_memory_pool_handle_t pool;
    umf_result_t result = step_pool_create(step->pool, step->provider, &pool);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        snprintf(why, STEP_WHY_SIZE, "the two do not fit: %s", umfTextError());
        return REPORT_SKIPPED;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return step_call_failed(why, "creating it", result);
    }
    return step_use_pool(pool, why);
}

report_state_t step_pool_over_fixed(const step_t *step, char *why) {
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    (void)step;
    TRY(make_fixed(fixed_memory, sizeof(fixed_memory), &provider));
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      &pool));
    for (int i = 0; i < 10; i++) {
        void *memory = umfPoolMalloc(pool, 10000);
        EXPECT(memory, "no memory");
        EXPECT((char *)memory >= fixed_memory &&
                   (char *)memory < fixed_memory + sizeof(fixed_memory),
               "%p is not in the buffer of the provider", memory);
        step_fill(memory, 10000, 1);
        TRY(umfFree(memory));
    }
    TRY(umfPoolDestroy(pool));
    return REPORT_OK;
}

/* --- NUMA nodes ------------------------------------------------------------------------------- */

static report_state_t no_nodes(char *why) {
    snprintf(why, STEP_WHY_SIZE, "the nodes are not known; 'umfctl info' says why");
    return REPORT_SKIPPED;
}

/* Containers often forbid binding memory. */
static bool is_forbidden(umf_memory_provider_handle_t provider, umf_result_t result) {
    const char *text = "";
    int32_t error;
    return result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
           umfMemoryProviderGetLastNativeError(provider, &text, &error) == UMF_RESULT_SUCCESS &&
           text && strstr(text, strerror(EPERM));
}

static report_state_t use_node(unsigned id, char *why) {
    umf_memspace_handle_t memspace;
    umf_memory_provider_handle_t provider;
    void *memory;
    TRY(umfMemspaceCreateFromNumaArray(&id, 1, &memspace));
    TRY(umfMemoryProviderCreateFromMemspace(memspace, NULL, &provider));
    TRY(umfMemspaceDestroy(memspace));
    umfLastErrorClear();
    umf_result_t result = umfMemoryProviderAlloc(provider, 4096, 0, &memory);
    if (is_forbidden(provider, result)) {
        snprintf(why, STEP_WHY_SIZE,
                 "memory may not be bound here; a container needs CAP_SYS_NICE");
        return REPORT_SKIPPED;
    }
    EXPECT(result == UMF_RESULT_SUCCESS, "memory of node %u: %s", id, umfctl_reason(result));
    TRY(umfMemoryProviderFree(provider, memory, 4096));
    return use_provider(provider, why);
}

report_state_t step_nodes(const step_t *step, char *why) {
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    report_state_t state = all ? REPORT_OK : no_nodes(why);
    (void)step;
    for (unsigned i = 0; state == REPORT_OK && i < umfMemspaceMemtargetNum(all); i++) {
        umf_const_memtarget_handle_t target = umfMemspaceMemtargetGet(all, i);
        size_t capacity;
        unsigned id;
        TRY(umfMemtargetGetId(target, &id));
        TRY(umfMemtargetGetCapacity(target, &capacity));
        if (capacity > 0) {
            state = use_node(id, why);
        }
    }
    return state;
}

report_state_t step_all_nodes(const step_t *step, char *why) {
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    umf_memory_pool_handle_t pool;
    (void)step;
    if (!all) {
        return no_nodes(why);
    }
    TRY(umfPoolCreateFromMemspace(all, NULL, &pool));
    return step_use_pool(pool, why);
}

/* --- pointers --------------------------------------------------------------------------------- */

report_state_t step_lookups(const step_t *step, char *why) {
    umf_memory_pool_handle_t pool, found;
    umf_memory_properties_handle_t properties;
    int on_the_stack = 0;
    void *base;
    TRY(step_pool_create(step->pool, step->provider, &pool));
    char *memory = umfPoolMalloc(pool, 1000);
    EXPECT(memory, "no memory");

    EXPECT(umfPoolByPtr(&on_the_stack, &found) == UMF_RESULT_ERROR_INVALID_ARGUMENT,
           "a pool claims an address on the stack");
    EXPECT(umfFree(&on_the_stack) == UMF_RESULT_ERROR_INVALID_ARGUMENT,
           "an address on the stack was freed");
    TRY(umfGetMemoryPropertiesHandle(memory + 500, &properties));
    TRY(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POOL_HANDLE, &found, sizeof(found)));
    EXPECT(found == pool, "the properties of a pointer name another pool");
    TRY(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_ADDRESS, &base, sizeof(base)));
    EXPECT((char *)base <= memory, "the base address %p is above the pointer %p", base,
           (void *)memory);

    TRY(umfFree(memory));
    TRY(umfPoolDestroy(pool));
    EXPECT(umfPoolByPtr(memory, &found) == UMF_RESULT_ERROR_INVALID_ARGUMENT,
           "a destroyed pool still claims its memory");
    return REPORT_OK;
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 4, EXCHANGES = 5000, BOXES = 16 };

typedef struct exchange_t {
    umf_memory_pool_handle_t pool;
    _Atomic(unsigned *) boxes[BOXES];
    atomic_uint errors;
} exchange_t;

/* An object begins with its size and ends with its complement. */
static void object_free(exchange_t *exchange, unsigned *object) {
    if (object && (object[object[0] - 1] != ~object[0] || umfFree(object) != UMF_RESULT_SUCCESS)) {
        exchange->errors++;
    }
}

static void *exchange_objects(void *arg) {
    exchange_t *exchange = arg;
    for (unsigned i = 0; i < EXCHANGES; i++) {
        unsigned words = 2 + i * 37 % 500;
        unsigned *object = umfPoolMalloc(exchange->pool, words * sizeof(*object));
        if (!object) {
            exchange->errors++;
            return NULL;
        }
        object[0] = words;
        object[words - 1] = ~words;
        object_free(exchange, atomic_exchange(&exchange->boxes[i * 7 % BOXES], object));
    }
    return NULL;
}

/* Most objects are freed by a thread that did not allocate them. */
report_state_t step_threads(const step_t *step, char *why) {
    exchange_t exchange = {0};
    pthread_t threads[THREADS];
    TRY(step_pool_create(step->pool, step->provider, &exchange.pool));
    for (size_t i = 0; i < THREADS; i++) {
        int error = pthread_create(&threads[i], NULL, exchange_objects, &exchange);
        EXPECT(error == 0, "starting a thread: %s", strerror(error));
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < BOXES; i++) {
        object_free(&exchange, exchange.boxes[i]);
    }
    EXPECT(exchange.errors == 0, "%u of %u objects were damaged or not to be had",
           (unsigned)exchange.errors, THREADS * EXCHANGES);
    report_state_t counter = pool_holds(exchange.pool, 0, why);
    if (counter != REPORT_OK) {
        return counter;
    }
    TRY(umfPoolDestroy(exchange.pool));
    return REPORT_OK;
}
