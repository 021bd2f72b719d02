/* Contexts: start and stop. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/checksum.h"
#include "system/os.h"

#define DEADLINE_MS 10000
#define DEADLINE_MAX (UINT64_C(1) << 48) /* ms: a multiple of it can be added to the time */
#define LIMIT ((size_t)64 << 20)
#define REQUESTS_LIMIT 1024u

static const umf_handle_kind_t remote_handle = {"a context of umfRemoteCreate"};

/* All contexts of the process, for the end of the library. */
UMF_LOCK_STATIC(all_lock, UMF_RANK_REMOTE);
static umf_list_t all = {&all, &all}; /* Sync: all_lock */

UMF_API_EXT_1_3 umf_result_t umfRemoteProbe(char *text, size_t size) {
    umf_ucx_t ucx;
    if (!text || !size) {
        UMF_LOG_ERROR("text is NULL, or its size 0");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_ucx_load(NULL, &ucx, text, size);
}

bool umf_remote_is_of_this_process(umf_remote_handle_t remote, const char *function) {
    if (remote->forks != umf_fork_count()) {
        UMF_LOG_ERROR("%s: a child of fork cannot use the context of its parent", function);
        return false;
    }
    return true;
}

bool umf_remote_check(umf_remote_handle_t remote, const char *function) {
    return umf_handle_check(remote, &remote_handle, function) &&
           umf_remote_is_of_this_process(remote, function);
}

/* --- start ------------------------------------------------------------------------------------ */

/* Transports whose peers' ends are noticed, on these devices: the program's settings do not count.
 * Of several events at a time, UCX 1.13 handles those of connections that an earlier one has freed.
 * Without TCP_PUT_ENABLE=n UCX writes what a peer puts over TCP, although the context has no
 * one-sided access. Without TCP_CONN_NB=y the thread waits, beyond all deadlines, for a machine
 * that does not answer; and 1.13 aborts if the other process closes in the moment after a connect.
 * With zero copy, a send that fails over TCP ends twice, which builds with assertions answer by an
 * abort. The copy needs fewer calls in pieces of 16 KiB than in those of UCX, 8 KiB.
 * Before 1.17 a setting of a transport has no prefix. */
static umf_ucs_status_t configure(umf_remote_handle_t remote, const char *devices, void **config) {
    unsigned major, minor, release;
    char ports[32];
    remote->ucx.ucp_get_version(&major, &minor, &release);
    size_t prefix = major == 1 && minor < 17 ? strlen("TCP_") : 0;
    const char *const settings[][2] = {
        {"NET_DEVICES", devices},       {"TLS", "tcp"},
        {&"TCP_MAX_POLL"[prefix], "1"}, {&"TCP_PUT_ENABLE"[prefix], "n"},
        {&"TCP_CONN_NB"[prefix], "y"},  {&"TCP_TX_SEG_SIZE"[prefix], "16k"},
        {"ZCOPY_THRESH", "inf"},        {&"TCP_PORT_RANGE"[prefix], ports}};
    size_t count = UMF_COUNT_OF(settings) - (umf_ucx_listen_range(ports, sizeof(ports)) ? 0 : 1);
    umf_ucs_status_t status = remote->ucx.ucp_config_read(NULL, NULL, config);
    for (size_t i = 0; i < count && status == UMF_UCS_OK; i++) {
        status = remote->ucx.ucp_config_modify(*config, settings[i][0], settings[i][1]);
    }
    return status;
}

static umf_result_t context_make(umf_remote_handle_t remote, const char *devices, char *why,
                                 size_t why_size) {
    void *config = NULL;
    umf_ucx_context_params_t params = {.mask = UMF_UCX_PARAM_FEATURES,
                                       .features = UMF_UCX_FEATURE_AM | UMF_UCX_FEATURE_WAKEUP};
    umf_ucs_status_t status = configure(remote, devices, &config);
    if (status == UMF_UCS_OK) {
        status = remote->ucx.ucp_init_version(1, 13, &params, config, &remote->context);
    }
    if (config) {
        remote->ucx.ucp_config_release(config);
    }
    if (status != UMF_UCS_OK) {
        remote->context = NULL;
        snprintf(why, why_size, "UCX refuses %s: %s", devices,
                 remote->ucx.ucs_status_string(status));
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

/* Without UCX a context has peers of this machine, unless the program wants a network. */
static umf_result_t ucx_begin(umf_remote_handle_t remote, const umf_remote_params_t *params) {
    char why[512];
    umf_result_t result = umf_ucx_load(params->library, &remote->ucx, why, sizeof(why));
    if (result == UMF_RESULT_SUCCESS) {
        result = context_make(remote, params->devices ? params->devices : "lo", why, sizeof(why));
    }
    if (result == UMF_RESULT_SUCCESS) {
        return umf_remote_worker_make(remote, &remote->server) ? UMF_RESULT_SUCCESS
                                                               : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (params->devices || !remote->is_local || umf_ucx_is_second(params->library)) {
        UMF_LOG_ERROR("%s", why);
        return result;
    }
    UMF_LOG_INFO("the context has processes of this machine only: %s", why);
    return UMF_RESULT_SUCCESS;
}

static void remote_delete(umf_remote_handle_t remote) {
    umf_remote_workers_end(remote);
    while (!umf_list_is_empty(&remote->connections)) { /* of ranges that were not closed */
        umf_remote_connection_end(
            UMF_CONTAINER_OF(remote->connections.next, remote_connection_t, link));
    }
    if (remote->context) {
        remote->ucx.ucp_cleanup(remote->context);
    }
    umf_kept_fd_close(&remote->listener);
    umf_kept_fd_close(&remote->page);
    umf_kept_fd_close(&remote->wakes[0]);
    umf_kept_fd_close(&remote->wakes[1]);
    umf_lock_destroy(&remote->lock);
    umf_meta_free(remote, sizeof(*remote));
}

static umf_result_t remote_check(const umf_remote_params_t *params, umf_remote_handle_t *out) {
    if (!out || params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("umfRemoteCreate needs a place for the handle, and the size of the "
                      "parameters");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->flags & ~(unsigned)UMF_REMOTE_NETWORK_ONLY) {
        UMF_LOG_ERROR("flags are joined of umf_remote_flags_t");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->devices && strcmp(params->devices, "lo") != 0 && !params->key_file) {
        UMF_LOG_ERROR("devices \"%s\" need a key_file: without one anybody on these networks could "
                      "connect",
                      params->devices);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* A pipe has a file of its own, which distinguishes it from one that the program opens later under
 * the same number; event descriptors share one file. */
static bool wakes_open(umf_remote_handle_t remote) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    int error = umf_kept_fd_take(&remote->wakes[0], pair[0]);
    int other = umf_kept_fd_take(&remote->wakes[1], pair[1]);
    errno = error ? error : other;
    return errno == 0;
}

static umf_result_t remote_fill(umf_remote_handle_t remote, const umf_remote_params_t *params) {
    remote->deadline = params->deadline_ms ? params->deadline_ms : DEADLINE_MS;
    remote->deadline = remote->deadline < DEADLINE_MAX ? remote->deadline : DEADLINE_MAX;
    remote->limit = params->limit_in_flight ? params->limit_in_flight : LIMIT;
    remote->requests_limit = params->limit_requests ? params->limit_requests : REQUESTS_LIMIT;
    remote->has_key = params->key_file != NULL;
    remote->is_local = !(params->flags & UMF_REMOTE_NETWORK_ONLY);
    umf_result_t result =
        remote->has_key ? umf_remote_key_read(&remote->key, params->key_file) : UMF_RESULT_SUCCESS;
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!wakes_open(remote) || umf_os_random(remote->id, REMOTE_ID) != 0) {
        UMF_LOG_PERROR("no descriptor, or no random numbers");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    result = ucx_begin(remote, params);
    if (result == UMF_RESULT_SUCCESS && remote->is_local) {
        umf_remote_local_listen(remote);
    }
    return result;
}

/* Threads must not call UCX after its own destructors, which run before those of this library. */
static void end_at_exit(void) {
    static atomic_bool is_done;
    if (!atomic_exchange(&is_done, true)) {
        atexit(umf_remote_teardown);
    }
}

UMF_API_EXT_1_3 umf_result_t umfRemoteCreate(const umf_remote_params_t *params,
                                             umf_remote_handle_t *out) {
    static const umf_remote_params_t defaults = UMF_REMOTE_PARAMS_INIT;
    params = params ? params : &defaults;
    umf_result_t result = remote_check(params, out);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_remote_handle_t remote = umf_meta_alloc(sizeof(*remote));
    if (!remote) {
        UMF_LOG_ERROR("no memory for a context");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock_init(&remote->lock, UMF_RANK_REMOTE);
    remote->forks = umf_fork_count();
    umf_list_t *lists[] = {&remote->commands,  &remote->exports,     &remote->ops,
                           &remote->parts,     &remote->connections, &remote->sessions,
                           &remote->transfers, &remote->all,         &remote->memories,
                           &remote->locals,    &remote->workers};
    for (size_t i = 0; i < UMF_COUNT_OF(lists); i++) {
        umf_list_init(lists[i]);
    }
    result = remote_fill(remote, params);
    if (result == UMF_RESULT_SUCCESS) {
        umf_remote_page_open(remote, !remote->context  ? "none"
                                     : params->devices ? params->devices
                                                       : "lo");
        result = umf_handle_begin(remote, &remote_handle);
    }
    if (result == UMF_RESULT_SUCCESS && umf_remote_start(remote) != 0) {
        UMF_LOG_ERROR("no thread for a context");
        umf_handle_end(remote, &remote_handle, __func__);
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (result != UMF_RESULT_SUCCESS) {
        remote_delete(remote);
        return result;
    }
    umf_lock(&all_lock);
    umf_list_add(&all, &remote->all);
    umf_unlock(&all_lock);
    end_at_exit();
    *out = remote;
    return UMF_RESULT_SUCCESS;
}

/* The thread of a parent is none of a child, and what UCX has belongs to the parent. */
static void remote_end(umf_remote_handle_t remote) {
    if (remote->forks != umf_fork_count()) {
        return;
    }
    umf_remote_stop(remote);
    umf_remote_memories_end(remote);
    umf_remote_withdraw_all(remote);
    remote_delete(remote);
}

UMF_API_EXT_1_3 umf_result_t umfRemoteDestroy(umf_remote_handle_t remote) {
    if (!remote) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_end(remote, &remote_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_lock(&all_lock);
    umf_list_remove(&remote->all);
    umf_unlock(&all_lock);
    remote_end(remote);
    return UMF_RESULT_SUCCESS;
}

void umf_remote_teardown(void) {
    for (;;) {
        umf_lock(&all_lock);
        umf_remote_handle_t remote =
            umf_list_is_empty(&all) ? NULL : UMF_CONTAINER_OF(all.next, struct umf_remote_t, all);
        if (remote) {
            umf_list_remove(&remote->all);
        }
        umf_unlock(&all_lock);
        if (!remote) {
            return;
        }
        umf_handle_end(remote, &remote_handle, __func__);
        remote_end(remote);
    }
}
