/* libFuzzer's entry points: an interpreter with the compiled modules built in, and targets.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Written by __main__.py, with a line MODULE(name, full_name) for each module of pyproject.toml. */
#define MODULE(name, full_name) PyMODINIT_FUNC PyInit_##name(void);
#include "modules.h"
#undef MODULE

#define MODULE(name, full_name) "import " #name "\nsys.modules['" full_name "'] = " #name "\n"
static const char imports[] = "import sys\n"
#include "modules.h"
    ;
#undef MODULE

static PyObject *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
#define MODULE(name, full_name) PyImport_AppendInittab(#name, PyInit_##name);
#include "modules.h"
#undef MODULE
    Py_InitializeEx(0);
    PyRun_SimpleString(imports);
    PyObject *module = PyImport_ImportModule("tests.fuzz.targets");
    target = module == NULL ? NULL : PyObject_GetAttrString(module, "run");
    if (target == NULL) {
        PyErr_Print();
        exit(2);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PyObject *result = PyObject_CallFunction(target, "y#", (const char *)data, (Py_ssize_t)size);
    if (result == NULL) {
        PyErr_Print();
        abort();
    }
    Py_DECREF(result);
    return 0;
}
