/* Programs that umfctl starts, to look at them: the words after "--" on the command line. */
#ifndef UMFCTL_START_H
#define UMFCTL_START_H

#include <stdbool.h>
#include <stdint.h>

/* Where the program's input and output go. */
typedef enum start_streams_t {
    START_ALL,      /* they are umfctl's */
    START_TO_ERROR, /* output is written to umfctl's standard error */
    START_ASIDE,    /* no input; output is written when the program has ended */
} start_streams_t;

/* Starts the program with UMF_RECORD=`record`, in which "%p" is replaced by the number of the
 * process; NULL: with UMF_RECORD_ATTACH=yes. Returns that number; 0: stderr says why not. */
uint32_t start_program(char **words, const char *record, start_streams_t streams);
/* Of the program, which also gets SIGTERM and SIGHUP that end umfctl. */
void start_pass_on(int number);
bool start_runs(void);
/* Waits for the end and returns the program's exit status; 128 and the number of a signal. */
int start_wait(void);
/* Is the process the program, or did the program start it? */
bool start_is_below(uint32_t pid);

#endif
