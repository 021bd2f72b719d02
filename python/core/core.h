/*
 * The extension module umf._core: pools, providers and memory of libumf as Python types, over the
 * public headers. The rest is in Python, in the package beside it.
 *
 * It uses the limited API of CPython 3.9 only, so that one build serves that and all newer ones.
 * Each call of the library that may take long runs without the GIL.
 */
#ifndef UMF_PYTHON_CORE_H
#define UMF_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/reason.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>

/*
 * Calls of the library that are in progress on an object, counted under the GIL. A call begins
 * right before it releases the GIL and ends right after it has it again, so no code of Python runs
 * in between, and a close never waits for its own thread. A close refuses new calls and waits for
 * those in progress.
 */
typedef struct umf_py_uses_t {
    Py_ssize_t count;
    Py_ssize_t closing; /* threads in close */
    unsigned process;   /* that counted: a child of fork has none of these calls */
} umf_py_uses_t;

typedef struct umf_py_provider_t {
    PyObject ob_base;
    umf_memory_provider_handle_t handle; /* NULL once it is closed */
    PyObject *text;
    Py_ssize_t pools; /* that were made on it and are open */
    umf_py_uses_t uses;
} umf_py_provider_t;

/* Kind and device of a pool's memory, as far as known. */
typedef enum umf_py_reach_t { REACH_UNKNOWN, REACH_HOST, REACH_DEVICE } umf_py_reach_t;

typedef struct umf_py_pool_t {
    PyObject ob_base;
    umf_memory_pool_handle_t handle; /* NULL once it is closed */
    umf_pool_group_handle_t group;   /* of this pool alone */
    umf_py_provider_t *provider;     /* NULL if the pool owns its provider */
    PyObject *text;
    PyTypeObject *buffer_type;
    Py_ssize_t exports;  /* of all its memory: it cannot be closed meanwhile */
    bool cannot_suspend; /* known from the first export */
    umf_py_uses_t uses;
    umf_py_uses_t moving; /* suspends and resumes in progress, those of jobs too */
    size_t moves;         /* that were begun */
    umf_py_reach_t reach;
} umf_py_pool_t;

/* Whose memory a buffer is. */
typedef enum umf_py_origin_t {
    ORIGIN_POOL,    /* allocated: freed at the end */
    ORIGIN_IPC,     /* of another process: closed at the end */
    ORIGIN_FOREIGN, /* of another library: its owner is notified at the end */
} umf_py_origin_t;

typedef struct umf_py_buffer_t {
    PyObject ob_base;
    umf_py_pool_t *pool; /* NULL for ORIGIN_FOREIGN */
    void *ptr;           /* NULL once it is freed */
    size_t size;
    umf_py_origin_t origin;
    Py_ssize_t exports;
    umf_py_uses_t uses; /* of the memory: it cannot be freed meanwhile */
    void *queue;        /* ORIGIN_POOL: on which it is freed, if it has one */
    bool has_queue;
    umf_ipc_handle_t ipc; /* ORIGIN_POOL: the handle that is out, or NULL */
    size_t ipc_size;
    void *managed; /* ORIGIN_FOREIGN: DLPack's managed tensor */
    bool is_versioned;
    bool is_read_only;
    int device_type; /* ORIGIN_FOREIGN: as DLPack counts them */
    int device;
} umf_py_buffer_t;

extern PyTypeObject *umf_py_provider_type, *umf_py_pool_type, *umf_py_buffer_type, *umf_py_job_type;

/* Raises the exception of umf._errors for a result. `what` was tried; `text` is the cause, NULL:
 * that of the library; `missing` bytes, or 0. NULL always. */
PyObject *umf_py_raise(umf_result_t result, const char *what, const char *text, size_t missing);
PyObject *umf_py_raise_as(umf_result_t result, const char *what, const char *text,
                          const char *reason, size_t missing);
/* Why a call of this thread has failed (umf/reason.h). Each call of the library that may raise
 * clears that first (umf_py_pool_open and the like do), since some failures have no text. */
typedef struct umf_py_failure_t {
    const char *reason; /* "UMF_REASON_STALE", or "" */
    char text[512];
} umf_py_failure_t;
void umf_py_why_take(umf_py_failure_t *failure);
/* Meaning of a result for one function, for a failure without a text. With `remedy` that is behind
 * the text of the library, too: it names calls and settings of Python. */
typedef struct umf_py_why_t {
    umf_result_t result; /* UMF_RESULT_SUCCESS: the last one */
    const char *text, *remedy;
} umf_py_why_t;

/* As umf_py_raise, with what `whys` has for the result. */
PyObject *umf_py_raise_why(umf_result_t result, const char *what, const umf_py_why_t *whys);
PyObject *umf_py_raise_failure(umf_result_t result, const char *what, const umf_py_why_t *whys,
                               const umf_py_failure_t *failure, size_t missing);
/* None, or raises so. */
PyObject *umf_py_none_or_why(umf_result_t result, const char *what, const umf_py_why_t *whys);
/* Message of the provider that failed last in this thread; NULL: none. */
const char *umf_py_native_text(void);
/* None, or raises. */
PyObject *umf_py_none_or_raise(umf_result_t result, const char *what);
/* Raises with the text of the last failure of this thread (umf/reason.h). NULL always. */
PyObject *umf_py_raise_last(umf_result_t result, const char *what);
PyObject *umf_py_none_or_last(umf_result_t result, const char *what);
/* Handles that Python has as numbers: one, and a call with it alone, without the GIL. */
PyObject *umf_py_number(const void *handle);
PyObject *umf_py_number_or_last(umf_result_t result, const void *handle, const char *what);
PyObject *umf_py_call(PyObject *number, umf_result_t (*function)(void *handle), const char *what);
#define UMF_PY_CALL(name, function, what)                                                          \
    static umf_result_t name##_call(void *handle) {                                                \
        return function(handle);                                                                   \
    }                                                                                              \
    static PyObject *name(PyObject *module, PyObject *number) {                                    \
        (void)module;                                                                              \
        return umf_py_call(number, name##_call, what);                                             \
    }

/* --- the life of objects (life.c) --- */

/* Once, when the module is made. */
bool umf_py_life_start(void);
/* Changes in a child of fork. */
unsigned umf_py_process(void);
void umf_py_uses_begin(umf_py_uses_t *uses);
void umf_py_uses_end(umf_py_uses_t *uses);
bool umf_py_uses_any(umf_py_uses_t *uses);
/* Around the wait of a close. */
void umf_py_uses_begin_close(umf_py_uses_t *uses);
void umf_py_uses_end_close(umf_py_uses_t *uses);
/* Waits for `is_over`, called with the GIL, in slices; signals are answered in between. 0: it is
 * over; 1: `seconds` have passed (below 0: no limit); -1 and an exception: a handler of a signal
 * has raised. */
int umf_py_wait(bool (*is_over)(void *arg), void *arg, double seconds);
/* The same, for a close, which refuses new uses meanwhile. False and an exception if it must not
 * go on. */
bool umf_py_close_wait(umf_py_uses_t *uses, bool (*is_idle)(void *arg), void *arg);
/* The seconds of a timeout; -1 and an exception if it is none. */
double umf_py_seconds(PyObject *timeout);
/* Whether the interpreter ends: daemon threads stop where they are, in a call too. */
bool umf_py_is_ending(void);
/* Sleeps without the GIL. */
void umf_py_sleep(int64_t ns);
/* The object, or NULL and TypeError if it is of another type; `name` is the right type in words. */
void *umf_py_check(PyObject *object, PyTypeObject *type, const char *name);
/* A new object of a type with garbage collection: zeroes. */
void *umf_py_alloc(PyTypeObject *type);
void umf_py_dealloc(PyObject *object);

/* The handle, or NULL and an exception if the object is closed. For a call that keeps the GIL. */
umf_memory_pool_handle_t umf_py_pool_open(umf_py_pool_t *pool);
umf_memory_provider_handle_t umf_py_provider_open(umf_py_provider_t *provider);
/* False and an exception if the buffer was freed or its pool closed. */
bool umf_py_buffer_open(umf_py_buffer_t *buffer);
/* The same for a call without the GIL, which ends the use afterwards. */
umf_memory_pool_handle_t umf_py_pool_use(umf_py_pool_t *pool);
void umf_py_pool_unuse(umf_py_pool_t *pool);
umf_memory_provider_handle_t umf_py_provider_use(umf_py_provider_t *provider);
void umf_py_provider_unuse(umf_py_provider_t *provider);
bool umf_py_buffer_use(umf_py_buffer_t *buffer);
void umf_py_buffer_unuse(umf_py_buffer_t *buffer);
/* Ends the uses of finished calls in threads (work.c), so that pools have the right count. May run
 * code of Python, since abandoned work ends. */
void umf_py_works_look(void);
/* Waits until all are over, in slices; false and an exception. */
bool umf_py_works_wait(void);

/* --- objects that are numbers in Python (uses.c), and transfers of them (remote.c) --- */

/* The number of a Uses, borrowed, for a call, which the other one ends; NULL and an exception if it
 * is closed. */
PyObject *umf_py_number_use(PyObject *uses);
void umf_py_number_unuse(PyObject *uses);
/* Whether the Uses is `outer`, or inside of it. */
bool umf_py_number_is_of(PyObject *uses, void *outer);
/* Ends the transfers that belong to a Uses, those that can; and whether there are any. */
void umf_py_transfers_cancel(void *uses);
bool umf_py_transfers_any(void *uses);

/* --- limits (limits.c) --- */

/* Makes the group of a new pool. */
umf_result_t umf_py_limit_begin(umf_py_pool_t *pool);
/* Ends it; the pool was destroyed. */
void umf_py_limit_end(umf_py_pool_t *pool);
umf_pool_group_stats_t umf_py_limit_stats(const umf_py_pool_t *pool);
/* Says how a request of `size` bytes failed; false if the pool has no limit. */
bool umf_py_limit_text(const umf_pool_group_stats_t *stats, size_t size, char *text, size_t room);

/* --- requests for memory (shortage.c) --- */

/* A request of Python that runs without the GIL. Callbacks that give memory back have it. */
typedef struct umf_py_request_t {
    umf_py_pool_t *pool;
    size_t size;
    PyThreadState *thread;           /* NULL while a callback runs */
    PyObject *error, *value, *trace; /* that a callback has raised */
    struct umf_py_request_t *outer;  /* of this thread, if this one is of a callback */
} umf_py_request_t;

/* Gives the GIL up. */
void umf_py_request_begin(umf_py_request_t *request, umf_py_pool_t *pool, size_t size);
/* Has it again. False and the exception if a callback has raised one. */
bool umf_py_request_end(umf_py_request_t *request);
/* False and BufferError in a callback of a request to the pool, which would wait for itself if it
 * was closed or suspended. */
bool umf_py_request_allows(const umf_py_pool_t *pool, const char *what);

/* --- allocations and frees of Python (events.c) --- */

/* Counts and calls hooks; the first two: false and an exception if a hook refuses. */
bool umf_py_malloc_begins(umf_py_pool_t *pool, size_t size);
bool umf_py_malloc_done(umf_py_pool_t *pool, size_t size, void *ptr);
void umf_py_free_begins(umf_py_pool_t *pool, size_t size, void *ptr);
void umf_py_free_done(umf_py_pool_t *pool, size_t size, void *ptr);
/* Memory that went with its pool: hooks have no free to see. */
void umf_py_free_lost(umf_py_pool_t *pool, size_t size);

/* --- memory --- */

bool umf_py_is_buffer_type(PyObject *object);
/* A new object of `type`, a subclass of Buffer, with the reference to `pool` that it holds. */
umf_py_buffer_t *umf_py_buffer_new(PyTypeObject *type, umf_py_pool_t *pool, void *ptr, size_t size,
                                   umf_py_origin_t origin);
/* An export keeps the memory where it is: no free, no close, no suspend. False and BufferError if
 * the pool is suspended. */
bool umf_py_buffer_export(umf_py_buffer_t *buffer);
void umf_py_buffer_unexport(umf_py_buffer_t *buffer);
/* Frees the memory, whatever its origin; for a buffer without exports. */
umf_result_t umf_py_buffer_end(umf_py_buffer_t *buffer);
/* Tells the owner of foreign memory that it is not used any more. */
void umf_py_dlpack_end(umf_py_buffer_t *buffer);

/* A size: an integer of Python or of another library. -1 and an exception if it is none, or below
 * `least`; `name` is the argument's. */
Py_ssize_t umf_py_size(PyObject *number, const char *name, Py_ssize_t least);

/* The native queues of a tuple, in an array for PyMem_Free; NULL and no exception if it is empty.
 */
bool umf_py_queues(PyObject *tuple, void ***made, size_t *count);
/* The native queue of an address or of a stream of another library. False and TypeError. */
bool umf_py_queue(PyObject *stream, void **queue);
/* The same for an argument that may be None or, left out, NULL: then there is no queue. */
bool umf_py_queue_or_none(PyObject *stream, bool *has_queue, void **queue);
/* Methods of buffers and pools. */
PyObject *umf_py_buffer_use_on(PyObject *buffer, PyObject *stream);
PyObject *umf_py_pool_wait_pending(PyObject *pool, PyObject *args, PyObject *kwargs);
/* Items and slices, which are those of a memoryview (items.c). */
PyObject *umf_py_buffer_item(PyObject *buffer, PyObject *key);
int umf_py_buffer_set_item(PyObject *buffer, PyObject *key, PyObject *value);
PyObject *umf_py_buffer_iter(PyObject *buffer);
PyObject *umf_py_buffer_tobytes(PyObject *buffer, PyObject *unused);
/* Raises the error of a copy or fill with `done` right bytes. NULL always. */
PyObject *umf_py_raise_copy(umf_result_t result, size_t done);
/* Converters of arguments ("O&"): OverflowError for a number that does not fit, or is negative. */
int umf_py_u64(PyObject *number, void *value);
int umf_py_u32(PyObject *number, void *value);
/* The address of a number; false and an exception. */
bool umf_py_address(PyObject *number, void **address);

/* Functions of the module, in one table for each file. */
extern PyMethodDef umf_py_info_functions[], umf_py_suspend_functions[], umf_py_dlpack_functions[],
    umf_py_ipc_functions[], umf_py_copy_functions[], umf_py_queue_functions[],
    umf_py_record_functions[], umf_py_recording_functions[], umf_py_limit_functions[],
    umf_py_shortage_functions[], umf_py_event_functions[], umf_py_remote_functions[],
    umf_py_vault_functions[], umf_py_vault_move_functions[], umf_py_vault_fetch_functions[],
    umf_py_vault_claim_functions[];

/* A call that may wait, in slices that end with `reason`, or with BUSY while another client makes
 * evicted memory again. Between two of them handlers of signals run; false: one has raised. A slice
 * takes longer where the service does not answer, or memory is made again (vault.c). */
typedef umf_result_t (*umf_py_vault_step_t)(void *vault, void *params, void *out);
bool umf_py_vault_patiently(umf_result_t *result, umf_py_vault_step_t step, void *vault,
                            void *params, uint64_t *timeout_ms, void *out, umf_reason_t reason);
/* Opens a vault so that handlers of signals run meanwhile (vault_open.c). */
PyObject *umf_py_vault_open(PyObject *module, PyObject *args);
/* Starts a thread that gets no signals; false if there is none (work.c). */
bool umf_py_thread_start(void *(*run)(void *arg), void *arg);
/* Whether it is the thread in which Python runs handlers of signals. */
bool umf_py_is_main_thread(void);

bool umf_py_add_provider(PyObject *module);
bool umf_py_add_pool(PyObject *module);
bool umf_py_add_buffer(PyObject *module);
bool umf_py_add_job(PyObject *module);
bool umf_py_add_counters(PyObject *module);
bool umf_py_add_recording(PyObject *module);
bool umf_py_add_region(PyObject *module);
/* Memory of an umf._core.Region. */
typedef struct umf_py_region_view_t {
    void *ptr;
    Py_ssize_t size;
    int device; /* -1: memory of the host */
    bool is_read_only;
} umf_py_region_view_t;
/* As a view of it: its owner cannot end. False and an exception. */
bool umf_py_region_export(PyObject *region, umf_py_region_view_t *view);
void umf_py_region_unexport(PyObject *region);
bool umf_py_add_uses(PyObject *module);
/* Makes a heap type of `spec`, keeps it in `*type` and adds it to the module. */
bool umf_py_add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type);

#endif
