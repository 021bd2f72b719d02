/*
 * Handles are checked: a destroyed one, one of another kind and a number that never was a handle
 * is refused by every function that takes one, but for those that allocate and free, which have no
 * time to ask. Nothing is read through a bad handle.
 */
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include "headers_all.h"

#include "fakes/log_file.h"
#include "fakes/viewing_pool.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

struct Entrance {
    const char *function;
    std::function<umf_result_t(void *)> call;
    umf_result_t of_null = BAD;
};

/* A handle of no matter which type. */
template <typename Handle> Handle as(void *handle) {
    return static_cast<Handle>(handle);
}
umf_memory_pool_handle_t pool_of(void *handle) {
    return as<umf_memory_pool_handle_t>(handle);
}
umf_memory_provider_handle_t provider_of(void *handle) {
    return as<umf_memory_provider_handle_t>(handle);
}

umf_result_t watcher(umf_memory_pool_handle_t, umf_suspend_event_t, void *) {
    return OK;
}

/* Outputs of functions. */
struct Out {
    size_t size;
    void *pointer;
    const char *text;
    int32_t number;
    char bytes[64];
};
Out out;

template <typename Call> umf_result_t with_pools(void *handle, Call call) {
    umf_memory_pool_handle_t pools[] = {pool_of(handle)};
    return call(pools, size_t(1));
}

umf_result_t suspend_async(void *handle, decltype(&umfPoolsSuspendAsync) call) {
    umf_suspend_job_handle_t job = nullptr;
    umf_memory_pool_handle_t pools[] = {pool_of(handle)};
    return call(pools, 1, nullptr, &job);
}

umf_result_t residency(void *handle) {
    umf_residency_t answer = UMF_RESIDENCY_INIT;
    return umfPoolGetResidency(pool_of(handle), &answer);
}

umf_result_t policy(void *handle) {
    umf_suspend_policy_t wish = UMF_SUSPEND_POLICY_INIT;
    return umfPoolSetSuspendPolicy(pool_of(handle), &wish);
}

#define POOL(name, ...)                                                                            \
    {                                                                                              \
#name, [](void *h) { return name(pool_of(h), __VA_ARGS__); }                               \
    }

const umf_memory_callbacks_t callbacks = {
    sizeof(umf_memory_callbacks_t),
    [](void *, umf_memory_pool_handle_t, const umf_memory_run_t *) { return OK; }, nullptr,
    nullptr};

std::vector<Entrance> pool_entrances() {
    return {
        {"umfPoolAddMemoryCallback",
         [](void *h) { return umfPoolAddMemoryCallback(pool_of(h), &callbacks); }},
        {"umfPoolRemoveMemoryCallback",
         [](void *h) { return umfPoolRemoveMemoryCallback(pool_of(h), &callbacks); }},
        {"umfMirrorCreate",
         [](void *h) {
             umf_mirror_handle_t mirror = nullptr;
             return umfMirrorCreate(out.bytes, 1, as<umf_memory_pool_handle_t>(h), &mirror);
         }},
        {"umfPoolDestroy", [](void *h) { return umfPoolDestroy(pool_of(h)); }},
        {"umfPoolGetLastAllocationError",
         [](void *h) { return umfPoolGetLastAllocationError(pool_of(h)); }},
        POOL(umfPoolGetMemoryProvider,
             reinterpret_cast<umf_memory_provider_handle_t *>(&out.pointer)),
        POOL(umfPoolGetName, &out.text),
        POOL(umfPoolSetTag, nullptr, nullptr),
        POOL(umfPoolGetTag, &out.pointer),
        POOL(umfPoolTrimMemory, 0),
        POOL(umfPoolTrimOn, 0, nullptr),
        POOL(umfPoolWaitPending, 0, nullptr),
        POOL(umfPoolGetIPCHandleSize, &out.size),
        POOL(umfPoolGetIPCHandler, &out.pointer),
        {"umfPoolForbidSuspend", [](void *h) { return umfPoolForbidSuspend(pool_of(h)); }},
        {"umfPoolAllowSuspend", [](void *h) { return umfPoolAllowSuspend(pool_of(h)); }},
        POOL(umfPoolAddSuspendCallback, watcher, nullptr),
        POOL(umfPoolRemoveSuspendCallback, watcher, nullptr),
        {"umfPoolGetResidency", residency},
        {"umfPoolSetSuspendPolicy", policy},
        {"umfPoolsSuspend",
         [](void *h) {
             return with_pools(h, [](umf_memory_pool_handle_t *pools, size_t n) {
                 return umfPoolsSuspend(pools, n, nullptr, nullptr);
             });
         }},
        {"umfPoolsResume",
         [](void *h) {
             return with_pools(h, [](umf_memory_pool_handle_t *pools, size_t n) {
                 return umfPoolsResume(pools, n, nullptr, nullptr);
             });
         }},
        {"umfPoolsSuspendAsync", [](void *h) { return suspend_async(h, umfPoolsSuspendAsync); }},
        {"umfPoolsResumeAsync", [](void *h) { return suspend_async(h, umfPoolsResumeAsync); }},
        {"umfCtlGet",
         [](void *h) {
             return umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &out.size,
                              sizeof(out.size), h);
         }},
        {"umfCtlSet",
         [](void *h) {
             return umfCtlSet("umf.pool.by_handle.{}.params.capacity", &out.size, sizeof(out.size),
                              h);
         }},
        {"umfCtlExec",
         [](void *h) { return umfCtlExec("umf.pool.by_handle.{}.any", nullptr, 0, h); }},
    };
}

#define PROVIDER(name, ...)                                                                        \
    {                                                                                              \
#name, [](void *h) { return name(provider_of(h), __VA_ARGS__); }                           \
    }

std::vector<Entrance> provider_entrances() {
    return {
        {"umfMemoryProviderDestroy",
         [](void *h) { return umfMemoryProviderDestroy(provider_of(h)); }, OK},
        PROVIDER(umfMemoryProviderGetLastNativeError, &out.text, &out.number),
        PROVIDER(umfMemoryProviderGetRecommendedPageSize, 0, &out.size),
        PROVIDER(umfMemoryProviderGetMinPageSize, nullptr, &out.size),
        PROVIDER(umfMemoryProviderGetCacheLineSize, &out.size),
        PROVIDER(umfMemoryProviderPurgeLazy, &out, 1),
        PROVIDER(umfMemoryProviderPurgeForce, &out, 1),
        PROVIDER(umfMemoryProviderGetIPCHandleSize, &out.size),
        PROVIDER(umfMemoryProviderGetIPCHandle, &out, 1, out.bytes),
        PROVIDER(umfMemoryProviderPutIPCHandle, out.bytes),
        PROVIDER(umfMemoryProviderOpenIPCHandle, out.bytes, &out.pointer),
        PROVIDER(umfMemoryProviderCloseIPCHandle, &out, 1),
        PROVIDER(umfMemoryProviderGetName, &out.text),
        PROVIDER(umfMemoryProviderAllocationSplit, &out, 2, 1),
        PROVIDER(umfMemoryProviderAllocationMerge, out.bytes, out.bytes + 1, 2),
        {"umfPoolCreate",
         [](void *h) {
             umf_memory_pool_handle_t pool = nullptr;
             return umfPoolCreate(umfProxyPoolOps(), provider_of(h), nullptr, 0, &pool);
         }},
        {"umfPoolCreateFromTextOver",
         [](void *h) {
             umf_memory_pool_handle_t pool = nullptr;
             return umfPoolCreateFromTextOver("proxy", provider_of(h), &pool);
         }},
        {"umfReclaim", [](void *h) { return umfReclaim(provider_of(h), 0, nullptr); }, OK},
        {"umfLevelZeroMemoryProviderResidentDeviceChange",
         [](void *h) {
             umf_result_t result = umfLevelZeroMemoryProviderResidentDeviceChange(
                 provider_of(h), reinterpret_cast<ze_device_handle_t>(&out), true);
             return umfLevelZeroMemoryProviderOps() ? result : BAD; /* in a build without it */
         }},
        {"umfCtlGet",
         [](void *h) {
             return umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &out.size,
                              sizeof(out.size), h);
         }},
    };
}

std::vector<Entrance> numa_entrances() {
    using Space = umf_memspace_handle_t;
    static unsigned ids[] = {0};
    return {
        {"umfMemspaceDestroy", [](void *h) { return umfMemspaceDestroy(as<Space>(h)); }},
        {"umfMemspaceMemtargetNum",
         [](void *h) { return umfMemspaceMemtargetNum(as<Space>(h)) ? OK : BAD; }},
        {"umfMemspaceMemtargetGet",
         [](void *h) { return umfMemspaceMemtargetGet(as<Space>(h), 0) ? OK : BAD; }},
        {"umfMemspaceMemtargetAdd",
         [](void *h) { return umfMemspaceMemtargetAdd(as<Space>(h), nullptr); }},
        {"umfMemspaceMemtargetRemove",
         [](void *h) { return umfMemspaceMemtargetRemove(as<Space>(h), nullptr); }},
        {"umfMemspaceClone",
         [](void *h) {
             Space clone = nullptr;
             return umfMemspaceClone(as<Space>(h), &clone);
         }},
        {"umfMemspaceFilterById",
         [](void *h) { return umfMemspaceFilterById(as<Space>(h), ids, 1); }},
        {"umfMemspaceFilterByCapacity",
         [](void *h) { return umfMemspaceFilterByCapacity(as<Space>(h), 0); }},
        {"umfMemspaceUserFilter",
         [](void *h) {
             return umfMemspaceUserFilter(
                 as<Space>(h),
                 [](umf_const_memspace_handle_t, umf_const_memtarget_handle_t, void *) {
                     return 1;
                 },
                 nullptr);
         }},
        {"umfPoolCreateFromMemspace",
         [](void *h) {
             umf_memory_pool_handle_t pool = nullptr;
             return umfPoolCreateFromMemspace(as<Space>(h), nullptr, &pool);
         }},
        {"umfMemoryProviderCreateFromMemspace",
         [](void *h) {
             umf_memory_provider_handle_t provider = nullptr;
             return umfMemoryProviderCreateFromMemspace(as<Space>(h), nullptr, &provider);
         }},
    };
}

std::vector<Entrance> other_entrances() {
    using Target = umf_memtarget_handle_t;
    using Policy = umf_mempolicy_handle_t;
    using Job = umf_suspend_job_handle_t;
    using Properties = umf_memory_properties_handle_t;
    using Group = umf_pool_group_handle_t;
    using Mirror = umf_mirror_handle_t;
    static umf_pool_group_stats_t stats = UMF_POOL_GROUP_STATS_INIT;
    static umf_memtarget_type_t type;
    static unsigned id;
    return {
        {"umfMemtargetGetType", [](void *h) { return umfMemtargetGetType(as<Target>(h), &type); }},
        {"umfMemtargetGetCapacity",
         [](void *h) { return umfMemtargetGetCapacity(as<Target>(h), &out.size); }},
        {"umfMemtargetGetId", [](void *h) { return umfMemtargetGetId(as<Target>(h), &id); }},
        {"umfMempolicyDestroy", [](void *h) { return umfMempolicyDestroy(as<Policy>(h)); }, OK},
        {"umfMempolicySetInterleavePartSize",
         [](void *h) { return umfMempolicySetInterleavePartSize(as<Policy>(h), 4096); }},
        {"umfMempolicySetCustomSplitPartitions",
         [](void *h) { return umfMempolicySetCustomSplitPartitions(as<Policy>(h), nullptr, 0); }},
        {"umfSuspendJobQuery", [](void *h) { return umfSuspendJobQuery(as<Job>(h), &out.number); }},
        {"umfSuspendJobWait", [](void *h) { return umfSuspendJobWait(as<Job>(h), nullptr); }},
        {"umfMirrorDestroy", [](void *h) { return umfMirrorDestroy(as<Mirror>(h)); }, OK},
        {"umfMirrorPtr", [](void *h) { return umfMirrorPtr(as<Mirror>(h), &out.pointer); }},
        {"umfMirrorMark", [](void *h) { return umfMirrorMark(as<Mirror>(h), 0, 1); }},
        {"umfMirrorPull", [](void *h) { return umfMirrorPull(as<Mirror>(h), 0, 1, nullptr); }},
        {"umfMirrorPush", [](void *h) { return umfMirrorPush(as<Mirror>(h), 0, 1, nullptr); }},
        {"umfPoolGroupDestroy", [](void *h) { return umfPoolGroupDestroy(as<Group>(h)); }, OK},
        {"umfPoolGroupAdd", [](void *h) { return umfPoolGroupAdd(as<Group>(h), nullptr); }},
        {"umfPoolGroupRemove", [](void *h) { return umfPoolGroupRemove(as<Group>(h), nullptr); }},
        {"umfPoolGroupSetLimit", [](void *h) { return umfPoolGroupSetLimit(as<Group>(h), 1); }},
        {"umfPoolGroupGetStats",
         [](void *h) { return umfPoolGroupGetStats(as<Group>(h), &stats); }},
        {"umfGetMemoryPropertySize",
         [](void *h) {
             return umfGetMemoryPropertySize(as<Properties>(h), UMF_MEMORY_PROPERTY_BASE_SIZE,
                                             &out.size);
         }},
        {"umfGetMemoryProperty",
         [](void *h) {
             return umfGetMemoryProperty(as<Properties>(h), UMF_MEMORY_PROPERTY_BASE_SIZE,
                                         &out.size, sizeof(out.size));
         }},
        {"umfPutIPCHandle", [](void *h) { return umfPutIPCHandle(as<umf_ipc_handle_t>(h)); }, OK},
        {"umfOpenIPCHandle",
         [](void *h) {
             return umfOpenIPCHandle(h, reinterpret_cast<umf_ipc_handle_t>(out.bytes),
                                     &out.pointer);
         }},
        {"umfOpenIPCHandleSized",
         [](void *h) {
             return umfOpenIPCHandleSized(h, out.bytes, sizeof(out.bytes), &out.pointer);
         }},
    };
}

std::vector<Entrance> remote_entrances() {
    using Export = umf_remote_export_handle_t;
    using Memory = umf_remote_memory_handle_t;
    using Remote = umf_remote_handle_t;
    using Op = umf_remote_op_handle_t;
    static Export exported;
    static Memory memory;
    static Op op;
    return {
        {"umfRemoteDestroy", [](void *h) { return umfRemoteDestroy(as<Remote>(h)); }, OK},
        {"umfRemotePublish",
         [](void *h) { return umfRemotePublish(as<Remote>(h), out.bytes, 1, 0, &exported); }},
        {"umfRemoteGetHandle",
         [](void *h) { return umfRemoteGetHandle(as<Export>(h), out.bytes, &out.size); }},
        {"umfRemoteWithdraw", [](void *h) { return umfRemoteWithdraw(as<Export>(h)); }},
        {"umfRemoteOpen",
         [](void *h) { return umfRemoteOpen(as<Remote>(h), out.bytes, 1, &memory); }},
        {"umfRemoteOpenUntil",
         [](void *h) {
             return umfRemoteOpenUntil(as<Remote>(h), out.bytes, 1, nullptr, nullptr, &memory);
         }},
        {"umfRemoteGetSize", [](void *h) { return umfRemoteGetSize(as<Memory>(h), &out.size); }},
        {"umfRemoteClose", [](void *h) { return umfRemoteClose(as<Memory>(h)); }},
        {"umfRemoteGet", [](void *h) { return umfRemoteGet(as<Memory>(h), 0, out.bytes, 1, &op); }},
        {"umfRemotePut", [](void *h) { return umfRemotePut(as<Memory>(h), 0, out.bytes, 1, &op); }},
        {"umfRemoteWait", [](void *h) { return umfRemoteWait(as<Op>(h), 0); }},
        {"umfRemoteCancel", [](void *h) { return umfRemoteCancel(as<Op>(h)); }},
    };
}

std::vector<Entrance> vault_entrances() {
    using Vault = umf_vault_handle_t;
    using Draft = umf_vault_draft_handle_t;
    using View = umf_vault_view_handle_t;
    static Draft draft;
    static View view;
    static uint64_t generation;
    static umf_memory_pool_handle_t pool;
    static umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    static umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    static umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    static umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    static const void *identity;
    static size_t identity_size;
    return {
        {"umfVaultClose", [](void *h) { return umfVaultClose(as<Vault>(h)); }},
        {"umfVaultBegin", [](void *h) { return umfVaultBegin(as<Vault>(h), nullptr, &draft); }},
        {"umfVaultDraftPool",
         [](void *h) { return umfVaultDraftPool(as<Draft>(h), nullptr, &pool); }},
        {"umfVaultPut",
         [](void *h) { return umfVaultPut(as<Draft>(h), "name", out.bytes, 1, nullptr, 0, 0); }},
        {"umfVaultKeep", [](void *h) { return umfVaultKeep(as<Draft>(h), "name"); }},
        {"umfVaultCopy", [](void *h) { return umfVaultCopy(as<Draft>(h), nullptr, nullptr); }},
        {"umfVaultCommit",
         [](void *h) { return umfVaultCommit(as<Draft>(h), nullptr, &generation); }},
        {"umfVaultAbort", [](void *h) { return umfVaultAbort(as<Draft>(h)); }},
        {"umfVaultAttach", [](void *h) { return umfVaultAttach(as<Vault>(h), nullptr, &view); }},
        {"umfVaultFind", [](void *h) { return umfVaultFind(as<View>(h), "name", &entry); }},
        {"umfVaultEach",
         [](void *h) {
             return umfVaultEach(
                 as<View>(h), nullptr, [](const umf_vault_entry_t *, void *) { return 0; },
                 nullptr);
         }},
        {"umfVaultViewGeneration",
         [](void *h) { return umfVaultViewGeneration(as<View>(h), &generation); }},
        {"umfVaultViewIdentity",
         [](void *h) { return umfVaultViewIdentity(as<View>(h), &identity, &identity_size); }},
        {"umfVaultFetch",
         [](void *h) {
             return umfVaultFetch(as<Vault>(h), nullptr, "umfr:none", nullptr, &generation);
         }},
        {"umfVaultVerify", [](void *h) { return umfVaultVerify(as<View>(h), nullptr); }},
        {"umfVaultSuspend", [](void *h) { return umfVaultSuspend(as<View>(h), nullptr); }},
        {"umfVaultResume", [](void *h) { return umfVaultResume(as<View>(h)); }},
        {"umfVaultMove", [](void *h) { return umfVaultMove(as<View>(h), 0, nullptr); }},
        {"umfVaultDetach", [](void *h) { return umfVaultDetach(as<View>(h)); }},
        {"umfVaultSnapshot", [](void *h) { return umfVaultSnapshot(as<Vault>(h), 1, nullptr); }},
        {"umfVaultEvict", [](void *h) { return umfVaultEvict(as<Vault>(h), 1); }},
        {"umfVaultStat", [](void *h) { return umfVaultStat(as<Vault>(h), &stat); }},
        {"umfVaultWait", [](void *h) { return umfVaultWait(as<Vault>(h), 0, 0, &event); }},
        {"umfVaultDrop", [](void *h) { return umfVaultDrop(as<Vault>(h), 1); }},
        {"umfVaultClaim",
         [](void *h) { return umfVaultClaim(as<Vault>(h), "a", nullptr, &claim); }},
        {"umfVaultClaimNote",
         [](void *h) { return umfVaultClaimNote(as<Vault>(h), "a", 1, nullptr, 0); }},
        {"umfVaultUnclaim", [](void *h) { return umfVaultUnclaim(as<Vault>(h), "a"); }},
        {"umfVaultForget", [](void *h) { return umfVaultForget(as<Vault>(h), "a"); }},
        {"umfVaultEachClaim",
         [](void *h) { return umfVaultEachClaim(as<Vault>(h), nullptr, nullptr); }},
        {"umfVaultDropDraft", [](void *h) { return umfVaultDropDraft(as<Vault>(h)); }},
    };
}

std::vector<Entrance> all_entrances() {
    std::vector<Entrance> all;
    for (auto part : {pool_entrances(), provider_entrances(), numa_entrances(), other_entrances(),
                      remote_entrances(), vault_entrances()}) {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

/* Those that take a handle and do not look it up: they allocate and free; what reads received bytes
 * has no handle of ours; memory is found by its address. */
const std::set<std::string> not_asking = {
    "umfMemoryProviderAlloc",  "umfMemoryProviderFree",
    "umfPoolMalloc",           "umfPoolMallocOn",
    "umfPoolAlignedMalloc",    "umfPoolCalloc",
    "umfPoolRealloc",          "umfPoolFree",
    "umfPoolTryMalloc",        "umfPoolTryFree",
    "umfPoolMallocUsableSize", "umfCurrentPoolSet",
};

bool takes_handle(const std::string &parameters) {
    std::stringstream list(parameters);
    for (std::string parameter; std::getline(list, parameter, ',');) {
        bool is_place = parameter.find('*') != std::string::npos &&
                        parameter.find("umf_memory_pool_handle_t *") == std::string::npos;
        if (parameter.find("_handle_t") != std::string::npos && !is_place &&
            parameter.find("ze_") == std::string::npos &&
            parameter.find("params_handle_t") == std::string::npos &&
            parameter.find("limits_handle_t") == std::string::npos) {
            return true;
        }
    }
    return false;
}

/* umf_memory_pool_handle_t * is an array, or where a new pool goes. */
const std::set<std::string> makers = {"umfPoolByPtr", "umfPoolCreateFromText"};

TEST(Handles, EveryFunctionThatTakesOneIsHere) {
    std::set<std::string> here(not_asking);
    for (const Entrance &entrance : all_entrances()) {
        here.insert(entrance.function);
    }
#define FUNCTION(result, name, parameters)                                                         \
    if (takes_handle(#parameters) && !makers.count(#name)) {                                       \
        EXPECT_EQ(here.count(#name), 1u) << #name;                                                 \
    }
#include "unit/headers_functions.def"
#undef FUNCTION
}

/* Memory that is no object of the library. */
class Bad : public testing::Test {
  protected:
    void *zeroes = map(PROT_READ | PROT_WRITE), *unreadable = map(PROT_NONE);

    static void *map(int protection) {
        return mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    ~Bad() override {
        munmap(zeroes, 4096);
        munmap(unreadable, 4096);
    }
    static void refused(void *handle, const std::vector<Entrance> &by, const char *what) {
        for (const Entrance &entrance : by) {
            EXPECT_EQ(entrance.call(handle), handle ? BAD : entrance.of_null)
                << entrance.function << " of " << what;
        }
    }
};

TEST_F(Bad, NullIsRefused) {
    refused(nullptr, all_entrances(), "NULL");
}

TEST_F(Bad, GarbageIsRefused) {
    for (void *handle :
         {reinterpret_cast<void *>(0x10), reinterpret_cast<void *>(0x12345),
          reinterpret_cast<void *>(~uintptr_t(0)), zeroes, unreadable,
          static_cast<void *>(static_cast<char *>(unreadable) + 16), static_cast<void *>(&out)}) {
        refused(handle, all_entrances(), "garbage");
    }
}

TEST_F(Bad, DestroyedPoolsAndProvidersAreRefused) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), OK);
    ASSERT_EQ(umfPoolGetMemoryProvider(pool, &provider), OK);
    umf_ipc_handler_handle_t handler = nullptr;
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    ASSERT_EQ(umfPoolDestroy(pool), OK);
    refused(pool, all_entrances(), "a destroyed pool");
    refused(provider, all_entrances(), "a destroyed provider");
    refused(handler, all_entrances(), "the handler of a destroyed pool");
}

TEST_F(Bad, WhatIsOfAnotherKindIsRefused) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    umf_mempolicy_handle_t mempolicy = nullptr;
    umf_memspace_handle_t memspace = nullptr;
    unsigned node = 0;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), OK);
    ASSERT_EQ(umfPoolGetMemoryProvider(pool, &provider), OK);
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    ASSERT_EQ(umfMempolicyCreate(UMF_MEMPOLICY_BIND, &mempolicy), OK);
    ASSERT_EQ(umfMemspaceCreateFromNumaArray(&node, 1, &memspace), OK);
    for (void *other : {static_cast<void *>(provider), static_cast<void *>(handler),
                        static_cast<void *>(mempolicy), static_cast<void *>(memspace)}) {
        refused(other, pool_entrances(), "no pool");
    }
    for (void *other : {static_cast<void *>(pool), static_cast<void *>(handler),
                        static_cast<void *>(mempolicy), static_cast<void *>(memspace)}) {
        refused(other, provider_entrances(), "no provider");
    }
    for (void *other : {static_cast<void *>(pool), static_cast<void *>(provider)}) {
        refused(other, numa_entrances(), "no memspace");
        refused(other, other_entrances(), "a pool or a provider");
        refused(other, remote_entrances(), "a pool or a provider");
        refused(other, vault_entrances(), "a pool or a provider");
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), BAD); /* the pool stands on it */
    EXPECT_EQ(umfMemspaceDestroy(memspace), OK);
    EXPECT_EQ(umfMempolicyDestroy(mempolicy), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    refused(memspace, numa_entrances(), "a destroyed memspace");
    refused(mempolicy, other_entrances(), "a destroyed policy");
}

TEST_F(Bad, PropertiesOfFreedMemoryAreRefused) {
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over fixed", &pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    ASSERT_EQ(umfPoolCreateFromText("proxy over linux_vmm", &pool), OK);
    void *memory = umfPoolMalloc(pool, 4096);
    umf_memory_properties_handle_t properties = nullptr;
    ASSERT_EQ(umfGetMemoryPropertiesHandle(memory, &properties), OK);
    EXPECT_EQ(umfGetMemoryPropertySize(properties, UMF_MEMORY_PROPERTY_BASE_SIZE, &out.size), OK);
    EXPECT_EQ(umfPoolFree(pool, memory), OK);
    refused(const_cast<void *>(static_cast<const void *>(properties)), other_entrances(),
            "freed memory");
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(Bad, AJobIsWaitedForOnce) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_suspend_job_handle_t job = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("coalescing over linux_vmm", &pool), OK);
    ASSERT_EQ(umfPoolsSuspendAsync(&pool, 1, nullptr, &job), OK);
    EXPECT_EQ(umfSuspendJobWait(job, nullptr), OK);
    refused(job, all_entrances(), "a job that was waited for");
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_F(Bad, TheLogSaysWhatItIs) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    ASSERT_EQ(umfPoolGetMemoryProvider(pool, &provider), OK);
    LogFile log;
    const char *name;
    EXPECT_EQ(umfPoolGetName(pool_of(provider), &name), BAD);
    EXPECT_EQ(log.count("umfPoolGetName: "), 1u) << log.text();
    EXPECT_EQ(log.count(" is a provider, a pool is wanted"), 1u) << log.text();
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfPoolDestroy(pool), BAD);
    EXPECT_EQ(log.count("umfPoolDestroy: "), 1u) << log.text();
    EXPECT_EQ(log.count(" was destroyed, it was a pool, a pool is wanted"), 1u) << log.text();
    EXPECT_EQ(umfMemoryProviderGetName(provider_of(&out), &name), BAD);
    EXPECT_EQ(log.count(" is no handle of this library, a provider is wanted"), 1u) << log.text();
}

/* A user's pool gets its view of the provider: good for all but destruction. */
TEST_F(Bad, AViewIsAProviderThatIsNotDestroyed) {
    umf_memory_pool_ops_t ops = viewing_pool_ops();
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("os", &provider), OK);
    ASSERT_EQ(umfPoolCreate(&ops, provider, nullptr, 0, &pool), OK);
    ASSERT_NE(viewed_provider, provider);
    const char *name = nullptr;
    EXPECT_EQ(umfMemoryProviderGetName(viewed_provider, &name), OK);
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &out.size,
                        sizeof(out.size), viewed_provider),
              OK);
    EXPECT_EQ(umfMemoryProviderDestroy(viewed_provider), BAD);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderGetName(viewed_provider, &name), BAD);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

/* --- parameter objects --- */

/* The functions of one kind of parameter object, taken from the list of all functions. */
struct ParamsFunction {
    std::string name;
    std::type_index handle;
    std::function<umf_result_t(void *)> call;
};

template <typename T> const std::type_index type_of = std::type_index(typeid(T));

const std::set<std::type_index> params_handles = {
    type_of<umf_os_memory_provider_params_handle_t>,
    type_of<umf_file_memory_provider_params_handle_t>,
    type_of<umf_devdax_memory_provider_params_handle_t>,
    type_of<umf_fixed_memory_provider_params_handle_t>,
    type_of<umf_cuda_memory_provider_params_handle_t>,
    type_of<umf_cuda_vmm_memory_provider_params_handle_t>,
    type_of<umf_level_zero_memory_provider_params_handle_t>,
    type_of<umf_level_zero_vmm_memory_provider_params_handle_t>,
    type_of<umf_linux_vmm_memory_provider_params_handle_t>,
    type_of<umf_disjoint_pool_params_handle_t>,
    type_of<umf_disjoint_pool_shared_limits_handle_t>,
    type_of<umf_jemalloc_pool_params_handle_t>,
    type_of<umf_scalable_pool_params_handle_t>,
    type_of<umf_coalescing_pool_params_handle_t>,
};

/* Arguments that setters take, most of them: a refusal is that of the handle. */
template <typename T> T argument() {
    if constexpr (std::is_same_v<T, size_t>) {
        return 4096;
    } else if constexpr (std::is_same_v<T, const char *> || std::is_same_v<T, void *>) {
        return const_cast<char *>("name");
    } else {
        return T{};
    }
}

using ParamsFunctions = std::vector<ParamsFunction>;
template <typename Handle, typename... Rest>
void add_function(ParamsFunctions &all, const char *name, umf_result_t (*call)(Handle, Rest...)) {
    if constexpr (std::is_pointer_v<Handle>) {
        if (params_handles.count(type_of<Handle>)) {
            all.push_back({name, type_of<Handle>, [call](void *handle) {
                               return call(reinterpret_cast<Handle>(handle), argument<Rest>()...);
                           }});
        }
    }
}
void add_function(ParamsFunctions &, const char *, ...) {}

ParamsFunctions params_functions() {
    ParamsFunctions all;
#define FUNCTION(result, name, parameters) add_function(all, #name, name);
#include "unit/headers_functions.def"
#undef FUNCTION
    return all;
}

bool is_destroy(const ParamsFunction &function) {
    return function.name.find("Destroy") != std::string::npos;
}

struct ParamsObject {
    std::type_index type;
    void *handle;
    std::function<umf_result_t(void *)> destroy;
};

/* The kinds with parameters; NULL: the build lacks the kind. */
std::vector<std::pair<std::type_index, const umf_memory_provider_ops_t *>> providers_with_params() {
    return {
        {type_of<umf_os_memory_provider_params_handle_t>, umfOsMemoryProviderOps()},
        {type_of<umf_file_memory_provider_params_handle_t>, umfFileMemoryProviderOps()},
        {type_of<umf_devdax_memory_provider_params_handle_t>, umfDevDaxMemoryProviderOps()},
        {type_of<umf_fixed_memory_provider_params_handle_t>, umfFixedMemoryProviderOps()},
        {type_of<umf_cuda_memory_provider_params_handle_t>, umfCUDAMemoryProviderOps()},
        {type_of<umf_cuda_vmm_memory_provider_params_handle_t>, umfCUDAVmmMemoryProviderOps()},
        {type_of<umf_level_zero_memory_provider_params_handle_t>, umfLevelZeroMemoryProviderOps()},
        {type_of<umf_level_zero_vmm_memory_provider_params_handle_t>,
         umfLevelZeroVmmMemoryProviderOps()},
        {type_of<umf_linux_vmm_memory_provider_params_handle_t>, umfLinuxVmmMemoryProviderOps()},
    };
}

std::vector<std::pair<std::type_index, const umf_memory_pool_ops_t *>> pools_with_params() {
    return {
        {type_of<umf_disjoint_pool_params_handle_t>, umfDisjointPoolOps()},
        {type_of<umf_jemalloc_pool_params_handle_t>, umfJemallocPoolOps()},
        {type_of<umf_scalable_pool_params_handle_t>, umfScalablePoolOps()},
        {type_of<umf_coalescing_pool_params_handle_t>, umfCoalescingPoolOps()},
    };
}

bool is_absent(std::type_index params) {
    for (auto &[type, ops] : providers_with_params()) {
        if (type == params) {
            return !ops;
        }
    }
    for (auto &[type, ops] : pools_with_params()) {
        if (type == params) {
            return !ops;
        }
    }
    return false;
}

class Params : public Bad {
  protected:
    ParamsFunctions functions = params_functions();
    std::vector<ParamsObject> objects;

    /* Kinds that this build or machine lacks are left out. */
    template <typename Handle, typename Create>
    void made(Create create, umf_result_t (*destroy)(Handle)) {
        Handle handle = nullptr;
        if (create(&handle) == OK) {
            objects.push_back({type_of<Handle>, handle,
                               [destroy](void *h) { return destroy(static_cast<Handle>(h)); }});
        }
    }
    void make_all() {
        made(umfOsMemoryProviderParamsCreate, umfOsMemoryProviderParamsDestroy);
        made([](auto h) { return umfFileMemoryProviderParamsCreate("/tmp/f", h); },
             umfFileMemoryProviderParamsDestroy);
        made([](auto h) { return umfDevDaxMemoryProviderParamsCreate("/dev/dax0.0", 4096, h); },
             umfDevDaxMemoryProviderParamsDestroy);
        made([](auto h) { return umfFixedMemoryProviderParamsCreate(&out, sizeof(out), h); },
             umfFixedMemoryProviderParamsDestroy);
        made(umfCUDAMemoryProviderParamsCreate, umfCUDAMemoryProviderParamsDestroy);
        made([](auto h) { return umfCUDAVmmMemoryProviderParamsCreate(0, h); },
             umfCUDAVmmMemoryProviderParamsDestroy);
        made(umfLevelZeroMemoryProviderParamsCreate, umfLevelZeroMemoryProviderParamsDestroy);
        made(umfLevelZeroVmmMemoryProviderParamsCreate, umfLevelZeroVmmMemoryProviderParamsDestroy);
        made(umfLinuxVmmMemoryProviderParamsCreate, umfLinuxVmmMemoryProviderParamsDestroy);
        made(umfDisjointPoolParamsCreate, umfDisjointPoolParamsDestroy);
        made([](auto h) { return umfDisjointPoolSharedLimitsCreate(1, h); },
             umfDisjointPoolSharedLimitsDestroy);
        made(umfJemallocPoolParamsCreate, umfJemallocPoolParamsDestroy);
        made(umfScalablePoolParamsCreate, umfScalablePoolParamsDestroy);
        made(umfCoalescingPoolParamsCreate, umfCoalescingPoolParamsDestroy);
    }
    void destroy_all() {
        for (const ParamsObject &object : objects) {
            EXPECT_EQ(object.destroy(object.handle), OK);
        }
    }
    /* By all functions but those of its own type. */
    void refused_by_others(void *handle, std::type_index own, const char *what) {
        for (const ParamsFunction &function : functions) {
            if (function.handle != own) {
                EXPECT_EQ(function.call(handle),
                          is_absent(function.handle) ? UMF_RESULT_ERROR_NOT_SUPPORTED : BAD)
                    << function.name << " of " << what;
            }
        }
    }
    void refused_by_creations(void *params, std::type_index own, const char *what);
};

void Params::refused_by_creations(void *params, std::type_index own, const char *what) {
    umf_memory_provider_handle_t provider = nullptr, none = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), nullptr, &provider), OK);
    for (auto &[type, ops] : providers_with_params()) {
        if (ops && type != own) {
            EXPECT_EQ(umfMemoryProviderCreate(ops, params, &none), BAD)
                << type.name() << " with " << what;
        }
    }
    for (auto &[type, ops] : pools_with_params()) {
        if (ops && type != own) {
            EXPECT_EQ(umfPoolCreate(ops, provider, params, 0, &pool), BAD)
                << type.name() << " with " << what;
        }
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(Params, EachKindHasItsFunctions) {
    for (std::type_index type : params_handles) {
        size_t destroys = 0, others = 0;
        for (const ParamsFunction &function : functions) {
            (is_destroy(function) ? destroys : others) += function.handle == type;
        }
        EXPECT_EQ(destroys, 1u) << type.name();
        EXPECT_EQ(others > 0, type != type_of<umf_disjoint_pool_shared_limits_handle_t>)
            << type.name();
    }
}

TEST_F(Params, NullIsNoParameterObject) {
    for (const ParamsFunction &function : functions) {
        bool is_ignored = is_destroy(function) && function.name != "umfScalablePoolParamsDestroy";
        umf_result_t expected = is_absent(function.handle) ? UMF_RESULT_ERROR_NOT_SUPPORTED
                                : is_ignored               ? OK
                                                           : BAD;
        EXPECT_EQ(function.call(nullptr), expected) << function.name;
    }
}

TEST_F(Params, GarbageIsNoParameterObject) {
    for (void *handle : {reinterpret_cast<void *>(0x12345), zeroes, unreadable}) {
        refused_by_others(handle, type_of<void>, "garbage");
        refused_by_creations(handle, type_of<void>, "garbage");
    }
}

TEST_F(Params, DestroyedOnesAreRefused) {
    make_all();
    EXPECT_GE(objects.size(), 10u);
    destroy_all();
    for (const ParamsObject &object : objects) {
        refused_by_others(object.handle, type_of<void>, object.type.name());
        refused_by_creations(object.handle, type_of<void>, object.type.name());
    }
}

TEST_F(Params, ThoseOfAnotherKindAreRefused) {
    make_all();
    for (const ParamsObject &object : objects) {
        refused_by_others(object.handle, object.type, object.type.name());
        refused_by_creations(object.handle, object.type, object.type.name());
        refused(object.handle, all_entrances(), object.type.name());
    }
    destroy_all();
}

TEST_F(Params, LimitsOutliveThePoolsParameters) {
    umf_disjoint_pool_params_handle_t params = nullptr;
    umf_disjoint_pool_shared_limits_handle_t limits = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), nullptr, &provider), OK);
    ASSERT_EQ(umfDisjointPoolSharedLimitsCreate(1 << 20, &limits), OK);
    ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfDisjointPoolParamsSetSharedLimits(
                  params, reinterpret_cast<umf_disjoint_pool_shared_limits_handle_t>(params)),
              BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetSharedLimits(params, limits), OK);
    EXPECT_EQ(umfDisjointPoolSharedLimitsDestroy(limits), OK);
    EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &pool), BAD);
    EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

} // namespace
