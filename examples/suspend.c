/*
 * Suspend and resume: a pool gives its memory back for a while. Its addresses stay, and the content
 * comes back.
 */
#include <stdio.h>

#include <umf.h>
#include <umf/suspend.h>
#include <umf/text.h>

static size_t resident(umf_memory_pool_handle_t pool) {
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    umfPoolGetResidency(pool, &residency);
    return residency.resident;
}

int main(void) {
    enum { COUNT = 1 << 20 };
    umf_memory_pool_handle_t pool;
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    policy.keep = UMF_SUSPEND_KEEP_FILE; /* the content is in a file meanwhile */
    policy.folder = "/tmp";
    if (umfPoolCreateFromText("coalescing over linux_vmm", &pool) != UMF_RESULT_SUCCESS ||
        umfPoolSetSuspendPolicy(pool, &policy) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    int *model = umfPoolMalloc(pool, COUNT * sizeof(*model));
    for (int i = 0; model && i < COUNT; i++) {
        model[i] = i;
    }
    printf("before: %zu bytes in memory\n", resident(pool));

    umf_result_t result = umfPoolsSuspend(&pool, 1, NULL, &report);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "suspend: %s\n", umfResultText(result));
        return 1;
    }
    printf("suspended: %zu bytes in memory, %zu given back, content of %zu in a file\n",
           resident(pool), report.bytes, report.kept);
    /* model[0] would be an access to memory that is not there, and an allocation is refused. */
    void *refused = umfPoolMalloc(pool, 64);

    result = umfPoolsResume(&pool, 1, NULL, NULL);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "resume: %s\n", umfResultText(result));
        return 1;
    }
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += model[i] != i;
    }
    printf("resumed: %zu bytes in memory, %d numbers wrong\n", resident(pool), wrong);
    umfFree(model);
    umfPoolDestroy(pool);
    return wrong || refused;
}
