/* Compiled twins of count_sound and side_by_side of checking.py. */

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

/* side_by_side(units) -> the size of all their records if nothing stands between them, or -1 */
PyObject *side_by_side(PyObject *module, PyObject *units)
{
    (void)module;
    const char *data;
    Py_ssize_t size;
    if (!take_bytes(units, &data, &size))
        return NULL;
    const unsigned char *unit = (const unsigned char *)data, *end = unit + size;
    int64_t size_all = 0, next = size >= UNIT_SIZE ? get64(unit) : 0;
    for (; end - unit >= UNIT_SIZE; unit += UNIT_SIZE) {
        int32_t record_size = (int32_t)get32(unit + 8);
        if (record_size < RECORD_SIZE_MIN || get64(unit) != next || next > INT64_MAX - record_size)
            return PyLong_FromLong(-1);
        next += record_size;
        size_all += record_size;
    }
    return PyLong_FromLongLong(size_all);
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
