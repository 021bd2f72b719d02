/* Programs that this library leaves alone, because their malloc is another one. */
#ifndef UMF_LIB_PROXY_OTHER_H
#define UMF_LIB_PROXY_OTHER_H

#include <stddef.h>

/* Why the heap must not be made; `own_malloc` and `own_free` are those of this library. NULL:
 * nothing is in the way. */
const char *umf_proxy_other(void *(*own_malloc)(size_t size), void (*own_free)(void *ptr));

#endif
