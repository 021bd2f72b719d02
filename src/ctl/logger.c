/* The node "umf.logger". */
#include "base/lock.h"
#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/field.h"

/* One member is changed at a time, so two writers may not overtake each other between read and
 * write. */
static umf_lock_t logger_lock;

void umf_ctl_logger_init(void) {
    static bool ready;
    if (!ready) {
        umf_lock_init(&logger_lock, UMF_RANK_CTL);
        ready = true;
    }
}

static umf_result_t get_timestamp(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(bool *)value = umf_log_get_config().timestamp;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_pid(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(bool *)value = umf_log_get_config().pid;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_level(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(int *)value = umf_log_get_config().level;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_flush_level(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(int *)value = umf_log_get_config().flush_level;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_output(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index;
    return umf_log_get_output(value, size);
}

static umf_result_t logger_change(void (*change)(umf_log_config_t *config, const void *value),
                                  const void *value) {
    umf_lock(&logger_lock);
    umf_log_config_t config = umf_log_get_config();
    change(&config, value);
    umf_result_t result = umf_log_set_config(&config);
    umf_unlock(&logger_lock);
    return result;
}

static void change_timestamp(umf_log_config_t *config, const void *value) {
    config->timestamp = *(const bool *)value;
}

static void change_pid(umf_log_config_t *config, const void *value) {
    config->pid = *(const bool *)value;
}

static void change_level(umf_log_config_t *config, const void *value) {
    config->level = *(const int *)value;
}

static void change_flush_level(umf_log_config_t *config, const void *value) {
    config->flush_level = *(const int *)value;
}

static umf_result_t set_timestamp(void *object, const void *value) {
    (void)object;
    return logger_change(change_timestamp, value);
}

static umf_result_t set_pid(void *object, const void *value) {
    (void)object;
    return logger_change(change_pid, value);
}

static umf_result_t set_level(void *object, const void *value) {
    (void)object;
    return logger_change(change_level, value);
}

static umf_result_t set_flush_level(void *object, const void *value) {
    (void)object;
    return logger_change(change_flush_level, value);
}

static umf_result_t set_output(void *object, const void *value) {
    (void)object;
    return umf_log_set_output(value);
}

enum { LOGGER_ACCESS = UMF_FIELD_READ | UMF_FIELD_WRITE };

static const umf_field_t logger_list[] = {
    {.path = "timestamp",
     .type = UMF_FIELD_BOOL,
     .access = LOGGER_ACCESS | UMF_FIELD_OR_INT,
     .get = get_timestamp,
     .set = set_timestamp,
     .help = "whether lines begin with the time"},
    {.path = "pid",
     .type = UMF_FIELD_BOOL,
     .access = LOGGER_ACCESS | UMF_FIELD_OR_INT,
     .get = get_pid,
     .set = set_pid,
     .help = "whether lines name process and thread"},
    {.path = "level",
     .type = UMF_FIELD_INT,
     .access = LOGGER_ACCESS,
     .get = get_level,
     .set = set_level,
     .help = "smallest level written, 0 (debug) to 4 (fatal)"},
    {.path = "flush_level",
     .type = UMF_FIELD_INT,
     .access = LOGGER_ACCESS,
     .get = get_flush_level,
     .set = set_flush_level,
     .help = "smallest level that flushes the output, 0 to 4"},
    {.path = "output",
     .type = UMF_FIELD_STRING,
     .access = LOGGER_ACCESS,
     .get = get_output,
     .set = set_output,
     .help = "stdout, stderr or the name of a file that can be opened for appending"},
};
static const umf_fields_t logger_fields = UMF_FIELDS(logger_list);

umf_result_t umf_ctl_logger_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &logger_fields, query->source, rest, query->arg, query->size,
                         query->type, *query->args);
}
