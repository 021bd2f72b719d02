/*
 * Handles by an attacker who has the format of src/ipc/wire.h, written again, so that a
 * test of the whole library does not need its inside.
 */
#ifndef UMF_TEST_FAKES_FORGED_H
#define UMF_TEST_FAKES_FORGED_H

#include <cstdint>
#include <cstring>

#include "fakes/content.h"
#include "fakes/sum.h"

constexpr size_t handle_header = 96; // bytes in front of the provider's own

template <class T> T field(const Bytes &handle, size_t at) {
    T value;
    memcpy(&value, handle.data() + at, sizeof(value));
    return value;
}

// A handle with one field changed and right checksums.
template <class T> Bytes forged(Bytes handle, size_t at, T value) {
    memcpy(handle.data() + at, &value, sizeof(value));
    uint64_t data = sum_of(handle.data() + handle_header, handle.size() - handle_header);
    memcpy(handle.data() + 72, &data, sizeof(data));
    uint64_t header = sum_of_header(handle.data());
    memcpy(handle.data() + 88, &header, sizeof(header));
    return handle;
}

#endif
