// The bytes of descriptions, as literals: programs of two builds exchange them, so a change needs a
// new version.
#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

extern "C" {
#include "providers/file/locator.h"
#include "providers/os/handle.h"
#include "providers/vmm/handle.h"
#include "providers/vmm/own.h"
}

namespace {

constexpr size_t ROOM = 1024;

// Each writes to a buffer of ROOM bytes and returns the size of the description.

umf_fd_ticket_t ticket_of(uint8_t first) {
    umf_fd_ticket_t ticket = {};
    ticket.boot_id = 0x0102030405060700 + first;
    ticket.start_time = 0x1112131415161718;
    ticket.dev = 0x2122232425262728;
    ticket.ino = 0x3132333435363738;
    ticket.born = 0x393a3b3c3d3e3f40;
    ticket.pid = 0x41424344;
    ticket.pid_ns = 0x45464748;
    ticket.fd = 0x51525354;
    ticket.version = UMF_TICKET_VERSION;
    ticket.address_kind = 0x5758;
    ticket.broker[0] = 0x6162636465666768;
    ticket.broker[1] = 0x7172737475767778;
    ticket.secret[0] = 0x8182838485868788;
    ticket.secret[1] = 0x9192939495969798;
    ticket.export_id = 0xa1a2a3a4a5a6a7a8;
    return ticket;
}

size_t write_os(const char *name, void *data) {
    umf_os_handle_t handle = {};
    handle.ticket = ticket_of(1);
    handle.offset = 0x0000000000100000;
    handle.size = 0x0000000000230000;
    handle.generation = 0xb1b2b3b4b5b6b7b8;
    handle.slot = 0x00000104;
    handle.header_size = 0x00100000;
    handle.protection = UMF_PROTECTION_READ | UMF_PROTECTION_WRITE;
    handle.visibility = UMF_MEM_MAP_SHARED;
    handle.name_length = static_cast<uint32_t>(strlen(name));
    umf_os_handle_write(&handle, name, data);
    return UMF_OS_HANDLE_SIZE;
}

size_t write_vmm(void *data) {
    umf_vmm_backend_t ops = {};
    ops.kind = 0x0203;
    umf_vmm_t vmm = {};
    vmm.ops = &ops;
    umf_vmm_handle_t handle = {};
    handle.piece = ticket_of(2);
    handle.board = ticket_of(3);
    handle.piece_size = 0x0000000000400000;
    handle.offset = 0x0000000000200000;
    handle.size = 0x0000000000100000;
    handle.granule = 0x0000000000010000;
    handle.generation = 0xc1c2c3c4c5c6c7c8;
    handle.word = 0xd1d2d3d4;
    handle.maker = 0xe1e2e3e4;
    handle.piece_id = 0xf1f2f3f4f5f6f7f8;
    for (size_t i = 0; i < sizeof(handle.token); i++) {
        handle.token[i] = static_cast<unsigned char>(i + 1);
    }
    umf_vmm_handle_write(&vmm, &handle, data);
    return sizeof(handle);
}

size_t write_locator(const char *path, void *data) {
    umf_locator_t locator = {};
    locator.kind = UMF_LOCATOR_DEVICE;
    locator.dev = 0x2122232425262728;
    locator.ino = 0x3132333435363738;
    locator.offset = 0x0000000000300000;
    locator.size = 0x0000000000123456;
    locator.granule = 0x0000000000200000;
    locator.protection = UMF_PROTECTION_READ;
    locator.visibility = UMF_MEM_MAP_SHARED;
    umf_locator_write(&locator, path, data);
    return umf_locator_size(path);
}

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
    unsigned char data[ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = write_os("memory", data);
    expect_bytes(data, size,
                 "0107060504030201181716151413121128272625242322213837363534333231403f3e3d3c3b3a39"
                 "44434241484746455453525103005857686766656463626178777675747372718887868584838281"
                 "9897969594939291a8a7a6a5a4a3a2a1c47ba7ec2eba2724a9b99680f68eb5af0000100000000000"
                 "0000230000000000b8b7b6b5b4b3b2b1040100000000100006000000020000000600000000000000",
                 "memory", 160 + 254);
    memset(data, 0xcc, sizeof(data));
    size = write_os("", data);
    expect_bytes(data, size,
                 "0107060504030201181716151413121128272625242322213837363534333231403f3e3d3c3b3a39"
                 "44434241484746455453525103005857686766656463626178777675747372718887868584838281"
                 "9897969594939291a8a7a6a5a4a3a2a14d3d56f832e80a3700000000000000000000100000000000"
                 "0000230000000000b8b7b6b5b4b3b2b1040100000000100006000000020000000000000000000000",
                 "", 160 + 254);
}

TEST(HandleBytes, OfVirtualMemory) {
    unsigned char data[ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = write_vmm(data);
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
    unsigned char data[ROOM];
    memset(data, 0xcc, sizeof(data));
    size_t size = write_locator("/dev/dax0.0", data);
    expect_bytes(data, size,
                 "554d465001000200500100000b0000007357b99b53b3e0acc10bbbfe068ed3a02827262524232221"
                 "38373635343332310000300000000000563412000000000000002000000000000200000002000000",
                 "/dev/dax0.0", 80 + 256);
}

} // namespace
