#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "base/aligned_map.h"
}
#include "fault.h"

namespace {

/* How many pages of addresses this process uses. Allocates nothing, so that it counts no page of
 * its own. */
long address_pages() {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    EXPECT_GT(read(fd, text, sizeof(text) - 1), 0);
    close(fd);
    return strtol(text, nullptr, 10);
}

} // namespace

TEST(place, reserved_addresses_are_aligned_and_nothing_else) {
    size_t page = umf_os_page_size();
    for (size_t alignment : {static_cast<size_t>(0), page, 64 * page, size_t{64} << 20}) {
        void *ptr = nullptr;
        long before = address_pages();
        ASSERT_EQ(umf_os_reserve_aligned(3 * page, alignment, &ptr), 0);
        long more = address_pages() - before;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % (alignment ? alignment : page), 0u);
        EXPECT_EQ(more, 3);
        EXPECT_EQ(umf_os_probe_read(ptr), EFAULT);
        ASSERT_EQ(umf_os_unmap(ptr, 3 * page), 0);
    }
}

TEST(place, a_failed_reservation_keeps_no_addresses) {
    size_t page = umf_os_page_size(), alignment = size_t{64} << 20;
    void *const untouched = &page;
    for (const char *call : {"map", "unmap"}) {
        for (fault::Nth nth(call); nth.next();) {
            void *ptr = untouched;
            long before = address_pages();
            int error = umf_os_reserve_aligned(page, alignment, &ptr);
            long more = address_pages() - before;
            EXPECT_EQ(more, error == 0 ? 1 : 0) << call;
            EXPECT_EQ(ptr == untouched, error != 0) << call;
            if (error == 0) {
                munmap(ptr, page);
            }
        }
    }
    void *ptr = untouched;
    EXPECT_EQ(umf_os_reserve_aligned(SIZE_MAX / page * page, alignment, &ptr), ENOMEM);
    EXPECT_EQ(ptr, untouched);
}
