/* Start and stop of recordings, and the public functions. */
#include "ext/record/record.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/record/recording.h"
#include "object/object.h"
#include "object/recorded.h"
#include "reclaim/reclaim.h"
#include "system/os.h"

#define SIZE_DEFAULT ((size_t)256 << 20)
#define NAME_MAX_BYTES 255u

UMF_LOCK_STATIC(recorder_lock, UMF_RANK_RECORDER);
/* Sync: recorder_lock, as all here. */
static umf_recording_t *current;  /* NULL: nothing is recorded */
static umf_record_options_t used; /* of the current one, or of the last */
static char current_path[4096];   /* "": it has none */
static uint64_t generations;

/* --- start --- */

static void begin_events(umf_memory_pool_handle_t pool) {
    umf_recorded_begin(pool);
    if (pool->fast && pool->fast->recorded) {
        pool->fast->recorded(pool->self);
    }
}

static bool begin_one(umf_memory_pool_handle_t pool, void *arg) {
    umf_record_object_is_requested(arg, pool);
    begin_events(pool);
    return true;
}

static bool end_one(umf_memory_pool_handle_t pool, void *arg) {
    (void)arg;
    umf_recorded_end(pool);
    return true;
}

/* Once there is a listener, a new pool begins by itself; the walk finds
 * those that were created before. */
static void begin_pools(umf_recording_t *r) {
    for (size_t i = 0; i < used.params.pool_count; i++) {
        umf_record_object_is_requested(r, used.params.pools[i]);
    }
    atomic_store_explicit(&umf_recording, r, memory_order_release);
    umf_event_listen(umf_record_on_event);
    for (size_t i = 0; i < used.params.pool_count; i++) {
        begin_events(used.params.pools[i]);
    }
    if (!r->has_filter) {
        umf_reclaim_each(begin_one, r);
    }
}

/* A recording with the options in `used`. */
static umf_result_t start_locked(void) {
    umf_assert_locked(&recorder_lock);
    umf_recording_t *r = NULL;
    const char *path = used.params.path;
    current_path[0] = 0;
    if (path && !umf_record_path(path, current_path, sizeof(current_path))) {
        UMF_LOG_ERROR("the path %s is too long", path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_record_events_init();
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_record_file_make(&used.params, path ? current_path : NULL, &r);
    }
    if (result != UMF_RESULT_SUCCESS) {
        current_path[0] = 0;
        return result;
    }
    r->by_environment = used.by_environment;
    r->generation = ++generations;
    r->is_running = true;
    current = r;
    umf_record_modules_own(r);
    umf_record_modules(r);
    begin_pools(r);
    return UMF_RESULT_SUCCESS;
}

static void pools_forget(void) {
    umf_meta_free((void *)(uintptr_t)used.params.pools,
                  used.params.pool_count * sizeof(*used.params.pools));
    used.params.pools = NULL;
    used.params.pool_count = 0;
}

/* A child of fork may start with the same options, when the caller's are gone. */
static umf_result_t take_locked(const umf_record_params_t *params, bool by_environment) {
    size_t pools_size = params->pool_count * sizeof(*params->pools);
    size_t length = params->path ? strlen(params->path) : 0;
    if (length >= sizeof(used.path_room)) {
        UMF_LOG_ERROR("the path of a recording has %zu bytes, at most %zu are possible", length,
                      sizeof(used.path_room) - 1);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    void *pools = params->pool_count > 0 ? umf_meta_alloc(pools_size) : NULL;
    if (params->pool_count > 0 && !pools) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pools_forget();
    used = (umf_record_options_t){.params = *params, .by_environment = by_environment};
    used.params.size = params->size ? params->size : SIZE_DEFAULT;
    used.params.pools = pools;
    if (pools) {
        memcpy(pools, params->pools, pools_size);
    }
    if (params->path) {
        memcpy(used.path_room, params->path, length + 1);
        used.params.path = used.path_room;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_record_start(const umf_record_params_t *params, bool by_environment) {
    umf_result_t result = umf_record_params_check(params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (params->stack_depth > 0) {
        umf_record_walk_init(); /* calls the loader, so not under the lock */
    }
    umf_lock(&recorder_lock);
    if (current) {
        umf_log_error("umfRecordStart", "a recording is running: end it with umfRecordStop");
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    } else {
        result = take_locked(params, by_environment);
        result = result == UMF_RESULT_SUCCESS ? start_locked() : result;
    }
    umf_unlock(&recorder_lock);
    return result;
}

/* --- stop --- */

static void stop_locked(void) {
    umf_assert_locked(&recorder_lock);
    umf_recording_t *r = current;
    umf_event_listen(NULL);
    atomic_store(&umf_recording, NULL);
    umf_record_settle();
    umf_reclaim_each(end_one, NULL);
    umf_record_modules(r);
    if (r->reports_live) {
        umf_record_leaks_tell(r);
    }
    umf_record_file_end(r, r->header);
    umf_record_file_unmap();
    current = NULL;
    current_path[0] = 0;
}

void umf_record_fini(void) {
    umf_lock(&recorder_lock);
    if (current) {
        stop_locked();
    }
    umf_unlock(&recorder_lock);
}

/* --- fork --- */

static bool has_own_file_in_child(void) {
    return used.params.path && strstr(used.params.path, "%p");
}

/* Until here the child has recorded nothing, because it finds the recording zeroed. The pools are
 * those of the parent, which are recorded. */
static void forked(void) {
    umf_lock(&recorder_lock);
    umf_record_events_forked();
    if (current) {
        current = NULL;
        umf_event_listen(NULL);
        atomic_store(&umf_recording, NULL);
        umf_record_file_unmap();
        if (!has_own_file_in_child() || start_locked() != UMF_RESULT_SUCCESS) {
            umf_reclaim_each(end_one, NULL);
        }
    }
    umf_unlock(&recorder_lock);
}

void umf_record_fork_register(void) {
    static bool is_done; /* the library is loaded once */
    if (!is_done && pthread_atfork(NULL, NULL, forked) != 0) {
        UMF_LOG_ERROR("cannot register a fork handler (no memory): a child process of fork() must "
                      "not use pools that are recorded");
    }
    is_done = true;
}

/* --- the environment --- */

/* A program that a recorded one starts has the same environment. That it does not record is no
 * mistake of the user, who gets messages on the others at the level that is written without a log.
 */
static bool is_inherited(const umf_record_params_t *params) {
    static char path[4096];
    bool is_busy = params->path && umf_record_path(params->path, path, sizeof(path)) &&
                   umf_record_file_is_written(path);
    if (is_busy) {
        UMF_LOG_INFO("nothing is recorded: another process records into %s, and with %%p in the "
                     "path each process would have a file of its own",
                     path);
    }
    return is_busy;
}

void umf_record_init(void) {
    static atomic_flag is_done = ATOMIC_FLAG_INIT;
    static umf_record_options_t options;
    umf_log_heard_t heard = {0};
    const char *text = atomic_flag_test_and_set(&is_done) ? NULL : secure_getenv("UMF_RECORD");
    if (!text || !*text) {
        return;
    }
    umf_result_t result = umf_record_options_parse(&options, text, heard.text, sizeof(heard.text));
    if (result == UMF_RESULT_SUCCESS && !is_inherited(&options.params)) {
        umf_log_hear(&heard);
        result = umf_record_start(&options.params, true);
        umf_log_hear_end(&heard);
    }
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_FATAL("nothing is recorded, because of UMF_RECORD: %s", heard.text);
    }
}

/* --- the public functions --- */

UMF_API_EXT_1_3 umf_result_t umfRecordStart(const umf_record_params_t *params) {
    static const umf_record_params_t defaults = UMF_RECORD_PARAMS_INIT;
    return umf_record_start(params ? params : &defaults, false);
}

UMF_API_EXT_1_3 umf_result_t umfRecordStop(void) {
    umf_lock(&recorder_lock);
    bool is_running = current != NULL;
    if (is_running) {
        stop_locked();
    }
    umf_unlock(&recorder_lock);
    if (!is_running) {
        UMF_LOG_ERROR("nothing is recorded");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfRecordSave(const char *path) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_lock(&recorder_lock);
    if (!path) {
        UMF_LOG_ERROR("path is NULL");
    } else if (!current) {
        UMF_LOG_ERROR("nothing is recorded");
    } else {
        result = umf_record_file_save(current, path);
    }
    umf_unlock(&recorder_lock);
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfRecordMark(const char *name) {
    if (!name) {
        UMF_LOG_ERROR("name is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_record_mark(name, strnlen(name, NAME_MAX_BYTES));
}

static void report_locked(umf_recording_t *r, umf_record_state_report_t *report) {
    umf_assert_locked(&recorder_lock);
    uint64_t count = 0, bytes = 0;
    if (r->reports_live) {
        umf_record_live_sum(r, &count, &bytes);
    }
    report->is_running = 1;
    report->events = umf_record_events_count(r);
    report->dropped = atomic_load_explicit(&r->dropped, memory_order_relaxed);
    report->live_count = count;
    report->live_bytes = bytes;
    report->used = atomic_load(&r->touched_count) * umf_os_page_size();
}

UMF_API_EXT_1_3 umf_result_t umfRecordGetState(umf_record_state_report_t *report) {
    if (!report || report->struct_size < sizeof(*report)) {
        UMF_LOG_ERROR(
            "report is NULL, or its struct_size is not sizeof(umf_record_state_report_t)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *report = (umf_record_state_report_t){.struct_size = report->struct_size};
    umf_lock(&recorder_lock);
    if (current) {
        report_locked(current, report);
    }
    umf_unlock(&recorder_lock);
    return UMF_RESULT_SUCCESS;
}

void umf_record_path_get(char *path, size_t size) {
    umf_lock(&recorder_lock);
    strncpy(path, current_path, size - 1);
    path[size - 1] = 0;
    umf_unlock(&recorder_lock);
}

int umf_record_dup(int *fd) {
    umf_lock(&recorder_lock);
    int error = umf_record_file_dup(fd);
    umf_unlock(&recorder_lock);
    return error;
}

uint64_t umf_record_generation(void) {
    umf_lock(&recorder_lock);
    uint64_t generation = current ? current->generation : 0;
    umf_unlock(&recorder_lock);
    return generation;
}

void umf_record_stop_this(uint64_t generation) {
    umf_lock(&recorder_lock);
    if (current && current->generation == generation) {
        stop_locked();
    }
    umf_unlock(&recorder_lock);
}

int umf_record_header(umf_record_header_t *header) {
    umf_lock(&recorder_lock);
    bool is_there = current != NULL;
    if (is_there) {
        umf_record_header_copy(current, header);
    }
    umf_unlock(&recorder_lock);
    return is_there ? 0 : EBADF;
}
