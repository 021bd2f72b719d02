/* Operations that all kinds of pools have. */
#include "pools/shared/block_ops.h"

umf_result_t umf_block_refuse(const char *name, const void *ptr) {
    UMF_LOG_ERROR("pool %s: %p is not the start of a live allocation: it is inside one, was freed "
                  "already, or was never allocated",
                  name, ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
