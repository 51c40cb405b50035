/* Compiled twin of select_sound of selecting.py. */

#include "_encoding.h"
#include "_selecting.h"

#define KEY_SIZE_MAX 4096
#define NOT_THERE 0xFFFF

typedef enum { REFUSED, WANTED, UNDECIDED, TOO_LONG, FAILED } Verdict;

int take_test(PyObject *object, Test *test)
{
    if (!PyTuple_CheckExact(object) || PyTuple_GET_SIZE(object) != 3
        || !PyTuple_CheckExact(PyTuple_GET_ITEM(object, 0))
        || !PyDict_CheckExact(PyTuple_GET_ITEM(object, 1))) {
        PyErr_SetString(PyExc_TypeError, "a test is names, a dict and a callable");
        return 0;
    }
    PyObject *names = PyTuple_GET_ITEM(object, 0);
    test->count = PyTuple_GET_SIZE(names);
    test->verdicts = PyTuple_GET_ITEM(object, 1);
    test->judge = PyTuple_GET_ITEM(object, 2);
    if (test->count > TEST_NAMES_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many names");
        return 0;
    }
    for (Py_ssize_t i = 0; i < test->count; i++)
        if (!take_bytes(PyTuple_GET_ITEM(names, i), &test->names[i].data, &test->names[i].size))
            return 0;
    return 1;
}

/* The properties of a sound record. */
static Span properties_of(const unsigned char *p)
{
    uint32_t sys_flag = get32(p + 36);
    int64_t at = HEAD_SIZE + (sys_flag & BORN_HOST_V6 ? 12 : 0) + (sys_flag & STORE_HOST_V6 ? 12 : 0);
    at += (int32_t)get32(p + at - 4);
    at += get32(p + 4) == MAGIC_V1 ? 1 + p[at] : 2 + (p[at] << 8 | p[at + 1]);
    return (Span){(const char *)p + at + 2, p[at] << 8 | p[at + 1]};
}

static void note_value(const Test *test, Span name, Span value, Span *values)
{
    for (Py_ssize_t i = 0; i < test->count; i++)
        if (test->names[i].size == name.size
            && memcmp(test->names[i].data, name.data, (size_t)name.size) == 0)
            values[i] = value;
}

/* Sets the last value of each name; a pair without a name or a value is ignored. */
static void find_values(const Test *test, Span properties, Span *values)
{
    const char *p = properties.data, *end = p + properties.size;
    for (Py_ssize_t i = 0; i < test->count; i++)
        values[i] = (Span){p, -1};
    while (p < end) {
        const char *stop = memchr(p, 2, (size_t)(end - p));
        if (stop == NULL)
            stop = end;
        const char *separator = memchr(p, 1, (size_t)(stop - p));
        if (separator != NULL && separator > p && separator + 1 < stop)
            note_value(test, (Span){p, separator - p},
                       (Span){separator + 1, stop - separator - 1}, values);
        p = stop + 1;
    }
}

/* Returns the known verdict on these properties, or calls the judge. */
static Verdict verdict_on(const Test *test, Span properties)
{
    Span values[TEST_NAMES_MAX];
    unsigned char packed[KEY_SIZE_MAX], *p = packed;
    find_values(test, properties, values);
    for (Py_ssize_t i = 0; i < test->count; i++) {
        Py_ssize_t size = values[i].size;
        if ((size < 0 ? 0 : size) + 2 > packed + KEY_SIZE_MAX - p)
            return TOO_LONG;
        uint32_t stated = size < 0 ? NOT_THERE : (uint32_t)size;
        *p++ = (unsigned char)(stated >> 8);
        *p++ = (unsigned char)stated;
        if (size > 0)
            p = put_bytes(p, values[i].data, size);
    }
    PyObject *key = PyBytes_FromStringAndSize((const char *)packed, p - packed);
    if (key == NULL)
        return FAILED;
    PyObject *verdict = Py_XNewRef(PyDict_GetItemWithError(test->verdicts, key));
    if (verdict == NULL && !PyErr_Occurred())
        verdict = PyObject_CallOneArg(test->judge, key);
    Py_DECREF(key);
    Verdict found = verdict == NULL ? FAILED : verdict == Py_True ? WANTED
                    : verdict == Py_False ? REFUSED : UNDECIDED;
    Py_XDECREF(verdict);
    return found;
}

int choose(Wanted *wanted, const Owner *owner, const Test *test, Chosen *chosen)
{
    for (; chosen->scanned < wanted->unit_count; chosen->scanned++) {
        const unsigned char *unit = wanted->units + chosen->scanned * UNIT_SIZE;
        int64_t position = get64(unit), size = (int32_t)get32(unit + 8);
        if (wanted->count > 0
            && (wanted->count >= wanted->count_max || size > wanted->size_max - wanted->size))
            break;
        if (size < RECORD_SIZE_MIN || position < wanted->base || position > wanted->end
            || size > wanted->end - position)
            return 0;
        const unsigned char *record = wanted->log + (position - wanted->base);
        int64_t number = wanted->queue_offset + chosen->scanned;
        if (!is_sound(record, unit, owner, number, 0))
            return 0;
        Verdict verdict = verdict_on(test, properties_of(record));
        if (verdict == FAILED || verdict == TOO_LONG)
            return 0;
        if (verdict == UNDECIDED)
            break;
        if (verdict == REFUSED)
            continue;
        if (position < wanted->unchecked_from && !is_sound(record, unit, owner, number, INT64_MAX))
            return 0;
        memcpy(chosen->units + wanted->count * UNIT_SIZE, unit, UNIT_SIZE);
        wanted->count++;
        wanted->size += size;
    }
    return 1;
}

static PyObject *result_of(Wanted *wanted, const Chosen *chosen)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wanted->size);
    if (records == NULL)
        return NULL;
    wanted->units = chosen->units;
    copy_records((unsigned char *)PyBytes_AS_STRING(records), wanted);
    return Py_BuildValue("LLN", (long long)chosen->scanned, (long long)wanted->count, records);
}

/* select_sound((topic_field, queue_id, queue_offset), units, count_max, size_max, (log, base_offset,
   end_offset), unchecked_from, (names, verdicts, judge)) */
PyObject *select_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Owner owner;
    Test test;
    Wanted wanted = {0};
    const char *units;
    Py_ssize_t units_size;
    if (nargs != 7 || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) != 3
        || !PyTuple_CheckExact(args[4]) || PyTuple_GET_SIZE(args[4]) != 3) {
        PyErr_SetString(PyExc_TypeError, "select_sound takes 7 arguments, some of them tuples");
        return NULL;
    }
    PyObject *const *whose = &PyTuple_GET_ITEM(args[0], 0);
    PyObject *const *stretch = &PyTuple_GET_ITEM(args[4], 0);
    if (!take_bytes(whose[0], &owner.topic_field, &owner.topic_field_size)
        || !fits_int32(whose[1], &owner.queue_id) || !fits_int64(whose[2], &wanted.queue_offset)
        || !take_bytes(args[1], &units, &units_size) || !fits_int64(args[2], &wanted.count_max)
        || !fits_int64(args[3], &wanted.size_max) || !fits_int64(stretch[1], &wanted.base)
        || !fits_int64(stretch[2], &wanted.end) || !fits_int64(args[5], &wanted.unchecked_from)
        || wanted.queue_offset < 0 || wanted.base < 0 || wanted.end < wanted.base) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer log;
    if (!take_test(args[6], &test) || PyObject_GetBuffer(stretch[0], &log, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    Chosen chosen = {PyMem_Malloc((size_t)units_size + 1), 0};
    wanted.units = (const unsigned char *)units;
    wanted.unit_count = units_size / UNIT_SIZE;
    wanted.log = log.buf;
    if (chosen.units == NULL)
        PyErr_NoMemory();
    else if (wanted.end - wanted.base > log.len)
        PyErr_SetString(PyExc_ValueError, "the log does not reach so far");
    else if (choose(&wanted, &owner, &test, &chosen))
        result = result_of(&wanted, &chosen);
    else if (!PyErr_Occurred())
        result = Py_NewRef(Py_None);
    PyMem_Free(chosen.units);
    PyBuffer_Release(&log);
    return result;
}
