/* Objects of Python classes with slots, read and written in place, at the offsets of their
   descriptors. Exact type only; a subclass may have a different layout. */

#ifndef ROCKHOPPER_SLOTS_H
#define ROCKHOPPER_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#define SLOTS_MAX 12

typedef struct {
    PyTypeObject *type;
    Py_ssize_t at[SLOTS_MAX];
} Slots;

/* Finds the slots of a class by *names*, which end with NULL; without all of them, changes nothing
   and returns 0 with an exception. */
static inline int find_slots(PyObject *type, const char *const *names, Slots *slots)
{
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a class is needed");
        return 0;
    }
    Slots all = {0};
    for (int i = 0; i < SLOTS_MAX && names[i] != NULL; i++) {
        PyObject *found = PyObject_GetAttrString(type, names[i]);
        if (found == NULL)
            return 0;
        int is_slot = Py_IS_TYPE(found, &PyMemberDescr_Type)
                      && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
        if (is_slot)
            all.at[i] = ((PyMemberDescrObject *)found)->d_member->offset;
        else
            PyErr_Format(PyExc_TypeError, "%s is no slot", names[i]);
        Py_DECREF(found);
        if (!is_slot)
            return 0;
    }
    memcpy(slots->at, all.at, sizeof all.at);
    Py_XSETREF(slots->type, (PyTypeObject *)Py_NewRef(type));
    return 1;
}

/* Where slot *name* of an object of the class is stored; NULL there means that it has no value. */
static inline PyObject **slot(PyObject *object, const Slots *slots, int name)
{
    return (PyObject **)((char *)object + slots->at[name]);
}

#endif
