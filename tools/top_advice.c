/* The sentence about the chosen pool. */
#include <stdio.h>

#include "top.h"

#define ADVICE_FROM ((uint64_t)1 << 20) /* bytes that are not used */

void top_advice(const top_row_t *row, char *text, size_t size) {
    const umf_record_object_t *pool = &row->object;
    bool is_known = pool->kind == UMF_RECORD_OBJECT_POOL && pool->live != UMF_RECORD_UNKNOWN &&
                    pool->held != UMF_RECORD_UNKNOWN;
    bool is_asleep = pool->flags & UMF_RECORD_OBJECT_IS_ASLEEP;
    uint64_t unused = is_known && pool->held > pool->live ? pool->held - pool->live : 0;
    char bytes[16];
    text[0] = '\0';
    if (!is_known || is_asleep) {
        return;
    } else if (unused >= ADVICE_FROM && pool->live == 0) {
        snprintf(text, size, "   nothing lives in %s: t returns it",
                 top_bytes(unused, bytes, sizeof(bytes)));
    } else if (row->has_growth && row->growth > 0) {
        snprintf(text, size, "   it grows: c shows who allocates");
    } else if (unused >= ADVICE_FROM && unused > pool->live) {
        snprintf(text, size, "   %s not live: enter shows the pieces",
                 top_bytes(unused, bytes, sizeof(bytes)));
    }
}
