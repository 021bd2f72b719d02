// The bytes of descriptions, as literals: programs of two builds exchange them, so a change needs a
// new version.
#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "handle_bytes_shim.h"

namespace {

std::string hex(const unsigned char *bytes, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; i++) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

/* The fixed fields are `golden`; `text` follows, and zeros up to `size`. */
void expect_bytes(const unsigned char *data, size_t size, const std::string &golden,
                  const std::string &text, size_t expected_size) {
    ASSERT_EQ(size, expected_size);
    size_t fixed = golden.size() / 2;
    EXPECT_EQ(hex(data, fixed), golden);
    std::string rest(reinterpret_cast<const char *>(data) + fixed, size - fixed);
    EXPECT_EQ(rest, text + std::string(size - fixed - text.size(), '\0'));
}

TEST(HandleBytes, OfTheOsProvider) {
    unsigned char data[SHIM_ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = shim_write_os("memory", data);
    expect_bytes(data, size,
                 "0107060504030201181716151413121128272625242322213837363534333231403f3e3d3c3b3a39"
                 "44434241484746455453525103005857686766656463626178777675747372718887868584838281"
                 "9897969594939291a8a7a6a5a4a3a2a1c47ba7ec2eba2724a9b99680f68eb5af0000100000000000"
                 "0000230000000000b8b7b6b5b4b3b2b1040100000000100006000000020000000600000000000000",
                 "memory", 160 + 254);
    memset(data, 0xcc, sizeof(data));
    size = shim_write_os("", data);
    expect_bytes(data, size,
                 "0107060504030201181716151413121128272625242322213837363534333231403f3e3d3c3b3a39"
                 "44434241484746455453525103005857686766656463626178777675747372718887868584838281"
                 "9897969594939291a8a7a6a5a4a3a2a14d3d56f832e80a3700000000000000000000100000000000"
                 "0000230000000000b8b7b6b5b4b3b2b1040100000000100006000000020000000000000000000000",
                 "", 160 + 254);
}

TEST(HandleBytes, OfVirtualMemory) {
    unsigned char data[SHIM_ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = shim_write_vmm(data);
    expect_bytes(data, size,
                 "554d4656040003022ad38b49b4a693df020706050403020118171615141312112827262524232221"
                 "3837363534333231403f3e3d3c3b3a39444342414847464554535251030058576867666564636261"
                 "787776757473727188878685848382819897969594939291a8a7a6a5a4a3a2a10307060504030201"
                 "181716151413121128272625242322213837363534333231403f3e3d3c3b3a394443424148474645"
                 "54535251030058576867666564636261787776757473727188878685848382819897969594939291"
                 "a8a7a6a5a4a3a2a10000400000000000000020000000000000001000000000000000010000000000"
                 "c8c7c6c5c4c3c2c1d4d3d2d1e4e3e2e10102030405060708090a0b0c0d0e0f101112131415161718"
                 "191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40"
                 "f8f7f6f5f4f3f2f1",
                 "", 328);
}

TEST(HandleBytes, OfMemoryAtAPath) {
    unsigned char data[SHIM_ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = shim_write_locator("/dev/dax0.0", data);
    expect_bytes(data, size,
                 "554d465001000200500100000b0000007357b99b53b3e0acc10bbbfe068ed3a02827262524232221"
                 "38373635343332310000300000000000563412000000000000002000000000000200000002000000",
                 "/dev/dax0.0", 80 + 256);
}

} // namespace
