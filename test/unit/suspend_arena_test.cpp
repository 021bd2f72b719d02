/*
 * Arenas that are suspended: their pieces are runs of pages, and each is one page after a resume.
 * On queues: gpu/random_test.cpp. And the events of pages, which recordings have.
 */
#include <map>
#include <mutex>

#include <unistd.h>

#include <umf/queue.h>
#include <umf/reclaim.h>
#include <umf/record.h>
#include <umf/suspend.h>

#include "fakes/log_file.h"
#include "unit/arena.h"

extern "C" {
#include "object/event.h"
#include "reader/reader.h"
}

namespace {

class SuspendArena : public Arena {
  protected:
    size_t allocated() {
        size_t bytes = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &bytes,
                            sizeof(bytes), provider),
                  OK);
        return bytes;
    }
    void keep(umf_suspend_keep_t what) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = what;
        policy.folder = "/tmp";
        EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    }
    umf_suspend_report_t suspend() {
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &report), OK);
        return report;
    }
    umf_suspend_report_t resume() {
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, &report), OK);
        return report;
    }
    umf_residency_t residency() {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
        return now;
    }
};

} // namespace

TEST_F(SuspendArena, HasNoMemoryWhileItIsSuspended) {
    make();
    const std::vector<char *> kept = comb(16);
    free_all({take(8 * MiB - PAGE)}); // pages have moved
    const umf_suspend_report_t report = suspend();
    EXPECT_EQ(RangedVmm::pages(), 0U);
    EXPECT_EQ(RangedVmm::mapped(), 0U);
    EXPECT_EQ(allocated(), 0U);
    EXPECT_EQ(report.kept, 8 * MiB) << "blocks only";
    EXPECT_GE(report.bytes, 8 * MiB);
    EXPECT_EQ(report.shared, 0U);
    EXPECT_EQ(residency().reserved, report.bytes);
    EXPECT_EQ(residency().resident, 0U);
    EXPECT_EQ(residency().pinned, 8 * MiB);
    EXPECT_EQ(take(64), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_EQ(resume().bytes, report.bytes);
    EXPECT_EQ(RangedVmm::bytes(), report.bytes);
    EXPECT_EQ(held(), report.bytes);
    is_comb(kept);
    free_all({take(2 * MiB)});
    free_all(kept);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(held(), 0U);
}

TEST_F(SuspendArena, HasOnePageForEachRunAfterwards) {
    make();
    char *large = take(4 * MiB);
    memset(large, 3, 4 * MiB);
    EXPECT_EQ(RangedVmm::pages(), 64U);
    for (int i = 0; i < 2; i++) {
        suspend();
        resume();
        EXPECT_EQ(RangedVmm::pages(), 16U) << "four pages each";
        EXPECT_TRUE(std::all_of(large, large + 4 * MiB, [](char c) { return c == 3; }));
    }
    EXPECT_EQ(umfFree(large), OK);
    free_all({take(4 * MiB + PAGE)}); // larger pages move as well
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(RangedVmm::pages(), 0U);
}

// A page moves as a whole: one that is larger than what lacks stays, though its place is the
// largest.
TEST_F(SuspendArena, MovesNoPageThatIsTooLarge) {
    make(",watermark=0");
    std::vector<char *> large = {take(4 * PAGE), take(4 * PAGE)};
    suspend();
    resume();
    ASSERT_EQ(RangedVmm::pages(), 2U) << "four pages in one";
    char *hole = take(5 * PAGE), *above = take(4 * PAGE), *rest = take(7 * PAGE);
    std::vector<char *> kept = {large[1], above, take(4 * PAGE)};
    free_all({rest});
    kept.push_back(take(4 * PAGE)); // three free pages are left
    free_all({hole, large[0]});
    ASSERT_EQ(umfPoolTrimMemory(pool, 11 * PAGE), OK); // releases a page of the hole
    kept.push_back(take(PAGE / 2));                    // in another area
    const size_t before = held();
    char *block = take(5 * PAGE); // in the hole, which lacks a page
    EXPECT_EQ(held(), before);
    EXPECT_EQ(counter(pool, "donated_memory"), PAGE);
    EXPECT_EQ(counter(pool, "spare_memory"), 0U);
    free_all({block});
    free_all(kept);
}

TEST_F(SuspendArena, KeepsContentWhereItIsTold) {
    for (umf_suspend_keep_t what : {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                    UMF_SUSPEND_KEEP_FILE, UMF_SUSPEND_ZERO}) {
        SCOPED_TRACE(what);
        make();
        keep(what);
        char *small = take(1000), *large = take(MiB);
        memset(small, 5, 1000);
        memset(large, 6, MiB);
        suspend();
        EXPECT_EQ(RangedVmm::pages(), 0U);
        resume();
        const bool is_kept = what != UMF_SUSPEND_ZERO;
        EXPECT_TRUE(std::all_of(small, small + 1000, [&](char c) { return c == 5 * is_kept; }));
        EXPECT_TRUE(std::all_of(large, large + MiB, [&](char c) { return c == 6 * is_kept; }));
        free_all({small, large});
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr, provider = nullptr;
    }
}

TEST_F(SuspendArena, LetsBlocksGoWhileItIsSuspended) {
    make();
    std::vector<char *> kept = comb(16);
    suspend();
    const size_t before = residency().reserved;
    EXPECT_EQ(umfFree(kept[0]), OK);
    EXPECT_EQ(umfFree(kept[3]), OK);
    EXPECT_EQ(umfFree(kept[3]), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "freed twice";
    EXPECT_LE(residency().reserved, before - MiB);
    EXPECT_EQ(residency().resident, 0U);
    EXPECT_EQ(residency().pinned, 6 * MiB);
    EXPECT_LE(resume().bytes, before - MiB);
    EXPECT_EQ(RangedVmm::bytes(), held());
    for (size_t i : {1, 2, 4, 5, 6, 7}) {
        const char value = static_cast<char>(2 * i + 1);
        EXPECT_TRUE(std::all_of(kept[i], kept[i] + MiB, [&](char c) { return c == value; }));
        EXPECT_EQ(umfFree(kept[i]), OK);
    }
    free_all({take(16 * MiB)});
}

TEST_F(SuspendArena, MayLoseAllItsBlocksOrEndMeanwhile) {
    make();
    const std::vector<char *> kept = comb(8);
    suspend();
    free_all(kept);
    EXPECT_EQ(residency().reserved, 0U);
    resume();
    EXPECT_EQ(RangedVmm::pages(), 0U);
    char *block = take(MiB);
    EXPECT_NE(block, nullptr);
    suspend();
    ASSERT_EQ(umfPoolDestroy(pool), OK); // TearDown looks for remaining objects
    pool = nullptr;
    EXPECT_EQ(allocated(), 0U);
}

// A handle ends with the memory that it is of. Another one leads to the memory of after the resume.
TEST_F(SuspendArena, EndsHandles) {
    make();
    char *block = take(MiB);
    memset(block, 5, MiB);
    umf_ipc_handle_t handles[2] = {};
    umf_ipc_handler_handle_t handler = nullptr;
    size_t size = 0;
    void *view = nullptr;
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    ASSERT_EQ(umfGetIPCHandle(block, &handles[0], &size), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfOpenIPCHandle(handler, handles[0], &view), BAD);
    EXPECT_EQ(umfGetIPCHandle(block, &handles[1], &size), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfOpenIPCHandle(handler, handles[0], &view), BAD);
    ASSERT_EQ(umfGetIPCHandle(block, &handles[1], &size), OK);
    ASSERT_EQ(umfOpenIPCHandle(handler, handles[1], &view), OK);
    memset(block, 6, MiB);
    EXPECT_EQ(static_cast<char *>(view)[MiB - 1], 6);
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    EXPECT_EQ(umfFree(block), OK);
    for (umf_ipc_handle_t handle : handles) {
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
    }
}

TEST_F(SuspendArena, StaysInItsGroup) {
    make();
    umf_pool_group_handle_t group = nullptr;
    ASSERT_EQ(umfPoolGroupCreate(4 * MiB, &group), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    char *block = take(3 * MiB);
    for (int i = 0; i < 3; i++) {
        suspend();
        resume();
    }
    EXPECT_EQ(umfFree(block), OK);
    block = take(3 * MiB);
    suspend();
    EXPECT_EQ(umfFree(block), OK) << "its pages leave the group";
    resume();
    block = take(3 * MiB);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), OK);
}

TEST_F(SuspendArena, StaysSuspendedWithoutMemory) {
    make();
    const std::vector<char *> kept = comb(16);
    suspend();
    RangedVmm::limit(4 * MiB);
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    EXPECT_NE(umfPoolsResume(&pool, 1, nullptr, &report), OK);
    EXPECT_GT(report.missing, 3 * MiB);
    EXPECT_EQ(RangedVmm::pages(), 0U) << "none of it was kept";
    RangedVmm::limit(SIZE_MAX);
    resume();
    is_comb(kept);
    free_all(kept);
}

// Suspends in the middle of a program, of which one call fails.
TEST_F(SuspendArena, KeepsContentInRandomPrograms) {
    ONE_THREAD_ONLY()
    const char *const failing[] = {"", "page_create", "page_map", "page_unmap", "page_destroy"};
    for (size_t seed = 0; seed < scaled(500); seed++) {
        SCOPED_TRACE(seed);
        make(seed % 4 == 3 ? ",donate=trim" : seed % 4 == 2 ? ",watermark=0" : "");
        Program program(pool, static_cast<unsigned>(seed));
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 60; i++) {
                program.step();
            }
            RangedVmm::fail(failing[(seed + round) % 5], 1 + program.random() % 40);
            umfPoolsSuspend(&pool, 1, nullptr, nullptr);
            program.was_suspended();
            for (size_t i = program.random() % 4; i > 0 && !program.blocks.empty(); i--) {
                EXPECT_EQ(umfFree(program.blocks.back().ptr), OK); // content is away
                program.blocks.pop_back();
            }
            umfPoolsResume(&pool, 1, nullptr, nullptr);
            RangedVmm::fail("", 0);
            ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        }
        program.end();
        EXPECT_EQ(counter(pool, "used_memory"), 0U);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr, provider = nullptr;
        ASSERT_EQ(RangedVmm::faults(), "");
    }
}

// --- events of pages -----------------------------------------------------------------------------

namespace {

// What the events say about an arena, and events that contradict each other.
struct PageStory {
    std::mutex mutex;
    umf_memory_pool_handle_t pool = nullptr;
    std::map<uint64_t, uint64_t> mapped, stale; // address to size
    uint64_t made = 0, mapped_bytes = 0, stale_bytes = 0, donated = 0;
    uint64_t pages = 0, spare = 0, sum_stale = 0, sum_donated = 0; // as the last sums say
    size_t sums = 0, odd = 0;
    bool knows_stale = true; // else addresses that could not be unmapped are stale, too

    void add(const umf_event_t &event) {
        std::lock_guard<std::mutex> guard(mutex);
        if (event.pool != pool) {
            return;
        }
        switch (event.kind) {
        case UMF_RECORD_PAGE_CREATE:
            made += event.size;
            break;
        case UMF_RECORD_PAGE_DESTROY:
            odd += made < event.size;
            made -= event.size;
            break;
        case UMF_RECORD_PROVIDER_ALLOC:
            odd += !mapped.emplace(event.address, event.size).second;
            mapped_bytes += event.size;
            break;
        case UMF_RECORD_PROVIDER_FREE:
            odd += mapped.count(event.address) == 0 || mapped[event.address] != event.size;
            mapped.erase(event.address);
            mapped_bytes -= event.size;
            break;
        case UMF_RECORD_PAGE_DONATE:
            donated += event.size;
            [[fallthrough]];
        case UMF_RECORD_PAGE_RETIRE:
            odd += !stale.emplace(event.address, event.size).second;
            stale_bytes += event.size;
            break;
        case UMF_RECORD_PAGE_UNMAP:
            odd += knows_stale &&
                   (stale.count(event.address) == 0 || stale[event.address] != event.size);
            stale.erase(event.address);
            stale_bytes -= event.size;
            break;
        case UMF_RECORD_PAGES:
            pages = event.address;
            spare = event.size;
            sums++;
            break;
        case UMF_RECORD_PAGES_MOVED:
            sum_stale = event.address;
            sum_donated = event.size;
            break;
        default:
            break;
        }
    }
};

PageStory *page_story;

void tell_page_story(const umf_event_t *event) {
    page_story->add(*event);
}

class RecordedArena : public SuspendArena {
  protected:
    PageStory story;

    void TearDown() override {
        umf_event_listen(nullptr);
        SuspendArena::TearDown();
    }
    void listen() {
        page_story = &story;
        story.pool = pool;
        umf_event_listen(tell_page_story);
    }
    // No other thread uses the pool now.
    void is_told() {
        EXPECT_EQ(story.pages, counter(pool, "reserved_memory"));
        EXPECT_EQ(story.spare, counter(pool, "spare_memory"));
        EXPECT_EQ(story.sum_stale, counter(pool, "stale_memory"));
        EXPECT_EQ(story.sum_donated, counter(pool, "donated_memory"));
        EXPECT_EQ(story.donated, story.sum_donated);
        EXPECT_EQ(story.made, story.pages);
        EXPECT_EQ(story.odd, 0U);
        // Others are to be destroyed when they are unmapped.
        EXPECT_LE(story.mapped_bytes + story.spare, story.pages);
    }
    // Of the pool, at the end of a recording.
    umf_reader_pages_t read(const std::string &path, uint64_t *held) {
        umf_reader_error_t error = {""};
        umf_reader_t *reader = umf_reader_open(path.c_str(), &error);
        EXPECT_NE(reader, nullptr) << error.text;
        umf_reader_replay_t *replay = umf_reader_replay_begin(reader, &error);
        EXPECT_TRUE(umf_reader_replay_run(replay, INT64_MAX, &error)) << error.text;
        umf_reader_pages_t pages = {};
        for (uint32_t i = 1; i < umf_reader_info(reader)->object_count; i++) {
            if (umf_reader_object(reader, i)->handle == reinterpret_cast<uintptr_t>(pool)) {
                pages = umf_reader_replay_object(replay, i)->pages;
                *held = umf_reader_replay_object(replay, i)->held;
            }
        }
        umf_reader_replay_free(replay);
        umf_reader_close(reader);
        return pages;
    }
};

} // namespace

TEST_F(RecordedArena, TellsOfPagesThatMove) {
    make();
    listen();
    const std::vector<char *> kept = comb(16);
    is_told();
    EXPECT_EQ(story.donated, 0U);
    char *large = take(8 * MiB - PAGE);
    is_told();
    EXPECT_GT(story.donated, 6 * MiB);
    EXPECT_EQ(story.mapped_bytes, story.pages) << "all pages are in use";
    free_all({large});
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    is_told();
    EXPECT_EQ(story.mapped_bytes, 8 * MiB);
    EXPECT_EQ(story.stale_bytes, 0U);
    const size_t sums = story.sums;
    free_all({take(64 * KiB)});
    free_all({take(64 * KiB)}); // the page stays
    EXPECT_EQ(story.sums, sums + 1) << "sums that have not changed are not told";
    free_all(kept);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_EQ(story.made, 0U);
    EXPECT_EQ(story.mapped_bytes, 0U);
    EXPECT_TRUE(story.mapped.empty() && story.stale.empty());
    EXPECT_EQ(story.odd, 0U);
}

TEST_F(RecordedArena, TellsOfOldAddressesUntilTheyAreUnmapped) {
    make(",donate=trim");
    listen();
    const std::vector<char *> kept = comb(16);
    char *large = take(8 * MiB - PAGE);
    is_told();
    EXPECT_GT(story.stale_bytes, 6 * MiB);
    EXPECT_EQ(story.stale_bytes, story.sum_stale);
    EXPECT_EQ(umfPoolTrimMemory(pool, SIZE_MAX), OK);
    is_told();
    EXPECT_EQ(story.stale_bytes, 0U);
    free_all(kept);
    free_all({large});
}

TEST_F(RecordedArena, HoldsItsPagesWhileItIsSuspended) {
    make();
    listen();
    const std::vector<char *> kept = comb(16);
    free_all({take(8 * MiB - PAGE)});
    suspend();
    is_told();
    EXPECT_EQ(story.mapped_bytes, story.pages);
    EXPECT_EQ(umfFree(kept[0]), OK); // perhaps the last block of a piece
    resume();
    is_told();
    EXPECT_EQ(story.mapped_bytes, story.pages);
    free_all({kept.begin() + 1, kept.end()});
    suspend(); // of nothing
    resume();
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    is_told();
    EXPECT_EQ(story.pages, 0U);
    EXPECT_TRUE(story.mapped.empty());
}

TEST_F(RecordedArena, TellsOfRandomProgramsWhoseCallsFail) {
    ONE_THREAD_ONLY()
    for (const char *operation : {"page_create", "page_map", "page_unmap", "page_destroy", ""}) {
        for (size_t n = 1; n <= scaled(200); n++) {
            SCOPED_TRACE(std::string(operation) + " " + std::to_string(n));
            make(n % 2 ? ",watermark=0" : "");
            listen();
            story.knows_stale = std::string(operation) != "page_unmap";
            Program program(pool, static_cast<unsigned>(n));
            RangedVmm::fail(operation, n);
            for (int i = 0; i < 120; i++) {
                program.step();
                is_told();
            }
            RangedVmm::fail("", 0);
            program.end();
            is_told();
            ASSERT_EQ(umfPoolDestroy(pool), OK);
            ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr, provider = nullptr;
            EXPECT_EQ(story.made, 0U);
            EXPECT_TRUE(story.mapped.empty());
            ASSERT_EQ(story.odd, 0U);
            story.mapped.clear(), story.stale.clear();
            story.mapped_bytes = story.stale_bytes = story.donated = 0;
            story.pages = story.spare = story.sum_stale = story.sum_donated = 0;
            ASSERT_FALSE(HasFailure());
        }
    }
}

TEST_F(RecordedArena, IsReadFromARecording) {
    char path[] = "/tmp/umf_arena_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    const std::string file = std::string(path) + "/run";
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.path = file.c_str();
    params.size = 4 * MiB;
    make();
    const std::vector<char *> kept = comb(16);
    uint64_t held_then = 0;
    for (const bool only_it : {false, true}) {
        params.pools = only_it ? &pool : nullptr;
        params.pool_count = only_it;
        const size_t before = held();
        ASSERT_EQ(umfRecordStart(&params), OK);
        ASSERT_EQ(umfRecordStop(), OK);
        umf_reader_pages_t pages = read(file, &held_then);
        EXPECT_TRUE(pages.is_known) << "also of a pool that did nothing";
        EXPECT_EQ(pages.reserved, before);
        EXPECT_EQ(held_then, before);
        EXPECT_EQ(pages.created, 0U);

        ASSERT_EQ(umfRecordStart(&params), OK);
        char *large = take(8 * MiB - PAGE);
        free_all({large});
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        ASSERT_EQ(umfRecordStop(), OK);
        pages = read(file, &held_then);
        EXPECT_EQ(pages.reserved, held());
        EXPECT_EQ(held_then, pages.reserved - pages.spare);
        EXPECT_GE(pages.reserved_peak, before);
        EXPECT_EQ(pages.spare, counter(pool, "spare_memory"));
        EXPECT_EQ(pages.stale, counter(pool, "stale_memory"));
        EXPECT_EQ(pages.donated, counter(pool, "donated_memory"));
        EXPECT_EQ(pages.reserved, before + pages.created - pages.destroyed);
    }
    ASSERT_EQ(umfRecordStart(&params), OK);
    free_all(kept);
    ASSERT_EQ(umfPoolDestroy(pool), OK);
    ASSERT_EQ(umfRecordStop(), OK);
    const umf_reader_pages_t pages = read(file, &held_then);
    EXPECT_TRUE(pages.is_known);
    EXPECT_EQ(pages.reserved, 0U) << "it was destroyed";
    pool = nullptr;
    EXPECT_EQ(unlink(file.c_str()), 0);
    EXPECT_EQ(rmdir(path), 0);
}
