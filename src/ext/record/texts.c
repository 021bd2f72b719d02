#include <string.h>

#include "ext/record/recording.h"

#define TEXT_HASH 16384u /* entries, as file.c makes them */

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) {
        hash = umf_record_hash(hash ^ (uint8_t)text[i]);
    }
    return hash;
}

static bool is_at(const umf_recording_t *r, uint64_t offset, const char *text, size_t length) {
    return strncmp(r->texts + offset, text, length) == 0 && r->texts[offset + length] == 0;
}

static uint64_t add_locked(umf_recording_t *r, const char *text, size_t length) {
    umf_assert_locked(umf_record_lock());
    uint64_t offset = umf_record_item(r, UMF_RECORD_TEXTS, length + 1);
    if (offset != UINT64_MAX) {
        memcpy(r->texts + offset, text, length); /* the zero is there */
        umf_record_item_done(r, UMF_RECORD_TEXTS, length + 1);
    }
    return offset;
}

/* An entry is the offset. A text that finds the table full is in the section twice. */
uint64_t umf_record_text(umf_recording_t *r, const char *text, size_t length) {
    uint64_t hash = hash_of(text, length), offset = UINT64_MAX;
    _Atomic uint64_t *entry = NULL;
    if (length == 0) {
        return 0;
    }
    umf_lock(umf_record_lock());
    for (uint64_t i = 0; i < TEXT_HASH && offset == UINT64_MAX; i++) {
        entry = &r->text_hash[(hash + i) % TEXT_HASH];
        if (*entry == 0) {
            offset = add_locked(r, text, length);
            *entry = offset != UINT64_MAX ? offset : 0;
            break;
        }
        offset = is_at(r, *entry, text, length) ? *entry : UINT64_MAX;
    }
    umf_unlock(umf_record_lock());
    return offset;
}
