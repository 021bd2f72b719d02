#include "proxy/heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umf.h>
#include <umf/text.h>

#include "proxy/options.h"
#include "proxy/report.h"
#include "proxy/shm.h"

/* The creation text of the pool. The build sets UMF_PROXY_POOL to the kind of pool. */
#define HEAP_TEXT UMF_PROXY_POOL ":name=umf_proxy over os:name=umf_proxy"

umf_proxy_heap_t umf_proxy_heap;

static char shm_name[UMF_PROXY_SHM_NAME_SIZE]; /* "": none. Immutable after start */
static pid_t shm_owner;

static void read_options(umf_proxy_options_t *options) {
    char shown[64];
    umf_proxy_options_parse(secure_getenv("UMF_PROXY"), options);
    if (options->no_number.start) {
        umf_proxy_complain("UMF_PROXY: size.threshold needs a number of bytes in decimal digits, "
                           "not \"%s\"",
                           umf_proxy_part_show(options->no_number, shown, sizeof(shown)));
        _exit(EXIT_FAILURE);
    }
    if (options->unknown_count) {
        static const char format[] =
            "UMF_PROXY: ignored \"%s\"%s; known are page.disposition=shared-fd, "
            "page.disposition=shared-shm and size.threshold=<bytes>";
        const char *more = options->unknown_count > 1 ? " and more" : "";
        umf_proxy_part_show(options->unknown, shown, sizeof(shown));
        if (!umf_proxy_warn(format, shown, more)) {
            umf_proxy_complain(format, shown, more);
        }
    }
}

static void make_pool(const char *text) {
    umf_memory_pool_handle_t pool;
    umf_result_t result = umfPoolCreateFromText(text, &pool);
    if (result == UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&umf_proxy_heap.pool, pool, memory_order_release);
        return;
    }
    atomic_store_explicit(&umf_proxy_heap.pool, NULL, memory_order_release);
    umf_proxy_heap.is_missing = true;
    umf_proxy_complain("the heap could not be made (%s: %s); the C library's is used instead. "
                       "UMF_LOG=\"output:stderr\" has details",
                       umfResultName(result), umfTextError());
}

static void make_named_pool(void) {
    char text[sizeof(HEAP_TEXT) + UMF_PROXY_SHM_NAME_SIZE + 64];
    shm_owner = getpid();
    umf_proxy_shm_sweep();
    umf_proxy_shm_name(shm_owner, shm_name);
    snprintf(text, sizeof(text), HEAP_TEXT ",visibility=shared,shm_name=%s", shm_name);
    make_pool(text);
}

static void leave_alone(const char *other) {
    umf_proxy_heap.is_missing = true;
    umf_proxy_warn("the program is left alone: %s", other);
}

void umf_proxy_heap_start(const char *other) {
    umf_proxy_options_t options;
    umfInit(); /* never undone: the heap outlives every teardown by the program */
    if (other) {
        leave_alone(other);
        return;
    }
    atomic_store_explicit(&umf_proxy_heap.is_started, true, memory_order_release);
    read_options(&options);
    umf_proxy_heap.threshold = options.threshold;
    umf_proxy_heap.is_shared = options.pages != UMF_PROXY_PAGES_PRIVATE;
    if (options.pages == UMF_PROXY_PAGES_SHARED_SHM) {
        make_named_pool();
    } else {
        make_pool(umf_proxy_heap.is_shared ? HEAP_TEXT ",visibility=shared" : HEAP_TEXT);
    }
}

void umf_proxy_heap_forked(void) {
    if (umf_proxy_heap.is_shared && !umf_proxy_heap.is_missing) {
        make_pool(HEAP_TEXT ",visibility=shared");
    }
}

void umf_proxy_heap_stop(void) {
    if (shm_name[0] && shm_owner == getpid()) {
        shm_unlink(shm_name);
    }
}
