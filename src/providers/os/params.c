/* Parameters of the OS provider: the public functions, and the same settings as text. */
#include "providers/os/params.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "providers/shared/protection.h"

/* --- setting ---------------------------------------------------------------------------------- */

static size_t params_text_bytes(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

/* A copy of `bytes` bytes in the metadata arena; NULL for 0 bytes. false: no memory. */
static bool params_copy(const void *from, size_t bytes, void **copy) {
    void *made = NULL;
    if (bytes) {
        made = umf_meta_alloc(bytes);
        if (!made) {
            UMF_LOG_ERROR("no memory for %zu bytes of parameters", bytes);
            return false;
        }
        memcpy(made, from, bytes);
    }
    *copy = made;
    return true;
}

static umf_result_t params_set_shm_name(void *object, const void *name) {
    umf_os_params_t *params = object;
    void *copy;
    if (!params_copy(name, params_text_bytes(name), &copy)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_meta_free(params->shm_name, params_text_bytes(params->shm_name));
    params->shm_name = copy;
    return UMF_RESULT_SUCCESS;
}

/* Replaces a list by a copy of `length` items of `size` bytes. */
static umf_result_t params_set_list(void **list, unsigned *list_length, const void *from,
                                    unsigned length, size_t size) {
    size_t bytes;
    void *copy;
    if (length && !from) {
        UMF_LOG_ERROR("a list of %u nodes or partitions is NULL", length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_mul(length, size, &bytes) || !params_copy(from, bytes, &copy)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_meta_free(*list, *list_length * size);
    *list = copy;
    *list_length = length;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_numa_list(umf_os_params_t *params, const unsigned *list,
                                         unsigned length) {
    void *now = params->numa_list;
    umf_result_t result =
        params_set_list(&now, &params->numa_list_len, list, length, sizeof(*list));
    params->numa_list = now;
    return result;
}

static umf_result_t params_set_partitions(umf_os_params_t *params,
                                          const umf_numa_split_partition_t *partitions,
                                          unsigned length) {
    void *now = params->partitions;
    umf_result_t result =
        params_set_list(&now, &params->partitions_len, partitions, length, sizeof(*partitions));
    params->partitions = now;
    return result;
}

/* --- text ------------------------------------------------------------------------------------- */

#define PARAMS_LIST_MAX ((size_t)4096) /* numbers of a list in text */

/* Parses a list. At most every second character begins a number, so the text bounds the room. */
static umf_result_t params_parse_list(umf_os_params_t *params, const char *text, const char *joints,
                                      umf_result_t (*set)(umf_os_params_t *, unsigned *, size_t)) {
    size_t room = strlen(text) / 2 + 1;
    size_t count;
    unsigned *numbers = umf_meta_alloc(room * sizeof(*numbers));
    if (!numbers) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    bool is_list = umf_params_parse_numbers(text, joints, numbers, room, &count);
    umf_result_t result = is_list && count <= PARAMS_LIST_MAX ? set(params, numbers, count)
                                                              : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_meta_free(numbers, room * sizeof(*numbers));
    return result;
}

static umf_result_t params_set_nodes(umf_os_params_t *params, unsigned *nodes, size_t count) {
    return params_set_numa_list(params, nodes, (unsigned)count);
}

/* A text names the node before its weight: "0*3+1*1". */
static umf_result_t params_set_pairs(umf_os_params_t *params, unsigned *numbers, size_t count) {
    _Static_assert(sizeof(umf_numa_split_partition_t) == 2 * sizeof(*numbers), "pairs");
    for (size_t i = 0; i < count; i += 2) {
        umf_numa_split_partition_t partition = {.target = numbers[i], .weight = numbers[i + 1]};
        memcpy(&numbers[i], &partition, sizeof(partition));
    }
    return params_set_partitions(params, (const umf_numa_split_partition_t *)(const void *)numbers,
                                 (unsigned)count / 2);
}

static umf_result_t params_parse_numa_list(void *object, const void *value) {
    return params_parse_list(object, value, "+", params_set_nodes);
}

static umf_result_t params_parse_partitions(void *object, const void *value) {
    return params_parse_list(object, value, "*+", params_set_pairs);
}

static const umf_field_word_t params_numa_modes[] = {
    {"default", UMF_NUMA_MODE_DEFAULT},
    {"bind", UMF_NUMA_MODE_BIND},
    {"interleave", UMF_NUMA_MODE_INTERLEAVE},
    {"preferred", UMF_NUMA_MODE_PREFERRED},
    {"split", UMF_NUMA_MODE_SPLIT},
    {"local", UMF_NUMA_MODE_LOCAL},
    {NULL, 0},
};

/* --- parameters ------------------------------------------------------------------------------- */

static void params_fini(void *object) {
    umf_os_params_t *params = object;
    umf_meta_free(params->shm_name, params_text_bytes(params->shm_name));
    umf_meta_free(params->numa_list, params->numa_list_len * sizeof(*params->numa_list));
    umf_meta_free(params->partitions, params->partitions_len * sizeof(*params->partitions));
}

static umf_result_t params_init_text(void *object) {
    ((umf_os_params_t *)object)->is_from_text = true;
    return UMF_RESULT_SUCCESS;
}

#define UMF_PARAMS_HOOKS .init_text = params_init_text, .fini = params_fini,
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfOsMemoryProviderParamsSetShmName(
    umf_os_memory_provider_params_handle_t hParams, const char *shm_name) {
    return umf_handle_check(hParams, &umf_os_params_kind.handle, __func__)
               ? params_set_shm_name(hParams, shm_name)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_1_0 umf_result_t umfOsMemoryProviderParamsSetNumaList(
    umf_os_memory_provider_params_handle_t hParams, unsigned *numa_list, unsigned numa_list_len) {
    return umf_handle_check(hParams, &umf_os_params_kind.handle, __func__)
               ? params_set_numa_list(hParams, numa_list, numa_list_len)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_1_0 umf_result_t umfOsMemoryProviderParamsSetPartitions(
    umf_os_memory_provider_params_handle_t hParams, umf_numa_split_partition_t *partitions,
    unsigned partitions_len) {
    return umf_handle_check(hParams, &umf_os_params_kind.handle, __func__)
               ? params_set_partitions(hParams, partitions, partitions_len)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
