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

// Memory is written and compared in pieces: a sanitizer would look at each access of a loop.
struct Pattern {
    unsigned char bytes[4096];

    __attribute__((no_sanitize("address"), no_sanitize("thread"))) explicit Pattern(uint64_t seed) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
        }
    }
};

inline void fill(void *ptr, size_t size, uint64_t seed) {
    for (size_t done = 0; done < size; done += sizeof(Pattern)) {
        const Pattern piece(seed + done);
        memcpy(static_cast<char *>(ptr) + done, piece.bytes, std::min(sizeof(piece), size - done));
    }
}

inline bool is_filled(const void *ptr, size_t size, uint64_t seed) {
    for (size_t done = 0; done < size; done += sizeof(Pattern)) {
        const Pattern piece(seed + done);
        const size_t length = std::min(sizeof(piece), size - done);
        if (memcmp(static_cast<const char *>(ptr) + done, piece.bytes, length) != 0) {
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
