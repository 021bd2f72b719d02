/*
 * Queues of Level Zero: immediate command lists in a context of the test, and the provider of a
 * pool in that context. Work is a fill of a block, with an event that it signals, and runs late.
 */
#ifndef UMF_TEST_FAULTS_LISTS_H
#define UMF_TEST_FAULTS_LISTS_H

#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/queue.h>

#include "level_zero/level_zero.h"

namespace faults {

class Lists {
    struct Use {
        const char *begin, *end;
        void *list;
        ze_event_pool_handle_t pool;
        ze_event_handle_t event;
    };
    ze_context_handle_t context = nullptr;
    ze_device_handle_t device = nullptr;
    std::vector<Use> uses;

  public:
    void start() {
        ze_driver_handle_t driver = nullptr;
        uint32_t count = 1;
        ze_context_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
        EXPECT_EQ(ze().zeDriverGet(&count, &driver), ZE_RESULT_SUCCESS);
        count = 1;
        EXPECT_EQ(ze().zeDeviceGet(driver, &count, &device), ZE_RESULT_SUCCESS);
        EXPECT_EQ(ze().zeContextCreate(driver, &wanted, &context), ZE_RESULT_SUCCESS);
    }
    std::vector<void *> make(size_t count) {
        ze_command_queue_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
        wanted.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        std::vector<void *> lists;
        for (size_t i = 0; i < count; i++) {
            ze_command_list_handle_t list = nullptr;
            EXPECT_EQ(ze().zeCommandListCreateImmediate(context, device, &wanted, &list),
                      ZE_RESULT_SUCCESS);
            lists.push_back(list);
        }
        return lists;
    }
    // The work on them completes.
    void end(const std::vector<void *> &lists) {
        for (void *list : lists) {
            umfQueueEnds(list);
            EXPECT_EQ(ze().zeCommandListDestroy(static_cast<ze_command_list_handle_t>(list)),
                      ZE_RESULT_SUCCESS);
        }
        for (const Use &use : uses) {
            end_event(use);
        }
        uses.clear();
    }

    // A provider of either kind in the context, or NULL: a call has failed.
    umf_memory_provider_handle_t make_provider() const {
        umf_level_zero_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t made = nullptr;
        if (umfLevelZeroMemoryProviderParamsCreate(&params) == UMF_RESULT_SUCCESS) {
            umfLevelZeroMemoryProviderParamsSetContext(params, context);
            umfLevelZeroMemoryProviderParamsSetDevice(params, device);
            umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
            umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &made);
            umfLevelZeroMemoryProviderParamsDestroy(params);
        }
        return made;
    }
    umf_memory_provider_handle_t make_vmm_provider() const {
        umf_level_zero_vmm_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t made = nullptr;
        if (umfLevelZeroVmmMemoryProviderParamsCreate(&params) == UMF_RESULT_SUCCESS) {
            umfLevelZeroVmmMemoryProviderParamsSetContext(params, context, device);
            umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), params, &made);
            umfLevelZeroVmmMemoryProviderParamsDestroy(params);
        }
        return made;
    }

    // `ptr` was handed out on `list`, which fills it: no work of another list may still use it.
    void use(void *ptr, size_t size, void *list) {
        const char *begin = static_cast<const char *>(ptr);
        for (const Use &old : uses) {
            if (old.list != list && old.begin < begin + size && begin < old.end) {
                EXPECT_NE(ze().zeEventQueryStatus(old.event), ZE_RESULT_NOT_READY)
                    << "a block that another list still uses was handed out";
            }
        }
        Use made = {begin, begin + size, list, nullptr, nullptr};
        ze_event_pool_desc_t for_pool = {};
        for_pool.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
        for_pool.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
        for_pool.count = 1;
        ze_event_desc_t for_event = {};
        for_event.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
        if (ze().zeEventPoolCreate(context, &for_pool, 1, &device, &made.pool) !=
                ZE_RESULT_SUCCESS ||
            ze().zeEventCreate(made.pool, &for_event, &made.event) != ZE_RESULT_SUCCESS ||
            ze().zeCommandListAppendMemoryFill(static_cast<ze_command_list_handle_t>(list), ptr,
                                               "x", 1, size, made.event, 0,
                                               nullptr) != ZE_RESULT_SUCCESS) {
            end_event(made);
        } else {
            uses.push_back(made);
        }
    }

  private:
    // Tried twice: one call may fail.
    static void end_event(const Use &use) {
        if (use.event && ze().zeEventDestroy(use.event) != ZE_RESULT_SUCCESS) {
            ze().zeEventDestroy(use.event);
        }
        if (use.pool && ze().zeEventPoolDestroy(use.pool) != ZE_RESULT_SUCCESS) {
            ze().zeEventPoolDestroy(use.pool);
        }
    }
};

} // namespace faults

#endif
