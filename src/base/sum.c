#include "base/sum.h"

#include <string.h>

uint64_t umf_sum(const void *data, size_t size) {
    const char *bytes = data;
    uint64_t sum = UINT64_C(0xcbf29ce484222325) + size;
    while (size) {
        uint64_t word = 0;
        size_t length = size < sizeof(word) ? size : sizeof(word);
        memcpy(&word, bytes, length);
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 29;
        bytes += length;
        size -= length;
    }
    return sum;
}
