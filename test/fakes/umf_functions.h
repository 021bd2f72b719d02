/*
 * The functions of a copy of the library that a test opened by path, found by name.
 */
#ifndef UMF_TEST_FAKES_UMF_FUNCTIONS_H
#define UMF_TEST_FAKES_UMF_FUNCTIONS_H

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/library.h"

// UMF_COPIED(member, function)
#define UMF_COPIED_FUNCTIONS                                                                       \
    UMF_COPIED(init, umfInit)                                                                      \
    UMF_COPIED(tear_down, umfTearDown)                                                             \
    UMF_COPIED(os_ops, umfOsMemoryProviderOps)                                                     \
    UMF_COPIED(params_create, umfOsMemoryProviderParamsCreate)                                     \
    UMF_COPIED(params_destroy, umfOsMemoryProviderParamsDestroy)                                   \
    UMF_COPIED(provider_create, umfMemoryProviderCreate)                                           \
    UMF_COPIED(provider_destroy, umfMemoryProviderDestroy)                                         \
    UMF_COPIED(pool_create, umfPoolCreate)                                                         \
    UMF_COPIED(pool_destroy, umfPoolDestroy)                                                       \
    UMF_COPIED(pool_malloc, umfPoolMalloc)                                                         \
    UMF_COPIED(by_ptr, umfPoolByPtr)                                                               \
    UMF_COPIED(free, umfFree)                                                                      \
    UMF_COPIED(ctl_get, umfCtlGet)                                                                 \
    UMF_COPIED(ctl_set, umfCtlSet)                                                                 \
    UMF_COPIED(proxy, umfProxyPoolOps)                                                             \
    UMF_COPIED(disjoint, umfDisjointPoolOps)                                                       \
    UMF_COPIED(jemalloc, umfJemallocPoolOps)

struct UmfFunctions {
#define UMF_COPIED(member, function) decltype(&::function) member = nullptr;
    UMF_COPIED_FUNCTIONS
#undef UMF_COPIED

    void find(void *library) {
#define UMF_COPIED(member, function) must_find(library, #function, &member);
        UMF_COPIED_FUNCTIONS
#undef UMF_COPIED
    }
};

#endif
