/* Memory policies. What providers make of them is tested in
 * memspace_create_test.cpp. */
#include <cstdint>

#include <gtest/gtest.h>

#include <umf/experimental/mempolicy.h>

extern "C" {
#include "base/meta.h"
#include "numa/mempolicy.h"
}

#include "fault.h"
#include "machine.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

constexpr umf_mempolicy_membind_t all[] = {UMF_MEMPOLICY_INTERLEAVE, UMF_MEMPOLICY_BIND,
                                           UMF_MEMPOLICY_PREFERRED, UMF_MEMPOLICY_SPLIT};

} // namespace

TEST(mempolicy, CreatedWithDefaults) {
    for (umf_mempolicy_membind_t bind : all) {
        machine::Policy policy(bind);
        EXPECT_EQ(policy.handle->bind, bind);
        EXPECT_EQ(policy.handle->part_size, 0u);
        EXPECT_EQ(policy.handle->partition_count, 0u);
    }
}

TEST(mempolicy, CreateRefuses) {
    EXPECT_EQ(umfMempolicyCreate(UMF_MEMPOLICY_BIND, nullptr), BAD);
    umf_mempolicy_handle_t handle = nullptr;
    for (int bind : {-1, 4, 1 << 30}) {
        EXPECT_EQ(umfMempolicyCreate(static_cast<umf_mempolicy_membind_t>(bind), &handle), BAD)
            << bind;
    }
    EXPECT_EQ(handle, nullptr);
}

TEST(mempolicy, DestroyOfNull) {
    EXPECT_EQ(umfMempolicyDestroy(nullptr), OK);
}

TEST(mempolicy, PartSizeIsForInterleaveOnly) {
    EXPECT_EQ(umfMempolicySetInterleavePartSize(nullptr, 1), BAD);
    for (umf_mempolicy_membind_t bind : all) {
        machine::Policy policy(bind);
        bool fits = bind == UMF_MEMPOLICY_INTERLEAVE;
        EXPECT_EQ(umfMempolicySetInterleavePartSize(policy.handle, 4097), fits ? OK : BAD);
        EXPECT_EQ(policy.handle->part_size, fits ? 4097u : 0u);
    }
}

TEST(mempolicy, PartitionsAreForSplitOnly) {
    umf_mempolicy_split_partition_t list[] = {{1, 0}, {2, 1}};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(nullptr, list, 2), BAD);
    for (umf_mempolicy_membind_t bind : all) {
        machine::Policy policy(bind);
        bool fits = bind == UMF_MEMPOLICY_SPLIT;
        EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), fits ? OK : BAD);
        EXPECT_EQ(policy.handle->partition_count, fits ? 2u : 0u);
    }
}

TEST(mempolicy, PartitionsAreCopied) {
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_mempolicy_split_partition_t list[] = {{1, 0}, {2, 1}};
    ASSERT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), OK);
    list[1] = {9, 9};
    EXPECT_EQ(policy.handle->partitions[1].weight, 2u);
    EXPECT_EQ(policy.handle->partitions[1].target, 1u);
}

TEST(mempolicy, PartitionsAreReplacedAndCleared) {
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_mempolicy_split_partition_t list[] = {{1, 0}, {2, 1}};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 2), OK);
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, nullptr, 1), BAD);
    EXPECT_EQ(policy.handle->partition_count, 2u) << "a failure changes nothing";
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, list, 1), OK);
    EXPECT_EQ(policy.handle->partition_count, 1u);
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, nullptr, 0), OK);
    EXPECT_EQ(policy.handle->partition_count, 0u);
    EXPECT_EQ(policy.handle->partitions, nullptr);
}

TEST(mempolicy, MorePartitionsThanMemory) {
    machine::Policy policy(UMF_MEMPOLICY_SPLIT);
    umf_mempolicy_split_partition_t one = {1, 0};
    EXPECT_EQ(umfMempolicySetCustomSplitPartitions(policy.handle, &one, SIZE_MAX),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(policy.handle->partition_count, 0u);
}

TEST(mempolicy, WithoutMemoryNothingStays) {
    size_t before = umf_meta_used();
    umf_mempolicy_split_partition_t one = {1, 0};
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        umf_mempolicy_handle_t handle = nullptr;
        umf_result_t result = umfMempolicyCreate(UMF_MEMPOLICY_SPLIT, &handle);
        if (result == OK) {
            result = umfMempolicySetCustomSplitPartitions(handle, &one, 1);
        }
        EXPECT_EQ(result, nth.hit() ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : OK);
        EXPECT_EQ(umfMempolicyDestroy(handle), OK);
        EXPECT_EQ(umf_meta_used(), before);
    }
    EXPECT_EQ(nth.runs(), 3);
}
