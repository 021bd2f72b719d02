/*
 * Handles by somebody who knows the format: what src/ipc/wire.h describes, written again, so that a
 * test of the whole library does not need its inside.
 */
#ifndef UMF_TEST_FAKES_FORGED_H
#define UMF_TEST_FAKES_FORGED_H

#include <cstdint>
#include <cstring>

#include "fakes/content.h"

constexpr size_t handle_header = 96; // bytes in front of the provider's own

inline uint64_t handle_mix(uint64_t v) {
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

inline uint64_t handle_sum(const unsigned char *bytes, size_t size) {
    uint64_t h = handle_mix(size + 1);
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
        h = handle_mix(h ^ word);
    }
    return h;
}

template <class T> T field(const Bytes &handle, size_t at) {
    T value;
    memcpy(&value, handle.data() + at, sizeof(value));
    return value;
}

// A handle with one field changed and right checksums.
template <class T> Bytes forged(Bytes handle, size_t at, T value) {
    memcpy(handle.data() + at, &value, sizeof(value));
    uint64_t data = handle_sum(handle.data() + handle_header, handle.size() - handle_header);
    memcpy(handle.data() + 72, &data, sizeof(data));
    uint64_t header = handle_sum(handle.data(), 80) + handle_mix(field<uint64_t>(handle, 80) + 1);
    memcpy(handle.data() + 88, &header, sizeof(header));
    return handle;
}

#endif
