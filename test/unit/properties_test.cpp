/* Properties of memory: of tracked and of opened memory, by any address inside it. */
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/memory_properties.h>
#include <umf/memory_provider_gpu.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>

#include "fakes/fake_provider.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr auto OWN_ID = static_cast<umf_memory_property_id_t>(UMF_MEMORY_PROPERTY_MAX_RESERVED + 7);

// Answers of a user's provider.
umf_result_t value_result = OK, size_result = OK, type_result = OK;
const void *asked_for = nullptr;

umf_result_t property(void *, const void *ptr, umf_memory_property_id_t id, void *value) {
    asked_for = ptr;
    if (id == UMF_MEMORY_PROPERTY_POINTER_TYPE) {
        if (type_result == OK) {
            *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_DEVICE;
        }
        return type_result;
    }
    if (id != OWN_ID && id != UMF_MEMORY_PROPERTY_CONTEXT) {
        return UMF_RESULT_ERROR_USER_SPECIFIC;
    }
    if (value_result == OK) {
        *static_cast<uint32_t *>(value) = 4242;
    }
    return value_result;
}

umf_result_t property_size(void *, umf_memory_property_id_t id, size_t *size) {
    if (id != OWN_ID && id != UMF_MEMORY_PROPERTY_CONTEXT) {
        return UMF_RESULT_ERROR_USER_SPECIFIC;
    }
    *size = sizeof(uint32_t);
    return size_result;
}

class Properties : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_properties_handle_t const untouched =
        reinterpret_cast<umf_memory_properties_handle_t>(uintptr_t{0x1234});

    void SetUp() override {
        value_result = size_result = type_result = OK;
        asked_for = nullptr;
    }
    void create(bool with_callbacks, const umf_memory_pool_ops_t *pool_ops = umfProxyPoolOps(),
                umf_pool_create_flags_t flags = 0) {
        umf_memory_provider_ops_t ops = FakeProvider::table();
        if (with_callbacks) {
            ops.ext_get_allocation_properties = property;
            ops.ext_get_allocation_properties_size = property_size;
        }
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
        ASSERT_EQ(umfPoolCreate(pool_ops, provider, nullptr, flags, &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    umf_memory_properties_handle_t of(const void *ptr) {
        umf_memory_properties_handle_t handle = nullptr;
        EXPECT_EQ(umfGetMemoryPropertiesHandle(ptr, &handle), OK);
        return handle;
    }
    template <typename T> T get(umf_memory_properties_handle_t handle, int id) {
        T value = {};
        size_t size = 0;
        auto property_id = static_cast<umf_memory_property_id_t>(id);
        EXPECT_EQ(umfGetMemoryPropertySize(handle, property_id, &size), OK);
        EXPECT_EQ(size, sizeof(T));
        EXPECT_EQ(umfGetMemoryProperty(handle, property_id, &value, sizeof(value)), OK);
        return value;
    }
};

TEST_F(Properties, WhatTheLibraryKnows) {
    create(true);
    auto p = static_cast<char *>(umfPoolMalloc(pool, 5000));
    for (size_t offset : {0, 1, 4999}) {
        auto handle = of(p + offset);
        EXPECT_EQ(get<umf_memory_provider_handle_t>(handle, UMF_MEMORY_PROPERTY_PROVIDER_HANDLE),
                  provider);
        EXPECT_EQ(get<umf_memory_pool_handle_t>(handle, UMF_MEMORY_PROPERTY_POOL_HANDLE), pool);
        EXPECT_EQ(get<uintptr_t>(handle, UMF_MEMORY_PROPERTY_BASE_ADDRESS),
                  reinterpret_cast<uintptr_t>(p));
        EXPECT_EQ(get<size_t>(handle, UMF_MEMORY_PROPERTY_BASE_SIZE), 5000u);
        EXPECT_EQ(get<umf_usm_memory_type_t>(handle, UMF_MEMORY_PROPERTY_POINTER_TYPE),
                  UMF_MEMORY_TYPE_DEVICE);
        EXPECT_EQ(get<uint32_t>(handle, UMF_MEMORY_PROPERTY_CONTEXT), 4242u);
        EXPECT_EQ(get<uint32_t>(handle, OWN_ID), 4242u);
        EXPECT_EQ(asked_for, p) << "the base address is given";
    }
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, UnknownPointers) {
    create(true);
    int local;
    auto handle = untouched;
    EXPECT_EQ(umfGetMemoryPropertiesHandle(nullptr, &handle), BAD);
    EXPECT_EQ(umfGetMemoryPropertiesHandle(&local, &handle), BAD);
    EXPECT_EQ(umfGetMemoryPropertiesHandle(&local, nullptr), BAD);
    void *direct = nullptr, *p = umfPoolMalloc(pool, 100);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 100, 0, &direct), OK);
    EXPECT_EQ(umfGetMemoryPropertiesHandle(direct, &handle), BAD);
    EXPECT_EQ(umfMemoryProviderFree(provider, direct, 100), OK);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfGetMemoryPropertiesHandle(p, &handle), BAD);
    EXPECT_EQ(handle, untouched);
}

TEST_F(Properties, UntrackedMemoryIsUnknown) {
    create(true, umfProxyPoolOps(), UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    auto handle = untouched;
    void *p = umfPoolMalloc(pool, 100);
    EXPECT_EQ(umfGetMemoryPropertiesHandle(p, &handle), BAD);
    EXPECT_EQ(handle, untouched);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, ArgumentsAreChecked) {
    create(true);
    void *p = umfPoolMalloc(pool, 100);
    auto handle = of(p);
    size_t size = 0;
    uint64_t value = 0;
    EXPECT_EQ(umfGetMemoryPropertySize(nullptr, UMF_MEMORY_PROPERTY_BASE_SIZE, &size), BAD);
    EXPECT_EQ(umfGetMemoryPropertySize(handle, UMF_MEMORY_PROPERTY_BASE_SIZE, nullptr), BAD);
    EXPECT_EQ(umfGetMemoryPropertySize(handle, UMF_MEMORY_PROPERTY_INVALID, &size), BAD);
    EXPECT_EQ(umfGetMemoryProperty(nullptr, UMF_MEMORY_PROPERTY_BASE_SIZE, &value, 8), BAD);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_BASE_SIZE, nullptr, 8), BAD);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_BASE_SIZE, &value, 0), BAD);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_INVALID, &value, 8), BAD);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_BASE_SIZE, &value, 7), BAD);
    EXPECT_EQ(umfGetMemoryProperty(handle, OWN_ID, &value, 3), BAD);
    EXPECT_EQ(value, 0u);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_BASE_SIZE, &value, 100), OK);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, WithoutCallbacks) {
    create(false);
    void *p = umfPoolMalloc(pool, 100);
    auto handle = of(p);
    size_t size = 0;
    uint64_t value = 0;
    for (int id : {int{UMF_MEMORY_PROPERTY_CONTEXT}, int{UMF_MEMORY_PROPERTY_DEVICE}, int{OWN_ID},
                   5, 1000}) {
        auto property_id = static_cast<umf_memory_property_id_t>(id);
        EXPECT_EQ(umfGetMemoryPropertySize(handle, property_id, &size), NONE) << id;
        EXPECT_EQ(umfGetMemoryProperty(handle, property_id, &value, 8), NONE) << id;
    }
    EXPECT_EQ(get<umf_usm_memory_type_t>(handle, UMF_MEMORY_PROPERTY_POINTER_TYPE),
              UMF_MEMORY_TYPE_UNKNOWN);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, CallbackErrorsArePassedOn) {
    create(true);
    void *p = umfPoolMalloc(pool, 100);
    auto handle = of(p);
    size_t size = 0;
    uint32_t value = 0;
    EXPECT_EQ(umfGetMemoryPropertySize(handle, UMF_MEMORY_PROPERTY_DEVICE, &size),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_DEVICE, &value, 4),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    value_result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    EXPECT_EQ(umfGetMemoryProperty(handle, OWN_ID, &value, 4), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    size_result = UMF_RESULT_ERROR_UNKNOWN;
    EXPECT_EQ(umfGetMemoryProperty(handle, OWN_ID, &value, 4), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, AnErrorAboutTheTypeIsIgnored) {
    type_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    create(true);
    void *p = umfPoolMalloc(pool, 100);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(get<umf_usm_memory_type_t>(of(p), UMF_MEMORY_PROPERTY_POINTER_TYPE),
              UMF_MEMORY_TYPE_UNKNOWN);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Properties, BufferIdsAreUniqueAndGrow) {
    create(true);
    std::set<uint64_t> ids;
    uint64_t last = 0;
    for (int i = 0; i < 100; i++) {
        void *p = umfPoolMalloc(pool, 100);
        auto id = get<uint64_t>(of(p), UMF_MEMORY_PROPERTY_BUFFER_ID);
        EXPECT_TRUE(ids.insert(id).second);
        EXPECT_GT(id, last);
        last = id;
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
}

TEST_F(Properties, OfASlab) {
    create(true, umfDisjointPoolOps());
    auto p = static_cast<char *>(umfPoolMalloc(pool, 100)),
         q = static_cast<char *>(umfPoolMalloc(pool, 100));
    EXPECT_EQ(get<size_t>(of(p + 99), UMF_MEMORY_PROPERTY_BASE_SIZE), 65536u);
    EXPECT_EQ(get<uint64_t>(of(p), UMF_MEMORY_PROPERTY_BUFFER_ID),
              get<uint64_t>(of(q), UMF_MEMORY_PROPERTY_BUFFER_ID));
    EXPECT_LE(get<uintptr_t>(of(p), UMF_MEMORY_PROPERTY_BASE_ADDRESS),
              reinterpret_cast<uintptr_t>(p));
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolFree(pool, q), OK);
}

TEST_F(Properties, TheInnermostPieceIsMeant) {
    create(true);
    void *memory = umfPoolMalloc(pool, 1u << 20);
    FakeProvider inner_fake;
    static void *inner_memory;
    inner_memory = static_cast<char *>(memory) + 4096;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.alloc = [](void *, size_t, size_t, void **ptr) {
        *ptr = inner_memory;
        return OK;
    };
    ops.free = [](void *, void *, size_t) { return OK; };
    umf_memory_provider_handle_t inner_provider = nullptr;
    umf_memory_pool_handle_t inner = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &inner_fake, &inner_provider), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), inner_provider, nullptr, 0, &inner), OK);
    ASSERT_EQ(umfPoolMalloc(inner, 100), inner_memory);
    EXPECT_EQ(get<umf_memory_pool_handle_t>(of(inner_memory), UMF_MEMORY_PROPERTY_POOL_HANDLE),
              inner);
    EXPECT_EQ(get<umf_memory_pool_handle_t>(of(static_cast<char *>(inner_memory) + 100),
                                            UMF_MEMORY_PROPERTY_POOL_HANDLE),
              pool);
    EXPECT_EQ(umfFree(inner_memory), OK);
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(inner_provider), OK);
    EXPECT_EQ(umfPoolFree(pool, memory), OK);
}

} // namespace
