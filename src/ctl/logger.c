/* The node "umf.logger". */
#include "base/lock.h"
#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/field.h"

/* A write reads all members and changes one, so two writers must not overlap. */
static umf_lock_t logger_lock;

void umf_ctl_logger_init(void) {
    static bool ready;
    if (!ready) {
        umf_lock_init(&logger_lock, UMF_RANK_CTL);
        ready = true;
    }
}

/* The getter and the setter of one member. */
#define LOGGER_MEMBER(type, member)                                                                \
    UMF_FIELD_GETTER(get_##member, type, umf_log_get_config().member)                              \
    static umf_result_t set_##member(void *object, const void *value) {                            \
        (void)object;                                                                              \
        umf_lock(&logger_lock);                                                                    \
        umf_log_config_t config = umf_log_get_config();                                            \
        config.member = *(const type *)value;                                                      \
        umf_result_t result = umf_log_set_config(&config);                                         \
        umf_unlock(&logger_lock);                                                                  \
        return result;                                                                             \
    }

LOGGER_MEMBER(bool, timestamp)
LOGGER_MEMBER(bool, pid)
LOGGER_MEMBER(int, level)
LOGGER_MEMBER(int, flush_level)

static umf_result_t get_output(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index;
    return umf_log_get_output(value, size);
}

static umf_result_t set_output(void *object, const void *value) {
    (void)object;
    return umf_log_set_output(value);
}

static const umf_field_t logger_list[] = {
    {.path = "timestamp",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_READ | UMF_FIELD_WRITE | UMF_FIELD_OR_INT,
     .get = get_timestamp,
     .set = set_timestamp,
     .help = "whether lines begin with the time"},
    {.path = "pid",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_READ | UMF_FIELD_WRITE | UMF_FIELD_OR_INT,
     .get = get_pid,
     .set = set_pid,
     .help = "whether lines name process and thread"},
    {.path = "level",
     UMF_FIELD_SETTING(INT, get_level, set_level),
     .help = "smallest level written, 0 (debug) to 4 (fatal)"},
    {.path = "flush_level",
     UMF_FIELD_SETTING(INT, get_flush_level, set_flush_level),
     .help = "smallest level that flushes the output, 0 to 4"},
    {.path = "output",
     UMF_FIELD_SETTING(STRING, get_output, set_output),
     .help = "stdout, stderr or the name of a file that can be opened for appending"},
};
static const umf_fields_t logger_fields = UMF_FIELDS(logger_list);

umf_result_t umf_ctl_logger_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &logger_fields, query->source, rest, query->arg, query->size,
                         query->type, *query->args);
}
