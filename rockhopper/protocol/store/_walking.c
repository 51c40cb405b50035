/* Compiled twins of walk_plain and whole_end of walking.py: the plain records of a part of the log, as runs. */

#include "../../broker/store/log/_properties.h"

#define FLAG_PREPARED 0x4
#define FLAG_INNER_BATCH 0x80
#define CRC_PROPERTY_SIZE 20

/* Consecutive messages of one queue. */
typedef struct {
    Span topic;
    int32_t queue_id;
    uint32_t seed;
    int64_t first_offset, count, start, end, store_time_ms;
    unsigned char *units;
    Py_ssize_t room;
} Run;

typedef struct {
    Run *runs;
    Py_ssize_t count, room;
    /* By topic and queue: the number of the queue's newest run plus 1; 0 for none. */
    Py_ssize_t *slots, slot_count;
    unsigned char *keys;
    Py_ssize_t keys_size, keys_room;
} Walk;

/* The parts of one record. */
typedef struct {
    int64_t size, queue_offset, store_time_ms;
    int32_t queue_id;
    Span topic, properties;
} Plain;

static void free_walk(Walk *walk)
{
    for (Py_ssize_t i = 0; i < walk->count; i++)
        PyMem_Free(walk->runs[i].units);
    PyMem_Free(walk->runs);
    PyMem_Free(walk->slots);
    PyMem_Free(walk->keys);
}

static int starts_with(Span span, const char *text)
{
    size_t size = strlen(text);
    return span.size >= (Py_ssize_t)size && memcmp(span.data, text, size) == 0;
}

/* Whether *topic* can name queues whose units follow from the record alone. */
static int is_plain_topic(Span topic)
{
    for (Py_ssize_t i = 0; i < topic.size; i++) {
        unsigned char c = (unsigned char)topic.data[i];
        if (c >= 0x80 || c == 0 || c == '/' || c == '\\')
            return 0;
    }
    return topic.size > 0 && !is_text(topic, ".") && !is_text(topic, "..")
           && !is_text(topic, "SCHEDULE_TOPIC_XXXX") && !starts_with(topic, "%LMQ%");
}

/* Whether the CRC at the end of the properties, if any, is that of the bytes before it. */
static int is_own_crc_right(const unsigned char *record, int64_t size, Span properties)
{
    if (properties.size < CRC_PROPERTY_SIZE)
        return 1;
    const char *own = properties.data + properties.size - CRC_PROPERTY_SIZE;
    if (memcmp(own, "__CRC32#\1", 9) != 0)
        return 1;
    uint32_t crc = crc32_of(record, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFFu;
    for (int i = 0; i < 10; i++, crc /= 10)
        if (own[9 + i] != (char)('0' + crc % 10))
            return 0;
    return 1;
}

/* Reads the plain record at *p*, which must state *offset*; returns 0 if there is none. */
static int read_plain(const unsigned char *p, int64_t room, int64_t offset, int check_crc,
                      Plain *plain)
{
    if (room < RECORD_SIZE_MIN)
        return 0;
    int64_t size = get32(p);
    uint32_t sys_flag = get32(p + 36);
    if (get32(p + 4) != MAGIC_V1 || get64(p + 28) != offset || size > room
        || sys_flag & (HOST_FLAGS | FLAG_PREPARED | FLAG_INNER_BATCH))
        return 0;
    int32_t body_size = (int32_t)get32(p + 84);
    int64_t topic_at = HEAD_SIZE + (int64_t)body_size;
    if (body_size < 0 || topic_at + 3 > size || p[topic_at] > 127)
        return 0;
    int64_t properties_at = topic_at + 1 + p[topic_at] + 2;
    if (properties_at > size
        || (p[properties_at - 2] << 8 | p[properties_at - 1]) != size - properties_at)
        return 0;
    plain->size = size;
    plain->queue_id = (int32_t)get32(p + 12);
    plain->queue_offset = get64(p + 20);
    plain->store_time_ms = get64(p + 56);
    plain->topic = (Span){(const char *)p + topic_at + 1, p[topic_at]};
    plain->properties = (Span){(const char *)p + properties_at, (Py_ssize_t)(size - properties_at)};
    if (plain->queue_id < 0 || plain->queue_offset < 0 || plain->store_time_ms <= 0
        || !is_plain_topic(plain->topic))
        return 0;
    if (plain->properties.size > 0 && plain->properties.data[plain->properties.size - 1] == 0)
        return 0; /* Its last bytes may be missing: the bytes after it must be checked. */
    if (!check_crc)
        return 1;
    if (body_size > 0 && (crc32_of(p + HEAD_SIZE, body_size) & 0x7FFFFFFFu) != get32(p + 8))
        return 0;
    return is_own_crc_right(p, size, plain->properties);
}

static uint32_t slot_hash(Span topic, int32_t queue_id)
{
    return hash_on((uint32_t)queue_id * 2654435761u, topic) * 2654435761u;
}

static int is_of(const Run *run, const Plain *plain)
{
    return run->queue_id == plain->queue_id && run->topic.size == plain->topic.size
           && memcmp(run->topic.data, plain->topic.data, (size_t)plain->topic.size) == 0;
}

static Py_ssize_t *slot_of(const Walk *walk, Span topic, int32_t queue_id, const Plain *plain)
{
    size_t mask = (size_t)walk->slot_count - 1, at = slot_hash(topic, queue_id) >> 7 & mask;
    while (walk->slots[at] != 0
           && (plain == NULL || !is_of(&walk->runs[walk->slots[at] - 1], plain)))
        at = (at + 1) & mask;
    return &walk->slots[at];
}

/* Doubles the slots; of several runs of a queue the newest one keeps its slot. */
static int grow_slots(Walk *walk)
{
    Py_ssize_t old_count = walk->slot_count, *old = walk->slots;
    walk->slot_count = old_count > 0 ? old_count * 2 : 256;
    walk->slots = PyMem_Calloc((size_t)walk->slot_count, sizeof *walk->slots);
    if (walk->slots == NULL) {
        walk->slots = old;
        walk->slot_count = old_count;
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < old_count; i++)
        if (old[i] != 0) {
            const Run *run = &walk->runs[old[i] - 1];
            *slot_of(walk, run->topic, run->queue_id, NULL) = old[i];
        }
    PyMem_Free(old);
    return 1;
}

/* Returns the run that *plain* continues, or a new one; NULL with an exception without memory. */
static Run *run_of(Walk *walk, const Plain *plain, int64_t offset)
{
    if (walk->count * 2 >= walk->slot_count && !grow_slots(walk))
        return NULL;
    Py_ssize_t *slot = slot_of(walk, plain->topic, plain->queue_id, plain);
    uint32_t seed = 0;
    if (*slot != 0) {
        Run *run = &walk->runs[*slot - 1];
        if (plain->queue_offset - run->first_offset == run->count)
            return run;
        seed = run->seed;
    } else {
        Span mark = {"#", 1};
        seed = hash_on(hash_on(0, plain->topic), mark);
    }
    Py_ssize_t room = walk->room * (Py_ssize_t)sizeof(Run);
    if (!make_room((void **)&walk->runs, &room, (walk->count + 1) * (Py_ssize_t)sizeof(Run)))
        return NULL;
    walk->room = room / (Py_ssize_t)sizeof(Run);
    *slot = walk->count + 1;
    Run *run = &walk->runs[walk->count++];
    *run = (Run){plain->topic, plain->queue_id, seed, plain->queue_offset, 0, offset, 0, 0, NULL, 0};
    return run;
}

static int append_timed_keys(Walk *walk, const Keys *keys, int64_t store_time_ms)
{
    Py_ssize_t count = keys->size / INDEX_KEY_SIZE;
    if (count == 0)
        return 1;
    if (!make_room((void **)&walk->keys, &walk->keys_room, walk->keys_size + count * TIMED_KEY_SIZE))
        return 0;
    unsigned char *p = walk->keys + walk->keys_size;
    for (Py_ssize_t i = 0; i < count; i++)
        p = put64(put_bytes(p, keys->data + i * INDEX_KEY_SIZE, INDEX_KEY_SIZE),
                  (uint64_t)store_time_ms);
    walk->keys_size += count * TIMED_KEY_SIZE;
    return 1;
}

/* Returns 1 if the record was added, 0 if Python must handle it, -1 with an exception. */
static int take(Walk *walk, const Plain *plain, int64_t offset)
{
    Properties found = read_properties(plain->properties.data, plain->properties.size);
    if (!is_ascii(plain->properties) || contains(plain->properties, "INNER_MULTI_DISPATCH\1"))
        return 0;
    Run *run = run_of(walk, plain, offset);
    if (run == NULL
        || !make_room((void **)&run->units, &run->room, (Py_ssize_t)(run->count + 1) * UNIT_SIZE))
        return -1;
    Keys keys;
    start_keys(&keys);
    int is_taken = append_keys(&keys, run->seed, found.unique_key, found.keys, offset) == 0
                   && append_timed_keys(walk, &keys, plain->store_time_ms);
    free_keys(&keys);
    if (!is_taken)
        return -1;
    unsigned char *unit = run->units + run->count * UNIT_SIZE;
    put64(put32(put64(unit, (uint64_t)offset), (uint32_t)plain->size),
          (uint64_t)tags_code(found.tags));
    run->count++;
    run->end = offset + plain->size;
    run->store_time_ms = plain->store_time_ms;
    return 1;
}

static PyObject *runs_of(const Walk *walk)
{
    PyObject *runs = PyList_New(walk->count);
    for (Py_ssize_t i = 0; runs != NULL && i < walk->count; i++) {
        const Run *run = &walk->runs[i];
        PyObject *tuple = Py_BuildValue(
            "s#iLLy#LLL", run->topic.data, run->topic.size, (int)run->queue_id,
            (long long)run->first_offset, (long long)run->count, run->units,
            (Py_ssize_t)run->count * UNIT_SIZE, (long long)run->start, (long long)run->end,
            (long long)run->store_time_ms);
        if (tuple == NULL)
            Py_CLEAR(runs);
        else
            PyList_SET_ITEM(runs, i, tuple);
    }
    return runs;
}

/* walk_plain(data, position, end, base_offset, check_crc) */
static PyObject *walk_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t position, end, base_offset;
    if (nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "walk_plain takes 5 arguments");
        return NULL;
    }
    int check_crc = PyObject_IsTrue(args[4]);
    if (!fits_int64(args[1], &position) || !fits_int64(args[2], &end)
        || !fits_int64(args[3], &base_offset) || check_crc < 0 || position < 0
        || base_offset < 0 || base_offset > INT64_MAX / 2) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer data;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const unsigned char *bytes = data.buf;
    Walk walk = {0};
    Plain plain;
    int64_t record_count = 0, store_time_ms = 0;
    int taken = 1;
    while (position < end && position < data.len
           && read_plain(bytes + position, data.len - position, base_offset + position, check_crc,
                         &plain)) {
        taken = take(&walk, &plain, base_offset + position);
        if (taken <= 0)
            break;
        position += plain.size;
        store_time_ms = plain.store_time_ms;
        record_count++;
    }
    PyObject *runs = taken < 0 ? NULL : runs_of(&walk), *result = NULL;
    if (runs != NULL)
        result = Py_BuildValue("LLLNy#", (long long)position, (long long)record_count,
                               (long long)store_time_ms, runs,
                               walk.keys == NULL ? (const unsigned char *)"" : walk.keys,
                               walk.keys_size);
    free_walk(&walk);
    PyBuffer_Release(&data);
    return result;
}

/* whole_end(data, position, end) */
static PyObject *whole_end(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t position, end;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "whole_end takes 3 arguments");
        return NULL;
    }
    if (!fits_int64(args[1], &position) || !fits_int64(args[2], &end) || position < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer data;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const unsigned char *bytes = data.buf;
    if (end > data.len)
        end = data.len;
    while (position <= end - BLANK_SIZE) {
        int64_t size = get32(bytes + position);
        uint32_t magic = get32(bytes + position + 4);
        int64_t size_min = magic == MAGIC_BLANK ? BLANK_SIZE : RECORD_SIZE_MIN;
        if ((magic != MAGIC_V1 && magic != MAGIC_V2 && magic != MAGIC_BLANK) || size < size_min
            || size > end - position)
            break;
        position += size;
    }
    PyBuffer_Release(&data);
    return PyLong_FromLongLong((long long)position);
}

static PyMethodDef methods[] = {
    {"walk_plain", (PyCFunction)(void (*)(void))walk_plain, METH_FASTCALL, NULL},
    {"whole_end", (PyCFunction)(void (*)(void))whole_end, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.protocol.store._walking",
    "Compiled twins of the functions that walk over the log.", 0, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walking(void)
{
    prepare_crc();
    return PyModule_Create(&definition);
}
