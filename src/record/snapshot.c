#include <umf/record.h>

#include "system/common.h"

UMF_API_EXT_1 umf_result_t umfRecordSnapshot(const char *path) {
    return path ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
