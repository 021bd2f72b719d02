/*
 * The buffer protocol. It is a part of the limited API from CPython 3.11 on. The struct, the
 * numbers of its slots and its functions are the same in 3.9 and 3.10, so one build serves these,
 * too.
 */
#ifndef UMF_PYTHON_VIEW_H
#define UMF_PYTHON_VIEW_H

#include "core.h"

typedef struct view_t {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} view_t;

enum { SLOT_GET_BUFFER = 1, SLOT_RELEASE_BUFFER = 2 };
enum { VIEW_WRITABLE = 0x1, VIEW_FORMAT = 0x4, VIEW_ND = 0x8, VIEW_STRIDES = 0x10 };

int PyObject_GetBuffer(PyObject *object, void *view, int flags);
void PyBuffer_Release(void *view);
int PyBuffer_FillInfo(void *view, PyObject *object, void *ptr, Py_ssize_t size, int is_read_only,
                      int flags);

#endif
