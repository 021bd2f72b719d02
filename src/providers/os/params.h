/* Parameters of the OS provider and what of them several of its files use. */
#ifndef UMF_SRC_PROVIDERS_OS_PARAMS_H
#define UMF_SRC_PROVIDERS_OS_PARAMS_H

#include <umf/providers/provider_os_memory.h>

#include "ctl/field.h"
#include "ctl/params.h"
#include "system/common.h"

typedef struct umf_os_memory_provider_params_t {
    unsigned protection; /* umf_mem_protection_flag_t */
    umf_memory_visibility_t visibility;
    char *shm_name; /* NULL: none */
    unsigned *numa_list;
    unsigned numa_list_len;
    umf_numa_mode_t numa_mode;
    size_t part_size;
    umf_numa_split_partition_t *partitions;
    unsigned partitions_len;
    char name[UMF_NAME_MAX];
} umf_os_params_t;

extern const umf_handle_kind_t umf_os_params_kind;

extern const char umf_os_default_name[];

/* Settings in text. The object of every field is an umf_os_params_t. */
extern const umf_fields_t umf_os_params_fields;

/* The descriptor's pair. */
umf_result_t umf_os_params_from_text(const char *text, void **params);
void umf_os_params_destroy(void *params);

/* Stores the native error of this kind for the thread (os.c). Returns MEMORY_PROVIDER_SPECIFIC. */
umf_result_t umf_os_native_fail(int32_t code, int errnum);

#endif
