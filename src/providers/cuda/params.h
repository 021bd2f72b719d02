/* Parameters of the CUDA provider. */
#ifndef UMF_SRC_PROVIDERS_CUDA_PARAMS_H
#define UMF_SRC_PROVIDERS_CUDA_PARAMS_H

#include <umf/plugin.h>
#include <umf/providers/provider_cuda.h>

#include "ctl/params.h"
#include "system/common.h"

typedef struct umf_cuda_memory_provider_params_t {
    void *context;       /* CUcontext */
    bool context_is_set; /* by the user; otherwise NULL asks for the device's primary context */
    int device;          /* -1: none */
    umf_usm_memory_type_t memory_type;
    unsigned flags;
    char name[UMF_NAME_MAX];
} umf_cuda_params_t;

extern const umf_handle_kind_t umf_cuda_params_kind;

extern const char umf_cuda_default_name[];

umf_result_t umf_cuda_params_from_text(const char *text, void **params);
void umf_cuda_params_destroy(void *params);

#endif
