/*
 * A provider as a user writes one: memory straight from mmap, everything recorded, failures on
 * demand. It counts every call and every mistake of its caller; nothing may be left at the end.
 */
#ifndef UMF_TEST_FAKES_FAKE_PROVIDER_H
#define UMF_TEST_FAKES_FAKE_PROVIDER_H

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <umf/memory_provider.h>

#include "fakes/plain_ops.h"

class FakeProvider {
  public:
    // What it is like; set before use.
    std::string name = "FAKE";
    size_t page_size = 4096;
    size_t cache_line = 64;
    int protection = PROT_READ | PROT_WRITE; // PROT_NONE: memory the CPU cannot touch
    bool can_purge = true;
    size_t limit = SIZE_MAX; // bytes that may be live at once
    size_t stingy = 0;       // memory begins so many bytes behind a page

    // Failures on demand.
    std::atomic<long> allocs_until_failure{-1}; // 0: the next one fails; below 0: none
    std::atomic<bool> alloc_fails{false};
    std::atomic<bool> free_fails{false};
    std::atomic<bool> split_fails{false};
    std::atomic<bool> merge_fails{false};
    std::atomic<bool> purge_fails{false};
    umf_result_t failure = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    umf_result_t initialize_result = UMF_RESULT_SUCCESS;
    umf_result_t get_name_result = UMF_RESULT_SUCCESS;
    umf_result_t post_initialize_result = UMF_RESULT_ERROR_INVALID_CTL_PATH;

    // What happened.
    std::atomic<size_t> initializes{0}, finalizes{0}, allocs{0}, frees{0}, splits{0}, merges{0},
        purges{0}, purged_bytes{0}, ctls{0}, post_initializes{0}, get_names{0};
    std::atomic<size_t> mistakes{0}; // frees of dead memory, with a wrong size, and so on
    const void *params_seen = nullptr;
    size_t last_size = 0, last_alignment = 0, last_free_size = 0;
    void *last_free_ptr = nullptr;
    std::vector<std::string> journal; // names of the callbacks of creation and destruction

    FakeProvider() = default;
    FakeProvider(const FakeProvider &) = delete;
    FakeProvider &operator=(const FakeProvider &) = delete;

    size_t live() {
        std::lock_guard<std::mutex> guard(mutex);
        return pieces.size();
    }
    size_t live_bytes() {
        std::lock_guard<std::mutex> guard(mutex);
        return bytes;
    }

    // A live piece, NULL if there is none.
    void *any() {
        std::lock_guard<std::mutex> guard(mutex);
        return pieces.empty() ? nullptr : reinterpret_cast<void *>(pieces.begin()->first);
    }

    // The table. `params` of umfMemoryProviderCreate is the FakeProvider.
    static umf_memory_provider_ops_t table() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = initialize;
        ops.finalize = finalize;
        ops.alloc = alloc;
        ops.free = free;
        ops.get_last_native_error = get_last_native_error;
        ops.get_recommended_page_size = get_recommended_page_size;
        ops.get_min_page_size = get_min_page_size;
        ops.get_name = get_name;
        ops.ext_purge_lazy = purge;
        ops.ext_purge_force = purge;
        ops.ext_allocation_merge = merge;
        ops.ext_allocation_split = split;
        ops.ext_ctl = ctl;
        ops.get_cache_line_size = get_cache_line_size;
        return ops;
    }

    umf_memory_provider_handle_t create() {
        umf_memory_provider_ops_t ops = table();
        umf_memory_provider_handle_t provider = nullptr;
        umfMemoryProviderCreate(&ops, this, &provider);
        return provider;
    }

  private:
    struct Piece {
        size_t size;
        std::shared_ptr<void> mapping; // shared by the parts of a split
    };
    std::mutex mutex;
    std::map<uintptr_t, Piece> pieces;
    size_t bytes = 0;

    static FakeProvider *self(void *provider) {
        return static_cast<FakeProvider *>(provider);
    }

    static umf_result_t initialize(const void *params, void **provider) {
        auto fake = static_cast<FakeProvider *>(const_cast<void *>(params));
        fake->initializes++;
        fake->params_seen = params;
        fake->journal.push_back("initialize");
        if (fake->initialize_result != UMF_RESULT_SUCCESS) {
            return fake->initialize_result;
        }
        *provider = fake;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t finalize(void *provider) {
        self(provider)->finalizes++;
        self(provider)->journal.push_back("finalize");
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t alloc(void *provider, size_t size, size_t alignment, void **ptr) {
        FakeProvider *fake = self(provider);
        std::lock_guard<std::mutex> guard(fake->mutex);
        fake->allocs++;
        fake->last_size = size;
        fake->last_alignment = alignment;
        long left = fake->allocs_until_failure;
        if (left >= 0) {
            fake->allocs_until_failure = left - 1;
        }
        if (left == 0 || fake->alloc_fails) {
            return fake->failure;
        }
        if (alignment & (alignment - 1)) {
            return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
        }
        if (size > fake->limit || fake->bytes > fake->limit - size || size > SIZE_MAX / 4 ||
            alignment > SIZE_MAX / 4) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        return fake->map_locked(size, alignment, ptr);
    }

    umf_result_t map_locked(size_t size, size_t alignment, void **ptr) {
        size_t wanted = alignment > page_size ? alignment : page_size;
        size_t mapped = (size + stingy + wanted + 2 * page_size - 1) & ~(page_size - 1);
        void *mapping =
            mmap(nullptr, mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        uintptr_t base = (reinterpret_cast<uintptr_t>(mapping) + wanted - 1) & ~(wanted - 1);
        if (alignment <= 1) {
            base += stingy;
        }
        std::shared_ptr<void> hold(mapping, [mapped](void *m) { munmap(m, mapped); });
        pieces[base] = {size, hold};
        bytes += size;
        *ptr = reinterpret_cast<void *>(base);
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t free(void *provider, void *ptr, size_t size) {
        FakeProvider *fake = self(provider);
        std::lock_guard<std::mutex> guard(fake->mutex);
        fake->frees++;
        fake->last_free_ptr = ptr;
        fake->last_free_size = size;
        if (fake->free_fails) {
            return fake->failure;
        }
        if (!ptr) {
            return UMF_RESULT_SUCCESS;
        }
        auto found = fake->pieces.find(reinterpret_cast<uintptr_t>(ptr));
        if (found == fake->pieces.end() || (size != 0 && size != found->second.size)) {
            fake->mistakes++;
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        fake->bytes -= found->second.size;
        fake->pieces.erase(found);
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t get_last_native_error(void *, const char **message, int32_t *error) {
        *message = "fake error";
        *error = 4711;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t get_recommended_page_size(void *provider, size_t, size_t *size) {
        *size = self(provider)->page_size;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t get_min_page_size(void *provider, const void *, size_t *size) {
        *size = self(provider)->page_size;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t get_cache_line_size(void *provider, size_t *size) {
        *size = self(provider)->cache_line;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t get_name(void *provider, const char **name) {
        if (!provider) {
            *name = "FAKE";
            return UMF_RESULT_SUCCESS;
        }
        self(provider)->get_names++;
        self(provider)->journal.push_back("get_name");
        *name = self(provider)->name.c_str();
        return self(provider)->get_name_result;
    }

    static umf_result_t purge(void *provider, void *ptr, size_t size) {
        FakeProvider *fake = self(provider);
        fake->purges++;
        if (!fake->can_purge) {
            return UMF_RESULT_ERROR_NOT_SUPPORTED;
        }
        if (fake->purge_fails) {
            return fake->failure;
        }
        std::lock_guard<std::mutex> guard(fake->mutex);
        uintptr_t base = reinterpret_cast<uintptr_t>(ptr);
        auto after = fake->pieces.upper_bound(base);
        bool inside = after != fake->pieces.begin() && base % fake->page_size == 0 &&
                      size % fake->page_size == 0;
        if (inside) {
            --after;
            inside = base - after->first <= after->second.size &&
                     size <= after->second.size - (base - after->first);
        }
        if (!inside) {
            fake->mistakes++;
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        fake->lose(ptr, size);
        fake->purged_bytes += size;
        return UMF_RESULT_SUCCESS;
    }

    // The machine's pages may be larger than those of this provider.
    void lose(void *ptr, size_t size) const {
        if (page_size % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0) {
            madvise(ptr, size, MADV_DONTNEED);
        } else if (protection & PROT_WRITE) {
            memset(ptr, 0, size);
        }
    }

    static umf_result_t split(void *provider, void *ptr, size_t total, size_t first) {
        FakeProvider *fake = self(provider);
        std::lock_guard<std::mutex> guard(fake->mutex);
        fake->splits++;
        if (fake->split_fails) {
            return fake->failure;
        }
        uintptr_t base = reinterpret_cast<uintptr_t>(ptr);
        auto found = fake->pieces.find(base);
        if (found == fake->pieces.end() || found->second.size != total || first >= total) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        Piece high = found->second;
        high.size = total - first;
        found->second.size = first;
        fake->pieces[base + first] = high;
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t merge(void *provider, void *low, void *high, size_t total) {
        FakeProvider *fake = self(provider);
        std::lock_guard<std::mutex> guard(fake->mutex);
        fake->merges++;
        if (fake->merge_fails) {
            return fake->failure;
        }
        auto a = fake->pieces.find(reinterpret_cast<uintptr_t>(low));
        auto b = fake->pieces.find(reinterpret_cast<uintptr_t>(high));
        if (a == fake->pieces.end() || b == fake->pieces.end() ||
            a->first + a->second.size != b->first || a->second.size + b->second.size != total ||
            a->second.mapping != b->second.mapping) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        a->second.size = total;
        fake->pieces.erase(b);
        return UMF_RESULT_SUCCESS;
    }

    static umf_result_t ctl(void *provider, umf_ctl_query_source_t source, const char *path,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list) {
        FakeProvider *fake = self(provider);
        fake->ctls++;
        if (std::strcmp(path, "post_initialize") == 0) {
            fake->post_initializes++;
            fake->journal.push_back("post_initialize");
            bool as_agreed =
                source == CTL_QUERY_PROGRAMMATIC && type == CTL_QUERY_RUNNABLE && !arg && size == 0;
            return as_agreed ? fake->post_initialize_result : UMF_RESULT_ERROR_UNKNOWN;
        }
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
};

#endif
