// Suspend as a scope, lists of queues.
#include <list>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/heap.h"

static constexpr size_t size = 1 << 20;

static umf_suspend_state_t state_of(umf::pool_ref pool) {
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    umfPoolGetResidency(pool.get(), &residency);
    return residency.state;
}

TEST(SuspendScope, EndsWithEverythingBack) {
    umf::pool one("coalescing over linux_vmm"), other("coalescing over linux_vmm");
    auto *bytes = static_cast<char *>(one.allocate(size));
    bytes[size - 1] = 'x';
    {
        umf::suspend_scope suspended({one, other});
        EXPECT_EQ(state_of(one), UMF_SUSPEND_STATE_SUSPENDED);
        EXPECT_EQ(state_of(other), UMF_SUSPEND_STATE_SUSPENDED);
        EXPECT_GE(suspended.report().bytes, size);
        EXPECT_THROW(static_cast<void>(one.allocate(100)), umf::bad_alloc);
    }
    EXPECT_EQ(state_of(one), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(state_of(other), UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(bytes[size - 1], 'x');
    one.deallocate(bytes);
}

TEST(SuspendScope, IsLeftEarlyAndMoved) {
    umf::pool pool("coalescing over linux_vmm");
    void *ptr = pool.allocate(size);
    {
        umf::suspend_scope first({pool}), second(std::move(first));
        EXPECT_EQ(first.resume()->bytes, 0u);
        EXPECT_EQ(state_of(pool), UMF_SUSPEND_STATE_SUSPENDED);
        EXPECT_GE(second.resume()->bytes, size);
        EXPECT_EQ(state_of(pool), UMF_SUSPEND_STATE_RESIDENT);
    }
    pool.deallocate(ptr);
}

TEST(SuspendScope, RefusesWhatCannotBeSuspended) {
    umf::pool good("coalescing over linux_vmm"), bad("disjoint over os");
    EXPECT_THROW(umf::suspend_scope({good, bad}), umf::exception);
    EXPECT_EQ(umf::suspend_scope::create({bad}).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umf::suspend_scope::create({}).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(state_of(good), UMF_SUSPEND_STATE_RESIDENT);
}

TEST(SuspendScope, KeepsToThePolicy) {
    umf::pool pool("coalescing over linux_vmm");
    auto *bytes = static_cast<char *>(pool.allocate(size));
    bytes[0] = 'x';
    ASSERT_TRUE(umf::set_suspend_policy(pool, UMF_SUSPEND_ZERO));
    EXPECT_FALSE(umf::set_suspend_policy(pool, UMF_SUSPEND_KEEP_FILE));
    EXPECT_EQ(umf::suspend_scope({pool}).report().kept, 0u);
    EXPECT_EQ(bytes[0], 0);
    pool.deallocate(bytes);
}

TEST(Queues, AreARange) {
    struct Stream;
    auto *one = reinterpret_cast<Stream *>(16), *other = reinterpret_cast<Stream *>(32);
    std::vector<Stream *> vector = {one, other};
    std::list<Stream *> list = {other};
    umf::queues none, both(vector), last(list), braces = {one, other, one};
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(both.size(), 2u);
    EXPECT_EQ(both.data()[1], other);
    EXPECT_EQ(*last.begin(), other);
    EXPECT_EQ(braces.end() - braces.begin(), 3);
}
