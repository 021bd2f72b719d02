#include "record/record.h"

#include <umf/record.h>

void umf_record_settings_init(void) {}

void umf_record_init(void) {}

UMF_API_EXT_1 umf_result_t umfRecordStart(const umf_record_params_t *params) {
    (void)params;
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

UMF_API_EXT_1 umf_result_t umfRecordStop(void) {
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfRecordSave(const char *path) {
    (void)path;
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfRecordMark(const char *name) {
    return name ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfRecordGetState(umf_record_state_report_t *report) {
    if (!report || report->struct_size < sizeof(*report)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *report = (umf_record_state_report_t){.struct_size = report->struct_size};
    return UMF_RESULT_SUCCESS;
}
