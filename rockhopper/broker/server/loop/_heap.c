/* Compiled: how much freed memory the C library keeps. systems.py explains why. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#ifdef __linux__
#include <malloc.h>
#endif

/* keep_freed(in_heap_bytes, at_end_bytes): returns whether the C library keeps it. */
static PyObject *keep_freed(PyObject *module, PyObject *args)
{
    (void)module;
    int in_heap, at_end, kept = 0;
    if (!PyArg_ParseTuple(args, "ii", &in_heap, &at_end))
        return NULL;
#ifdef __GLIBC__
    kept = mallopt(M_MMAP_THRESHOLD, in_heap) && mallopt(M_TRIM_THRESHOLD, at_end);
#endif
    return PyBool_FromLong(kept);
}

static PyMethodDef methods[] = {
    {"keep_freed", keep_freed, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.server.loop._heap",
    "How much of what is freed the C library keeps.", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__heap(void)
{
    return PyModule_Create(&definition);
}
