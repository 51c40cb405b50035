/* Compiled twins of count_sound and gather_sound of checking.py. */

#include "_encoding.h"
#include "_soundness.h"

/* count_sound(topic_field, queue_id, queue_offset, units, count, records, unchecked_from) */
PyObject *count_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Owner owner;
    int64_t queue_offset, count, unchecked_from;
    const char *units, *records;
    Py_ssize_t units_size, size;
    if (nargs != 7) {
        PyErr_SetString(PyExc_TypeError, "count_sound takes 7 arguments");
        return NULL;
    }
    if (!take_bytes(args[0], &owner.topic_field, &owner.topic_field_size)
        || !fits_int32(args[1], &owner.queue_id) || !fits_int64(args[2], &queue_offset)
        || !take_bytes(args[3], &units, &units_size) || !fits_int64(args[4], &count)
        || !take_bytes(args[5], &records, &size) || !fits_int64(args[6], &unchecked_from)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large");
        return NULL;
    }
    const unsigned char *unit = (const unsigned char *)units;
    const unsigned char *p = (const unsigned char *)records, *end = p + size;
    int64_t sound = 0;
    for (; sound < count && (sound + 1) * UNIT_SIZE <= units_size; sound++, unit += UNIT_SIZE) {
        int64_t record_size = (int32_t)get32(unit + 8);
        if (record_size < RECORD_SIZE_MIN || record_size > end - p
            || !is_sound(p, unit, &owner, queue_offset < 0 ? -1 : queue_offset + sound,
                         unchecked_from))
            break;
        p += record_size;
    }
    return PyLong_FromLongLong(sound);
}

static PyObject *copy_of(const Wanted *wanted)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wanted->size);
    if (records == NULL)
        return NULL;
    copy_records((unsigned char *)PyBytes_AS_STRING(records), wanted);
    return Py_BuildValue("(LN)", (long long)wanted->count, records);
}

/* gather_sound(topic_field, queue_id, queue_offset, units, count_max, size_max, (log, base_offset,
   end_offset), unchecked_from) */
PyObject *gather_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Owner owner;
    Wanted wanted = {0};
    const char *units;
    Py_ssize_t units_size;
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "gather_sound takes 8 arguments");
        return NULL;
    }
    if (!PyTuple_CheckExact(args[6]) || PyTuple_GET_SIZE(args[6]) != 3) {
        PyErr_SetString(PyExc_TypeError, "log is a tuple of three");
        return NULL;
    }
    PyObject *const *stretch = &PyTuple_GET_ITEM(args[6], 0);
    if (!take_bytes(args[0], &owner.topic_field, &owner.topic_field_size)
        || !fits_int32(args[1], &owner.queue_id) || !fits_int64(args[2], &wanted.queue_offset)
        || !take_bytes(args[3], &units, &units_size) || !fits_int64(args[4], &wanted.count_max)
        || !fits_int64(args[5], &wanted.size_max) || !fits_int64(stretch[1], &wanted.base)
        || !fits_int64(stretch[2], &wanted.end) || !fits_int64(args[7], &wanted.unchecked_from)
        || wanted.queue_offset < 0 || wanted.base < 0 || wanted.end < wanted.base) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer log;
    if (PyObject_GetBuffer(stretch[0], &log, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    wanted.units = (const unsigned char *)units;
    wanted.unit_count = units_size / UNIT_SIZE;
    wanted.log = log.buf;
    if (wanted.end - wanted.base > log.len)
        PyErr_SetString(PyExc_ValueError, "the log does not reach so far");
    else if (is_all_sound(&wanted, &owner))
        result = copy_of(&wanted);
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&log);
    return result;
}
