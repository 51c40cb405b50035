/* Compiled twins of count_sound and gather_sound of checking.py. */

#include "_encoding.h"

/* What all records of one queue have in common. */
typedef struct {
    const char *topic_field;
    Py_ssize_t topic_field_size;
    int32_t queue_id;
} Owner;

/* Whether the record at *p* is the one of *unit*, of message *queue_offset* (any for -1). */
static int is_sound(const unsigned char *p, const unsigned char *unit, const Owner *owner,
                    int64_t queue_offset, int64_t unchecked_from)
{
    int64_t position = get64(unit), size = get32(unit + 8);
    uint32_t magic = get32(p + 4);
    if (get32(p) != size || get64(p + 28) != position || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return 0;
    uint32_t sys_flag = get32(p + 36);
    int64_t body_at = HEAD_SIZE + (sys_flag & BORN_HOST_V6 ? 12 : 0)
                      + (sys_flag & STORE_HOST_V6 ? 12 : 0);
    if (body_at + 3 > size)
        return 0;
    int32_t body_size = (int32_t)get32(p + body_at - 4);
    int64_t at = body_at + body_size;
    if (body_size < 0 || at + 3 > size)
        return 0;
    if (queue_offset >= 0
        && ((int32_t)get32(p + 12) != owner->queue_id || get64(p + 20) != queue_offset
            || at + owner->topic_field_size + 2 > size
            || memcmp(p + at, owner->topic_field, (size_t)owner->topic_field_size) != 0))
        return 0;
    at += magic == MAGIC_V1 ? 1 + p[at] : 2 + (p[at] << 8 | p[at + 1]);
    if (at + 2 > size || at + 2 + (p[at] << 8 | p[at + 1]) != size)
        return 0;
    return position >= unchecked_from || body_size == 0
           || (crc32_of(p + body_at, body_size) & 0x7FFFFFFFu) == get32(p + 8);
}

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

/* The records that an answer has room for. */
typedef struct {
    const unsigned char *units;
    int64_t unit_count, count_max, size_max;
    /* What stands in the mapping: the log from base to end. */
    const unsigned char *log;
    int64_t base, end, unchecked_from, queue_offset;
    int64_t count, size;
} Wanted;

/* Whether all that is wanted is sound and there; sets its count and its size. */
static int is_all_sound(Wanted *wanted, const Owner *owner)
{
    for (; wanted->count < wanted->unit_count; wanted->count++) {
        const unsigned char *unit = wanted->units + wanted->count * UNIT_SIZE;
        int64_t position = get64(unit), size = (int32_t)get32(unit + 8);
        if (wanted->count > 0
            && (wanted->count >= wanted->count_max || size > wanted->size_max - wanted->size))
            break;
        if (size < RECORD_SIZE_MIN || position < wanted->base || position > wanted->end
            || size > wanted->end - position
            || !is_sound(wanted->log + (position - wanted->base), unit, owner,
                         wanted->queue_offset + wanted->count, wanted->unchecked_from))
            return 0;
        wanted->size += size;
    }
    return wanted->count > 0;
}

static PyObject *copy_of(const Wanted *wanted)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wanted->size);
    if (records == NULL)
        return NULL;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(records);
    const unsigned char *unit = wanted->units, *end = unit + wanted->count * UNIT_SIZE;
    while (unit < end) {
        int64_t start = get64(unit), size = 0;
        for (; unit < end && get64(unit) == start + size; unit += UNIT_SIZE)
            size += get32(unit + 8);
        p = put_bytes(p, wanted->log + (start - wanted->base), (Py_ssize_t)size);
    }
    return Py_BuildValue("(LN)", (long long)wanted->count, records);
}

/* gather_sound(topic_field, queue_id, queue_offset, units, count_max, size_max, log, base_offset,
   end_offset, unchecked_from) */
PyObject *gather_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Owner owner;
    Wanted wanted = {0};
    const char *units;
    Py_ssize_t units_size;
    if (nargs != 10) {
        PyErr_SetString(PyExc_TypeError, "gather_sound takes 10 arguments");
        return NULL;
    }
    if (!take_bytes(args[0], &owner.topic_field, &owner.topic_field_size)
        || !fits_int32(args[1], &owner.queue_id) || !fits_int64(args[2], &wanted.queue_offset)
        || !take_bytes(args[3], &units, &units_size) || !fits_int64(args[4], &wanted.count_max)
        || !fits_int64(args[5], &wanted.size_max) || !fits_int64(args[7], &wanted.base)
        || !fits_int64(args[8], &wanted.end) || !fits_int64(args[9], &wanted.unchecked_from)
        || wanted.queue_offset < 0 || wanted.base < 0 || wanted.end < wanted.base) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer log;
    if (PyObject_GetBuffer(args[6], &log, PyBUF_SIMPLE) < 0)
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
