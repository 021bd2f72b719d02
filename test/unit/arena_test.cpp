/*
 * The arena: pages that move to where blocks need them. Over linux_vmm, whose memory the CPU
 * reads: a page at two live addresses shows as a block that changes. With queues:
 * gpu/arena_test.cpp.
 */
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/queue.h>
#include <umf/reclaim.h>

#include "fakes/log_file.h"
#include "fakes/training.h"
#include "unit/arena.h"

extern "C" {
#include "providers/vmm/paged.h"
/* Stands in for umf_broker_start in this program (the linker's --wrap). */
bool __wrap_umf_broker_start(void);
bool __real_umf_broker_start(void);
}

namespace {

std::atomic<int> brokers{0}, brokers_inside{0}; // starts; those in an operation of the provider

} // namespace

bool __wrap_umf_broker_start(void) {
    brokers++;
    brokers_inside += RangedVmm::is_sharing();
    return __real_umf_broker_start();
}

// --- pages move ----------------------------------------------------------------------------------

TEST_F(Arena, TakesPagesFromFreePlacesForALargeBlock) {
    make();
    const std::vector<char *> kept = comb(16);
    const size_t before = held();
    char *large = take(8 * MiB - PAGE);
    ASSERT_NE(large, nullptr);
    memset(large, 0x55, 8 * MiB - PAGE);
    EXPECT_LE(held(), before + before / 50) << "no more memory, though no place was large enough";
    EXPECT_GT(counter(pool, "donated_memory"), 6 * MiB);
    is_comb(kept);
    EXPECT_EQ(umfFree(large), OK);
    free_all(kept);
}

TEST_F(Arena, KeepsItsPagesWhereItMustNotMoveThem) {
    make(",donate=off");
    const std::vector<char *> kept = comb(16);
    const size_t before = held();
    char *large = take(8 * MiB - PAGE);
    ASSERT_NE(large, nullptr);
    EXPECT_GE(held(), before + 6 * MiB);
    EXPECT_EQ(counter(pool, "donated_memory"), 0U);
    EXPECT_EQ(umfFree(large), OK);
    free_all(kept);
}

TEST_F(Arena, LeavesOldAddressesMappedUntilATrim) {
    make(",donate=trim");
    const std::vector<char *> kept = comb(16);
    free_all({take(8 * MiB - PAGE)});
    EXPECT_GT(counter(pool, "stale_memory"), 6 * MiB);
    free_all({take(15 * MiB)});
    EXPECT_EQ(RangedVmm::calls("page_unmap"), 0U);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK) << "no work uses them";
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(counter(pool, "stale_memory"), 0U);
    EXPECT_GT(RangedVmm::calls("page_unmap"), 0U);
    is_comb(kept);
    free_all(kept);
}

TEST_F(Arena, LeavesUnmappingToTheBackgroundThread) {
    bool background = true;
    ASSERT_EQ(umfCtlSet("umf.reclaim.background", &background, sizeof(background)), OK);
    make();
    const std::vector<char *> kept = comb(16);
    char *first = take(4 * MiB), *second = take(3 * MiB);
    EXPECT_GT(counter(pool, "donated_memory"), 5 * MiB);
    while (counter(pool, "stale_memory") > 0) {
        std::this_thread::yield();
    }
    EXPECT_FALSE(RangedVmm::has_unmapped());
    EXPECT_GT(RangedVmm::calls("page_unmap"), 0U);
    background = false;
    ASSERT_EQ(umfCtlSet("umf.reclaim.background", &background, sizeof(background)), OK);
    is_comb(kept);
    free_all({first, second});
    free_all(kept);
}

TEST_F(Arena, GivesFreePagesBackOnATrim) {
    make();
    const std::vector<char *> kept = comb(16);
    EXPECT_EQ(umfPoolTrimMemory(pool, 4 * MiB), OK);
    EXPECT_GE(held(), 12 * MiB);
    EXPECT_LE(held(), 12 * MiB + 4 * PAGE);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(held(), 8 * MiB + 18 * PAGE);
    EXPECT_EQ(RangedVmm::bytes(), held());
    is_comb(kept);
    free_all(kept);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(held(), 0U);
}

TEST_F(Arena, CountsPagesAndNoAddresses) {
    make();
    size_t allocated = SIZE_MAX;
    free_all({take(MiB)});
    ASSERT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &allocated,
                        sizeof(allocated), provider),
              OK);
    EXPECT_EQ(allocated, held());
    EXPECT_EQ(allocated, RangedVmm::bytes());
    EXPECT_EQ(counter(pool, "used_memory"), 0U);
    EXPECT_EQ(counter(pool, "used_peak"), MiB);
}

TEST_F(Arena, AlignsAndRefusesAsOtherPoolsDo) {
    make();
    for (size_t alignment = 1; alignment <= 4 * MiB; alignment *= 2) {
        char *block = take(100, alignment);
        ASSERT_NE(block, nullptr) << alignment;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U);
        EXPECT_EQ(umfPoolFree(pool, block + 512), BAD);
        EXPECT_EQ(umfPoolFree(pool, block), OK);
        EXPECT_EQ(umfPoolFree(pool, block), BAD) << "freed twice";
    }
    EXPECT_EQ(take(100, 3), nullptr);
    EXPECT_EQ(take(size_t{2} << 30), nullptr) << "more than there are addresses";
    EXPECT_EQ(take(SIZE_MAX), nullptr);
}

// --- what an arena is not
// -------------------------------------------------------------------------

TEST_F(Arena, NeedsAProviderWithRanges) {
    LogFile log;
    EXPECT_EQ(umfPoolCreateFromText("coalescing:arena=yes over os", &pool), NONE);
    pool = nullptr;
    EXPECT_EQ(log.count("cuda_vmm and linux_vmm"), 1U) << log.text();
}

TEST_F(Arena, RefusesWrongParameters) {
    for (const char *text :
         {"watermark=1001", "arena_page=3", "arena_page=4K", "donate=no", "arena=perhaps"}) {
        const std::string whole = std::string("coalescing:arena=yes,") + text + " over linux_vmm";
        EXPECT_EQ(umfPoolCreateFromText(whole.c_str(), &pool), BAD) << text;
    }
    // Addresses for less than a page of each area, or more than there are.
    EXPECT_EQ(umfPoolCreateFromText("coalescing:arena=yes,arena_size=2M over linux_vmm", &pool),
              BAD);
    EXPECT_NE(umfPoolCreateFromText(
                  "coalescing:arena=yes,arena_size=18446744073709551615 over linux_vmm", &pool),
              OK);
    pool = nullptr;
}

TEST_F(Arena, IsChosenAtCreationOnly) {
    bool yes = true;
    ASSERT_EQ(umfCtlSet("umf.pool.default.coalescing.params.arena", &yes, sizeof(yes)), OK);
    EXPECT_EQ(umfPoolCreateFromText("coalescing over linux_vmm", &pool), NONE);
    pool = nullptr;
    yes = false;
    EXPECT_EQ(umfCtlSet("umf.pool.default.coalescing.params.arena", &yes, sizeof(yes)), OK);
}

TEST_F(Arena, WorksInAPoolThatIsNotTracked) {
    umf_coalescing_pool_params_handle_t params = nullptr;
    ASSERT_EQ(umfCoalescingPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArena(params, 1), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArenaPage(params, PAGE), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArenaSize(params, 64 * MiB), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetWatermark(params, 0), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetDonate(params, UMF_COALESCING_DONATE_YES), OK);
    provider = RangedVmm::create();
    ASSERT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, params,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              OK);
    umfCoalescingPoolParamsDestroy(params);
    char *block = take(300 * KiB);
    memset(block, 1, 300 * KiB);
    EXPECT_EQ(umfPoolFree(pool, block), OK);
}

// --- other processes -----------------------------------------------------------------------------

namespace {

// The bytes of a handle, as they travel.
struct Handle {
    umf_ipc_handle_t mine = nullptr;
    std::string bytes{};

    explicit Handle(const void *ptr) {
        size_t size = 0;
        EXPECT_EQ(umfGetIPCHandle(ptr, &mine, &size), OK);
        bytes.assign(reinterpret_cast<const char *>(mine), size);
    }
    void put() {
        EXPECT_EQ(umfPutIPCHandle(mine), OK);
    }
};

umf_result_t open_in(umf_memory_pool_handle_t pool, const std::string &bytes, char **view) {
    umf_ipc_handler_handle_t handler = nullptr;
    EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    void *ptr = nullptr;
    const umf_result_t result = umfOpenIPCHandleSized(handler, bytes.data(), bytes.size(), &ptr);
    *view = static_cast<char *>(ptr);
    return result;
}

bool is_all(const char *from, size_t size, char value) {
    return std::all_of(from, from + size, [&](char c) { return c == value; });
}

} // namespace

// Its start allocates, perhaps from this arena.
TEST_F(Arena, StartsTheBrokerWithoutItsLocks) {
    make();
    char *block = take(MiB);
    brokers = 0;
    brokers_inside = 0;
    Handle handle(block);
    EXPECT_GE(brokers, 1);
    EXPECT_EQ(brokers_inside, 0);
    handle.put();
    free_all({block});
}

// A process that was there before opens a block on donated pages and writes to it.
TEST_F(Arena, SharesABlockOnManyPages) {
    int to_child[2], to_parent[2];
    ASSERT_TRUE(pipe(to_child) == 0 && pipe(to_parent) == 0);
    const pid_t child = fork();
    if (child == 0) {
        std::string bytes(4096, 0);
        make();
        const ssize_t size = read(to_child[0], bytes.data(), bytes.size());
        bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
        char *view = nullptr;
        bool is_right = open_in(pool, bytes, &view) == OK && is_all(view, 7 * MiB - 100, 0x55);
        if (is_right) {
            view[6 * MiB] = 0x66;
            is_right = umfCloseIPCHandle(view) == OK;
        }
        is_right &= write(to_parent[1], "x", 1) == 1;
        _exit(is_right && umfPoolDestroy(pool) == OK ? 0 : 1);
    }
    make(",watermark=0");
    const std::vector<char *> kept = comb(16);
    char *large = take(7 * MiB);
    ASSERT_NE(large, nullptr);
    EXPECT_GT(counter(pool, "donated_memory"), 5 * MiB);
    memset(large, 0x55, 7 * MiB);
    Handle handle(large + 100); // any address inside
    ASSERT_EQ(write(to_child[1], handle.bytes.data(), handle.bytes.size()),
              static_cast<ssize_t>(handle.bytes.size()));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(large[6 * MiB + 100], 0x66) << "written by the other process";
    is_comb(kept);
    handle.put();
    free_all({large});
    free_all(kept);
    for (int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) {
        close(fd);
    }
}

// While a handle is out no other block gets its pages, though the block is freed. Afterwards they
// move. A process that has not closed them then sees the block that is put there.
TEST_F(Arena, AHandleFixesThePagesUntilItIsPut) {
    make(",watermark=0");
    const std::vector<char *> kept = comb(16); // 8 MiB are free, in parts
    char *shared = kept[3], *view = nullptr, *small = nullptr;
    Handle handle(shared), second(shared + 1);
    RangedVmm::limit(RangedVmm::bytes());
    ASSERT_EQ(open_in(pool, handle.bytes, &view), OK);
    EXPECT_EQ(umfFree(shared), OK);
    EXPECT_EQ(umfFree(shared), BAD) << "freed before";
    EXPECT_EQ(take(9 * MiB), nullptr) << "of 9 MiB that are free, one is shared";
    small = take(7 * MiB);
    ASSERT_NE(small, nullptr);
    memset(small, 0x44, 7 * MiB);
    EXPECT_TRUE(is_all(view, MiB, 7));
    handle.put();
    EXPECT_EQ(take(2 * MiB), nullptr) << "the second handle is out";
    EXPECT_TRUE(is_all(view, MiB, 7));
    second.put();
    char *large = take(2 * MiB - PAGE);
    ASSERT_NE(large, nullptr) << "its page serves now";
    memset(large, 0x33, 2 * MiB - PAGE);
    EXPECT_EQ(view[MiB / 2], 0x33);
    char *again = nullptr;
    EXPECT_EQ(open_in(pool, handle.bytes, &again), BAD) << "another one is there by now";
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    EXPECT_EQ(open_in(pool, handle.bytes, &again), BAD);
    EXPECT_TRUE(is_all(small, 7 * MiB, 0x44) && is_all(large, 2 * MiB - PAGE, 0x33));
    std::vector<char *> others = kept;
    others.erase(others.begin() + 3);
    for (char *block : others) {
        EXPECT_EQ(block[0], block[MiB - 1]);
    }
    free_all(others);
    free_all({small, large});
}

// A handle is one of a block: it ends with it, and where the block ends.
TEST_F(Arena, AHandleIsRefusedAfterItsBlock) {
    make();
    char *block = take(2 * MiB), *view = nullptr, *same = nullptr;
    memset(block, 1, 2 * MiB);
    Handle handle(block), later(block);
    EXPECT_EQ(handle.bytes, later.bytes);
    handle.put();
    later.put();
    ASSERT_EQ(open_in(pool, handle.bytes, &view), OK) << "its block lives";
    ASSERT_EQ(open_in(pool, handle.bytes, &same), OK);
    EXPECT_EQ(view, same);
    EXPECT_TRUE(is_all(view, 2 * MiB, 1));
    EXPECT_EQ(umfPoolRealloc(pool, block, MiB), block);
    EXPECT_EQ(open_in(pool, handle.bytes, &same), BAD) << "it has shrunk";
    Handle shorter(block);
    EXPECT_EQ(open_in(pool, shorter.bytes, &same), OK);
    EXPECT_TRUE(is_all(same, MiB, 1));
    EXPECT_EQ(umfCloseIPCHandle(same), OK);
    shorter.put();
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(take(MiB), block);
    EXPECT_EQ(open_in(pool, shorter.bytes, &same), BAD) << "another block is there";
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(umfCloseIPCHandle(view), OK);
    }
    EXPECT_EQ(umfFree(block), OK);
    std::string damaged = shorter.bytes;
    damaged[200] = static_cast<char>(damaged[200] + 1);
    EXPECT_EQ(open_in(pool, damaged, &same), BAD);
}

// Handles of a child are its own, for blocks of its parent, too, and what it frees is free in the
// child only.
TEST_F(Arena, AChildOfForkSharesForItself) {
    int pipes[2], hold[2];
    make();
    char *block = take(MiB), *view = nullptr;
    memset(block, 7, MiB);
    Handle handle(block);
    ASSERT_TRUE(pipe(pipes) == 0 && pipe(hold) == 0);
    const pid_t child = fork();
    if (child == 0) {
        char *own = take(2 * MiB);
        memset(own, 9, 2 * MiB);
        Handle of_parent(block), of_child(own);
        bool is_right = write(pipes[1], of_parent.bytes.data(), of_parent.bytes.size()) > 0 &&
                        write(pipes[1], of_child.bytes.data(), of_child.bytes.size()) > 0;
        is_right &= umfPutIPCHandle(handle.mine) == OK && umfPutIPCHandle(of_parent.mine) == OK &&
                    umfFree(block) == OK && write(pipes[1], "x", 1) == 1;
        char end;
        close(hold[1]); // its memory is opened meanwhile
        is_right &= read(hold[0], &end, 1) == 0;
        _exit(is_right && !HasFailure() ? 0 : 1);
    }
    close(pipes[1]);
    const size_t size = handle.bytes.size();
    std::string bytes(2 * size + 1, 0);
    for (size_t got = 0; got < bytes.size();) {
        const ssize_t more = read(pipes[0], &bytes[got], bytes.size() - got);
        ASSERT_GT(more, 0);
        got += static_cast<size_t>(more);
    }
    int status = -1;
    EXPECT_EQ(open_in(pool, bytes.substr(0, size), &view), BAD) << "the child has freed it";
    ASSERT_EQ(open_in(pool, bytes.substr(size, size), &view), OK);
    EXPECT_TRUE(is_all(view, 2 * MiB, 9));
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    ASSERT_EQ(open_in(pool, handle.bytes, &view), OK) << "the parent has it";
    EXPECT_TRUE(is_all(view, MiB, 7));
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    close(pipes[0]);
    close(hold[1]);
    close(hold[0]);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    handle.put();
    free_all({block});
}

namespace {

// A list of pages of this process, and a description of memory on them.
struct List {
    int memory = -1, list = -1;
    uint64_t words[2] = {0, 77};
    umf_board_source_t board{};
    umf_vmm_handle_t handle{};
    umf_vmm_manifest_t head{1, 2};
    umf_fd_ticket_t ticket{};
    std::vector<umf_vmm_manifest_page_t> pages{{0, 2 * PAGE, PAGE}, {0, 0, PAGE}};
    ssize_t more = 0; // bytes of the file beyond the list

    static int file(size_t size, unsigned seals) {
        const int fd = memfd_create("listed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
        EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
        EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
    }
    explicit List(unsigned seals = F_SEAL_SHRINK | F_SEAL_SEAL) : memory(file(3 * PAGE, seals)) {
        board.words = words;
        EXPECT_EQ(umf_ticket_make(memory, &ticket), OK);
        handle.piece_size = 2 * PAGE;
        handle.granule = PAGE;
        handle.word = 1;
        handle.generation = words[1];
    }
    List(const List &) = delete;
    List &operator=(const List &) = delete;
    ~List() {
        close(memory);
        close(list);
    }
    umf_result_t open(void *vmm, char **at) {
        std::string bytes(reinterpret_cast<const char *>(&head), sizeof(head));
        bytes.append(reinterpret_cast<const char *>(&ticket), sizeof(ticket));
        bytes.append(reinterpret_cast<const char *>(pages.data()), pages.size() * sizeof(pages[0]));
        bytes.resize(bytes.size() + static_cast<size_t>(more));
        list = file(0, 0);
        EXPECT_EQ(write(list, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        umf_fd_ticket_t of_list;
        EXPECT_EQ(umf_ticket_make(list, &of_list), OK);
        handle.piece = handle.board = of_list;
        uintptr_t base = 0;
        const umf_result_t result =
            umf_vmm_map_pages(static_cast<umf_vmm_t *>(vmm), &handle, &board, &base);
        *at = reinterpret_cast<char *>(base);
        return result;
    }
};

bool is_mapped(const std::string &name) {
    std::ifstream maps("/proc/self/maps");
    const std::string all{std::istreambuf_iterator<char>(maps), {}};
    return all.find(name) != std::string::npos;
}

} // namespace

// The list of pages is another process's. Whatever it says, nothing is mapped beyond what it has.
TEST_F(Arena, RefusesListsOfPagesThatCannotBeRight) {
    void *vmm = nullptr;
    char *at = nullptr;
    ASSERT_EQ(umf_linux_vmm_descriptor.ops->initialize(nullptr, &vmm), OK);
    {
        List right;
        ASSERT_EQ(pwrite(right.memory, "a", 1, 2 * PAGE), 1);
        ASSERT_EQ(pwrite(right.memory, "b", 1, 0), 1);
        ASSERT_EQ(right.open(vmm, &at), OK);
        EXPECT_EQ(at[0], 'a');
        EXPECT_EQ(at[PAGE], 'b');
        EXPECT_TRUE(is_mapped("memfd:listed"));
        munmap(at, 2 * PAGE);
    }
    const std::vector<std::pair<const char *, void (*)(List &)>> damages = {
        {"a file that is not there", [](List &list) { list.pages[1].file = 1; }},
        {"no size", [](List &list) { list.pages[1].size = 0; }},
        {"more than described", [](List &list) { list.handle.piece_size = PAGE; }},
        {"less than described", [](List &list) { list.handle.piece_size = 3 * PAGE; }},
        {"beyond the end", [](List &list) { list.pages[1].offset = 3 * PAGE; }},
        {"no whole page", [](List &list) { list.pages[1].offset = 512; }},
        {"an offset that overflows", [](List &list) { list.pages[1].offset = 0 - PAGE; }},
        {"a size that overflows", [](List &list) { list.pages[1].size = 0 - PAGE; }},
        {"more files than pages", [](List &list) { list.head.files = 3; }},
        {"more pages than listed", [](List &list) { list.head.pages = 3; }},
        {"fewer pages than listed", [](List &list) { list.head.pages = 1; }},
        {"too many pages", [](List &list) { list.head.pages = UINT64_MAX / 24; }},
        {"a longer file", [](List &list) { list.more = 8; }},
        {"another process", [](List &list) { list.ticket.pid++; }},
        {"another file", [](List &list) { list.ticket.ino++; }},
        {"a later generation", [](List &list) { list.words[1]++; }},
    };
    for (const auto &damage : damages) {
        List list;
        damage.second(list);
        EXPECT_EQ(list.open(vmm, &at), BAD) << damage.first;
        EXPECT_FALSE(is_mapped("memfd:listed")) << damage.first;
    }
    List unsealed(0); // its process could shorten it
    EXPECT_EQ(unsealed.open(vmm, &at), BAD);
    EXPECT_FALSE(is_mapped("memfd:listed"));
    EXPECT_EQ(umf_linux_vmm_descriptor.ops->finalize(vmm), OK);
}

// A mapping of such a file would replace memory of the consumer behind that of the list.
TEST_F(Arena, RefusesListedPagesOfAFileOfHugePages) {
    void *vmm = nullptr;
    char *at = nullptr;
    List list;
    close(list.memory);
    list.memory = memfd_create("listed", MFD_HUGETLB | MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (list.memory < 0 || ftruncate(list.memory, 2 * MiB) != 0) {
        GTEST_SKIP() << "no files of huge pages of 2 MiB here";
    }
    ASSERT_EQ(fcntl(list.memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    ASSERT_EQ(umf_ticket_make(list.memory, &list.ticket), OK);
    list.pages = {{0, 0, PAGE}, {0, 0, PAGE}};
    ASSERT_EQ(umf_linux_vmm_descriptor.ops->initialize(nullptr, &vmm), OK);
    EXPECT_EQ(list.open(vmm, &at), BAD);
    EXPECT_EQ(umf_linux_vmm_descriptor.ops->finalize(vmm), OK);
}

// --- memory is short -----------------------------------------------------------------------------

TEST_F(Arena, UsesAllThatIsFreeBeforeItFails) {
    make();
    const std::vector<char *> kept = comb(16);
    RangedVmm::limit(RangedVmm::bytes());
    char *large = take(7 * MiB);
    EXPECT_NE(large, nullptr) << "8 MiB were free";
    EXPECT_EQ(take(2 * MiB), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    is_comb(kept);
    EXPECT_EQ(umfFree(large), OK);
    large = take(7 * MiB);
    EXPECT_NE(large, nullptr);
    free_all(kept);
    EXPECT_EQ(umfFree(large), OK);
}

TEST_F(Arena, CountsItsPagesInAGroup) {
    make();
    umf_pool_group_handle_t group = nullptr;
    ASSERT_EQ(umfPoolGroupCreate(4 * MiB, &group), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    char *block = take(3 * MiB);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(take(3 * MiB), nullptr) << "more than the group may hold";
    EXPECT_EQ(umfFree(block), OK);
    block = take(3 * MiB);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), OK);
}

// --- random programs -----------------------------------------------------------------------------

TEST_F(Arena, KeepsContentInRandomPrograms) {
    ONE_THREAD_ONLY()
    for (size_t seed = 0; seed < scaled(1000); seed++) {
        SCOPED_TRACE(seed);
        make(seed % 4 == 3 ? ",donate=trim" : seed % 4 == 2 ? ",watermark=0" : "");
        Program program(pool, static_cast<unsigned>(seed));
        for (int i = 0; i < 400; i++) {
            program.step();
        }
        program.end();
        EXPECT_EQ(counter(pool, "used_memory"), 0U);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr, provider = nullptr;
        ASSERT_EQ(RangedVmm::faults(), "");
    }
}

TEST_F(Arena, LosesNothingWhenACallOfTheProviderFails) {
    ONE_THREAD_ONLY()
    size_t opened = 0;
    for (const char *operation : {"page_create", "page_map", "page_unmap", "page_destroy"}) {
        for (size_t n = 1; n <= scaled(400); n++) {
            SCOPED_TRACE(std::string(operation) + " " + std::to_string(n));
            make(n % 2 ? ",watermark=0" : "");
            Program program(pool, static_cast<unsigned>(n));
            RangedVmm::fail(operation, n);
            for (int i = 0; i < 120; i++) {
                program.step();
            }
            RangedVmm::fail("", 0);
            opened += program.opened;
            program.end();
            ASSERT_EQ(umfPoolDestroy(pool), OK);
            ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr, provider = nullptr;
            ASSERT_EQ(RangedVmm::pages(), 0U);
            ASSERT_EQ(RangedVmm::faults(), "");
        }
    }
    EXPECT_GT(opened, 50U);
}

TEST_F(Arena, ServesThreadsThatMeet) {
    make(",watermark=0");
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            Program program(pool, i);
            for (size_t step = 0; step < scaled(5000); step++) {
                program.step();
            }
            program.end();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(counter(pool, "used_memory"), 0U);
}

// A child shares the pages of its parent, and has pages of its own for new blocks.
TEST_F(Arena, AChildOfForkLeavesThePagesOfItsParent) {
    make();
    char *block = take(MiB);
    memset(block, 7, MiB);
    const pid_t child = fork();
    if (child == 0) {
        char *own = take(2 * MiB);
        bool is_right = own != nullptr;
        if (own) {
            memset(own, 9, 2 * MiB);
        }
        is_right &= umfFree(block) == OK && umfPoolTrimMemory(pool, 0) == OK;
        is_right &= umfFree(own) == OK && umfPoolDestroy(pool) == OK;
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    char *more = take(2 * MiB);
    memset(more, 8, 2 * MiB);
    EXPECT_TRUE(std::all_of(block, block + MiB, [](char c) { return c == 7; }));
    free_all({block, more});
}

// --- peaks ---------------------------------------------------------------------------------------

// Training with sequences of random length; fakes/training.h says how it is made.
TEST_F(Arena, HoldsLittleMoreThanATrainingUses) {
    for (const Training::Kind kind :
         {Training::VARIABLE, Training::CHECKPOINTED, Training::FIXED}) {
        double ratio[2];
        for (int donates = 0; donates < 2; donates++) {
            make(donates ? "" : ",donate=off");
            Training training(kind);
            ASSERT_TRUE(training.run([&](size_t size) { return umfPoolMalloc(pool, size); },
                                     [](void *ptr) { EXPECT_EQ(umfFree(ptr), OK); }));
            ratio[donates] = static_cast<double>(counter(pool, "reserved_peak")) /
                             static_cast<double>(counter(pool, "used_peak"));
            ASSERT_EQ(umfPoolDestroy(pool), OK);
            ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr, provider = nullptr;
        }
        EXPECT_LE(ratio[1], 1.016) << "kind " << kind;
        if (kind != Training::FIXED) {
            EXPECT_GT(ratio[0], 1.03) << "a trace that shows nothing, kind " << kind;
        }
        RecordProperty("reserved_of_live_" + std::to_string(kind), std::to_string(ratio[1]));
    }
}
