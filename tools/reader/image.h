/* A program or library that a recording names, and the files with its names and source lines. */
#ifndef UMF_READER_IMAGE_H
#define UMF_READER_IMAGE_H

#include <sys/types.h>

#include "elf.h"
#include "lines.h"

/* A file that modules are from. It has many paths. */
typedef struct image_t {
    const char *path;
    dev_t device;
    ino_t inode; /* 0: there is no such file */
    elf_file_t file, debug;
    char *debug_path; /* of a file with debug information of the same build; NULL: none is known */
    lines_file_t *lines;
    bool has_tried_lines;
    struct image_t *next;
} image_t;

/* Its own names, or those of another file of the same build. */
void image_load(image_t *image);
void image_free(image_t *image);

/* Its source lines: in the file itself, in another one on this machine, or, if that is asked, from
 * a server. */
void image_open_lines(image_t *image, const lines_t *lines, bool uses_servers);

#endif
