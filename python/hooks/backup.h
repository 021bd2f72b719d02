/*
 * Backups: the content of sleeping blocks in memory of the host or in files. The bytes of one block
 * are contiguous, and stay where they are for as long as the backup lives.
 */
#ifndef UMF_PYTHON_HOOKS_BACKUP_H
#define UMF_PYTHON_HOOKS_BACKUP_H

#include <sys/types.h>

#include "arena.h"

typedef enum backup_kind_t {
    BACKUP_NONE,
    BACKUP_PINNED, /* pinned memory of the host */
    BACKUP_MMAP,   /* ordinary memory of the host */
    BACKUP_DISK,   /* a file with a name */
} backup_kind_t;

typedef struct backup_t {
    backup_kind_t kind;
    char *memory; /* PINNED, MMAP */
    size_t size;
    arena_t *arena; /* PINNED: memory that several backups share, or NULL: it is its own */
    char *path;     /* DISK */
    pid_t owner;    /* DISK: the process that wrote it */
    dev_t volume;   /* DISK: of the file, as it was made */
    ino_t inode;
    int unsettled; /* 1 + the device whose copies could not be waited for; 0: all are done */
} backup_t;

/* One copy: a block and where its content is kept. Pinned memory goes back when the last backup of
 * its owner that was made in the same call is dropped. */
typedef struct keep_t {
    block_t *block;
    backup_t *backup;
    const void *owner;
} keep_t;

enum { BACKUP_MAX_CHUNK_MB = 65536 };

typedef struct backup_options_t {
    const char *folder; /* for DISK */
    size_t chunk; /* bytes that DISK copies at a time; 0: the environment has no such number */
} backup_options_t;

/* Copies the content of all blocks. A backup without memory or file gets it, by its kind; when the
 * call fails those that got it have lost it again. */
bool backups_save(keep_t *keeps, size_t count, const backup_options_t *options, failure_t *error);
/* Copies all of it back. The backups stay. */
bool backups_load(keep_t *keeps, size_t count, const backup_options_t *options, failure_t *error);
/* Gives memory or file back; does nothing for a backup that has none. Memory that copies may still
 * use is not given back. */
void backup_drop(backup_t *backup);
/* Removes its file, if it has one. A child of fork leaves the files of its parent alone. */
void backup_remove_file(const backup_t *backup);
/* Whether it has content. */
bool backup_is_full(const backup_t *backup);

#endif
