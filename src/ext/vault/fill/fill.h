/*
 * Fill: slabs that a client makes for a generation: copies of memory of devices in memory of the
 * host or in a file, or memory of devices from such copies. Some slabs of one device are in work at
 * a time.
 */
#ifndef UMF_SRC_EXT_VAULT_FILL_H
#define UMF_SRC_EXT_VAULT_FILL_H

#include "ext/vault/device.h"

/* A piece of its own for each slab. */
#define UMF_FILL_MEMORY UMF_VAULT_DEVICES ":piece_size=4K"

/* A slab, and what is made of it. */
typedef struct umf_fill_slab_t {
    umf_vault_slab_t info;
    int source, made; /* descriptors; -1: none */
    char *host;       /* mapped memory of the host; NULL: none */
    uint64_t sum;     /* of what was copied */
    char *memory;     /* of the device: an allocation, or mapped memory; NULL: none */
    size_t reserved;  /* of the range that it is mapped in */
    bool is_shown;
} umf_fill_slab_t;

typedef struct umf_fill_t {
    umf_vault_handle_t vault;
    uint64_t generation;
    umf_vault_fill_t what;
    uint64_t file, next; /* of a file: its number, and the place of the next slab; 0: the end */
    bool has_sums;
    umf_table_t table;
    void *table_at;
    size_t table_size;
    uint32_t near; /* index of the slab that is searched first */
    umf_vault_device_t *device;
    unsigned count; /* of slabs that are in work, all of the device */
    umf_fill_slab_t slabs[UMF_VAULT_GIVE_MAX];
    umf_link_call_t call;
    int fds[UMF_VAULT_FDS_MAX];
    char body[UMF_VAULT_BODY_MAX];
} umf_fill_t;

static inline bool umf_fill_makes_copies(const umf_fill_t *fill) {
    return fill->what != UMF_VAULT_FILL_DEVICES;
}

/* The result of a generation that is wrong, logged. */
umf_result_t umf_fill_broken(const umf_fill_t *fill, const char *why);

/* --- copies.c --- */

/* A slab of an answer. A descriptor that is taken is -1 afterwards. */
typedef umf_result_t umf_fill_take_t(void *arg, const umf_vault_slab_t *info, int *fd);

/* Asks for slabs; waits while another client fills. */
umf_result_t umf_fill_ask(umf_fill_t *fill, uint64_t timeout_ms, umf_vault_message_t *answer);
/* Maps the table of the answer, and hands each slab over. */
umf_result_t umf_fill_each(umf_fill_t *fill, umf_fill_take_t *take, void *arg);
/* The index of a slab in the table; UINT32_MAX: it has none. */
uint32_t umf_fill_index(umf_fill_t *fill, uint64_t serial);
/* The client fills no more. The reason of a failure stays. */
void umf_fill_end(umf_fill_t *fill);

/* --- file.c --- */

umf_vault_copied_t umf_fill_copied(const umf_vault_slab_t *info);
/* Reads a slab from its file into memory of the device, and compares its sum. */
umf_result_t umf_fill_read(const umf_fill_t *fill, umf_fill_slab_t *slab);
/* Writes the generation into a file of a folder, which becomes the copy of its memory. */
umf_result_t umf_fill_store(umf_fill_t *fill, const char *folder, uint64_t timeout_ms);

/* --- fill.c --- */

/* Maps the source, which is sealed memory of the host. */
umf_result_t umf_fill_map(const umf_fill_t *fill, umf_fill_slab_t *slab);
/* Makes and maps memory of the host. */
umf_result_t umf_fill_host(umf_fill_slab_t *slab);
/* Copies the source, which is memory of the device, into memory of the host. */
umf_result_t umf_fill_fetch(const umf_fill_t *fill, umf_fill_slab_t *slab);
/* The entries of a slab in memory of the host against the sums of the commit. */
umf_result_t umf_fill_check(const umf_fill_t *fill, const umf_fill_slab_t *slab);
/* Makes the slabs in work and hands them over; afterwards none is. Those that were not handed over
 * are as if nothing had happened. */
umf_result_t umf_fill_work(umf_fill_t *fill);
/* Ends the slabs in work without making them. */
void umf_fill_cancel(umf_fill_t *fill);

#endif
