// Recordings: the content of a file, read by a small reader of its own; overwriting, ends, filters,
// fork.

#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <alloca.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HAS_BACKTRACE 1
#else
#define HAS_BACKTRACE 0
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/record.h>
#include <umf/record_format.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/fake_provider.h"
#include "fakes/log_file.h"
#include "fakes/namespaces.h"
#include "fakes/scale.h"
#include "fakes/self.h"
#include "fault.h"

extern "C" {
#include "base/meta.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t WRONG = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t REFUSED = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MIB = 1 << 20;

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/umf_record_XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder() {
        EXPECT_EQ(system(("rm -r " + path).c_str()), 0);
    }
    std::string operator/(const std::string &name) const {
        return path + "/" + name;
    }
};

// A file of the format. It fails the test if a rule of the format does not hold.
struct File {
    std::string bytes;
    umf_record_header_t header;
    std::vector<umf_record_event_t> events; // by time within each thread, blocks by number
    std::vector<umf_record_block_t> blocks; // without the events
    std::map<int, size_t> kinds;

    explicit File(const std::string &path) {
        std::ifstream in(path, std::ios::binary | std::ios::ate);
        EXPECT_TRUE(in.good()) << path;
        bytes.resize(in.good() ? static_cast<size_t>(in.tellg()) : 0);
        in.seekg(0);
        in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        if (bytes.size() < sizeof(header)) {
            ADD_FAILURE() << "no header in " << bytes.size() << " bytes";
            return;
        }
        memcpy(&header, bytes.data(), sizeof(header));
        EXPECT_EQ(std::string(header.magic, 8), UMF_RECORD_MAGIC);
        EXPECT_EQ(header.version, UMF_RECORD_VERSION);
        EXPECT_EQ(header.kind, UMF_RECORD_FILE_RECORDING);
        EXPECT_EQ(header.file_size, bytes.size());
        check_sections();
        read_blocks();
        check_events();
    }
    template <typename T> const T *items(int kind) const {
        return reinterpret_cast<const T *>(bytes.data() + header.sections[kind].offset);
    }
    uint64_t count(int kind) const {
        return std::min(header.sections[kind].count, header.sections[kind].capacity);
    }
    std::string text(uint64_t offset) const {
        return offset < count(UMF_RECORD_TEXTS) ? items<char>(UMF_RECORD_TEXTS) + offset : "?";
    }
    const umf_record_object_t &object(const umf_record_event_t &event) const {
        return items<umf_record_object_t>(UMF_RECORD_OBJECTS)[UMF_RECORD_EVENT_OBJECT(event.what)];
    }
    std::vector<uint64_t> stack(const umf_record_event_t &event) const {
        const uint64_t *at =
            items<uint64_t>(UMF_RECORD_STACKS) + UMF_RECORD_EVENT_STACK(event.what);
        return UMF_RECORD_EVENT_STACK(event.what) ? std::vector<uint64_t>(at + 1, at + 1 + *at)
                                                  : std::vector<uint64_t>();
    }
    std::map<uint64_t, umf_record_event_t> live() const {
        std::map<uint64_t, umf_record_event_t> found;
        const auto *item = items<umf_record_event_t>(UMF_RECORD_LIVE);
        for (uint64_t i = 0; i < count(UMF_RECORD_LIVE); i++) {
            if (item[i].address != 0) {
                EXPECT_TRUE(found.emplace(item[i].address, item[i]).second);
                EXPECT_EQ(UMF_RECORD_EVENT_KIND(item[i].what), UMF_RECORD_ALLOC);
            }
        }
        return found;
    }
    std::vector<umf_record_event_t> of(umf_record_event_kind_t kind) const {
        std::vector<umf_record_event_t> found;
        for (const auto &event : events) {
            if (UMF_RECORD_EVENT_KIND(event.what) == static_cast<unsigned>(kind)) {
                found.push_back(event);
            }
        }
        return found;
    }

  private:
    void check_sections() const {
        const size_t sizes[] = {sizeof(umf_record_object_t), 1,
                                sizeof(umf_record_module_t), 8,
                                sizeof(umf_record_event_t),  sizeof(umf_record_block_t)};
        uint64_t end = sizeof(header);
        for (int i = 0; i <= UMF_RECORD_BLOCKS; i++) {
            const umf_record_section_t &section = header.sections[i];
            if (section.offset == 0) {
                continue;
            }
            EXPECT_EQ(section.item_size, sizes[i]) << i;
            EXPECT_EQ(section.offset % 64, 0u) << i;
            EXPECT_GE(section.offset, end) << i;
            end = section.offset + section.capacity * section.item_size;
            EXPECT_LE(end, bytes.size()) << i;
        }
        EXPECT_EQ((header.flags & UMF_RECORD_HAS_STACKS) != 0,
                  header.sections[UMF_RECORD_STACKS].offset != 0);
        EXPECT_EQ((header.flags & UMF_RECORD_HAS_LIVE) != 0,
                  header.sections[UMF_RECORD_LIVE].offset != 0);
    }
    void read_blocks() {
        std::map<uint64_t, const umf_record_block_t *> by_number;
        const auto *block = items<umf_record_block_t>(UMF_RECORD_BLOCKS);
        for (uint64_t i = 0; i < count(UMF_RECORD_BLOCKS); i++) {
            if (block[i].number != 0) {
                EXPECT_TRUE(by_number.emplace(block[i].number, block + i).second);
                EXPECT_LE(block[i].count, UMF_RECORD_BLOCK_EVENTS);
            }
        }
        for (auto &entry : by_number) {
            const umf_record_block_t *one = entry.second;
            blocks.push_back(*one);
            events.insert(events.end(), one->events, one->events + one->count);
            for (uint32_t i = 1; i < one->count; i++) {
                EXPECT_GE(one->events[i].ticks, one->events[i - 1].ticks);
            }
        }
    }
    void check_events() {
        for (const auto &event : events) {
            kinds[UMF_RECORD_EVENT_KIND(event.what)]++;
            EXPECT_NE(UMF_RECORD_EVENT_KIND(event.what), 0u);
            EXPECT_LT(UMF_RECORD_EVENT_OBJECT(event.what), count(UMF_RECORD_OBJECTS));
            uint32_t stack = UMF_RECORD_EVENT_STACK(event.what);
            EXPECT_LT(stack, count(UMF_RECORD_STACKS) + (stack == 0));
            EXPECT_GE(event.ticks, header.ticks[0]);
        }
    }
};

struct Pool {
    umf_memory_pool_handle_t pool = nullptr;
    explicit Pool(const char *text = "disjoint over os") {
        EXPECT_EQ(umfPoolCreateFromText(text, &pool), OK);
    }
    ~Pool() {
        destroy();
    }
    void destroy() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            pool = nullptr;
        }
    }
    void pairs(size_t count, size_t size = 64) const {
        for (size_t i = 0; i < count; i++) {
            umfFree(umfPoolMalloc(pool, size));
        }
    }
};

umf_record_params_t with(const std::string &path, size_t size = 4 * MIB) {
    static std::set<std::string> paths;
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.path = paths.insert(path).first->c_str();
    params.size = size;
    return params;
}

umf_record_state_report_t state() {
    umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
    EXPECT_EQ(umfRecordGetState(&report), OK);
    return report;
}

} // namespace

// --- content of a file ---

TEST(record, a_file_has_every_call_of_a_pool_in_order) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    Pool before;
    ASSERT_EQ(umfRecordStart(&params), OK);
    Pool after("coalescing over os");
    void *a = umfPoolMalloc(before.pool, 100);
    void *b = umfPoolMalloc(after.pool, 5000);
    EXPECT_EQ(umfFree(a), OK);
    EXPECT_EQ(umfFree(b), OK);
    after.destroy();
    EXPECT_EQ(state().is_running, 1);
    uint64_t events = state().events;
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(state().is_running, 0);

    File file(path);
    EXPECT_EQ(file.events.size(), events);
    EXPECT_EQ(file.header.pid, static_cast<uint32_t>(getpid()));
    EXPECT_TRUE(file.header.flags & UMF_RECORD_HAS_ENDED);
    EXPECT_GT(file.header.ticks[1], file.header.ticks[0]);
    auto allocs = file.of(UMF_RECORD_ALLOC), frees = file.of(UMF_RECORD_FREE);
    ASSERT_EQ(allocs.size(), 2u);
    ASSERT_EQ(frees.size(), 2u);
    EXPECT_EQ(allocs[0].address, reinterpret_cast<uintptr_t>(a));
    EXPECT_EQ(allocs[0].size, 100u);
    EXPECT_EQ(allocs[1].address, reinterpret_cast<uintptr_t>(b));
    EXPECT_EQ(frees[0].address, allocs[0].address);
    EXPECT_STREQ(file.object(allocs[0]).name, "disjoint");
    EXPECT_STREQ(file.object(allocs[1]).name, "coalescing");
    EXPECT_EQ(file.object(allocs[0]).handle, reinterpret_cast<uintptr_t>(before.pool));
    EXPECT_TRUE(file.object(allocs[1]).flags & UMF_RECORD_OBJECT_IS_GONE);
    const auto *objects = file.items<umf_record_object_t>(UMF_RECORD_OBJECTS);
    EXPECT_EQ(objects[file.object(allocs[0]).parent].kind, UMF_RECORD_OBJECT_PROVIDER);
    EXPECT_STREQ(objects[file.object(allocs[0]).parent].name, "OS");
    EXPECT_EQ(file.kinds[UMF_RECORD_DESTROY], 2u); // the pool and its provider
    EXPECT_GE(file.kinds[UMF_RECORD_PROVIDER_ALLOC], 1);
}

TEST(record, what_was_mapped_since_the_start_is_among_the_modules) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    int program = open("/proc/self/exe", O_RDONLY);
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    ASSERT_EQ(umfRecordStart(&params), OK);
    void *code = mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0);
    ASSERT_NE(code, MAP_FAILED);
    ASSERT_EQ(umfRecordStop(), OK);
    munmap(code, page);
    close(program);
    File file(path);
    const auto *module = file.items<umf_record_module_t>(UMF_RECORD_MODULES);
    bool is_found = false;
    for (uint64_t i = 0; i < file.count(UMF_RECORD_MODULES); i++) {
        is_found |= module[i].base == reinterpret_cast<uintptr_t>(code);
    }
    EXPECT_TRUE(is_found);
}

TEST(record, what_is_not_recorded_costs_and_leaves_nothing) {
    Pool pool;
    EXPECT_EQ(umfRecordStop(), WRONG);
    EXPECT_EQ(umfRecordMark("no recording"), OK);
    pool.pairs(100);
    EXPECT_EQ(state().events, 0u);
}

TEST(record, the_oldest_events_are_overwritten_and_counted) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    const size_t pairs = 20 * UMF_RECORD_BLOCK_EVENTS;
    pool.pairs(pairs);
    auto report = state();
    ASSERT_EQ(umfRecordStop(), OK);

    File file(path);
    EXPECT_GE(report.events, 2 * pairs);
    EXPECT_EQ(report.events, report.dropped + file.events.size());
    EXPECT_EQ(file.header.dropped, report.dropped);
    EXPECT_EQ(file.blocks.size(), file.header.sections[UMF_RECORD_BLOCKS].capacity);
    for (size_t i = 1; i < file.blocks.size(); i++) {
        EXPECT_EQ(file.blocks[i].number, file.blocks[i - 1].number + 1);
    }
    EXPECT_EQ(UMF_RECORD_EVENT_KIND(file.events.back().what), UMF_RECORD_FREE);
    EXPECT_LE(report.used, MIB + 4096);
}

TEST(record, threads_write_blocks_of_their_own) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, 16 * MIB);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    const size_t threads = 8, pairs = 5000;
    std::vector<std::thread> list;
    for (size_t i = 0; i < threads; i++) {
        list.emplace_back([&] { pool.pairs(pairs); });
    }
    for (auto &thread : list) {
        thread.join();
    }
    ASSERT_EQ(umfRecordStop(), OK);

    File file(path);
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], threads * pairs);
    EXPECT_EQ(file.kinds[UMF_RECORD_FREE], threads * pairs);
    std::set<uint32_t> seen;
    for (const auto &block : file.blocks) {
        seen.insert(block.thread);
    }
    EXPECT_GE(seen.size(), threads);
    EXPECT_EQ(file.header.dropped, 0u);
}

TEST(record, blocks_of_threads_that_ended_serve_others) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    for (int i = 0; i < 100; i++) {
        std::thread([&] { pool.pairs(10); }).join();
    }
    EXPECT_LT(state().dropped, state().events);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_EQ(file.blocks.size(), file.header.sections[UMF_RECORD_BLOCKS].capacity);
    EXPECT_EQ(UMF_RECORD_EVENT_KIND(file.events.back().what), UMF_RECORD_FREE);
}

// Its block was one of the recording before, where another thread has the same number now.
TEST(record, a_thread_that_ends_gives_up_no_block_of_another_thread) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    Pool pool;
    std::atomic<int> step{0};
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::thread earlier([&] {
        pool.pairs(1);
        step = 1;
        while (step != 2) {
            std::this_thread::yield();
        }
    });
    while (step != 1) {
        std::this_thread::yield();
    }
    ASSERT_EQ(umfRecordStop(), OK);
    ASSERT_EQ(umfRecordStart(&params), OK);
    EXPECT_EQ(umfRecordMark("first"), OK);
    step = 2;
    earlier.join();
    std::thread([&] { pool.pairs(20 * UMF_RECORD_BLOCK_EVENTS); }).join(); // all blocks but one
    EXPECT_EQ(umfRecordMark("last"), OK);
    ASSERT_EQ(umfRecordStop(), OK);
    auto marks = File(path).of(UMF_RECORD_MARK);
    EXPECT_EQ(marks.size(), 2u);
}

TEST(record, a_thread_that_finds_no_block_loses_its_events_and_they_are_counted) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    const int threads = 32;
    std::atomic<int> done{0};
    std::vector<std::thread> list;
    for (int i = 0; i < threads; i++) {
        list.emplace_back([&] {
            pool.pairs(10);
            done++;
            while (done < threads) {
                std::this_thread::yield();
            }
        });
    }
    for (auto &thread : list) {
        thread.join();
    }
    auto report = state();
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_GT(report.dropped, 0u);
    EXPECT_EQ(report.events, report.dropped + file.events.size());
}

TEST(record, a_killed_process_leaves_a_whole_file) {
    Folder folder;
    std::string path = folder / "run";
    std::atomic<int> *count = static_cast<std::atomic<int> *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t child = fork();
    if (child == 0) {
        umf_record_params_t params = with(path);
        params.leaks = 1;
        params.stack_depth = 16;
        Pool pool;
        if (umfRecordStart(&params) != OK) {
            _exit(1);
        }
        for (;;) {
            void *p = umfPoolMalloc(pool.pool, 64);
            ++*count;
            umfFree(p);
        }
    }
    while (*count < 10000) {
        usleep(1000);
    }
    int seen = *count;
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));

    File file(path);
    EXPECT_FALSE(file.header.flags & UMF_RECORD_HAS_ENDED);
    EXPECT_GE(file.kinds[UMF_RECORD_ALLOC] + file.header.dropped, static_cast<size_t>(seen));
    EXPECT_LE(file.live().size(), 1u);
    munmap(count, 4096);
}

TEST(record, marks_with_the_same_text_take_its_room_once) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    ASSERT_EQ(umfRecordStart(&params), OK);
    EXPECT_EQ(umfRecordMark(nullptr), WRONG);
    EXPECT_EQ(umfRecordMark("begin"), OK);
    EXPECT_EQ(umfRecordMark(std::string(300, 'x').c_str()), OK);
    EXPECT_EQ(umfRecordMark("begin"), OK);
    EXPECT_EQ(umfRecordMark(""), OK);
    umf_result_t result = OK;
    for (int i = 0; i < 100000 && result == OK; i++) {
        result = umfRecordMark(("mark " + std::to_string(i)).c_str());
    }
    EXPECT_EQ(result, REFUSED);
    EXPECT_EQ(umfRecordMark("begin"), OK);
    ASSERT_EQ(umfRecordStop(), OK);

    File file(path);
    auto marks = file.of(UMF_RECORD_MARK);
    ASSERT_GE(marks.size(), 5u);
    EXPECT_EQ(file.text(marks[0].address), "begin");
    EXPECT_EQ(file.text(marks[1].address), std::string(255, 'x'));
    EXPECT_EQ(marks[2].address, marks[0].address);
    EXPECT_EQ(file.text(marks[3].address), "");
    EXPECT_EQ(file.text(marks[4].address), "mark 0");
    EXPECT_EQ(marks.back().address, marks[0].address);
}

// --- filters ---

TEST(record, only_the_pools_that_are_named_are_recorded) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    Pool in, out;
    params.pools = &in.pool;
    params.pool_count = 1;
    ASSERT_EQ(umfRecordStart(&params), OK);
    Pool later;
    in.pairs(3);
    out.pairs(3);
    later.pairs(3);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], 3u);
    for (const auto &event : file.events) {
        EXPECT_EQ(file.object(event).handle, reinterpret_cast<uintptr_t>(in.pool));
    }
}

TEST(record, only_sizes_within_the_limits_are_recorded_and_their_frees) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    params.min_size = 100;
    params.max_size = 200;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    for (size_t size : {99, 100, 200, 201}) {
        pool.pairs(1, size);
    }
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    auto allocs = file.of(UMF_RECORD_ALLOC), frees = file.of(UMF_RECORD_FREE);
    ASSERT_EQ(allocs.size(), 2u);
    ASSERT_EQ(frees.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(allocs[i].size, 100 + 100 * i);
        EXPECT_EQ(frees[i].address, allocs[i].address);
        EXPECT_EQ(frees[i].size, allocs[i].size);
    }
}

TEST(record, one_of_many_is_recorded_with_its_free) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    params.rate = 10;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::vector<void *> blocks(10000);
    for (void *&block : blocks) {
        block = umfPoolMalloc(pool.pool, 64);
    }
    for (void *block : blocks) {
        umfFree(block);
    }
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_GT(file.kinds[UMF_RECORD_ALLOC], 500u);
    EXPECT_LT(file.kinds[UMF_RECORD_ALLOC], 2000u);
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], file.kinds[UMF_RECORD_FREE]);
    EXPECT_EQ(file.header.rate, 10u);
}

// --- live allocations ---

TEST(record, the_table_has_what_lives_when_its_events_are_lost) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    params.leaks = 1;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::map<uint64_t, size_t> kept;
    std::vector<void *> blocks;
    for (size_t i = 0; i < 3000; i++) {
        void *p = umfPoolMalloc(pool.pool, 1 + i % 500);
        blocks.push_back(p);
        kept[reinterpret_cast<uintptr_t>(p)] = 1 + i % 500;
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        umfFree(blocks[i]);
        kept.erase(reinterpret_cast<uintptr_t>(blocks[i]));
    }
    pool.pairs(20000);
    size_t bytes = 0;
    for (auto &entry : kept) {
        bytes += entry.second;
    }
    EXPECT_EQ(state().live_count, kept.size());
    EXPECT_EQ(state().live_bytes, bytes);
    LogFile log;
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(log.count(std::to_string(bytes) + " bytes in " + std::to_string(kept.size()) +
                        " allocations were not freed"),
              1u)
        << log.text();

    File file(path);
    auto live = file.live();
    EXPECT_EQ(live.size(), kept.size());
    for (auto &entry : kept) {
        ASSERT_EQ(live.count(entry.first), 1u);
        EXPECT_EQ(live[entry.first].size, entry.second);
    }
    for (size_t i = 1; i < blocks.size(); i += 2) {
        umfFree(blocks[i]);
    }
}

TEST(record, what_finds_no_room_among_what_lives_is_counted) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    params.leaks = 1;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::vector<void *> blocks(20000);
    for (void *&block : blocks) {
        block = umfPoolMalloc(pool.pool, 8);
    }
    uint64_t live = state().live_count;
    for (void *block : blocks) {
        umfFree(block);
    }
    EXPECT_EQ(state().live_count, 0u);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_GT(live, 7000u);
    EXPECT_EQ(file.header.live_dropped, blocks.size() - live);
}

// More than the table has room for: later pools take the places of destroyed ones.
static std::string text_after_200_arenas(const std::string &path, int leaks) {
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.path = path.c_str();
    params.size = MIB;
    params.leaks = leaks;
    EXPECT_EQ(umfRecordStart(&params), OK);
    for (int round = 0; round < 200; round++) {
        Pool arena;
        for (int i = 0; i < 100; i++) {
            EXPECT_NE(umfPoolMalloc(arena.pool, 64), nullptr);
        }
    }
    EXPECT_EQ(state().live_count, 0u);
    LogFile log(2);
    EXPECT_EQ(umfRecordStop(), OK);
    return log.text();
}

TEST(record, what_lives_in_a_destroyed_pool_is_reported_down_to_the_last) {
    Folder folder;
    std::string path = folder / "run", text = text_after_200_arenas(path, 1);
    EXPECT_NE(text.find("1280000 bytes in 20000 allocations lived when their pools were destroyed"),
              std::string::npos)
        << text;
    File file(path);
    EXPECT_EQ(file.header.ended_count + file.live().size(), 20000u);
    EXPECT_EQ(file.header.ended_bytes, 64 * file.header.ended_count);
}

TEST(record, each_report_of_leaks_has_its_own_groups) {
    Folder folder;
    umf_record_params_t params = with(folder / "run");
    params.leaks = 1;
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::vector<std::unique_ptr<Pool>> pools; // more than a report has groups
    for (int i = 0; i < 25; i++) {
        pools.push_back(std::make_unique<Pool>());
        EXPECT_NE(umfPoolMalloc(pools.back()->pool, 100), nullptr);
    }
    Pool ended("disjoint:name=ended over os");
    EXPECT_NE(umfPoolMalloc(ended.pool, 100), nullptr);
    ended.destroy();
    LogFile log(2);
    EXPECT_EQ(umfRecordStop(), OK);
    std::string text = log.text(),
                last = text.substr(std::min(text.size(), text.find("lived when")));
    EXPECT_NE(text.find("and more, of other stacks"), std::string::npos) << text;
    EXPECT_NE(last.find("(ended)"), std::string::npos) << text;
    EXPECT_EQ(last.find("(disjoint)"), std::string::npos) << text;
}

TEST(record, arenas_can_leave_it_out) {
    Folder folder;
    EXPECT_EQ(text_after_200_arenas(folder / "run", UMF_RECORD_LEAKS_ALLOW_DESTROYED), "");
}

// The pool that has the address now may free it, although its allocation was not recorded.
TEST(record, a_free_takes_no_allocation_of_a_destroyed_pool) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path, MIB);
    params.leaks = 1;
    params.min_size = 4096;
    static char memory[1 << 20];
    auto use = [](size_t size, bool frees) {
        umf_fixed_memory_provider_params_handle_t below = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, sizeof(memory), &below), OK);
        EXPECT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), below, &provider), OK);
        EXPECT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr,
                                UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool),
                  OK);
        void *block = umfPoolMalloc(pool, size);
        EXPECT_NE(block, nullptr);
        EXPECT_EQ(frees ? umfPoolFree(pool, block) : OK, OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(below), OK);
        return block;
    };
    ASSERT_EQ(umfRecordStart(&params), OK);
    void *leaked = use(8192, false);
    EXPECT_EQ(use(64, true), leaked);
    LogFile log;
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(log.count("8192 bytes in 1 allocations lived when"), 1u) << log.text();
}

TEST(record, a_free_that_is_refused_takes_nothing_out_of_what_lives) {
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.size = MIB;
    params.leaks = 1;
    Pool pool("coalescing over os");
    ASSERT_EQ(umfRecordStart(&params), OK);
    void *p = umfPoolMalloc(pool.pool, 4096);
    EXPECT_EQ(umfPoolRealloc(pool.pool, p, SIZE_MAX / 4), nullptr);
    EXPECT_EQ(state().live_count, 1u);
    EXPECT_EQ(state().live_bytes, 4096u);
    EXPECT_EQ(umfFree(p), OK);
    EXPECT_EQ(state().live_count, 0u);
    ASSERT_EQ(umfRecordStop(), OK);
}

TEST(record, a_free_that_the_provider_refuses_is_followed_by_the_allocation_that_stays) {
    Folder folder;
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    umf_record_params_t params = with(folder / "run");
    ASSERT_EQ(umfRecordStart(&params), OK);
    void *p = umfPoolMalloc(pool, 4096);
    fake.free_fails = true;
    EXPECT_NE(umfPoolFree(pool, p), OK);
    fake.free_fails = false;
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    File file(folder / "run");
    std::vector<umf_record_event_t> allocs = file.of(UMF_RECORD_PROVIDER_ALLOC);
    ASSERT_EQ(allocs.size(), 2u);
    EXPECT_EQ(file.of(UMF_RECORD_PROVIDER_FREE).size(), 1u);
    EXPECT_EQ(allocs[1].address, reinterpret_cast<uintptr_t>(p));
    EXPECT_EQ(allocs[1].size, allocs[0].size);
}

TEST(record, so_is_one_of_a_provider_that_is_used_directly) {
    Folder folder;
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_record_params_t params = with(folder / "run");
    void *p = nullptr, *none = &params;
    ASSERT_EQ(umfRecordStart(&params), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &p), OK);
    fake.free_fails = true;
    EXPECT_NE(umfMemoryProviderFree(provider, p, 4096), OK);
    fake.free_fails = false;
    EXPECT_NE(umfMemoryProviderFree(provider, none, 4096), OK) << "not an allocation";
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 4096), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    File file(folder / "run");
    std::vector<umf_record_event_t> allocs = file.of(UMF_RECORD_PROVIDER_ALLOC);
    ASSERT_EQ(allocs.size(), 2u);
    EXPECT_EQ(allocs[1].address, reinterpret_cast<uintptr_t>(p));
    EXPECT_EQ(allocs[1].size, 4096u);
}

// --- stacks and modules ---

namespace {
__attribute__((noinline)) void *alloc_here(umf_memory_pool_handle_t pool) {
    void *volatile p = umfPoolMalloc(pool, 77);
    return p;
}
} // namespace

TEST(record, stacks_lead_to_the_program_and_are_there_once) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    params.stack_depth = 16;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    for (int i = 0; i < 100; i++) {
        umfFree(alloc_here(pool.pool));
    }
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    std::set<uint32_t> stacks;
    auto here = reinterpret_cast<uintptr_t>(&alloc_here);
    for (const auto &event : file.of(UMF_RECORD_ALLOC)) {
        stacks.insert(UMF_RECORD_EVENT_STACK(event.what));
        bool is_found = false;
        for (uint64_t frame : file.stack(event)) {
            is_found |= frame > here && frame < here + 2000;
        }
        EXPECT_TRUE(is_found);
        EXPECT_LE(file.stack(event).size(), 16u);
        EXPECT_GE(file.stack(event).size(), 2u);
    }
    EXPECT_EQ(stacks.size(), 1u);
    bool is_mapped = false, has_id = false;
    const auto *module = file.items<umf_record_module_t>(UMF_RECORD_MODULES);
    for (uint64_t i = 0; i < file.count(UMF_RECORD_MODULES); i++) {
        bool is_it = here - module[i].base < module[i].size;
        is_mapped |= is_it && file.text(module[i].path).find("record_test") != std::string::npos;
        has_id |= module[i].build_id[0] != 0;
    }
    EXPECT_TRUE(is_mapped);
    EXPECT_TRUE(has_id || is_emulated()); // an emulator has no process_vm_readv
}

#if HAS_BACKTRACE

namespace {

struct Unwound {
    umf_memory_pool_handle_t pool;
    void *frames[64]; // as the C library's own unwinder finds them
    int count;
    void *block;
};

__attribute__((noinline)) void bottom(Unwound *unwound) {
    unwound->count = backtrace(unwound->frames, 64);
    unwound->block = umfPoolMalloc(unwound->pool, 99);
    *static_cast<volatile char *>(unwound->block) = 1;
}

// Without `bottom`, and what it calls.
std::vector<uint64_t> above(std::vector<uint64_t> frames) {
    auto first = reinterpret_cast<uint64_t>(&bottom);
    while (!frames.empty() && frames[0] - first >= 4000) {
        frames.erase(frames.begin());
    }
    EXPECT_FALSE(frames.empty());
    return frames.empty() ? frames : std::vector<uint64_t>(frames.begin() + 1, frames.end());
}

// Frames of changing size, aligned ones, those of a signal and of the C library, which has no frame
// pointers.
__attribute__((noinline)) void plain(Unwound *unwound) {
    bottom(unwound);
    asm volatile("");
}
__attribute__((noinline)) void growing(Unwound *unwound, size_t size) {
    volatile char *room = static_cast<volatile char *>(alloca(size));
    room[0] = 1;
    plain(unwound);
    room[size - 1] = 1;
}
__attribute__((noinline)) void aligned(Unwound *unwound) {
    alignas(64) volatile char room[256];
    room[0] = 1;
    growing(unwound, 100 + 8 * (reinterpret_cast<uintptr_t>(&room) % 7));
    room[255] = 1;
}
Unwound *in_handler;
void handler(int) {
    aligned(in_handler);
}
__attribute__((noinline)) void signalled(Unwound *unwound) {
    in_handler = unwound;
    raise(SIGUSR2);
}
int compare(const void *a, const void *b) {
    (void)b;
    aligned(*static_cast<Unwound *const *>(a));
    return 0;
}
__attribute__((noinline)) void through_libc(Unwound *unwound) {
    Unwound *list[] = {unwound, unwound};
    qsort(list, 2, sizeof(list[0]), compare);
}

} // namespace

TEST(record, stacks_are_those_of_the_unwinder_of_the_system) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    params.stack_depth = 64;
    Pool pool;
    signal(SIGUSR2, handler);
    ASSERT_EQ(umfRecordStart(&params), OK);
    void (*const ways[])(Unwound *) = {bottom, plain, aligned, signalled, through_libc};
    std::vector<Unwound> all;
    for (int round = 0; round < 3; round++) { // the later rounds find them known
        for (auto way : ways) {
            Unwound unwound{pool.pool, {}, 0, nullptr};
            way(&unwound);
            std::thread([&] { way(&unwound); }).join();
            way(&unwound);
            all.push_back(unwound);
        }
    }
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    std::map<uint64_t, std::set<std::vector<uint64_t>>> stacks; // of the blocks, by address
    for (const auto &event : file.of(UMF_RECORD_ALLOC)) {
        stacks[event.address].insert(above(file.stack(event)));
    }
    for (auto &unwound : all) {
        std::vector<uint64_t> frames;
        for (int i = 0; i < unwound.count; i++) {
            frames.push_back(reinterpret_cast<uint64_t>(unwound.frames[i]));
        }
        EXPECT_EQ(stacks[reinterpret_cast<uint64_t>(unwound.block)].count(above(frames)), 1u);
    }
}
#endif

// --- start, stop, errors ---

TEST(record, starts_and_stops_a_thousand_times_while_threads_allocate) {
    Folder folder;
    std::string path = folder / "run";
    std::atomic<bool> ends{false};
    std::vector<std::thread> list;
    for (int i = 0; i < 4; i++) {
        list.emplace_back([&] {
            while (!ends) {
                Pool pool;
                pool.pairs(20);
                umfRecordMark("pair");
            }
        });
    }
    umf_record_params_t params = with(path, MIB);
    for (size_t i = 0; i < scaled(1000); i++) {
        params.leaks = i % 2;
        params.stack_depth = i % 3 ? 8 : 0;
        ASSERT_EQ(umfRecordStart(&params), OK);
        ASSERT_EQ(umfRecordStop(), OK);
    }
    ends = true;
    for (auto &thread : list) {
        thread.join();
    }
    File file(path);
}

TEST(record, wrong_parameters_are_refused_with_a_reason) {
    Pool pool;
    struct {
        void (*change)(umf_record_params_t &);
        const char *why;
    } const list[] = {
        {[](umf_record_params_t &p) { p.struct_size = 8; }, "struct_size is 8"},
        {[](umf_record_params_t &p) { p.path = ""; }, "path is empty"},
        {[](umf_record_params_t &p) { p.size = MIB - 1; }, "at least 1 MiB"},
        {[](umf_record_params_t &p) { p.size = (size_t{64} << 30) + 1; }, "at most 64 GiB"},
        {[](umf_record_params_t &p) { p.stack_depth = 65; }, "at most 64 frames"},
        {[](umf_record_params_t &p) { p.min_size = 2, p.max_size = 1; }, "more than max_size"},
        {[](umf_record_params_t &p) { p.pool_count = 1; }, "pools is NULL"},
    };
    for (auto &one : list) {
        umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
        one.change(params);
        LogFile log;
        EXPECT_EQ(umfRecordStart(&params), WRONG);
        EXPECT_EQ(log.count(one.why), 1u) << log.text();
        EXPECT_EQ(log.count("ERROR"), 1u) << log.text();
    }
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    auto none = reinterpret_cast<umf_memory_pool_handle_t>(&params);
    params.pools = &none;
    EXPECT_EQ(umfRecordStart(&params), WRONG);
    params.pool_count = 1;
    EXPECT_EQ(umfRecordStart(&params), WRONG);
    umf_record_state_report_t report = {};
    EXPECT_EQ(umfRecordGetState(&report), WRONG);
    EXPECT_EQ(umfRecordGetState(nullptr), WRONG);
}

TEST(record, a_path_that_is_too_long_leaves_nothing_behind) {
    Pool pool;
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    const std::string path(5000, 'a');
    params.path = path.c_str();
    params.pools = &pool.pool;
    params.pool_count = 1;
    const size_t before = umf_meta_used();
    EXPECT_EQ(umfRecordStart(&params), WRONG);
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(record, there_is_one_recording_at_a_time) {
    ASSERT_EQ(umfRecordStart(nullptr), OK);
    LogFile log;
    EXPECT_EQ(umfRecordStart(nullptr), REFUSED);
    EXPECT_EQ(log.count("a recording is running"), 1u);
    EXPECT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(umfRecordStop(), WRONG);
}

TEST(record, a_file_that_cannot_be_made_is_named) {
    LogFile log;
    umf_record_params_t params = with("/nonexistent/run");
    EXPECT_EQ(umfRecordStart(&params), REFUSED);
    EXPECT_EQ(log.count("/nonexistent/run"), 1u) << log.text();
    params.path = nullptr;
    params.size = SIZE_MAX / 2;
    EXPECT_EQ(umfRecordStart(&params), WRONG);
    EXPECT_EQ(state().is_running, 0);
}

TEST(record, a_failure_at_any_call_leaves_nothing_behind) {
    Folder folder;
    std::string path = folder / "run";
    Pool pool;
    for (fault::Nth nth; nth.next();) {
        umf_record_params_t params = with(path, MIB);
        params.leaks = 1;
        umf_result_t result = umfRecordStart(&params);
        bool is_hit = nth.hit();
        nth.off();
        if (result == OK) {
            EXPECT_EQ(umfRecordStop(), OK);
        } else {
            EXPECT_TRUE(is_hit);
            EXPECT_EQ(state().is_running, 0);
            EXPECT_NE(access(path.c_str(), F_OK), 0);
        }
        pool.pairs(10);
        unlink(path.c_str());
    }
}

TEST(record, a_full_disk_ends_the_growth_and_not_the_program) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    params.leaks = 1;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    pool.pairs(2 * UMF_RECORD_BLOCK_EVENTS);
    {
        LogFile log;
        fault::Nth full("advise", ENOSPC, true);
        full.next();
        pool.pairs(20 * UMF_RECORD_BLOCK_EVENTS);
        full.off();
        EXPECT_EQ(log.count("no space"), 1u) << log.text();
    }
    auto report = state();
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_GT(report.dropped, 0u);
    EXPECT_EQ(report.events, report.dropped + file.events.size());
    EXPECT_LT(file.blocks.size(), file.header.sections[UMF_RECORD_BLOCKS].capacity);
}

TEST(record, a_file_system_without_room_ends_the_growth_and_not_the_program) {
    Folder folder;
    enum { DONE = 0, WRONG_RESULT = 1, NOT_HERE = 2 };
    int status = exit_of_child([&] {
        if (!enter_namespaces(CLONE_NEWNS) ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("umf", folder.path.c_str(), "tmpfs", 0, "size=1M") != 0) {
            return static_cast<int>(NOT_HERE);
        }
        std::string path = folder / "run";
        umf_record_params_t params = with(path, 64 * MIB);
        params.leaks = 1;
        params.stack_depth = 16;
        Pool pool;
        if (umfRecordStart(&params) != OK) {
            return static_cast<int>(WRONG_RESULT);
        }
        std::vector<void *> blocks(20000);
        for (void *&block : blocks) {
            block = umfPoolMalloc(pool.pool, 64);
            umfRecordMark(std::to_string(reinterpret_cast<uintptr_t>(block)).c_str());
        }
        for (void *block : blocks) {
            umfFree(block);
        }
        auto report = state();
        umfRecordStop();
        File file(path);
        EXPECT_GT(report.dropped, 0u);
        EXPECT_EQ(report.events, report.dropped + file.events.size());
        EXPECT_EQ(umfRecordStart(&params), OK); // in the room of the one that it replaces
        EXPECT_EQ(umfRecordStop(), OK);
        return static_cast<int>(testing::Test::HasFailure() ? WRONG_RESULT : DONE);
    });
    if (status == NOT_HERE) {
        GTEST_SKIP() << "this process may mount nothing";
    }
    EXPECT_EQ(status, DONE);
}

TEST(record, a_copy_is_whole_while_the_recording_goes_on) {
    Folder folder;
    std::string path = folder / "copy";
    EXPECT_EQ(umfRecordSave(path.c_str()), WRONG);
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.size = 2 * MIB;
    params.leaks = 1;
    params.stack_depth = 8;
    ASSERT_EQ(umfRecordStart(&params), OK);
    EXPECT_EQ(umfRecordSave(nullptr), WRONG);
    EXPECT_EQ(umfRecordSave((folder / "none/copy").c_str()), REFUSED);
    std::atomic<bool> ends{false};
    Pool pool;
    std::thread busy([&] {
        while (!ends) {
            pool.pairs(100);
        }
    });
    for (int i = 0; i < 10; i++) {
        ASSERT_EQ(umfRecordSave(path.c_str()), OK);
        File file(path);
    }
    ends = true;
    busy.join();
    uint64_t events = state().events - state().dropped;
    ASSERT_EQ(umfRecordSave(path.c_str()), OK);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path);
    EXPECT_EQ(file.events.size(), events);
    EXPECT_TRUE(file.header.flags & UMF_RECORD_HAS_ENDED);
}

// --- fork ---

TEST(record, a_pool_with_the_index_of_an_ended_one_is_another) {
    Folder folder;
    umf_record_params_t params = with(folder / "run");
    Pool first("disjoint:name=first over os");
    ASSERT_EQ(umfRecordStart(&params), OK);
    first.pairs(1);
    first.destroy();
    Pool second("disjoint:name=second over os");
    second.pairs(1);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(folder / "run");
    std::vector<std::string> names;
    for (const auto &event : file.of(UMF_RECORD_ALLOC)) {
        names.push_back(file.object(event).name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"first", "second"}));
}

TEST(record, a_child_of_fork_does_not_record) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    pool.pairs(10);
    EXPECT_TRUE(in_child([&] {
        pool.pairs(1000);
        Pool other;
        other.pairs(1000);
        bool is_off = state().is_running == 0 && umfRecordStop() == WRONG;
        std::ifstream maps("/proc/self/maps"); // nor does it keep the file
        for (std::string line; std::getline(maps, line);) {
            is_off &=
                line.find(path) == std::string::npos || line.find(" ---p ") != std::string::npos;
        }
        umf_record_params_t own = with(folder / "child");
        return is_off && umfRecordStart(&own) == OK && umfRecordStop() == OK;
    }));
    pool.pairs(10);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(path), child(folder / "child");
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], 20u);
    EXPECT_NE(child.header.pid, file.header.pid);
}

TEST(record, a_child_of_fork_does_not_record_where_the_file_of_its_parent_is_gone) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    EXPECT_EQ(unlink(path.c_str()), 0);
    EXPECT_TRUE(in_child([&] { return state().is_running == 0 && access(path.c_str(), F_OK); }));
    ASSERT_EQ(umfRecordStop(), OK);
}

TEST(record, a_child_of_fork_has_a_file_of_its_own_if_its_path_is_another) {
    Folder folder;
    std::string path = folder / "run.%p";
    umf_record_params_t params = with(path);
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    pool.pairs(10);
    pid_t child = fork();
    if (child == 0) {
        pool.pairs(30);
        _exit(umfRecordStop() == OK ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(umfRecordStop(), OK);
    File file(folder / ("run." + std::to_string(getpid())));
    File other(folder / ("run." + std::to_string(child)));
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], 10u);
    EXPECT_EQ(other.kinds[UMF_RECORD_ALLOC], 30u);
    EXPECT_EQ(other.header.pid, static_cast<uint32_t>(child));
}

TEST(record, a_child_of_fork_records_after_threads_of_the_parent_were_inside) {
    Folder folder;
    umf_record_params_t params = with(folder / "run", MIB);
    params.leaks = 1;
    Pool pool;
    ASSERT_EQ(umfRecordStart(&params), OK);
    std::atomic<bool> ends{false};
    std::vector<std::thread> list;
    for (int i = 0; i < 4; i++) {
        list.emplace_back([&] {
            while (!ends) {
                pool.pairs(10);
            }
        });
    }
    for (size_t i = 0; i < scaled(200); i++) {
        EXPECT_TRUE(in_child([&] {
            umf_record_params_t own = with(folder / "child", MIB);
            bool has_started = umfRecordStart(&own) == OK;
            pool.pairs(10);
            return has_started && umfRecordStop() == OK;
        }));
    }
    ends = true;
    for (auto &thread : list) {
        thread.join();
    }
    ASSERT_EQ(umfRecordStop(), OK);
}

TEST(record, a_file_that_another_process_writes_is_not_replaced) {
    Folder folder;
    std::string path = folder / "run";
    umf_record_params_t params = with(path);
    ASSERT_EQ(umfRecordStart(&params), OK);
    EXPECT_TRUE(in_child([&] {
        LogFile log;
        return umfRecordStart(&params) == REFUSED && log.count("another process records") == 1;
    }));
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_TRUE(in_child([&] { return umfRecordStart(&params) == OK && umfRecordStop() == OK; }));
}

// --- settings and the environment ---

namespace {

template <typename T> T get(const char *path) {
    T value{};
    EXPECT_EQ(umfCtlGet(path, &value, sizeof(value)), OK) << path;
    return value;
}

template <typename T> umf_result_t set(const char *path, T value) {
    return umfCtlSet(path, &value, sizeof(value));
}

} // namespace

TEST(record, settings_start_and_tell) {
    Folder folder;
    std::string path = folder / "run";
    ASSERT_EQ(umfCtlSet("umf.record.path", path.data(), path.size() + 1), OK);
    EXPECT_EQ(set("umf.record.size", size_t{2 * MIB}), OK);
    EXPECT_EQ(set("umf.record.stacks", 65u), WRONG);
    EXPECT_EQ(set("umf.record.stacks", 8u), OK);
    EXPECT_EQ(set("umf.record.leaks", true), OK);
    EXPECT_EQ(set("umf.record.rate", size_t{1}), OK);
    EXPECT_EQ(set("umf.record.min_size", size_t{16}), OK);
    EXPECT_EQ(set("umf.record.max_size", size_t{64}), OK);
    EXPECT_FALSE(get<bool>("umf.record.running"));
    Pool pool;
    ASSERT_EQ(umfCtlExec("umf.record.start", nullptr, 0), OK);
    EXPECT_TRUE(get<bool>("umf.record.running"));
    void *p = umfPoolMalloc(pool.pool, 64);
    EXPECT_EQ(get<size_t>("umf.record.live_count"), 1u);
    EXPECT_EQ(get<size_t>("umf.record.live_bytes"), 64u);
    EXPECT_GE(get<size_t>("umf.record.events"), 1u);
    EXPECT_EQ(get<size_t>("umf.record.dropped"), 0u);
    umfFree(p);
    char name[4096];
    EXPECT_EQ(umfCtlGet("umf.record.path", name, sizeof(name)), OK);
    EXPECT_EQ(name, path);
    ASSERT_EQ(umfCtlExec("umf.record.stop", nullptr, 0), OK);
    File file(path);
    EXPECT_EQ(file.header.file_size, 2 * MIB);
    EXPECT_EQ(file.header.min_size, 16u);
    EXPECT_EQ(file.header.max_size, 64u);
    EXPECT_TRUE(file.header.flags & UMF_RECORD_HAS_STACKS);
}

namespace {

// What this program writes to the standard error when it runs with UMF_RECORD and does `what`.
std::string run_with(const std::string &record, const char *what) {
    char path[PATH_MAX] = "";
    EXPECT_GT(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
    std::string emulator = is_emulated() ? getenv("UMF_TEST_EMULATOR") : "";
    std::string command = "UMF_RECORD_TEST=" + std::string(what) + " UMF_RECORD='" + record + "' " +
                          emulator + " " + path +
                          " --gtest_filter=record.DISABLED_child "
                          "--gtest_also_run_disabled_tests 2>&1 >/dev/null";
    FILE *pipe = popen(command.c_str(), "r");
    std::string text;
    char part[256];
    while (fgets(part, sizeof(part), pipe)) {
        text += part;
    }
    EXPECT_EQ(pclose(pipe), 0) << text;
    return text;
}

} // namespace

// Run by the tests below, with an environment.
TEST(record, DISABLED_child) {
    const char *what = getenv("UMF_RECORD_TEST");
    ASSERT_NE(what, nullptr);
    static umf_memory_pool_handle_t pool; // lives at the end, as pools of programs do
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), OK);
    for (int i = 0; i < 10; i++) {
        EXPECT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
    }
    if (strcmp(what, "leaks") == 0) {
        EXPECT_NE(umfPoolMalloc(pool, 1000), nullptr);
        EXPECT_NE(umfPoolMalloc(pool, 200), nullptr);
    }
}

TEST(record, the_environment_starts_a_recording) {
    Folder folder;
    EXPECT_EQ(run_with((folder / "run") + ",stacks=4,size=2M,rate=1", "pairs"), "");
    File file(folder / "run");
    EXPECT_EQ(file.kinds[UMF_RECORD_ALLOC], 10u);
    EXPECT_EQ(file.header.file_size, 2 * MIB);
    EXPECT_TRUE(file.header.flags & UMF_RECORD_HAS_STACKS);
    EXPECT_TRUE(file.header.flags & UMF_RECORD_HAS_ENDED);
}

TEST(record, the_environment_tells_leaks_at_the_end) {
    EXPECT_EQ(run_with("leaks", "pairs"), "");
    for (const char *record : {"leaks", ",leaks,stacks"}) {
        std::string text = run_with(record, "leaks");
        EXPECT_NE(text.find("1200 bytes in 2 allocations were not freed"), std::string::npos)
            << text;
        bool has_stacks = strstr(record, "stacks") != nullptr;
        EXPECT_EQ(text.find("1000 bytes in 1 allocations") < text.size(), has_stacks) << text;
        EXPECT_EQ(text.find("record_test+0x") < text.size(), has_stacks) << text;
    }
}

TEST(record, wrong_words_in_the_environment_are_named) {
    for (const char *record : {"run,stack", "run,stacks=65", "run,size=x",
                               "run,size=18014398509484032K", // 2 MiB modulo 2^64
                               "run,rate=-1", "run,,"}) {
        std::string text = run_with(record, "pairs");
        EXPECT_NE(text.find("because of UMF_RECORD"), std::string::npos) << record << text;
        EXPECT_EQ(access("run", F_OK), -1);
    }
    std::string text = run_with("/tmp/run,size=1000", "pairs");
    EXPECT_NE(text.find("at least 1 MiB"), std::string::npos) << text;
    text = run_with("/nonexistent/run", "pairs");
    EXPECT_NE(text.find("/nonexistent/run cannot be made"), std::string::npos) << text;
}

TEST(record, a_program_that_a_recorded_one_starts_leaves_its_file_alone_and_says_nothing) {
    Folder folder;
    umf_record_params_t params = with(folder / "run");
    ASSERT_EQ(umfRecordStart(&params), OK);
    umfRecordMark("mine");
    EXPECT_EQ(run_with(folder / "run", "pairs"), "");
    ASSERT_EQ(umfRecordStop(), OK);
    EXPECT_EQ(File(folder / "run").kinds[UMF_RECORD_MARK], 1u);
}
