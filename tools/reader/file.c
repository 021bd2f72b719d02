/* Opens a file and copies its content. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own.h"

bool reader_fail(umf_reader_error_t *error, const char *format, ...) {
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
    }
    return false;
}

void reader_note(umf_reader_t *reader, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < NOTES; i++) {
        if (!reader->notes[i]) {
            reader->notes[i] = strdup(text);
            return;
        }
    }
}

const char *umf_reader_note(const umf_reader_t *reader, size_t index) {
    return index < NOTES ? reader->notes[index] : NULL;
}

static size_t read_file(int fd, uint64_t offset, char *to, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, to + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        } else if (got <= 0) {
            break;
        }
        done += (size_t)got;
    }
    return done;
}

size_t reader_read(const reader_source_t *source, uint64_t offset, void *to, size_t size) {
    size_t has = 0;
    if (offset < source->size) {
        has = size < source->size - offset ? size : (size_t)(source->size - offset);
        if (source->bytes) {
            memcpy(to, source->bytes + offset, has);
        } else {
            has = read_file(source->fd, offset, to, has);
        }
    }
    memset((char *)to + has, 0, size - has);
    return has;
}

uint64_t reader_next_data(const reader_source_t *source, uint64_t offset) {
    if (source->bytes || offset >= source->size) {
        return offset;
    }
    off_t next = lseek(source->fd, (off_t)offset, SEEK_DATA);
    return next >= 0 ? (uint64_t)next : errno == ENXIO ? source->size : offset;
}

void *reader_memory(const umf_reader_t *reader, uint64_t count, size_t size,
                    umf_reader_error_t *error) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t limit = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : 1u << 30;
    void *memory = count < limit / size ? calloc(count ? count : 1, size) : NULL;
    if (!memory) {
        reader_fail(
            error, "%s: there is no memory for %llu items of %zu bytes, of a file of %llu bytes",
            reader->name, (unsigned long long)count, size, (unsigned long long)reader->source.size);
    }
    return memory;
}

static bool load(umf_reader_t *reader, umf_reader_error_t *error) {
    return reader_check_header(reader, error) && reader_load_tables(reader, error) &&
           reader_load_stacks(reader, error) && reader_load_blocks(reader, error) &&
           reader_load_live(reader, error) && reader_load_names(reader, error);
}

static umf_reader_t *open_source(const reader_source_t *source, const char *name,
                                 umf_reader_error_t *error) {
    umf_reader_t *reader = calloc(1, sizeof(*reader));
    if (!reader || !(reader->name = strdup(name))) {
        reader_fail(error, "%s: there is no memory to open it", name);
        free(reader);
        return NULL;
    }
    reader->source = *source;
    reader->info.name = reader->name;
    reader->info.from_ns = INT64_MIN;
    reader->info.to_ns = INT64_MAX;
    if (!load(reader, error)) {
        umf_reader_close(reader);
        return NULL;
    }
    reader->source = (reader_source_t){.fd = -1};
    return reader;
}

umf_reader_t *umf_reader_open_bytes(const void *bytes, size_t size, const char *name,
                                    umf_reader_error_t *error) {
    return open_source(&(reader_source_t){-1, size ? bytes : "", size}, name, error);
}

umf_reader_t *umf_reader_open_fd(int fd, const char *name, umf_reader_error_t *error) {
    struct stat stat;
    if (fstat(fd, &stat) != 0) {
        reader_fail(error, "%s: %s", name, strerror(errno));
        return NULL;
    } else if (!S_ISREG(stat.st_mode)) {
        reader_fail(error, "%s: not a file, but a %s", name,
                    S_ISDIR(stat.st_mode) ? "folder" : "pipe or device");
        return NULL;
    }
    return open_source(&(reader_source_t){fd, NULL, (uint64_t)stat.st_size}, name, error);
}

umf_reader_t *umf_reader_open(const char *path, umf_reader_error_t *error) {
    /* Not to wait for the other end of a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        reader_fail(error, "%s: %s", path, strerror(errno));
        return NULL;
    }
    umf_reader_t *reader = umf_reader_open_fd(fd, path, error);
    close(fd);
    return reader;
}

void umf_reader_close(umf_reader_t *reader) {
    if (!reader) {
        return;
    }
    void *const parts[] = {reader->name,          reader->objects,       reader->texts,
                           reader->modules,       reader->stack_items,   reader->stack_starts,
                           reader->stack_of_item, reader->live,          reader->spans,
                           reader->runs,          reader->blocks,        reader->events,
                           reader->threads,       reader->thread_blocks, reader->left_out,
                           reader->names,         reader->name_texts};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        free(parts[i]);
    }
    for (size_t i = 0; i < NOTES; i++) {
        free(reader->notes[i]);
    }
    reader_symbols_free(reader->symbols);
    free(reader);
}
