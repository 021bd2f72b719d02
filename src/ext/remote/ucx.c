/* UCX, found at run time. */
#include "ext/remote/ucx.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dl.h"
#include "system/common.h"
#include "system/os.h"

#define UCX_LIBRARY "libucp.so.0"
#define UCX_LEAST_MINOR 13u

/* Ports of programs without rights, and how many are enough for workers. */
#define PORT_LEAST 10000u
#define PORT_MOST 65535u
#define PORTS_LEAST 2000u

#define SYMBOL(name)                                                                               \
    { #name, offsetof(umf_ucx_t, name), false }

static const umf_dl_symbol_t ucx_symbols[] = {
    SYMBOL(ucp_get_version),        SYMBOL(ucp_get_version_string),
    SYMBOL(ucs_status_string),      SYMBOL(ucp_config_read),
    SYMBOL(ucp_config_modify),      SYMBOL(ucp_config_release),
    SYMBOL(ucp_init_version),       SYMBOL(ucp_cleanup),
    SYMBOL(ucp_worker_create),      SYMBOL(ucp_worker_destroy),
    SYMBOL(ucp_worker_get_address), SYMBOL(ucp_worker_release_address),
    SYMBOL(ucp_worker_progress),    SYMBOL(ucp_worker_get_efd),
    SYMBOL(ucp_worker_arm),         SYMBOL(ucp_worker_set_am_recv_handler),
    SYMBOL(ucp_ep_create),          SYMBOL(ucp_ep_close_nbx),
    SYMBOL(ucp_am_send_nbx),        SYMBOL(ucp_am_recv_data_nbx),
    SYMBOL(ucp_ep_flush_nbx),       SYMBOL(ucp_request_free),
};

bool umf_ucx_is_second(const char *library) {
    void *loaded = umf_dl_open(UCX_LIBRARY, true, NULL, 0);
    void *requested = umf_dl_open(library ? library : UCX_LIBRARY, true, NULL, 0);
    bool is_other = loaded && requested != loaded;
    umf_dl_close(loaded);
    umf_dl_close(requested);
    return is_other;
}

umf_result_t umf_ucx_load(const char *library, umf_ucx_t *ucx, char *why, size_t why_size) {
    const char *name = library ? library : UCX_LIBRARY;
    char text[256] = "";
    if (umf_ucx_is_second(library)) {
        snprintf(why, why_size,
                 "the process has loaded another " UCX_LIBRARY " than %s, and can have only one: "
                 "name no library to use it",
                 name);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    void *handle = umf_dl_find(name, text, sizeof(text));
    if (!handle) {
        snprintf(why, why_size,
                 "UCX is not here: %s (install libucx0, or name the file in the parameters)", text);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    const char *missing = umf_dl_fill(handle, ucx_symbols, UMF_COUNT_OF(ucx_symbols), ucx);
    if (missing) {
        snprintf(why, why_size, "%s has no %s: install UCX 1.%u or later", name, missing,
                 UCX_LEAST_MINOR);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    unsigned major = 0, minor = 0, release = 0;
    ucx->ucp_get_version(&major, &minor, &release);
    if (major != 1 || minor < UCX_LEAST_MINOR) {
        snprintf(why, why_size, "%s is UCX %u.%u.%u: install 1.%u or a later 1.x", name, major,
                 minor, release, UCX_LEAST_MINOR);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    snprintf(why, why_size, "UCX %s, %s", ucx->ucp_get_version_string(), name);
    return UMF_RESULT_SUCCESS;
}

bool umf_ucx_listen_range(char *text, size_t size) {
    unsigned low, high;
    if (getenv("UCX_TCP_PORT_RANGE") || !umf_os_connecting_ports(&low, &high)) {
        return false;
    }
    if (low > PORT_LEAST + PORTS_LEAST) {
        snprintf(text, size, "%u-%u", PORT_LEAST, low - 1);
    } else if (high < PORT_MOST - PORTS_LEAST) {
        snprintf(text, size, "%u-%u", high + 1, PORT_MOST);
    } else {
        return false;
    }
    return true;
}
