/* The node "umf.record" of settings. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "ext/record/attach/attach.h"
#include "ext/record/record.h"
#include "ext/record/recording.h"

/* What "start" starts with. Programs write it before they start, from one thread. */
static struct {
    char path[4096];
    bool leaks;
    umf_record_params_t params; /* the rest */
} settings = {.params = UMF_RECORD_PARAMS_INIT};

static umf_record_state_report_t state(void) {
    umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
    umfRecordGetState(&report);
    return report;
}

UMF_FIELD_GETTER(get_running, bool, state().is_running != 0)
UMF_FIELD_GETTER(get_events, size_t, (size_t)state().events)
UMF_FIELD_GETTER(get_dropped, size_t, (size_t)state().dropped)
UMF_FIELD_GETTER(get_live_count, size_t, (size_t)state().live_count)
UMF_FIELD_GETTER(get_live_bytes, size_t, (size_t)state().live_bytes)

static umf_result_t get_path(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index;
    if (size == 0) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_record_path_get(value, size);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t set_path(void *object, const void *value) {
    (void)object;
    if (strlen(value) >= sizeof(settings.path)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    strcpy(settings.path, value);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t start(void *object) {
    (void)object;
    umf_record_params_t params = settings.params;
    params.path = settings.path[0] ? settings.path : NULL;
    params.leaks = settings.leaks;
    return umfRecordStart(&params);
}

static umf_result_t stop(void *object) {
    (void)object;
    return umfRecordStop();
}

UMF_FIELD_GETTER(get_attach, bool, umf_attach_get())

static umf_result_t set_attach(void *object, const void *value) {
    (void)object;
    return umf_attach_set(*(const bool *)value);
}

#define RECORD_MEMBER(kind, member)                                                                \
    .type = UMF_FIELD_##kind, .access = UMF_FIELD_READ | UMF_FIELD_WRITE,                          \
    .offset = offsetof(__typeof__(settings), member), .size = sizeof(settings.member)

static const umf_field_t settings_list[] = {
    {.path = "running",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_READ,
     .get = get_running,
     .help = "whether a recording is running"},
    {.path = "events", UMF_FIELD_COUNTER(get_events), .help = "events so far"},
    {.path = "dropped",
     UMF_FIELD_COUNTER(get_dropped),
     .help = "events that are lost because there was no room"},
    {.path = "live_count",
     UMF_FIELD_COUNTER(get_live_count),
     .help = "recorded allocations that live, with leaks"},
    {.path = "live_bytes", UMF_FIELD_COUNTER(get_live_bytes), .help = "their bytes"},
    {.path = "path",
     UMF_FIELD_SETTING(STRING, get_path, set_path),
     .help = "file of the running recording; written: that of the next, empty for memory"},
    {.path = "size", RECORD_MEMBER(SIZE, params.size), .help = "bytes of the file, 0: 256 MiB"},
    {.path = "stacks",
     RECORD_MEMBER(UINT, params.stack_depth),
     .rules = UMF_RULE_RANGE,
     .max = UMF_RECORD_FRAMES,
     .help = "the most frames of a stack, 0: no stacks"},
    {.path = "leaks", RECORD_MEMBER(BOOL, leaks), .help = "whether live allocations are tracked"},
    {.path = "rate", RECORD_MEMBER(SIZE, params.rate), .help = "one allocation of so many, 0: all"},
    {.path = "min_size", RECORD_MEMBER(SIZE, params.min_size), .help = "smallest allocation"},
    {.path = "max_size",
     RECORD_MEMBER(SIZE, params.max_size),
     .help = "largest allocation, 0: any"},
    {.path = "start",
     .type = UMF_FIELD_NONE,
     .access = UMF_FIELD_RUN,
     .run = start,
     .help = "starts to record"},
    {.path = "stop",
     .type = UMF_FIELD_NONE,
     .access = UMF_FIELD_RUN,
     .run = stop,
     .help = "ends the recording"},
    {.path = "attach",
     UMF_FIELD_SETTING(BOOL, get_attach, set_attach),
     .help = "whether programs that may ptrace this process may look at it"},
};
static const umf_fields_t settings_fields = UMF_FIELDS(settings_list);

static umf_result_t settings_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(&settings, false, &settings_fields, query->source, rest, query->arg,
                         query->size, query->type, *query->args);
}

static void attach_read(const char *word) {
    bool is_no = strcmp(word, "no") == 0;
    if (is_no || strcmp(word, "yes") == 0) {
        umf_attach_set(!is_no);
    } else {
        UMF_LOG_IGNORED("UMF_RECORD_ATTACH is ignored: it is neither yes nor no");
    }
}

void umf_record_settings_init(void) {
    umf_ctl_register("record", settings_query);
    const char *attach = secure_getenv("UMF_RECORD_ATTACH");
    if (attach && *attach) {
        attach_read(attach);
    }
}
