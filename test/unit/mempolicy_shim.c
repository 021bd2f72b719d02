/* A policy of a number that its C++ type cannot have. */
#include <umf/experimental/mempolicy.h>

umf_result_t mempolicy_shim_create(int bind, umf_mempolicy_handle_t *policy);
umf_result_t mempolicy_shim_create(int bind, umf_mempolicy_handle_t *policy) {
    return umfMempolicyCreate((umf_mempolicy_membind_t)bind, policy);
}
