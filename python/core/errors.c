/* Results of the library as exceptions. */
#include "core.h"

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
