/* umfctl reap: removes shared memory objects that crashed processes left. */
#include <umf.h>
#include <umf/ipc_ext.h>
#include <umf/reason.h>

#include "report.h"
#include "umfctl.h"

int umfctl_reap(void) {
    size_t removed = 0;
    umfLastErrorClear();
    umf_result_t result = umfIPCReap(&removed);
    report_section("names", "Shared memory objects", 12);
    if (result != UMF_RESULT_SUCCESS) {
        report_row(&(report_row_t){
            .name = "/dev/shm", .state = REPORT_FAILED, .note = umfctl_reason(result)});
        return 1;
    }
    report_number("removed", removed);
    return 0;
}
