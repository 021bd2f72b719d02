/*
 * Folder: a vault without a service. Each generation is a file of its own, `N.vault`: a head, the
 * table (ext/vault/table.h), and the slabs, each at the next multiple of 64 KiB, large ones of
 * 2 MiB. A draft is the file `draft`, which gets its name at the commit; its writer has the file
 * `lock` locked, whose lines are the last number and a random one of the folder.
 *
 * Files have no seals, so a table is copied before it is checked.
 */
#ifndef UMF_SRC_EXT_VAULT_FOLDER_FOLDER_H
#define UMF_SRC_EXT_VAULT_FOLDER_FOLDER_H

#include <string.h>

#include "ext/vault/content.h"
#include "ext/vault/vault.h"

#define UMF_FOLDER_PREFIX "file:"
#define UMF_FOLDER_MAGIC UINT64_C(0x31544c5541564655) /* "UFVAULT1" */
#define UMF_FOLDER_TABLE_MAX ((uint64_t)1 << 30)
#define UMF_FOLDER_PATH_SIZE (UMF_VAULT_PLACE_SIZE + 32)

typedef struct umf_folder_head_t {
    uint64_t magic, size; /* of the file */
    uint64_t table;       /* bytes of it, behind the head */
    uint64_t reserved[5];
} umf_folder_head_t;

static_assert(sizeof(umf_folder_head_t) == 64, "files are kept");

static inline bool umf_vault_is_in_folder(const char *name) {
    return strncmp(name, UMF_FOLDER_PREFIX, strlen(UMF_FOLDER_PREFIX)) == 0;
}

/* The absolute path of the folder, from the name. */
umf_result_t umf_vault_folder_open(umf_link_t *link);
umf_result_t umf_vault_folder_stat(umf_vault_handle_t vault, umf_vault_stat_t *stat);
umf_result_t umf_vault_folder_wait(umf_vault_handle_t vault, uint64_t after, uint64_t timeout_ms,
                                   umf_vault_event_t *event);
umf_result_t umf_vault_folder_drop(umf_vault_handle_t vault, uint64_t generation, bool draft);

umf_result_t umf_vault_folder_begin(umf_vault_draft_handle_t draft,
                                    const umf_vault_draft_params_t *params);
umf_result_t umf_vault_folder_commit(umf_vault_draft_handle_t draft, umf_vault_content_t *content);
/* Ends the draft, if there is one. */
void umf_vault_folder_end(umf_vault_handle_t vault);

/* `*is_attached`: the view is listed, so that the caller ends it after a failure. */
umf_result_t umf_vault_folder_attach(umf_vault_view_handle_t view,
                                     const umf_vault_attach_params_t *params, bool *is_attached);

/* --- within the folder ------------------------------------------------------------------------ */

/* The generations of a folder; all 0: none. */
typedef struct umf_folder_scan_t {
    uint64_t after; /* set before the scan */
    uint64_t first; /* the first one after it */
    uint64_t last, count;
} umf_folder_scan_t;

umf_result_t umf_folder_scan(umf_vault_handle_t vault, umf_folder_scan_t *scan);
/* Drops generations before one while there are more than `keep`, the oldest first. */
umf_result_t umf_folder_drop_before(umf_vault_handle_t vault, uint64_t generation, uint64_t keep);
/* Bytes of the files of all generations. */
umf_result_t umf_folder_bytes(umf_vault_handle_t vault, uint64_t *bytes);
/* The path of a generation; 0: of the draft. */
void umf_folder_path(umf_vault_handle_t vault, uint64_t generation,
                     char path[UMF_FOLDER_PATH_SIZE]);
/* The numbers in the file `lock`; 0: the file lacks this one. */
typedef struct umf_folder_lock_t {
    uint64_t last;    /* number that was given */
    uint64_t service; /* of umf_vault_stat_t */
} umf_folder_lock_t;

void umf_folder_lock_path(umf_vault_handle_t vault, char path[UMF_FOLDER_PATH_SIZE]);
/* Of an open file, which may contain anything. */
void umf_folder_lock_read(int lock, umf_folder_lock_t *lines);
/* The pause between two looks at the folder, which grows with the time that has passed. */
void umf_folder_nap(uint64_t passed_ms, uint64_t most_ms);
/* Logs the failure of a call of the system; its result. */
umf_result_t umf_folder_failed(umf_vault_handle_t vault, int error, const char *what);

/* The file of a draft that is written elsewhere (fill/file.c): it is made, gets the name of the
 * next generation, and is opened once more under this name, for reading. What was made before a
 * failure ends with the draft. */
umf_result_t umf_folder_file_make(umf_vault_draft_handle_t draft, int *fd);
umf_result_t umf_folder_file_publish(umf_vault_draft_handle_t draft, int file);
int umf_folder_file_open(umf_vault_draft_handle_t draft, int made, int *fd);

/* The place of the next slab; `*at` moves behind it. false: the file would be too large. */
bool umf_folder_next(uint64_t *at, const umf_vault_slab_t *slab, uint64_t *place);
uint64_t umf_folder_round(uint64_t size);

#endif
