/* Compiled: the end of a transaction, from the record of its half message. Ends and Ledger
   (broker/features/transactions) define the behaviour, and the tests compare them. */

#include "_encoding.h"
#include "_records.h"

#define COMMITTED_FLAG 8
#define TRANSACTION_FLAGS 0xC
#define PREPARED_OFFSET_AT 76
#define OP_SIZE_MAX 256

/* The record of a half message; properties are those that the final one keeps. */
typedef struct {
    Span body, properties, topic;
    int32_t queue_id, flag, sys_flag, reconsume_times;
    int64_t log_offset, born_time_ms;
    const char *born_host;
} Half;

static int read_record(Span record, Half *half, Span *topic)
{
    const unsigned char *p = (const unsigned char *)record.data;
    if (record.size < RECORD_SIZE_MIN || get32(p) != (uint64_t)record.size
        || get32(p + 4) != MAGIC_V1)
        return 0;
    int32_t body_size = (int32_t)get32(p + 84);
    half->flag = (int32_t)get32(p + 16);
    half->log_offset = get64(p + 28);
    half->sys_flag = (int32_t)get32(p + 36);
    half->born_time_ms = get64(p + 40);
    half->born_host = record.data + 48;
    half->reconsume_times = (int32_t)get32(p + 72);
    int64_t topic_at = HEAD_SIZE + (int64_t)body_size;
    if ((half->sys_flag & HOST_FLAGS) != 0 || body_size < 0 || topic_at + 3 > record.size)
        return 0;
    int64_t properties_at = topic_at + 1 + p[topic_at] + 2;
    if (p[topic_at] > 127 || properties_at > record.size
        || (p[properties_at - 2] << 8 | p[properties_at - 1]) != record.size - properties_at)
        return 0;
    half->body = (Span){record.data + HEAD_SIZE, body_size};
    *topic = (Span){record.data + topic_at + 1, p[topic_at]};
    half->properties = (Span){record.data + properties_at, (Py_ssize_t)(record.size - properties_at)};
    return 1;
}

static int is_body_right(Span record, Span body)
{
    uint32_t crc = crc32_of((const unsigned char *)body.data, body.size) & 0x7FFFFFFFu;
    return body.size == 0 || crc == get32((const unsigned char *)record.data + 8);
}

/* Removes the last property; returns 0 if it is not *name*. */
static int take_last(Span *properties, const char *name, Span *value)
{
    const char *data = properties->data, *end = data + properties->size;
    if (properties->size < 2 || end[-1] != 2)
        return 0;
    const char *start = end - 1;
    while (start > data && start[-1] != 2)
        start--;
    Py_ssize_t name_size = (Py_ssize_t)strlen(name);
    if (end - start < name_size + 3 || memcmp(start, name, (size_t)name_size) != 0
        || start[name_size] != 1)
        return 0;
    *value = (Span){start + name_size + 1, end - 1 - (start + name_size + 1)};
    properties->size = start - data;
    return 1;
}

static int read_queue_id(Span text, int32_t *queue_id)
{
    *queue_id = 0;
    for (Py_ssize_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i > 4)
            return 0;
        *queue_id = *queue_id * 10 + text.data[i] - '0';
    }
    return text.size > 0;
}

/* Returns 0 if it is not a half message, or needs a closer check. */
static int read_half(Span record, Half *half)
{
    Span topic, queue_id;
    return read_record(record, half, &topic) && is_text(topic, "RMQ_SYS_TRANS_HALF_TOPIC")
           && take_last(&half->properties, "REAL_QID", &queue_id)
           && read_queue_id(queue_id, &half->queue_id)
           && take_last(&half->properties, "REAL_TOPIC", &half->topic) && is_ascii(half->topic)
           && is_ascii(half->properties) && is_plain_half(half->properties);
}

/* half_place(record, log_offset) */
PyObject *half_place(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Span record;
    Half half;
    int64_t log_offset;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "half_place takes a record and a number");
        return NULL;
    }
    if (!take_bytes(args[0], &record.data, &record.size))
        return NULL;
    if (!fits_int64(args[1], &log_offset)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (!read_half(record, &half) || half.log_offset != log_offset || !is_body_right(record, half.body))
        Py_RETURN_NONE;
    return Py_BuildValue("s#i", half.topic.data, half.topic.size, (int)half.queue_id);
}

/* constants and queue_offset of a queue that gets one of the two records. */
static int take_queue(PyObject *const *args, Shared *shared)
{
    return take_constants(args[0], shared) && fits_int64(args[1], &shared->queue_offset);
}

static PyObject *end_result(const Half *half, Shared *final, Shared *op, int64_t half_offset)
{
    char body[NUMBER_SIZE_MAX + 1], text[OP_SIZE_MAX];
    unsigned char *p = put_number((unsigned char *)body, half_offset);
    *p++ = ',';
    Span op_body = {body, (char *)p - body};
    p = put_number(put_bytes((unsigned char *)text, "TAGS\1d\2RH_FINAL\1", 16), final->position);
    *p++ = 2;
    Span op_properties = {text, (char *)p - text};
    Py_ssize_t final_size = copy_size(final, half->body.size, half->properties.size);
    Py_ssize_t op_size = copy_size(op, op_body.size, op_properties.size);
    PyObject *records = PyBytes_FromStringAndSize(NULL, final_size + op_size);
    PyObject *units = PyBytes_FromStringAndSize(NULL, 2 * UNIT_SIZE), *keys = NULL, *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (records != NULL && units != NULL) {
        unsigned char *at = (unsigned char *)PyBytes_AS_STRING(records);
        unsigned char *unit = (unsigned char *)PyBytes_AS_STRING(units);
        op->position = final->position + final_size;
        Properties found = read_properties(half->properties.data, half->properties.size);
        Properties found_in_op = read_properties(op_properties.data, op_properties.size);
        if (write_copy(at, final, half->body, half->properties, &found, half->flag,
                       half->reconsume_times, unit, &packed)
            && write_copy(at + final_size, op, op_body, op_properties, &found_in_op, 0, 0,
                          unit + UNIT_SIZE, &packed)) {
            put64(at + PREPARED_OFFSET_AT, (uint64_t)half->log_offset);
            keys = packed_keys(&packed);
        }
    }
    if (keys != NULL)
        result = Py_BuildValue("OnOO", records, final_size, units, keys);
    free_keys(&packed);
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(keys);
    return result;
}

/* encode_end(record, half_offset, final_constants, final_offset, op_constants, op_offset, position,
   store_time_ms, store_host, now_ms) */
PyObject *encode_end(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    static const char nobody[8] = {127, 0, 0, 1};
    Span record, store_host;
    Half half;
    Shared final = {0}, op = {0};
    int64_t half_offset, position, store_time_ms;
    if (nargs != 10) {
        PyErr_SetString(PyExc_TypeError, "encode_end takes 10 arguments");
        return NULL;
    }
    if (!take_bytes(args[0], &record.data, &record.size) || !fits_int64(args[1], &half_offset)
        || !take_queue(args + 2, &final) || !take_queue(args + 4, &op)
        || !fits_int64(args[6], &position) || !fits_int64(args[7], &store_time_ms)
        || !take_bytes(args[8], &store_host.data, &store_host.size)
        || !fits_int64(args[9], &op.born_time_ms)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (store_host.size != 8 || !read_half(record, &half))
        Py_RETURN_NONE;
    final.born_time_ms = half.born_time_ms;
    final.born_host = half.born_host;
    final.sys_flag = (half.sys_flag & ~TRANSACTION_FLAGS) | COMMITTED_FLAG;
    op.born_host = nobody;
    final.position = position;
    final.born_host_size = op.born_host_size = 8;
    final.store_time_ms = op.store_time_ms = store_time_ms;
    final.store_host = op.store_host = store_host.data;
    final.store_host_size = op.store_host_size = store_host.size;
    return end_result(&half, &final, &op, half_offset);
}
