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

PyObject *umf_py_raise(umf_result_t result, const char *what, const char *text, size_t missing) {
    if (!text && result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC) {
        text = umf_py_native_text();
    }
    PyObject *module = PyImport_ImportModule("umf._errors");
    if (!module) {
        return NULL;
    }
    PyObject *error =
        PyObject_CallMethod(module, "make", "iszzsn", (int)result, what, umfResultName(result),
                            umfResultText(result), text ? text : "", (Py_ssize_t)missing);
    Py_DECREF(module);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *umf_py_raise_why(umf_result_t result, const char *what, const umf_py_why_t *whys,
                           size_t missing) {
    while (whys->result != UMF_RESULT_SUCCESS && whys->result != result) {
        whys++;
    }
    return umf_py_raise(result, what, whys->text, missing);
}

PyObject *umf_py_none_or_why(umf_result_t result, const char *what, const umf_py_why_t *whys) {
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_why(result, what, whys, 0);
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
    char text[512]; /* what follows may fail, too */
    PyOS_snprintf(text, sizeof(text), "%s", umfLastErrorText());
    return umf_py_raise(result, what, text[0] ? text : umfResultText(result), 0);
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
    Py_BEGIN_ALLOW_THREADS;
    result = function(handle);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, what);
}
