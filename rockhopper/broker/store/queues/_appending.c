/* Compiled: append the plain runs of a pass to their queues. queue_tail.py defines which are plain.
   Runs, tails and queues are read and written in place (protocol/_slots.h). */

#include "_queue_slots.h"

enum { RUN_TAIL, RUN_END, RUN_FIRST_OFFSET, RUN_COUNT, RUN_UNITS };
enum { TAIL_QUEUE, TAIL_IS_DELETED, TAIL_NEXT_OFFSET, TAIL_WAITERS };
enum { NEXT_OFFSET, MAX_OFFSET, APPEND_LIMIT, MAPPING, MAPPING_START, LOG_END, IS_HELD, IS_DIRTY };

static const char *const run_names[] = {"tail", "end", "first_offset", "count", "units", NULL};
static const char *const tail_names[] = {"consume_queue", "is_deleted", "next_offset", "waiters", NULL};
static const char *const queue_names[] = {"next_offset", "max_offset", "_append_limit", "mapping",
                                          "mapping_start", "commit_log_end", "is_held", "_is_dirty",
                                          NULL};
static Slots run_slots, tail_slots, queue_slots;
static PyObject *note_change_name;

/* set_classes(Run, QueueTail, ConsumeQueue) */
static PyObject *set_classes(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *run, *tail, *queue;
    if (!PyArg_ParseTuple(args, "OOO", &run, &tail, &queue)
        || !find_slots(run, run_names, &run_slots) || !find_slots(tail, tail_names, &tail_slots)
        || !find_slots(queue, queue_names, &queue_slots))
        return NULL;
    Py_RETURN_NONE;
}

/* The queue to which a run can be appended unchanged, or NULL; borrowed. */
static PyObject *queue_of(PyObject *run)
{
    PyObject *tail = *slot(run, &run_slots, RUN_TAIL);
    if (tail == NULL || Py_TYPE(tail) != tail_slots.type
        || *slot(tail, &tail_slots, TAIL_IS_DELETED) != Py_False)
        return NULL;
    PyObject *queue = *slot(tail, &tail_slots, TAIL_QUEUE);
    return queue != NULL && Py_TYPE(queue) == queue_slots.type
                   && *slot(queue, &queue_slots, IS_HELD) == Py_False
               ? queue
               : NULL;
}

/* Copies the units of *run* into the mapping of *queue*; returns whether it did. */
static int copy_units(PyObject *run, PyObject *queue, int64_t *end)
{
    int64_t first, count, next, limit, mapping_start;
    PyObject *units = *slot(run, &run_slots, RUN_UNITS), *mapping = *slot(queue, &queue_slots, MAPPING);
    if (units == NULL || mapping == NULL || !PyList_Check(units) || PyList_GET_SIZE(units) != 1
        || !PyBytes_Check(PyList_GET_ITEM(units, 0))
        || !read_slot(run, &run_slots, RUN_FIRST_OFFSET, &first)
        || !read_slot(run, &run_slots, RUN_COUNT, &count)
        || !read_slot(queue, &queue_slots, NEXT_OFFSET, &next)
        || !read_slot(queue, &queue_slots, APPEND_LIMIT, &limit)
        || !read_slot(queue, &queue_slots, MAPPING_START, &mapping_start))
        return 0;
    PyObject *bytes = PyList_GET_ITEM(units, 0);
    if (count == 0 || first != next || first > limit || count > limit - first
        || first > INT64_MAX / UNIT_SIZE - count
        || PyBytes_GET_SIZE(bytes) != count * UNIT_SIZE)
        return 0;
    int64_t at = first * UNIT_SIZE - mapping_start;
    Py_buffer place;
    if (PyObject_GetBuffer(mapping, &place, PyBUF_WRITABLE) < 0)
        return 0;
    int fits = at >= 0 && at <= place.len - count * UNIT_SIZE;
    if (fits)
        memcpy((char *)place.buf + at, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    PyBuffer_Release(&place);
    *end = first + count;
    return fits;
}

/* Appends *run* to its queue; returns whether it did. If not, no field that counts has changed. */
static int append_one(PyObject *run)
{
    int64_t end = 0;
    PyObject *queue = Py_TYPE(run) == run_slots.type ? queue_of(run) : NULL;
    if (queue == NULL || *slot(run, &run_slots, RUN_END) == NULL || !copy_units(run, queue, &end))
        return 0;
    PyObject *number = PyLong_FromLongLong(end);
    if (number == NULL)
        return 0;
    set_slot(queue, &queue_slots, NEXT_OFFSET, number);
    set_slot(queue, &queue_slots, MAX_OFFSET, number);
    set_slot(queue, &queue_slots, LOG_END, *slot(run, &run_slots, RUN_END));
    Py_DECREF(number);
    /* Last: the flush thread clears the flag before it reads the end. */
    if (*slot(queue, &queue_slots, IS_DIRTY) != Py_True) {
        PyObject *noted = PyObject_CallMethodNoArgs(queue, note_change_name);
        Py_XDECREF(noted);
        return noted != NULL;
    }
    return 1;
}

/* append_plain(runs, first) -> number of the first run from *first* on that is not appended */
static PyObject *append_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t at;
    if (nargs != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a list and a number are needed");
        return NULL;
    }
    if (!fits_int64(args[1], &at) || at < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "the number is too large, or negative");
        return NULL;
    }
    while (at < PyList_GET_SIZE(args[0]) && append_one(PyList_GET_ITEM(args[0], at)))
        at++;
    /* Whatever the error was, appending in Python meets it again. */
    PyErr_Clear();
    return PyLong_FromLongLong(at);
}

/* The tail of a run; borrowed, NULL with an exception if it has none. */
static PyObject *tail_of(PyObject *run)
{
    PyObject *tail = Py_TYPE(run) == run_slots.type ? *slot(run, &run_slots, RUN_TAIL) : NULL;
    if (tail != NULL && Py_TYPE(tail) == tail_slots.type)
        return tail;
    PyErr_SetString(PyExc_TypeError, "runs with tails are needed");
    return NULL;
}

/* take_offsets(runs) */
static PyObject *take_offsets(PyObject *module, PyObject *runs)
{
    (void)module;
    if (!PyList_Check(runs))
        return PyErr_Format(PyExc_TypeError, "a list is needed");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(runs); i++) {
        PyObject *run = PyList_GET_ITEM(runs, i), *tail = tail_of(run);
        int64_t first, count;
        if (tail == NULL || !read_slot(run, &run_slots, RUN_FIRST_OFFSET, &first)
            || !read_slot(run, &run_slots, RUN_COUNT, &count) || first > INT64_MAX - count)
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a run has no offsets");
        PyObject *next = PyLong_FromLongLong(first + count);
        if (next == NULL)
            return NULL;
        set_slot(tail, &tail_slots, TAIL_NEXT_OFFSET, next);
        Py_DECREF(next);
    }
    Py_RETURN_NONE;
}

/* awaited(runs, count) */
static PyObject *awaited(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t count;
    if (nargs != 2 || !PyList_Check(args[0]) || !fits_int64(args[1], &count) || count < 0
        || count > PyList_GET_SIZE(args[0]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a list and how many of it");
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *run = PyList_GET_ITEM(args[0], i), *tail = tail_of(run);
        PyObject *waiters = tail == NULL ? NULL : *slot(tail, &tail_slots, TAIL_WAITERS);
        int waits = waiters == NULL || waiters == Py_None ? 0 : PyObject_IsTrue(waiters);
        if (tail == NULL || waits < 0 || (waits && PyList_Append(found, run) < 0))
            Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"set_classes", set_classes, METH_VARARGS, NULL},
    {"append_plain", (PyCFunction)(void (*)(void))append_plain, METH_FASTCALL, NULL},
    {"take_offsets", take_offsets, METH_O, NULL},
    {"awaited", (PyCFunction)(void (*)(void))awaited, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.store.queues._appending",
    "What the plain runs of a pass add to their queues.", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__appending(void)
{
    note_change_name = PyUnicode_InternFromString("_note_change");
    return note_change_name == NULL ? NULL : PyModule_Create(&definition);
}
