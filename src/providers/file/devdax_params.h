/* Parameters of the DevDax provider. */
#ifndef UMF_SRC_PROVIDERS_FILE_DEVDAX_PARAMS_H
#define UMF_SRC_PROVIDERS_FILE_DEVDAX_PARAMS_H

#include <umf/providers/provider_devdax_memory.h>

#include "ctl/params.h"
#include "providers/file/path.h"

typedef struct umf_devdax_memory_provider_params_t {
    char path[UMF_PATH_ROOM]; /* "": none yet, from text only */
    size_t size;
    unsigned protection; /* umf_mem_protection_flag_t */
    char name[UMF_NAME_MAX];
} umf_devdax_params_t;

extern const umf_handle_kind_t umf_devdax_params_kind;

extern const char umf_devdax_default_name[];

/* The descriptor's pair. */
umf_result_t umf_devdax_params_from_text(const char *text, void **params);
void umf_devdax_params_destroy(void *params);

#endif
