/* The slots of runs, tails and queues: numbers and objects, read and written in place. */

#ifndef ROCKHOPPER_QUEUE_SLOTS_H
#define ROCKHOPPER_QUEUE_SLOTS_H

#include "../../../protocol/_slots.h"
#include "../log/_bytes.h"

/* Returns 1 and sets *value* if the slot has a number from 0 on; 0 with an exception or without. */
static inline int read_slot(PyObject *object, const Slots *slots, int name, int64_t *value)
{
    PyObject *number = *slot(object, slots, name);
    return number != NULL && PyLong_Check(number) && fits_int64(number, value) && *value >= 0;
}

static inline void set_slot(PyObject *object, const Slots *slots, int name, PyObject *value)
{
    PyObject **place = slot(object, slots, name);
    Py_XSETREF(*place, Py_NewRef(value));
}

#endif
