/*
 * Linux_vmm with a function of the test before each operation that a suspend uses: what it does
 * happens at that very moment, and it may make the operation fail. Content is copied by several
 * threads, so the function may be called by several at once, also while it is being replaced.
 */
#ifndef UMF_TEST_FAKES_HOOKED_VMM_H
#define UMF_TEST_FAKES_HOOKED_VMM_H

#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <umf/plugin.h>
#include <umf/providers/provider_linux_vmm.h>

extern "C" const umf_memory_provider_descriptor_t umf_linux_vmm_descriptor;

class HookedVmm {
  public:
    // Told the operation's name; anything but success is its result.
    using Hook = std::function<umf_result_t(const char *operation)>;

    // Returns the one that was there. An empty one is none.
    static Hook exchange(Hook next) {
        std::lock_guard<std::mutex> guard(lock);
        return std::exchange(hook, std::move(next));
    }

    // The queues and events of the last wait that named some.
    static std::vector<void *> waited() {
        std::lock_guard<std::mutex> guard(lock);
        return named;
    }

    // Its table of operations ends before vm_claim: an older provider.
    static umf_memory_provider_handle_t create_old(size_t piece_size) {
        return create(kind<true>(), piece_size);
    }
    static umf_memory_provider_handle_t create(size_t piece_size) {
        return create(kind<false>(), piece_size);
    }

  private:
    using Ext = umf_memory_provider_ext_ops_t;

    static inline std::mutex lock;
    static inline Hook hook;
    static inline std::vector<void *> named;

    // The hook runs without the lock: it may call the provider and may go meanwhile.
    static umf_result_t call(const char *operation) {
        Hook now;
        {
            std::lock_guard<std::mutex> guard(lock);
            now = hook;
        }
        return now ? now(operation) : UMF_RESULT_SUCCESS;
    }

#define UMF_HOOK(operation)                                                                        \
    ext.operation = [](auto... args) {                                                             \
        umf_result_t result = call(#operation);                                                    \
        return result != UMF_RESULT_SUCCESS ? result                                               \
                                            : umf_linux_vmm_descriptor.ext->operation(args...);    \
    };

    static Ext hooked() {
        Ext ext = *umf_linux_vmm_descriptor.ext;
        UMF_HOOK(copy)
        UMF_HOOK(fill)
        ext.wait = [](void *self, void *const *queues, size_t num_queues, void *const *events,
                      size_t num_events) {
            umf_result_t result = call("wait");
            if (result != UMF_RESULT_SUCCESS || num_queues + num_events == 0) {
                return result != UMF_RESULT_SUCCESS
                           ? result
                           : umf_linux_vmm_descriptor.ext->wait(self, nullptr, 0, nullptr, 0);
            }
            std::lock_guard<std::mutex> guard(lock); // linux_vmm has no queues: none has work
            named.assign(queues, queues + num_queues);
            named.insert(named.end(), events, events + num_events);
            return result;
        };
        UMF_HOOK(vm_claim)
        UMF_HOOK(vm_detach)
        UMF_HOOK(vm_create)
        UMF_HOOK(vm_attach)
        UMF_HOOK(vm_release)
        return ext;
    }
#undef UMF_HOOK

    template <bool is_old> static const umf_memory_provider_descriptor_t &kind() {
        static const umf_memory_provider_ops_t ops = *umfLinuxVmmMemoryProviderOps();
        static const Ext ext = [] {
            Ext made = hooked();
            made.struct_size = is_old ? offsetof(Ext, vm_claim) : sizeof(made);
            return made;
        }();
        static const umf_memory_provider_descriptor_t made = {
            sizeof(made), is_old ? "old_vmm" : "hooked_vmm", &ops, &ext, nullptr, nullptr, nullptr};
        static const umf_result_t registered = umfRegisterProvider(&made);
        EXPECT_EQ(registered, UMF_RESULT_SUCCESS);
        return made;
    }

    static umf_memory_provider_handle_t create(const umf_memory_provider_descriptor_t &descriptor,
                                               size_t piece_size) {
        umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(umfLinuxVmmMemoryProviderParamsCreate(&params), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfLinuxVmmMemoryProviderParamsSetPieceSize(params, piece_size),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfMemoryProviderCreate(descriptor.ops, params, &provider), UMF_RESULT_SUCCESS);
        umfLinuxVmmMemoryProviderParamsDestroy(params);
        return provider;
    }
};

#endif
