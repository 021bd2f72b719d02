/*
 * A driver's library, looked up once for the life of the process: among the libraries it has
 * loaded, then on the system.
 */
#ifndef UMF_SRC_PROVIDERS_GPU_LIBRARY_H
#define UMF_SRC_PROVIDERS_GPU_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct umf_gpu_library_t {
    const char *what;    /* "CUDA driver" */
    const char *name;    /* of the file */
    const char *install; /* what to do without it */
    const char *update;  /* what to do if it lacks a function */
    /* Fills the driver's table. The first function that is missing and cannot be, or NULL. */
    const char *(*fill)(void *library);
    /* Immutable after load, as `why` */
    bool is_there;
    char why[512];
} umf_gpu_library_t;

/* By pthread_once. The library stays open. */
void umf_gpu_library_load(umf_gpu_library_t *library);

/* After load. If it is not there, `why` (may be NULL) receives the reason and what to do. */
bool umf_gpu_library_is_there(const umf_gpu_library_t *library, char *why, size_t why_size);

#endif
