/*
 * The part of UCX that this folder calls, declared as its documentation describes it. The binary
 * layout is that of all versions from 1.13 on: members are only appended there, and masks say
 * which ones are set. The structures end with room for such members.
 */
#ifndef UMF_SRC_EXT_REMOTE_UCX_H
#define UMF_SRC_EXT_REMOTE_UCX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

typedef int8_t umf_ucs_status_t; /* an enum of one byte */
enum {
    UMF_UCS_OK = 0,
    UMF_UCS_INPROGRESS = 1,
    UMF_UCS_CONNECTION_RESET = -25,
    UMF_UCS_NO_RESOURCE = -2,
    UMF_UCS_BUSY = -15,
    UMF_UCS_LAST = -100,
};

/* The result of a call that may go on: NULL, an error, or a request. */
typedef void *umf_ucx_request_t;
static inline bool umf_ucx_is_request(umf_ucx_request_t request) {
    return (uintptr_t)request - 1 < (uintptr_t)(intptr_t)UMF_UCS_LAST - 1;
}
static inline umf_ucs_status_t umf_ucx_status(umf_ucx_request_t request) {
    return umf_ucx_is_request(request) ? UMF_UCS_INPROGRESS : (umf_ucs_status_t)(intptr_t)request;
}

typedef struct umf_ucx_context_params_t {
    uint64_t mask;
    uint64_t features;
    uint64_t rest[14];
} umf_ucx_context_params_t;
#define UMF_UCX_PARAM_FEATURES 1u
#define UMF_UCX_FEATURE_WAKEUP 0x10u
#define UMF_UCX_FEATURE_AM 0x40u /* messages only: no one-sided access, no atomics */

typedef struct umf_ucx_worker_params_t {
    uint64_t mask;
    int thread_mode;
    uint64_t rest[32];
} umf_ucx_worker_params_t;
#define UMF_UCX_WORKER_THREAD_MODE 1u
#define UMF_UCX_THREAD_SINGLE 0

typedef void (*umf_ucx_failed_t)(void *arg, void *endpoint, umf_ucs_status_t status);
typedef struct umf_ucx_endpoint_params_t {
    uint64_t mask;
    const void *address;
    int error_mode;
    umf_ucx_failed_t failed;
    void *failed_arg;
    uint64_t rest[16];
} umf_ucx_endpoint_params_t;
#define UMF_UCX_ENDPOINT_ADDRESS 1u
#define UMF_UCX_ENDPOINT_ERROR_MODE 2u
#define UMF_UCX_ENDPOINT_FAILED 4u
#define UMF_UCX_ERROR_MODE_PEER 1

typedef void (*umf_ucx_sent_t)(void *request, umf_ucs_status_t status, void *arg);
typedef void (*umf_ucx_received_t)(void *request, umf_ucs_status_t status, size_t length,
                                   void *arg);
typedef struct umf_ucx_request_params_t {
    uint32_t mask;
    uint32_t flags;
    void *request;
    union {
        umf_ucx_sent_t sent;
        umf_ucx_received_t received;
    } call;
    uint64_t datatype;
    void *arg;
    uint64_t rest[12];
} umf_ucx_request_params_t;
#define UMF_UCX_REQUEST_CALL 2u
#define UMF_UCX_REQUEST_ARG 4u
#define UMF_UCX_REQUEST_FLAGS 0x10u
#define UMF_UCX_CLOSE_FORCE 1u
#define UMF_UCX_SEND_REPLY 1u /* the receiver learns of the endpoint */

typedef struct umf_ucx_message_t {
    uint64_t attributes;
    void *reply_endpoint;
} umf_ucx_message_t;
#define UMF_UCX_MESSAGE_REPLY 1u
#define UMF_UCX_MESSAGE_RENDEZVOUS 0x20000u /* the data is to be received */

typedef umf_ucs_status_t (*umf_ucx_arrived_t)(void *arg, const void *header, size_t header_length,
                                              void *data, size_t length,
                                              const umf_ucx_message_t *message);
typedef struct umf_ucx_handler_params_t {
    uint64_t mask;
    unsigned id;
    uint32_t flags;
    umf_ucx_arrived_t call;
    void *arg;
    uint64_t rest[4];
} umf_ucx_handler_params_t;
#define UMF_UCX_HANDLER_ID 1u
#define UMF_UCX_HANDLER_CALL 4u
#define UMF_UCX_HANDLER_ARG 8u

typedef struct umf_ucx_t {
    void (*ucp_get_version)(unsigned *major, unsigned *minor, unsigned *release);
    const char *(*ucp_get_version_string)(void);
    const char *(*ucs_status_string)(umf_ucs_status_t status);
    umf_ucs_status_t (*ucp_config_read)(const char *prefix, const char *file, void **config);
    umf_ucs_status_t (*ucp_config_modify)(void *config, const char *name, const char *value);
    void (*ucp_config_release)(void *config);
    umf_ucs_status_t (*ucp_init_version)(unsigned major, unsigned minor,
                                         const umf_ucx_context_params_t *params, const void *config,
                                         void **context);
    void (*ucp_cleanup)(void *context);
    umf_ucs_status_t (*ucp_worker_create)(void *context, const umf_ucx_worker_params_t *params,
                                          void **worker);
    void (*ucp_worker_destroy)(void *worker);
    umf_ucs_status_t (*ucp_worker_get_address)(void *worker, void **address, size_t *length);
    void (*ucp_worker_release_address)(void *worker, void *address);
    unsigned (*ucp_worker_progress)(void *worker);
    umf_ucs_status_t (*ucp_worker_get_efd)(void *worker, int *fd);
    umf_ucs_status_t (*ucp_worker_arm)(void *worker);
    umf_ucs_status_t (*ucp_worker_set_am_recv_handler)(void *worker,
                                                       const umf_ucx_handler_params_t *params);
    umf_ucs_status_t (*ucp_ep_create)(void *worker, const umf_ucx_endpoint_params_t *params,
                                      void **endpoint);
    umf_ucx_request_t (*ucp_ep_close_nbx)(void *endpoint, const umf_ucx_request_params_t *params);
    umf_ucx_request_t (*ucp_ep_flush_nbx)(void *endpoint, const umf_ucx_request_params_t *params);
    umf_ucx_request_t (*ucp_am_send_nbx)(void *endpoint, unsigned id, const void *header,
                                         size_t header_length, const void *data, size_t length,
                                         const umf_ucx_request_params_t *params);
    umf_ucx_request_t (*ucp_am_recv_data_nbx)(void *worker, void *description, void *data,
                                              size_t length,
                                              const umf_ucx_request_params_t *params);
    void (*ucp_request_free)(void *request);
} umf_ucx_t;

/* Whether the process has loaded another file than this one: two would share some of their parts,
 * since the loader takes these by name. NULL is libucp.so.0. */
bool umf_ucx_is_second(const char *library);

/* Finds the library, which is never unloaded. NOT_SUPPORTED: `why` says what is missing. */
umf_result_t umf_ucx_load(const char *library, umf_ucx_t *ucx, char *why, size_t why_size);

/* Ports on which workers should listen: none of those from which the system chooses the own port of
 * a connection. With one of these, a process that connects to a worker that has ended may connect
 * to itself, which ends it in an assertion of UCX 1.13. false: the environment chooses, or nothing
 * is left. */
bool umf_ucx_listen_range(char *text, size_t size);

#endif
