/* The files of the viewer, which the build embeds (embed.cmake). */
#ifndef UMF_PICTURE_FILES_H
#define UMF_PICTURE_FILES_H

#include <stddef.h>

typedef struct picture_file_t {
    const char *bytes;
    size_t size;
} picture_file_t;

extern const picture_file_t picture_page, picture_style, picture_scripts[];
extern const size_t picture_script_count;

#endif
