/* Names of code in a file: they are read, and written at its end. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own.h"

#define ALIGNMENT 64u
#define TEXT_BYTES_MOST (1u << 30)

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_whole(const umf_reader_t *reader, const umf_record_names_t *head, uint64_t offset) {
    uint64_t size = reader->source.size;
    if (offset % ALIGNMENT != 0 || offset < sizeof(reader->header) || offset > size ||
        size - offset < sizeof(*head) || head->item_size != sizeof(umf_record_name_t)) {
        return false;
    }
    uint64_t rest = size - offset - sizeof(*head);
    return head->count <= rest / sizeof(umf_record_name_t) && head->text_bytes <= TEXT_BYTES_MOST &&
           head->text_bytes <= rest - head->count * sizeof(umf_record_name_t);
}

static bool check_items(umf_reader_t *reader) {
    uint64_t last = 0, bytes = reader->name_text_bytes;
    for (size_t i = 0; i < reader->name_count; i++) {
        umf_record_name_t *name = &reader->names[i];
        if (name->address < last) {
            return false;
        }
        last = name->address;
        name->function = name->function < bytes ? name->function : 0;
        name->source = name->source < bytes ? name->source : 0;
    }
    return true;
}

bool reader_load_names(umf_reader_t *reader, umf_reader_error_t *error) {
    umf_record_names_t head;
    uint64_t offset = reader->header.names;
    if (offset == 0) {
        return true;
    }
    reader_read(&reader->source, offset, &head, sizeof(head));
    if (!is_whole(reader, &head, offset)) {
        reader_note(reader, "the names at %" PRIu64 " are damaged or cut off; they are left out",
                    offset);
        return true;
    }
    reader->names = reader_memory(reader, head.count, sizeof(umf_record_name_t), error);
    reader->name_texts =
        reader->names ? reader_memory(reader, head.text_bytes + 1, 1, error) : NULL;
    if (!reader->name_texts) {
        return false;
    }
    size_t bytes = (size_t)head.count * sizeof(umf_record_name_t);
    reader_read(&reader->source, offset + sizeof(head), reader->names, bytes);
    reader_read(&reader->source, offset + sizeof(head) + bytes, reader->name_texts,
                (size_t)head.text_bytes);
    reader->name_count = (size_t)head.count;
    reader->name_text_bytes = head.text_bytes;
    if (!check_items(reader)) {
        reader_note(reader, "the names do not ascend by address; they are left out");
        reader->name_count = 0;
    }
    return true;
}

size_t reader_names_of(const umf_reader_t *reader, uint64_t address,
                       const umf_record_name_t **names) {
    size_t low = 0, high = reader->name_count, count = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reader->names[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *names = reader->names ? reader->names + low : NULL;
    for (; low < reader->name_count && reader->names[low].address == address &&
           count < READER_INLINED_MOST;
         low++) {
        count++;
        if (!(reader->names[low].flags & UMF_RECORD_NAME_IS_INLINED)) {
            break;
        }
    }
    return count;
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct bytes_t {
    char *data;
    size_t size, room;
    bool has_failed;
} bytes_t;

/* Returns the offset of the copy. */
static size_t add(bytes_t *bytes, const void *data, size_t size) {
    size_t at = bytes->size;
    if (size > bytes->room - at) {
        size_t room = 2 * bytes->room + size + 4096;
        char *larger = bytes->has_failed ? NULL : realloc(bytes->data, room);
        if (!larger) {
            bytes->has_failed = true;
            return 0;
        }
        bytes->data = larger;
        bytes->room = room;
    }
    memcpy(bytes->data + at, data, size);
    bytes->size += size;
    return at;
}

typedef struct writing_t {
    bytes_t items, texts;
    uint32_t last[2]; /* texts of the last function and source, which the next often has, too */
    umf_reader_names_t *names;
} writing_t;

static uint32_t add_text(writing_t *writing, const char *text, uint32_t *last) {
    if (!text || !*text || writing->texts.has_failed) {
        return 0;
    } else if (*last == 0 || strcmp(writing->texts.data + *last, text) != 0) {
        size_t at = add(&writing->texts, text, strlen(text) + 1);
        writing->texts.has_failed |= writing->texts.size > TEXT_BYTES_MOST;
        *last = (uint32_t)at;
    }
    return *last;
}

static void add_frame(writing_t *writing, uint64_t address, const umf_reader_frame_t *frame) {
    umf_record_name_t name = {
        .address = address,
        .offset = frame->function ? frame->offset : 0,
        .function = add_text(writing, frame->function, &writing->last[0]),
        .source = add_text(writing, frame->source, &writing->last[1]),
        .line = frame->line,
        .flags = frame->is_inlined ? UMF_RECORD_NAME_IS_INLINED : 0,
    };
    add(&writing->items, &name, sizeof(name));
}

static void add_address(writing_t *writing, umf_reader_t *reader, uint64_t address) {
    const umf_reader_frame_t *frames;
    size_t count = umf_reader_resolve_all(reader, address, &frames);
    bool has_name = frames[count - 1].function != NULL;
    writing->names->addresses++;
    writing->names->functions += has_name;
    writing->names->lines += frames[0].line > 0;
    for (size_t i = 0; has_name && i < count; i++) {
        add_frame(writing, address, &frames[i]);
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool add_all(writing_t *writing, umf_reader_t *reader) {
    size_t room = (size_t)reader->stack_item_count, filled = 0;
    uint64_t *list = reader_memory(reader, room, sizeof(*list), NULL);
    for (uint32_t i = 1; list && i < reader->info.stack_count; i++) {
        const uint64_t *frames;
        size_t depth = umf_reader_stack(reader, i, &frames);
        memcpy(list + filled, frames, depth * sizeof(*frames));
        filled += depth;
    }
    if (list && filled > 0) {
        qsort(list, filled, sizeof(*list), by_value);
    }
    for (size_t i = 0; i < filled; i++) {
        if (list[i] != 0 && (i == 0 || list[i] != list[i - 1])) {
            add_address(writing, reader, list[i]);
        }
    }
    free(list);
    return list && !writing->items.has_failed && !writing->texts.has_failed;
}

static bool write_at(int fd, const void *from, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(fd, (const char *)from + done, size - done, (off_t)(offset + done));
        if (put < 0 && errno != EINTR) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* Until the names are whole the header says that there are none. */
static bool write_names(const writing_t *writing, int fd, uint64_t offset) {
    const size_t member = offsetof(umf_record_header_t, names);
    const uint64_t none = 0;
    umf_record_names_t head = {.count = writing->items.size / sizeof(umf_record_name_t),
                               .text_bytes = writing->texts.size,
                               .item_size = sizeof(umf_record_name_t)};
    uint64_t items = offset + sizeof(head), texts = items + writing->items.size;
    bool is_written = write_at(fd, &none, sizeof(none), member) &&
                      ftruncate(fd, (off_t)offset) == 0 &&
                      write_at(fd, &head, sizeof(head), offset) &&
                      write_at(fd, writing->items.data, writing->items.size, items) &&
                      write_at(fd, writing->texts.data, writing->texts.size, texts);
    int reason = errno;
    if (!is_written && ftruncate(fd, (off_t)offset) != 0) {
        errno = reason;
    }
    return is_written && write_at(fd, &offset, sizeof(offset), member);
}

/* The names of the file are the last part of it, if it has any. */
static uint64_t place_for(const umf_reader_t *reader, uint64_t size) {
    uint64_t old = reader->header.names;
    uint64_t end = old + sizeof(umf_record_names_t) +
                   reader->name_count * sizeof(umf_record_name_t) + reader->name_text_bytes;
    bool is_last = reader->names && old >= reader->header.file_size && end == size;
    return is_last ? old : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool umf_reader_names_write(umf_reader_t *reader, int fd, umf_reader_names_t *names,
                            umf_reader_error_t *error) {
    writing_t writing = {.names = names};
    struct stat file;
    *names = (umf_reader_names_t){0};
    if (fstat(fd, &file) != 0) {
        return reader_fail(error, "%s: %s", reader->name, strerror(errno));
    } else if (reader->info.stack_count == 1) {
        return true;
    } else if ((uint64_t)file.st_size < reader->header.file_size) {
        return reader_fail(error, "%s: the file is cut off, so nothing is added at its end",
                           reader->name);
    }
    reader_resolve_here(reader);
    add(&writing.texts, "", 1);
    bool is_done = add_all(&writing, reader);
    if (!is_done) {
        reader_fail(error, "%s: there is no memory for its names", reader->name);
    } else if (!write_names(&writing, fd, place_for(reader, (uint64_t)file.st_size))) {
        is_done = reader_fail(error, "%s: %s", reader->name, strerror(errno));
    }
    names->bytes = writing.items.size + writing.texts.size + sizeof(umf_record_names_t);
    free(writing.items.data);
    free(writing.texts.data);
    return is_done;
}
