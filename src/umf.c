/* Start and stop of the library. The only file that includes every part. */
#include <umf.h>

#include "base/dl.h"
#include "base/log.h"
#include "core/ctl_nodes.h"
#include "core/registry.h"
#include "ctl/ctl.h"
#include "ipc/ipc.h"
#include "ipc/settings.h"
#include "numa/memspace.h"
#include "object/object.h"
#include "peer/broker.h"
#include "reclaim/reclaim_thread.h"
#include "system/keep_errno.h"
#include "topology/topology.h"
#include "track/span.h"

#if UMF_WITH_EXT
#include "ext/movement/movement.h"
#include "ext/record/attach/attach.h"
#include "ext/record/record.h"
#include "ext/remote/own.h"
#include "ext/suspend/suspend.h"

static void ext_init(void) {
    umf_suspend_init();
    umf_movement_init();
    umf_attach_init();
}
#else
static void ext_init(void) {}
static void umf_record_settings_init(void) {}
static void umf_suspend_settings_init(void) {}
static void umf_record_init(void) {}
static void umf_record_fini(void) {}
static void umf_record_fork_register(void) {}
static void umf_attach_stop(void) {}
static void umf_remote_teardown(void) {}
#endif

_Atomic unsigned umf_started; /* Sync: start_lock for writers */
static umf_lock_t start_lock;

/* Runs before anything else, such as an allocator below this library, registers fork handlers. */
__attribute__((constructor(101))) static void prepare(void) {
    umf_fork_register_inner();
    umf_lock_init(&start_lock, UMF_RANK_INIT);
    umf_map_global_init();
    umf_span_global_init();
    umf_ctl_nodes_init();
}

static void start_locked(void) {
    umf_assert_locked(&start_lock);
    umf_log_init();
    umf_registry_init();
    umf_ipc_settings_init();
    umf_reclaim_settings_init();
    umf_record_settings_init();
    umf_suspend_settings_init();
    umf_ctl_init();
    umf_ipc_init();
    ext_init();
}

/* A program finds errno as 0 at its start, whatever was tried when the library was loaded. */
UMF_API_1_0 umf_result_t umfInit(void) {
    UMF_KEEP_ERRNO;
    umf_lock(&start_lock);
    if (umf_started == 0) {
        start_locked();
    }
    umf_started++;
    umf_unlock(&start_lock);
    umf_record_init(); /* may call the loader, so not under the lock */
    return UMF_RESULT_SUCCESS;
}

/* Does this library serve the program's malloc (lib/proxy)? Then allocations must stay known,
 * however often the program calls umfTearDown. */
static bool is_malloc(void) {
    return umf_dl_is_from("malloc_usable_size", "libumf_proxy.so");
}

/*
 * Only the library's own resources are released. Pools and providers that are still alive keep
 * their memory, because destructors that run later may use it.
 */
UMF_API_1_0 umf_result_t umfTearDown(void) {
    unsigned least = is_malloc() ? 1 : 0; /* calls the loader, so not under the lock */
    umf_lock(&start_lock);
    bool last = umf_started == 1 && least == 0;
    if (last) {
        umf_record_fini(); /* lists live allocations while there are pools */
        umf_core_teardown();
        umf_ctl_teardown();
        umf_memspace_teardown();
        umf_topology_teardown();
    }
    if (umf_started > least) {
        umf_started--;
    }
    umf_unlock(&start_lock);
    if (last) {
        umf_remote_teardown();
        umf_reclaim_thread_stop(); /* waits for a thread, so not under the lock, as the next */
        umf_attach_stop();
        umf_broker_stop();
        umf_registry_teardown(); /* unloads plugins, which run their code, so not under the lock */
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 int umfGetCurrentVersion(void) {
    return UMF_VERSION_CURRENT;
}

__attribute__((constructor)) static void load(void) {
    umf_fork_register_outer();
    umf_record_fork_register();
    umfInit();
}

__attribute__((destructor)) static void unload(void) {
    umf_attach_stop();
    umf_record_fini();
    umfTearDown();
    umf_reclaim_thread_stop();
    umf_broker_stop(); /* even if the program has started the library more often than stopped it */
}
