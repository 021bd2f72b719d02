/*
 * The inside of umfVaultFetch: servers (source.c), the comparison with the local generation
 * (keep.c), and the transfer of missing pieces (transfer.c). Memory of a server's generation is cut
 * into pieces, each with a digest; pieces that follow each other are one get.
 */
#ifndef UMF_SRC_EXT_FETCH_OWN_H
#define UMF_SRC_EXT_FETCH_OWN_H

#include <umf/remote.h>
#include <umf/vault.h>

#include "ext/fetch/table.h"

#define UMF_FETCH_SOURCES_MAX 16u
#define UMF_FETCH_FLIGHTS 8u               /* gets of a server at a time */
#define UMF_FETCH_GAP (UINT64_C(64) << 10) /* so much between pieces is got with them */

/* --- fetch.c: progress ------------------------------------------------------------------------ */

#define UMF_FETCH_REPORT_MS 50

typedef struct umf_fetch_progress_t {
    umf_vault_fetch_progress_t call; /* NULL: none */
    void *arg;
    uint64_t done, size; /* bytes of content */
    uint64_t last;       /* time of the last call, in ms */
    bool is_stopped;     /* a call of it has ended the fetch */
} umf_fetch_progress_t;

/* Calls the function of the user; `is_due`: in any case, else if it is time. false: it ends the
 * fetch. */
bool umf_fetch_report(umf_fetch_progress_t *progress, bool is_due);

/* --- source.c: a server ----------------------------------------------------------------------- */

typedef struct umf_fetch_flight_t {
    umf_remote_op_handle_t op;
    size_t first, last; /* pieces */
} umf_fetch_flight_t;

typedef struct umf_fetch_source_t {
    umf_remote_handle_t remote;
    umf_fetch_progress_t *progress;
    unsigned char address[UMF_FETCH_HANDLE_MAX];
    size_t address_size;
    umf_remote_memory_handle_t directory; /* NULL: closed */
    void *table_at;
    size_t table_size;
    umf_fetch_table_t table;
    umf_remote_memory_handle_t *runs;              /* by index; NULL: not opened yet */
    umf_fetch_flight_t flights[UMF_FETCH_FLIGHTS]; /* a ring: the oldest is at `begun` */
    unsigned begun, count;
    bool is_out;       /* nothing more is requested of it */
    bool is_tried;     /* it was opened again, and has given nothing since */
    bool is_different; /* it serves another generation now */
} umf_fetch_source_t;

/* Reads directory and table. After a failure, or when a report ends the fetch, it is closed. */
umf_result_t umf_fetch_source_open(umf_fetch_source_t *source);
void umf_fetch_source_close(umf_fetch_source_t *source);
/* The range of a run, which is opened at its first use. */
umf_result_t umf_fetch_source_run(umf_fetch_source_t *source, uint32_t run,
                                  umf_remote_memory_handle_t *memory);

/* --- keep.c: the current generation of the vault ---------------------------------------------- */

typedef struct umf_fetch_local_t {
    umf_fetch_progress_t *progress; /* set before it is read */
    umf_vault_view_handle_t view;   /* NULL: none */
    uint64_t generation;
    size_t entries;     /* of it */
    uint64_t bytes;     /* of these */
    uint64_t held;      /* memory of the vault; 0: that of other generations is in it */
    bool *same_pieces;  /* by index of the digest. NULL: none */
    bool *same_entries; /* by index */
    bool *kept_runs;    /* by index: all their entries are the same and can be shared */
    const char **gone;  /* keys that the server does not have, sorted */
    size_t gone_count, gone_room;
    bool is_all; /* nothing differs */
} umf_fetch_local_t;

/* Compares it with a table. Without a current generation nothing is the same. */
umf_result_t umf_fetch_local_read(umf_fetch_local_t *local, umf_vault_handle_t vault,
                                  const umf_fetch_table_t *table);
/* Copies a piece that is the same. */
void umf_fetch_local_copy(const umf_fetch_local_t *local, const umf_fetch_table_t *table,
                          uint32_t entry, uint32_t piece, void *to);
/* Takes the entries of kept runs over into a draft from this generation, after all others were
 * put. */
umf_result_t umf_fetch_local_keep(const umf_fetch_local_t *local, umf_vault_draft_handle_t draft,
                                  const umf_fetch_table_t *table);
void umf_fetch_local_end(umf_fetch_local_t *local, const umf_fetch_table_t *table);

/* --- transfer.c ------------------------------------------------------------------------------- */

typedef struct umf_fetch_piece_t {
    uint32_t entry, piece;
    uint32_t gap; /* bytes in front of it that no entry has; at most UMF_FETCH_GAP */
} umf_fetch_piece_t;

typedef enum umf_fetch_state_t {
    UMF_FETCH_MISSING,
    UMF_FETCH_FLYING,
    UMF_FETCH_HERE
} umf_fetch_state_t;

typedef struct umf_fetch_transfer_t {
    umf_fetch_progress_t *progress;
    umf_fetch_source_t *sources;
    unsigned source_count;
    unsigned flights;               /* gets of a server at a time, at most UMF_FETCH_FLIGHTS */
    size_t flight_max;              /* bytes of one get; at least a piece */
    const umf_fetch_table_t *table; /* of the generation that is fetched */
    const umf_fetch_local_t *local;
    char **blocks; /* by run: where its content goes. NULL: nowhere */
    umf_fetch_piece_t *pieces;
    unsigned char *states; /* of umf_fetch_state_t, by piece */
    size_t count, missing; /* of pieces; how many are not here */
    size_t next;           /* no piece before it is missing and not in flight */
    umf_result_t result;   /* of the server that failed last */
} umf_fetch_transfer_t;

/* Gets all pieces of the blocks, each from any server. Sources that fail are out afterwards. */
umf_result_t umf_fetch_transfer(umf_fetch_transfer_t *transfer);

#endif
