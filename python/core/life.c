/* The life of objects: calls in progress, waits that signals interrupt, and their end. */
#include "core.h"

#include <pthread.h>
#include <time.h>

/* --- forks ------------------------------------------------------------------------------------ */

static unsigned process;

static void forked(void) {
    process++;
}

bool umf_py_life_start(void) {
    static bool is_done; /* the module is loaded once */
    if (!is_done && pthread_atfork(NULL, NULL, forked) != 0) {
        PyErr_NoMemory();
        return false;
    }
    is_done = true;
    return true;
}

unsigned umf_py_process(void) {
    return process;
}

/* --- uses ------------------------------------------------------------------------------------- */

/* Calls of the parent's other threads ended with these. */
static void uses_of_process(umf_py_uses_t *uses) {
    if (uses->process != process) {
        *uses = (umf_py_uses_t){.process = process};
    }
}

void umf_py_uses_begin(umf_py_uses_t *uses) {
    uses_of_process(uses);
    uses->count++;
}

void umf_py_uses_end(umf_py_uses_t *uses) {
    uses_of_process(uses);
    if (uses->count > 0) { /* the call itself may have forked */
        uses->count--;
    }
}

bool umf_py_uses_any(umf_py_uses_t *uses) {
    uses_of_process(uses);
    return uses->count > 0;
}

void umf_py_uses_begin_close(umf_py_uses_t *uses) {
    uses_of_process(uses);
    uses->closing++;
}

void umf_py_uses_end_close(umf_py_uses_t *uses) {
    uses_of_process(uses);
    if (uses->closing > 0) {
        uses->closing--;
    }
}

/* --- waits ------------------------------------------------------------------------------------ */

enum { SLICE_LEAST_NS = 20 * 1000, SLICE_MOST_NS = 10 * 1000 * 1000 };

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void umf_py_sleep(int64_t ns) {
    struct timespec time = {0, (long)ns};
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&time, NULL);
    Py_END_ALLOW_THREADS;
}

/* A sixteenth of the elapsed time: the wait ends little later than its cause. */
static int64_t slice_ns(int64_t passed) {
    int64_t ns = passed / 16;
    return ns < SLICE_LEAST_NS ? SLICE_LEAST_NS : ns > SLICE_MOST_NS ? SLICE_MOST_NS : ns;
}

int umf_py_wait(bool (*is_over)(void *arg), void *arg, double seconds) {
    int64_t start = now_ns(), passed = 0;
    while (!is_over(arg)) {
        if (seconds >= 0 && (double)passed >= seconds * 1e9) {
            return 1;
        }
        umf_py_sleep(slice_ns(passed));
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
        passed = now_ns() - start;
    }
    return 0;
}

double umf_py_seconds(PyObject *timeout) {
    double seconds = PyFloat_AsDouble(timeout);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (!(seconds >= 0 && seconds < 1e9)) {
        PyErr_Format(PyExc_ValueError, "timeout must be from 0 to 1e9 seconds, it is %R", timeout);
        return -1;
    }
    return seconds;
}

bool umf_py_is_ending(void) {
    PyObject *query = PySys_GetObject("is_finalizing"), *answer = NULL;
    if (query) {
        answer = PyObject_CallObject(query, NULL);
    }
    bool is_ending = !answer || PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Clear();
    return is_ending;
}

bool umf_py_close_wait(umf_py_uses_t *uses, bool (*is_idle)(void *arg), void *arg) {
    if (is_idle(arg)) {
        return true;
    }
    if (umf_py_is_ending()) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "it cannot be closed: the interpreter ends, and a daemon thread was stopped "
            "in a call that uses it");
        return false;
    }
    umf_py_uses_begin_close(uses);
    int failed = umf_py_wait(is_idle, arg, -1);
    umf_py_uses_end_close(uses);
    return failed == 0;
}

/* --- objects ---------------------------------------------------------------------------------- */

void *umf_py_check(PyObject *object, PyTypeObject *type, const char *name) {
    if (!PyObject_TypeCheck(object, type)) {
        PyErr_Format(PyExc_TypeError, "it must be %s, not %R", name, object);
        return NULL;
    }
    return object;
}

void *umf_py_alloc(PyTypeObject *type) {
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

void umf_py_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}
