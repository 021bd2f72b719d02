/*
 * The checksum of handles, written a second time from its description (src/system/checksum.h):
 * forgers can do that, and so a change of the format does not go unnoticed.
 */
#ifndef UMF_TEST_FAKES_SUM_H
#define UMF_TEST_FAKES_SUM_H

#include <cstddef>
#include <cstdint>
#include <cstring>

inline uint64_t sum_mix(uint64_t v) {
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

inline uint64_t sum_of(const unsigned char *bytes, size_t size) {
    uint64_t lanes[4];
    for (size_t i = 0; i < 4; i++) {
        lanes[i] = size + 1 + i;
    }
    for (size_t at = 0; at < (size + 31) / 32 * 32; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, at >= size ? 0 : size - at < 8 ? size - at : 8);
        uint64_t &lane = lanes[at / 8 % 4];
        lane = (lane ^ word) * 0x9e3779b97f4a7c15u;
        lane ^= lane >> 32;
    }
    uint64_t left = sum_mix(lanes[0] ^ sum_mix(lanes[1]));
    return sum_mix(left ^ sum_mix(lanes[2] ^ sum_mix(lanes[3])));
}

/* Of a handle's header, as src/ipc/wire.h describes it. */
inline uint64_t sum_of_header(const unsigned char *handle) {
    uint64_t offset;
    memcpy(&offset, handle + 80, sizeof(offset));
    return sum_of(handle, 80) + sum_mix(offset + 1);
}

#endif
