/*
 * Declarations for statements in the documentation: the headers, and the names they use
 * without saying where they come from.
 */
#ifndef UMF_TEST_DOCS_PRELUDE_H
#define UMF_TEST_DOCS_PRELUDE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <umf.h>
#include <umf/capture.h>
#include <umf/copy.h>
#include <umf/cuda_device.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/experimental/memspace.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/memory_pool_ext.h>
#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/queue.h>
#include <umf/reason.h>
#include <umf/reclaim.h>
#include <umf/record.h>
#include <umf/registration.h>
#include <umf/remote.h>
#include <umf/suspend.h>
#include <umf/text.h>
#include <umf/vault.h>

#include "others.h"

extern const umf_memory_run_t *run;
extern umf_memory_provider_handle_t provider;
extern umf_memory_pool_handle_t pool;
extern umf_vault_handle_t vault;
extern umf_vault_draft_handle_t draft;
extern umf_vault_view_handle_t view;
extern void *ptr;
extern int connection;
extern pid_t consumer;

#endif
