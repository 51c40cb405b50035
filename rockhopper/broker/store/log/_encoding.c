/* Compiled twins of encode_plain, encode_batch, encode_run, count_run, message_ids and put_entries
   of encoding.py; the table at the end also names those in other files. The Python functions define
   the behaviour, and the tests compare them. Input that needs more than ASCII is passed to the
   Python functions. */

#include "_encoding.h"
#include "_records.h"

static PyObject *plain_in_python, *batch_in_python, *run_in_python, *count_in_python;

/* constants, position, queue_offset, store_time_ms, store_host: the first arguments of the
   encoders. */
static int take_shared(PyObject *const *args, Shared *shared)
{
    return take_constants(args[0], shared) && fits_int64(args[1], &shared->position)
           && fits_int64(args[2], &shared->queue_offset)
           && fits_int64(args[3], &shared->store_time_ms)
           && take_bytes(args[4], &shared->store_host, &shared->store_host_size);
}

static PyObject *plain_result(const Shared *shared, Span body, Span properties, Span suffix,
                              int32_t flag, int32_t reconsume_times)
{
    PlainRecord plan;
    Plainness plainness = plan_plain(shared, body.size, properties, suffix, &plan);
    if (plainness != PLAIN)
        return Py_NewRef(plainness == NOT_PLAIN ? Py_None : Py_NotImplemented);
    PyObject *record = PyBytes_FromStringAndSize(NULL, plan.size);
    PyObject *unit = PyBytes_FromStringAndSize(NULL, UNIT_SIZE);
    PyObject *unique_key = PyUnicode_FromStringAndSize(plan.found.unique_key.data,
                                                       plan.found.unique_key.size);
    PyObject *keys = NULL, *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (record != NULL && unit != NULL && unique_key != NULL
        && write_plain((unsigned char *)PyBytes_AS_STRING(record), shared, body, suffix, flag,
                       reconsume_times, &plan, (unsigned char *)PyBytes_AS_STRING(unit), &packed)
        && (keys = packed_keys(&packed)) != NULL)
        result = PyTuple_Pack(5, record, unit, keys, unique_key, plan.waits ? Py_True : Py_False);
    free_keys(&packed);
    Py_XDECREF(record);
    Py_XDECREF(unit);
    Py_XDECREF(keys);
    Py_XDECREF(unique_key);
    return result;
}

static PyObject *in_python(PyObject *function, PyObject *const *args, Py_ssize_t count,
                           PyObject *not_implemented)
{
    if (function == NULL)
        return not_implemented;
    Py_DECREF(not_implemented);
    return PyObject_Vectorcall(function, args, (size_t)count, NULL);
}

static PyObject *set_fallbacks(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *plain, *batch, *run, *count;
    if (!PyArg_ParseTuple(args, "OOOO", &plain, &batch, &run, &count))
        return NULL;
    Py_XSETREF(plain_in_python, Py_NewRef(plain));
    Py_XSETREF(batch_in_python, Py_NewRef(batch));
    Py_XSETREF(run_in_python, Py_NewRef(run));
    Py_XSETREF(count_in_python, Py_NewRef(count));
    Py_RETURN_NONE;
}

static PyObject *none_unless_wrong_type(void)
{
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Shared shared;
    Span body, properties, suffix;
    int32_t flag, reconsume_times;
    if (count != 13) {
        PyErr_SetString(PyExc_TypeError, "encode_plain takes 13 arguments");
        return NULL;
    }
    if (!take_shared(args, &shared) || !take_bytes(args[5], &body.data, &body.size)
        || !take_bytes(args[7], &suffix.data, &suffix.size) || !fits_int32(args[8], &flag)
        || !fits_int32(args[9], &shared.sys_flag) || !fits_int64(args[10], &shared.born_time_ms)
        || !take_bytes(args[11], &shared.born_host, &shared.born_host_size)
        || !fits_int32(args[12], &reconsume_times))
        return none_unless_wrong_type();
    properties.data = PyUnicode_AsUTF8AndSize(args[6], &properties.size);
    if (properties.data == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    set_host_flags(&shared);
    PyObject *result = plain_result(&shared, body, properties, suffix, flag, reconsume_times);
    return result == Py_NotImplemented ? in_python(plain_in_python, args, count, result) : result;
}

static PyObject *batch_result(Shared *shared, Span body, Py_ssize_t count, Py_ssize_t size_all)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, size_all);
    PyObject *units = PyBytes_FromStringAndSize(NULL, count * UNIT_SIZE);
    PyObject *keys = NULL, *result = NULL;
    Keys packed;
    start_keys(&packed);
    int written = -1;
    if (records != NULL && units != NULL)
        written = write_batch((unsigned char *)PyBytes_AS_STRING(records), shared, body, count,
                              (unsigned char *)PyBytes_AS_STRING(units), &packed);
    if (written == PLAIN && (keys = packed_keys(&packed)) != NULL)
        result = PyTuple_Pack(3, records, units, keys);
    else if (written == NOT_PLAIN || written == PLAIN_IN_PYTHON)
        result = Py_NewRef(written == NOT_PLAIN ? Py_None : Py_NotImplemented);
    free_keys(&packed);
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(keys);
    return result;
}

static PyObject *encode_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Shared shared;
    Span body;
    if (nargs != 9) {
        PyErr_SetString(PyExc_TypeError, "encode_batch takes 9 arguments");
        return NULL;
    }
    if (!take_shared(args, &shared) || !take_bytes(args[5], &body.data, &body.size)
        || !fits_int32(args[6], &shared.sys_flag) || !fits_int64(args[7], &shared.born_time_ms)
        || !take_bytes(args[8], &shared.born_host, &shared.born_host_size))
        return none_unless_wrong_type();
    set_host_flags(&shared);
    Py_ssize_t size_all;
    Py_ssize_t count = count_batch(&shared, body, &size_all);
    if (count == 0)
        Py_RETURN_NONE;
    PyObject *result = batch_result(&shared, body, count, size_all);
    return result == Py_NotImplemented ? in_python(batch_in_python, args, nargs, result) : result;
}

static PyObject *run_result(Shared *shared, Span body, Span suffix, Py_ssize_t count,
                            Py_ssize_t size)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, size);
    PyObject *units = PyBytes_FromStringAndSize(NULL, count * UNIT_SIZE);
    PyObject *keys = NULL, *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (records != NULL && units != NULL
        && write_run((unsigned char *)PyBytes_AS_STRING(records), shared, body, suffix, count,
                     (unsigned char *)PyBytes_AS_STRING(units), &packed)
        && (keys = packed_keys(&packed)) != NULL)
        result = PyTuple_Pack(3, records, units, keys);
    free_keys(&packed);
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(keys);
    return result;
}

static PyObject *encode_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Shared shared;
    Span body, suffix;
    Py_ssize_t count, size;
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "encode_run takes 8 arguments");
        return NULL;
    }
    if (!take_shared(args, &shared) || !take_bytes(args[5], &body.data, &body.size)
        || !take_bytes(args[6], &suffix.data, &suffix.size)
        || !fits_int64(args[7], &shared.born_time_ms))
        return none_unless_wrong_type();
    shared.born_host = shared.store_host;
    shared.born_host_size = shared.store_host_size;
    shared.sys_flag = 0;
    set_host_flags(&shared);
    switch (plan_run(&shared, body, suffix, &count, &size)) {
    case PLAIN:
        return run_result(&shared, body, suffix, count, size);
    case PLAIN_IN_PYTHON:
        return in_python(run_in_python, args, nargs, Py_NewRef(Py_NotImplemented));
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *count_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Shared shared = {0};
    Span body, suffix;
    Py_ssize_t count, size;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "count_run takes 2 arguments");
        return NULL;
    }
    if (!take_bytes(args[0], &body.data, &body.size)
        || !take_bytes(args[1], &suffix.data, &suffix.size))
        return NULL;
    Plainness plainness = plan_run(&shared, body, suffix, &count, &size);
    if (plainness == PLAIN_IN_PYTHON)
        return in_python(count_in_python, args, nargs, Py_NewRef(Py_NotImplemented));
    return PyLong_FromSsize_t(plainness == PLAIN ? count : 0);
}

/* message_ids(host, units) -> host and sixteen hex digits of each unit's offset, separated by
   commas */
static PyObject *message_ids(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    static const char digits[] = "0123456789ABCDEF";
    const char *units;
    Py_ssize_t size, host_size;
    if (nargs != 2 || !PyUnicode_Check(args[0]) || !PyUnicode_IS_ASCII(args[0])
        || !take_bytes(args[1], &units, &size)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "message_ids takes ASCII text and bytes");
        return NULL;
    }
    const char *host = PyUnicode_AsUTF8AndSize(args[0], &host_size);
    Py_ssize_t count = size / UNIT_SIZE;
    PyObject *ids = PyUnicode_New(count > 0 ? count * (host_size + 17) - 1 : 0, 127);
    if (host == NULL || ids == NULL) {
        Py_XDECREF(ids);
        return NULL;
    }
    unsigned char *p = (unsigned char *)PyUnicode_1BYTE_DATA(ids);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i > 0)
            *p++ = ',';
        p = put_bytes(p, host, host_size);
        const unsigned char *offset = (const unsigned char *)units + i * UNIT_SIZE;
        for (int k = 0; k < 8; k++) {
            *p++ = (unsigned char)digits[offset[k] >> 4];
            *p++ = (unsigned char)digits[offset[k] & 15];
        }
    }
    return ids;
}

/* The seconds of an entry in a file that begins at *begin_ms*. */
static uint32_t seconds_of(int64_t time_ms, int64_t begin_ms)
{
    if (time_ms < begin_ms)
        return 0;
    uint64_t seconds = ((uint64_t)time_ms - (uint64_t)begin_ms) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (uint32_t)seconds;
}

/* (mapping, slot_count, entries_at, number, time, keys) -> new slots in use. Each of *keys* has
   *stride* bytes. A key longer than an index key ends with its time in ms, and *time* is then the
   start of the file in ms; otherwise *time* is in seconds. */
static PyObject *put_keys(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t stride)
{
    int64_t slot_count, entries_at, number, time;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "6 arguments are needed");
        return NULL;
    }
    if (!fits_int64(args[1], &slot_count) || !fits_int64(args[2], &entries_at)
        || !fits_int64(args[3], &number) || !fits_int64(args[4], &time)
        || (stride == INDEX_KEY_SIZE && (time < INT32_MIN || time > INT32_MAX))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large");
        return NULL;
    }
    Py_buffer mapping, keys;
    if (PyObject_GetBuffer(args[0], &mapping, PyBUF_WRITABLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[5], &keys, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&mapping);
        return NULL;
    }
    Py_ssize_t count = keys.len / stride;
    const unsigned char *key = keys.buf;
    long used = 0;
    PyObject *result = NULL;
    if (slot_count <= 0 || slot_count > INT32_MAX || number < 1 || number > INT32_MAX
        || entries_at < 40 + 4 * slot_count || entries_at > mapping.len
        || (number + count) * 20 > mapping.len - entries_at) {
        PyErr_SetString(PyExc_ValueError, "the entries do not fit the index file");
        goto done;
    }
    unsigned char *base = mapping.buf;
    for (Py_ssize_t i = 0; i < count; i++, number++, key += stride) {
        uint32_t hash = get32(key);
        uint32_t seconds = stride == INDEX_KEY_SIZE
                               ? (uint32_t)time
                               : seconds_of(get64(key + INDEX_KEY_SIZE), time);
        unsigned char *slot = base + 40 + hash % slot_count * 4;
        int32_t previous = (int32_t)get32(slot);
        if (previous <= 0 || previous >= number) {
            previous = 0;
            used++;
        }
        unsigned char *p = base + entries_at + number * 20;
        p = put_bytes(p, key, INDEX_KEY_SIZE);
        put32(put32(p, seconds), (uint32_t)previous);
        put32(slot, (uint32_t)number);
    }
    result = PyLong_FromLong(used);
done:
    PyBuffer_Release(&keys);
    PyBuffer_Release(&mapping);
    return result;
}

static PyObject *put_entries(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    return put_keys(args, nargs, INDEX_KEY_SIZE);
}

static PyObject *put_timed_entries(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    return put_keys(args, nargs, TIMED_KEY_SIZE);
}

static PyObject *crc32_of_bytes(PyObject *module, PyObject *data)
{
    (void)module;
    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "bytes, not %s", Py_TYPE(data)->tp_name);
    return PyLong_FromUnsignedLong(
        crc32_of((const unsigned char *)PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)));
}

static PyMethodDef methods[] = {
    {"crc32", crc32_of_bytes, METH_O, NULL},
    {"set_fallbacks", set_fallbacks, METH_VARARGS, NULL},
    {"encode_plain", (PyCFunction)(void (*)(void))encode_plain, METH_FASTCALL, NULL},
    {"encode_batch", (PyCFunction)(void (*)(void))encode_batch, METH_FASTCALL, NULL},
    {"count_run", (PyCFunction)(void (*)(void))count_run, METH_FASTCALL, NULL},
    {"encode_run", (PyCFunction)(void (*)(void))encode_run, METH_FASTCALL, NULL},
    {"message_ids", (PyCFunction)(void (*)(void))message_ids, METH_FASTCALL, NULL},
    {"count_sound", (PyCFunction)(void (*)(void))count_sound, METH_FASTCALL, NULL},
    {"gather_sound", (PyCFunction)(void (*)(void))gather_sound, METH_FASTCALL, NULL},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, NULL},
    {"put_timed_entries", (PyCFunction)(void (*)(void))put_timed_entries, METH_FASTCALL, NULL},
    {"select_sound", (PyCFunction)(void (*)(void))select_sound, METH_FASTCALL, NULL},
    {"half_place", (PyCFunction)(void (*)(void))half_place, METH_FASTCALL, NULL},
    {"encode_end", (PyCFunction)(void (*)(void))encode_end, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.store.log._encoding",
    "Compiled twins of the functions that a message costs most time in.", 0, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__encoding(void)
{
    prepare_crc();
    return PyModule_Create(&definition);
}
