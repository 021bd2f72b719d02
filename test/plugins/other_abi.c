/* Made for another library: nothing but size and version may be read. */
#include <umf/plugin.h>

const umf_plugin_t umf_plugin = {.struct_size = sizeof(umf_plugin),
                                 .abi = UMF_PLUGIN_ABI + 1,
                                 .providers = (void *)1,
                                 .num_providers = 1};
