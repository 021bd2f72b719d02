/* Claims a size that ends before its version. */
#include <umf/plugin.h>

const umf_plugin_t umf_plugin = {.struct_size = sizeof(size_t), .abi = UMF_PLUGIN_ABI};
