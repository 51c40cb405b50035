/* The functions of the module that are in files of their own. */

#ifndef ROCKHOPPER_ENCODING_H
#define ROCKHOPPER_ENCODING_H

#include "_bytes.h"

PyObject *count_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *gather_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *select_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *half_place(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *encode_end(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
