/* Suspend and resume in the background: a thread that makes the ordinary call. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <umf/suspend.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/suspend/suspend.h"
#include "object/object.h"
#include "system/common.h"

struct umf_suspend_job_t {
    pthread_t thread;
    umf_result_t (*call)(umf_memory_pool_handle_t *, size_t, const umf_suspend_params_t *,
                         umf_suspend_report_t *);
    umf_memory_pool_handle_t *pools; /* Immutable, as all members without a note */
    size_t num;
    void **waits; /* the queues, followed by the events */
    size_t num_waits;
    umf_suspend_params_t params;
    umf_suspend_report_t report; /* Sync: done, or the thread's end */
    umf_result_t result;         /* Sync: done, or the thread's end */
    int done;                    /* Sync: atomic */
};

static const umf_handle_kind_t job_handle = {"a job"};

static void job_destroy(umf_suspend_job_handle_t job) {
    umf_meta_free(job->pools, job->num * sizeof(*job->pools));
    umf_meta_free(job->waits, job->num_waits * sizeof(*job->waits));
    umf_meta_free(job, sizeof(*job));
}

static void *job_run(void *arg) {
    umf_suspend_job_handle_t job = arg;
    job->result = job->call(job->pools, job->num, &job->params, &job->report);
    __atomic_store_n(&job->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static bool job_copy_pools(umf_suspend_job_handle_t job, umf_memory_pool_handle_t *pools,
                           size_t num) {
    size_t bytes;
    if (!umf_mul(num, sizeof(*pools), &bytes) || !(job->pools = umf_meta_alloc(bytes))) {
        return false;
    }
    memcpy(job->pools, pools, bytes);
    job->num = num;
    return true;
}

static bool job_copy_params(umf_suspend_job_handle_t job, const umf_suspend_params_t *params) {
    job->params = (umf_suspend_params_t)UMF_SUSPEND_PARAMS_INIT;
    size_t num, bytes;
    if (!params || (params->num_queues == 0 && params->num_events == 0)) {
        return true;
    }
    if (!umf_add(params->num_queues, params->num_events, &num) ||
        !umf_mul(num, sizeof(*job->waits), &bytes) || !(job->waits = umf_meta_alloc(bytes))) {
        return false;
    }
    job->num_waits = num;
    for (size_t i = 0; i < num; i++) {
        job->waits[i] =
            i < params->num_queues ? params->queues[i] : params->events[i - params->num_queues];
    }
    job->params.queues = job->waits;
    job->params.num_queues = params->num_queues;
    job->params.events = job->waits + params->num_queues;
    job->params.num_events = params->num_events;
    return true;
}

static int job_start(umf_suspend_job_handle_t job) {
    sigset_t all, before;
    sigfillset(&all);
    /* The thread blocks all signals, because they belong to the application. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&job->thread, NULL, job_run, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static umf_result_t job_create(umf_result_t (*call)(umf_memory_pool_handle_t *, size_t,
                                                    const umf_suspend_params_t *,
                                                    umf_suspend_report_t *),
                               umf_memory_pool_handle_t *pools, size_t num,
                               const umf_suspend_params_t *params, umf_suspend_job_handle_t *out) {
    umf_result_t result = umf_suspend_check(pools, num, params, NULL, __func__);
    if (result == UMF_RESULT_SUCCESS && !out) {
        UMF_LOG_ERROR("there is no place for the job");
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_suspend_job_handle_t job = umf_meta_alloc(sizeof(*job));
    if (!job) {
        UMF_LOG_ERROR("no memory for a job");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    job->call = call;
    job->report = (umf_suspend_report_t)UMF_SUSPEND_REPORT_INIT;
    result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (!job_copy_pools(job, pools, num) || !job_copy_params(job, params)) {
        UMF_LOG_ERROR("no memory for a job over %zu pools", num);
        goto destroy;
    }
    result = umf_handle_begin(job, &job_handle);
    if (result != UMF_RESULT_SUCCESS) {
        goto destroy;
    }
    if (job_start(job) != 0) {
        UMF_LOG_ERROR("no thread can be started");
        umf_handle_end(job, &job_handle, __func__);
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        goto destroy;
    }
    *out = job;
    return UMF_RESULT_SUCCESS;

destroy:
    job_destroy(job);
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolsSuspendAsync(umf_memory_pool_handle_t *pools, size_t num,
                                                const umf_suspend_params_t *params,
                                                umf_suspend_job_handle_t *job) {
    return job_create(umfPoolsSuspend, pools, num, params, job);
}

UMF_API_EXT_1 umf_result_t umfPoolsResumeAsync(umf_memory_pool_handle_t *pools, size_t num,
                                               const umf_suspend_params_t *params,
                                               umf_suspend_job_handle_t *job) {
    return job_create(umfPoolsResume, pools, num, params, job);
}

UMF_API_EXT_1 umf_result_t umfSuspendJobQuery(umf_suspend_job_handle_t job, int *done) {
    if (!umf_handle_check(job, &job_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!done) {
        UMF_LOG_ERROR("done is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *done = __atomic_load_n(&job->done, __ATOMIC_ACQUIRE);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfSuspendJobWait(umf_suspend_job_handle_t job,
                                             umf_suspend_report_t *report) {
    if (report && report->struct_size < sizeof(*report)) {
        UMF_LOG_ERROR("the report's struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_handle_end(job, &job_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pthread_join(job->thread, NULL);
    umf_result_t result = job->result;
    if (report) {
        job->report.struct_size = report->struct_size;
        *report = job->report;
    }
    job_destroy(job);
    return result;
}
