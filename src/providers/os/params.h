/* Parameters of the OS provider, and its native errors, which several of its files set. */
#ifndef UMF_SRC_PROVIDERS_OS_PARAMS_H
#define UMF_SRC_PROVIDERS_OS_PARAMS_H

#include <umf/providers/provider_os_memory.h>

#include "ctl/params.h"
#include "system/common.h"

#define UMF_PARAMS umf_os_params
#define UMF_PARAMS_TABLE "providers/os/os_params.def"
typedef struct umf_os_memory_provider_params_t {
#include "ctl/params_members.h"
    char *shm_name; /* NULL: none */
    unsigned *numa_list;
    unsigned numa_list_len;
    unsigned partitions_len;
    umf_numa_split_partition_t *partitions;
    bool is_from_text; /* a person wrote the nodes, so creation looks for them */
} umf_os_params_t;
UMF_PARAMS_DECLARE(umf_os_params)

/* Stores the native error of this kind for the thread (os.c). Returns MEMORY_PROVIDER_SPECIFIC. */
umf_result_t umf_os_native_fail(int32_t code, int errnum);

#endif
