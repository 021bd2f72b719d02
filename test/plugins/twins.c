/* Two kinds of one name. */
#include <umf/plugin.h>

static const umf_memory_provider_ops_t ops_1 = {.version = UMF_PROVIDER_OPS_VERSION_CURRENT};
static const umf_memory_provider_ops_t ops_2 = {.version = UMF_PROVIDER_OPS_VERSION_CURRENT};

static const umf_memory_provider_descriptor_t one = {
    .struct_size = sizeof(one), .name = "twin", .ops = &ops_1};
static const umf_memory_provider_descriptor_t two = {
    .struct_size = sizeof(two), .name = "twin", .ops = &ops_2};
static const umf_memory_provider_descriptor_t *const providers[] = {&one, &two};

const umf_plugin_t umf_plugin = {.struct_size = sizeof(umf_plugin),
                                 .abi = UMF_PLUGIN_ABI,
                                 .providers = providers,
                                 .num_providers = 2};
