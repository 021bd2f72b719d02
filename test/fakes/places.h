/*
 * All the memories that the tests of umf/copy.h copy between: how to get some, and how the test
 * itself writes and reads it, by other ways than the calls under test.
 */
#ifndef UMF_TEST_FAKES_PLACES_H
#define UMF_TEST_FAKES_PLACES_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <umf/copy.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda.h>
#include <umf/text.h>

#include "fakes/far_provider.h"
#include "fakes/kinds.h"
#include "fakes/vmm_kinds.h"

struct Place {
    std::string name;
    umf_place_kind_t kind = UMF_PLACE_HOST;
    umf_memory_pool_handle_t pool = nullptr; // NULL: of no pool
    std::function<void *(size_t size)> take;
    std::function<void(void *ptr)> give;
    std::function<void(void *to, const void *from, size_t size)> write = memcpy, read = memcpy;
};

class Places {
  public:
    std::vector<Place> list;
    std::unique_ptr<FarProvider> far[3];

    Places() {
        list.push_back({"malloc", UMF_PLACE_HOST, nullptr, malloc, free, memcpy, memcpy});
        for (const char *text : {"os", "file", "linux_vmm"}) {
            add(text, UMF_PLACE_HOST, made(text));
        }
        add_far();
        add_cuda();
        add_level_zero();
    }
    ~Places() {
        for (const Place &place : list) {
            if (place.pool) {
                EXPECT_EQ(umfPoolDestroy(place.pool), UMF_RESULT_SUCCESS) << place.name;
            }
        }
        for (umf_memory_provider_handle_t provider : providers) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
        }
        for (const auto &provider : far) {
            EXPECT_EQ(provider->queues, 0) << "every queue is destroyed";
        }
        for (const std::string &path : paths) {
            unlink(path.c_str());
        }
#if UMF_WITH_CUDA
        stop_cuda_vmm();
#endif
#if UMF_WITH_LEVEL_ZERO
        if (has_level_zero) {
            stop_level_zero_vmm();
        }
#endif
    }
    Places(const Places &) = delete;
    Places &operator=(const Places &) = delete;

    Place &at(const std::string &name) {
        for (Place &place : list) {
            if (place.name == name) {
                return place;
            }
        }
        ADD_FAILURE() << "no place " << name;
        return list[0];
    }
    // By each other thread that takes, writes and reads.
    static void enter() {
#if UMF_WITH_CUDA
        driver().cuCtxSetCurrent(cuda_vmm_context());
#endif
    }

  private:
    std::vector<umf_memory_provider_handle_t> providers;
    std::vector<std::string> paths;
    bool has_level_zero = false;

    umf_memory_provider_handle_t made(const std::string &text) {
        umf_memory_provider_handle_t provider = nullptr;
        std::string all = text;
        if (text == "file") {
            paths.push_back(fresh_path());
            all += ":path=" + paths.back();
        }
        EXPECT_EQ(umfMemoryProviderCreateFromText(all.c_str(), &provider), UMF_RESULT_SUCCESS)
            << all;
        return provider;
    }
    Place &add(const std::string &name, umf_place_kind_t kind,
               umf_memory_provider_handle_t provider) {
        Place place;
        place.name = name;
        place.kind = kind;
        EXPECT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &place.pool),
                  UMF_RESULT_SUCCESS)
            << name;
        umf_memory_pool_handle_t pool = place.pool;
        place.take = [pool](size_t size) { return umfPoolMalloc(pool, size); };
        place.give = [pool](void *ptr) { umfPoolFree(pool, ptr); };
        list.push_back(place);
        providers.push_back(provider);
        return list.back();
    }

    void add_far() {
        const char *names[] = {"far", "far_other", "far_silent"};
        for (int i = 0; i < 3; i++) {
            far[i] = std::make_unique<FarProvider>();
            FarProvider *provider = far[i].get();
            provider->tells_type = i != 2;
            Place &place = add(names[i], UMF_PLACE_DEVICE, provider->create());
            place.write = [provider](void *to, const void *from, size_t size) {
                memcpy(provider->near_of(to), from, size);
            };
            place.read = [provider](void *to, const void *from, size_t size) {
                memcpy(to, provider->near_of(from), size);
            };
        }
    }

#if UMF_WITH_CUDA
    umf_memory_provider_handle_t made_cuda(umf_usm_memory_type_t type) {
        umf_cuda_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        umfCUDAMemoryProviderParamsCreate(&params);
        umfCUDAMemoryProviderParamsSetContext(params, cuda_vmm_context());
        umfCUDAMemoryProviderParamsSetDevice(params, 0);
        umfCUDAMemoryProviderParamsSetMemoryType(params, type);
        EXPECT_EQ(umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), params, &provider),
                  UMF_RESULT_SUCCESS);
        umfCUDAMemoryProviderParamsDestroy(params);
        return provider;
    }
    void by_cuda(Place &place) {
        place.write = write_cuda;
        place.read = read_cuda;
    }
    void add_cuda() {
        EXPECT_EQ(start_cuda_vmm(), "");
        by_cuda(add("cuda_device", UMF_PLACE_DEVICE, made_cuda(UMF_MEMORY_TYPE_DEVICE)));
        add("cuda_host", UMF_PLACE_PINNED, made_cuda(UMF_MEMORY_TYPE_HOST));
        by_cuda(add("cuda_shared", UMF_PLACE_SHARED, made_cuda(UMF_MEMORY_TYPE_SHARED)));
        by_cuda(add("cuda_vmm", UMF_PLACE_DEVICE, create_cuda_vmm(0)));
        Place foreign;
        foreign.name = "cuda_foreign";
        foreign.kind = UMF_PLACE_DEVICE;
        foreign.take = [](size_t size) {
            CUdeviceptr made = 0;
            EXPECT_EQ(driver().cuMemAlloc(&made, size), CUDA_SUCCESS);
            return reinterpret_cast<void *>(made);
        };
        foreign.give = [](void *ptr) { driver().cuMemFree(reinterpret_cast<CUdeviceptr>(ptr)); };
        by_cuda(foreign);
        list.push_back(foreign);
    }
#else
    void add_cuda() {}
#endif

#if UMF_WITH_LEVEL_ZERO
    void add_level_zero() {
        has_level_zero = start_level_zero_vmm().empty();
        if (!has_level_zero) {
            return;
        }
        struct {
            const char *name;
            umf_place_kind_t kind;
            umf_usm_memory_type_t type;
        } kinds[] = {{"level_zero_device", UMF_PLACE_DEVICE, UMF_MEMORY_TYPE_DEVICE},
                     {"level_zero_host", UMF_PLACE_PINNED, UMF_MEMORY_TYPE_HOST},
                     {"level_zero_shared", UMF_PLACE_SHARED, UMF_MEMORY_TYPE_SHARED}};
        for (const auto &kind : kinds) {
            umf_level_zero_memory_provider_params_handle_t params = nullptr;
            umf_memory_provider_handle_t provider = nullptr;
            umfLevelZeroMemoryProviderParamsCreate(&params);
            umfLevelZeroMemoryProviderParamsSetContext(params, level_zero_vmm_place().context);
            if (kind.type != UMF_MEMORY_TYPE_HOST) {
                umfLevelZeroMemoryProviderParamsSetDevice(params, level_zero_vmm_place().device);
            }
            umfLevelZeroMemoryProviderParamsSetMemoryType(params, kind.type);
            EXPECT_EQ(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider),
                      UMF_RESULT_SUCCESS);
            umfLevelZeroMemoryProviderParamsDestroy(params);
            by_level_zero(add(kind.name, kind.kind, provider));
        }
        by_level_zero(add("level_zero_vmm", UMF_PLACE_DEVICE, create_level_zero_vmm(0)));
    }
    void by_level_zero(Place &place) {
        place.write = copy_level_zero;
        place.read = copy_level_zero;
    }
#else
    void add_level_zero() {}
#endif
};

#endif
