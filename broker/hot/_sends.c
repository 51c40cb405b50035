/* Compiled: the plain sends at the front of a pass, from frames to records, runs and answers.

   hot_pass.py says what is to be done with each; here it is done for as many as follow each other
   without anything else in between. The first that is not plain, or has no room in its file, is for
   Python, and nothing of it has been done then. */

#include "_send_headers.h"
#include "../store/log/_records.h"

/* Of a transaction, or of records that hold a batch: not plain. */
#define SPECIAL_FLAGS (0xC | 0x80 | 0x40)
#define SENT_PIECES 6
#define BATCH_PIECES 5
#define BINARY_PIECES 3
/* More would not fit the header of an answer. */
#define IDS_SIZE_MAX (15 << 20)

/* Names of attributes of a tail. */
static PyObject *constants_name, *next_offset_name, *consume_queue_name;

/* The messages of one queue. Its tail and its traffic are kept alive by the table of topics, in which
   nothing changes meanwhile. */
typedef struct {
    PyObject *tail, *traffic;
    Shared shared;
    int64_t start, end, count, calls, size;
    unsigned char *units;
    Py_ssize_t room;
} Run;

/* Answers that leave together. */
typedef struct {
    Py_ssize_t start;
    int64_t log_offset;
    int waits;
} Owed;

typedef struct {
    unsigned char *data;
    Py_ssize_t size, room;
} Buffer;

typedef struct {
    /* What all sends of a broker have in common. */
    Span store_host, suffix, id_host;
    int64_t body_size_max;
    Span sent[SENT_PIECES], batch[BATCH_PIECES], binary[BINARY_PIECES];
    /* Of this pass. */
    PyObject *sendable;
    Span born_host;
    int64_t log_offset, room_end, store_time_ms;
    /* The topic of the last message. */
    Span topic;
    PyObject *tails, *traffic;
    /* What it has made. */
    Run *runs;
    Py_ssize_t run_count, runs_room;
    Owed *owed;
    Py_ssize_t owed_count, owed_room;
    Buffer records, answers;
    Keys keys;
    Scratch scratch;
} Pass;

static int take_span_of(PyObject *object, Span *span)
{
    return take_bytes(object, &span->data, &span->size);
}

static int take_pieces(PyObject *object, Span *pieces, Py_ssize_t count)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %zd is needed", count);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_span_of(PyTuple_GET_ITEM(object, i), &pieces[i]))
            return 0;
    return 1;
}

/* (store_host, suffix, id_host, body_size_max, sent, batch, binary), see plain_sends.py. */
static int take_common(PyObject *common, Pass *pass)
{
    if (!PyTuple_Check(common) || PyTuple_GET_SIZE(common) != 7) {
        PyErr_SetString(PyExc_TypeError, "what sends have in common is a tuple of seven");
        return 0;
    }
    return take_span_of(PyTuple_GET_ITEM(common, 0), &pass->store_host)
           && take_span_of(PyTuple_GET_ITEM(common, 1), &pass->suffix)
           && take_span_of(PyTuple_GET_ITEM(common, 2), &pass->id_host)
           && fits_int64(PyTuple_GET_ITEM(common, 3), &pass->body_size_max)
           && take_pieces(PyTuple_GET_ITEM(common, 4), pass->sent, SENT_PIECES)
           && take_pieces(PyTuple_GET_ITEM(common, 5), pass->batch, BATCH_PIECES)
           && take_pieces(PyTuple_GET_ITEM(common, 6), pass->binary, BINARY_PIECES);
}

static void free_pass(Pass *pass)
{
    for (Py_ssize_t i = 0; i < pass->run_count; i++)
        PyMem_Free(pass->runs[i].units);
    PyMem_Free(pass->runs);
    PyMem_Free(pass->owed);
    PyMem_Free(pass->records.data);
    PyMem_Free(pass->answers.data);
    PyMem_Free(pass->scratch.data);
    free_keys(&pass->keys);
}

/* Room for *size* more bytes, and where they go; NULL without memory, with an exception. */
static unsigned char *room_in(Buffer *buffer, Py_ssize_t size)
{
    if (!make_room((void **)&buffer->data, &buffer->room, buffer->size + size))
        return NULL;
    return buffer->data + buffer->size;
}

/* 1: the queues of *topic* are in *pass*; 0: it is not known to take messages; -1: an exception. */
static int find_topic(Pass *pass, Span topic)
{
    if (pass->tails != NULL && topic.size == pass->topic.size
        && memcmp(topic.data, pass->topic.data, (size_t)topic.size) == 0)
        return 1;
    PyObject *name = PyUnicode_DecodeASCII(topic.data, topic.size, NULL);
    if (name == NULL)
        return -1;
    PyObject *found = PyDict_GetItemWithError(pass->sendable, name);
    Py_DECREF(name);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 2
        || !PyList_Check(PyTuple_GET_ITEM(found, 0))) {
        PyErr_SetString(PyExc_TypeError, "the tails of a topic, and its traffic, are needed");
        return -1;
    }
    pass->topic = topic;
    pass->tails = PyTuple_GET_ITEM(found, 0);
    pass->traffic = PyTuple_GET_ITEM(found, 1);
    return 1;
}

/* Whether a queue has its files; without, a message takes longer than many of the others. */
static int is_open(PyObject *tail)
{
    PyObject *queue = PyObject_GetAttr(tail, consume_queue_name);
    Py_XDECREF(queue);
    return queue != NULL && queue != Py_None;
}

/* What a run of *tail* begins with; 0 with an exception, or without one if its queue is to be opened
   first. Its constants outlive the call: the tail keeps them. */
static int begin_run(Pass *pass, Run *run, PyObject *tail)
{
    *run = (Run){.tail = tail, .traffic = pass->traffic, .start = pass->log_offset};
    PyObject *constants = is_open(tail) ? PyObject_GetAttr(tail, constants_name) : NULL;
    if (constants == NULL)
        return 0;
    int taken = take_constants(constants, &run->shared);
    Py_DECREF(constants);
    PyObject *offset = taken ? PyObject_GetAttr(tail, next_offset_name) : NULL;
    if (offset == NULL)
        return 0;
    taken = fits_int64(offset, &run->shared.queue_offset);
    Py_DECREF(offset);
    run->shared.store_time_ms = pass->store_time_ms;
    run->shared.store_host = pass->store_host.data;
    run->shared.store_host_size = pass->store_host.size;
    run->shared.born_host = pass->born_host.data;
    run->shared.born_host_size = pass->born_host.size;
    return taken;
}

/* The run of a queue; NULL with an exception, or without one if that is for Python. */
static Run *run_of(Pass *pass, PyObject *tail)
{
    for (Py_ssize_t i = pass->run_count; i-- > 0;)
        if (pass->runs[i].tail == tail)
            return &pass->runs[i];
    if (!make_room((void **)&pass->runs, &pass->runs_room,
                   (pass->run_count + 1) * (Py_ssize_t)sizeof(Run)))
        return NULL;
    Run *run = &pass->runs[pass->run_count];
    if (!begin_run(pass, run, tail))
        return NULL;
    pass->run_count++;
    return run;
}

/* The id of the message at a place of the log: 16 digits behind the host. */
static unsigned char *put_id(unsigned char *p, Span host, int64_t log_offset)
{
    static const char digits[] = "0123456789ABCDEF";
    p = put_span(p, host);
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = (unsigned char)digits[log_offset >> shift & 15];
    return p;
}

static unsigned char *put_ids(unsigned char *p, Span host, const unsigned char *units, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i > 0)
            *p++ = ',';
        p = put_id(p, host, get64(units + i * UNIT_SIZE));
    }
    return p;
}

/* What an answer says: *units* are those of the messages, *key* is of a single one. */
typedef struct {
    const unsigned char *units;
    Py_ssize_t count;
    int32_t queue_id, opaque;
    int64_t queue_offset;
    Span key;
} Answer;

static unsigned char *put_json(unsigned char *p, const Pass *pass, const Answer *answer, int is_batch)
{
    const Span *piece = is_batch ? pass->batch : pass->sent;
    p = put_ids(put_span(p, *piece++), pass->id_host, answer->units, answer->count);
    p = put_number(put_span(p, *piece++), answer->queue_id);
    p = put_number(put_span(p, *piece++), answer->queue_offset);
    if (!is_batch)
        p = put_span(put_span(p, *piece++), answer->key);
    p = put_number(put_span(p, *piece++), answer->opaque);
    return put_span(p, *piece);
}

static unsigned char *put_name(unsigned char *p, const char *name, Py_ssize_t value_size)
{
    Py_ssize_t size = (Py_ssize_t)strlen(name);
    return put32(put_bytes(put16(p, (uint32_t)size), name, size), (uint32_t)value_size);
}

static unsigned char *put_number_field(unsigned char *p, const char *name, int64_t value)
{
    unsigned char digits[NUMBER_SIZE_MAX + 1];
    Py_ssize_t size = put_number(digits, value) - digits;
    return put_bytes(put_name(p, name, size), digits, size);
}

static unsigned char *put_binary(unsigned char *p, const Pass *pass, const Answer *answer, int is_batch)
{
    p = put_span(put32(put_span(p, pass->binary[0]), (uint32_t)answer->opaque), pass->binary[1]);
    unsigned char *fields = p + 4;
    Py_ssize_t ids_size = answer->count * (pass->id_host.size + 17) - 1;
    p = put_name(put_span(fields, pass->binary[2]), "msgId", ids_size);
    p = put_ids(p, pass->id_host, answer->units, answer->count);
    p = put_number_field(p, "queueId", answer->queue_id);
    p = put_number_field(p, "queueOffset", answer->queue_offset);
    if (!is_batch)
        p = put_span(put_name(p, "transactionId", answer->key.size), answer->key);
    put32(fields - 4, (uint32_t)(p - fields));
    return p;
}

static Py_ssize_t size_of(const Span *spans, Py_ssize_t count)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        size += spans[i].size;
    return size;
}

/* Adds an answer to those that are owed; 0 without memory, with an exception. */
static int owe(Pass *pass, int64_t serialize_type, const Answer *answer, int is_batch, int waits)
{
    Py_ssize_t most = 256 + answer->count * (pass->id_host.size + 17) + answer->key.size
                      + size_of(pass->sent, SENT_PIECES) + size_of(pass->batch, BATCH_PIECES)
                      + size_of(pass->binary, BINARY_PIECES);
    unsigned char *begin = room_in(&pass->answers, most);
    if (begin == NULL
        || !make_room((void **)&pass->owed, &pass->owed_room,
                      (pass->owed_count + 1) * (Py_ssize_t)sizeof(Owed)))
        return 0;
    unsigned char *end = serialize_type == SERIALIZE_JSON
                             ? put_json(begin + 8, pass, answer, is_batch)
                             : put_binary(begin + 8, pass, answer, is_batch);
    uint32_t header_size = (uint32_t)(end - begin - 8);
    put32(put32(begin, header_size + 4), (uint32_t)serialize_type << 24 | header_size);
    if (pass->owed_count == 0 || pass->owed[pass->owed_count - 1].waits != waits)
        pass->owed[pass->owed_count++] =
            (Owed){pass->answers.size, get64(answer->units), waits};
    pass->answers.size += end - begin;
    return 1;
}

/* What a request has had done: 1, nothing: 0, nothing and an exception: -1. */

static int stage_message(Pass *pass, Run *run, const SendHeader *send, Span body,
                         int64_t serialize_type)
{
    PlainRecord plan;
    if (plan_plain(&run->shared, body.size, send->properties, pass->suffix, &plan) != PLAIN
        || plan.size > pass->room_end - pass->log_offset)
        return 0;
    unsigned char *record = room_in(&pass->records, plan.size);
    if (record == NULL
        || !make_room((void **)&run->units, &run->room, (Py_ssize_t)(run->count + 1) * UNIT_SIZE))
        return -1;
    unsigned char *unit = run->units + run->count * UNIT_SIZE;
    Py_ssize_t keys_before = pass->keys.size;
    Answer answer = {unit, 1, run->shared.queue_id, send->opaque, run->shared.queue_offset,
                     plan.found.unique_key};
    if (!write_plain(record, &run->shared, body, pass->suffix, send->flag, send->reconsume_times,
                     &plan, unit, &pass->keys)
        || (!send->is_oneway && !owe(pass, serialize_type, &answer, 0, plan.waits))) {
        pass->keys.size = keys_before;
        return -1;
    }
    run->shared.queue_offset++;
    run->count++;
    run->size += plan.size;
    pass->records.size += plan.size;
    pass->log_offset += plan.size;
    return 1;
}

static int stage_batch(Pass *pass, Run *run, const SendHeader *send, Span body,
                       int64_t serialize_type)
{
    if (contains(send->properties, "DELAY") || contains(send->properties, "DELIVER"))
        return 0;
    Py_ssize_t size, count = count_batch(&run->shared, body, &size);
    if (count == 0 || size > pass->room_end - pass->log_offset
        || count * (pass->id_host.size + 17) > IDS_SIZE_MAX)
        return 0;
    unsigned char *records = room_in(&pass->records, size);
    if (records == NULL
        || !make_room((void **)&run->units, &run->room,
                      (Py_ssize_t)(run->count + count) * UNIT_SIZE))
        return -1;
    unsigned char *units = run->units + run->count * UNIT_SIZE;
    Py_ssize_t keys_before = pass->keys.size;
    Answer answer = {units, count, run->shared.queue_id, send->opaque, run->shared.queue_offset,
                     {NULL, 0}};
    Shared before = run->shared;
    int written = write_batch(records, &run->shared, body, count, units, &pass->keys);
    int waits = !is_text(read_properties(send->properties.data, send->properties.size).wait, "false");
    if (written == PLAIN && !send->is_oneway && !owe(pass, serialize_type, &answer, 1, waits))
        written = -1;
    if (written != PLAIN) {
        run->shared = before;
        pass->keys.size = keys_before;
        return written < 0 ? -1 : 0;
    }
    run->count += count;
    run->size += size;
    pass->records.size += size;
    pass->log_offset += size;
    return 1;
}

static int stage(Pass *pass, int64_t serialize_type, Span header, Span body)
{
    SendHeader send;
    int done = read_send_header(serialize_type, header, &pass->scratch, &send);
    if (done <= 0 || (send.sys_flag & SPECIAL_FLAGS) != 0 || body.size > pass->body_size_max)
        return done < 0 ? -1 : 0;
    done = find_topic(pass, send.topic);
    if (done <= 0 || send.queue_id < 0 || send.queue_id >= PyList_GET_SIZE(pass->tails))
        return done < 0 ? -1 : 0;
    Run *run = run_of(pass, PyList_GET_ITEM(pass->tails, send.queue_id));
    if (run == NULL)
        return PyErr_Occurred() ? -1 : 0;
    run->shared.position = pass->log_offset;
    run->shared.sys_flag = send.sys_flag;
    run->shared.born_time_ms = send.born_time_ms;
    set_host_flags(&run->shared);
    int64_t begin = pass->log_offset;
    done = send.is_batch ? stage_batch(pass, run, &send, body, serialize_type)
                         : stage_message(pass, run, &send, body, serialize_type);
    if (done > 0) {
        if (run->calls == 0)
            run->start = begin;
        run->calls++;
        run->end = pass->log_offset;
    }
    return done;
}

/* Takes the sends in front; returns how many, -1 with an exception. */
static Py_ssize_t stage_all(Pass *pass, PyObject *frames, Py_ssize_t first)
{
    Py_ssize_t at = first;
    for (; at < PyList_GET_SIZE(frames); at++) {
        PyObject *frame = PyList_GET_ITEM(frames, at);
        int64_t serialize_type;
        Span header, body;
        if (!PyTuple_Check(frame) || PyTuple_GET_SIZE(frame) != 3) {
            PyErr_SetString(PyExc_TypeError, "a frame is a tuple of three");
            return -1;
        }
        if (!fits_int64(PyTuple_GET_ITEM(frame, 0), &serialize_type)
            || !take_span_of(PyTuple_GET_ITEM(frame, 1), &header)
            || !take_span_of(PyTuple_GET_ITEM(frame, 2), &body))
            return PyErr_Occurred() ? -1 : at - first;
        int done = stage(pass, serialize_type, header, body);
        if (done < 0)
            return -1;
        if (done == 0)
            break;
    }
    return at - first;
}

static PyObject *run_of_python(const Run *run)
{
    return Py_BuildValue("OLLy#L", run->tail, (long long)run->start, (long long)run->end, run->units,
                         (Py_ssize_t)run->count * UNIT_SIZE, (long long)run->count);
}

static PyObject *counted_of_python(const Run *run)
{
    return Py_BuildValue("OLLL", run->traffic, (long long)run->count, (long long)run->calls,
                         (long long)run->size);
}

/* A list of what *of* makes of each run that has messages. */
static PyObject *of_runs(const Pass *pass, PyObject *(*of)(const Run *))
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < pass->run_count; i++) {
        if (pass->runs[i].count == 0)
            continue;
        PyObject *one = of(&pass->runs[i]);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *owed_of(const Pass *pass)
{
    PyObject *owed = PyList_New(pass->owed_count);
    for (Py_ssize_t i = 0; owed != NULL && i < pass->owed_count; i++) {
        const Owed *one = &pass->owed[i];
        Py_ssize_t end = i + 1 < pass->owed_count ? one[1].start : pass->answers.size;
        PyObject *tuple = Py_BuildValue("y#LO", pass->answers.data + one->start, end - one->start,
                                        (long long)one->log_offset,
                                        one->waits ? Py_True : Py_False);
        if (tuple == NULL)
            Py_CLEAR(owed);
        else
            PyList_SET_ITEM(owed, i, tuple);
    }
    return owed;
}

static PyObject *result_of(const Pass *pass, Py_ssize_t taken)
{
    PyObject *runs = of_runs(pass, run_of_python);
    PyObject *counted = of_runs(pass, counted_of_python);
    PyObject *owed = owed_of(pass), *result = NULL;
    if (runs != NULL && counted != NULL && owed != NULL)
        result = Py_BuildValue("ny#Oy#OO", taken, pass->records.data, pass->records.size, runs,
                               pass->keys.data, pass->keys.size, counted, owed);
    Py_XDECREF(runs);
    Py_XDECREF(counted);
    Py_XDECREF(owed);
    return result;
}

/* take_sends(frames, first, sendable, common, born_host, log_offset, room_end, store_time_ms) */
static PyObject *take_sends(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t first;
    Pass pass = {0};
    if (nargs != 8 || !PyList_Check(args[0]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a list, a number, a dict and five more are needed");
        return NULL;
    }
    pass.sendable = args[2];
    if (!fits_int64(args[1], &first) || first < 0 || !take_common(args[3], &pass)
        || !take_span_of(args[4], &pass.born_host) || !fits_int64(args[5], &pass.log_offset)
        || !fits_int64(args[6], &pass.room_end) || !fits_int64(args[7], &pass.store_time_ms)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    start_keys(&pass.keys);
    Py_ssize_t taken = stage_all(&pass, args[0], (Py_ssize_t)first);
    PyObject *result = NULL;
    if (taken == 0)
        result = Py_NewRef(Py_None);
    else if (taken > 0)
        result = result_of(&pass, taken);
    free_pass(&pass);
    return result;
}

static PyMethodDef methods[] = {
    {"take_sends", (PyCFunction)(void (*)(void))take_sends, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.hot._sends", "The compiled part of the hot pass.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sends(void)
{
    prepare_crc();
    constants_name = PyUnicode_InternFromString("constants");
    next_offset_name = PyUnicode_InternFromString("next_offset");
    consume_queue_name = PyUnicode_InternFromString("consume_queue");
    if (constants_name == NULL || next_offset_name == NULL || consume_queue_name == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
