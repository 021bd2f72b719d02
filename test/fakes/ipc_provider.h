/*
 * A provider as a user would write it, that shares memory within one process, counts what it is
 * called, and fails or waits on demand. Each allocation is a memfd, so an opened handle shows the
 * same memory at another address.
 *
 *     FakeIpc fake;
 *     umfMemoryProviderCreate(FakeIpc::ops(), &fake, &provider);
 */
#ifndef UMF_TEST_FAKES_IPC_PROVIDER_H
#define UMF_TEST_FAKES_IPC_PROVIDER_H

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <umf/memory_provider_ops.h>
#include <umf/plugin.h>

#include "fakes/plain_ops.h"

struct FakeIpc {
    std::atomic<int> allocs{0}, frees{0}, gets{0}, puts{0}, opens{0}, closes{0};
    std::atomic<int> mapped{0}; // opens that succeeded

    // Results of the operations; a failing one does nothing else.
    std::atomic<umf_result_t> size_result{UMF_RESULT_SUCCESS}, get_result{UMF_RESULT_SUCCESS},
        put_result{UMF_RESULT_SUCCESS}, open_result{UMF_RESULT_SUCCESS},
        close_result{UMF_RESULT_SUCCESS};
    std::atomic<bool> hold{false};             // get and open do not go on until it is false
    std::atomic<bool> hold_end{false};         // the same of put and close
    std::atomic<size_t> padding{0};            // bytes of the handle beyond the needed ones
    std::atomic<size_t> size_answer{0};        // of the size of a handle; 0: the truth
    std::atomic<void *> next_address{nullptr}; // where the next allocation is to be
    std::atomic<void *> open_answer{nullptr};  // what open gives instead of a mapping
    std::atomic<bool> scribble{false};         // open writes into what it was given

    FakeIpc() = default;
    ~FakeIpc() {
        for (const auto &allocation : live) {
            close(allocation.second.fd);
        }
        for (int fd : freed) {
            close(fd);
        }
    }

    // Calls in the order they came, one letter each: a f s m g p o c.
    std::string calls() {
        std::lock_guard<std::mutex> guard(mutex);
        return log;
    }

    // A plain table, and one of a registered kind that offers a word to watch.
    static const umf_memory_provider_ops_t *ops() {
        static const umf_memory_provider_ops_t table = make_table();
        return &table;
    }
    static const umf_memory_provider_ops_t *watched_ops() {
        static const umf_memory_provider_ops_t table = make_table();
        static const umf_memory_provider_ext_ops_t ext = make_ext();
        static const umf_memory_provider_descriptor_t descriptor =
            plain_kind("fake_ipc_watched", &table, &ext);
        umfRegisterProvider(&descriptor); // a stop of the library has forgotten it
        return &table;
    }

    // For handles made by hand.
    struct Data {
        uint64_t magic;
        uint64_t size;
        const std::atomic<uint64_t> *word;
        int32_t fd;
        uint32_t zero;
    };

  private:
    static constexpr uint64_t data_magic = 0x66616b65206970u;

    struct Allocation {
        size_t size;
        int fd;
        std::atomic<uint64_t> *word;
    };

    std::mutex mutex;
    std::string log;
    std::map<void *, Allocation> live;
    // Open as long as the fake lives: descriptions of freed memory stay, and never show other
    // memory.
    std::list<int> freed;
    std::list<std::atomic<uint64_t>> words; // 0 while the allocation lives; kept for good

    void note(char call) {
        std::lock_guard<std::mutex> guard(mutex);
        log += call;
    }

    static void wait_while(const std::atomic<bool> &is_held) {
        while (is_held) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    static FakeIpc &of(void *self) {
        return *static_cast<FakeIpc *>(self);
    }

    static umf_result_t initialize(const void *params, void **self) {
        *self = const_cast<void *>(params);
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t finalize(void *) {
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t alloc(void *self, size_t size, size_t, void **ptr) {
        FakeIpc &fake = of(self);
        fake.note('a');
        fake.allocs++;
        size_t bytes = (size + 4095) / 4096 * 4096;
        int fd = memfd_create("fake", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        void *wish = fake.next_address.exchange(nullptr);
        void *memory = mmap(wish, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (wish ? MAP_FIXED_NOREPLACE : 0), fd, 0);
        if (memory == MAP_FAILED) {
            close(fd);
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        std::lock_guard<std::mutex> guard(fake.mutex);
        fake.words.emplace_back(0);
        fake.live[memory] = {size, fd, &fake.words.back()};
        *ptr = memory;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t free(void *self, void *ptr, size_t) {
        FakeIpc &fake = of(self);
        fake.note('f');
        fake.frees++;
        std::lock_guard<std::mutex> guard(fake.mutex);
        auto found = fake.live.find(ptr);
        if (found == fake.live.end()) {
            return ptr ? UMF_RESULT_ERROR_INVALID_ARGUMENT : UMF_RESULT_SUCCESS;
        }
        *found->second.word = 1;
        munmap(ptr, found->second.size);
        fake.freed.push_back(found->second.fd);
        fake.live.erase(found);
        return UMF_RESULT_SUCCESS;
    }

    // The parts stay one file; which of them is opened does not matter to the tests.
    static umf_result_t split(void *self, void *ptr, size_t total, size_t first) {
        FakeIpc &fake = of(self);
        fake.note('s');
        std::lock_guard<std::mutex> guard(fake.mutex);
        Allocation &low = fake.live[ptr];
        low.size = first;
        fake.live[static_cast<char *>(ptr) + first] = {total - first, dup(low.fd), low.word};
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t merge(void *self, void *low, void *high, size_t total) {
        FakeIpc &fake = of(self);
        fake.note('m');
        std::lock_guard<std::mutex> guard(fake.mutex);
        fake.freed.push_back(fake.live[high].fd);
        fake.live.erase(high);
        fake.live[low].size = total;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t get_name(void *, const char **name) {
        *name = "fake_ipc";
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t get_ipc_handle_size(void *self, size_t *size) {
        FakeIpc &fake = of(self);
        if (fake.size_result != UMF_RESULT_SUCCESS) {
            return fake.size_result;
        }
        *size = fake.size_answer ? fake.size_answer.load() : sizeof(Data) + fake.padding;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t get_ipc_handle(void *self, const void *ptr, size_t size, void *out) {
        FakeIpc &fake = of(self);
        fake.note('g');
        fake.gets++;
        wait_while(fake.hold);
        if (fake.get_result != UMF_RESULT_SUCCESS) {
            return fake.get_result;
        }
        std::lock_guard<std::mutex> guard(fake.mutex);
        auto found = fake.live.find(const_cast<void *>(ptr));
        if (found == fake.live.end() || found->second.size != size) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        Data data = {data_magic, size, found->second.word, found->second.fd, 0};
        memcpy(out, &data, sizeof(data));
        memset(static_cast<char *>(out) + sizeof(data), 0x5a, fake.padding);
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t put_ipc_handle(void *self, void *in) {
        FakeIpc &fake = of(self);
        fake.note('p');
        fake.puts++;
        wait_while(fake.hold_end);
        Data data;
        memcpy(&data, in, sizeof(data));
        return data.magic == data_magic ? fake.put_result.load()
                                        : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }

    static umf_result_t open_ipc_handle(void *self, void *in, void **ptr) {
        FakeIpc &fake = of(self);
        fake.note('o');
        fake.opens++;
        wait_while(fake.hold);
        if (fake.open_result != UMF_RESULT_SUCCESS) {
            return fake.open_result;
        }
        Data data;
        memcpy(&data, in, sizeof(data));
        if (fake.scribble) {
            memset(in, 0xee, sizeof(data));
        }
        if (fake.open_answer) {
            fake.mapped++;
            *ptr = fake.open_answer;
            return UMF_RESULT_SUCCESS;
        }
        if (data.magic != data_magic) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        void *memory = mmap(nullptr, data.size, PROT_READ | PROT_WRITE, MAP_SHARED, data.fd, 0);
        if (memory == MAP_FAILED) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        fake.mapped++;
        *ptr = memory;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t close_ipc_handle(void *self, void *ptr, size_t size) {
        FakeIpc &fake = of(self);
        fake.note('c');
        fake.closes++;
        wait_while(fake.hold_end);
        if (fake.close_result != UMF_RESULT_SUCCESS) {
            return fake.close_result;
        }
        return ptr == fake.open_answer || munmap(ptr, size) == 0 ? UMF_RESULT_SUCCESS
                                                                 : UMF_RESULT_ERROR_UNKNOWN;
    }

    static umf_result_t ipc_watch(void *, const void *in, const uint64_t **word,
                                  uint64_t *expected) {
        Data data;
        memcpy(&data, in, sizeof(data));
        *word = reinterpret_cast<const uint64_t *>(data.word);
        *expected = 0;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t ipc_check(void *, const void *in, size_t size) {
        Data data;
        memcpy(&data, in, sizeof(data));
        return data.size == size ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }

    static umf_memory_provider_ops_t make_table() {
        umf_memory_provider_ops_t table = plain_provider_ops();
        table.initialize = initialize;
        table.finalize = finalize;
        table.alloc = alloc;
        table.free = free;
        table.get_name = get_name;
        table.ext_allocation_split = split;
        table.ext_allocation_merge = merge;
        table.ext_get_ipc_handle_size = get_ipc_handle_size;
        table.ext_get_ipc_handle = get_ipc_handle;
        table.ext_put_ipc_handle = put_ipc_handle;
        table.ext_open_ipc_handle = open_ipc_handle;
        table.ext_close_ipc_handle = close_ipc_handle;
        return table;
    }
    static umf_memory_provider_ext_ops_t make_ext() {
        umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        ext.ipc_watch = ipc_watch;
        ext.ipc_check = ipc_check;
        ext.ipc_flags = UMF_IPC_FLAG_REPEATABLE;
        return ext;
    }
};

#endif
