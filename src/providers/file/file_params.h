/* Parameters of the file provider. */
#ifndef UMF_SRC_PROVIDERS_FILE_FILE_PARAMS_H
#define UMF_SRC_PROVIDERS_FILE_FILE_PARAMS_H

#include <umf/providers/provider_file_memory.h>

#include "base/params.h"
#include "providers/file/path.h"

typedef struct umf_file_memory_provider_params_t {
    char path[UMF_PATH_ROOM]; /* "": none yet, from text only */
    unsigned protection;      /* umf_mem_protection_flag_t */
    umf_memory_visibility_t visibility;
    char name[UMF_NAME_MAX];
} umf_file_params_t;

extern const umf_handle_kind_t umf_file_params_kind;

extern const char umf_file_default_name[];

/* The descriptor's pair. */
umf_result_t umf_file_params_from_text(const char *text, void **params);
void umf_file_params_destroy(void *params);

#endif
