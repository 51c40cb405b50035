/* libFuzzer's entry points: an interpreter with the compiled modules built in, and targets.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

PyMODINIT_FUNC PyInit__framing(void);
PyMODINIT_FUNC PyInit__pulls(void);
PyMODINIT_FUNC PyInit__sends(void);
PyMODINIT_FUNC PyInit__encoding(void);

static PyObject *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    PyImport_AppendInittab("_framing", PyInit__framing);
    PyImport_AppendInittab("_pulls", PyInit__pulls);
    PyImport_AppendInittab("_sends", PyInit__sends);
    PyImport_AppendInittab("_encoding", PyInit__encoding);
    Py_InitializeEx(0);
    PyRun_SimpleString("import sys, _encoding, _framing, _pulls, _sends\n"
                       "sys.modules['rockhopper.protocol._framing'] = _framing\n"
                       "sys.modules['rockhopper.broker.hot._pulls'] = _pulls\n"
                       "sys.modules['rockhopper.broker.hot._sends'] = _sends\n"
                       "sys.modules['rockhopper.broker.store.log._encoding'] = _encoding\n");
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
