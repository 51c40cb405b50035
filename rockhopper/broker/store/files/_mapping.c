/* Compiled: file mappings that hold no descriptor. mapped_file.py explains why. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sys/mman.h>

/* map_over(mapping, descriptor): replaces an anonymous mapping by a mapping of the file, at the
   same address and of the same size. */
static PyObject *map_over(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *mapping;
    int descriptor;
    Py_buffer place;
    if (!PyArg_ParseTuple(args, "Oi", &mapping, &descriptor)
        || PyObject_GetBuffer(mapping, &place, PyBUF_SIMPLE) < 0)
        return NULL;
    int protection = place.readonly ? PROT_READ : PROT_READ | PROT_WRITE;
    void *mapped = mmap(place.buf, (size_t)place.len, protection, MAP_SHARED | MAP_FIXED,
                        descriptor, 0);
    PyBuffer_Release(&place);
    if (mapped == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"map_over", map_over, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.store.files._mapping",
    "Mappings of files that hold no descriptor.", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__mapping(void)
{
    return PyModule_Create(&definition);
}
