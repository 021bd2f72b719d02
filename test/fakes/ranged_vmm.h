/*
 * Linux_vmm with a book about the pages of its ranges: mappings by address. It names faults,
 * counts calls, fails one on demand, and has a limit of memory.
 */
#ifndef UMF_TEST_FAKES_RANGED_VMM_H
#define UMF_TEST_FAKES_RANGED_VMM_H

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <umf/plugin.h>
#include <umf/providers/provider_linux_vmm.h>

extern "C" const umf_memory_provider_descriptor_t umf_linux_vmm_descriptor;

struct RangedVmmBook {
    struct Mapping {
        size_t size;
        uint64_t page;
    };
    struct Page {
        size_t size;
        size_t mappings;
    };
    std::map<uint64_t, Page> pages;
    std::map<uintptr_t, Mapping> mappings;
    std::map<std::string, size_t> calls;
    std::set<std::thread::id> unmapping; // threads
    std::string fails, faults;
    size_t fails_at = 0, bytes = 0, limit = SIZE_MAX;
    size_t maps = 0; // of pages
};

class RangedVmm {
  public:
    static umf_memory_provider_handle_t create() {
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(umfMemoryProviderCreate(kind().ops, nullptr, &provider), UMF_RESULT_SUCCESS);
        return provider;
    }
    static void reset() {
        Lock guard(lock);
        book = Book();
    }
    // The n-th next call of the operation fails. "": none does.
    static void fail(const std::string &operation, size_t n) {
        Lock guard(lock);
        book.fails = operation;
        book.fails_at = n;
    }
    // Bytes of pages that there may be.
    static void limit(size_t bytes) {
        Lock guard(lock);
        book.limit = bytes;
    }
    static size_t calls(const std::string &operation) {
        Lock guard(lock);
        return book.calls[operation];
    }
    // Has this thread unmapped pages?
    static bool has_unmapped() {
        Lock guard(lock);
        return book.unmapping.count(std::this_thread::get_id()) != 0;
    }
    static size_t pages() {
        Lock guard(lock);
        return book.pages.size();
    }
    static size_t bytes() {
        Lock guard(lock);
        return book.bytes;
    }
    // How often a page was mapped.
    static size_t maps() {
        Lock guard(lock);
        return book.maps;
    }
    static size_t mapped() {
        Lock guard(lock);
        return book.mappings.size();
    }
    // Does this thread make a handle now? Its pool has locks then.
    static bool is_sharing() {
        return sharing;
    }
    static std::string faults() {
        Lock guard(lock);
        return book.faults;
    }

  private:
    using Ext = umf_memory_provider_ext_ops_t;
    using Lock = std::lock_guard<std::mutex>;

    using Mapping = RangedVmmBook::Mapping;
    using Page = RangedVmmBook::Page;
    using Book = RangedVmmBook;
    static inline std::mutex lock;
    static inline Book book;
    static inline thread_local bool sharing = false;

    static const Ext &real() {
        return *umf_linux_vmm_descriptor.ext;
    }
    static void fault(const std::string &text) {
        book.faults += text + "\n";
    }
    static bool is_failure(const char *operation) {
        book.calls[operation]++;
        return book.fails == operation && book.fails_at && --book.fails_at == 0;
    }

    static umf_result_t page_create(void *self, umf_vm_page_t *page) {
        Lock guard(lock);
        if (is_failure("page_create") || page->size > book.limit - book.bytes) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        umf_result_t result = real().page_create(self, page);
        if (result == UMF_RESULT_SUCCESS) {
            book.pages[page->id] = Page{page->size, 0};
            book.bytes += page->size;
        }
        return result;
    }
    static umf_result_t page_destroy(void *self, const umf_vm_page_t *page) {
        Lock guard(lock);
        auto at = book.pages.find(page->id);
        if (at == book.pages.end() || at->second.size != page->size || at->second.mappings) {
            fault("a page is destroyed that is unknown, or mapped");
        } else {
            book.bytes -= page->size;
            book.pages.erase(at);
        }
        const bool fails = is_failure("page_destroy"); // it is the provider's then
        const umf_result_t result = real().page_destroy(self, page);
        return fails ? UMF_RESULT_ERROR_UNKNOWN : result;
    }
    static bool overlaps(uintptr_t base, size_t size) {
        auto at = book.mappings.upper_bound(base);
        if (at != book.mappings.begin() &&
            std::prev(at)->first + std::prev(at)->second.size > base) {
            return true;
        }
        return at != book.mappings.end() && at->first < base + size;
    }
    static umf_result_t page_map(void *self, void *ptr, const umf_vm_page_t *pages, size_t count) {
        Lock guard(lock);
        if (is_failure("page_map")) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        umf_result_t result = real().page_map(self, ptr, pages, count);
        uintptr_t base = reinterpret_cast<uintptr_t>(ptr);
        for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; base += pages[i].size, i++) {
            auto page = book.pages.find(pages[i].id);
            if (page == book.pages.end() || page->second.size != pages[i].size) {
                fault("an unknown page is mapped");
                continue;
            }
            if (overlaps(base, pages[i].size)) {
                fault("a page is mapped where another one is");
            }
            page->second.mappings++;
            book.maps++;
            book.mappings[base] = Mapping{pages[i].size, pages[i].id};
        }
        return result;
    }
    static umf_result_t page_unmap(void *self, void *ptr, size_t size) {
        Lock guard(lock);
        book.unmapping.insert(std::this_thread::get_id());
        if (is_failure("page_unmap")) {
            return UMF_RESULT_ERROR_UNKNOWN;
        }
        for (uintptr_t base = reinterpret_cast<uintptr_t>(ptr), end = base + size; base < end;) {
            auto at = book.mappings.find(base);
            if (at == book.mappings.end() || base + at->second.size > end) {
                fault("pages are unmapped that were not mapped, or in part");
                break;
            }
            base += at->second.size;
            book.pages[at->second.page].mappings--;
            book.mappings.erase(at);
        }
        return real().page_unmap(self, ptr, size);
    }
    static umf_result_t range_get_ipc_handle(void *self, const void *ptr, size_t size,
                                             const umf_vm_page_t *pages, size_t count,
                                             size_t offset, void *data) {
        sharing = count != 0; // without pages it is a question, which no lock is held for
        const umf_result_t result =
            real().range_get_ipc_handle(self, ptr, size, pages, count, offset, data);
        sharing = false;
        return result;
    }
    static umf_result_t range_release(void *self, void *base, size_t size) {
        Lock guard(lock);
        if (overlaps(reinterpret_cast<uintptr_t>(base), size)) {
            fault("a range is released with pages in it");
        }
        return real().range_release(self, base, size);
    }

    static const umf_memory_provider_descriptor_t &kind() {
        static const umf_memory_provider_ops_t ops = *umfLinuxVmmMemoryProviderOps();
        static const Ext ext = [] {
            Ext made = real();
            made.page_create = page_create;
            made.page_destroy = page_destroy;
            made.page_map = page_map;
            made.page_unmap = page_unmap;
            made.range_release = range_release;
            made.range_get_ipc_handle = range_get_ipc_handle;
            return made;
        }();
        static const umf_memory_provider_descriptor_t made = {
            sizeof(made), "ranged_vmm", &ops, &ext, nullptr, nullptr, nullptr};
        static const umf_result_t registered = umfRegisterProvider(&made);
        EXPECT_EQ(registered, UMF_RESULT_SUCCESS);
        return made;
    }
};

#endif
