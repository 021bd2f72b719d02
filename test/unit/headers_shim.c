/*
 * The public headers as C sees them: layout and signatures are checked by the compiler.
 */
#include <assert.h>

#include "headers_all.h"

#define VALUE(name, value) static_assert((name) == (value), #name);
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type);
#define MEMBER(type, place, member_type, member)                                                   \
    static_assert(offsetof(type, member) == (place)*8, #type "." #member);                         \
    static_assert(_Generic(((type *)0)->member, member_type : 1, default : 0), #type "." #member);
#include "headers_layout.def"

/* Parameters of the functions are as the list says; other types would not even convert. */
#define FUNCTION(result, name, parameters)                                                         \
    static_assert(_Generic(&name, result(*) parameters : 1, default : 0), #name);
#include "headers_functions.def"

static_assert(sizeof((umf_numa_split_partition_t){.weight = 1, .target = 2}) == 8, "partition");
static_assert(offsetof(umf_numa_split_partition_t, weight) == 0, "weight");
static_assert(offsetof(umf_numa_split_partition_t, target) == 4, "target");

/* The initialisers work in C, too. */
size_t headers_shim_sizes(void);
size_t headers_shim_sizes(void) {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    umf_memory_provider_descriptor_t provider = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    umf_memory_pool_descriptor_t pool = UMF_MEMORY_POOL_DESCRIPTOR_INIT;
    umf_plugin_t plugin = UMF_PLUGIN_INIT;
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    return ext.struct_size + provider.struct_size + pool.struct_size + plugin.struct_size +
           policy.struct_size + params.struct_size + report.struct_size + residency.struct_size;
}
