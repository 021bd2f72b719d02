/* The first kind would do, the second has no table: neither is to be listed. */
#include <umf/plugin.h>

static const umf_memory_provider_ops_t ops = {.version = UMF_PROVIDER_OPS_VERSION_CURRENT};

static const umf_memory_provider_descriptor_t good = {
    .struct_size = sizeof(good), .name = "half", .ops = &ops};
static const umf_memory_provider_descriptor_t bad = {.struct_size = sizeof(bad), .name = "bad"};
static const umf_memory_provider_descriptor_t *const providers[] = {&good, &bad};

const umf_plugin_t umf_plugin = {.struct_size = sizeof(umf_plugin),
                                 .abi = UMF_PLUGIN_ABI,
                                 .providers = providers,
                                 .num_providers = 2};
