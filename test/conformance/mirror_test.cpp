// Mirrors: a second view of a range, on all pairs of kinds of memory.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>

#include "fakes/content.h"
#include "fakes/places.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t SIZE = 100000;

class Mirror : public ::testing::Test {
  protected:
    Places places;
    std::mt19937 random{8};

    // Whether those who use memory of `in` reach memory of `of`.
    static bool is_same(const Place &of, const Place &in) {
        bool is_host = in.kind == UMF_PLACE_HOST || in.kind == UMF_PLACE_PINNED;
        if (is_host) {
            return of.kind != UMF_PLACE_DEVICE;
        }
        auto family = [](const Place &place) { return place.name.substr(0, 4); };
        return &of == &in || (family(of) == family(in) && family(of) != "far_" &&
                              (of.kind == UMF_PLACE_PINNED || of.kind == UMF_PLACE_SHARED));
    }
};

TEST_F(Mirror, it_is_the_range_itself_where_both_reach_it_and_else_memory_of_the_pool) {
    for (const Place &of : places.list) {
        for (const Place &in : places.list) {
            if (!in.pool) {
                continue;
            }
            SCOPED_TRACE(of.name + " seen in " + in.name);
            Bytes model(SIZE), now(SIZE), other(SIZE);
            ::fill(model.data(), SIZE, random());
            ::fill(other.data(), SIZE, random());
            void *range = of.take(SIZE), *view = nullptr;
            of.write(range, model.data(), SIZE);
            umf_mirror_handle_t mirror = nullptr;
            ASSERT_EQ(umfMirrorCreate(range, SIZE, in.pool, &mirror), OK);
            ASSERT_EQ(umfMirrorPtr(mirror, &view), OK);
            EXPECT_EQ(view == range, is_same(of, in));
            ASSERT_EQ(umfMirrorPull(mirror, 0, SIZE, nullptr), OK);
            const Place &there = view == range ? of : in;
            there.read(now.data(), view, SIZE);
            EXPECT_TRUE(now == model);
            there.write(view, other.data(), SIZE);
            ASSERT_EQ(umfMirrorPush(mirror, 0, SIZE, nullptr), OK);
            of.read(now.data(), range, SIZE);
            EXPECT_TRUE(now == other);
            EXPECT_EQ(umfMirrorDestroy(mirror), OK);
            of.give(range);
        }
    }
}

// Random marks, pulls and pushes against a model of both sides.
TEST_F(Mirror, what_is_dirty_moves_and_nothing_else) {
    const Place &of = places.at("far"), &in = places.at("os");
    for (size_t round = 0; round < scaled(50); round++) {
        Bytes range(SIZE), view(SIZE), now(SIZE), dirty(SIZE);
        ::fill(range.data(), SIZE, random());
        ::fill(view.data(), SIZE, random());
        void *ptr = of.take(SIZE), *seen = nullptr;
        of.write(ptr, range.data(), SIZE);
        umf_mirror_handle_t mirror = nullptr;
        ASSERT_EQ(umfMirrorCreate(ptr, SIZE, in.pool, &mirror), OK);
        ASSERT_EQ(umfMirrorPtr(mirror, &seen), OK);
        in.write(seen, view.data(), SIZE);
        for (int step = 0; step < 60; step++) {
            size_t at = random() % SIZE, size = random() % (SIZE - at) % 3000;
            bool is_push = random() % 2 == 0;
            Bytes &to = is_push ? range : view, &from = is_push ? view : range;
            auto move = is_push ? umfMirrorPush : umfMirrorPull;
            switch (random() % 8) {
            case 0: // all that is dirty at or above an offset
                ASSERT_EQ(move(mirror, at, UMF_MIRROR_DIRTY, nullptr), OK);
                for (size_t i = at; i < SIZE; i++) {
                    to[i] = dirty[i] ? from[i] : to[i];
                    dirty[i] = 0;
                }
                break;
            case 1:
                ASSERT_EQ(move(mirror, at, size, nullptr), OK);
                memcpy(&to[at], &from[at], size);
                memset(&dirty[at], 0, size);
                break;
            default:
                ASSERT_EQ(umfMirrorMark(mirror, at, size), OK);
                memset(&dirty[at], 1, size);
            }
        }
        of.read(now.data(), ptr, SIZE);
        EXPECT_TRUE(now == range);
        in.read(now.data(), seen, SIZE);
        EXPECT_TRUE(now == view);
        EXPECT_EQ(umfMirrorDestroy(mirror), OK);
        of.give(ptr);
    }
}

TEST_F(Mirror, what_could_not_be_moved_stays_dirty) {
    const Place &of = places.at("far"), &in = places.at("os");
    Bytes zero(SIZE), now(SIZE);
    void *ptr = of.take(SIZE), *seen = nullptr;
    of.write(ptr, zero.data(), SIZE);
    umf_mirror_handle_t mirror = nullptr;
    ASSERT_EQ(umfMirrorCreate(ptr, SIZE, in.pool, &mirror), OK);
    ASSERT_EQ(umfMirrorPtr(mirror, &seen), OK);
    memset(seen, 'x', SIZE);
    ASSERT_EQ(umfMirrorMark(mirror, 10, 100), OK);
    ASSERT_EQ(umfMirrorMark(mirror, 5000, 100), OK);
    places.far[0]->fail_copy_at = 2;
    EXPECT_NE(umfMirrorPush(mirror, 0, UMF_MIRROR_DIRTY, nullptr), OK);
    EXPECT_EQ(umfMirrorPush(mirror, 0, UMF_MIRROR_DIRTY, nullptr), OK);
    of.read(now.data(), ptr, SIZE);
    EXPECT_TRUE(are_all(reinterpret_cast<char *>(&now[10]), 100, 'x'));
    EXPECT_TRUE(are_all(reinterpret_cast<char *>(&now[5000]), 100, 'x'));
    EXPECT_EQ(now[110], 0);
    EXPECT_EQ(umfMirrorDestroy(mirror), OK);
    of.give(ptr);
}

TEST_F(Mirror, bad_arguments_are_refused) {
    const Place &in = places.at("os");
    char range[64];
    void *ptr = nullptr;
    umf_mirror_handle_t mirror = nullptr, none = reinterpret_cast<umf_mirror_handle_t>(range);
    EXPECT_EQ(umfMirrorCreate(nullptr, 1, in.pool, &mirror), BAD);
    EXPECT_EQ(umfMirrorCreate(range, 0, in.pool, &mirror), BAD);
    EXPECT_EQ(umfMirrorCreate(range, 1, nullptr, &mirror), BAD);
    EXPECT_EQ(umfMirrorCreate(range, 1, in.pool, nullptr), BAD);
    void *own = in.take(SIZE);
    EXPECT_EQ(umfMirrorCreate(own, size_t{1} << 40, in.pool, &mirror), BAD);
    in.give(own);
    ASSERT_EQ(umfMirrorCreate(range, sizeof(range), in.pool, &mirror), OK);
    EXPECT_EQ(umfMirrorPtr(mirror, nullptr), BAD);
    EXPECT_EQ(umfMirrorPull(mirror, 0, 65, nullptr), BAD);
    EXPECT_EQ(umfMirrorPush(mirror, 65, 0, nullptr), BAD);
    EXPECT_EQ(umfMirrorPush(mirror, 64, 0, nullptr), OK);
    EXPECT_EQ(umfMirrorMark(mirror, 1, 64), BAD);
    EXPECT_EQ(umfMirrorMark(mirror, 0, SIZE_MAX), BAD);
    for (size_t at = 0; at < sizeof(range); at += 4) { // apart from each other
        EXPECT_EQ(umfMirrorMark(mirror, at, 1), OK);
    }
    for (size_t outside : {sizeof(range) + 1, SIZE_MAX - 1, SIZE_MAX}) {
        EXPECT_EQ(umfMirrorPull(mirror, outside, UMF_MIRROR_DIRTY, nullptr), BAD);
        EXPECT_EQ(umfMirrorPush(mirror, outside, UMF_MIRROR_DIRTY, nullptr), BAD);
    }
    EXPECT_EQ(umfMirrorPull(mirror, sizeof(range), UMF_MIRROR_DIRTY, nullptr), OK);
    EXPECT_EQ(umfMirrorDestroy(mirror), OK);
    for (umf_mirror_handle_t wrong : {mirror, none}) {
        EXPECT_EQ(umfMirrorPtr(wrong, &ptr), BAD);
        EXPECT_EQ(umfMirrorPull(wrong, 0, 1, nullptr), BAD);
        EXPECT_EQ(umfMirrorPush(wrong, 0, 1, nullptr), BAD);
        EXPECT_EQ(umfMirrorMark(wrong, 0, 1), BAD);
        EXPECT_EQ(umfMirrorDestroy(wrong), BAD);
    }
    EXPECT_EQ(umfMirrorDestroy(nullptr), OK);
}

} // namespace
