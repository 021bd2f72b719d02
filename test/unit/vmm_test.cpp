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
#include "system/os.h"
#include "vmm_shim.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

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
    EXPECT_EQ(shim_fork_while_a_mark_ends(false), 0);
    EXPECT_EQ(shim_fork_while_a_mark_ends(true), 0);
}

} // namespace
