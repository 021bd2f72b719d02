/*
 * What tests of shared memory write into it and look for, and what they count.
 */
#ifndef UMF_TEST_FAKES_CONTENT_H
#define UMF_TEST_FAKES_CONTENT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

// The bytes of a handle, or of memory.
using Bytes = std::vector<unsigned char>;

// Bytes of any seed: bits 13 to 20 of a product, so they repeat after 2^21, and are computed once.
// Memory is written and compared in pieces: a sanitizer would look at each access of a loop.
struct Pattern {
    unsigned char bytes[size_t{1} << 21];

    __attribute__((no_sanitize("address"), no_sanitize("thread"))) Pattern() {
        for (uint64_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
        }
    }
};

// A piece of the pattern, of at most `*length` bytes.
inline const unsigned char *pattern_from(uint64_t seed, size_t *length) {
    static const Pattern pattern;
    const size_t at = seed % sizeof(pattern.bytes);
    *length = std::min(*length, sizeof(pattern.bytes) - at);
    return &pattern.bytes[at];
}

inline void fill(void *ptr, size_t size, uint64_t seed) {
    for (size_t done = 0, length; done < size; done += length) {
        length = size - done;
        const unsigned char *piece = pattern_from(seed + done, &length);
        memcpy(static_cast<char *>(ptr) + done, piece, length);
    }
}

inline bool is_filled(const void *ptr, size_t size, uint64_t seed) {
    for (size_t done = 0, length; done < size; done += length) {
        length = size - done;
        const unsigned char *piece = pattern_from(seed + done, &length);
        if (memcmp(static_cast<const char *>(ptr) + done, piece, length) != 0) {
            return false;
        }
    }
    return true;
}

// At once, for the same reason.
inline bool are_all(const char *bytes, size_t size, char value) {
    return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

// Private ones come and go with metadata.
inline size_t count_shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("s ") == line.find(' ') + 4; // the last letter of "rw-s"
    }
    return count;
}

#endif
