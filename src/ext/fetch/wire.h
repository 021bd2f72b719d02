/*
 * What `umf-remote serve` publishes, and umfVaultFetch reads (umf/vault.h).
 *
 * An address is the handle of a published range in hexadecimal digits. The range is a directory,
 * which stays as long as the server. It has the handle of a table, and that the handles of runs:
 * the memory of a generation, as the server has it mapped. A new generation has a new table, and
 * the ranges of the former one are withdrawn.
 *
 * The table: a head, the runs, the entries sorted by key (as memcmp sorts, the shorter of equal
 * ones first), digests of the pieces of all entries, and bytes: the identity, the handles of the
 * runs, and of each entry its key, a NUL and its note. All is of one byte order.
 */
#ifndef UMF_SRC_EXT_FETCH_WIRE_H
#define UMF_SRC_EXT_FETCH_WIRE_H

#include <stdint.h>

#define UMF_FETCH_PREFIX "umfr:" /* of an address */

#define UMF_FETCH_DIRECTORY UINT64_C(0x3154434552494446) /* "FDIRECT1" */
#define UMF_FETCH_TABLE UINT64_C(0x31454c4241544446)     /* "FDTABLE1" */
#define UMF_FETCH_HANDLE_MAX 1024u
#define UMF_FETCH_PIECE (UINT64_C(4) << 20) /* bytes of an entry that have one digest */
#define UMF_FETCH_TABLE_MAX (UINT64_C(256) << 20)
#define UMF_FETCH_RUNS_MAX 16384u
#define UMF_FETCH_ENTRIES_MAX 1000000u
#define UMF_FETCH_IDENTITY_MAX 4096u

/* The server writes it again for each generation. A reader that gets a part of both sees a wrong
 * sum, and reads it again. */
typedef struct umf_fetch_directory_t {
    uint64_t magic;
    uint64_t check;      /* sum of all, with this taken as 0 */
    uint64_t generation; /* 0: the vault has none */
    uint64_t table_size;
    uint64_t handle_size;
    unsigned char handle[UMF_FETCH_HANDLE_MAX]; /* of the table */
} umf_fetch_directory_t;

typedef struct umf_fetch_head_t {
    uint64_t magic, size;
    uint64_t check; /* sum of everything behind the head */
    uint64_t generation;
    uint64_t digests;
    uint32_t runs, entries, identity, reserved;
} umf_fetch_head_t;

typedef struct umf_fetch_run_t {
    uint64_t size;
    uint64_t handle;             /* where it is in the bytes */
    uint32_t handle_size, flags; /* umf_vault_flag_t. Memory that reads as zero has no handle */
} umf_fetch_run_t;

typedef struct umf_fetch_entry_t {
    uint64_t offset, size; /* in its run */
    uint64_t key;          /* where it is in the bytes */
    uint64_t digest;       /* of its first piece: an index */
    uint32_t run;
    uint16_t note_size;
    uint8_t key_size, flags;
} umf_fetch_entry_t;

/* Pieces of an entry: all but the last one have UMF_FETCH_PIECE bytes. */
static inline uint64_t umf_fetch_pieces(uint64_t size) {
    return size / UMF_FETCH_PIECE + (size % UMF_FETCH_PIECE != 0);
}

#endif
