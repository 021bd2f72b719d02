/*
 * A driver's library. It is looked up once for the life of the process: among the libraries that
 * the process has loaded, then on the system.
 */
#ifndef UMF_SRC_PROVIDERS_GPU_LIBRARY_H
#define UMF_SRC_PROVIDERS_GPU_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct umf_gpu_library_t {
    const char *what;    /* "CUDA driver" */
    const char *name;    /* file name */
    const char *install; /* what to do if it is missing */
    const char *update;  /* what to do if it lacks a function */
    /* Fills the driver's table. Returns the first required function that is missing, or NULL. */
    const char *(*fill)(void *library);
    /* Immutable after load, as `why` */
    bool is_there;
    char why[512];
} umf_gpu_library_t;

/* Called by pthread_once. The library stays open. */
void umf_gpu_library_load(umf_gpu_library_t *library);

/* Valid after load. If the library is missing, `why` (may be NULL) receives the reason and what to
 * do. */
bool umf_gpu_library_is_there(const umf_gpu_library_t *library, char *why, size_t why_size);

#endif
