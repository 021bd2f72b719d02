/* The code at an address: the module, its file, the function. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "elf.h"
#include "own.h"

#define NAME_MOST 2000u /* of a name that is made readable */

#define IMAGE_BYTES_MOST ((uint64_t)1 << 30) /* of symbols and names of all files */

/* A file that modules are from. It has many paths. */
typedef struct image_t {
    const char *path;
    dev_t device;
    ino_t inode; /* 0: there is no such file */
    elf_file_t file, debug;
    struct image_t *next;
} image_t;

typedef struct resolved_t {
    uint64_t address; /* 0: not in use */
    umf_reader_frame_t frame;
    char *name; /* name of the frame's function, if it is ours */
} resolved_t;

typedef char *demangle_t(const char *name, char *buffer, size_t *size, int *status);

typedef struct symbols_t {
    const umf_record_module_t **by_base;
    image_t **image_of; /* by module */
    image_t *images;
    uint64_t image_bytes;
    resolved_t *resolved; /* open addressing */
    size_t resolved_room, resolved_count;
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
        elf_free(&image->file);
        elf_free(&image->debug);
        free(image);
    }
    for (size_t i = 0; i < symbols->resolved_room; i++) {
        free(symbols->resolved[i].name);
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

/* Where distributions put the names that they have stripped. */
static void load_by_build_id(image_t *image) {
    char path[128] = "/usr/lib/debug/.build-id/";
    const unsigned char *id = image->file.build_id;
    size_t length = sizeof(image->file.build_id);
    while (length && id[length - 1] == 0) {
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        size_t end = strlen(path);
        snprintf(path + end, sizeof(path) - end, i == 0 ? "%02x/" : "%02x", id[i]);
    }
    if (length) {
        snprintf(path + strlen(path), sizeof(path) - strlen(path), ".debug");
        elf_load(&image->debug, path);
    }
}

/* The file that the image names, beside it, in .debug below, or below /usr/lib/debug. It must be of
 * the same build. */
static void load_by_link(image_t *image) {
    static const char *const places[] = {"%.*s/%s", "%.*s/.debug/%s", "/usr/lib/debug%.*s/%s"};
    static const unsigned char none[sizeof(image->file.build_id)] = {0};
    const char *slash = strrchr(image->path, '/');
    char path[4096 + 128];
    if (!slash || !image->file.debug_link[0] ||
        memcmp(image->file.build_id, none, sizeof(none)) == 0) {
        return;
    }
    for (size_t i = 0; i < 3 && !image->debug.has_all_symbols; i++) {
        elf_free(&image->debug);
        snprintf(path, sizeof(path), places[i], (int)(slash - image->path), image->path,
                 image->file.debug_link);
        elf_load(&image->debug, path);
        if (memcmp(image->debug.build_id, image->file.build_id, sizeof(none)) != 0) {
            elf_free(&image->debug);
            memset(&image->debug, 0, sizeof(image->debug));
        }
    }
}

static void load_debug(image_t *image) {
    load_by_build_id(image);
    if (!image->debug.has_all_symbols) {
        load_by_link(image);
    }
}

static uint64_t elf_bytes(const elf_file_t *file) {
    return file->name_bytes + file->symbol_count * sizeof(*file->symbols);
}

/* Files beyond the bound have no names. */
static void image_load(symbols_t *symbols, image_t *image) {
    if (symbols->image_bytes >= IMAGE_BYTES_MOST) {
        return;
    }
    if (image->path[0] == '/') {
        elf_load(&image->file, image->path);
    }
    if (!image->file.has_all_symbols) {
        load_debug(image);
    }
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
        image_load(symbols, image);
    }
    return symbols->image_of[module] = image;
}

static bool is_same_version(const image_t *image, const umf_record_module_t *module) {
    static const unsigned char none[sizeof(module->build_id)];
    return memcmp(module->build_id, none, sizeof(none)) == 0 ||
           memcmp(module->build_id, image->file.build_id, sizeof(none)) == 0;
}

/* --- addresses -------------------------------------------------------------------------------- */

static umf_reader_frame_t look_up(const umf_reader_t *reader, symbols_t *symbols,
                                  uint64_t address) {
    size_t count = reader->info.module_count;
    /* The call is in front of the address it returns to. */
    size_t index = module_at(symbols, count, address - 1);
    if (index == count) {
        return (umf_reader_frame_t){.module = "", .offset = address};
    }
    const umf_record_module_t *module = symbols->by_base[index];
    umf_reader_frame_t frame = {.module = umf_reader_text(reader, module->path),
                                .offset = address - module->base + module->file_offset};
    const image_t *image = image_of(symbols, index, frame.module);
    if (!image || image->file.segment_count == 0) {
        return frame;
    } else if (!is_same_version(image, module)) {
        frame.is_other_version = true;
        return frame;
    }
    uint64_t inside;
    const elf_file_t *names = image->debug.symbol_count ? &image->debug : &image->file;
    frame.function = elf_function(&image->file, names, frame.offset - 1, &inside);
    frame.offset = frame.function ? inside + 1 : frame.offset;
    return frame;
}

static void make_readable(const symbols_t *symbols, resolved_t *resolved) {
    const char *name = resolved->frame.function;
    if (!name || !symbols->demangle || strncmp(name, "_Z", 2) != 0 ||
        strnlen(name, NAME_MOST) == NAME_MOST) {
        return;
    }
    int status = 0;
    resolved->name = symbols->demangle(name, NULL, NULL, &status);
    if (resolved->name) {
        resolved->frame.function = resolved->name;
    }
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

umf_reader_frame_t umf_reader_resolve(umf_reader_t *reader, uint64_t address) {
    if (!reader->symbols) {
        reader->symbols = begin(reader);
    }
    if (!reader->symbols || address == 0 || !make_room(reader->symbols)) {
        return (umf_reader_frame_t){.module = "", .offset = address};
    }
    resolved_t *slot = slot_of(reader->symbols->resolved, reader->symbols->resolved_room, address);
    if (!slot->address) {
        slot->address = address;
        slot->frame = look_up(reader, reader->symbols, address);
        make_readable(reader->symbols, slot);
        reader->symbols->resolved_count++;
    }
    return slot->frame;
}

static const char *file_of(const umf_reader_frame_t *frame) {
    const char *slash = strrchr(frame->module, '/');
    return slash ? slash + 1 : frame->module;
}

size_t umf_reader_caller_stack(umf_reader_t *reader, uint32_t stack, const uint64_t **frames) {
    const uint64_t *all = NULL;
    size_t count = umf_reader_stack(reader, stack, &all), own = 0;
    while (own < count) {
        umf_reader_frame_t frame = umf_reader_resolve(reader, all[own]);
        if (strncmp(file_of(&frame), "libumf", 6) != 0) {
            break;
        }
        own++;
    }
    own = own < count ? own : 0;
    *frames = count ? all + own : NULL;
    return count - own;
}

const char *umf_reader_frame_text(umf_reader_t *reader, uint64_t address, char *text, size_t size) {
    umf_reader_frame_t frame = umf_reader_resolve(reader, address);
    const char *file = file_of(&frame);
    if (frame.function) {
        snprintf(text, size, "%s+0x%" PRIx64 " (%s)", frame.function, frame.offset, file);
    } else if (*file) {
        snprintf(text, size, "%s+0x%" PRIx64 "%s", file, frame.offset,
                 frame.is_other_version ? " (another version of the file)" : "");
    } else {
        snprintf(text, size, "0x%" PRIx64, frame.offset);
    }
    return text;
}
