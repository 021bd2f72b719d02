/* Memory within a budget, and the table in it. */
#include <elf.h>
#include <string.h>
#include <time.h>

#include "view/own.h"

#define HEADERS_MAX 64  /* of a program */
#define NOTES_MAX 16384 /* bytes */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool umf_view_is_out(umf_view_source_t *source) {
    source->left = now_ns() >= source->end ? 0 : source->left;
    return source->left == 0;
}

/* Reading costs a call, so small reads count more than their bytes. */
bool umf_view_get(umf_view_source_t *source, uint64_t at, void *to, size_t size) {
    uint64_t cost = size + 256;
    if (umf_view_is_out(source) || source->left < cost || at > UINT64_MAX - size) {
        source->left = source->left < cost ? 0 : source->left;
        return false;
    }
    source->left -= cost;
    return source->read(source->arg, at, to, size);
}

/* --- the note --------------------------------------------------------------------------------- */

/* The content of the note in a segment of notes; 0: there is none. */
static uint64_t note_find(umf_view_source_t *source, uint64_t at, uint64_t size) {
    static const char name[] = UMF_VIEW_NOTE;
    unsigned char bytes[NOTES_MAX];
    Elf64_Nhdr note;
    if (size > sizeof(bytes) || !umf_view_get(source, at, bytes, (size_t)size)) {
        return 0;
    }
    for (uint64_t from = 0; size - from >= sizeof(note) + sizeof(name) + 4;) {
        memcpy(&note, bytes + from, sizeof(note));
        from += sizeof(note);
        if (note.n_type == UMF_VIEW_NOTE_TYPE && note.n_namesz == sizeof(name) &&
            note.n_descsz == 4 && memcmp(bytes + from, name, sizeof(name)) == 0) {
            return at + from + sizeof(name);
        }
        uint64_t rest =
            ((uint64_t)note.n_namesz + 3) / 4 * 4 + ((uint64_t)note.n_descsz + 3) / 4 * 4;
        if (rest > size - from) {
            return 0;
        }
        from += rest;
    }
    return 0;
}

static uint64_t table_of(umf_view_source_t *source, uint64_t content) {
    int32_t distance;
    return content && umf_view_get(source, content, &distance, sizeof(distance))
               ? content + (uint64_t)(int64_t)distance
               : 0;
}

/* The object is mapped from its beginning at `base`: that of the segment which has offset 0. */
uint64_t umf_view_find(umf_view_source_t *source, uint64_t base) {
    Elf64_Ehdr head;
    Elf64_Phdr segments[HEADERS_MAX];
    if (!umf_view_get(source, base, &head, sizeof(head)) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(segments[0]) || head.e_phnum > HEADERS_MAX ||
        head.e_phoff > PAGE ||
        !umf_view_get(source, base + head.e_phoff, segments, head.e_phnum * sizeof(segments[0]))) {
        return 0;
    }
    uint64_t first = 0, content = 0;
    for (unsigned i = head.e_phnum; i-- > 0;) {
        first = segments[i].p_type == PT_LOAD && segments[i].p_offset == 0 ? segments[i].p_vaddr
                                                                           : first;
    }
    for (unsigned i = 0; i < head.e_phnum && content == 0; i++) {
        if (segments[i].p_type == PT_NOTE) {
            content = note_find(source, base - first + segments[i].p_vaddr, segments[i].p_filesz);
        }
    }
    return table_of(source, content);
}
