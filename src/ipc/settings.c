/* The node "umf.ipc", and the environment variables for the same. */
#include "ipc/settings.h"

#include <stdlib.h>

#include <umf/reason.h>

#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "ipc/counters.h"
#include "peer/broker.h"

static umf_result_t get_transports(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index;
    return umf_transport_get_order(value, size);
}

static umf_result_t set_transports(void *object, const void *value) {
    (void)object;
    return umf_transport_set_order(value);
}

static umf_result_t get_socket_dir(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index;
    return umf_broker_get_folder(value, size);
}

static umf_result_t set_socket_dir(void *object, const void *value) {
    (void)object;
    return umf_broker_set_folder(value);
}

UMF_FIELD_GETTER(get_any_user, bool, umf_broker_is_open())

static umf_result_t set_any_user(void *object, const void *value) {
    (void)object;
    umf_broker_set_open(*(const bool *)value);
    return UMF_RESULT_SUCCESS;
}

UMF_FIELD_GETTER(get_timeout, int, umf_broker_get_timeout())

static umf_result_t set_timeout(void *object, const void *value) {
    (void)object;
    return umf_broker_set_timeout(*(const int *)value);
}

static const umf_field_t settings_list[] = {
    {.path = "transports",
     UMF_FIELD_SETTING(STRING, get_transports, set_transports),
     .help = "ways in which a descriptor may come from another process, in the order they are "
             "tried: self, proc, pidfd, broker"},
    {.path = "socket_dir",
     UMF_FIELD_SETTING(STRING, get_socket_dir, set_socket_dir),
     .help = "folder for the sockets of brokers, an absolute path; empty: the abstract namespace"},
    {.path = "any_user",
     UMF_FIELD_SETTING(BOOL, get_any_user, set_any_user),
     .help = "whether brokers of other users receive requests and answers"},
    {.path = "timeout",
     UMF_FIELD_SETTING(INT, get_timeout, set_timeout),
     .help = "milliseconds that an exchange with a broker may take, 1 to 600000"},
};
static const umf_fields_t settings_fields = UMF_FIELDS(settings_list);

/* A path that is no setting names a limit or a counter. */
static umf_result_t settings_query(umf_ctl_query_t *query, const char *rest) {
    umf_result_t result = umf_field_ctl(NULL, false, &settings_fields, query->source, rest,
                                        query->arg, query->size, query->type, *query->args);
    return result == UMF_RESULT_ERROR_INVALID_CTL_PATH ? umf_ipc_counters_query(query, rest)
                                                       : result;
}

/* A program with raised privileges must not take paths from its caller. */
static void settings_read(const char *variable, const char *value,
                          umf_result_t (*set)(const char *value)) {
    if (value && *value && set(value) != UMF_RESULT_SUCCESS) {
        UMF_LOG_IGNORED("%s is ignored: %s", variable, umfLastErrorText());
    }
}

void umf_ipc_settings_init(void) {
    umf_ctl_register("ipc", settings_query);
    settings_read("UMF_IPC_TRANSPORTS", secure_getenv("UMF_IPC_TRANSPORTS"),
                  umf_transport_set_order);
    settings_read("UMF_IPC_SOCKET_DIR", secure_getenv("UMF_IPC_SOCKET_DIR"), umf_broker_set_folder);
}
