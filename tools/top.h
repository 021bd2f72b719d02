/* The data of umfctl top and metrics: a row for each pool and provider. */
#ifndef UMFCTL_TOP_H
#define UMFCTL_TOP_H

#include "attach.h"
#include "view/view.h"

#define TOP_PROCESSES 256u

typedef enum top_key_t {
    TOP_HELD,
    TOP_LIVE,
    TOP_PEAK,
    TOP_AWAY,
    TOP_GROWTH,
    TOP_NAME,
} top_key_t;

typedef struct top_row_t {
    uint32_t process; /* index in `targets` */
    uint32_t number;  /* of the object in its process */
    umf_record_object_t object;
    char kind[16]; /* of the object; "": it is not known */
    bool has_growth;
    double growth; /* bytes in use in a second, since the last sample */
    /* Of the view, also where the rest comes from the attach socket: */
    bool has_pages; /* an arena; then also */
    uint64_t spare, stale, moved;
    uint64_t refusals; /* of a pool, so far */
} top_row_t;

/* Of one process: another object may have got the handle. */
static inline bool top_is_same(const umf_record_object_t *a, const umf_record_object_t *b) {
    return a->handle == b->handle && a->birth == b->birth;
}

typedef struct top_target_t {
    bool is_viewed; /* it has no attach socket: its memory is read */
    bool is_asked;  /* and has not answered so far */
    bool has_view;  /* `view` goes on */
    umf_view_child_t view;
    char name[32]; /* as it may be written */
} top_target_t;

typedef struct top_t {
    uint32_t pid;    /* 0: all */
    bool is_started; /* only the program that umfctl has started, and what that starts (start.h) */
    top_key_t key;
    attach_t targets[TOP_PROCESSES];
    top_target_t with[TOP_PROCESSES];
    unsigned samples;
    unsigned target_count;
    top_row_t *rows, *before;
    size_t count, before_count;
    double time;    /* of the rows, in seconds */
    char note[512]; /* the last thing that went wrong; "" */
} top_t;

void top_init(top_t *top, uint32_t pid);
/* Connects, and takes the first sample. False: `note` says why there is nothing. */
bool top_begin(top_t *top, uint32_t pid);
/* Sends requests to all again, and to new processes, too, if all are requested. False: no process
 * is left. */
bool top_sample(top_t *top);
void top_end(top_t *top);

/* Is the process still looked at? */
static inline bool top_is_open(const top_t *top, uint32_t process) {
    return top->targets[process].fd != -1 || top->with[process].is_viewed;
}
/* Writes the limits of a process without an attach socket; returns `text`. */
const char *top_view_text(const top_t *top, uint32_t process, char *text, size_t size);

void top_sort(top_t *top);
/* The words of a row; "-" if it is not known. Each returns `text`. */
const char *top_bytes(uint64_t bytes, char *text, size_t size);
const char *top_label(const top_t *top, const top_row_t *row, char *text, size_t size);
#define TOP_LINE 81
void top_line(const top_t *top, const top_row_t *row, char line[TOP_LINE]);
/* What an arena does with its pages. false: it is none. */
bool top_pages(const top_row_t *row, char line[TOP_LINE]);
extern const char top_head[];

/* What stands out of a pool, and the key that goes on; "" if nothing does. */
void top_advice(const top_row_t *row, char *text, size_t size);

/* Bytes that a pool holds and the program does not use. */
uint64_t top_cached(const umf_record_object_t *object);

/* Sums of a process; UMF_RECORD_UNKNOWN if a pool does not report them. */
typedef struct top_sum_t {
    uint64_t live, held, away;
    size_t pools;
} top_sum_t;
top_sum_t top_sum(const top_t *top, uint32_t process);

/* top_spans.c, with ncurses: the spans of a pool in a snapshot, from the `first` line on; and its
 * pages, if it has any. */
void top_spans_show(const umf_reader_t *snapshot, uint32_t number, size_t first, const char *pages);

/* top_screen.c: the live screen. Returns the exit status. */
bool top_has_screen(void);
int top_screen(top_t *top, double interval);

#endif
