// Files of recordings and snapshots: replacement, and rights to a path.
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/record.h>
#include <umf/record_format.h>
#include <umf/text.h>

#include <gtest/gtest.h>

#include "fakes/child.h"

namespace {

class RecordFiles : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_NE(mkdtemp(folder), nullptr);
    }
    void TearDown() override {
        for (const char *name : {"pipe", "link", "target", "file", "copy"}) {
            unlink(path(name).c_str());
        }
        rmdir(folder);
    }
    std::string path(const char *name) const {
        return std::string(folder) + "/" + name;
    }
    static umf_result_t start(const std::string &path) {
        umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
        params.path = path.c_str();
        params.size = 1 << 20;
        return umfRecordStart(&params);
    }
    static mode_t mode(const std::string &path) {
        struct stat info {};
        return lstat(path.c_str(), &info) == 0 ? info.st_mode : 0;
    }
    char folder[32] = "/tmp/umf-record.XXXXXX";
};

TEST_F(RecordFiles, WhatIsNoRegularFileIsNotReplaced) {
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    ASSERT_EQ(symlink("target", path("link").c_str()), 0);
    close(open(path("target").c_str(), O_CREAT | O_WRONLY, 0644));
    for (const std::string &at : {path("pipe"), path("link"), std::string(folder)}) {
        EXPECT_EQ(umfRecordSnapshot(at.c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT) << at;
        EXPECT_EQ(start(at), UMF_RESULT_ERROR_INVALID_ARGUMENT) << at;
    }
    ASSERT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfRecordSave(path("pipe").c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(S_ISFIFO(mode(path("pipe"))));
    EXPECT_TRUE(S_ISLNK(mode(path("link"))));
}

TEST_F(RecordFiles, AreForTheirUserOnly) {
    close(open(path("file").c_str(), O_CREAT | O_WRONLY, 0644)); // it is replaced
    EXPECT_EQ(umfRecordSnapshot(path("file").c_str()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(mode(path("file")) & 0777, 0600u);
    EXPECT_EQ(start(path("file")), UMF_RESULT_SUCCESS);
    EXPECT_EQ(mode(path("file")) & 0777, 0600u);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

size_t entries_of(const char *folder) {
    size_t count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        (void)entry;
        count++;
    }
    return count;
}

TEST_F(RecordFiles, OneThatCannotBeWrittenLeavesNoPart) {
    struct rlimit before {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit little = before;
    little.rlim_cur = 64;
    auto handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    umf_result_t saved = umfRecordSave(path("file").c_str());
    umf_result_t taken = umfRecordSnapshot(path("copy").c_str());
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(saved, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(taken, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(entries_of(folder), 0u);
}

TEST_F(RecordFiles, SnapshotsOfARecordingKeepNoDescriptor) {
    ASSERT_EQ(start(path("file")), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfRecordSnapshot(path("copy").c_str()), UMF_RESULT_SUCCESS);
    size_t before = entries_of("/proc/self/fd");
    for (int i = 0; i < 5; i++) {
        ASSERT_EQ(umfRecordSnapshot(path("copy").c_str()), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(entries_of("/proc/self/fd"), before);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

// Of processes that begin at once one has the path, until it ends.
TEST_F(RecordFiles, OneProcessHasAPath) {
    for (int round = 0; round < 50; round++) {
        // A process that reads /proc can keep the mapping of one that has ended a while.
        umf_result_t is_free = start(path("file"));
        for (int i = 0; i < 20000 && is_free != UMF_RESULT_SUCCESS; i++) {
            usleep(1000);
            is_free = start(path("file"));
        }
        ASSERT_EQ(is_free, UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
        int go[2], opened[2], end[2];
        ASSERT_EQ(pipe(go) | pipe(opened) | pipe(end), 0);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) {
                close(go[1]);
                close(end[1]);
                char byte;
                (void)!read(go[0], &byte, 1);
                byte = start(path("file")) == UMF_RESULT_SUCCESS ? 'y' : 'n';
                (void)!write(opened[1], &byte, 1);
                (void)!read(end[0], &byte, 1);
                _exit(0);
            }
        }
        close(go[1]); // all begin
        int have = 0;
        for (int i = 0; i < 3; i++) {
            char byte = 0;
            EXPECT_EQ(read(opened[0], &byte, 1), 1);
            have += byte == 'y';
        }
        EXPECT_EQ(have, 1) << "round " << round;
        close(end[1]);
        while (wait(nullptr) > 0) {
        }
        for (int fd : {go[0], opened[0], opened[1], end[0]}) {
            close(fd);
        }
    }
}

// --- another program of the user writes to the file of a recording that runs ---

constexpr size_t SIZE = 4 << 20;

// All of the file: header, sections, objects, texts, stacks, table of live allocations, blocks.
bool overwrite(const std::string &path, uint64_t word) {
    std::vector<uint64_t> words(SIZE / sizeof(word), word);
    int fd = open(path.c_str(), O_WRONLY);
    return pwrite(fd, words.data(), SIZE, 0) == (ssize_t)SIZE;
}

// Places of sections, numbers of items and of events that look possible and are too large.
bool exaggerate(const std::string &path, umf_record_header_t header, uint64_t by) {
    int fd = open(path.c_str(), O_WRONLY);
    bool is_done = true;
    for (uint64_t i = 0; i < SIZE / sizeof(umf_record_block_t) / 4; i++) {
        uint64_t block = header.sections[UMF_RECORD_BLOCKS].offset + i * sizeof(umf_record_block_t);
        auto count = (uint32_t)(UMF_RECORD_BLOCK_EVENTS + by);
        is_done &= pwrite(fd, &count, sizeof(count),
                          (off_t)(block + offsetof(umf_record_block_t, count))) == sizeof(count);
    }
    for (umf_record_section_t &section : header.sections) {
        section.offset += by;
        section.count += by;
        section.capacity += by;
    }
    return is_done && pwrite(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header);
}

class HostileFile : public RecordFiles {
  protected:
    void SetUp() override {
        RecordFiles::SetUp();
        file = path("file");
        umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
        params.path = file.c_str();
        params.size = SIZE;
        params.stack_depth = 8;
        params.leaks = 1;
        ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfRecordStart(&params), UMF_RESULT_SUCCESS);
        int fd = open(file.c_str(), O_RDONLY);
        EXPECT_EQ(read(fd, &header, sizeof(header)), (ssize_t)sizeof(header));
        close(fd);
    }
    void TearDown() override {
        EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS); // logs live allocations
        for (void *ptr : kept) {
            EXPECT_EQ(umfPoolFree(pool, ptr), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        RecordFiles::TearDown();
    }
    // Every kind of entry is added, found, moved and removed: more blocks than there are.
    void work() {
        std::string name = "mark " + std::to_string(kept.size());
        EXPECT_EQ(umfRecordMark(name.c_str()), UMF_RESULT_SUCCESS);
        for (int i = 0; i < 3000; i++, events += 2) {
            EXPECT_EQ(umfPoolFree(pool, umfPoolMalloc(pool, 64 + (size_t)i % 64)),
                      UMF_RESULT_SUCCESS);
        }
        for (int i = 0; i < 100; i++, events++) {
            kept.push_back(umfPoolMalloc(pool, 100));
        }
        umf_memory_pool_handle_t other = nullptr;
        EXPECT_EQ(umfPoolCreateFromText("disjoint over os", &other), UMF_RESULT_SUCCESS);
        umfPoolFree(other, umfPoolMalloc(other, 64));
        EXPECT_EQ(umfPoolDestroy(other), UMF_RESULT_SUCCESS);
        events += 100; // of the other pool, of providers, the mark
    }
    off_t size_of_copy() const {
        struct stat info {};
        return stat(path("copy").c_str(), &info) == 0 ? info.st_size : -1;
    }
    void all_is_bounded() const {
        umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
        EXPECT_EQ(umfRecordGetState(&report), UMF_RESULT_SUCCESS);
        EXPECT_EQ(report.is_running, 1);
        // The file's count of its blocks, and of overwritten ones.
        EXPECT_LE(report.events, 4 * (events + SIZE / sizeof(umf_record_event_t)));
        EXPECT_LE(report.dropped, report.events);
        EXPECT_LE(report.live_count, SIZE / sizeof(umf_record_event_t));
        EXPECT_LE(report.used, SIZE);
        EXPECT_EQ(umfRecordSave(path("copy").c_str()), UMF_RESULT_SUCCESS);
        EXPECT_EQ(size_of_copy(), (off_t)SIZE);
        EXPECT_EQ(umfRecordSnapshot(path("copy").c_str()), UMF_RESULT_SUCCESS);
        EXPECT_LE(size_of_copy(), (off_t)(4 * SIZE));
    }
    void attacked_by(const std::function<bool()> &attack) {
        work();
        EXPECT_TRUE(in_child(attack));
        work();
        EXPECT_TRUE(in_child(attack));
        all_is_bounded();
        work();
        all_is_bounded();
        EXPECT_TRUE(in_child(attack)); // before the end
    }
    std::string file;
    umf_record_header_t header{}; // before the attack
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<void *> kept;
    uint64_t events = 0;
};

TEST_F(HostileFile, OfLargeNumbersHarmsNobody) {
    attacked_by([this] { return overwrite(file, UINT64_MAX); });
}

TEST_F(HostileFile, OfTextHarmsNobody) {
    attacked_by([this] { return overwrite(file, UINT64_C(0x4141414141414141)); });
}

TEST_F(HostileFile, OfZerosHarmsNobody) {
    attacked_by([this] { return overwrite(file, 0); });
}

TEST_F(HostileFile, OfNumbersALittleTooLargeHarmsNobody) {
    attacked_by([this] { return exaggerate(file, header, 64); });
}

TEST_F(HostileFile, OfNumbersFarTooLargeHarmsNobody) {
    attacked_by([this] { return exaggerate(file, header, UINT64_C(0x4141414141)); });
}

} // namespace
