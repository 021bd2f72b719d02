#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

static void take_path(image_t *image, const char *path) {
    if (image->debug.segment_count > 0 && !image->debug_path) {
        image->debug_path = strdup(path);
    }
}

/* Where distributions put the names that they have stripped. */
static void load_by_build_id(image_t *image) {
    char path[128] = "/usr/lib/debug/.build-id/";
    const unsigned char *id = image->file.build_id;
    size_t length = image->file.build_id_size;
    for (size_t i = 0; i < length; i++) {
        size_t end = strlen(path);
        snprintf(path + end, sizeof(path) - end, i == 0 ? "%02x/" : "%02x", id[i]);
    }
    if (length) {
        snprintf(path + strlen(path), sizeof(path) - strlen(path), ".debug");
        elf_load(&image->debug, path);
        take_path(image, path);
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
        take_path(image, path);
    }
}

static void load_debug(image_t *image) {
    load_by_build_id(image);
    if (!image->debug.has_all_symbols) {
        load_by_link(image);
    }
}

void image_load(image_t *image) {
    if (image->path[0] == '/') {
        elf_load(&image->file, image->path);
    }
    if (!image->file.has_all_symbols) {
        load_debug(image);
    }
}

void image_free(image_t *image) {
    elf_free(&image->file);
    elf_free(&image->debug);
    lines_close(image->lines);
    free(image->debug_path);
}

void image_open_lines(image_t *image, const lines_t *lines, bool uses_servers) {
    size_t size = image->file.build_id_size;
    image->lines = lines_open(lines, image->path);
    /* Of other files it was looked for before, and names in it are in use. */
    if (!image->lines && image->file.has_all_symbols) {
        load_debug(image);
    }
    if (!image->lines && image->debug_path) {
        image->lines = lines_open(lines, image->debug_path);
    }
    if (!image->lines && uses_servers && size > 0) {
        image->lines = lines_fetch(lines, image->file.build_id, size);
    }
}
