// Copies and fills between all kinds of memory, against a model: every statement of umf/copy.h.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/content.h"
#include "fakes/places.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;

// Some memory of a place, and what must be in it.
struct Area {
    const Place &place;
    char *ptr;
    Bytes model;

    Area(const Place &of, size_t size, std::mt19937_64 &random)
        : place(of), ptr(static_cast<char *>(of.take(size))), model(size) {
        EXPECT_NE(ptr, nullptr) << of.name;
        ::fill(model.data(), size, random());
        of.write(ptr, model.data(), size);
    }
    ~Area() {
        place.give(ptr);
    }
    Area(const Area &) = delete;
    Area &operator=(const Area &) = delete;

    // "", or where it differs from the model.
    std::string difference() const {
        Bytes now(model.size());
        place.read(now.data(), ptr, now.size());
        if (memcmp(now.data(), model.data(), now.size()) == 0) {
            return "";
        }
        auto at = std::mismatch(now.begin(), now.end(), model.begin()).first;
        return place.name + " differs at " + std::to_string(at - now.begin()) + " of " +
               std::to_string(now.size());
    }
};

class Copy : public ::testing::Test {
  protected:
    Places places;
    std::mt19937_64 random{20};

    size_t below(size_t limit) {
        return random() % limit;
    }
    // Small ones, ones around pages, large ones.
    size_t some_size() {
        switch (below(4)) {
        case 0:
            return below(64);
        case 1:
            return 4000 + below(200);
        case 2:
            return below(70000);
        default:
            return below(400 << 10);
        }
    }
};

// Runs `body` for each pair of kinds.
template <class Body> void each_pair(Places &places, Body body) {
    for (const Place &to : places.list) {
        for (const Place &from : places.list) {
            SCOPED_TRACE("from " + from.name + " to " + to.name);
            body(to, from);
            if (::testing::Test::HasFailure()) {
                return;
            }
        }
    }
}

TEST_F(Copy, a_copy_between_any_two_kinds_moves_the_bytes_and_no_others) {
    constexpr size_t size = 512 << 10;
    each_pair(places, [&](const Place &to, const Place &from) {
        Area a(to, size, random), b(from, size, random);
        for (size_t round = 0; round < scaled(60); round++) {
            size_t count = some_size(), at = below(size - count), source = below(size - count);
            ASSERT_EQ(umfCopy(a.ptr + at, b.ptr + source, count, nullptr), OK);
            std::copy_n(b.model.begin() + static_cast<ptrdiff_t>(source), count,
                        a.model.begin() + static_cast<ptrdiff_t>(at));
        }
        EXPECT_EQ(a.difference(), "");
        EXPECT_EQ(b.difference(), "");
    });
}

TEST_F(Copy, a_fill_repeats_a_pattern_of_any_size) {
    constexpr size_t size = 512 << 10;
    for (const Place &place : places.list) {
        SCOPED_TRACE(place.name);
        Area a(place, size, random);
        for (size_t length : {1, 2, 3, 4, 7, 8, 16, 100, 5000}) {
            Bytes pattern(length);
            for (unsigned char &byte : pattern) {
                byte = static_cast<unsigned char>(random());
            }
            size_t count = some_size(), at = below(size - count);
            ASSERT_EQ(umfFill(a.ptr + at, pattern.data(), length, count, nullptr), OK);
            for (size_t i = 0; i < count; i++) {
                a.model[at + i] = pattern[i % length];
            }
            ASSERT_EQ(a.difference(), "") << length;
        }
    }
}

TEST_F(Copy, a_pattern_may_differ_in_its_last_byte_only) {
    for (size_t length : {2, 3, 4, 5, 8}) {
        Bytes pattern(length, 'a'), now(41);
        pattern.back() = 'b';
        ASSERT_EQ(umfFill(now.data(), pattern.data(), length, now.size(), nullptr), OK);
        for (size_t i = 0; i < now.size(); i++) {
            EXPECT_EQ(now[i], pattern[i % length]) << length;
        }
    }
}

TEST_F(Copy, a_place_is_what_it_was_made_as) {
    for (const Place &place : places.list) {
        SCOPED_TRACE(place.name);
        Area a(place, 100000, random);
        umf_place_t found = UMF_PLACE_INIT;
        ASSERT_EQ(umfPlaceOf(a.ptr + 100, &found), OK);
        EXPECT_EQ(found.kind, place.kind);
        EXPECT_EQ(found.pool, place.pool);
        EXPECT_EQ(found.is_reachable, place.kind != UMF_PLACE_DEVICE);
        EXPECT_EQ(found.is_suspended, 0);
        if (found.size) {
            EXPECT_EQ(static_cast<char *>(found.base) + found.offset, a.ptr + 100);
            EXPECT_GE(found.size, 100000u);
        }
        umf_place_source_t source = place.pool               ? UMF_PLACE_FROM_POOL
                                    : place.name == "malloc" ? UMF_PLACE_FROM_NOBODY
                                                             : UMF_PLACE_FROM_DRIVER;
        EXPECT_EQ(found.source, source);
    }
    umf_place_t none = UMF_PLACE_INIT;
    EXPECT_EQ(umfPlaceOf(nullptr, &none), OK);
    EXPECT_EQ(none.is_reachable, 0);
    EXPECT_EQ(umfPlaceOf(&none, nullptr), BAD);
    none.struct_size = 8;
    EXPECT_EQ(umfPlaceOf(&none, &none), BAD);
}

TEST_F(Copy, rows_leave_what_is_between_them) {
    constexpr size_t size = 64 << 10;
    each_pair(places, [&](const Place &to, const Place &from) {
        Area a(to, size, random), b(from, size, random);
        umf_copy_rows_t rows = UMF_COPY_ROWS_INIT;
        rows.size = 1 + below(1000);
        rows.to_pitch = rows.size + below(500);
        rows.from_pitch = rows.size + below(500);
        rows.count = 1 + below(20);
        rows.to = a.ptr + 77;
        rows.from = b.ptr + 5;
        ASSERT_EQ(umfCopyRows(&rows, nullptr), OK);
        for (size_t i = 0; i < rows.count; i++) {
            std::copy_n(b.model.begin() + static_cast<ptrdiff_t>(5 + i * rows.from_pitch),
                        rows.size,
                        a.model.begin() + static_cast<ptrdiff_t>(77 + i * rows.to_pitch));
        }
        EXPECT_EQ(a.difference(), "");
    });
}

TEST_F(Copy, rows_may_end_where_their_memory_ends) {
    for (const Place &place : places.list) {
        SCOPED_TRACE(place.name);
        Area a(place, 100000, random), host(places.list[0], 100000, random);
        umf_place_t found = UMF_PLACE_INIT;
        ASSERT_EQ(umfPlaceOf(a.ptr, &found), OK);
        if (found.size == 0) {
            continue;
        }
        umf_copy_rows_t rows = UMF_COPY_ROWS_INIT;
        rows.size = 16;
        rows.to_pitch = rows.from_pitch = 4096;
        rows.count = 3;
        rows.from = static_cast<char *>(found.base) + found.size - (2 * 4096 + 16);
        rows.to = host.ptr;
        EXPECT_EQ(umfCopyRows(&rows, nullptr), OK);
        rows.from = static_cast<const char *>(rows.from) + 1;
        EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    }
}

TEST_F(Copy, a_batch_makes_all_its_copies) {
    constexpr size_t size = 512 << 10, parts = 16;
    for (size_t round = 0; round < scaled(100); round++) {
        std::vector<std::unique_ptr<Area>> areas;
        std::vector<umf_copy_item_t> items;
        for (size_t i = 0; i < 2 * parts; i++) {
            areas.push_back(
                std::make_unique<Area>(places.list[below(places.list.size())], size / 8, random));
        }
        for (size_t i = 0; i < parts; i++) {
            Area &to = *areas[2 * i], &from = *areas[2 * i + 1];
            size_t count = below(size / 8), at = below(size / 8 - count);
            items.push_back({to.ptr + at, from.ptr, count});
            std::copy_n(from.model.begin(), count, to.model.begin() + static_cast<ptrdiff_t>(at));
        }
        size_t failed = 4711;
        ASSERT_EQ(umfCopyBatch(items.data(), items.size(), nullptr, &failed), OK);
        EXPECT_EQ(failed, 4711u);
        for (const auto &area : areas) {
            ASSERT_EQ(area->difference(), "");
        }
    }
}

TEST_F(Copy, a_batch_names_the_item_that_failed_on_the_way) {
    constexpr size_t size = 1000;
    Area host(places.list[0], size, random);
    char *to[3] = {};
    std::vector<umf_copy_item_t> items;
    Place &place = places.at("far");
    for (char *&ptr : to) {
        ptr = static_cast<char *>(place.take(size));
        items.push_back({ptr, host.ptr, size});
    }
    size_t failed = 4711;
    places.far[0]->fail_copy_at = 2;
    EXPECT_EQ(umfCopyBatch(items.data(), 3, nullptr, &failed), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(failed, 1u);
    for (char *ptr : to) {
        place.give(ptr);
    }
}

TEST_F(Copy, ranges_that_overlap_come_out_as_from_memmove_or_are_refused) {
    constexpr size_t size = 100000;
    for (const Place &place : places.list) {
        SCOPED_TRACE(place.name);
        Area a(place, size, random);
        for (auto [to, from] : {std::pair<size_t, size_t>{0, 100}, {100, 0}, {50, 50}}) {
            umf_result_t result = umfCopy(a.ptr + to, a.ptr + from, size - 200, nullptr);
            if (result == OK) {
                memmove(a.model.data() + to, a.model.data() + from, size - 200);
            } else {
                EXPECT_EQ(result, NONE);
                EXPECT_NE(place.kind, UMF_PLACE_HOST);
            }
            EXPECT_EQ(a.difference(), "");
        }
    }
}

TEST_F(Copy, a_provider_is_never_asked_to_copy_ranges_that_overlap) {
    constexpr size_t size = 1000;
    Area a(places.at("far"), size, random);
    long copies = places.far[0]->copies;
    EXPECT_EQ(umfCopy(a.ptr, a.ptr + 100, size - 200, nullptr), NONE);
    EXPECT_EQ(umfCopy(a.ptr + 100, a.ptr, size - 200, nullptr), NONE);
    EXPECT_EQ(umfCopy(a.ptr, a.ptr, size, nullptr), OK);
    EXPECT_EQ(places.far[0]->copies, copies);
}

TEST_F(Copy, a_range_may_reach_beyond_a_block_that_is_divided_further) {
    constexpr size_t size = 1 << 20;
    Area a(places.at("os"), size, random), host(places.list[0], size, random);
    umf_memory_provider_handle_t fixed = nullptr;
    umf_memory_pool_handle_t inner = nullptr;
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(a.ptr, size / 2, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
    umfFixedMemoryProviderParamsDestroy(params);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), fixed, nullptr, 0, &inner), OK);
    char *part = static_cast<char *>(umfPoolMalloc(inner, size / 4));
    ASSERT_NE(part, nullptr);
    size_t rest = static_cast<size_t>(a.ptr + size - part);
    EXPECT_EQ(umfCopy(part, host.ptr, rest, nullptr), OK);
    EXPECT_EQ(memcmp(part, host.ptr, rest), 0);
    memcpy(a.model.data() + (part - a.ptr), host.model.data(), rest);
    char *middle = part + size / 8; // as large as the block, but it ends behind it
    EXPECT_EQ(umfCopy(middle, host.ptr, size / 4, nullptr), OK);
    EXPECT_EQ(memcmp(middle, host.ptr, size / 4), 0);
    memcpy(a.model.data() + (middle - a.ptr), host.model.data(), size / 4);
    EXPECT_EQ(umfPoolFree(inner, part), OK);
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
}

TEST_F(Copy, what_leaves_its_allocation_is_refused_and_nothing_is_written) {
    constexpr size_t size = 10000;
    for (const Place &place : places.list) {
        SCOPED_TRACE(place.name);
        Area a(place, size, random), host(places.list[0], 3 * size, random);
        umf_place_t found = UMF_PLACE_INIT;
        ASSERT_EQ(umfPlaceOf(a.ptr, &found), OK);
        EXPECT_EQ(umfCopy(a.ptr, host.ptr, SIZE_MAX, nullptr), BAD);
        EXPECT_EQ(umfFill(a.ptr, "x", 1, SIZE_MAX - 5, nullptr), BAD);
        if (found.size) {
            char *end = static_cast<char *>(found.base) + found.size;
            size_t beyond = static_cast<size_t>(end - a.ptr) + 1;
            EXPECT_EQ(umfCopy(a.ptr, host.ptr, beyond, nullptr), BAD);
            EXPECT_EQ(umfCopy(host.ptr, a.ptr, beyond, nullptr), BAD);
            EXPECT_EQ(umfFill(a.ptr, "x", 1, beyond, nullptr), BAD);
        }
        EXPECT_EQ(a.difference(), "");
        EXPECT_EQ(host.difference(), "");
    }
}

TEST_F(Copy, the_route_is_told_and_refused_as_the_copy) {
    constexpr size_t size = 1000;
    for (const Place &from : places.list) {
        for (const Place &to : places.list) {
            SCOPED_TRACE("from " + from.name + " to " + to.name);
            Area a(to, size, random), b(from, size, random);
            umf_copy_route_t route = UMF_COPY_ROUTE_NONE;
            ASSERT_EQ(umfCopyRoute(a.ptr, b.ptr, size, nullptr, &route), OK);
            auto is_near = [](const Place &place) {
                return place.kind == UMF_PLACE_HOST || place.kind == UMF_PLACE_PINNED;
            };
            EXPECT_EQ(route == UMF_COPY_ROUTE_CPU, is_near(to) && is_near(from));
            EXPECT_EQ(umfCopy(a.ptr, b.ptr, size, nullptr),
                      route == UMF_COPY_ROUTE_NONE ? NONE : OK);
            if (is_near(from) && !is_near(to)) {
                EXPECT_EQ(route, UMF_COPY_ROUTE_TO);
            }
            if (is_near(to) && !is_near(from)) {
                EXPECT_EQ(route, UMF_COPY_ROUTE_FROM);
            }
        }
    }
    char a[16] = "", b[16] = "b";
    umf_copy_route_t route = UMF_COPY_ROUTE_NONE;
    umf_copy_params_t small = UMF_COPY_PARAMS_INIT;
    small.struct_size = 1;
    EXPECT_EQ(umfCopyRoute(nullptr, b, 1, nullptr, &route), BAD);
    EXPECT_EQ(umfCopyRoute(a, b, 1, &small, &route), BAD);
    EXPECT_EQ(umfCopyRoute(a, b, 1, nullptr, nullptr), BAD);
    EXPECT_EQ(route, UMF_COPY_ROUTE_NONE);
}

// Whatever is refused, the outputs of a failure are written.
TEST_F(Copy, a_refused_call_tells_that_nothing_was_done) {
    char a[8], b[8];
    size_t done = 4711, failed = 4711;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.done = &done;
    EXPECT_EQ(umfFill(a, nullptr, 1, 1, &params), BAD);
    EXPECT_EQ(done, 0u);
    done = 4711;
    EXPECT_EQ(umfCopyRows(nullptr, &params), BAD);
    EXPECT_EQ(done, 0u);
    done = 4711;
    EXPECT_EQ(umfCopyBatch(nullptr, 2, &params, &failed), BAD);
    EXPECT_EQ(done, 0u);
    EXPECT_EQ(failed, 2u) << "none of them";
    done = failed = 4711;
    params.num_wait_events = 1;
    umf_copy_item_t item = {a, b, 1};
    EXPECT_EQ(umfCopyBatch(&item, 1, &params, &failed), BAD);
    EXPECT_EQ(done, 0u);
    EXPECT_EQ(failed, 1u) << "none of them";
    failed = 4711;
    EXPECT_EQ(umfCopyBatch(&item, SIZE_MAX, nullptr, &failed), BAD);
    EXPECT_EQ(failed, SIZE_MAX);
}

TEST_F(Copy, bad_arguments_are_refused) {
    char a[16] = "", b[16] = "b";
    size_t done = 4711;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.done = &done;
    EXPECT_EQ(umfCopy(nullptr, b, 1, nullptr), BAD);
    EXPECT_EQ(umfCopy(a, nullptr, 1, nullptr), BAD);
    EXPECT_EQ(umfCopy(nullptr, nullptr, 0, &params), OK);
    EXPECT_EQ(done, 0u);
    EXPECT_EQ(umfCopy(a, b, 2, &params), OK);
    EXPECT_EQ(done, 2u);
    EXPECT_EQ(umfFill(a, nullptr, 1, 1, nullptr), BAD);
    EXPECT_EQ(umfFill(a, b, 0, 1, nullptr), BAD);
    EXPECT_EQ(umfFill(nullptr, b, 1, 1, nullptr), BAD);
    EXPECT_EQ(umfCopyBatch(nullptr, 1, nullptr, nullptr), BAD);
    EXPECT_EQ(umfCopyBatch(nullptr, 0, nullptr, nullptr), OK);
    umf_copy_item_t items[] = {{a, b, 1}, {nullptr, b, 1}};
    size_t failed = 4711;
    a[0] = 'a';
    EXPECT_EQ(umfCopyBatch(items, 2, nullptr, &failed), BAD);
    EXPECT_EQ(failed, 1u);
    EXPECT_EQ(a[0], 'a') << "all are checked before the first is made";
    EXPECT_EQ(umfCopyBatch(items, SIZE_MAX, nullptr, nullptr), BAD);
    EXPECT_EQ(umfCopyRows(nullptr, nullptr), BAD);
    params.struct_size = 8;
    EXPECT_EQ(umfCopy(a, b, 1, &params), BAD);
    params = UMF_COPY_PARAMS_INIT;
    params.num_wait_events = 1;
    EXPECT_EQ(umfCopy(a, b, 1, &params), BAD);
    params = UMF_COPY_PARAMS_INIT;
    params.to_kind = static_cast<umf_place_kind_t>(7);
    EXPECT_EQ(umfCopy(a, b, 1, &params), BAD);
    params = UMF_COPY_PARAMS_INIT;
    params.provider = reinterpret_cast<umf_memory_provider_handle_t>(a);
    EXPECT_EQ(umfCopy(a, b, 1, &params), BAD);
}

TEST_F(Copy, memory_that_is_not_there_is_refused) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char a[16] = "a";
    char *gone = static_cast<char *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(gone + page, page);
    EXPECT_EQ(umfCopy(a, gone + page, 1, nullptr), BAD);
    EXPECT_EQ(umfCopy(gone + page, a, 1, nullptr), BAD);
    EXPECT_EQ(umfFill(gone + page - 6, "x", 1, 7, nullptr), BAD);
    EXPECT_EQ(gone[page - 6], 0);
    EXPECT_EQ(umfFill(gone + page - 6, "x", 1, 6, nullptr), OK);
    EXPECT_EQ(gone[page - 1], 'x');
    EXPECT_EQ(mprotect(gone, page, PROT_READ), 0);
    EXPECT_EQ(umfCopy(gone, a, 1, nullptr), BAD) << "it cannot be written";
    EXPECT_EQ(umfCopy(a, gone + page - 1, 1, nullptr), OK);
    EXPECT_EQ(a[0], 'x');
    umf_place_t place = UMF_PLACE_INIT;
    EXPECT_EQ(umfPlaceOf(gone + page, &place), OK);
    EXPECT_EQ(place.is_reachable, 0);
    munmap(gone, page);
}

TEST_F(Copy, a_hole_in_unknown_memory_is_found) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), size = 40 * page;
    Bytes other(size);
    char *memory = static_cast<char *>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(memory, 'm', size);
    EXPECT_EQ(umfCopy(other.data(), memory, size, nullptr), OK);
    munmap(memory + 17 * page, page);
    EXPECT_EQ(umfCopy(memory, other.data(), size, nullptr), BAD);
    EXPECT_EQ(umfCopy(other.data(), memory + 5, size - 9, nullptr), BAD);
    EXPECT_EQ(umfCopy(other.data(), memory + 18 * page, 22 * page, nullptr), OK);
    munmap(memory, size);
}

// Its provider does not report whether the CPU can access it.
TEST_F(Copy, protected_memory_of_a_provider_is_refused) {
    for (const char *protection : {"none", "read"}) {
        umf_memory_pool_handle_t pool = nullptr;
        std::string text = std::string("proxy over os:protection=") + protection;
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pool), OK);
        char a[100000] = "a", *ptr = static_cast<char *>(umfPoolMalloc(pool, sizeof(a)));
        ASSERT_NE(ptr, nullptr);
        for (size_t size : {size_t{1}, sizeof(a)}) {
            EXPECT_EQ(umfCopy(ptr, a, size, nullptr), NONE);
            EXPECT_EQ(umfFill(ptr, a, 1, size, nullptr), NONE);
            bool can_read = protection == std::string("read");
            EXPECT_EQ(umfCopy(a, ptr, size, nullptr), can_read ? OK : NONE);
            EXPECT_EQ(a[0], can_read ? 0 : 'a');
        }
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

TEST_F(Copy, bad_rows_are_refused) {
    char a[256] = "", b[256] = "b";
    umf_copy_rows_t good = UMF_COPY_ROWS_INIT;
    good.to = a;
    good.from = b;
    good.to_pitch = good.from_pitch = 16;
    good.size = 10;
    good.count = 4;
    EXPECT_EQ(umfCopyRows(&good, nullptr), OK);
    umf_copy_rows_t rows = good;
    rows.to_pitch = 9;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.from_pitch = 9;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.from_pitch = SIZE_MAX - 15; // a negative one
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.count = SIZE_MAX;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.from = a + 20; // between rows of the other side
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.to_pitch = 64;
    rows.from = a + 80; // likewise, behind a length of its own
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows.to_pitch = 16;
    rows.from_pitch = 40; // longer than the other operand, and behind it
    EXPECT_EQ(umfCopyRows(&rows, nullptr), OK);
    rows = good;
    rows.to = nullptr;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.struct_size = 0;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), BAD);
    rows = good;
    rows.count = 0;
    rows.to = nullptr;
    EXPECT_EQ(umfCopyRows(&rows, nullptr), OK);
}

} // namespace
