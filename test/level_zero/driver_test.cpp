// The software Level Zero driver itself, through the real loader: assumptions of the tests of the
// providers rely on.

#include <algorithm>
#include <cstdint>
#include <string>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/threads.h"

#include "level_zero/level_zero.h"

extern char **environ;

namespace {

constexpr size_t page = 64 << 10;
constexpr size_t granule = 2 << 20;

class Driver : public LevelZero {
  protected:
    fake_ze_t *control = nullptr;

    void SetUp() override {
        NEEDS_FAKE_ZE();
        LevelZero::SetUp();
        control = ze().control();
    }

    static ze_device_mem_alloc_desc_t on_device(const void *next = nullptr, uint32_t ordinal = 0) {
        return {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, next, 0, ordinal};
    }

    static ze_host_mem_alloc_desc_t on_host() {
        return {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    }

    char *alloc_device(size_t size, size_t alignment = 0) {
        ze_device_mem_alloc_desc_t wanted = on_device();
        void *ptr = nullptr;
        EXPECT_EQ(ze().zeMemAllocDevice(context, &wanted, size, alignment, device, &ptr),
                  ZE_RESULT_SUCCESS);
        return static_cast<char *>(ptr);
    }

    ze_result_t try_device(size_t size, size_t alignment = 0, const void *next = nullptr,
                           uint32_t ordinal = 0) {
        ze_device_mem_alloc_desc_t wanted = on_device(next, ordinal);
        void *ptr = nullptr;
        ze_result_t result = ze().zeMemAllocDevice(context, &wanted, size, alignment, device, &ptr);
        if (result == ZE_RESULT_SUCCESS) {
            ze().zeMemFree(context, ptr);
        }
        return result;
    }

    void free(void *ptr) {
        ZE(zeMemFree(context, ptr));
    }

    ze_command_list_handle_t
    immediate(ze_command_queue_mode_t mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS) {
        ze_command_queue_desc_t wanted = queue_of(mode);
        ze_command_list_handle_t list = nullptr;
        EXPECT_EQ(ze().zeCommandListCreateImmediate(context, device, &wanted, &list),
                  ZE_RESULT_SUCCESS);
        return list;
    }

    static ze_command_queue_desc_t queue_of(ze_command_queue_mode_t mode) {
        ze_command_queue_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
        wanted.mode = mode;
        return wanted;
    }

    // Copies at once, by a list of its own.
    void copy(void *to, const void *from, size_t size) {
        ze_command_list_handle_t list = immediate(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
        ZE(zeCommandListAppendMemoryCopy(list, to, from, size, nullptr, 0, nullptr));
        ZE(zeCommandListDestroy(list));
    }

    struct Events {
        ze_event_pool_handle_t pool = nullptr;
        std::vector<ze_event_handle_t> all;
        explicit Events(ze_context_handle_t context, uint32_t count = 1) {
            ze_event_pool_desc_t wanted = {};
            wanted.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
            wanted.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
            wanted.count = count;
            EXPECT_EQ(ze().zeEventPoolCreate(context, &wanted, 0, nullptr, &pool),
                      ZE_RESULT_SUCCESS);
            for (uint32_t i = 0; i < count; i++) {
                ze_event_desc_t event = {};
                event.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
                event.index = i;
                all.push_back(nullptr);
                EXPECT_EQ(ze().zeEventCreate(pool, &event, &all.back()), ZE_RESULT_SUCCESS);
            }
        }
        ~Events() {
            for (ze_event_handle_t event : all) {
                EXPECT_EQ(ze().zeEventDestroy(event), ZE_RESULT_SUCCESS);
            }
            EXPECT_EQ(ze().zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
        }
    };

    // Where nothing is mapped: the loader's validation wants a wish.
    static void *free_addresses(size_t size) {
        void *raw = mmap(nullptr, size + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(raw, size + granule);
        uintptr_t base = (reinterpret_cast<uintptr_t>(raw) + granule - 1) / granule * granule;
        return reinterpret_cast<void *>(base);
    }

    char *reserve(size_t size) {
        void *base = nullptr;
        EXPECT_EQ(ze().zeVirtualMemReserve(context, free_addresses(size), size, &base),
                  ZE_RESULT_SUCCESS);
        return static_cast<char *>(base);
    }

    ze_physical_mem_handle_t physical(size_t size) {
        ze_physical_mem_desc_t wanted = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, size};
        ze_physical_mem_handle_t made = nullptr;
        EXPECT_EQ(ze().zePhysicalMemCreate(context, device, &wanted, &made), ZE_RESULT_SUCCESS);
        return made;
    }
};

bool can_touch(const void *ptr) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    bool can = write(ends[1], ptr, 1) == 1; // EFAULT
    close(ends[0]);
    close(ends[1]);
    return can;
}

} // namespace

// --- drivers and devices -------------------------------------------------------------------------

TEST_F(Driver, ListsWhatTheTestSays) {
    uint32_t count = 0;
    ZE(zeDriverGet(&count, nullptr));
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(devices.size(), 2u);

    control->devices = 3;
    count = 0;
    ZE(zeDeviceGet(driver, &count, nullptr));
    EXPECT_EQ(count, 3u);
    ze_device_handle_t some[4] = {};
    count = 4;
    ZE(zeDeviceGet(driver, &count, some));
    EXPECT_EQ(count, 3u);
    EXPECT_EQ(some[3], nullptr);
    count = 1;
    some[0] = nullptr;
    ZE(zeDeviceGet(driver, &count, some));
    EXPECT_EQ(some[0], device);

    control->drivers = 0;
    count = 0;
    EXPECT_EQ(ze().zeDriverGet(&count, nullptr), ZE_RESULT_SUCCESS);
    EXPECT_EQ(count, 0u);
    control->drivers = 1;
}

TEST_F(Driver, TellsPropertiesOfDevices) {
    ze_device_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    control->max_alloc_size = 12345;
    ZE(zeDeviceGetProperties(device, &properties));
    EXPECT_EQ(properties.maxMemAllocSize, 12345u);
    EXPECT_EQ(properties.type, ZE_DEVICE_TYPE_GPU);

    uint32_t count = 0;
    control->memories = 2;
    control->device_memory[0] = 5 << 20;
    ZE(zeDeviceGetMemoryProperties(device, &count, nullptr));
    ASSERT_EQ(count, 2u);
    ze_device_memory_properties_t memory[2] = {};
    memory[0].stype = memory[1].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    ZE(zeDeviceGetMemoryProperties(device, &count, memory));
    EXPECT_EQ(memory[0].totalSize, 5u << 20);

    count = 0;
    ZE(zeDeviceGetCommandQueueGroupProperties(device, &count, nullptr));
    ASSERT_EQ(count, 2u);
    ze_command_queue_group_properties_t groups[2] = {};
    groups[0].stype = groups[1].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    ZE(zeDeviceGetCommandQueueGroupProperties(device, &count, groups));
    EXPECT_TRUE(groups[0].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
    EXPECT_FALSE(groups[1].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);

    ze_bool_t can = 0;
    ZE(zeDeviceCanAccessPeer(device, devices[1], &can));
    EXPECT_TRUE(can);
    control->peers = 0;
    ZE(zeDeviceCanAccessPeer(device, devices[1], &can));
    EXPECT_FALSE(can);
}

TEST_F(Driver, TellsTheCacheLineByAnExtension) {
    auto has_extension = [this] {
        uint32_t count = 0;
        ze().zeDriverGetExtensionProperties(driver, &count, nullptr);
        std::vector<ze_driver_extension_properties_t> list(count);
        ze().zeDriverGetExtensionProperties(driver, &count, list.data());
        return std::any_of(list.begin(), list.end(), [](const auto &each) {
            return strcmp(each.name, FAKE_ZE_CACHE_LINE_NAME) == 0;
        });
    };
    struct {
        uint32_t stype;
        const void *next;
        size_t size;
    } line = {FAKE_ZE_CACHE_LINE_TYPE, nullptr, 0};
    ze_device_cache_properties_t cache = {};
    cache.stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES;
    cache.pNext = &line;
    uint32_t count = 1;

    control->cache_line = 256;
    EXPECT_TRUE(has_extension());
    ZE(zeDeviceGetCacheProperties(device, &count, &cache));
    EXPECT_EQ(line.size, 256u);

    control->cache_line = 0;
    line.size = 7;
    EXPECT_FALSE(has_extension());
    ZE(zeDeviceGetCacheProperties(device, &count, &cache));
    EXPECT_EQ(line.size, 7u);
}

// --- memory --------------------------------------------------------------------------------------

TEST_F(Driver, AllocatesThreeKindsOfMemory) {
    ze_device_mem_alloc_desc_t for_device = on_device();
    ze_host_mem_alloc_desc_t for_host = on_host();
    void *host = nullptr, *shared = nullptr;
    ZE(zeMemAllocHost(context, &for_host, 100, 0, &host));
    ZE(zeMemAllocShared(context, &for_device, &for_host, 100, 1 << 20, devices[1], &shared));
    char *local = alloc_device(100, 4 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(shared) % (1 << 20), 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(local) % (4 << 20), 0u);
    memset(host, 1, 100);
    memset(shared, 2, 100);
    EXPECT_FALSE(can_touch(local));

    struct {
        void *ptr;
        ze_memory_type_t type;
        ze_device_handle_t device;
        size_t page_size;
    } expected[] = {{host, ZE_MEMORY_TYPE_HOST, nullptr, 4096},
                    {shared, ZE_MEMORY_TYPE_SHARED, devices[1], page},
                    {local, ZE_MEMORY_TYPE_DEVICE, device, page}};
    for (auto &each : expected) {
        ze_memory_allocation_properties_t properties = {};
        properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
        ze_device_handle_t where = nullptr;
        ZE(zeMemGetAllocProperties(context, static_cast<char *>(each.ptr) + 99, &properties,
                                   &where));
        EXPECT_EQ(properties.type, each.type);
        EXPECT_EQ(properties.pageSize, each.page_size);
        EXPECT_NE(properties.id, 0u);
        EXPECT_EQ(where, each.device);
        void *base = nullptr;
        size_t size = 0;
        ZE(zeMemGetAddressRange(context, static_cast<char *>(each.ptr) + 50, &base, &size));
        EXPECT_EQ(base, each.ptr);
        EXPECT_EQ(size, 100u);
    }
    ze_memory_allocation_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    ZE(zeMemGetAllocProperties(context, &properties, &properties, nullptr));
    EXPECT_EQ(properties.type, ZE_MEMORY_TYPE_UNKNOWN);

    EXPECT_EQ(control->allocations, 3);
    EXPECT_EQ(control->used[0], page);
    EXPECT_EQ(control->used[1], page);
    EXPECT_EQ(control->host_used, 4096u);
    free(host);
    free(shared);
    free(local);
    EXPECT_EQ(control->used[0] + control->used[1] + control->host_used, 0u);
    EXPECT_EQ(control->peak[0], page);
}

TEST_F(Driver, OpensDeviceMemoryToTheCpuOnDemand) {
    control->touchable = 1;
    char *local = alloc_device(100);
    EXPECT_TRUE(can_touch(local));
    free(local);
}

TEST_F(Driver, CutsSmallAllocationsOutOfPages) {
    control->cut = 1;
    char *small = alloc_device(100), *aligned = alloc_device(100, 512), *large = alloc_device(page);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % page, 64u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % page, 512u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % page, 0u);
    free(small);
    free(aligned);
    free(large);
}

TEST_F(Driver, RefusesWhatARealOneRefuses) {
    EXPECT_EQ(try_device(0), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    EXPECT_EQ(try_device(100, 3), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    EXPECT_EQ(try_device(100, 0, nullptr, 1), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    control->memories = 2;
    EXPECT_EQ(try_device(100, 0, nullptr, 1), ZE_RESULT_SUCCESS);
    EXPECT_EQ(control->last.ordinal, 1u);

    EXPECT_EQ(try_device((256 << 20) + 1), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC, nullptr,
        ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    EXPECT_EQ(try_device((256 << 20) + 1, 0, &relaxed), ZE_RESULT_SUCCESS);
    EXPECT_EQ(control->last.relaxed, uint32_t{ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE});

    control->device_memory[0] = 2 * page;
    char *all = alloc_device(2 * page);
    EXPECT_EQ(try_device(1), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    free(all);
    EXPECT_EQ(try_device(1), ZE_RESULT_SUCCESS);

    control->host_memory = 4096;
    ze_host_mem_alloc_desc_t wanted = on_host();
    void *ptr = nullptr;
    EXPECT_EQ(ze().zeMemAllocHost(context, &wanted, 4097, 0, &ptr),
              ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);

    int local = 0;
    EXPECT_EQ(ze().zeMemFree(context, &local), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(Driver, NoticesWrongHandles) {
    control->drivers = 2;
    uint32_t count = 2;
    ze_driver_handle_t drivers[2];
    ZE(zeDriverGet(&count, drivers));
    ze_device_handle_t foreign = nullptr;
    count = 1;
    ZE(zeDeviceGet(drivers[1], &count, &foreign));
    ze_device_mem_alloc_desc_t wanted = on_device();
    void *ptr = nullptr;
    EXPECT_EQ(ze().zeMemAllocDevice(context, &wanted, 100, 0, foreign, &ptr),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(control->wrong_handles, 1);

    ze_context_desc_t description = {};
    description.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
    ze_context_handle_t other = nullptr;
    ZE(zeContextCreate(driver, &description, &other));
    char *memory = alloc_device(100);
    EXPECT_EQ(ze().zeMemFree(other, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ze().zeContextDestroy(context), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    free(memory);
    ZE(zeContextDestroy(other));
    EXPECT_EQ(ze().zeMemAllocDevice(other, &wanted, 100, 0, device, &ptr),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(control->wrong_handles, 2);
}

TEST_F(Driver, RecordsResidency) {
    char *memory = alloc_device(2 * page);
    ZE(zeContextMakeMemoryResident(context, devices[1], memory, 2 * page));
    ZE(zeContextMakeMemoryResident(context, devices[1], memory, 2 * page));
    EXPECT_TRUE(ze().is_resident(memory, 1));
    EXPECT_FALSE(ze().is_resident(memory, 0));
    EXPECT_EQ(control->residents[1], 1);
    ZE(zeContextEvictMemory(context, devices[1], memory, 2 * page));
    EXPECT_FALSE(ze().is_resident(memory, 1));
    EXPECT_EQ(control->residents[1], 0);
    int local = 0;
    EXPECT_EQ(ze().zeContextMakeMemoryResident(context, device, &local, 4),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ZE(zeContextMakeMemoryResident(context, devices[1], memory, 2 * page));
    free(memory);
    EXPECT_EQ(control->residents[1], 0);
}

TEST_F(Driver, ExportsAndImportsMemory) {
    ze_external_memory_export_desc_t exports = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                                nullptr, ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_device_mem_alloc_desc_t wanted = on_device(&exports);
    void *first = nullptr, *second = nullptr;
    ZE(zeMemAllocDevice(context, &wanted, page, 0, device, &first));
    ze_external_memory_export_fd_t exported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr,
                                               ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, -1};
    ze_memory_allocation_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    properties.pNext = &exported;
    ZE(zeMemGetAllocProperties(context, first, &properties, nullptr));
    ASSERT_GE(exported.fd, 0);

    ze_external_memory_import_fd_t import = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                             ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, exported.fd};
    wanted = on_device(&import);
    ZE(zeMemAllocDevice(context, &wanted, page, 0, device, &second));
    close(exported.fd);
    int value = 4711, seen = 0;
    copy(first, &value, sizeof(value));
    copy(&seen, second, sizeof(seen));
    EXPECT_EQ(seen, 4711);
    EXPECT_EQ(control->used[0], page) << "who imports pays nothing";
    free(second);
    free(first);
}

// --- freeing -------------------------------------------------------------------------------------

TEST_F(Driver, FreesByPolicyOnlyWhatNoWorkUses) {
    ze_memory_free_ext_desc_t how = {};
    how.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC;
    char buffer[16] = {};
    ze_command_list_handle_t list = immediate();

    char *memory = alloc_device(page);
    ZE(zeCommandListAppendMemoryCopy(list, memory, buffer, 16, nullptr, 0, nullptr));
    how.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    ZE(zeMemFreeExt(context, &how, memory));
    EXPECT_EQ(control->allocations, 1) << "the copy is still queued";
    EXPECT_EQ(ze().zeMemFree(context, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);

    char *other = alloc_device(page);
    ZE(zeCommandListAppendMemoryCopy(list, other, buffer, 16, nullptr, 0, nullptr));
    how.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
    ZE(zeMemFreeExt(context, &how, other));
    EXPECT_EQ(control->allocations, 0);
    EXPECT_EQ(control->unordered_frees, 0);

    char *last = alloc_device(page);
    ZE(zeCommandListAppendMemoryCopy(list, last, buffer, 16, nullptr, 0, nullptr));
    free(last);
    EXPECT_EQ(control->unordered_frees, 1);
    EXPECT_EQ(ze().zeCommandListDestroy(list), ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(control->illegal_accesses, 1);
}

// --- queues --------------------------------------------------------------------------------------

TEST_F(Driver, DoesQueuedWorkLate) {
    char *memory = alloc_device(page);
    ze_command_list_handle_t list = immediate();
    Events events(context, 2);
    int pattern = 0x01020304, seen[4] = {};
    ZE(zeCommandListAppendMemoryFill(list, memory, &pattern, sizeof(pattern), page, events.all[0],
                                     0, nullptr));
    ZE(zeCommandListAppendMemoryCopy(list, seen, memory + 8, sizeof(seen), events.all[1], 1,
                                     &events.all[0]));
    EXPECT_EQ(seen[0], 0);
    EXPECT_EQ(ze().zeEventQueryStatus(events.all[1]), ZE_RESULT_NOT_READY);
    EXPECT_EQ(ze().zeEventHostSynchronize(events.all[1], 0), ZE_RESULT_NOT_READY);
    ZE(zeEventHostSynchronize(events.all[1], UINT64_MAX));
    for (int each : seen) {
        EXPECT_EQ(each, 0x01020304);
    }
    ZE(zeEventQueryStatus(events.all[0]));
    ZE(zeEventHostReset(events.all[0]));
    EXPECT_EQ(ze().zeEventQueryStatus(events.all[0]), ZE_RESULT_NOT_READY);
    ZE(zeEventHostSignal(events.all[0]));
    ZE(zeEventQueryStatus(events.all[0]));
    ZE(zeCommandListDestroy(list));
    free(memory);
}

TEST_F(Driver, KeepsNoOrderWithoutABarrier) {
    for (bool with_barrier : {false, true}) {
        ze_command_list_handle_t list = immediate();
        Events events(context);
        int first = 1, second = 2, seen = 0;
        ZE(zeCommandListAppendMemoryCopy(list, &seen, &first, sizeof(seen), nullptr, 0, nullptr));
        if (with_barrier) {
            ZE(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
        }
        ZE(zeCommandListAppendMemoryCopy(list, &seen, &second, sizeof(seen), nullptr, 0, nullptr));
        ZE(zeCommandListAppendSignalEvent(list, events.all[0]));
        ZE(zeEventHostSynchronize(events.all[0], UINT64_MAX));
        EXPECT_EQ(seen, with_barrier ? 2 : 1);
        ZE(zeCommandListDestroy(list));
    }
}

TEST_F(Driver, ExecutesListsOnAQueue) {
    ze_command_queue_desc_t wanted = queue_of(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_command_queue_handle_t queue = nullptr;
    ZE(zeCommandQueueCreate(context, device, &wanted, &queue));
    ze_command_list_desc_t for_list = {};
    for_list.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
    ze_command_list_handle_t list = nullptr;
    ZE(zeCommandListCreate(context, device, &for_list, &list));
    ze_fence_desc_t for_fence = {};
    for_fence.stype = ZE_STRUCTURE_TYPE_FENCE_DESC;
    ze_fence_handle_t fence = nullptr;
    ZE(zeFenceCreate(queue, &for_fence, &fence));

    int source = 1, target = 0;
    ZE(zeCommandListAppendMemoryCopy(list, &target, &source, sizeof(source), nullptr, 0, nullptr));
    EXPECT_EQ(ze().zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr),
              ZE_RESULT_ERROR_INVALID_ARGUMENT)
        << "not closed";
    ZE(zeCommandListClose(list));
    ZE(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    EXPECT_EQ(target, 0);
    EXPECT_EQ(ze().zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
    ZE(zeFenceHostSynchronize(fence, UINT64_MAX));
    EXPECT_EQ(target, 1);

    source = 2;
    ZE(zeFenceReset(fence));
    ZE(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
    EXPECT_EQ(ze().zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
    ZE(zeCommandQueueSynchronize(queue, UINT64_MAX));
    EXPECT_EQ(target, 2);

    ZE(zeCommandListReset(list));
    ZE(zeCommandListClose(list));
    source = 3;
    ZE(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
    ZE(zeCommandQueueSynchronize(queue, UINT64_MAX));
    EXPECT_EQ(target, 2);
    ZE(zeFenceDestroy(fence));
    ZE(zeCommandListDestroy(list));
    ZE(zeCommandQueueDestroy(queue));
}

TEST_F(Driver, LosesTheDeviceByAWildAccess) {
    char *memory = alloc_device(100);
    int value = 0;
    ze_command_list_handle_t list = immediate(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    EXPECT_EQ(ze().zeCommandListAppendMemoryCopy(list, memory + 98, &value, sizeof(value), nullptr,
                                                 0, nullptr),
              ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(control->illegal_accesses, 1);
    control->lost = ZE_RESULT_SUCCESS;

    control->peers = 0;
    ze_device_mem_alloc_desc_t wanted = on_device();
    void *foreign = nullptr;
    ZE(zeMemAllocDevice(context, &wanted, 100, 0, devices[1], &foreign));
    EXPECT_EQ(ze().zeCommandListAppendMemoryCopy(list, foreign, &value, sizeof(value), nullptr, 0,
                                                 nullptr),
              ZE_RESULT_ERROR_DEVICE_LOST);
    control->lost = ZE_RESULT_SUCCESS;
    ZE(zeCommandListDestroy(list));
    free(foreign);
    free(memory);
}

// --- virtual memory ------------------------------------------------------------------------------

TEST_F(Driver, MapsPhysicalMemoryAtReservedAddresses) {
    size_t page_size = 0;
    ZE(zeVirtualMemQueryPageSize(context, device, 1, &page_size));
    ASSERT_EQ(page_size, page);
    ZE(zeVirtualMemQueryPageSize(context, device, granule, &page_size));
    ASSERT_EQ(page_size, granule);
    char *base = reserve(3 * granule);
    ze_physical_mem_handle_t memory = physical(2 * granule);
    EXPECT_EQ(control->used[0], 2 * granule);
    ZE(zeVirtualMemMap(context, base + granule, 2 * granule, memory, 0,
                       ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    EXPECT_FALSE(can_touch(base + granule));

    int value = 17, seen = 0;
    copy(base + 3 * granule - sizeof(value), &value, sizeof(value));
    EXPECT_EQ(ze().zePhysicalMemDestroy(context, memory), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    ZE(zeVirtualMemUnmap(context, base + granule, 2 * granule));

    // The same memory elsewhere, in two parts.
    ZE(zeVirtualMemMap(context, base, granule, memory, granule,
                       ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    ZE(zeVirtualMemMap(context, base + granule, granule, memory, 0,
                       ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    copy(&seen, base + granule - sizeof(seen), sizeof(seen));
    EXPECT_EQ(seen, 17);

    ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    size_t size = 0;
    ZE(zeVirtualMemGetAccessAttribute(context, base, 3 * granule, &access, &size));
    EXPECT_EQ(access, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY);
    EXPECT_EQ(size, granule);
    ZE(zeVirtualMemSetAccessAttribute(context, base, granule,
                                      ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    ZE(zeVirtualMemGetAccessAttribute(context, base, 3 * granule, &access, &size));
    EXPECT_EQ(access, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
    EXPECT_EQ(size, 2 * granule);

    EXPECT_EQ(ze().zeVirtualMemUnmap(context, base, 2 * granule), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ZE(zeVirtualMemUnmap(context, base, granule));
    ZE(zeVirtualMemUnmap(context, base + granule, granule));
    EXPECT_EQ(control->mappings, 0);
    EXPECT_EQ(control->used[0], 2 * granule) << "physical memory stays until it is destroyed";
    ZE(zePhysicalMemDestroy(context, memory));
    EXPECT_EQ(control->used[0], 0u);
    ZE(zeVirtualMemFree(context, base, 3 * granule));
}

TEST_F(Driver, RefusesWrongMappings) {
    char *base = reserve(2 * granule);
    ze_physical_mem_handle_t memory = physical(granule);
    const auto access = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    auto map = [&](char *at, size_t size, size_t offset) {
        return ze().zeVirtualMemMap(context, at, size, memory, offset, access);
    };
    EXPECT_EQ(map(base + 4096, granule, 0), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    EXPECT_EQ(map(base, 4096, 0), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    EXPECT_EQ(map(base, granule + page, 0), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    EXPECT_EQ(map(base, 2 * granule, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "more than there is";
    EXPECT_EQ(map(base + 2 * granule, granule, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT)
        << "not reserved";
    EXPECT_EQ(map(base, granule, 0), ZE_RESULT_SUCCESS);
    EXPECT_EQ(map(base, granule, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "mapped";
    EXPECT_EQ(ze().zeVirtualMemUnmap(context, base, 2 * granule), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ze().zeVirtualMemFree(context, base, granule), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ZE(zeVirtualMemFree(context, base, 2 * granule));
    EXPECT_EQ(control->mappings, 0) << "unmapped with the addresses";
    ZE(zePhysicalMemDestroy(context, memory));

    control->device_memory[0] = granule;
    ze_physical_mem_desc_t wanted = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, 2 * granule};
    EXPECT_EQ(ze().zePhysicalMemCreate(context, device, &wanted, &memory),
              ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
}

TEST_F(Driver, HearsWishesForAddresses) {
    void *wish = free_addresses(granule), *got = nullptr;
    ZE(zeVirtualMemReserve(context, wish, granule, &got));
    EXPECT_EQ(got, wish);
    void *other = nullptr;
    ZE(zeVirtualMemReserve(context, wish, granule, &other));
    EXPECT_NE(other, wish) << "taken";
    ZE(zeVirtualMemFree(context, got, granule));
    ZE(zeVirtualMemFree(context, other, granule));
    control->deaf = 1;
    ZE(zeVirtualMemReserve(context, wish, granule, &got));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got) % granule, 0u);
    ZE(zeVirtualMemFree(context, got, granule));
}

// --- failures and counts -------------------------------------------------------------------------

TEST_F(Driver, FailsOnDemand) {
    fail(FAKE_zeMemAllocDevice, ZE_RESULT_ERROR_UNKNOWN, 2);
    EXPECT_EQ(try_device(1), ZE_RESULT_SUCCESS);
    EXPECT_EQ(try_device(1), ZE_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(try_device(1), ZE_RESULT_SUCCESS);
    fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, 2);
    ze_device_mem_alloc_desc_t wanted = on_device();
    void *ptr = nullptr;
    ZE(zeMemAllocDevice(context, &wanted, 1, 0, device, &ptr));
    EXPECT_EQ(ze().zeMemFree(context, ptr), ZE_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(control->allocations, 1);
    free(ptr);
}

TEST_F(Driver, StaysLost) {
    char *memory = alloc_device(100);
    control->fail_stays = 1;
    fail(FAKE_zeMemAllocDevice, ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(try_device(1), ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(try_device(1), ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(ze().zeDeviceGetStatus(device), ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(ze().zeMemFree(context, memory), ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(control->allocations, 0) << "what gives back does so";
}

TEST_F(Driver, CountsCallsAndKeepsTheirOrder) {
    control->ordered = 0;
    long before = control->calls[FAKE_zeMemFree];
    EXPECT_EQ(try_device(1), ZE_RESULT_SUCCESS);
    ASSERT_EQ(control->ordered, 2);
    EXPECT_EQ(control->order[0], FAKE_zeMemAllocDevice);
    EXPECT_EQ(control->order[1], FAKE_zeMemFree);
    EXPECT_EQ(control->calls[FAKE_zeMemFree], before + 1);
}

TEST_F(Driver, IsAskedOnlyWhatTheValidationLetsThrough) {
    long before = control->calls[FAKE_zeMemAllocDevice];
    void *ptr = nullptr;
    EXPECT_EQ(ze().zeMemAllocDevice(context, nullptr, 1, 0, device, &ptr),
              ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    EXPECT_EQ(control->calls[FAKE_zeMemAllocDevice], before + (ze().is_validated ? 0 : 1));
}

TEST_F(Driver, IsUsedByManyThreads) {
    run_threads(4, [this](int) {
        for (int n = 0; n < 50; n++) {
            EXPECT_EQ(try_device(page), ZE_RESULT_SUCCESS);
        }
    });
    EXPECT_EQ(control->used[0], 0u);
}

// --- between processes ---------------------------------------------------------------------------

namespace {

struct Ended {
    int status;
    std::string errors; // what it said on stderr
};

// Runs this program again with one test of class Other, and `setting` in its environment.
Ended run_other(const char *test, const std::string &setting) {
    std::string filter = std::string("--gtest_filter=Other.DISABLED_") + test;
    std::string all = "--gtest_also_run_disabled_tests", path = "/proc/self/exe";
    char *arguments[] = {path.data(), filter.data(), all.data(), nullptr};
    int errors = memfd_create("errors", MFD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    setenv("UMF_TEST_OTHER", setting.c_str(), 1);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ), 0);
    unsetenv("UMF_TEST_OTHER");
    posix_spawn_file_actions_destroy(&actions);
    Ended ended{-1, std::string(4096, ' ')};
    waitpid(child, &ended.status, 0);
    ssize_t length = pread(errors, ended.errors.data(), ended.errors.size(), 0);
    ended.errors.resize(length > 0 ? static_cast<size_t>(length) : 0);
    close(errors);
    return ended;
}

// Roles of the other processes: disabled, since they need the first one.
class Other : public Driver {
  protected:
    std::string setting = getenv("UMF_TEST_OTHER") ? getenv("UMF_TEST_OTHER") : "";
};

} // namespace

TEST_F(Driver, SharesMemoryWithAnotherProcess) {
    control->cut = 1;
    char *memory = alloc_device(1000);
    ASSERT_NE(reinterpret_cast<uintptr_t>(memory) % page, 0u);
    int value = 1234;
    copy(memory + 500, &value, sizeof(value));

    ze_ipc_mem_handle_t handle, again;
    ZE(zeMemGetIpcHandle(context, memory, &handle));
    ZE(zeMemGetIpcHandle(context, memory, &again));
    EXPECT_EQ(memcmp(&handle, &again, sizeof(handle)), 0);
    EXPECT_EQ(control->descriptors, 1);
    int fd;
    memcpy(&fd, handle.data, sizeof(fd));
    ASSERT_GE(fcntl(fd, F_GETFD), 0) << "the first bytes are a descriptor";

    // The other process inherits a copy of the descriptor, and gets the handle in a file.
    int inherited = dup(fd);
    memcpy(handle.data, &inherited, sizeof(inherited));
    int file = memfd_create("handle", 0);
    ASSERT_EQ(write(file, &handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
    Ended other = run_other("OpensMemory", std::to_string(file));
    EXPECT_EQ(other.status, 0) << other.errors;
    close(inherited);
    close(file);

    int seen = 0;
    copy(&seen, memory + 500, sizeof(seen));
    EXPECT_EQ(seen, 4321);
    free(memory);
    EXPECT_EQ(control->descriptors, 0);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST_F(Other, DISABLED_OpensMemory) {
    ze_ipc_mem_handle_t handle;
    ASSERT_EQ(pread(std::stoi(setting), &handle, sizeof(handle), 0),
              static_cast<ssize_t>(sizeof(handle)));
    void *memory = nullptr;
    ZE(zeMemOpenIpcHandle(context, device, handle, 0, &memory));
    EXPECT_EQ(control->imports, 1);
    char *at = static_cast<char *>(memory) + 500;
    int seen = 0, value = 4321;
    copy(&seen, at, sizeof(seen));
    EXPECT_EQ(seen, 1234);
    copy(at, &value, sizeof(value));
    ZE(zeMemCloseIpcHandle(context, memory));
    EXPECT_EQ(ze().zeMemCloseIpcHandle(context, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);

    int wrong = -1;
    memcpy(handle.data, &wrong, sizeof(wrong));
    EXPECT_EQ(ze().zeMemOpenIpcHandle(context, device, handle, 0, &memory),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(Driver, FailsAProcessThatLeaks) {
    Ended other = run_other("Leaks", "");
    EXPECT_TRUE(WIFEXITED(other.status) && WEXITSTATUS(other.status) == 1) << other.status;
    EXPECT_NE(other.errors.find("1 contexts, 1 allocations, 0 imports"), std::string::npos)
        << other.errors;
    other = run_other("Forgets", "");
    EXPECT_EQ(other.status, 0);
    EXPECT_EQ(other.errors, "");
}

TEST_F(Other, DISABLED_Leaks) {
    alloc_device(100);
    exit(0);
}

TEST_F(Other, DISABLED_Forgets) {
    alloc_device(100);
    ze().reset();
    exit(0);
}
