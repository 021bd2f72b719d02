/*
 * Foreign memory: memory that a driver has, but no provider of this process allocated or opened.
 *
 * Each family of providers over a driver registers a finder, before the library starts. A finder
 * never loads a driver.
 */
#ifndef UMF_SRC_OBJECT_FOREIGN_H
#define UMF_SRC_OBJECT_FOREIGN_H

#include <umf/memory_provider_gpu.h>
#include <umf/plugin.h>

#include "system/common.h"

/* Room for the state of a family's operations. */
#define UMF_FOREIGN_SELF_SIZE 64

typedef struct umf_foreign_t {
    umf_usm_memory_type_t type;
    int device;     /* -1: unknown */
    uintptr_t base; /* of the allocation; size 0: unknown */
    size_t size;
    const umf_memory_provider_ext_ops_t *ext;      /* copy, fill, queues and events. NULL: none */
    _Alignas(16) char self[UMF_FOREIGN_SELF_SIZE]; /* the first argument of these operations */
} umf_foreign_t;

typedef struct umf_foreign_finder_t {
    /* false: the driver is not loaded, or has no such address. */
    bool (*find)(const void *ptr, umf_foreign_t *memory);
    struct umf_foreign_finder_t *next;
} umf_foreign_finder_t;

/* Called by a constructor. The finder must live as long as the library. */
void umf_foreign_register(umf_foreign_finder_t *finder);

/* Calls the finders. false: none finds the address. */
bool umf_foreign_find(const void *ptr, umf_foreign_t *memory);

#endif
