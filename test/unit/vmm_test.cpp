/* The inside of providers/vmm: the state without memory for its bookkeeping, and a fork
 * while a mark ends. */
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/vmm_kinds.h"
#include "fault.h"

extern "C" {
#include "base/meta.h"
#include "providers/vmm/own.h"
#include "system/os.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// A provider of virtual memory over nothing, whose marks are numbers.
constexpr size_t PAGE = 65536;
constexpr uintptr_t BASE = uintptr_t{1} << 40;

struct Marked {
    umf_vmm_t vmm;
    uintptr_t marks, ended; /* the last that was made, and that has ended */
    unsigned asked_again;   /* marks that had ended */
    unsigned unmapped;
    bool is_child, destroys;
    int status; /* of the child */
};

umf_result_t reserve(void *, size_t, size_t, uintptr_t *base) {
    *base = BASE;
    return UMF_RESULT_SUCCESS;
}

umf_result_t addresses(void *, uintptr_t, size_t) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t unmap(void *backend, uintptr_t, size_t) {
    static_cast<Marked *>(backend)->unmapped++;
    return UMF_RESULT_SUCCESS;
}

umf_result_t create(void *, size_t, umf_physical_t *physical) {
    *physical = 1;
    return UMF_RESULT_SUCCESS;
}

umf_result_t destroy(void *, umf_physical_t) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t map(void *, uintptr_t, size_t, umf_physical_t) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t settle(void *) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t mark(void *backend, void **mark) {
    *mark = reinterpret_cast<void *>(++static_cast<Marked *>(backend)->marks);
    return UMF_RESULT_SUCCESS;
}

void run_child(Marked *marked) {
    size_t left = 0;
    umf_result_t result = UMF_RESULT_SUCCESS;
    marked->is_child = true;
    if (marked->destroys) {
        umf_vmm_fini(&marked->vmm);
    } else {
        result = umf_vmm_free_pending(marked, 1, &left);
    }
    _exit(result != UMF_RESULT_SUCCESS || marked->asked_again || left || marked->unmapped != 1);
}

bool mark_completed(void *backend, void *mark, bool) {
    auto marked = static_cast<Marked *>(backend);
    marked->asked_again += reinterpret_cast<uintptr_t>(mark) <= marked->ended;
    marked->ended = reinterpret_cast<uintptr_t>(mark);
    if (!marked->is_child) {
        pid_t child = fork();
        if (child == 0) {
            run_child(marked);
        }
        waitpid(child, &marked->status, 0);
    }
    return true;
}

umf_vmm_backend_t marked_backend() {
    umf_vmm_backend_t table = {};
    table.reserve = reserve;
    table.unreserve = addresses;
    table.create = create;
    table.destroy = destroy;
    table.map = map;
    table.unmap = unmap;
    table.settle = settle;
    table.mark = mark;
    table.mark_completed = mark_completed;
    return table;
}

/* Allocates and frees. While the thread ends the mark of what it freed, the process forks, and the
 * child finishes pending work, or destroys the provider. Returns the status of the child as
 * waitpid reports it: 0 if it queried no mark that has ended and nothing was left; -1: the parent
 * failed. */
int fork_while_a_mark_ends(bool destroys) {
    static const umf_vmm_backend_t backend = marked_backend();
    Marked marked = {};
    marked.status = -1;
    marked.destroys = destroys;
    void *ptr;
    umf_fork_register_inner();
    umf_fork_register_outer();
    if (umf_vmm_init(&marked.vmm, &backend, PAGE, 0) != UMF_RESULT_SUCCESS ||
        umf_vmm_alloc(&marked, PAGE, 0, &ptr) != UMF_RESULT_SUCCESS ||
        umf_vmm_free(&marked, ptr, PAGE) != UMF_RESULT_SUCCESS || marked.unmapped != 1) {
        return -1;
    }
    umf_vmm_fini(&marked.vmm);
    return marked.status;
}

// Each in a piece of its own, and of a size that has to be remembered.
TEST(Vmm, WithoutBookkeepingNothingStays) {
    const size_t page = umf_os_page_size();
    size_t failures = 0;
    fault::Nth nth("meta_alloc");
    for (bool goes_on = true; goes_on;) {
        const size_t used = umf_meta_used();
        umf_memory_provider_handle_t provider = create_linux_vmm(page);
        ASSERT_NE(provider, nullptr);
        goes_on = nth.next();
        std::vector<void *> live;
        for (size_t i = 0; i < 40; i++) {
            void *ptr = nullptr;
            bool is_made = umfMemoryProviderAlloc(provider, page + 100, 0, &ptr) == OK;
            failures += !is_made;
            if (is_made) {
                live.push_back(ptr);
            }
            ASSERT_EQ(count_memory_files(), live.size()) << nth.runs();
        }
        nth.off();
        EXPECT_GE(live.size(), 39u);
        for (void *ptr : live) {
            EXPECT_EQ(umfMemoryProviderFree(provider, ptr, page + 100), OK);
        }
        EXPECT_EQ(count_memory_files(), 0u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(umf_meta_used(), used) << nth.runs();
    }
    EXPECT_GT(failures, 40u);
}

size_t mapped_files() {
    size_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        count += line.find("umf_vmm") != std::string::npos;
    }
    return count;
}

// The system may refuse to replace a mapping by one without access; munmap takes both.
TEST(Vmm, APieceGoesBackByOneCall) {
    const size_t page = umf_os_page_size();
    umf_memory_provider_handle_t provider = create_linux_vmm(page);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr), OK);
    EXPECT_EQ(mapped_files(), 1u);
    fault::Nth nth("map");
    nth.next();
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, page), OK);
    nth.off();
    EXPECT_EQ(mapped_files(), 0u);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(Vmm, AChildOfForkEndsNoMarkThatItsParentHasEnded) {
    EXPECT_EQ(fork_while_a_mark_ends(false), 0);
    EXPECT_EQ(fork_while_a_mark_ends(true), 0);
}

} // namespace
