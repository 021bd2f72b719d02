/*
 * Every public header but umf/proxy_lib_new_delete.h, which defines operators that the runtime of a
 * sanitizer has, too; test/preload compiles it.
 */
#ifndef UMF_TEST_HEADERS_ALL_H
#define UMF_TEST_HEADERS_ALL_H

#include <umf.h>
#include <umf/capture.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/experimental/mempolicy.h>
#include <umf/experimental/memspace.h>
#include <umf/experimental/memtarget.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/memory_pool_ext.h>
#include <umf/memory_provider_gpu.h>
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
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/suspend.h>
#include <umf/text.h>

#endif
