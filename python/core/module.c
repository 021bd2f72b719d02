/* umf._core: the module. */
#include "core.h"

bool umf_py_add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    if (!*type) {
        return false;
    }
    Py_INCREF(*type);
    if (PyModule_AddObject(module, name, (PyObject *)*type) < 0) {
        Py_DECREF(*type);
        return false;
    }
    return true;
}

static struct PyModuleDef core_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "umf._core",
    .m_doc = "Pools, providers and memory of libumf.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = umf_py_life_start() ? PyModule_Create(&core_module) : NULL;
    if (!module) {
        return NULL;
    }
    if (PyModule_AddFunctions(module, umf_py_info_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_suspend_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_dlpack_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_ipc_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_copy_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_queue_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_record_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_recording_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_limit_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_shortage_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_event_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_remote_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_vault_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_vault_move_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_vault_fetch_functions) < 0 ||
        PyModule_AddFunctions(module, umf_py_vault_claim_functions) < 0 ||
        PyModule_AddStringConstant(module, "VERSION", UMF_VERSION_STRING) < 0 ||
        !umf_py_add_provider(module) || !umf_py_add_pool(module) || !umf_py_add_buffer(module) ||
        !umf_py_add_job(module) || !umf_py_add_counters(module) || !umf_py_add_recording(module) ||
        !umf_py_add_region(module) || !umf_py_add_uses(module)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
