/* Compiled with the library's sources, for umf-bench-lines --check. */
#include "lines.h"

#include <string.h>

void lines_check_write(int *value) {
    *value = 1;
}

int lines_check_read(const int *value) {
    return *value;
}

void lines_check_add(int *value) {
    __atomic_fetch_add(value, 1, __ATOMIC_RELAXED);
}

void lines_check_copy(void *to, const void *from, size_t size) {
    memcpy(to, from, size);
}
