/* Files of recordings and snapshots, read (tools/reader) and drawn (tools/picture). */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include "picture/picture.h"
#include "reader/reader.h"

typedef struct recording_t {
    PyObject ob_base;
    umf_reader_t *reader;
} recording_t;

static PyTypeObject *recording_type, *events_type;

static PyObject *raise_reader(const umf_reader_error_t *error) {
    return umf_py_raise_as(UMF_RESULT_ERROR_INVALID_ARGUMENT, "the recording cannot be read",
                           error->text, "", 0);
}

/* Texts of a file may be anything. */
static PyObject *text_of(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Adds to a list, and drops the reference. False: an exception. */
static bool append(PyObject *list, PyObject *item) {
    bool is_done = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_done;
}

/* --- the file --------------------------------------------------------------------------------- */

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    const char *path;
    umf_reader_error_t error;
    umf_reader_t *reader;
    if (!PyArg_ParseTuple(args, "s", &path)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS reader = umf_reader_open(path, &error);
    Py_END_ALLOW_THREADS if (!reader) {
        return raise_reader(&error);
    }
    recording_t *made = (recording_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!made) {
        umf_reader_close(reader);
        return NULL;
    }
    made->reader = reader;
    return (PyObject *)made;
}

static void recording_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    umf_reader_close(((recording_t *)object)->reader);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static umf_reader_t *reader_of(PyObject *object) {
    return ((recording_t *)object)->reader;
}

/* info() -> (pid, is a snapshot, ns since 1970 of the start, events, dropped, first ns, last ns) */
static PyObject *recording_info(PyObject *object, PyObject *unused) {
    (void)unused;
    const umf_reader_info_t *info = umf_reader_info(reader_of(object));
    return Py_BuildValue(
        "INKKKLL", info->pid, PyBool_FromLong(info->kind == UMF_RECORD_FILE_SNAPSHOT),
        (unsigned long long)info->realtime, (unsigned long long)info->event_count,
        (unsigned long long)info->dropped, (long long)info->first_ns, (long long)info->last_ns);
}

/* notes() -> oddities of the file */
static PyObject *recording_notes(PyObject *object, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    const char *note;
    for (size_t i = 0; list && (note = umf_reader_note(reader_of(object), i)); i++) {
        if (!append(list, text_of(note))) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* None for a figure that the object does not have. */
static PyObject *figure(uint64_t value) {
    if (value == UMF_RECORD_UNKNOWN) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *object_of(umf_reader_t *reader, uint32_t number) {
    const umf_record_object_t *each = umf_reader_object(reader, number);
    char label[sizeof(each->name) + 32];
    return Py_BuildValue(
        "IIIKNNNNNNNN", each->kind, each->flags, each->parent, (unsigned long long)each->handle,
        text_of(umf_reader_label(reader, number, label, sizeof(label))), figure(each->live),
        figure(each->live_count), figure(each->held), figure(each->peak), figure(each->away),
        figure(each->allocs), figure(each->frees));
}

/* objects() -> (kind, flags, parent, handle, label, live, live count, held, peak, away, allocs,
 * frees) of each number */
static PyObject *recording_objects(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_reader_t *reader = reader_of(object);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < umf_reader_info(reader)->object_count; i++) {
        if (!append(list, object_of(reader, i))) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *runs_of(const umf_reader_t *reader, const umf_record_span_t *span) {
    size_t count;
    const umf_record_run_t *runs = umf_reader_runs(reader, &count);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < span->run_count && span->first_run + i < count; i++) {
        const umf_record_run_t *run = &runs[span->first_run + i];
        PyObject *made = Py_BuildValue("KKII", (unsigned long long)run->base,
                                       (unsigned long long)run->size, run->count, run->state);
        if (!append(list, made)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* spans() -> (address, size, object, flags, [(address, size, count, state)]) of a snapshot */
static PyObject *recording_spans(PyObject *object, PyObject *unused) {
    (void)unused;
    size_t count;
    const umf_record_span_t *spans = umf_reader_spans(reader_of(object), &count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *runs = runs_of(reader_of(object), &spans[i]);
        PyObject *made = runs ? Py_BuildValue("KKIIN", (unsigned long long)spans[i].base,
                                              (unsigned long long)spans[i].size, spans[i].object,
                                              spans[i].flags, runs)
                              : NULL;
        if (!append(list, made)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* --- live allocations ------------------------------------------------------------------------- */

static PyObject *live_list(const umf_reader_replay_t *replay) {
    PyObject *list = PyList_New(0);
    const umf_reader_live_t *each;
    for (size_t at = 0; list && (each = umf_reader_replay_next(replay, &at));) {
        PyObject *made = Py_BuildValue("KKLII", (unsigned long long)each->address,
                                       (unsigned long long)each->size, (long long)each->ns,
                                       each->object, each->stack);
        if (!append(list, made)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* live() -> (address, size, ns, object, stack) of each allocation live at the end */
static PyObject *recording_live(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_reader_error_t error;
    umf_reader_replay_t *replay = umf_reader_replay_begin(reader_of(object), &error);
    PyObject *list = NULL;
    if (!replay || !umf_reader_replay_run(replay, INT64_MAX, &error)) {
        raise_reader(&error);
    } else {
        list = live_list(replay);
    }
    umf_reader_replay_free(replay);
    return list;
}

/* stack(number) -> a text for each frame, the innermost first */
static PyObject *recording_stack(PyObject *object, PyObject *args) {
    unsigned number;
    if (!PyArg_ParseTuple(args, "I", &number)) {
        return NULL;
    }
    umf_reader_t *reader = reader_of(object);
    const uint64_t *frames = NULL;
    size_t count = number < umf_reader_info(reader)->stack_count
                       ? umf_reader_stack(reader, number, &frames)
                       : 0;
    PyObject *list = PyList_New(0);
    char text[512];
    for (size_t i = 0; list && i < count; i++) {
        umf_reader_frame_t frame = umf_reader_resolve(reader, frames[i]);
        if (!append(list, text_of(umf_reader_frame_text(&frame, text, sizeof(text))))) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* --- events ----------------------------------------------------------------------------------- */

typedef struct events_t {
    PyObject ob_base;
    PyObject *recording;
    umf_reader_cursor_t *cursor;
} events_t;

static PyObject *recording_events(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_reader_error_t error;
    umf_reader_cursor_t *cursor = umf_reader_iterate(reader_of(object), &error);
    if (!cursor) {
        return raise_reader(&error);
    }
    events_t *made =
        (events_t *)((allocfunc)PyType_GetSlot(events_type, Py_tp_alloc))(events_type, 0);
    if (!made) {
        umf_reader_cursor_free(cursor);
        return NULL;
    }
    Py_INCREF(object);
    made->recording = object;
    made->cursor = cursor;
    return (PyObject *)made;
}

static void events_dealloc(PyObject *object) {
    events_t *events = (events_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    umf_reader_cursor_free(events->cursor);
    Py_XDECREF(events->recording);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *events_iter(PyObject *object) {
    Py_INCREF(object);
    return object;
}

/* (ns, kind, object, address, size, thread, queue, stack, name of a mark) */
static PyObject *events_next(PyObject *object) {
    const events_t *events = (events_t *)object;
    umf_reader_event_t event;
    if (!events->cursor || !umf_reader_next(events->cursor, &event)) {
        return NULL;
    }
    const umf_reader_t *reader = reader_of(events->recording);
    bool is_mark = event.kind == UMF_RECORD_MARK;
    return Py_BuildValue("LIIKKIIIN", (long long)event.ns, (unsigned)event.kind, event.object,
                         is_mark ? 0ULL : (unsigned long long)event.address,
                         (unsigned long long)event.size, umf_reader_thread(reader, event.thread),
                         event.queue, event.stack,
                         text_of(is_mark ? umf_reader_text(reader, event.address) : ""));
}

/* --- the picture ------------------------------------------------------------------------------ */

typedef struct page_t {
    char *bytes;
    size_t size, room;
} page_t;

static bool page_put(void *arg, const char *bytes, size_t size) {
    page_t *page = arg;
    if (page->room - page->size < size) {
        size_t room = 2 * page->room + size;
        char *more = realloc(page->bytes, room);
        if (!more) {
            return false;
        }
        page->bytes = more;
        page->room = room;
    }
    memcpy(page->bytes + page->size, bytes, size);
    page->size += size;
    return true;
}

static bool page_make(const char *path, page_t *page, umf_reader_error_t *error) {
    umf_reader_t *reader = umf_reader_open(path, error);
    bool is_made = reader && umf_picture_write(reader, page_put, page, error);
    umf_reader_close(reader);
    return is_made;
}

/* recording_html(path) -> the page */
static PyObject *recording_html(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    page_t page = {NULL, 0, 0};
    umf_reader_error_t error = {"there is no memory for the page"};
    bool is_made;
    if (!PyArg_ParseTuple(args, "s", &path)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS is_made = page_make(path, &page, &error);
    Py_END_ALLOW_THREADS PyObject *text =
        is_made ? PyUnicode_DecodeUTF8(page.bytes, (Py_ssize_t)page.size, "replace")
                : raise_reader(&error);
    free(page.bytes);
    return text;
}

/* --- tables ----------------------------------------------------------------------------------- */

static PyMethodDef recording_methods[] = {
    {"info", recording_info, METH_NOARGS, "info($self, /)\n--\n\nFacts of the file."},
    {"notes", recording_notes, METH_NOARGS, "notes($self, /)\n--\n\nOddities of the file."},
    {"objects", recording_objects, METH_NOARGS,
     "objects($self, /)\n--\n\nPools and providers by number."},
    {"spans", recording_spans, METH_NOARGS,
     "spans($self, /)\n--\n\nMemory of pools from their providers."},
    {"live", recording_live, METH_NOARGS, "live($self, /)\n--\n\nAllocations live at the end."},
    {"stack", recording_stack, METH_VARARGS,
     "stack($self, number, /)\n--\n\nThe frames of a stack."},
    {"events", recording_events, METH_NOARGS,
     "events($self, /)\n--\n\nAn iterator over all events, by time."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot recording_slots[] = {{Py_tp_new, recording_new},
                                        {Py_tp_dealloc, recording_dealloc},
                                        {Py_tp_methods, recording_methods},
                                        {Py_tp_doc, "A file of a recording or a snapshot."},
                                        {0, NULL}};

static PyType_Spec recording_spec = {.name = "umf._core.Recording",
                                     .basicsize = sizeof(recording_t),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = recording_slots};

static PyType_Slot events_slots[] = {{Py_tp_dealloc, events_dealloc},
                                     {Py_tp_iter, events_iter},
                                     {Py_tp_iternext, events_next},
                                     {Py_tp_doc, "Events of a recording."},
                                     {0, NULL}};

static PyType_Spec events_spec = {.name = "umf._core.Events",
                                  .basicsize = sizeof(events_t),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = events_slots};

PyMethodDef umf_py_recording_functions[] = {
    {"recording_html", recording_html, METH_VARARGS,
     "recording_html(path, /)\n--\n\nThe picture of a file."},
    {NULL, NULL, 0, NULL}};

bool umf_py_add_recording(PyObject *module) {
    return umf_py_add_type(module, &recording_spec, "Recording", &recording_type) &&
           umf_py_add_type(module, &events_spec, "Events", &events_type);
}
