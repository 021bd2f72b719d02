/*
 * A provider whose memory may rest in pools: the OS provider, a fake one or a fixed range, with
 * every call counted, and failures on demand. Memory is identified by its pages; nothing may be
 * left at the end.
 */
#ifndef UMF_TEST_FAKES_RESTING_PROVIDER_H
#define UMF_TEST_FAKES_RESTING_PROVIDER_H

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/plugin.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_os_memory.h>

#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/plain_ops.h"

extern "C" const umf_memory_provider_descriptor_t umf_os_descriptor;

class RestingProvider {
  public:
    enum Base { OS, OS_SHARED, FAKE, FIXED };
    enum Count { COUNTS, REFUSES, ABSENT };

    const Base base;
    const Count count;
    FakeProvider fake;
    void *range = nullptr;   // FIXED
    size_t range_size = 0;   // FIXED
    size_t limit = SIZE_MAX; // bytes that may be held at once
    std::atomic<bool> alloc_fails{false};
    std::function<void()> on_free;
    umf_result_t failure = UMF_RESULT_ERROR_OUT_OF_RESOURCES;

    // What happened.
    std::atomic<size_t> allocs{0}, frees{0}, rests{0}, wakes{0}, drops{0}, questions{0};
    std::atomic<size_t> mistakes{0};
    std::atomic<size_t> requested{0}; // bytes in use

    explicit RestingProvider(Base over, Count how = COUNTS) : base(over), count(how) {}
    RestingProvider(const RestingProvider &) = delete;
    RestingProvider &operator=(const RestingProvider &) = delete;

    umf_memory_provider_handle_t create() {
        static const umf_result_t registered[] = {umfRegisterProvider(&kind<COUNTS>()),
                                                  umfRegisterProvider(&kind<REFUSES>()),
                                                  umfRegisterProvider(&kind<ABSENT>())};
        EXPECT_EQ(registered[count], UMF_RESULT_SUCCESS);
        const umf_memory_provider_ops_t *ops = count == COUNTS    ? kind<COUNTS>().ops
                                               : count == REFUSES ? kind<REFUSES>().ops
                                                                  : kind<ABSENT>().ops;
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(umfMemoryProviderCreate(ops, this, &provider), UMF_RESULT_SUCCESS);
        return provider;
    }
    // Pieces that pools have, those that rest too.
    size_t held() {
        std::lock_guard<std::mutex> guard(mutex);
        return pieces.size();
    }
    size_t held_bytes() {
        std::lock_guard<std::mutex> guard(mutex);
        return bytes;
    }
    size_t calls() const {
        return allocs + frees;
    }

  private:
    static constexpr size_t PAGE = 4096;
    std::mutex mutex;
    std::map<void *, size_t> pieces; // size in whole pages
    size_t bytes = 0;
    const umf_memory_provider_ops_t fake_ops = FakeProvider::table();
    const umf_memory_provider_ops_t *inner = &fake_ops;
    void *inner_self = nullptr;

    static RestingProvider *self(void *provider) {
        return static_cast<RestingProvider *>(provider);
    }
    static size_t pages(size_t size) {
        return (size + PAGE - 1) / PAGE * PAGE;
    }

    static umf_result_t initialize(const void *params, void **provider) {
        auto resting = static_cast<RestingProvider *>(const_cast<void *>(params));
        *provider = resting;
        if (resting->base == FAKE) {
            return resting->inner->initialize(&resting->fake, &resting->inner_self);
        }
        return resting->base == FIXED ? resting->initialize_fixed() : resting->initialize_os();
    }
    umf_result_t initialize_fixed() {
        umf_fixed_memory_provider_params_handle_t fixed = nullptr;
        EXPECT_EQ(umfFixedMemoryProviderParamsCreate(range, range_size, &fixed),
                  UMF_RESULT_SUCCESS);
        inner = umfFixedMemoryProviderOps();
        umf_result_t result = inner->initialize(fixed, &inner_self);
        EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(fixed), UMF_RESULT_SUCCESS);
        return result;
    }
    umf_result_t initialize_os() {
        umf_os_memory_provider_params_handle_t os = nullptr;
        EXPECT_EQ(umfOsMemoryProviderParamsCreate(&os), UMF_RESULT_SUCCESS);
        if (base == OS_SHARED) {
            EXPECT_EQ(umfOsMemoryProviderParamsSetVisibility(os, UMF_MEM_MAP_SHARED),
                      UMF_RESULT_SUCCESS);
        }
        inner = umfOsMemoryProviderOps();
        umf_result_t result = inner->initialize(os, &inner_self);
        EXPECT_EQ(umfOsMemoryProviderParamsDestroy(os), UMF_RESULT_SUCCESS);
        return result;
    }
    static umf_result_t finalize(void *provider) {
        return self(provider)->inner->finalize(self(provider)->inner_self);
    }

    bool is_os() const {
        return base == OS || base == OS_SHARED;
    }
    umf_result_t inner_alloc(size_t size, size_t alignment, void **ptr, bool is_any) {
        if (!is_os()) {
            return inner->alloc(inner_self, pages(size), alignment, ptr);
        }
        return is_any ? umf_os_descriptor.ext->reuse_alloc(inner_self, size, alignment, ptr)
                      : inner->alloc(inner_self, size, alignment, ptr);
    }
    umf_result_t take(size_t size, size_t alignment, void **ptr, bool is_any) {
        allocs++;
        if (alloc_fails) {
            return failure;
        }
        {
            std::lock_guard<std::mutex> guard(mutex);
            if (bytes + pages(size) > limit) {
                return failure;
            }
        }
        umf_result_t result = inner_alloc(size, alignment, ptr, is_any);
        if (result == UMF_RESULT_SUCCESS) {
            std::lock_guard<std::mutex> guard(mutex);
            mistakes += !pieces.emplace(*ptr, pages(size)).second;
            bytes += pages(size);
            requested += size;
        }
        return result;
    }
    umf_result_t inner_free(void *ptr, size_t size, bool is_kept) {
        if (!is_os()) {
            return inner->free(inner_self, ptr, pages(size));
        }
        return is_kept ? umf_os_descriptor.ext->reuse_free(inner_self, ptr, size)
                       : inner->free(inner_self, ptr, size);
    }
    umf_result_t give(void *ptr, size_t size, bool is_kept) {
        frees++;
        if (on_free) {
            on_free();
        }
        {
            std::lock_guard<std::mutex> guard(mutex);
            auto found = pieces.find(ptr);
            if (found == pieces.end() || found->second != pages(size)) {
                mistakes++;
                return UMF_RESULT_ERROR_INVALID_ARGUMENT;
            }
            bytes -= found->second;
            pieces.erase(found);
        }
        requested -= size;
        umf_result_t result = inner_free(ptr, size, is_kept);
        mistakes += result != UMF_RESULT_SUCCESS;
        return result;
    }

    static umf_result_t alloc(void *provider, size_t size, size_t alignment, void **ptr) {
        return self(provider)->take(size, alignment, ptr, false);
    }
    static umf_result_t free(void *provider, void *ptr, size_t size) {
        return self(provider)->give(ptr, size, false);
    }
    static umf_result_t reuse_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
        return self(provider)->take(size, alignment, ptr, true);
    }
    static umf_result_t reuse_free(void *provider, void *ptr, size_t size) {
        return self(provider)->give(ptr, size, true);
    }
    static umf_result_t reuse_drop(void *provider, int only_decayed) {
        RestingProvider *resting = self(provider);
        resting->drops++;
        return resting->is_os()
                   ? umf_os_descriptor.ext->reuse_drop(resting->inner_self, only_decayed)
                   : UMF_RESULT_SUCCESS;
    }
    static umf_result_t reuse_count(void *provider, size_t size, int is_used) {
        RestingProvider *resting = self(provider);
        std::atomic<size_t> &what = size == 0 ? resting->questions
                                    : is_used ? resting->wakes
                                              : resting->rests;
        what.fetch_add(1, std::memory_order_relaxed); // no order that pools could rely on
        if (resting->count == REFUSES) {
            return UMF_RESULT_ERROR_NOT_SUPPORTED;
        }
        resting->requested.fetch_add(is_used ? size : 0 - size, std::memory_order_relaxed);
        return resting->is_os()
                   ? umf_os_descriptor.ext->reuse_count(resting->inner_self, size, is_used)
                   : UMF_RESULT_SUCCESS;
    }

    static umf_result_t get_last_native_error(void *provider, const char **message,
                                              int32_t *error) {
        RestingProvider *resting = self(provider);
        return resting->inner->get_last_native_error(resting->inner_self, message, error);
    }
    static umf_result_t get_name(void *, const char **name) {
        *name = "resting";
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t ctl(void *provider, umf_ctl_query_source_t source, const char *path,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
        RestingProvider *resting = self(provider);
        return resting->inner->ext_ctl(resting->inner_self, source, path, arg, size, type, args);
    }

    static umf_memory_provider_ops_t table() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = initialize;
        ops.finalize = finalize;
        ops.alloc = alloc;
        ops.free = free;
        ops.get_last_native_error = get_last_native_error;
        ops.get_name = get_name;
        ops.ext_ctl = ctl;
        return ops;
    }
    template <Count how> static const umf_memory_provider_descriptor_t &kind() {
        static const umf_memory_provider_ops_t ops = table();
        static const umf_memory_provider_ext_ops_t ext = [] {
            umf_memory_provider_ext_ops_t made = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
            made.reuse_alloc = reuse_alloc;
            made.reuse_free = reuse_free;
            made.reuse_drop = reuse_drop;
            made.reuse_count = how == ABSENT ? nullptr : reuse_count;
            return made;
        }();
        static const char *const names[] = {"resting", "resting_refuses", "resting_absent"};
        static const umf_memory_provider_descriptor_t descriptor =
            plain_kind(names[how], &ops, &ext);
        return descriptor;
    }
};

// A proxy pool over one, with every call checked: a base of fixtures.
class PoolThatRests {
  protected:
    static constexpr size_t OFTEN = 64; // frees, after which spans rest
    DecayPeriod endless{DecayPeriod::ENDLESS};
    std::unique_ptr<RestingProvider> source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void open(RestingProvider::Base base, RestingProvider::Count count = RestingProvider::COUNTS,
              umf_pool_create_flags_t flags = 0) {
        source = std::make_unique<RestingProvider>(base, count);
        provider = source->create();
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, flags, &pool),
                  UMF_RESULT_SUCCESS);
    }
    // So many frees that the next ones rest; none does yet.
    void warm_up() {
        for (size_t i = 0; i < OFTEN; i++) {
            free(alloc(4096));
        }
        EXPECT_EQ(source->held(), 0u);
        EXPECT_EQ(source->rests, 0u);
    }
    void close() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        }
        if (provider) {
            EXPECT_EQ(source->held(), 0u);
            EXPECT_EQ(source->requested, 0u);
            EXPECT_EQ(source->mistakes, 0u);
            EXPECT_EQ(source->base == RestingProvider::FAKE ? 0 : allocated(), 0u);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
            EXPECT_EQ(source->fake.live(), 0u);
            EXPECT_EQ(source->fake.mistakes, 0u);
        }
        pool = nullptr;
        provider = nullptr;
    }
    void *alloc(size_t size, size_t alignment = 0) {
        void *p = umfPoolAlignedMalloc(pool, size, alignment);
        EXPECT_NE(p, nullptr) << size;
        return p;
    }
    void free(void *p) {
        EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    }
    std::vector<void *> alloc_all(size_t n, size_t size) {
        std::vector<void *> list;
        for (size_t i = 0; i < n; i++) {
            list.push_back(alloc(size));
        }
        return list;
    }
    void free_all(const std::vector<void *> &list) {
        for (void *p : list) {
            free(p);
        }
    }
    size_t read(const char *path, void *of) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(umfCtlGet(path, &value, sizeof(value), of), UMF_RESULT_SUCCESS) << path;
        return value;
    }
    size_t count() {
        return read("umf.pool.by_handle.{}.stats.alloc_count", pool);
    }
    // Of the OS provider.
    size_t allocated() {
        return read("umf.provider.by_handle.{}.stats.allocated_memory", provider);
    }
    size_t peak() {
        return read("umf.provider.by_handle.{}.stats.peak_memory", provider);
    }
    void reset_peak() {
        EXPECT_EQ(
            umfCtlExec("umf.provider.by_handle.{}.stats.peak_memory.reset", nullptr, 0, provider),
            UMF_RESULT_SUCCESS);
    }
    static umf_memory_pool_handle_t pool_of(const void *p) {
        umf_memory_pool_handle_t found = nullptr;
        umf_result_t result = umfPoolByPtr(p, &found);
        EXPECT_EQ(result == UMF_RESULT_SUCCESS, found != nullptr);
        return found;
    }
};

#endif
