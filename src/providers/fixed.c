/*
 * Fixed provider: allocations out of a range that the caller has. It neither frees nor touches that
 * range; see carve.h for the rules.
 */
#include <errno.h>
#include <sys/mman.h>

#include <umf/plugin.h>
#include <umf/providers/provider_fixed_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/native.h"
#include "ctl/field.h"
#include "ctl/params.h"
#include "providers/shared/carve_ops.h"
#include "providers/shared/name.h"
#include "system/os.h"

static const char fixed_default_name[] = "FIXED";
static const umf_handle_kind_t fixed_params_kind = {
    "an object of umfFixedMemoryProviderParamsCreate"};

typedef struct umf_fixed_memory_provider_params_t {
    void *base;
    size_t size;
    char name[UMF_NAME_MAX];
} fixed_params_t;

typedef struct fixed_provider_t {
    umf_carve_t carve;
    uintptr_t base; /* Immutable after create, as all below */
    size_t size;
    char name[UMF_NAME_MAX];
} fixed_provider_t;
UMF_CARVE_FIRST(fixed_provider_t, carve);

static __thread umf_native_t fixed_native;

static const umf_native_text_t fixed_native_texts[] = {
    {UMF_FIXED_RESULT_SUCCESS, "success"},
    {UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED, "force purging failed"},
};

/* --- parameters ------------------------------------------------------------------------------- */

static bool fixed_range_is_valid(const void *base, size_t size) {
    uintptr_t end;
    if (!base || size == 0 || __builtin_add_overflow((uintptr_t)base, size, &end)) {
        UMF_LOG_ERROR("%zu bytes at %p are not a range of memory", size, base);
        return false;
    }
    return true;
}

UMF_API_1_0 umf_result_t umfFixedMemoryProviderParamsCreate(
    void *ptr, size_t size, umf_fixed_memory_provider_params_handle_t *hParams) {
    if (!hParams) {
        UMF_LOG_ERROR("no place for the parameters (hParams is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!fixed_range_is_valid(ptr, size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    fixed_params_t *params = umf_params_new(sizeof(*params), &fixed_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    params->base = ptr;
    params->size = size;
    umf_name_copy(params->name, fixed_default_name);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFixedMemoryProviderParamsSetMemory(
    umf_fixed_memory_provider_params_handle_t hParams, void *ptr, size_t size) {
    if (!umf_handle_check(hParams, &fixed_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!fixed_range_is_valid(ptr, size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->base = ptr;
    hParams->size = size;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfFixedMemoryProviderParamsDestroy(umf_fixed_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &fixed_params_kind, __func__);
}

UMF_API_1_1 umf_result_t umfFixedMemoryProviderParamsSetName(
    umf_fixed_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &fixed_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        UMF_LOG_ERROR("the name is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_name_copy(hParams->name, name);
    return UMF_RESULT_SUCCESS;
}

/* --- operations ------------------------------------------------------------------------------- */

static umf_result_t fixed_initialize(const void *params, void **provider) {
    const fixed_params_t *wanted = params;
    if (!umf_handle_check(wanted, &fixed_params_kind, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    fixed_provider_t *fixed = umf_meta_alloc(sizeof(*fixed));
    if (!fixed) {
        UMF_LOG_ERROR("no memory for a provider");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_carve_init(&fixed->carve, umf_os_page_size());
    if (result != UMF_RESULT_SUCCESS) {
        goto free_provider;
    }
    fixed->base = (uintptr_t)wanted->base;
    fixed->size = wanted->size;
    umf_name_copy(fixed->name, wanted->name);
    result = umf_carve_add(&fixed->carve, fixed->base, fixed->size);
    if (result != UMF_RESULT_SUCCESS) {
        goto fini_carve;
    }
    *provider = fixed;
    return UMF_RESULT_SUCCESS;

fini_carve:
    umf_carve_fini(&fixed->carve);
free_provider:
    umf_meta_free(fixed, sizeof(*fixed));
    return result;
}

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

static umf_result_t fixed_get_last_native_error(void *provider, const char **message,
                                                int32_t *code) {
    (void)provider;
    return umf_native_get(&fixed_native, fixed_native_texts, UMF_COUNT_OF(fixed_native_texts),
                          message, code);
}

static umf_result_t fixed_get_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t fixed_get_name(void *provider, const char **name) {
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = provider ? ((fixed_provider_t *)provider)->name : fixed_default_name;
    return UMF_RESULT_SUCCESS;
}

/* Whole pages inside only: what shares the first and the last page may belong to somebody else. */
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
    UMF_CARVE_OPS,
    .initialize = fixed_initialize,
    .finalize = fixed_finalize,
    .alloc = fixed_alloc,
    .get_last_native_error = fixed_get_last_native_error,
    .get_name = fixed_get_name,
    .ext_purge_force = fixed_purge_force,
    .get_cache_line_size = fixed_get_cache_line_size,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfFixedMemoryProviderOps(void) {
    return &fixed_ops;
}

extern const umf_memory_provider_descriptor_t umf_fixed_descriptor;

/* An address in a text would mean nothing. */
static umf_result_t fixed_params_from_text(const char *text, void **params) {
    (void)text, (void)params;
    UMF_LOG_ERROR("a fixed provider needs the address of memory, which no text can give: create it "
                  "with umfFixedMemoryProviderParamsCreate");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

const umf_memory_provider_descriptor_t umf_fixed_descriptor = {
    .struct_size = sizeof(umf_fixed_descriptor),
    .name = "fixed",
    .ops = &fixed_ops,
    .params_from_text = fixed_params_from_text,
};
