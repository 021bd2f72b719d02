// The bytes of IPC handles: written handles are read back, damaged ones are refused.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "ipc/wire.h"
#include "system/checksum.h"
}
#include "fakes/sum.h"

namespace {

constexpr size_t data_limit = 512;

umf_wire_t sample() {
    umf_wire_t wire = {};
    wire.kind = 0x1122334455667788u;
    wire.boot_id = 0x99aabbccddeeff00u;
    wire.start_time = 123456;
    wire.base = 0x7f0000001000u;
    wire.size = 0x10000;
    wire.export_id = 42;
    wire.offset = 0x123;
    wire.pid = 4711;
    wire.pid_ns = 0xf0000001u;
    wire.data_size = 61;
    return wire;
}

std::vector<unsigned char> packed(const umf_wire_t &wire) {
    size_t size = 0;
    EXPECT_TRUE(umf_wire_size(wire.data_size, &size));
    std::vector<unsigned char> handle(size, 0xcc);
    for (size_t i = 0; i < wire.data_size; i++) {
        handle[UMF_WIRE_HEADER + i] = static_cast<unsigned char>(i * 7);
    }
    umf_wire_pack(&wire, handle.data());
    return handle;
}

// As the consumer does it: header first, then the data, if it would be in the buffer at all.
umf_result_t check(const std::vector<unsigned char> &handle, umf_wire_t *wire) {
    umf_result_t result = umf_wire_check(handle.data(), data_limit, wire);
    if (result == UMF_RESULT_SUCCESS) {
        if (UMF_WIRE_HEADER + wire->data_size > handle.size()) {
            ADD_FAILURE() << "a wrong length was accepted";
            return UMF_RESULT_SUCCESS;
        }
        result = umf_wire_check_data(wire, handle.data() + UMF_WIRE_HEADER);
    }
    return result;
}

TEST(Wire, ReadsBackWhatWasWritten) {
    umf_wire_t in = sample(), out = {};
    ASSERT_EQ(check(packed(in), &out), UMF_RESULT_SUCCESS);
    EXPECT_EQ(out.kind, in.kind);
    EXPECT_EQ(out.boot_id, in.boot_id);
    EXPECT_EQ(out.start_time, in.start_time);
    EXPECT_EQ(out.base, in.base);
    EXPECT_EQ(out.size, in.size);
    EXPECT_EQ(out.export_id, in.export_id);
    EXPECT_EQ(out.offset, in.offset);
    EXPECT_EQ(out.pid, in.pid);
    EXPECT_EQ(out.pid_ns, in.pid_ns);
    EXPECT_EQ(out.data_size, in.data_size);
}

TEST(Wire, WritesEveryByteOfTheHeaderInLittleEndian) {
    std::vector<unsigned char> one = packed(sample()), two(one.size(), 0x33);
    memcpy(two.data() + UMF_WIRE_HEADER, one.data() + UMF_WIRE_HEADER,
           one.size() - UMF_WIRE_HEADER);
    umf_wire_t wire = sample();
    umf_wire_pack(&wire, two.data());
    EXPECT_EQ(one, two);
    EXPECT_EQ(memcmp(one.data(), "UMFH", 4), 0);
    const unsigned char pid[] = {0x67, 0x12, 0, 0}, id[] = {42, 0, 0, 0, 0, 0, 0, 0};
    EXPECT_EQ(memcmp(one.data() + 12, pid, sizeof(pid)), 0);
    EXPECT_EQ(memcmp(one.data() + 56, id, sizeof(id)), 0);
}

TEST(Wire, NeedsNoAlignment) {
    std::vector<unsigned char> handle = packed(sample()), shifted(handle.size() + 1);
    memcpy(shifted.data() + 1, handle.data(), handle.size());
    umf_wire_t wire;
    EXPECT_EQ(umf_wire_check(shifted.data() + 1, data_limit, &wire), UMF_RESULT_SUCCESS);
}

TEST(Wire, RefusesEverySingleBitFlip) {
    const std::vector<unsigned char> good = packed(sample());
    for (size_t bit = 0; bit < good.size() * 8; bit++) {
        std::vector<unsigned char> bad = good;
        bad[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        umf_wire_t wire;
        EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
    }
}

TEST(Wire, RefusesEveryTruncation) {
    const std::vector<unsigned char> good = packed(sample());
    for (int filler : {0x00, 0xff, 0xa5}) {
        for (size_t kept = 0; kept < good.size(); kept++) {
            std::vector<unsigned char> bad = good;
            memset(bad.data() + kept, filler, bad.size() - kept);
            if (bad == good) {
                continue; // the lost bytes were just like that
            }
            umf_wire_t wire;
            EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT)
                << kept << " bytes kept, then " << filler;
        }
    }
}

TEST(Wire, RefusesEveryShiftAndSwap) {
    const std::vector<unsigned char> good = packed(sample());
    for (size_t by = 1; by < good.size(); by++) {
        std::vector<unsigned char> bad(good.size());
        for (size_t i = 0; i < good.size(); i++) {
            bad[(i + by) % good.size()] = good[i];
        }
        umf_wire_t wire;
        EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "by " << by;
    }
    for (size_t i = 0; i + 8 < good.size(); i++) {
        std::vector<unsigned char> bad = good;
        std::swap(bad[i], bad[i + 8]);
        umf_wire_t wire;
        if (bad != good) {
            EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "at " << i;
        }
    }
}

TEST(Wire, RefusesWordsInAnotherOrder) {
    const std::vector<unsigned char> good = packed(sample());
    for (size_t a = 0; a + 8 <= good.size(); a += 8) {
        for (size_t b = a + 8; b + 8 <= good.size(); b += 8) {
            std::vector<unsigned char> bad = good;
            std::swap_ranges(bad.begin() + static_cast<long>(a),
                             bad.begin() + static_cast<long>(a) + 8,
                             bad.begin() + static_cast<long>(b));
            umf_wire_t wire;
            if (bad != good) {
                EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << a << ", " << b;
            }
        }
    }
}

TEST(Sum, IsAsDescribed) {
    std::mt19937_64 random(2);
    std::vector<unsigned char> bytes(200);
    for (unsigned char &byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    for (size_t size = 0; size < bytes.size(); size++) {
        EXPECT_EQ(umf_sum(bytes.data(), size), sum_of(bytes.data(), size)) << size;
    }
}

TEST(Sum, NoticesChangesOfTwoWords) {
    std::vector<unsigned char> zeros(80), bytes;
    const uint64_t sum = umf_sum(zeros.data(), zeros.size());
    for (size_t a = 0; a < zeros.size() * 8; a++) {
        for (size_t b = a + 1; b < zeros.size() * 8; b++) {
            bytes = zeros;
            bytes[a / 8] = static_cast<unsigned char>(1u << a % 8);
            bytes[b / 8] = static_cast<unsigned char>(bytes[b / 8] | 1u << b % 8);
            ASSERT_NE(umf_sum(bytes.data(), bytes.size()), sum) << a << ", " << b;
        }
    }
}

TEST(Wire, RefusesRandomBytes) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 20000; round++) {
        std::vector<unsigned char> bad = packed(sample());
        // From wholly random to a right beginning with a random rest.
        for (size_t i = static_cast<size_t>(round % 97); i < bad.size(); i++) {
            bad[i] = static_cast<unsigned char>(random());
        }
        umf_wire_t wire;
        EXPECT_EQ(check(bad, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "round " << round;
    }
}

// Checksums are right in all of these: they were made on purpose.
TEST(Wire, RefusesImpossibleContentWithRightChecksums) {
    struct {
        const char *what;
        void (*spoil)(umf_wire_t *wire);
    } const cases[] = {
        {"offset at the end", [](umf_wire_t *w) { w->offset = w->size; }},
        {"offset far behind", [](umf_wire_t *w) { w->offset = UINT64_MAX; }},
        {"no size", [](umf_wire_t *w) { w->size = w->offset = 0; }},
        {"size beyond the address space", [](umf_wire_t *w) { w->size = UINT64_MAX; }},
        {"size beyond half the address space", [](umf_wire_t *w) { w->size = uint64_t(1) << 63; }},
        {"base + size wraps", [](umf_wire_t *w) { w->base = UINT64_MAX - w->size + 1; }},
        {"no base", [](umf_wire_t *w) { w->base = 0; }},
        {"no process", [](umf_wire_t *w) { w->pid = 0; }},
        {"no export", [](umf_wire_t *w) { w->export_id = 0; }},
        {"more data than allowed", [](umf_wire_t *w) { w->data_size = data_limit + 1; }},
    };
    for (const auto &c : cases) {
        umf_wire_t wire = sample(), out;
        c.spoil(&wire);
        EXPECT_EQ(check(packed(wire), &out), UMF_RESULT_ERROR_INVALID_ARGUMENT) << c.what;
    }
}

TEST(Wire, RefusesOtherVersionsAndLengthsWithRightChecksums) {
    struct {
        const char *what;
        size_t at;
        unsigned char byte;
    } const cases[] = {{"version", 4, UMF_WIRE_VERSION + 1},
                       {"header length", 6, 104},
                       {"total length", 8, 1},
                       {"longer total", 8, 200},
                       {"data length", 68, 60}};
    for (const auto &c : cases) {
        std::vector<unsigned char> handle = packed(sample());
        handle[c.at] = c.byte;
        umf_wire_set_offset(handle.data(), umf_wire_fixed_sum(handle.data()), sample().offset);
        umf_wire_t wire;
        EXPECT_EQ(check(handle, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT) << c.what;
    }
}

TEST(Wire, KeepsTheOutputOnFailure) {
    std::vector<unsigned char> handle = packed(sample());
    handle[20] ^= 1;
    umf_wire_t wire, before;
    memset(&wire, 0x77, sizeof(wire));
    memset(&before, 0x77, sizeof(before));
    EXPECT_EQ(umf_wire_check(handle.data(), data_limit, &wire), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(memcmp(&wire, &before, sizeof(wire)), 0);
}

TEST(Wire, ChangesTheOffsetAlone) {
    std::vector<unsigned char> handle = packed(sample());
    uint64_t sum = umf_wire_fixed_sum(handle.data());
    umf_wire_set_offset(handle.data(), sum, 77);
    umf_wire_t other = sample();
    other.offset = 77;
    EXPECT_EQ(handle, packed(other));
    uint64_t offset = 0;
    EXPECT_TRUE(umf_wire_get_offset(handle.data(), sum, &offset));
    EXPECT_EQ(offset, 77u);
    handle[80] ^= 4;
    EXPECT_FALSE(umf_wire_get_offset(handle.data(), sum, &offset));
}

TEST(Wire, ComputesSizes) {
    size_t size = 0;
    EXPECT_TRUE(umf_wire_size(0, &size));
    EXPECT_EQ(size, size_t{UMF_WIRE_HEADER});
    EXPECT_TRUE(umf_wire_size(100, &size));
    EXPECT_EQ(size, size_t{UMF_WIRE_HEADER} + 100);
    EXPECT_FALSE(umf_wire_size(SIZE_MAX, &size));
    EXPECT_FALSE(umf_wire_size(SIZE_MAX - UMF_WIRE_HEADER + 1, &size));
    EXPECT_FALSE(umf_wire_size(UINT32_MAX, &size));
}

TEST(Wire, AcceptsNoData) {
    umf_wire_t wire = sample(), out;
    wire.data_size = 0;
    EXPECT_EQ(check(packed(wire), &out), UMF_RESULT_SUCCESS);
}

// Memory of a device is summed by chunks (ext/vault/verify.c).
TEST(Wire, SumsPartsAsTheWhole) {
    std::vector<unsigned char> bytes(1000);
    for (size_t i = 0; i < bytes.size(); i++) {
        bytes[i] = static_cast<unsigned char>(i * i / 3);
    }
    for (size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{96}, size_t{97}, size_t{1000}}) {
        umf_sum_t sum;
        umf_sum_begin(&sum, size);
        for (size_t at = 0; at < size; at += 96) {
            umf_sum_add(&sum, &bytes[at], std::min(size - at, size_t{96}));
        }
        EXPECT_EQ(umf_sum_end(&sum), umf_sum(bytes.data(), size)) << size;
        EXPECT_EQ(umf_sum_end(&sum), sum_of(bytes.data(), size)) << size;
    }
}

TEST(Wire, HashesNames) {
    EXPECT_NE(umf_wire_name_hash(""), 0u);
    EXPECT_NE(umf_wire_name_hash("os"), umf_wire_name_hash("so"));
    EXPECT_EQ(umf_wire_name_hash("a"), 0xaf63dc4c8601ec8cu); // FNV-1a, published value
}

} // namespace
