/* Results of the library as exceptions. */
#include "core.h"

#include <umf/reason.h>
#include <umf/result.h>

/* The driver's message is more precise than the library's. */
const char *umf_py_native_text(void) {
    umf_memory_provider_handle_t provider;
    const char *text = NULL;
    int32_t code;
    if (umfGetLastFailedMemoryProvider(&provider) != UMF_RESULT_SUCCESS || !provider ||
        umfMemoryProviderGetLastNativeError(provider, &text, &code) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    return text;
}

void umf_py_why_take(umf_py_failure_t *failure) {
    umf_reason_t reason = umfLastReason();
    failure->reason = reason == UMF_REASON_NONE ? "" : umfReasonName(reason);
    PyOS_snprintf(failure->text, sizeof(failure->text), "%s", umfLastErrorText());
}

PyObject *umf_py_raise(umf_result_t result, const char *what, const char *text, size_t missing) {
    umf_py_failure_t last; /* what follows may fail, too */
    umf_py_why_take(&last);
    if (!text && result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC) {
        text = umf_py_native_text();
    }
    return umf_py_raise_as(result, what, text ? text : last.text, last.reason, missing);
}

PyObject *umf_py_raise_as(umf_result_t result, const char *what, const char *text,
                          const char *reason, size_t missing) {
    PyObject *module = PyImport_ImportModule("umf._errors");
    if (!module) {
        return NULL;
    }
    PyObject *error =
        PyObject_CallMethod(module, "make", "issssns", (int)result, what, umfResultName(result),
                            umfResultText(result), text, (Py_ssize_t)missing, reason);
    Py_DECREF(module);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *umf_py_raise_failure(umf_result_t result, const char *what, const umf_py_why_t *whys,
                               const umf_py_failure_t *failure, size_t missing) {
    while (whys->result != UMF_RESULT_SUCCESS && whys->result != result) {
        whys++;
    }
    const char *text = failure->text[0] || !whys->text ? failure->text : whys->text;
    char both[1024];
    if (whys->remedy) {
        PyOS_snprintf(both, sizeof(both), "%s: %s", text, whys->remedy);
        text = both;
    }
    return umf_py_raise_as(result, what, text, failure->reason, missing);
}

PyObject *umf_py_raise_why(umf_result_t result, const char *what, const umf_py_why_t *whys) {
    umf_py_failure_t failure;
    umf_py_why_take(&failure);
    return umf_py_raise_failure(result, what, whys, &failure, 0);
}

PyObject *umf_py_none_or_why(umf_result_t result, const char *what, const umf_py_why_t *whys) {
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_why(result, what, whys);
    }
    Py_RETURN_NONE;
}

PyObject *umf_py_none_or_raise(umf_result_t result, const char *what) {
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise(result, what, NULL, 0);
    }
    Py_RETURN_NONE;
}

PyObject *umf_py_raise_last(umf_result_t result, const char *what) {
    return umf_py_raise(result, what, NULL, 0);
}

PyObject *umf_py_none_or_last(umf_result_t result, const char *what) {
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_last(result, what);
    }
    Py_RETURN_NONE;
}

PyObject *umf_py_number(const void *handle) {
    return PyLong_FromVoidPtr((void *)(uintptr_t)handle);
}

PyObject *umf_py_number_or_last(umf_result_t result, const void *handle, const char *what) {
    return result == UMF_RESULT_SUCCESS ? umf_py_number(handle) : umf_py_raise_last(result, what);
}

PyObject *umf_py_call(PyObject *number, umf_result_t (*function)(void *handle), const char *what) {
    void *handle;
    if (!umf_py_address(number, &handle)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = function(handle);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, what);
}
