/* Parameters of the OS provider: the public functions, and the same settings as text. */
#include "providers/os/params.h"

#include <stdlib.h>
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

static umf_result_t params_set_numa_list(umf_os_params_t *params, const unsigned *list,
                                         unsigned length) {
    size_t bytes;
    void *copy;
    if (length && !list) {
        UMF_LOG_ERROR("a list of %u nodes is NULL", length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_mul(length, sizeof(*list), &bytes) || !params_copy(list, bytes, &copy)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_meta_free(params->numa_list, params->numa_list_len * sizeof(*list));
    params->numa_list = copy;
    params->numa_list_len = length;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_partitions(umf_os_params_t *params,
                                          const umf_numa_split_partition_t *partitions,
                                          unsigned length) {
    size_t bytes;
    void *copy;
    if (length && !partitions) {
        UMF_LOG_ERROR("a list of %u partitions is NULL", length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_mul(length, sizeof(*partitions), &bytes) || !params_copy(partitions, bytes, &copy)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_meta_free(params->partitions, params->partitions_len * sizeof(*partitions));
    params->partitions = copy;
    params->partitions_len = length;
    return UMF_RESULT_SUCCESS;
}

/* --- text ------------------------------------------------------------------------------------- */

#define PARAMS_LIST_MAX 4096 /* elements of a list in text */

/* A decimal number of 32 bits at the start of `*text`, which is moved behind it. */
static bool params_read_number(const char **text, unsigned *number) {
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    unsigned long long value = strtoull(*text, &end, 10);
    if (value > UINT32_MAX) {
        return false;
    }
    *number = (unsigned)value;
    *text = end;
    return true;
}

/* Elements are joined by '+': there is another one, or this was the last. */
static bool params_read_plus(const char **text, bool *more) {
    *more = **text == '+';
    *text += *more;
    return *more || **text == '\0';
}

static size_t params_count_elements(const char *text) {
    size_t count = *text != '\0';
    for (; *text; text++) {
        count += *text == '+';
    }
    return count;
}

/* "0+1+2": nodes. */
static bool params_read_nodes(const char *text, unsigned *nodes) {
    bool more = *text != '\0';
    for (size_t i = 0; more; i++) {
        if (!params_read_number(&text, &nodes[i]) || !params_read_plus(&text, &more)) {
            return false;
        }
    }
    return true;
}

/* "0*3+1*1": node and weight. */
static bool params_read_partitions(const char *text, umf_numa_split_partition_t *partitions) {
    bool more = *text != '\0';
    for (size_t i = 0; more; i++) {
        if (!params_read_number(&text, &partitions[i].target) || *text++ != '*' ||
            !params_read_number(&text, &partitions[i].weight) || !params_read_plus(&text, &more)) {
            return false;
        }
    }
    return true;
}

static umf_result_t params_parse_numa_list(void *object, const void *value) {
    size_t count = params_count_elements(value);
    if (count > PARAMS_LIST_MAX) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    unsigned *nodes = umf_meta_alloc(count * sizeof(*nodes));
    if (!nodes) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = params_read_nodes(value, nodes)
                              ? params_set_numa_list(object, nodes, (unsigned)count)
                              : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_meta_free(nodes, count * sizeof(*nodes));
    return result;
}

static umf_result_t params_parse_partitions(void *object, const void *value) {
    size_t count = params_count_elements(value);
    if (count > PARAMS_LIST_MAX) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_numa_split_partition_t *partitions = umf_meta_alloc(count * sizeof(*partitions));
    if (!partitions) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = params_read_partitions(value, partitions)
                              ? params_set_partitions(object, partitions, (unsigned)count)
                              : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_meta_free(partitions, count * sizeof(*partitions));
    return result;
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

#define UMF_PARAMS_HOOKS .fini = params_fini,
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
