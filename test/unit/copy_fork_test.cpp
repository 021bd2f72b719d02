// A fork while a thread queries the mark of a copy: the child has none of its parent's work.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/memory_provider_gpu.h>
#include <umf/plugin.h>
#include <umf/pools/pool_proxy.h>

#include "fakes/far_provider.h"
#include "fakes/plain_ops.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = 4096;

std::atomic<bool> is_waited_for{false}, may_end{false}, waits_fail{false};
std::atomic<int> ended{0};
void (*before_end)(); // NULL: nothing; called once, by a wait

// Pinned memory. Its copies happen at once; a mark that is waited for ends when the test says so.
umf_memory_provider_ops_t table() {
    umf_memory_provider_ops_t ops = plain_provider_ops();
    ops.initialize = [](const void *, void **self) {
        static char one;
        *self = &one;
        return OK;
    };
    ops.finalize = [](void *) { return OK; };
    ops.alloc = [](void *, size_t size, size_t, void **ptr) {
        *ptr = aligned_alloc(SIZE, size);
        return *ptr ? OK : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    };
    ops.free = [](void *, void *ptr, size_t) {
        free(ptr);
        return OK;
    };
    ops.get_name = [](void *, const char **name) {
        *name = "marking";
        return OK;
    };
    ops.ext_get_allocation_properties = [](void *, const void *, umf_memory_property_id_t,
                                           void *value) {
        *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_HOST;
        return OK;
    };
    ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *size) {
        *size = sizeof(umf_usm_memory_type_t);
        return OK;
    };
    return ops;
}

void *last_mark;

umf_memory_provider_ext_ops_t extension() {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    ext.queue_create = [](void *, void **queue) {
        static char one;
        *queue = &one;
        return OK;
    };
    ext.queue_destroy = [](void *, void *) { return OK; };
    ext.queue_wait = [](void *, void *) { return OK; };
    ext.copy = [](void *, void *, void *dst, const void *src, size_t size) {
        memcpy(dst, src, size);
        return OK;
    };
    ext.queue_mark = [](void *, void *, void **mark) {
        *mark = last_mark = malloc(1);
        return *mark ? OK : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    };
    ext.mark_wait = [](void *, void *mark, int may_block) {
        if (!may_block || waits_fail) {
            return 0;
        }
        if (before_end) {
            std::exchange(before_end, nullptr)();
        }
        free(mark);
        ended++;
        is_waited_for = true;
        while (!may_end) {
            std::this_thread::yield();
        }
        return 1;
    };
    return ext;
}

class CopyFork : public testing::Test {
  public:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    void *to = nullptr, *from = nullptr;
    char queue = 0;

    void SetUp() override {
        static const umf_memory_provider_ops_t ops = table();
        static const umf_memory_provider_ext_ops_t ext = extension();
        static const umf_memory_provider_descriptor_t kind = plain_kind("marking", &ops, &ext);
        static const umf_result_t registered = umfRegisterProvider(&kind);
        ASSERT_EQ(registered, OK);
        ASSERT_EQ(umfMemoryProviderCreate(&ops, nullptr, &provider), OK);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
        to = umfPoolMalloc(pool, SIZE);
        from = umfPoolMalloc(pool, SIZE);
        ASSERT_TRUE(to && from);
    }
    void copy() {
        umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
        params.queue = &queue;
        ASSERT_EQ(umfCopy(to, from, SIZE, &params), OK);
    }
    bool end() {
        return umfPoolDestroy(pool) == OK && umfMemoryProviderDestroy(provider) == OK;
    }
};

TEST_F(CopyFork, AChildNeitherEndsNorAwaitsAMarkOfItsParent) {
    ASSERT_NO_FATAL_FAILURE(copy());
    ASSERT_NO_FATAL_FAILURE(copy());
    std::thread waiting([&] { EXPECT_EQ(umfFree(to), OK); });
    while (!is_waited_for) {
        std::this_thread::yield();
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(60); // instead of a wait for ever
        may_end = true;
        to = umfPoolMalloc(pool, SIZE);
        copy();
        bool is_freed = umfFree(to) == OK && umfFree(from) == OK;
        _exit(!HasFailure() && is_freed && end() && ended == 2 ? 0 : 1);
    }
    may_end = true;
    waiting.join();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(umfFree(from), OK);
    EXPECT_TRUE(end());
}

// In the child the wait goes on, and finds other work listed.
TEST_F(CopyFork, AWaitMayFork) {
    static CopyFork *self;
    static pid_t child;
    self = this;
    may_end = true;
    ASSERT_NO_FATAL_FAILURE(copy());
    void *old = to;
    to = umfPoolMalloc(pool, SIZE);
    before_end = [] {
        child = fork();
        if (child == 0) {
            alarm(60); // instead of a wait for ever
            self->copy();
        }
    };
    EXPECT_EQ(umfFree(old), OK);
    if (child == 0) {
        bool is_freed = umfFree(to) == OK && umfFree(from) == OK;
        _exit(!HasFailure() && is_freed && end() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(umfFree(to), OK);
    EXPECT_EQ(umfFree(from), OK);
    EXPECT_TRUE(end());
}

// A block of a far provider, and copies to it on queues of the library.
struct FarBlock {
    FarProvider far;
    umf_memory_provider_handle_t below = far.create();
    umf_memory_pool_handle_t pool = nullptr;
    void *block = nullptr;
    char source[SIZE] = {};

    FarBlock() {
        EXPECT_EQ(umfPoolCreate(umfProxyPoolOps(), below, nullptr, 0, &pool), OK);
        block = umfPoolMalloc(pool, SIZE);
        EXPECT_NE(block, nullptr);
    }
    umf_result_t copy() {
        return umfCopy(block, source, SIZE, nullptr);
    }
    // A copy whose wait fails.
    void leave_undone() {
        far.fails_wait = true;
        EXPECT_NE(copy(), OK);
        far.fails_wait = false;
    }
    void end() {
        EXPECT_EQ(umfFree(block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(below), OK);
        EXPECT_EQ(far.queues, 0);
    }
};

// In the child the wait goes on, and finds other work listed, which stays listed.
TEST(CopyForkUndone, AWaitForAnUndoneQueueMayFork) {
    FarBlock forks, other;
    bool has_forked = false;
    pid_t child = -1;
    forks.leave_undone();
    forks.far.during_wait = [&] {
        child = std::exchange(has_forked, true) ? child : fork();
        if (child == 0) {
            alarm(60); // instead of a wait for ever
            other.leave_undone();
            child = getpid();
        }
    };
    EXPECT_EQ(forks.copy(), OK);
    EXPECT_EQ(other.copy(), OK);
    other.end();
    forks.end();
    if (child == getpid()) {
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// No wait ever succeeds: a free and the end of a pool do not hang.
TEST_F(CopyFork, WaitsThatFailForEverEnd) {
    const int before = ended;
    ASSERT_NO_FATAL_FAILURE(copy());
    waits_fail = true;
    EXPECT_EQ(umfFree(to), OK);
    EXPECT_EQ(umfFree(from), OK);
    EXPECT_TRUE(end());
    waits_fail = false;
    EXPECT_EQ(ended, before) << "the mark is left";
    free(last_mark);
}

} // namespace
