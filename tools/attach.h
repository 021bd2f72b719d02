/*
 * Looks at other processes (umf/record_attach.h). What they answer is checked before it is used;
 * none can keep the tool waiting for long.
 */
#ifndef UMFCTL_ATTACH_H
#define UMFCTL_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include <umf/record_attach.h>

#include "reader/reader.h"

typedef struct attach_t {
    int fd; /* -1: there is no connection */
    uint32_t pid;
    bool is_gone;    /* the process has ended, or has closed the connection */
    bool may_view;   /* its memory may be looked at instead (view/view.h) */
    char error[512]; /* why the last call failed */
} attach_t;

/* The number of a process. 0: the word is none. */
uint32_t attach_pid(const char *word);

/* False: `error` says why. Soon: without waiting for a process whose queue is full. */
bool attach_open(attach_t *attach, uint32_t pid);
bool attach_open_soon(attach_t *attach, uint32_t pid);
void attach_close(attach_t *attach);

/* Sends a request and waits for the answer. `*fd` gets the file that comes with it, -1 if it
 * fails; NULL: none is requested. False: `error` says why; the connection stays unless `is_gone`.
 * */
bool attach_ask(attach_t *attach, const umf_attach_request_t *request, int *fd);
/* `object`: a pool of a snapshot; NULL: the request is about none. */
umf_attach_request_t attach_request(umf_attach_kind_t kind, const umf_record_object_t *object);

/* A snapshot of that kind. NULL: `error` says why. */
umf_reader_t *attach_snapshot(attach_t *attach, umf_attach_kind_t kind);
/* The same in two steps, the second when the connection can be read. */
bool attach_snapshot_ask(attach_t *attach, umf_attach_kind_t kind);
umf_reader_t *attach_snapshot_take(attach_t *attach);

/* inspect.c: live allocations of the process: of the recording that runs there, else of one that is
 * made now. NULL: stderr says why. */
umf_reader_t *attach_live(uint32_t pid);

/* The processes of this pid namespace that listen, in ascending order; returns how many. */
unsigned attach_list(uint32_t *pids, unsigned most);

/* The name of a process's program; returns `text`. */
const char *attach_name(uint32_t pid, char *text, size_t size);

#endif
