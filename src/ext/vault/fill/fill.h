/*
 * Fill: slabs that a client makes for a generation: copies of memory of devices in memory of the
 * host, or memory of devices from such copies. Some slabs of one device are in work at a time.
 */
#ifndef UMF_SRC_EXT_VAULT_FILL_H
#define UMF_SRC_EXT_VAULT_FILL_H

#include "ext/vault/device.h"

/* A slab, and what is made of it. */
typedef struct umf_fill_slab_t {
    umf_vault_slab_t info;
    int source, made; /* descriptors; -1: none */
    char *host;       /* mapped memory of the host; NULL: none */
    size_t pinned;    /* bytes of it */
    char *memory;     /* of the device: an allocation, or mapped memory; NULL: none */
    size_t reserved;  /* of the range that it is mapped in */
    bool is_shown;
} umf_fill_slab_t;

typedef struct umf_fill_t {
    umf_vault_handle_t vault;
    uint64_t generation;
    umf_vault_fill_t what;
    bool has_sums;
    bool pins; /* false: the driver has refused it */
    umf_table_t table;
    void *table_at;
    size_t table_size;
    uint32_t near; /* index of the slab that is searched first */
    umf_vault_device_t *device;
    void *queue;
    unsigned count; /* of slabs that are in work, all of the device */
    umf_fill_slab_t slabs[UMF_VAULT_GIVE_MAX];
    umf_link_call_t call;
    int fds[UMF_VAULT_FDS_MAX];
    char body[UMF_VAULT_BODY_MAX];
} umf_fill_t;

static inline bool umf_fill_makes_copies(const umf_fill_t *fill) {
    return fill->what == UMF_VAULT_FILL_COPIES;
}

/* The result of a generation that is wrong, logged. */
umf_result_t umf_fill_broken(const umf_fill_t *fill, const char *why);
/* Makes the slabs in work and hands them over; afterwards none is. Those that were not handed over
 * are as if nothing had happened. */
umf_result_t umf_fill_work(umf_fill_t *fill);
/* Ends the slabs in work without making them. */
void umf_fill_cancel(umf_fill_t *fill);

#endif
