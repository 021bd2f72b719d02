/* Bytes that a thread of this process copies for a peer. The peer sees them and answers the test by
   a socket: this orders the copy before the next access here, through another process, which
   ThreadSanitizer does not see. Tests access such bytes by these functions, which it does not
   follow. */
#ifndef UMF_TEST_FAKES_SHARED_BYTES_H
#define UMF_TEST_FAKES_SHARED_BYTES_H

#include <cstddef>
#include <string>

#define NOT_FOLLOWED __attribute__((no_sanitize("thread"), noinline)) // by ThreadSanitizer

// Bytes are volatile: a compiler makes no memcpy or memset of the loops, which would be followed.
NOT_FOLLOWED inline void write_shared(void *to, const void *from, size_t size) {
    auto *bytes = static_cast<volatile char *>(to);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = static_cast<const volatile char *>(from)[i];
    }
}

NOT_FOLLOWED inline void fill_shared(void *to, char value, size_t size) {
    auto *bytes = static_cast<volatile char *>(to);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = value;
    }
}

inline std::string read_shared(const void *from, size_t size) {
    std::string bytes(size, '\0');
    write_shared(&bytes[0], from, size);
    return bytes;
}

#endif
