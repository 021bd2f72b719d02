/*
 * Fixed provider: allocations out of a range that belongs to the caller. It neither frees nor
 * touches that range; see shared/carve.h for the rules.
 */
#include <errno.h>
#include <sys/mman.h>

#include <umf/providers/provider_fixed_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "providers/shared/carve_ops.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "system/os.h"

typedef struct fixed_provider_t {
    umf_carve_t carve;
    uintptr_t base; /* Immutable after create, as all members below */
    size_t size;
    umf_name_t name;
} fixed_provider_t;
UMF_CARVE_FIRST(fixed_provider_t, carve);

UMF_PROVIDER_NATIVE(fixed, {UMF_FIXED_RESULT_SUCCESS, "success"},
                    {UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED, "force purging failed"})

/* --- parameters ------------------------------------------------------------------------------- */

/* An address in a text has no meaning in another run, so text is refused. */
static umf_result_t fixed_refuse_text(void *params) {
    (void)params;
    UMF_LOG_ERROR("a fixed provider needs the address of memory, which no text can give: create it "
                  "with umfFixedMemoryProviderParamsCreate");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

#define UMF_PARAMS umf_fixed_params
#define UMF_PARAMS_TABLE "providers/fixed_params.def"
#define UMF_PARAMS_HOOKS .init_text = fixed_refuse_text,
typedef struct umf_fixed_memory_provider_params_t {
    void *base;
    size_t size;
#include "ctl/params_members.h"
} umf_fixed_params_t;
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfFixedMemoryProviderParamsSetMemory(
    umf_fixed_memory_provider_params_handle_t hParams, void *ptr, size_t size) {
    uintptr_t end;
    if (!umf_handle_check(hParams, &umf_fixed_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr || size == 0 || __builtin_add_overflow((uintptr_t)ptr, size, &end)) {
        UMF_LOG_ERROR("%zu bytes at %p are not a range of memory", size, ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->base = ptr;
    hParams->size = size;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFixedMemoryProviderParamsCreate(
    void *ptr, size_t size, umf_fixed_memory_provider_params_handle_t *hParams) {
    void *made;
    umf_result_t result = umf_params_create(&umf_fixed_params_kind, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfFixedMemoryProviderParamsSetMemory(made, ptr, size);
    }
    return umf_params_give(&umf_fixed_params_kind, made, result, hParams, __func__);
}

/* --- operations ------------------------------------------------------------------------------- */

static umf_result_t fixed_init(fixed_provider_t *fixed, const umf_fixed_params_t *requested) {
    if (!umf_handle_check(requested, &umf_fixed_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_carve_init(&fixed->carve, umf_os_page_size());
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    fixed->base = (uintptr_t)requested->base;
    fixed->size = requested->size;
    umf_name_copy(fixed->name, requested->name);
    result = umf_carve_add(&fixed->carve, fixed->base, fixed->size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_carve_fini(&fixed->carve);
    }
    return result;
}

UMF_PROVIDER_INITIALIZE(fixed, fixed_provider_t)

static umf_result_t fixed_finalize(void *provider) {
    fixed_provider_t *fixed = provider;
    umf_carve_fini(&fixed->carve);
    umf_meta_free(fixed, sizeof(*fixed));
    return UMF_RESULT_SUCCESS;
}

static umf_result_t fixed_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    fixed_provider_t *fixed = provider;
    if (size > fixed->size) {
        UMF_LOG_ERROR("%zu bytes do not fit into the %zu of the range", size, fixed->size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_carve_alloc(&fixed->carve, size, alignment, ptr);
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        UMF_LOG_ERROR("no free %zu bytes aligned to %zu in the range of %zu bytes at %p", size,
                      alignment, fixed->size, (void *)fixed->base);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return result;
}

UMF_PROVIDER_GET_NAME(fixed, fixed_provider_t, umf_fixed_params)

/* Purges the whole pages inside only. The rest of the first and the last page may
 * belong to others. */
static umf_result_t fixed_purge_force(void *provider, void *ptr, size_t size) {
    fixed_provider_t *fixed = provider;
    uintptr_t base = (uintptr_t)ptr;
    if (base < fixed->base || base - fixed->base > fixed->size ||
        size > fixed->size - (base - fixed->base)) {
        UMF_LOG_ERROR("%zu bytes at %p are not inside the range of %zu bytes at %p", size, ptr,
                      fixed->size, (void *)fixed->base);
        return umf_native_fail(&fixed_native, UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED, EINVAL);
    }
    size_t page_size = fixed->carve.page_size;
    size_t skipped = (size_t)-base & (page_size - 1);
    if (size < skipped || size - skipped < page_size) {
        return UMF_RESULT_SUCCESS;
    }
    size_t length = umf_align_down(size - skipped, page_size);
    int error = umf_os_advise((char *)ptr + skipped, length, MADV_DONTNEED);
    if (error) {
        return umf_native_fail_at(&fixed_native, "fixed_provider",
                                  UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED, error,
                                  "dropping the contents of", ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ops_t fixed_ops = {
    UMF_PROVIDER_OPS(fixed),
    UMF_CARVE_OPS,
    .alloc = fixed_alloc,
    .get_name = fixed_get_name,
    .get_last_native_error = fixed_get_last_native_error,
    .ext_purge_force = fixed_purge_force,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfFixedMemoryProviderOps(void) {
    return &fixed_ops;
}

UMF_PROVIDER_DESCRIPTOR(fixed, umf_fixed_params, .ops = &fixed_ops);
