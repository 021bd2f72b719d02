/* Requests of inspectors. Their bytes are another program's: every number is checked before it is
 * used, and a handle is looked up. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <umf/reason.h>
#include <umf/record.h>
#include <umf/result.h>
#include <umf/suspend.h>

#include "base/memory_file.h"
#include "ext/record/attach/attach_own.h"
#include "ext/record/record.h"
#include "ext/record/recording.h"
#include "ext/record/snapshot/snapshot.h"
#include "object/object.h"
#include "reclaim/reclaim.h"
#include "system/os.h"

static void fail_system(umf_attach_answer_t *answer, const char *what, int error) {
    char buffer[128];
    umf_attach_fail(answer, "%s: %s", what, umf_os_error_text(error, buffer, sizeof(buffer)));
}

/* Of the last call: what it has stored, or the text of its result. */
static const char *reason_of(umf_result_t result) {
    const char *text = umfLastErrorText();
    return *text ? text : umfResultText(result);
}

/* Another program could write to it while its reader or its writer has it mapped. */
static bool is_without_seals(umf_attach_answer_t *answer) {
    if (umf_memory_file_is_limited()) {
        umf_attach_fail(answer, "this process may not make memory that can be sealed (memfd_create "
                                "is denied), and hands out no other: record into a file");
    }
    return umf_memory_file_is_limited();
}

/* --- snapshots --- */

static void serve_snapshot(unsigned client, const umf_attach_request_t *request,
                           umf_attach_answer_t *answer) {
    bool is_all = request->kind == UMF_ATTACH_SNAPSHOT;
    int fd = -1;
    (void)client;
    int error = umf_record_memory_file("umf-snapshot", &fd);
    if (error == 0 && is_without_seals(answer)) {
        umf_os_close(fd);
        return;
    }
    if (error == 0) {
        error = umf_snapshot_write(fd, is_all ? UMF_SNAPSHOT_ALL : UMF_SNAPSHOT_FIGURES,
                                   umf_attach_is_closing);
    }
    if (error == 0) {
        umf_memory_file_seal(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
        answer->fd = fd;
        return;
    }
    fail_system(answer, "the snapshot could not be made", error);
    if (fd != -1) {
        umf_os_close(fd);
    }
}

/* --- recordings --- */

/* The client that has started a recording, and which; UMF_ATTACH_CLIENTS: none has. Only the attach
 * socket's thread uses it, and the thread that has joined it. In a child of fork it is the
 * parent's.
 */
static struct {
    unsigned client;
    uint64_t generation;
    int pid;
} recorder = {.client = UMF_ATTACH_CLIENTS};

static bool is_recorder(unsigned client) {
    return recorder.client == client && recorder.pid == umf_os_pid() &&
           recorder.generation == umf_record_generation();
}

static bool is_recording(void) {
    umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
    return umfRecordGetState(&report) == UMF_RESULT_SUCCESS && report.is_running;
}

/* A descriptor of its own, which can only be read. Who gets it could open a file with a path, too.
 */
static void give_recording(umf_attach_answer_t *answer) {
    int fd = -1;
    char path[64];
    umf_record_path_get(path, sizeof(path));
    if (!*path && is_without_seals(answer)) {
        return;
    }
    int error = umf_record_dup(&fd);
    if (error == 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        error = umf_os_open(path, O_RDONLY, 0, &answer->fd);
        umf_os_close(fd);
    }
    if (error != 0) {
        fail_system(answer,
                    is_recording() ? "the recording cannot be passed on" : "nothing is recorded",
                    error);
    }
}

static void serve_live(unsigned client, const umf_attach_request_t *request,
                       umf_attach_answer_t *answer) {
    (void)client, (void)request;
    if (is_recording()) {
        give_recording(answer);
    } else {
        umf_attach_fail(answer, "nothing is recorded");
    }
}

static void record_end(void) {
    recorder.client = UMF_ATTACH_CLIENTS;
    umf_record_stop_this(recorder.generation);
}

/* umfRecordStart validates the numbers and logs. */
static void serve_record(unsigned client, const umf_attach_request_t *request,
                         umf_attach_answer_t *answer) {
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.size = request->size;
    params.stack_depth = request->stack_depth;
    params.leaks = request->leaks != 0;
    params.min_size = request->min_size;
    params.max_size = request->max_size;
    params.rate = request->rate;
    if (is_recording()) {
        umf_attach_fail(answer, "a recording is running already");
        return;
    }
    if (request->size > UMF_ATTACH_SIZE_MAX) {
        umf_attach_fail(answer, "a recording of %llu bytes is too large, at most %llu are possible",
                        (unsigned long long)request->size, (unsigned long long)UMF_ATTACH_SIZE_MAX);
        return;
    }
    umfLastErrorClear();
    umf_result_t result = umfRecordStart(&params);
    if (result != UMF_RESULT_SUCCESS) {
        umf_attach_fail(answer, "the recording could not be started: %s", reason_of(result));
        return;
    }
    recorder.client = client;
    recorder.generation = umf_record_generation();
    recorder.pid = umf_os_pid();
    give_recording(answer);
    if (answer->fd == -1) {
        record_end();
    }
}

static void serve_stop(unsigned client, const umf_attach_request_t *request,
                       umf_attach_answer_t *answer) {
    (void)request;
    if (is_recorder(client)) {
        record_end();
    } else {
        umf_attach_fail(answer, "this connection has started no recording");
    }
}

/* --- pools --- */

typedef struct requested_t {
    uint64_t handle;
    uint32_t birth;
    bool is_there;
    umf_result_t result;
    char name[UMF_NAMES_LENGTH + 1];
} requested_t;

/* Another pool may have got its handle. */
static bool is_requested(umf_memory_pool_handle_t pool, const requested_t *requested) {
    return (uintptr_t)pool == requested->handle && pool->birth == requested->birth;
}

static bool trim_it(umf_memory_pool_handle_t pool, void *arg) {
    requested_t *requested = arg;
    requested->is_there = is_requested(pool, requested);
    if (requested->is_there) {
        umfLastErrorClear();
        requested->result = umf_pool_trim(pool, 0, false);
    }
    return !requested->is_there;
}

static bool name_it(umf_memory_pool_handle_t pool, void *arg) {
    requested_t *requested = arg;
    requested->is_there = is_requested(pool, requested);
    if (requested->is_there) {
        memcpy(requested->name, pool->named.name, sizeof(requested->name));
    }
    return !requested->is_there;
}

static void fail_pool(const requested_t *requested, const char *what, umf_attach_answer_t *answer) {
    if (!requested->is_there) {
        umf_attach_fail(answer, "there is no such pool any more");
    } else if (requested->result != UMF_RESULT_SUCCESS) {
        umf_attach_fail(answer, "the pool cannot be %s: %s", what, reason_of(requested->result));
    }
}

static void serve_trim(unsigned client, const umf_attach_request_t *request,
                       umf_attach_answer_t *answer) {
    requested_t requested = {.handle = request->object, .birth = request->birth};
    (void)client;
    umf_reclaim_each(trim_it, &requested);
    fail_pool(&requested, "trimmed", answer);
}

/* A pool that was found by its name is not destroyed before it is put back (object/names.h); a
 * visit would keep the suspend itself waiting. */
static void with_pinned(requested_t *requested,
                        umf_result_t (*change)(umf_memory_pool_handle_t *pool)) {
    umf_reclaim_each(name_it, requested);
    requested->is_there = false;
    umf_memory_pool_handle_t pool = umf_names_next(requested->name, NULL);
    while (pool && !is_requested(pool, requested)) {
        pool = umf_names_next(requested->name, pool);
    }
    if (pool) {
        requested->is_there = true;
        umfLastErrorClear();
        requested->result = change(&pool);
        umf_names_put(pool);
    }
}

static umf_result_t suspend(umf_memory_pool_handle_t *pool) {
    return umfPoolsSuspend(pool, 1, NULL, NULL);
}

static umf_result_t resume(umf_memory_pool_handle_t *pool) {
    return umfPoolsResume(pool, 1, NULL, NULL);
}

static void serve_sleep(unsigned client, const umf_attach_request_t *request,
                        umf_attach_answer_t *answer) {
    bool begins = request->kind == UMF_ATTACH_SUSPEND;
    requested_t requested = {.handle = request->object, .birth = request->birth};
    (void)client;
    with_pinned(&requested, begins ? suspend : resume);
    fail_pool(&requested, begins ? "suspended" : "resumed", answer);
}

/* --- all --- */

typedef void (*serve_t)(unsigned client, const umf_attach_request_t *request,
                        umf_attach_answer_t *answer);

void umf_attach_serve(unsigned client, const umf_attach_request_t *request,
                      umf_attach_answer_t *answer) {
    static const serve_t kinds[] = {
        [UMF_ATTACH_FIGURES] = serve_snapshot, [UMF_ATTACH_SNAPSHOT] = serve_snapshot,
        [UMF_ATTACH_LIVE] = serve_live,        [UMF_ATTACH_RECORD] = serve_record,
        [UMF_ATTACH_STOP] = serve_stop,        [UMF_ATTACH_TRIM] = serve_trim,
        [UMF_ATTACH_SUSPEND] = serve_sleep,    [UMF_ATTACH_RESUME] = serve_sleep,
    };
    if (request->kind < UMF_COUNT_OF(kinds) && kinds[request->kind]) {
        kinds[request->kind](client, request, answer);
    } else {
        umf_attach_refuse(answer, UMF_ATTACH_UNKNOWN);
    }
}

void umf_attach_forget(unsigned client) {
    if (is_recorder(client)) {
        record_end();
    }
}
