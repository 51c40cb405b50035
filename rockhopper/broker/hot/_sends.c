/* Compiled: serves the plain sends at the fronts of some connections' frames, from frames to records,
   runs and responses. kernel/send/sender.py defines what must be done with each. This code serves as
   many of a connection as follow each other without another request in between. Python must serve
   the first that is not plain, or has no room in its file; this code then leaves nothing of it
   behind. */

#include "_send_headers.h"
#include "_json_text.h"
#include "../store/log/_records.h"
#include "../store/queues/_queue_slots.h"

/* The flags of records that hold a batch: not plain. */
#define INNER_BATCH_FLAGS (0x80 | 0x40)
#define TRANSACTION_FLAGS 0xC
#define HALF_FLAG 4
#define SENT_PIECES 6
#define BATCH_PIECES 5
#define BINARY_PIECES 3
/* More would not fit the header of a response. */
#define IDS_SIZE_MAX (15 << 20)
#define RECORDS_GUESS_MAX (1 << 20)
/* With this size, other work runs before more is staged. */
#define RECORDS_SIZE_MAX (1 << 20)
#define FRAMES_GUESSED_MAX 512

enum { CONSTANTS, NEXT_OFFSET, CONSUME_QUEUE };
enum { MESSAGES, CALLS, BYTES };

static const char *const tail_names[] = {"constants", "next_offset", "consume_queue", NULL};
static const char *const traffic_names[] = {"messages", "calls", "bytes", NULL};
static Slots tail_slots, traffic_slots;
/* The class of the runs in the result. */
static PyObject *run_class;

/* The messages of one queue. The table of topics or of tails keeps the tail alive, and does not
   change meanwhile. */
typedef struct {
    PyObject *tail;
    Shared shared;
    int64_t start, end, count;
    unsigned char *units;
    Py_ssize_t room;
} Run;

/* The numbers to count for one topic. */
typedef struct {
    PyObject *traffic;
    int64_t messages, calls, size;
} Counted;

/* A hash table from objects to their index in an array; at most SLOTS_USED_MAX of them. */
#define SLOTS_BITS 9
#define SLOTS_USED_MAX 384
typedef struct {
    const PyObject *key;
    Py_ssize_t at;
} Slot;
typedef struct {
    Slot slots[1 << SLOTS_BITS];
} Places;

/* The slot of *key*, or the free slot for it. */
static Slot *slot_of(Places *places, const PyObject *key)
{
    size_t at = (size_t)((uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u >> (64 - SLOTS_BITS));
    while (places->slots[at].key != NULL && places->slots[at].key != key)
        at = (at + 1) & ((1 << SLOTS_BITS) - 1);
    return &places->slots[at];
}

/* Responses that are sent together, to the connection of a front. */
typedef struct {
    Py_ssize_t start, front;
    int waits;
} Owed;

typedef struct {
    unsigned char *data;
    Py_ssize_t size, room;
} Buffer;

typedef struct {
    /* The common data of all sends to a broker. */
    Span store_host, suffix, id_host;
    int64_t body_size_max;
    Span sent[SENT_PIECES], batch[BATCH_PIECES], binary[BINARY_PIECES];
    /* For messages that wait elsewhere: all tails, the delays of the levels, the topics in which
       they wait, and the counter of half messages. */
    PyObject *all_tails, *delays_ms, *delay_topic, *half_topic, *half_traffic;
    /* The front that is served: its number, who may sign its requests (NULL if they need no
       signature), the topics that the last sender may send to, the host of its connection. */
    Py_ssize_t front;
    PyObject *signers, *sendable;
    SignedFields fields;
    Span born_host;
    int64_t log_offset, room_end, store_time_ms;
    /* The start of the ids for messages without a key, empty without any, and the number of the
       first one. */
    Span ids;
    int64_t id_number;
    /* The topic of the last message, and one to which the sender is not known to be able to send. */
    Span topic, unknown;
    PyObject *tails, *traffic;
    /* The output. */
    int64_t sends, batches, ids_used;
    int is_cut, wants_ids;
    PyObject *taken, *unknown_topics;
    Run *runs;
    Py_ssize_t run_count, runs_room;
    Counted *counted;
    Py_ssize_t counted_count, counted_room;
    Places run_places, counted_places;
    PyObject *halves;
    Owed *owed;
    Py_ssize_t owed_count, owed_room;
    Buffer answers;
    /* A bytes object, the first *records_size* bytes of it written. */
    PyObject *records;
    Py_ssize_t records_size, records_hint;
    Keys keys;
    Scratch scratch, suffix_room;
} Pass;

/* The queue of a message and the properties added to it; *group* is that of a half message. */
typedef struct {
    PyObject *tail, *traffic;
    Span suffix, group;
    int64_t due_ms;
} Way;

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

/* (tails, delays_ms, delay_topic, half_topic, half_traffic), see plain_sends.py. */
static int take_waiting(PyObject *waiting, Pass *pass)
{
    if (!PyTuple_Check(waiting) || PyTuple_GET_SIZE(waiting) != 5
        || !PyDict_Check(PyTuple_GET_ITEM(waiting, 0))
        || !PyTuple_Check(PyTuple_GET_ITEM(waiting, 1))) {
        PyErr_SetString(PyExc_TypeError, "of what waits, a dict, a tuple and three more are needed");
        return 0;
    }
    pass->all_tails = PyTuple_GET_ITEM(waiting, 0);
    pass->delays_ms = PyTuple_GET_ITEM(waiting, 1);
    pass->delay_topic = PyTuple_GET_ITEM(waiting, 2);
    pass->half_topic = PyTuple_GET_ITEM(waiting, 3);
    pass->half_traffic = PyTuple_GET_ITEM(waiting, 4);
    return 1;
}

/* See plain_sends.py: (store_host, suffix, id_host, body_size_max, sent, batch, binary, waiting). */
static int take_common(PyObject *common, Pass *pass)
{
    if (!PyTuple_Check(common) || PyTuple_GET_SIZE(common) != 8) {
        PyErr_SetString(PyExc_TypeError, "what sends have in common is a tuple of eight");
        return 0;
    }
    return take_span_of(PyTuple_GET_ITEM(common, 0), &pass->store_host)
           && take_span_of(PyTuple_GET_ITEM(common, 1), &pass->suffix)
           && take_span_of(PyTuple_GET_ITEM(common, 2), &pass->id_host)
           && fits_int64(PyTuple_GET_ITEM(common, 3), &pass->body_size_max)
           && take_pieces(PyTuple_GET_ITEM(common, 4), pass->sent, SENT_PIECES)
           && take_pieces(PyTuple_GET_ITEM(common, 5), pass->batch, BATCH_PIECES)
           && take_pieces(PyTuple_GET_ITEM(common, 6), pass->binary, BINARY_PIECES)
           && take_waiting(PyTuple_GET_ITEM(common, 7), pass);
}

static void free_pass(Pass *pass)
{
    for (Py_ssize_t i = 0; i < pass->run_count; i++)
        PyMem_Free(pass->runs[i].units);
    PyMem_Free(pass->runs);
    PyMem_Free(pass->owed);
    Py_XDECREF(pass->records);
    PyMem_Free(pass->answers.data);
    PyMem_Free(pass->counted);
    PyMem_Free(pass->scratch.data);
    PyMem_Free(pass->suffix_room.data);
    Py_XDECREF(pass->halves);
    Py_XDECREF(pass->taken);
    Py_XDECREF(pass->unknown_topics);
    free_keys(&pass->keys);
}

/* Makes room for *size* more bytes, and returns it; NULL without memory, with an exception. */
static unsigned char *room_in(Buffer *buffer, Py_ssize_t size)
{
    if (!make_room((void **)&buffer->data, &buffer->room, buffer->size + size))
        return NULL;
    return buffer->data + buffer->size;
}

/* The same for records. */
static unsigned char *room_for_records(Pass *pass, Py_ssize_t size)
{
    Py_ssize_t wanted = pass->records_size + size;
    if (pass->records == NULL) {
        wanted = wanted > pass->records_hint ? wanted : pass->records_hint;
        pass->records = PyBytes_FromStringAndSize(NULL, wanted);
    } else if (wanted > PyBytes_GET_SIZE(pass->records)) {
        _PyBytes_Resize(&pass->records, 2 * wanted);
    }
    if (pass->records == NULL)
        return NULL;
    return (unsigned char *)PyBytes_AS_STRING(pass->records) + pass->records_size;
}

/* Returns 1 if the queues of *topic* are in *pass*, 0 if it is not known to accept messages, -1
   with an exception. */
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
    if (found == NULL) {
        pass->unknown = topic;
        return PyErr_Occurred() ? -1 : 0;
    }
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

/* Begins a run of *tail*. Returns 0 with an exception, or without one if its queue must be opened
   first: a message takes longer than many others while its queue has no files. The tail keeps its
   constants alive. */
static int begin_run(Pass *pass, Run *run, PyObject *tail)
{
    *run = (Run){.tail = tail, .start = pass->log_offset};
    if (Py_TYPE(tail) != tail_slots.type) {
        PyErr_SetString(PyExc_TypeError, "tails of queues are needed");
        return 0;
    }
    PyObject *queue = *slot(tail, &tail_slots, CONSUME_QUEUE);
    PyObject *constants = *slot(tail, &tail_slots, CONSTANTS);
    if (queue == NULL || queue == Py_None || constants == NULL)
        return 0;
    int taken = take_constants(constants, &run->shared)
                && read_slot(tail, &tail_slots, NEXT_OFFSET, &run->shared.queue_offset);
    run->shared.store_time_ms = pass->store_time_ms;
    run->shared.store_host = pass->store_host.data;
    run->shared.store_host_size = pass->store_host.size;
    return taken;
}

/* The run of a queue; NULL with an exception, or without one if Python must handle it. */
static Run *run_of(Pass *pass, PyObject *tail)
{
    Slot *slot = slot_of(&pass->run_places, tail);
    if (slot->key != NULL)
        return &pass->runs[slot->at];
    if (pass->run_count == SLOTS_USED_MAX || !make_room((void **)&pass->runs, &pass->runs_room,
                   (pass->run_count + 1) * (Py_ssize_t)sizeof(Run)))
        return NULL;
    Run *run = &pass->runs[pass->run_count];
    if (!begin_run(pass, run, tail))
        return NULL;
    *slot = (Slot){tail, pass->run_count++};
    return run;
}

/* Counts the messages of one request for a topic; returns 0 without memory, with an exception. */
static int count_request(Pass *pass, PyObject *traffic, int64_t messages, int64_t size)
{
    Slot *slot = slot_of(&pass->counted_places, traffic);
    if (slot->key == NULL) {
        if (!make_room((void **)&pass->counted, &pass->counted_room,
                       (pass->counted_count + 1) * (Py_ssize_t)sizeof(Counted)))
            return 0;
        *slot = (Slot){traffic, pass->counted_count++};
        pass->counted[slot->at] = (Counted){.traffic = traffic};
    }
    Counted *counted = &pass->counted[slot->at];
    counted->messages += messages;
    counted->calls++;
    counted->size += size;
    return 1;
}

/* The two digits of each byte. */
static char hex_pairs[256][2];

static void make_hex_pairs(void)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        hex_pairs[byte][0] = digits[byte >> 4];
        hex_pairs[byte][1] = digits[byte & 15];
    }
}

/* Writes the id of the message at a log offset: the host, then 16 digits. */
static unsigned char *put_id(unsigned char *p, Span host, int64_t log_offset)
{
    p = put_span(p, host);
    for (int shift = 56; shift >= 0; shift -= 8, p += 2)
        memcpy(p, hex_pairs[log_offset >> shift & 255], 2);
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

/* The values of a response: *units* are those of the messages, *key* is that of a single one. */
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

/* Adds a response to the pending ones; returns 0 without memory, with an exception. */
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
    const Owed *last = pass->owed_count == 0 ? NULL : &pass->owed[pass->owed_count - 1];
    if (last == NULL || last->waits != waits || last->front != pass->front)
        pass->owed[pass->owed_count++] =
            (Owed){pass->answers.size, pass->front, waits};
    pass->answers.size += end - begin;
    return 1;
}

/* Return values of the following functions: 1 done; 0 nothing done; -1 nothing done, with an
   exception. */

/* Finds the tail of a queue in which messages wait; borrowed. */
static int find_tail(Pass *pass, PyObject *topic, int32_t queue_id, PyObject **tail)
{
    PyObject *key = Py_BuildValue("Oi", topic, (int)queue_id);
    if (key == NULL)
        return -1;
    *tail = PyDict_GetItemWithError(pass->all_tails, key);
    Py_DECREF(key);
    return *tail != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
}

/* Makes the properties that the broker adds to a waiting message; *key* is its own if it is a half
   message. */
static int make_suffix(Pass *pass, const SendHeader *send, Span key, Span *suffix)
{
    Py_ssize_t most = pass->suffix.size + key.size + send->topic.size + NUMBER_SIZE_MAX + 64;
    Scratch *scratch = &pass->suffix_room;
    if (!make_room((void **)&scratch->data, &scratch->room, most))
        return -1;
    unsigned char *p = put_span(scratch->data, pass->suffix);
    if (key.size > 0) {
        p = put_span(put_bytes(p, "__transactionId__\1", 18), key);
        *p++ = 2;
    }
    p = put_span(put_bytes(p, "REAL_TOPIC\1", 11), send->topic);
    p = put_number(put_bytes(p, "\2REAL_QID\1", 10), send->queue_id);
    *p++ = 2;
    *suffix = (Span){(const char *)scratch->data, (const char *)p - (const char *)scratch->data};
    return 1;
}

static int may_be_half(const Pass *pass, const SendHeader *send, const Waiting *waiting)
{
    int32_t flags = send->sys_flag & TRANSACTION_FLAGS;
    return pass->half_topic != Py_None && is_text(waiting->prepared, "true")
           && waiting->delay.size < 0 && waiting->group.size > 0 && is_ascii(waiting->group)
           && (flags == 0 || flags == HALF_FLAG) && send->reconsume_times == 0
           && memchr(send->group.data, 1, (size_t)send->group.size) == NULL
           && memchr(send->group.data, 2, (size_t)send->group.size) == NULL;
}

/* Finds the queue of a message whose properties make it wait elsewhere. */
static int find_detour(Pass *pass, const SendHeader *send, Span unique_key, Way *way)
{
    Waiting waiting;
    int32_t level = 0;
    int64_t delay_ms;
    if (!read_waiting(send->properties, &waiting))
        return 0;
    if (waiting.prepared.size >= 0) {
        if (!may_be_half(pass, send, &waiting))
            return 0;
        way->group = waiting.group;
        way->traffic = pass->half_traffic;
        int found = find_tail(pass, pass->half_topic, 0, &way->tail);
        return found > 0 ? make_suffix(pass, send, unique_key, &way->suffix) : found;
    }
    if ((send->sys_flag & TRANSACTION_FLAGS) != 0 || !read_int32(waiting.delay, &level)
        || level < 1 || level > PyTuple_GET_SIZE(pass->delays_ms))
        return 0;
    if (!fits_int64(PyTuple_GET_ITEM(pass->delays_ms, level - 1), &delay_ms))
        return PyErr_Occurred() ? -1 : 0;
    way->due_ms = pass->store_time_ms + delay_ms;
    int found = find_tail(pass, pass->delay_topic, level - 1, &way->tail);
    return found > 0 ? make_suffix(pass, send, (Span){NULL, 0}, &way->suffix) : found;
}

/* Whether the pass can count messages of one more topic, or counts this one already. */
static int is_countable(Pass *pass, PyObject *traffic)
{
    return pass->counted_count < SLOTS_USED_MAX
           || slot_of(&pass->counted_places, traffic)->key != NULL;
}

static int find_way(Pass *pass, const SendHeader *send, const Properties *found, Way *way)
{
    *way = (Way){.tail = PyList_GET_ITEM(pass->tails, send->queue_id), .traffic = pass->traffic,
                 .suffix = pass->suffix, .group = {NULL, -1}, .due_ms = -1};
    if (found->special)
        return find_detour(pass, send, found->unique_key, way);
    return (send->sys_flag & TRANSACTION_FLAGS) == 0;
}

/* Makes the next id the key of a message that has none. */
static int assign_key(Pass *pass, Properties *found, Way *way)
{
    Scratch *scratch = &pass->suffix_room;
    if (found->special)
        return 0;
    pass->wants_ids = 1;
    if (pass->ids.size == 0)
        return 0;
    if (!make_room((void **)&scratch->data, &scratch->room, pass->ids.size + way->suffix.size + 16))
        return -1;
    unsigned char *key = put_bytes(scratch->data, "UNIQ_KEY\1", 9), *p = put_span(key, pass->ids);
    uint64_t number = (uint64_t)(pass->id_number + pass->ids_used);
    for (int shift = 12; shift >= 0; shift -= 4)
        *p++ = (unsigned char)"0123456789ABCDEF"[number >> shift & 15];
    found->unique_key = (Span){(const char *)key, p - key};
    *p++ = 2;
    p = put_span(p, way->suffix);
    way->suffix = (Span){(const char *)scratch->data, p - scratch->data};
    return 1;
}

static int note_half(Pass *pass, const Run *run, Span group)
{
    if (pass->halves == NULL && (pass->halves = PyList_New(0)) == NULL)
        return 0;
    PyObject *half = Py_BuildValue("LLs#", (long long)run->shared.queue_offset,
                                   (long long)pass->log_offset, group.data, group.size);
    int noted = half != NULL && PyList_Append(pass->halves, half) == 0;
    Py_XDECREF(half);
    return noted;
}

/* Prepares the run of a queue for the next record; returns NULL as run_of. */
static Run *aim(Pass *pass, const SendHeader *send, PyObject *tail)
{
    Run *run = run_of(pass, tail);
    if (run == NULL)
        return NULL;
    run->shared.position = pass->log_offset;
    run->shared.sys_flag = send->sys_flag & ~TRANSACTION_FLAGS;
    run->shared.born_time_ms = send->born_time_ms;
    run->shared.born_host = pass->born_host.data;
    run->shared.born_host_size = pass->born_host.size;
    set_host_flags(&run->shared);
    return run;
}

/* Adds records to *run*, whose offsets are already advanced after them. */
static int add(Pass *pass, Run *run, PyObject *traffic, int64_t messages, Py_ssize_t size)
{
    if (!count_request(pass, traffic, messages, size))
        return -1;
    if (run->count == 0)
        run->start = pass->log_offset;
    run->count += messages;
    pass->records_size += size;
    pass->log_offset += size;
    run->end = pass->log_offset;
    return 1;
}

static int stage_message(Pass *pass, const SendHeader *send, Span body, int64_t serialize_type)
{
    PlainRecord plan = {.found = read_properties(send->properties.data, send->properties.size)};
    Way way;
    int done = find_way(pass, send, &plan.found, &way);
    int has_key = plan.found.unique_key.size > 0;
    if (done > 0 && !has_key)
        done = assign_key(pass, &plan.found, &way);
    if (done > 0 && !is_countable(pass, way.traffic))
        return 0;
    Run *run = done > 0 ? aim(pass, send, way.tail) : NULL;
    if (run == NULL)
        return done < 0 || PyErr_Occurred() ? -1 : 0;
    if (plan_record(&run->shared, body.size, send->properties, way.suffix, &plan) != PLAIN
        || plan.size > pass->room_end - pass->log_offset)
        return 0;
    if (way.due_ms >= 0)
        plan.tags_code = way.due_ms;
    unsigned char *record = room_for_records(pass, plan.size);
    if (record == NULL
        || !make_room((void **)&run->units, &run->room, (Py_ssize_t)(run->count + 1) * UNIT_SIZE))
        return -1;
    unsigned char *unit = run->units + run->count * UNIT_SIZE;
    Py_ssize_t keys_before = pass->keys.size;
    Answer answer = {unit, 1, send->queue_id, send->opaque, run->shared.queue_offset,
                     plan.found.unique_key};
    if (!write_plain(record, &run->shared, body, way.suffix, send->flag, send->reconsume_times,
                     &plan, unit, &pass->keys)
        || (way.group.size >= 0 && !note_half(pass, run, way.group))
        || (!send->is_oneway && !owe(pass, serialize_type, &answer, 0, plan.waits))) {
        pass->keys.size = keys_before;
        return -1;
    }
    run->shared.queue_offset++;
    pass->ids_used += !has_key;
    return add(pass, run, way.traffic, 1, plan.size);
}

static int stage_batch(Pass *pass, const SendHeader *send, Span body, int64_t serialize_type)
{
    if ((send->sys_flag & TRANSACTION_FLAGS) != 0 || contains(send->properties, "DELAY")
        || contains(send->properties, "DELIVER"))
        return 0;
    Run *run = is_countable(pass, pass->traffic)
                   ? aim(pass, send, PyList_GET_ITEM(pass->tails, send->queue_id))
                   : NULL;
    if (run == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t size, count = count_batch(&run->shared, body, &size);
    if (count == 0 || size > pass->room_end - pass->log_offset
        || count * (pass->id_host.size + 17) > IDS_SIZE_MAX)
        return 0;
    unsigned char *records = room_for_records(pass, size);
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
    pass->batches++;
    return add(pass, run, pass->traffic, count, size);
}

/* Chooses the topics that the sender of the following requests may send to. */
static void use_sendable(Pass *pass, PyObject *sendable)
{
    if (sendable != pass->sendable) {
        pass->sendable = sendable;
        pass->tails = NULL;
    }
}

/* Finds the one of *signers* who has signed a request: a new reference to its name. Returns NULL if
   there is none, or with an exception. *sendable* gets the topics of this user, borrowed. */
static PyObject *find_user(PyObject *signers, const SignedFields *fields, Span body,
                           PyObject **sendable)
{
    Span access_key = find_field(fields, "AccessKey");
    if (access_key.size < 0)
        return NULL;
    PyObject *user = PyUnicode_DecodeASCII(access_key.data, access_key.size, NULL);
    PyObject *signer = user == NULL ? NULL : PyDict_GetItemWithError(signers, user);
    if (signer == NULL) {
        Py_XDECREF(user);
        return NULL;
    }
    Span key;
    if (!PyTuple_Check(signer) || PyTuple_GET_SIZE(signer) != 2
        || !take_span_of(PyTuple_GET_ITEM(signer, 0), &key) || key.size != SIGNING_KEY_SIZE
        || !PyDict_Check(PyTuple_GET_ITEM(signer, 1))) {
        Py_DECREF(user);
        PyErr_SetString(PyExc_TypeError, "a signing key, and the topics of its user, are needed");
        return NULL;
    }
    if (!is_signed_by((const unsigned char *)key.data, fields, body)) {
        Py_DECREF(user);
        return NULL;
    }
    *sendable = PyTuple_GET_ITEM(signer, 1);
    return user;
}

/* Checks the signature of a send, and chooses the topics of its user. */
static int authenticate(Pass *pass, Span body)
{
    PyObject *sendable;
    PyObject *user = find_user(pass->signers, &pass->fields, body, &sendable);
    if (user == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Py_DECREF(user);
    use_sendable(pass, sendable);
    return 1;
}

static int stage(Pass *pass, int64_t serialize_type, Span header, Span body)
{
    SendHeader send;
    SignedFields *fields = pass->signers == NULL ? NULL : &pass->fields;
    int done = read_send_header(serialize_type, header, &pass->scratch, fields, &send);
    if (done <= 0 || (send.sys_flag & INNER_BATCH_FLAGS) != 0 || body.size > pass->body_size_max)
        return done < 0 ? -1 : 0;
    if (fields != NULL && (done = authenticate(pass, body)) <= 0)
        return done;
    /* The general path decodes the properties of a message, and encodes them again. */
    if (!send.is_batch && !are_regular(send.properties))
        return 0;
    done = find_topic(pass, send.topic);
    if (done <= 0 || send.queue_id < 0 || send.queue_id >= PyList_GET_SIZE(pass->tails))
        return done < 0 ? -1 : 0;
    return send.is_batch ? stage_batch(pass, &send, body, serialize_type)
                         : stage_message(pass, &send, body, serialize_type);
}

/* The parts of a frame; returns 0 with an exception, or without one if Python must serve it. */
static int take_frame(PyObject *frame, int64_t *serialize_type, Span *header, Span *body)
{
    if (!PyTuple_Check(frame) || PyTuple_GET_SIZE(frame) != 3) {
        PyErr_SetString(PyExc_TypeError, "a frame is a tuple of three");
        return 0;
    }
    return fits_int64(PyTuple_GET_ITEM(frame, 0), serialize_type)
           && take_span_of(PyTuple_GET_ITEM(frame, 1), header)
           && take_span_of(PyTuple_GET_ITEM(frame, 2), body);
}

/* Estimates the size of the records of some frames: the frames' size and half of it, because a
   message in a batch has a short head. */
static Py_ssize_t guess_size(PyObject *fronts)
{
    Py_ssize_t size = 0, left = FRAMES_GUESSED_MAX;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(fronts); i++) {
        PyObject *frames = PyTuple_GET_ITEM(PyList_GET_ITEM(fronts, i), 1);
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(frames) && left > 0; at++, left--) {
            PyObject *frame = PyList_GET_ITEM(frames, at);
            for (Py_ssize_t part = 1; PyTuple_Check(frame) && part < PyTuple_GET_SIZE(frame); part++) {
                PyObject *bytes = PyTuple_GET_ITEM(frame, part);
                size += PyBytes_Check(bytes) ? PyBytes_GET_SIZE(bytes) : 0;
            }
            if (size >= RECORDS_GUESS_MAX)
                return RECORDS_GUESS_MAX * 3 / 2;
        }
    }
    return size * 3 / 2;
}

/* Whether one more send may be staged, if *left* may be by their number. */
static int has_room(const Pass *pass, Py_ssize_t left)
{
    return left > 0 && pass->records_size < RECORDS_SIZE_MAX;
}

/* Stages the sends at the front of *frames*, *left* of them at most; returns how many, -1 with an
   exception. */
static Py_ssize_t stage_front(Pass *pass, PyObject *frames, Py_ssize_t left)
{
    Py_ssize_t at = 0;
    for (; at < PyList_GET_SIZE(frames) && has_room(pass, left - at); at++) {
        int64_t serialize_type, batches = pass->batches;
        Span header, body;
        if (!take_frame(PyList_GET_ITEM(frames, at), &serialize_type, &header, &body))
            return PyErr_Occurred() ? -1 : at;
        int done = stage(pass, serialize_type, header, body);
        if (done < 0)
            return -1;
        if (done == 0)
            break;
        pass->sends += pass->batches == batches;
    }
    return at;
}

/* Notes the topic that is not known to accept messages of its sender, if there is one. */
static int note_unknown(Pass *pass)
{
    if (pass->unknown.data == NULL)
        return 1;
    PyObject *topic = PyUnicode_DecodeASCII(pass->unknown.data, pass->unknown.size, NULL);
    PyObject *pair = topic == NULL ? NULL : PyTuple_Pack(2, pass->sendable, topic);
    int is_noted = pair != NULL && PyList_Append(pass->unknown_topics, pair) == 0;
    Py_XDECREF(topic);
    Py_XDECREF(pair);
    pass->unknown = (Span){NULL, 0};
    return is_noted;
}

/* Begins to serve (connection, frames, born_host, sendable, signers); returns 0 with an exception. */
static int enter(Pass *pass, PyObject *front, Py_ssize_t number)
{
    PyObject *signers = PyTuple_GET_ITEM(front, 4);
    pass->signers = signers == Py_None ? NULL : signers;
    if (pass->signers == NULL)
        use_sendable(pass, PyTuple_GET_ITEM(front, 3));
    pass->front = number;
    return take_span_of(PyTuple_GET_ITEM(front, 2), &pass->born_host);
}

static int are_fronts(PyObject *fronts)
{
    int are_right = PyList_Check(fronts);
    for (Py_ssize_t i = 0; are_right && i < PyList_GET_SIZE(fronts); i++) {
        PyObject *front = PyList_GET_ITEM(fronts, i);
        are_right = PyTuple_Check(front) && PyTuple_GET_SIZE(front) == 5
                    && PyList_Check(PyTuple_GET_ITEM(front, 1))
                    && PyDict_Check(PyTuple_GET_ITEM(front, 3))
                    && (PyTuple_GET_ITEM(front, 4) == Py_None
                        || PyDict_Check(PyTuple_GET_ITEM(front, 4)));
    }
    if (!are_right)
        PyErr_SetString(PyExc_TypeError, "a list of fronts is needed");
    return are_right;
}

/* Stages the sends of the fronts, *left* of them at most; returns 0 with an exception. */
static int stage_all(Pass *pass, PyObject *fronts, Py_ssize_t left)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(fronts) && has_room(pass, left); i++) {
        PyObject *front = PyList_GET_ITEM(fronts, i);
        if (!enter(pass, front, i))
            return 0;
        Py_ssize_t count = stage_front(pass, PyTuple_GET_ITEM(front, 1), left);
        PyObject *number = count < 0 ? NULL : PyLong_FromSsize_t(count);
        int is_noted = number != NULL && PyList_Append(pass->taken, number) == 0;
        Py_XDECREF(number);
        if (!is_noted || !note_unknown(pass))
            return 0;
        left -= count;
    }
    pass->is_cut = !has_room(pass, left);
    return 1;
}

#define RUN_FIELDS 6

/* Run(tail, start, end, first_offset, count, [units]), see queue_tail.py. */
static PyObject *run_of_python(const Run *run)
{
    PyObject *units = PyBytes_FromStringAndSize((const char *)run->units,
                                                (Py_ssize_t)run->count * UNIT_SIZE);
    PyObject *fields[RUN_FIELDS] = {
        Py_NewRef(run->tail),
        PyLong_FromLongLong(run->start),
        PyLong_FromLongLong(run->end),
        PyLong_FromLongLong(run->shared.queue_offset - run->count),
        PyLong_FromLongLong(run->count),
        units == NULL ? NULL : PyList_New(1),
    };
    int made = fields[RUN_FIELDS - 1] != NULL;
    if (made)
        PyList_SET_ITEM(fields[RUN_FIELDS - 1], 0, units);
    else
        Py_XDECREF(units);
    for (int i = 0; i < RUN_FIELDS; i++)
        made = made && fields[i] != NULL;
    PyObject *result = made ? PyObject_Vectorcall(run_class, fields, RUN_FIELDS, NULL) : NULL;
    for (int i = 0; i < RUN_FIELDS; i++)
        Py_XDECREF(fields[i]);
    return result;
}

static PyObject *runs_of(const Pass *pass)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < pass->run_count; i++) {
        if (pass->runs[i].count == 0)
            continue;
        PyObject *one = run_of_python(&pass->runs[i]);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* (traffic, messages, calls, bytes) */
static PyObject *counted_of_python(const Counted *counted)
{
    PyObject *one = PyTuple_New(4);
    const int64_t numbers[] = {counted->messages, counted->calls, counted->size};
    if (one != NULL)
        PyTuple_SET_ITEM(one, 0, Py_NewRef(counted->traffic));
    for (int i = 0; one != NULL && i < 3; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(one);
        else
            PyTuple_SET_ITEM(one, i + 1, number);
    }
    return one;
}

static PyObject *counted_of(const Pass *pass)
{
    PyObject *list = PyList_New(pass->counted_count);
    for (Py_ssize_t i = 0; list != NULL && i < pass->counted_count; i++) {
        PyObject *one = counted_of_python(&pass->counted[i]);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, one);
    }
    return list;
}

/* Adds item *at* of a tuple to a number in a slot; returns 0 with an exception. */
static int add_to(PyObject *traffic, int name, PyObject *tuple, Py_ssize_t at)
{
    PyObject *before = *slot(traffic, &traffic_slots, name);
    PyObject *sum = before == NULL ? NULL : PyNumber_Add(before, PyTuple_GET_ITEM(tuple, at));
    if (sum == NULL)
        return 0;
    set_slot(traffic, &traffic_slots, name, sum);
    Py_DECREF(sum);
    return 1;
}

/* count_up(counted) */
static PyObject *count_up(PyObject *module, PyObject *counted)
{
    (void)module;
    for (Py_ssize_t i = 0; PyList_Check(counted) && i < PyList_GET_SIZE(counted); i++) {
        PyObject *one = PyList_GET_ITEM(counted, i);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 4
            || Py_TYPE(PyTuple_GET_ITEM(one, 0)) != traffic_slots.type)
            return PyErr_Format(PyExc_TypeError, "traffic and three numbers are needed");
        PyObject *traffic = PyTuple_GET_ITEM(one, 0);
        if (!add_to(traffic, MESSAGES, one, 1) || !add_to(traffic, CALLS, one, 2)
            || !add_to(traffic, BYTES, one, 3))
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *owed_of(const Pass *pass, PyObject *fronts)
{
    PyObject *owed = PyList_New(pass->owed_count);
    for (Py_ssize_t i = 0; owed != NULL && i < pass->owed_count; i++) {
        const Owed *one = &pass->owed[i];
        Py_ssize_t end = i + 1 < pass->owed_count ? one[1].start : pass->answers.size;
        PyObject *front = PyList_GET_ITEM(fronts, one->front);
        PyObject *tuple = Py_BuildValue("Oy#O", PyTuple_GET_ITEM(front, 0),
                                        pass->answers.data + one->start, end - one->start,
                                        one->waits ? Py_True : Py_False);
        if (tuple == NULL)
            Py_CLEAR(owed);
        else
            PyList_SET_ITEM(owed, i, tuple);
    }
    return owed;
}

static PyObject *result_of(Pass *pass, PyObject *fronts)
{
    if (pass->records == NULL)
        pass->records = PyBytes_FromStringAndSize(NULL, 0);
    else
        _PyBytes_Resize(&pass->records, pass->records_size);
    if (pass->records == NULL)
        return NULL;
    PyObject *runs = runs_of(pass), *counted = counted_of(pass);
    PyObject *owed = owed_of(pass, fronts), *result = NULL;
    if (runs != NULL && counted != NULL && owed != NULL)
        result = Py_BuildValue("OOLLOOOy#OOOLO", pass->taken, pass->is_cut ? Py_True : Py_False,
                               (long long)pass->sends, (long long)pass->batches,
                               pass->unknown_topics, pass->records, runs, pass->keys.data,
                               pass->keys.size, counted, owed,
                               pass->halves == NULL ? Py_None : pass->halves,
                               (long long)pass->ids_used, pass->wants_ids ? Py_True : Py_False);
    Py_XDECREF(runs);
    Py_XDECREF(counted);
    Py_XDECREF(owed);
    return result;
}

/* take_sends(fronts, count_max, common, id_start, id_number, log_offset, room_end, store_time_ms) */
static PyObject *take_sends(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t count_max;
    Pass pass = {0};
    if (run_class == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "set_classes comes first");
        return NULL;
    }
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "eight arguments are needed");
        return NULL;
    }
    if (!are_fronts(args[0]) || !fits_int64(args[1], &count_max) || count_max < 0
        || count_max > SLOTS_USED_MAX || !take_common(args[2], &pass)
        || !take_span_of(args[3], &pass.ids) || !fits_int64(args[4], &pass.id_number)
        || !fits_int64(args[5], &pass.log_offset) || !fits_int64(args[6], &pass.room_end)
        || !fits_int64(args[7], &pass.store_time_ms)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    /* Up to Python 3.11, an allocation may run finalizers; the fronts and tables must not change. */
    int collects = PyGC_Disable();
    start_keys(&pass.keys);
    pass.records_hint = guess_size(args[0]);
    pass.taken = PyList_New(0);
    pass.unknown_topics = PyList_New(0);
    PyObject *result = NULL;
    if (pass.taken != NULL && pass.unknown_topics != NULL
        && stage_all(&pass, args[0], (Py_ssize_t)count_max))
        result = result_of(&pass, args[0]);
    free_pass(&pass);
    if (collects)
        PyGC_Enable();
    return result;
}

/* set_classes(Run, QueueTail, Traffic) */
static PyObject *set_classes(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *run, *tail, *traffic;
    if (!PyArg_ParseTuple(args, "OOO", &run, &tail, &traffic)
        || !find_slots(tail, tail_names, &tail_slots)
        || !find_slots(traffic, traffic_names, &traffic_slots))
        return NULL;
    Py_XSETREF(run_class, Py_NewRef(run));
    Py_RETURN_NONE;
}

/* make_key(secret) */
static PyObject *make_key(PyObject *module, PyObject *secret)
{
    (void)module;
    Span span;
    unsigned char key[SIGNING_KEY_SIZE];
    if (!take_span_of(secret, &span))
        return NULL;
    make_signing_key(span, key);
    return PyBytes_FromStringAndSize((const char *)key, SIGNING_KEY_SIZE);
}

/* find_signer(frame, signers) */
static PyObject *find_signer(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t serialize_type;
    Span header, body;
    SignedFields fields;
    PyObject *sendable, *user = NULL;
    if (nargs != 2 || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "a frame and a dict are needed");
    if (!take_frame(args[0], &serialize_type, &header, &body)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (serialize_type == SERIALIZE_JSON && read_json_fields(header, &fields))
        user = find_user(args[1], &fields, body, &sendable);
    if (user == NULL && PyErr_Occurred())
        return NULL;
    return user != NULL ? user : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"set_classes", set_classes, METH_VARARGS, NULL},
    {"count_up", count_up, METH_O, NULL},
    {"make_key", make_key, METH_O, NULL},
    {"find_signer", (PyCFunction)(void (*)(void))find_signer, METH_FASTCALL, NULL},
    {"take_sends", (PyCFunction)(void (*)(void))take_sends, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.hot._sends", "The compiled part of the hot pass.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sends(void)
{
    prepare_crc();
    make_hex_pairs();
    return PyModule_Create(&definition);
}
