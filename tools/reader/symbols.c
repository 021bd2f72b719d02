/* The code at an address: the module, its file, the function. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "image.h"
#include "own.h"

#define NAME_MOST 2000u /* of a name that is made readable */

#define IMAGE_BYTES_MOST ((uint64_t)1 << 30) /* of symbols and names of all files */

typedef struct resolved_t {
    uint64_t address;           /* 0: not in use */
    umf_reader_frame_t *frames; /* NULL: `only` is the one */
    size_t count;
    umf_reader_frame_t only;
} resolved_t;

/* Texts of frames that are in no file. */
typedef struct kept_t {
    struct kept_t *next;
    char text[];
} kept_t;

typedef char *demangle_t(const char *name, char *buffer, size_t *size, int *status);

typedef struct symbols_t {
    const umf_record_module_t **by_base;
    image_t **image_of; /* by module */
    image_t *images;
    uint64_t image_bytes;
    resolved_t *resolved; /* open addressing */
    size_t resolved_room, resolved_count;
    kept_t *kept;
    bool is_local; /* names in the recording come last */
    lines_t *lines;
    bool lines_are_missing;
    void *runtime;
    demangle_t *demangle;
} symbols_t;

/* --- begin and end ---------------------------------------------------------------------------- */

static int by_base(const void *left, const void *right) {
    const umf_record_module_t *a = *(const umf_record_module_t *const *)left;
    const umf_record_module_t *b = *(const umf_record_module_t *const *)right;
    return a->base < b->base ? -1 : a->base > b->base;
}

static symbols_t *begin(const umf_reader_t *reader) {
    size_t count = reader->info.module_count;
    symbols_t *symbols = calloc(1, sizeof(*symbols));
    if (!symbols || !(symbols->by_base = calloc(count + 1, sizeof(*symbols->by_base))) ||
        !(symbols->image_of = calloc(count + 1, sizeof(*symbols->image_of)))) {
        reader_symbols_free(symbols);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        symbols->by_base[i] = &reader->modules[i];
    }
    qsort(symbols->by_base, count, sizeof(*symbols->by_base), by_base);
    /* Names of C++ are readable where its runtime is installed. */
    symbols->runtime = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    void *demangle = symbols->runtime ? dlsym(symbols->runtime, "__cxa_demangle") : NULL;
    memcpy(&symbols->demangle, &demangle, sizeof(demangle));
    return symbols;
}

void reader_symbols_free(symbols_t *symbols) {
    if (!symbols) {
        return;
    }
    for (image_t *image = symbols->images, *next; image; image = next) {
        next = image->next;
        image_free(image);
        free(image);
    }
    lines_end(symbols->lines);
    for (size_t i = 0; i < symbols->resolved_room; i++) {
        free(symbols->resolved[i].frames);
    }
    for (kept_t *kept = symbols->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    if (symbols->runtime) {
        dlclose(symbols->runtime);
    }
    free(symbols->resolved);
    free(symbols->by_base);
    free(symbols->image_of);
    free(symbols);
}

/* --- modules ---------------------------------------------------------------------------------- */

/* The module that covers an address, as an index into by_base; `count` if there is none. */
static size_t module_at(const symbols_t *symbols, size_t count, uint64_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols->by_base[middle]->base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low && address - symbols->by_base[low - 1]->base < symbols->by_base[low - 1]->size
               ? low - 1
               : count;
}

static uint64_t elf_bytes(const elf_file_t *file) {
    return file->name_bytes + file->symbol_count * sizeof(*file->symbols);
}

/* Files beyond the bound have no names. */
static void load_within(symbols_t *symbols, image_t *image) {
    if (symbols->image_bytes >= IMAGE_BYTES_MOST) {
        return;
    }
    image_load(image);
    symbols->image_bytes += elf_bytes(&image->file) + elf_bytes(&image->debug);
}

static image_t *image_find(const symbols_t *symbols, const char *path, const struct stat *file) {
    for (image_t *image = symbols->images; image; image = image->next) {
        if (strcmp(image->path, path) == 0 ||
            (file->st_ino != 0 && image->inode == file->st_ino && image->device == file->st_dev)) {
            return image;
        }
    }
    return NULL;
}

static image_t *image_of(symbols_t *symbols, size_t module, const char *path) {
    struct stat file;
    image_t *image = symbols->image_of[module];
    if (image) {
        return image;
    }
    if (path[0] != '/' || stat(path, &file) != 0) {
        file = (struct stat){0};
    }
    image = image_find(symbols, path, &file);
    if (!image && (image = calloc(1, sizeof(*image))) != NULL) {
        *image = (image_t){.path = path, .device = file.st_dev, .inode = file.st_ino};
        image->next = symbols->images;
        symbols->images = image;
        load_within(symbols, image);
    }
    return symbols->image_of[module] = image;
}

static bool is_same_version(const image_t *image, const umf_record_module_t *module) {
    static const unsigned char none[sizeof(module->build_id)];
    return memcmp(module->build_id, none, sizeof(none)) == 0 ||
           memcmp(module->build_id, image->file.build_id, sizeof(none)) == 0;
}

/* --- addresses -------------------------------------------------------------------------------- */

/* The module of a return address; NULL: it is in none. */
static const umf_record_module_t *module_of(const umf_reader_t *reader, const symbols_t *symbols,
                                            uint64_t address, size_t *index) {
    /* The call is in front of the address it returns to. */
    *index = module_at(symbols, reader->info.module_count, address - 1);
    return *index < reader->info.module_count ? symbols->by_base[*index] : NULL;
}

/* The name of C++ as people write it; the name itself if it is of another language. */
static const char *readable(symbols_t *symbols, const char *name) {
    int status = 0;
    char *text = name && symbols->demangle && strncmp(name, "_Z", 2) == 0 &&
                         strnlen(name, NAME_MOST) < NAME_MOST
                     ? symbols->demangle(name, NULL, NULL, &status)
                     : NULL;
    kept_t *kept = text ? malloc(sizeof(*kept) + strlen(text) + 1) : NULL;
    if (kept) {
        strcpy(kept->text, text);
        kept->next = symbols->kept;
        symbols->kept = kept;
        name = kept->text;
    }
    free(text);
    return name;
}

/* A frame by its address alone. */
static umf_reader_frame_t bare(const umf_reader_t *reader, const umf_record_module_t *module,
                               uint64_t address) {
    return module ? (umf_reader_frame_t){.module = umf_reader_text(reader, module->path),
                                         .offset = address - module->base + module->file_offset}
                  : (umf_reader_frame_t){.module = "", .offset = address};
}

/* --- source lines ----------------------------------------------------------------------------- */

static void open_lines(const umf_reader_t *reader, symbols_t *symbols, image_t *image) {
    if (!symbols->lines && !symbols->lines_are_missing) {
        symbols->lines = lines_begin();
        symbols->lines_are_missing = !symbols->lines;
    }
    image->has_tried_lines = true;
    if (symbols->lines) {
        uint64_t before = elf_bytes(&image->debug);
        image_open_lines(image, symbols->lines, reader->uses_servers);
        symbols->image_bytes += elf_bytes(&image->debug) - before;
    }
}

/* The frames of an address with their lines; false: the lines are not known. */
static bool add_lines(const umf_reader_t *reader, symbols_t *symbols, image_t *image,
                      uint64_t offset, resolved_t *resolved) {
    line_t found[READER_INLINED_MOST];
    uint64_t address;
    if (!image->has_tried_lines) {
        open_lines(reader, symbols, image);
    }
    size_t count = image->lines && elf_address(&image->file, offset - 1, &address)
                       ? lines_at(image->lines, address, found, READER_INLINED_MOST)
                       : 0;
    umf_reader_frame_t *frames = count > 0 ? calloc(count, sizeof(*frames)) : NULL;
    for (size_t i = 0; frames && i < count; i++) {
        bool is_last = i + 1 == count;
        frames[i] = resolved->only;
        frames[i].source = found[i].source;
        frames[i].line = found[i].line;
        frames[i].is_inlined = !is_last;
        if (!is_last || !frames[i].function) {
            frames[i].function = readable(symbols, found[i].function);
            frames[i].offset = is_last ? frames[i].offset : 0;
        }
    }
    resolved->frames = frames;
    resolved->count = count;
    return frames != NULL;
}

/* By the files on this machine. */
static void look_up(const umf_reader_t *reader, symbols_t *symbols, resolved_t *resolved) {
    size_t index;
    const umf_record_module_t *module = module_of(reader, symbols, resolved->address, &index);
    umf_reader_frame_t frame = bare(reader, module, resolved->address);
    image_t *image = module ? image_of(symbols, index, frame.module) : NULL;
    bool has_file = image && image->file.segment_count > 0;
    frame.is_other_version = has_file && !is_same_version(image, module);
    resolved->only = frame;
    resolved->count = 1;
    if (has_file && !frame.is_other_version) {
        uint64_t inside;
        const elf_file_t *names = image->debug.symbol_count ? &image->debug : &image->file;
        const char *function = elf_function(&image->file, names, frame.offset - 1, &inside);
        resolved->only.function = readable(symbols, function);
        resolved->only.offset = function ? inside + 1 : frame.offset;
        if (!add_lines(reader, symbols, image, frame.offset, resolved)) {
            resolved->count = 1;
        }
    }
}

/* --- names in the file ------------------------------------------------------------------------ */

static const char *name_text(const umf_reader_t *reader, uint32_t offset) {
    return offset ? reader->name_texts + offset : NULL;
}

/* By the names in the file. False: it has none of this address. */
static bool take_names(const umf_reader_t *reader, const symbols_t *symbols, resolved_t *resolved) {
    size_t index;
    const umf_record_name_t *names;
    size_t count = reader_names_of(reader, resolved->address, &names);
    umf_reader_frame_t at =
        bare(reader, module_of(reader, symbols, resolved->address, &index), resolved->address);
    umf_reader_frame_t *frames = count > 0 ? calloc(count, sizeof(*frames)) : NULL;
    for (size_t i = 0; frames && i < count; i++) {
        frames[i] = (umf_reader_frame_t){
            .module = at.module,
            .function = name_text(reader, names[i].function),
            .offset = names[i].function ? names[i].offset : at.offset,
            .source = name_text(reader, names[i].source),
            .line = names[i].line,
            .is_inlined = i + 1 < count,
        };
    }
    resolved->frames = frames;
    resolved->count = count;
    return frames != NULL;
}

static resolved_t *slot_of(resolved_t *slots, size_t room, uint64_t address) {
    size_t at = (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (room - 1);
    while (slots[at].address && slots[at].address != address) {
        at = (at + 1) & (room - 1);
    }
    return &slots[at];
}

static bool make_room(symbols_t *symbols) {
    if (2 * symbols->resolved_count < symbols->resolved_room) {
        return true;
    }
    size_t room = symbols->resolved_room ? 2 * symbols->resolved_room : 256;
    resolved_t *slots = calloc(room, sizeof(*slots));
    for (size_t i = 0; slots && i < symbols->resolved_room; i++) {
        if (symbols->resolved[i].address) {
            *slot_of(slots, room, symbols->resolved[i].address) = symbols->resolved[i];
        }
    }
    if (slots) {
        free(symbols->resolved);
        symbols->resolved = slots;
        symbols->resolved_room = room;
    }
    return slots != NULL;
}

static bool has_function(const resolved_t *slot) {
    return slot->frames || slot->only.function;
}

static void resolve(umf_reader_t *reader, symbols_t *symbols, resolved_t *slot) {
    if (!symbols->is_local && take_names(reader, symbols, slot)) {
        return;
    }
    look_up(reader, symbols, slot);
    if (symbols->is_local && !has_function(slot) && !take_names(reader, symbols, slot)) {
        slot->count = 1;
    }
}

size_t umf_reader_resolve_all(umf_reader_t *reader, uint64_t address,
                              const umf_reader_frame_t **frames) {
    if (!reader->symbols) {
        reader->symbols = begin(reader);
    }
    symbols_t *symbols = reader->symbols;
    if (!symbols || address == 0 || !make_room(symbols)) {
        reader->unknown = (umf_reader_frame_t){.module = "", .offset = address};
        *frames = &reader->unknown;
        return 1;
    }
    resolved_t *slot = slot_of(symbols->resolved, symbols->resolved_room, address);
    if (!slot->address) {
        slot->address = address;
        resolve(reader, symbols, slot);
        symbols->resolved_count++;
    }
    *frames = slot->frames ? slot->frames : &slot->only;
    return slot->count;
}

umf_reader_frame_t umf_reader_resolve(umf_reader_t *reader, uint64_t address) {
    const umf_reader_frame_t *frames;
    size_t count = umf_reader_resolve_all(reader, address, &frames);
    return frames[count - 1];
}

bool umf_reader_lines_are_missing(const umf_reader_t *reader) {
    return reader->symbols && reader->symbols->lines_are_missing;
}

void umf_reader_use_servers(umf_reader_t *reader) {
    reader->uses_servers = true;
}

void reader_resolve_here(umf_reader_t *reader) {
    reader_symbols_free(reader->symbols);
    reader->symbols = begin(reader);
    if (reader->symbols) {
        reader->symbols->is_local = true;
    }
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

size_t umf_reader_caller_stack(umf_reader_t *reader, uint32_t stack, const uint64_t **frames) {
    const uint64_t *all = NULL;
    size_t count = umf_reader_stack(reader, stack, &all), own = 0;
    while (own < count) {
        umf_reader_frame_t frame = umf_reader_resolve(reader, all[own]);
        if (strncmp(base_name(frame.module), "libumf", 6) != 0) {
            break;
        }
        own++;
    }
    own = own < count ? own : 0;
    *frames = count ? all + own : NULL;
    return count - own;
}

const char *umf_reader_line_text(const umf_reader_frame_t *frame, char *text, size_t size) {
    text[0] = '\0';
    if (frame->source && frame->line > 0) {
        snprintf(text, size, "%s:%" PRIu32, base_name(frame->source), frame->line);
    }
    return text;
}

const char *umf_reader_frame_text(const umf_reader_frame_t *frame, char *text, size_t size) {
    char line[256];
    const char *file = base_name(frame->module);
    if (frame->function && *umf_reader_line_text(frame, line, sizeof(line))) {
        snprintf(text, size, "%s at %s (%s%s)", frame->function, line, file,
                 frame->is_inlined ? ", inlined" : "");
    } else if (frame->function && frame->is_inlined) {
        snprintf(text, size, "%s (%s, inlined)", frame->function, file);
    } else if (frame->function) {
        snprintf(text, size, "%s+0x%" PRIx64 " (%s)", frame->function, frame->offset, file);
    } else if (*file) {
        snprintf(text, size, "%s+0x%" PRIx64 "%s", file, frame->offset,
                 frame->is_other_version ? " (another version of the file)" : "");
    } else {
        snprintf(text, size, "0x%" PRIx64, frame->offset);
    }
    return text;
}
