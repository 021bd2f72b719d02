// Reads a snapshot (umf/record_format.h) and checks that its parts agree.
#ifndef UMF_TEST_FAKES_SNAPSHOT_H
#define UMF_TEST_FAKES_SNAPSHOT_H

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <umf/record_format.h>

#include <gtest/gtest.h>

struct Snapshot {
    umf_record_header_t header{};
    std::vector<umf_record_object_t> objects;
    std::vector<umf_record_span_t> spans;
    std::vector<umf_record_run_t> runs;
    std::vector<umf_record_event_t> live;
    std::vector<uint64_t> stacks;

    explicit Snapshot(const std::string &path) {
        std::ifstream file(path, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(file), {});
        EXPECT_GE(bytes.size(), sizeof(header)) << path;
        if (bytes.size() < sizeof(header)) {
            return;
        }
        memcpy(&header, bytes.data(), sizeof(header));
        EXPECT_EQ(memcmp(header.magic, UMF_RECORD_MAGIC, sizeof(header.magic)), 0);
        EXPECT_EQ(header.version, UMF_RECORD_VERSION);
        EXPECT_EQ(header.kind, (uint32_t)UMF_RECORD_FILE_SNAPSHOT);
        EXPECT_EQ(header.file_size, bytes.size());
        load(UMF_RECORD_OBJECTS, objects);
        load(UMF_RECORD_SPANS, spans);
        load(UMF_RECORD_RUNS, runs);
        load(UMF_RECORD_LIVE, live);
        load(UMF_RECORD_STACKS, stacks);
        check();
    }

    // 0: none.
    uint32_t number(const void *handle) const {
        for (uint32_t i = 1; i < objects.size(); i++) {
            if (objects[i].handle == (uintptr_t)handle &&
                !(objects[i].flags & UMF_RECORD_OBJECT_IS_GONE)) {
                return i;
            }
        }
        return 0;
    }
    const umf_record_object_t &of(const void *handle) const {
        return objects[number(handle)];
    }
    const umf_record_span_t *span_at(const void *ptr) const {
        for (const umf_record_span_t &span : spans) {
            if ((uintptr_t)ptr - span.base < span.size) {
                return &span;
            }
        }
        return nullptr;
    }
    // The kind of the block that starts at `ptr`; 0: no block starts there. `size` gets the
    // block's.
    uint32_t state_at(const void *ptr, uint64_t *size = nullptr) const {
        const umf_record_span_t *span = span_at(ptr);
        for (uint32_t i = 0; span && i < span->run_count; i++) {
            const umf_record_run_t &run = runs[span->first_run + i];
            uint64_t offset = (uintptr_t)ptr - run.base;
            if (offset < run.size * run.count && offset % run.size == 0) {
                if (size) {
                    *size = run.size;
                }
                return run.state;
            }
        }
        return 0;
    }
    // The state of the block around `ptr`.
    uint32_t state_around(const void *ptr) const {
        const umf_record_span_t *span = span_at(ptr);
        for (uint32_t i = 0; span && i < span->run_count; i++) {
            const umf_record_run_t &run = runs[span->first_run + i];
            if ((uintptr_t)ptr - run.base < run.size * run.count) {
                return run.state;
            }
        }
        return 0;
    }

  private:
    std::vector<char> bytes;

    template <typename T> void load(size_t kind, std::vector<T> &items) {
        const umf_record_section_t &section = header.sections[kind];
        if (section.offset == 0) {
            return;
        }
        ASSERT_EQ(section.item_size, sizeof(T));
        ASSERT_EQ(section.offset % 64, 0u);
        ASSERT_LE(section.offset + section.count * sizeof(T), bytes.size());
        items.resize(section.count);
        memcpy(static_cast<void *>(items.data()), bytes.data() + section.offset,
               section.count * sizeof(T));
    }

    void check_span(const umf_record_span_t &span) {
        ASSERT_LT(span.object, objects.size());
        ASSERT_NE(span.object, 0u);
        ASSERT_LE((uint64_t)span.first_run + span.run_count, runs.size());
        uint64_t end = span.base;
        for (uint32_t i = 0; i < span.run_count; i++) {
            const umf_record_run_t &run = runs[span.first_run + i];
            ASSERT_GE(run.base, end);
            ASSERT_GT(run.count, 0u);
            ASSERT_GE(run.state, (uint32_t)UMF_RECORD_STATE_LIVE);
            ASSERT_LE(run.state, (uint32_t)UMF_RECORD_STATE_UNKNOWN);
            end = run.base + run.size * run.count;
            ASSERT_LE(end, span.base + span.size);
        }
    }

    void check() {
        std::vector<uint64_t> held(objects.size()), used(objects.size());
        for (const umf_record_span_t &span : spans) {
            check_span(span);
            if (::testing::Test::HasFatalFailure()) {
                return;
            }
            held[span.object] += span.flags & UMF_RECORD_SPAN_IS_IMPORT ? 0 : span.size;
            for (uint32_t i = 0; i < span.run_count; i++) {
                const umf_record_run_t &run = runs[span.first_run + i];
                used[span.object] += run.state == UMF_RECORD_STATE_LIVE ? run.size * run.count : 0;
            }
        }
        for (size_t i = 1; i < objects.size(); i++) {
            const umf_record_object_t &object = objects[i];
            bool is_told = object.kind == UMF_RECORD_OBJECT_POOL &&
                           header.sections[UMF_RECORD_SPANS].offset != 0;
            if (is_told && object.held != UMF_RECORD_UNKNOWN) {
                EXPECT_EQ(object.held, held[i]) << object.name;
            }
            if (is_told && object.live != UMF_RECORD_UNKNOWN) {
                EXPECT_EQ(object.live, used[i]) << object.name;
            }
            EXPECT_LT(object.parent, objects.size());
        }
    }
};

#endif
