/*
 * A pool over the fake IPC provider, and handles made by hand: the common part of the tests of both
 * ends of IPC need.
 */
#ifndef UMF_TEST_FAKES_IPC_FIXTURE_H
#define UMF_TEST_FAKES_IPC_FIXTURE_H

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>

#include "fakes/fork_at_rest.h"
#include "fakes/handle.h"
#include "fakes/ipc_provider.h"

extern "C" {
#include "ipc/wire.h"
}

inline umf_ipc_handle_t as_handle(Bytes &bytes) {
    return reinterpret_cast<umf_ipc_handle_t>(bytes.data());
}

// A handle whose content was changed and whose checksums are right again.
inline Bytes forged(Bytes bytes, const std::function<void(umf_wire_t &)> &change) {
    umf_wire_t wire;
    EXPECT_EQ(umf_wire_check(bytes.data(), SIZE_MAX, &wire), UMF_RESULT_SUCCESS);
    change(wire);
    bytes.resize(UMF_WIRE_HEADER + wire.data_size);
    umf_wire_pack(&wire, bytes.data());
    return bytes;
}

inline umf_wire_t decoded(const Bytes &bytes) {
    umf_wire_t wire = {};
    EXPECT_EQ(umf_wire_check(bytes.data(), SIZE_MAX, &wire), UMF_RESULT_SUCCESS);
    return wire;
}

// The fake provider, but it cannot share.
inline umf_memory_provider_ops_t ops_without_ipc() {
    umf_memory_provider_ops_t ops = *FakeIpc::ops();
    ops.ext_get_ipc_handle_size = nullptr;
    ops.ext_get_ipc_handle = nullptr;
    ops.ext_put_ipc_handle = nullptr;
    ops.ext_open_ipc_handle = nullptr;
    ops.ext_close_ipc_handle = nullptr;
    return ops;
}

// A proxy pool over a fake provider: each allocation of the pool is one of the provider.
struct FakePool {
    FakeIpc fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    explicit FakePool(const umf_memory_provider_ops_t *ops = FakeIpc::ops()) {
        EXPECT_EQ(umfMemoryProviderCreate(ops, &fake, &provider), UMF_RESULT_SUCCESS);
        EXPECT_EQ(
            umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_NONE, &pool),
            UMF_RESULT_SUCCESS);
    }
    ~FakePool() {
        destroy_pool();
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    }
    FakePool(const FakePool &) = delete;
    FakePool &operator=(const FakePool &) = delete;

    void destroy_pool() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
            pool = nullptr;
        }
    }

    char *alloc(size_t size = 8192) {
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr);
        return static_cast<char *>(ptr);
    }
    // At an address that was freed before.
    char *alloc_at(void *address, size_t size = 8192) {
        fake.next_address = address;
        char *ptr = alloc(size);
        EXPECT_EQ(ptr, address);
        return ptr;
    }
    void free(void *ptr) {
        EXPECT_EQ(umfPoolFree(pool, ptr), UMF_RESULT_SUCCESS);
    }

    umf_ipc_handler_handle_t handler() {
        umf_ipc_handler_handle_t handler = nullptr;
        EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
        return handler;
    }
};

// Calls `body` in `count` threads and lets the provider go on only when all of them wait for it or
// for each other.
inline void in_threads(FakeIpc &fake, int count, const std::function<void(int)> &body) {
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    fake.hold = true;
    for (int i = 0; i < count; i++) {
        threads.emplace_back([&, i] {
            started++;
            body(i);
        });
    }
    while (started < count) {
        std::this_thread::yield();
    }
    wait_for_rest();
    fake.hold = false;
    for (std::thread &thread : threads) {
        thread.join();
    }
}

#endif
