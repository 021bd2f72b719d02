/* Counts kinds that it does not have. */
#include <umf/plugin.h>

const umf_plugin_t umf_plugin = {
    .struct_size = sizeof(umf_plugin), .abi = UMF_PLUGIN_ABI, .num_pools = 3};
