/*
 * Settings by path: the walk, stored defaults, configuration from the environment.
 * The roots ("umf.logger", "umf.pool", ...) are registered by their modules.
 */
#ifndef UMF_SRC_CTL_CTL_H
#define UMF_SRC_CTL_CTL_H

#include <stdarg.h>

#include "system/common.h"

/* One query on its way down the tree. */
typedef struct umf_ctl_query_t {
    umf_ctl_query_source_t source;
    umf_ctl_query_type_t type;
    void *arg;
    size_t size;
    va_list *args; /* positioned at the first unconsumed argument */
} umf_ctl_query_t;

/* A subtree: answers the rest of the path (after "umf.<name>."; "" when the path ends there). */
typedef umf_result_t (*umf_ctl_node_t)(umf_ctl_query_t *query, const char *rest);

/* Registers a node, or replaces it. Names are literals; at most 8 nodes. Called at start only,
 * before umf_ctl_init. */
void umf_ctl_register(const char *name, umf_ctl_node_t node);

/* The longest element of a path, with its NUL. */
#define UMF_CTL_NAME_MAX 255

/* An argument below this is NULL or a number in the place of a name. */
#define UMF_CTL_FIRST_ADDRESS 4096

/*
 * Takes the next element from `*rest` into `name` (a buffer of `size` bytes) and advances. "{}" is
 * replaced by the next argument, a `char *`. false: no element left, it does not fit, or its
 * argument is not a name.
 */
bool umf_ctl_next(umf_ctl_query_t *query, const char **rest, char *name, size_t size);

/* An index: the next argument, or decimal digits (false: they are not digits). A number that is too
 * large saturates. */
size_t umf_ctl_index_argument(va_list *args);
bool umf_ctl_index_parse(const char *text, size_t length, size_t *index);

/* Writes a value from the configuration; `text` has its NUL at `size - 1`. */
umf_result_t umf_ctl_write_config(const char *path, char *text, size_t size);

/* "umf.logger" (ctl/logger.c). */
void umf_ctl_logger_init(void);
umf_result_t umf_ctl_logger_query(umf_ctl_query_t *query, const char *rest);

/* Stored defaults ("umf.pool.default.<name>.<path>"): one set per root. */
typedef struct umf_ctl_defaults_t umf_ctl_defaults_t;
extern umf_ctl_defaults_t umf_ctl_pool_defaults, umf_ctl_provider_defaults;

void umf_ctl_defaults_init(umf_ctl_defaults_t *defaults);
void umf_ctl_defaults_forget(umf_ctl_defaults_t *defaults);

/*
 * The name that exists and is near to one that does not. Where a query between begin and end finds
 * no name, nodes and fields call umf_ctl_nearest_try with theirs. Queries of other threads
 * meanwhile may take the hint, which is only a text.
 */
void umf_ctl_nearest_begin(void);
const char *umf_ctl_nearest_end(void); /* static text; NULL: there is none */
bool umf_ctl_nearest_is_needed(void);
void umf_ctl_nearest_try(const char *known, const char *given);

/* The subtree below "default". */
umf_result_t umf_ctl_defaults_query(umf_ctl_defaults_t *defaults, umf_ctl_query_t *query,
                                    const char *rest);
/* Sends every entry stored for `name` to `write`, in the order first set. `arg` is a copy of what
 * was stored, aligned to 16 bytes; no lock is held meanwhile; results are ignored. */
void umf_ctl_defaults_apply(umf_ctl_defaults_t *defaults, const char *name,
                            umf_result_t (*write)(void *object, umf_ctl_query_source_t source,
                                                  const char *path, void *arg, size_t size),
                            void *object);

void umf_ctl_init(void); /* reads UMF_CONF, then UMF_CONF_FILE; after all nodes are registered */
void umf_ctl_teardown(void); /* deletes stored defaults */

#endif
