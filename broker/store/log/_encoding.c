/* Compiled twins of encode_plain, encode_batch, message_ids and put_entries of encoding.py; the table
   at the end names those of the other files, too.

   The Python functions say what these have to do, and the tests compare them; here is only how.
   Whatever takes more than ASCII to decide is handed over to them. */

#include "_encoding.h"
#include "_properties.h"

#define PROPERTIES_SIZE_MAX 32767
#define BATCH_COUNT_MAX 290000
#define BATCH_HEAD_SIZE 20

static PyObject *plain_in_python, *batch_in_python;

/* What all records of one call share. */
typedef struct {
    uint32_t magic, seed;
    int32_t queue_id, sys_flag;
    int64_t position, queue_offset, store_time_ms, born_time_ms;
    const char *topic_field, *born_host, *store_host;
    Py_ssize_t topic_field_size, born_host_size, store_host_size;
} Shared;

/* constants, position, queue_offset, store_time_ms, store_host: what both functions start with. */
static int take_shared(PyObject *const *args, Shared *shared)
{
    PyObject *constants = args[0];
    int64_t magic, seed;
    if (!PyTuple_Check(constants) || PyTuple_GET_SIZE(constants) != 4) {
        PyErr_SetString(PyExc_TypeError, "constants must be a tuple of four");
        return 0;
    }
    if (!fits_int64(PyTuple_GET_ITEM(constants, 0), &magic)
        || !take_bytes(PyTuple_GET_ITEM(constants, 1), &shared->topic_field,
                       &shared->topic_field_size)
        || !fits_int32(PyTuple_GET_ITEM(constants, 2), &shared->queue_id)
        || !fits_int64(PyTuple_GET_ITEM(constants, 3), &seed)
        || !fits_int64(args[1], &shared->position) || !fits_int64(args[2], &shared->queue_offset)
        || !fits_int64(args[3], &shared->store_time_ms)
        || !take_bytes(args[4], &shared->store_host, &shared->store_host_size))
        return 0;
    shared->magic = (uint32_t)magic;
    shared->seed = (uint32_t)seed;
    return 1;
}

static void set_host_flags(Shared *shared)
{
    shared->sys_flag &= ~HOST_FLAGS;
    if (shared->born_host_size == 20)
        shared->sys_flag |= BORN_HOST_V6;
    if (shared->store_host_size == 20)
        shared->sys_flag |= STORE_HOST_V6;
}

static Py_ssize_t record_size(const Shared *shared, Py_ssize_t body, Py_ssize_t properties)
{
    return 74 + shared->born_host_size + shared->store_host_size + body + shared->topic_field_size
           + properties;
}

static unsigned char *put_head(unsigned char *p, const Shared *shared, Py_ssize_t size,
                               const char *body, Py_ssize_t body_size, int32_t flag,
                               int32_t reconsume_times, Py_ssize_t properties_size)
{
    p = put32(p, (uint32_t)size);
    p = put32(p, shared->magic);
    p = put32(p, crc32_of((const unsigned char *)body, body_size) & 0x7FFFFFFFu);
    p = put32(p, (uint32_t)shared->queue_id);
    p = put32(p, (uint32_t)flag);
    p = put64(p, (uint64_t)shared->queue_offset);
    p = put64(p, (uint64_t)shared->position);
    p = put32(p, (uint32_t)shared->sys_flag);
    p = put64(p, (uint64_t)shared->born_time_ms);
    p = put_bytes(p, shared->born_host, shared->born_host_size);
    p = put64(p, (uint64_t)shared->store_time_ms);
    p = put_bytes(p, shared->store_host, shared->store_host_size);
    p = put32(p, (uint32_t)reconsume_times);
    p = put64(p, 0); /* prepared transaction offset */
    p = put32(p, (uint32_t)body_size);
    p = put_bytes(p, body, body_size);
    p = put_bytes(p, shared->topic_field, shared->topic_field_size);
    return put16(p, (uint32_t)properties_size);
}

static unsigned char *put_unit(unsigned char *p, int64_t position, Py_ssize_t size, int64_t code)
{
    return put64(put32(put64(p, (uint64_t)position), (uint32_t)size), (uint64_t)code);
}

static int is_alnum(Span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++) {
        char c = span.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
            return 0;
    }
    return span.size > 0;
}

/* Where WAIT=true stands as a property of its own, or NULL. */
static const char *find_wait(const char *data, Py_ssize_t size)
{
    static const char text[] = "WAIT\1true\2";
    const Py_ssize_t length = sizeof text - 1;
    const char *p = data;
    while (data + size - p >= length) {
        if (memcmp(p, text, (size_t)length) == 0)
            return p;
        p = memchr(p, 2, (size_t)(data + size - p));
        if (p == NULL)
            break;
        p++;
    }
    return NULL;
}

static PyObject *plain_result(const Shared *shared, Span body, Span properties, Span suffix,
                              int32_t flag, int32_t reconsume_times)
{
    Properties found = read_properties(properties.data, properties.size);
    if (found.special || !is_alnum(found.unique_key))
        Py_RETURN_NONE;
    if (!is_ascii(found.tags) || !is_ascii(found.keys))
        Py_RETURN_NOTIMPLEMENTED;
    int waits = !is_text(found.wait, "false");
    Span front = properties, back = {properties.data + properties.size, 0};
    const char *wait = waits && found.wait.size >= 0 ? find_wait(properties.data, properties.size)
                                                     : NULL;
    if (wait != NULL) {
        back.data = wait + 10;
        back.size = properties.data + properties.size - back.data;
        front.size = wait - properties.data;
    }
    Span last = back.size > 0 ? back : front;
    int closed = last.size > 0 && last.data[last.size - 1] == 2;
    Py_ssize_t properties_size = front.size + back.size + !closed + suffix.size;
    if (properties_size > PROPERTIES_SIZE_MAX)
        Py_RETURN_NONE;

    Py_ssize_t size = record_size(shared, body.size, properties_size);
    PyObject *record = PyBytes_FromStringAndSize(NULL, size);
    PyObject *unit = PyBytes_FromStringAndSize(NULL, UNIT_SIZE);
    PyObject *unique_key = PyUnicode_FromStringAndSize(found.unique_key.data, found.unique_key.size);
    PyObject *keys = NULL;
    PyObject *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (append_keys(&packed, shared->seed, found.unique_key, found.keys, shared->position) == 0)
        keys = packed_keys(&packed);
    free_keys(&packed);
    if (record != NULL && unit != NULL && unique_key != NULL && keys != NULL) {
        unsigned char *p = put_head((unsigned char *)PyBytes_AS_STRING(record), shared, size,
                                    body.data, body.size, flag, reconsume_times, properties_size);
        p = put_bytes(p, front.data, front.size);
        p = put_bytes(p, back.data, back.size);
        if (!closed)
            *p++ = 2;
        put_bytes(p, suffix.data, suffix.size);
        put_unit((unsigned char *)PyBytes_AS_STRING(unit), shared->position, size,
                 tags_code(found.tags));
        result = PyTuple_Pack(5, record, unit, keys, unique_key, waits ? Py_True : Py_False);
    }
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
    PyObject *plain, *batch;
    if (!PyArg_ParseTuple(args, "OO", &plain, &batch))
        return NULL;
    Py_XSETREF(plain_in_python, Py_NewRef(plain));
    Py_XSETREF(batch_in_python, Py_NewRef(batch));
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

/* One message of a batch body: where its parts are. */
typedef struct {
    int32_t flag;
    Span body, properties;
} Inner;

/* The message at *p*, or 0 if the lengths do not add up; *p* then stays. */
static int next_inner(const unsigned char **p, const unsigned char *end, Inner *inner)
{
    const unsigned char *start = *p;
    if (end - start < BATCH_HEAD_SIZE + 2)
        return 0;
    int32_t size = (int32_t)get32(start), body_size = (int32_t)get32(start + 16);
    inner->flag = (int32_t)get32(start + 12);
    if (body_size < 0 || body_size > end - start - BATCH_HEAD_SIZE - 2)
        return 0;
    const unsigned char *after = start + BATCH_HEAD_SIZE + body_size;
    int properties_size = after[0] << 8 | after[1];
    if (properties_size > PROPERTIES_SIZE_MAX || properties_size > end - after - 2
        || size != after + 2 + properties_size - start)
        return 0;
    inner->body = (Span){(const char *)start + BATCH_HEAD_SIZE, body_size};
    inner->properties = (Span){(const char *)after + 2, properties_size};
    *p = after + 2 + properties_size;
    return 1;
}

static PyObject *batch_result(Shared *shared, Span body, Py_ssize_t count, Py_ssize_t size_all)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, size_all);
    PyObject *units = PyBytes_FromStringAndSize(NULL, count * UNIT_SIZE);
    PyObject *keys = NULL;
    PyObject *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (records == NULL || units == NULL)
        goto done;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(records);
    unsigned char *unit = (unsigned char *)PyBytes_AS_STRING(units);
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    for (Py_ssize_t i = 0; i < count; i++) {
        Inner inner;
        next_inner(&next, end, &inner);
        Properties found = read_properties(inner.properties.data, inner.properties.size);
        if (!is_ascii(found.tags) || !is_ascii(found.unique_key) || !is_ascii(found.keys)) {
            result = Py_NewRef(Py_NotImplemented);
            goto done;
        }
        if (found.barred) {
            result = Py_NewRef(Py_None);
            goto done;
        }
        Py_ssize_t size = record_size(shared, inner.body.size, inner.properties.size);
        p = put_head(p, shared, size, inner.body.data, inner.body.size, inner.flag, 0,
                     inner.properties.size);
        p = put_bytes(p, inner.properties.data, inner.properties.size);
        unit = put_unit(unit, shared->position, size, tags_code(found.tags));
        if (append_keys(&packed, shared->seed, found.unique_key, found.keys, shared->position) < 0)
            goto done;
        shared->position += size;
        shared->queue_offset++;
    }
    keys = packed_keys(&packed);
    if (keys != NULL)
        result = PyTuple_Pack(3, records, units, keys);
done:
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
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    Py_ssize_t count = 0, size_all = 0;
    while (next < end) {
        Inner inner;
        if (!next_inner(&next, end, &inner) || ++count > BATCH_COUNT_MAX)
            Py_RETURN_NONE;
        size_all += record_size(&shared, inner.body.size, inner.properties.size);
    }
    if (count == 0)
        Py_RETURN_NONE;
    PyObject *result = batch_result(&shared, body, count, size_all);
    return result == Py_NotImplemented ? in_python(batch_in_python, args, nargs, result) : result;
}

/* message_ids(host, units) -> sixteen hex digits of each unit's offset behind the host, with , between */
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
   *stride* bytes; it ends with its time, in ms since *time*, if it is longer than an index key, and
   *time* is in seconds otherwise. */
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
    if (slot_count <= 0 || number < 1 || entries_at < 40 + 4 * slot_count
        || entries_at + (number + count) * 20 > mapping.len) {
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

static PyMethodDef methods[] = {
    {"set_fallbacks", set_fallbacks, METH_VARARGS, NULL},
    {"encode_plain", (PyCFunction)(void (*)(void))encode_plain, METH_FASTCALL, NULL},
    {"encode_batch", (PyCFunction)(void (*)(void))encode_batch, METH_FASTCALL, NULL},
    {"message_ids", (PyCFunction)(void (*)(void))message_ids, METH_FASTCALL, NULL},
    {"count_sound", (PyCFunction)(void (*)(void))count_sound, METH_FASTCALL, NULL},
    {"side_by_side", side_by_side, METH_O, NULL},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, NULL},
    {"put_timed_entries", (PyCFunction)(void (*)(void))put_timed_entries, METH_FASTCALL, NULL},
    {"walk_plain", (PyCFunction)(void (*)(void))walk_plain, METH_FASTCALL, NULL},
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
