/*
 * The provider of custom_provider.c as a plugin: a shared library with one symbol, `umf_plugin`. A
 * program that loads it can create the provider by its name, from text.
 */
#include <umf/plugin.h>

#include "../file_provider.h"

/* "directory=/var/tmp" is the only setting here; kinds with more settings parse more. */
static umf_result_t params_from_text(const char *text, void **params) {
    static const char setting[] = "directory=";
    const char *directory = "/tmp";
    if (text && *text) {
        if (strncmp(text, setting, sizeof(setting) - 1) != 0) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        directory = text + sizeof(setting) - 1;
    }
    file_params_t *file_params = malloc(sizeof(*file_params) + strlen(directory) + 1);
    if (!file_params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    file_params->directory = strcpy((char *)(file_params + 1), directory);
    *params = file_params;
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_descriptor_t file_descriptor = {
    .struct_size = sizeof(umf_memory_provider_descriptor_t),
    .name = "example_file",
    .ops = &file_provider_ops,
    .params_from_text = params_from_text,
    .params_destroy = free,
};

static const umf_memory_provider_descriptor_t *const providers[] = {&file_descriptor};

const umf_plugin_t umf_plugin = {
    .struct_size = sizeof(umf_plugin_t),
    .abi = UMF_PLUGIN_ABI,
    .providers = providers,
    .num_providers = 1,
};
