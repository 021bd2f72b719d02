/* Lets calloc and realloc of pools use this engine. */
#ifndef UMF_SRC_EXT_MOVEMENT_CONTENT_H
#define UMF_SRC_EXT_MOVEMENT_CONTENT_H

void umf_movement_serve_content(void);

#endif
