/*
 * Fields: one table for each kind describes its settings and counters. The settings tree, the
 * stored defaults, the environment and creation from text all read this table.
 */
#ifndef UMF_SRC_CTL_FIELD_H
#define UMF_SRC_CTL_FIELD_H

#include <stdarg.h>

#include "system/common.h"

typedef enum umf_field_type_t {
    UMF_FIELD_NONE,   /* a leaf without a value that can be run */
    UMF_FIELD_BOOL,   /* bool */
    UMF_FIELD_INT,    /* int */
    UMF_FIELD_UINT,   /* unsigned */
    UMF_FIELD_SIZE,   /* size_t; text may carry a suffix K, M, G or T (powers of 1024) */
    UMF_FIELD_ENUM,   /* int-sized enum; text is one of `words` */
    UMF_FIELD_FLAGS,  /* unsigned; text is words joined by '+' */
    UMF_FIELD_STRING, /* NUL-terminated */
    UMF_FIELD_TEXT,   /* a list or another form that only `set` can read, given as text */
} umf_field_type_t;

/* A field with access 0 is a path that is known and never usable: INVALID_ARGUMENT instead of
 * INVALID_CTL_PATH (e.g. "buckets.size", which needs an index). */
enum {
    UMF_FIELD_READ = 1,
    UMF_FIELD_WRITE = 2,  /* at any time */
    UMF_FIELD_CREATE = 4, /* written only while the object is being created */
    UMF_FIELD_RUN = 8,
    UMF_FIELD_OR_INT = 16, /* BOOL: the caller may also use an int */
};

/* The values that a field accepts. Others are refused, and the log names the expected values. */
enum {
    UMF_RULE_RANGE = 1,   /* from `min` to `max`; 0 there: no limit */
    UMF_RULE_POW2 = 2,    /* a power of two */
    UMF_RULE_OR_ZERO = 4, /* or 0, whatever the rules above say */
    UMF_RULE_WORDS = 8,   /* ENUM: one of the words; FLAGS: only their bits */
    UMF_RULE_FILLED = 16, /* STRING: not empty; others: not 0 */
};

typedef struct umf_field_word_t {
    const char *word;
    int value;
} umf_field_word_t;

typedef struct umf_field_t {
    /* Path below the object, e.g. "stats.used_memory"; "{}" stands for one index, e.g.
     * "buckets.{}.size"; at most 8 elements. In creation text a field "params.<name>" is called
     * "<name>". */
    const char *path;
    umf_field_type_t type;
    unsigned access;
    const umf_field_word_t *words; /* ENUM, FLAGS: ends with a NULL word */
    /* `value` has the type's size; STRING: `size` bytes of room. `index` is 0 without "{}". */
    umf_result_t (*get)(void *object, size_t index, void *value, size_t size);
    /* STRING and TEXT: `value` is the text. Otherwise it points to a value of the type. */
    umf_result_t (*set)(void *object, const void *value);
    umf_result_t (*run)(void *object);
    const char *help;   /* one line, with the unit */
    const char *preset; /* the default, for users; NULL: none is shown */
    /* A member of the object, read and written where `get` and `set` are NULL; `size` 0: none. */
    size_t offset, size;
    unsigned rules; /* UMF_RULE_* */
    size_t min, max;
} umf_field_t;

typedef struct umf_fields_t {
    const umf_field_t *list;
    size_t count;
} umf_fields_t;

#define UMF_FIELDS(array)                                                                          \
    { (array), UMF_COUNT_OF(array) }

/* The name of a field in creation text. */
const char *umf_field_name(const umf_field_t *field);
/* The field of that name. NULL: there is none, or it cannot be written. */
const umf_field_t *umf_field_by_name(const umf_fields_t *fields, const char *name);
/* INVALID_ARGUMENT: the rules of the field do not allow the value, logged for `function`. */
umf_result_t umf_field_check(const umf_field_t *field, const void *value, const char *function);
/* Writes `value`, of the field's type, if the rules allow it. Returns the result of umf_field_check
 * or of the setter. */
umf_result_t umf_field_write(void *object, const umf_field_t *field, const void *value,
                             const char *function);

/* Defines the getter `name` of the value `what`, an expression that may use `object`. */
#define UMF_FIELD_GETTER(name, type, what)                                                         \
    static umf_result_t name(void *object, size_t index, void *value, size_t size) {               \
        (void)object, (void)index, (void)size;                                                     \
        *(type *)value = (what);                                                                   \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

/* The members, except path and help, of a field that is a readable number. */
#define UMF_FIELD_COUNTER(getter) .type = UMF_FIELD_SIZE, .access = UMF_FIELD_READ, .get = (getter)

/* Of a field that is read and written at any time: the same. */
#define UMF_FIELD_SETTING(kind, getter, setter)                                                    \
    .type = UMF_FIELD_##kind, .access = UMF_FIELD_READ | UMF_FIELD_WRITE, .get = (getter),         \
    .set = (setter)

/*
 * The body of an `ext_ctl` callback. `creating`: fields with CREATE may be written.
 * INVALID_CTL_PATH: no such field; INVALID_ARGUMENT: wrong access or size; NOT_SUPPORTED: a CREATE
 * field written later. From configuration (`source` CONFIG_INPUT) the value is text and parsed by
 * the field's type. Otherwise the getter's or setter's result.
 */
umf_result_t umf_field_ctl(void *object, bool creating, const umf_fields_t *fields,
                           umf_ctl_query_source_t source, const char *path, void *arg, size_t size,
                           umf_ctl_query_type_t type, va_list args);

/*
 * Writes a field from text, e.g. ("capacity", "8"). `why` receives the expected form on failure. A
 * bool is a word here ("yes", "no", "true", ...). INVALID_CTL_PATH: no such field;
 * INVALID_ARGUMENT: the text does not parse; or the setter's result.
 */
umf_result_t umf_field_set_text(void *object, const umf_fields_t *fields, const char *name,
                                const char *text, char *why, size_t why_size);

/*
 * Memory statistics that every provider of the tree keeps: requested bytes of live allocations and
 * their peak.
 *
 * Frequent frees and allocations of threads are counted in shards; each thread uses its own. A
 * shard has credit: bytes that `counted` contains but that are not live. A thread takes more credit
 * than it needs only while that does not raise the peak. So the peak is exact with one thread, and
 * with more it is at most twice UMF_STATS_CREDIT for each shard too high.
 */
#define UMF_STATS_CREDIT ((size_t)1 << 20)

typedef struct umf_stats_t {
    size_t counted; /* Sync: atomic, relaxed, as the next */
    size_t peak;    /* of `counted` */
    char apart[2 * UMF_CACHE_ISOLATION - 2 * sizeof(size_t)];
    struct umf_stats_shard_t *shards; /* Sync: atomic, set once; NULL: none */
} umf_stats_t;

void umf_stats_add(umf_stats_t *stats, size_t size);
void umf_stats_sub(umf_stats_t *stats, size_t size);
/* Subtracts memory that will soon be added again: it becomes credit of the thread's shard. */
void umf_stats_sub_dormant(umf_stats_t *stats, size_t size);
/* Live bytes and credit together; cheap to read. */
size_t umf_stats_counted(const umf_stats_t *stats);
size_t umf_stats_live(const umf_stats_t *stats);
void umf_stats_fini(umf_stats_t *stats); /* after rest only */
/* Answers "stats.allocated_memory", "stats.peak_memory" and "stats.peak_memory.reset"; other paths
 * give INVALID_CTL_PATH. */
umf_result_t umf_stats_ctl(umf_stats_t *stats, const char *path, void *arg, size_t size,
                           umf_ctl_query_type_t type, va_list args);
/* The body of an `ext_ctl` callback of a provider that has fields besides its statistics. */
umf_result_t umf_fields_or_stats_ctl(void *object, const umf_fields_t *fields, umf_stats_t *stats,
                                     umf_ctl_query_source_t source, const char *path, void *arg,
                                     size_t size, umf_ctl_query_type_t type, va_list args);

#endif
