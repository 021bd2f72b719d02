/* Calls of the library in threads of their own (work.c). */
#ifndef UMF_PYTHON_WORK_H
#define UMF_PYTHON_WORK_H

#include "core.h"

/*
 * One call over pools. If it is left it goes on, keeps its pools alive and in use, and is forgotten
 * once it is over. All members but `done` are used under the GIL, or by the call.
 */
typedef struct umf_py_work_t {
    umf_result_t (*run)(struct umf_py_work_t *work); /* the call, without the GIL */
    bool is_move;                                    /* a suspend or resume */
    bool is_resume;
    PyObject *pools; /* owned: a tuple of Pool, or of addresses of pools */
    umf_memory_pool_handle_t *handles;
    size_t count;
    umf_suspend_params_t params;        /* its arrays are owned */
    umf_suspend_report_t report;        /* of a suspend or resume that is over */
    size_t bytes;                       /* of a wait that is over: those that still wait */
    umf_result_t result;                /* of a call that is over */
    umf_py_failure_t failure;           /* of a call that failed */
    bool is_native;                     /* its text is the driver's */
    int done;                           /* atomic: the call has ended */
    bool is_at_work;                    /* until it is known to be over */
    bool is_left;                       /* there is no other reference */
    unsigned process;                   /* that started it */
    struct umf_py_work_t *next, **link; /* of those at work */
} umf_py_work_t;

/* NULL and an exception if there is no memory. The handles are not set. */
umf_py_work_t *umf_py_work_new(PyObject *pools);
/* Starts the call in a thread; false if there is none. */
bool umf_py_work_start(umf_py_work_t *work);
/* Makes the call here. */
void umf_py_work_call(umf_py_work_t *work);
/* Whether the call of the umf_py_work_t `work` is over. */
bool umf_py_work_is_over(void *work);
/* Ends the work, or leaves it to itself. May run code of Python. */
void umf_py_work_leave(umf_py_work_t *work);
/* Waits for abandoned work of the same sort on the same pools; false and an exception. */
bool umf_py_work_wait_left(umf_py_work_t *work);
/* Makes the call so that signals are answered; false and an exception if a handler has raised: then
 * the work was left. Only the main thread, which has the signals, starts a thread. */
bool umf_py_work_make(umf_py_work_t *work, bool is_short);

#endif
