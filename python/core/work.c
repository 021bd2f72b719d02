/* Calls of the library in threads of their own. */
#include "work.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static umf_py_work_t *at_work;

umf_py_work_t *umf_py_work_new(PyObject *pools) {
    umf_py_work_t *work = PyMem_Calloc(1, sizeof(*work));
    size_t count = (size_t)PyTuple_Size(pools);
    umf_memory_pool_handle_t *handles = work ? PyMem_Calloc(count, sizeof(*handles)) : NULL;
    if (!handles) {
        PyMem_Free(work);
        PyErr_NoMemory();
        return NULL;
    }
    Py_INCREF(pools);
    work->pools = pools;
    work->handles = handles;
    work->count = count;
    work->params = (umf_suspend_params_t)UMF_SUSPEND_PARAMS_INIT;
    work->report = (umf_suspend_report_t)UMF_SUSPEND_REPORT_INIT;
    return work;
}

static void work_free(umf_py_work_t *work) {
    PyObject *pools = work->pools;
    PyMem_Free(work->handles);
    PyMem_Free((void *)work->params.queues);
    PyMem_Free((void *)work->params.events);
    PyMem_Free(work);
    Py_DECREF(pools); /* may run code of Python */
}

/* --- the call --------------------------------------------------------------------------------- */

static umf_py_uses_t *uses_of(umf_py_work_t *work, size_t i) {
    PyObject *object = PyTuple_GetItem(work->pools, (Py_ssize_t)i);
    if (!PyObject_TypeCheck(object, umf_py_pool_type)) {
        return NULL;
    }
    umf_py_pool_t *pool = (umf_py_pool_t *)object;
    return work->is_move ? &pool->moving : &pool->uses;
}

static void work_begin(umf_py_work_t *work) {
    for (size_t i = 0; i < work->count; i++) {
        umf_py_uses_t *uses = uses_of(work, i);
        if (uses) {
            umf_py_uses_begin(uses);
            ((umf_py_pool_t *)PyTuple_GetItem(work->pools, (Py_ssize_t)i))->moves += work->is_move;
        }
    }
    work->process = umf_py_process();
}

/* In a child of fork its uses are over already. */
static void work_end(umf_py_work_t *work) {
    for (size_t i = 0; i < work->count && work->process == umf_py_process(); i++) {
        umf_py_uses_t *uses = uses_of(work, i);
        if (uses) {
            umf_py_uses_end(uses);
        }
    }
}

static void work_run(umf_py_work_t *work) {
    umfLastErrorClear();
    work->result = work->run(work);
    if (work->result == UMF_RESULT_SUCCESS) {
        return;
    }
    umf_py_why_take(&work->failure); /* it is of this thread */
    const char *text =
        work->result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC ? umf_py_native_text() : NULL;
    work->is_native = text != NULL;
    if (text) {
        strncpy(work->failure.text, text, sizeof(work->failure.text) - 1);
    }
}

void umf_py_work_call(umf_py_work_t *work) {
    work_begin(work);
    Py_BEGIN_ALLOW_THREADS;
    work_run(work);
    Py_END_ALLOW_THREADS;
    work_end(work);
}

/* --- in a thread ------------------------------------------------------------------------------ */

static void *work_thread(void *arg) {
    umf_py_work_t *work = arg;
    work_run(work);
    __atomic_store_n(&work->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* The thread blocks all signals, because they belong to the program. */
bool umf_py_thread_start(void *(*run)(void *arg), void *arg) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_started) {
        pthread_detach(thread);
    }
    return is_started;
}

bool umf_py_work_start(umf_py_work_t *work) {
    if (!umf_py_thread_start(work_thread, work)) {
        return false;
    }
    work_begin(work);
    work->is_at_work = true;
    work->next = at_work;
    work->link = &at_work;
    if (at_work) {
        at_work->link = &work->next;
    }
    at_work = work;
    return true;
}

/* Also of a child of fork, in which the call is over: it has no such thread. */
bool umf_py_work_is_over(void *arg) {
    umf_py_work_t *work = arg;
    bool is_done =
        work->process != umf_py_process() || __atomic_load_n(&work->done, __ATOMIC_ACQUIRE);
    if (work->is_at_work && is_done) {
        work->is_at_work = false;
        work_end(work);
        *work->link = work->next;
        if (work->next) {
            work->next->link = work->link;
        }
    }
    return !work->is_at_work;
}

void umf_py_work_leave(umf_py_work_t *work) {
    if (umf_py_work_is_over(work)) {
        work_free(work);
    } else {
        work->is_left = true;
    }
}

void umf_py_works_look(void) {
    for (umf_py_work_t *each = at_work, *next; each; each = next) {
        next = each->next;
        if (umf_py_work_is_over(each) && each->is_left) {
            work_free(each);
            next = at_work; /* the list may be another one now */
        }
    }
}

/* --- waits ------------------------------------------------------------------------------------ */

static bool is_over_same(const umf_py_work_t *one, const umf_py_work_t *other) {
    for (size_t i = 0; i < one->count * other->count; i++) {
        if (one->handles[i / other->count] == other->handles[i % other->count]) {
            return true;
        }
    }
    return false;
}

static bool left_is_over(void *arg) {
    umf_py_work_t *work = arg;
    umf_py_works_look();
    for (umf_py_work_t *each = at_work; each; each = each->next) {
        if (each->is_left && each->is_move == work->is_move && is_over_same(each, work)) {
            return false;
        }
    }
    return true;
}

bool umf_py_work_wait_left(umf_py_work_t *work) {
    return umf_py_wait(left_is_over, work, -1) == 0;
}

static bool all_are_over(void *unused) {
    (void)unused;
    umf_py_works_look();
    return !at_work;
}

bool umf_py_works_wait(void) {
    return umf_py_wait(all_are_over, NULL, -1) == 0;
}

bool umf_py_is_main_thread(void) {
    return syscall(SYS_gettid) == getpid();
}

bool umf_py_work_make(umf_py_work_t *work, bool is_short) {
    if (is_short || !umf_py_is_main_thread() || !umf_py_work_start(work)) {
        umf_py_work_call(work);
    } else if (umf_py_wait(umf_py_work_is_over, work, -1) < 0) {
        umf_py_work_leave(work);
        return false;
    }
    return true;
}
