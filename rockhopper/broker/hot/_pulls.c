/* Compiled: serves the plain pulls at the fronts of some connections' frames, from frames to one
   block of responses for each connection. hot_pass.py defines what must be done with each. This code
   serves pulls whose queue is known to be readable for them, and whose messages are sound and in the
   newest file of queue and log, or in files that Python has named. Python must serve the first other
   pull of a connection. */

#include "_json_text.h"
#include "../store/log/_selecting.h"

#define CODE_PULL 11
#define PULL_FLAG_COMMIT 1
#define PULL_FLAG_SUSPEND 2
#define ANSWER_PIECES 5
#define KEY_SIZE_MAX 1024
/* At most this many messages are read for their properties before other work runs. */
#define SCANNED_MAX 32768

/* Names of attributes of a queue. */
static PyObject *min_offset, *max_offset, *mapping_start_name, *mapping_name, *topic_field;

/* The fields of a pull, as bits of the set of fields seen. */
enum {
    GROUP = 1, TOPIC = 2, QUEUE_ID = 4, OFFSET = 8, COUNT_MAX = 16, SYS_FLAG = 32, COMMIT = 64,
    SUSPEND = 128, VERSION = 256, SUBSCRIPTION = 512, EXPRESSION_TYPE = 1024, NEEDED = 511
};

static const struct {
    const char *name;
    int field;
} fields[] = {
    {"consumerGroup", GROUP}, {"topic", TOPIC}, {"queueId", QUEUE_ID}, {"queueOffset", OFFSET},
    {"maxMsgNums", COUNT_MAX}, {"sysFlag", SYS_FLAG}, {"commitOffset", COMMIT},
    {"suspendTimeoutMillis", SUSPEND}, {"subVersion", VERSION}, {"subscription", SUBSCRIPTION},
    {"expressionType", EXPRESSION_TYPE}, {NULL, 0}};

typedef struct {
    uint32_t seen;
    int32_t opaque, queue_id, count_max, sys_flag;
    int64_t offset, commit_offset, suspend_ms;
    Span group, topic, version, subscription, expression_type;
} PullHeader;

/* The pulls of a queue by a group, in any form: one of their entries, and the numbers to count. It
   holds a reference to the entry: tests are Python code. */
typedef struct {
    PyObject *entry;
    int64_t pulls, messages, size, next_offset, furthest_offset, scanned;
} Counted;

typedef struct {
    Span pieces[ANSWER_PIECES];
    int64_t count_max, size_max, memory_size, scan_count, answers_size_max;
    /* The newest file of the log. */
    const unsigned char *log;
    int64_t base, end, unchecked_from;
    /* The output of all fronts: the size of the responses of those before, and what is to count. */
    int64_t size_before;
    Counted *counted;
    Py_ssize_t counted_count, counted_room;
    PyObject *commits;
    /* The front that is served, and its output; the bytes object has room for more than it holds. */
    PyObject *readable, *answers, *missing_key, *parked;
    Py_ssize_t size;
    /* The units that tests have selected, and how many messages they have read. */
    unsigned char *chosen;
    Py_ssize_t chosen_room;
    int64_t scanned;
    /* The frame that is being served. */
    Py_ssize_t at;
    int may_park;
    /* The entry whose files Python must find before a pull can be served, and the offset. */
    PyObject *misplaced;
    int64_t misplaced_offset;
} Pass;

/* A file of a queue's units, and the file of the log with their records. */
typedef struct {
    Py_buffer units, records;
    int64_t units_start, base, end;
} Place;

static int field_of(Span name)
{
    for (int i = 0; fields[i].name != NULL; i++)
        if (is_text(name, fields[i].name))
            return fields[i].field;
    return is_text(name, "rh") ? -1 : 0;
}

/* Reads one field; returns 0 if Python must serve the pull. */
static int take_field(int field, Span value, PullHeader *pull)
{
    int64_t ignored;
    if (field <= 0)
        return field == 0;
    if (pull->seen & (uint32_t)field)
        return 0;
    pull->seen |= (uint32_t)field;
    switch (field) {
    case GROUP:
        pull->group = value;
        return 1;
    case TOPIC:
        pull->topic = value;
        return 1;
    case QUEUE_ID:
        return read_int32(value, &pull->queue_id);
    case OFFSET:
        return read_number(value, &pull->offset);
    case COUNT_MAX:
        return read_int32(value, &pull->count_max);
    case SYS_FLAG:
        return read_int32(value, &pull->sys_flag);
    case COMMIT:
        return read_number(value, &pull->commit_offset);
    case VERSION:
        pull->version = value;
        return read_number(value, &ignored);
    case SUBSCRIPTION:
        pull->subscription = value;
        return 1;
    case EXPRESSION_TYPE:
        pull->expression_type = value;
        return 1;
    default:
        return read_number(value, &pull->suspend_ms);
    }
}

static int is_name(int field)
{
    return field <= 0 || (field & (GROUP | TOPIC | SUBSCRIPTION | EXPRESSION_TYPE)) != 0;
}

static int take_fields(Cursor *cursor, void *request)
{
    PullHeader *pull = request;
    if (!take_char(cursor, '{'))
        return 0;
    do {
        Span name, value;
        if (!take_plain_string(cursor, &name) || !take_separator(cursor, ':'))
            return 0;
        int field = field_of(name);
        int taken = is_bare(cursor) ? !is_name(field) && take_word(cursor, &value)
                                    : take_plain_string(cursor, &value);
        if (!taken || !take_field(field, value, pull))
            return 0;
    } while (take_separator(cursor, ','));
    return take_char(cursor, '}');
}

static int read_header(Span header, PullHeader *pull)
{
    Cursor cursor;
    int32_t code, flag;
    *pull = (PullHeader){.subscription = {"", -1}, .expression_type = {"", -1}};
    return begin_header(header, &cursor, &code) && code == CODE_PULL
           && take_parts(&cursor, take_fields, pull, &pull->opaque, &flag)
           && (pull->seen & NEEDED) == NEEDED && (flag & (FLAG_RESPONSE | FLAG_ONEWAY)) == 0;
}

static unsigned char *put_text(unsigned char *p, Span text)
{
    *p++ = text.size < 0 ? 0 : 1;
    if (text.size > 0)
        p = put_bytes(p, text.data, text.size);
    *p++ = '\n';
    return p;
}

/* The key that decides whether a pull is allowed, and what it reads; NULL with an exception, or
   without one if it is too long. */
static PyObject *key_of(const PullHeader *pull)
{
    unsigned char key[KEY_SIZE_MAX + 64], *p = key;
    if (pull->group.size + pull->topic.size + pull->version.size + pull->subscription.size
            + pull->expression_type.size
        > KEY_SIZE_MAX)
        return NULL;
    p = put_text(put_text(p, pull->group), pull->topic);
    p = put_text(put_text(p, pull->subscription), pull->expression_type);
    p = put_text(p, pull->version);
    p = put32(put32(p, (uint32_t)pull->queue_id), (uint32_t)(pull->sys_flag & ~PULL_FLAG_COMMIT));
    return PyBytes_FromStringAndSize((const char *)key, p - key);
}

/* The entry for a pull: (queue, traffic, reads, topic, group, place, test), as a new reference.
   Returns NULL if there is none, and then sets *missing_key*; or NULL with an exception. */
static PyObject *entry_of(Pass *pass, const PullHeader *pull)
{
    PyObject *key = key_of(pull);
    if (key == NULL)
        return NULL;
    PyObject *entry = PyDict_GetItemWithError(pass->readable, key);
    if (entry != NULL && (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 7)) {
        PyErr_SetString(PyExc_TypeError, "an entry is a tuple of seven");
        entry = NULL;
    }
    if (entry == NULL && !PyErr_Occurred())
        Py_XSETREF(pass->missing_key, Py_NewRef(key));
    Py_DECREF(key);
    return Py_XNewRef(entry);
}

static int number_of(PyObject *object, PyObject *name, int64_t *value)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL)
        return 0;
    int fits = fits_int64(number, value);
    Py_DECREF(number);
    return fits;
}

/* Makes room for *size* more bytes of responses; returns NULL without memory, with an exception. */
static unsigned char *room_for(Pass *pass, int64_t size)
{
    Py_ssize_t room = pass->answers == NULL ? 0 : PyBytes_GET_SIZE(pass->answers);
    Py_ssize_t needed = pass->size + (Py_ssize_t)size;
    if (needed > room) {
        Py_ssize_t wanted = room * 2 > needed ? room * 2 : needed;
        if (pass->answers == NULL)
            pass->answers = PyBytes_FromStringAndSize(NULL, wanted);
        else
            _PyBytes_Resize(&pass->answers, wanted);
        if (pass->answers == NULL)
            return NULL;
    }
    return (unsigned char *)PyBytes_AS_STRING(pass->answers) + pass->size;
}

static unsigned char *put_piece(unsigned char *p, Span piece, int64_t number)
{
    return put_number(put_bytes(p, piece.data, piece.size), number);
}

static int answer(Pass *pass, const PullHeader *pull, const Wanted *wanted, int64_t next_offset,
                  int64_t low, int64_t high)
{
    int64_t most = wanted->size + 8 + 4 * NUMBER_SIZE_MAX;
    for (int i = 0; i < ANSWER_PIECES; i++)
        most += pass->pieces[i].size;
    unsigned char *begin = room_for(pass, most);
    if (begin == NULL)
        return 0;
    unsigned char *p = put_piece(begin + 8, pass->pieces[0], next_offset);
    p = put_piece(put_piece(p, pass->pieces[1], low), pass->pieces[2], high);
    p = put_piece(p, pass->pieces[3], pull->opaque);
    p = put_bytes(p, pass->pieces[4].data, pass->pieces[4].size);
    uint32_t header_size = (uint32_t)(p - begin - 8);
    put32(put32(begin, header_size + 4 + (uint32_t)wanted->size), header_size);
    pass->size += copy_records(p, wanted) - begin;
    return 1;
}

static Counted *counted_of(Pass *pass, PyObject *entry)
{
    for (Py_ssize_t i = pass->counted_count; i-- > 0;)
        if (PyTuple_GET_ITEM(pass->counted[i].entry, 2) == PyTuple_GET_ITEM(entry, 2))
            return &pass->counted[i];
    if (!make_room((void **)&pass->counted, &pass->counted_room,
                   (pass->counted_count + 1) * (Py_ssize_t)sizeof(Counted)))
        return NULL;
    Counted *counted = &pass->counted[pass->counted_count++];
    *counted = (Counted){.entry = Py_NewRef(entry)};
    return counted;
}

static int note_commit(Pass *pass, const PullHeader *pull, PyObject *entry)
{
    if (!(pull->sys_flag & PULL_FLAG_COMMIT) || pull->commit_offset < 0)
        return 1;
    PyObject *commit = Py_BuildValue("OOiL", PyTuple_GET_ITEM(entry, 3), PyTuple_GET_ITEM(entry, 4),
                                     (int)pull->queue_id, (long long)pull->commit_offset);
    int is_noted = commit != NULL && PyList_Append(pass->commits, commit) == 0;
    Py_XDECREF(commit);
    return is_noted;
}

/* Finds the wanted units in a place; returns 0 if they are not there. With *is_tested*, more units
   are scanned than wanted. */
static int find_units(const Pass *pass, const PullHeader *pull, int64_t high, const Place *place,
                      int is_tested, Wanted *wanted)
{
    int64_t count_max = pull->count_max < 1 ? 1 : pull->count_max;
    if (count_max > pass->count_max)
        count_max = pass->count_max;
    int64_t count = is_tested && pass->scan_count > count_max ? pass->scan_count : count_max;
    if (count > high - pull->offset)
        count = high - pull->offset;
    if (pull->offset > INT64_MAX / UNIT_SIZE - count)
        return 0;
    int64_t at = pull->offset * UNIT_SIZE - place->units_start;
    if (at < 0 || at + count * UNIT_SIZE > place->units.len)
        return 0;
    *wanted = (Wanted){.units = (const unsigned char *)place->units.buf + at, .unit_count = count,
                       .count_max = count_max, .size_max = pass->size_max, .log = place->records.buf,
                       .base = place->base, .end = place->end,
                       .unchecked_from = pass->unchecked_from, .queue_offset = pull->offset};
    int64_t first = get64(wanted->units);
    return first >= place->base && first < place->end;
}

static int is_in_memory(const Pass *pass, const Wanted *wanted)
{
    return get64(wanted->units) >= pass->end - pass->memory_size;
}

/* Selects the units that match a test; returns whether any does. *scanned* is how many it read. */
static int select_wanted(Pass *pass, Wanted *wanted, const Owner *owner, PyObject *test_object,
                         int64_t *scanned)
{
    Test test;
    if (!make_room((void **)&pass->chosen, &pass->chosen_room,
                   (Py_ssize_t)wanted->unit_count * UNIT_SIZE)
        || !take_test(test_object, &test))
        return -1;
    Chosen chosen = {pass->chosen, 0};
    int is_sound = choose(wanted, owner, &test, &chosen);
    /* Python tests them again, and raises the error. */
    PyErr_Clear();
    pass->scanned += chosen.scanned;
    *scanned = chosen.scanned;
    wanted->units = chosen.units;
    return is_sound && wanted->count > 0;
}

/* Responds with the found units; returns 1 if done, 0 if Python must respond, -1 with an exception. */
static int answer_from(Pass *pass, const PullHeader *pull, PyObject *entry, int64_t low, int64_t high,
                       Wanted wanted)
{
    PyObject *queue = PyTuple_GET_ITEM(entry, 0);
    if (!is_in_memory(pass, &wanted))
        return 0;
    PyObject *field = PyObject_GetAttr(queue, topic_field);
    Owner owner = {.queue_id = pull->queue_id};
    if (field == NULL || !take_bytes(field, &owner.topic_field, &owner.topic_field_size)) {
        Py_XDECREF(field);
        return -1;
    }
    PyObject *test = PyTuple_GET_ITEM(entry, 6);
    int64_t scanned = 0;
    int done = test != Py_None ? select_wanted(pass, &wanted, &owner, test, &scanned)
                               : is_all_sound(&wanted, &owner);
    Py_DECREF(field);
    if (done <= 0)
        return done;
    int64_t next_offset = pull->offset + (test != Py_None ? scanned : wanted.count);
    Counted *counted = counted_of(pass, entry);
    Py_ssize_t size_before = pass->size;
    if (counted == NULL || !answer(pass, pull, &wanted, next_offset, low, high)
        || !note_commit(pass, pull, entry)) {
        pass->size = size_before;
        return -1;
    }
    counted->pulls++;
    counted->messages += wanted.count;
    counted->size += wanted.size;
    counted->next_offset = next_offset;
    if (next_offset > counted->furthest_offset)
        counted->furthest_offset = next_offset;
    counted->scanned += scanned;
    return 1;
}

/* Acquires a mapping: returns 1; 0 if it is closed; -1 with an exception. */
static int hold(PyObject *mapping, Py_buffer *buffer)
{
    if (PyObject_GetBuffer(mapping, buffer, PyBUF_SIMPLE) == 0)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_ValueError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Takes the newest files of queue and log; if it returns 1, *place* must be released. */
static int take_newest(const Pass *pass, PyObject *queue, Place *place)
{
    if (!number_of(queue, mapping_start_name, &place->units_start))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *mapping = PyObject_GetAttr(queue, mapping_name);
    int held = mapping == NULL ? -1 : hold(mapping, &place->units);
    Py_XDECREF(mapping);
    place->records = (Py_buffer){.buf = (void *)pass->log};
    place->base = pass->base;
    place->end = pass->end;
    return held;
}

/* Takes [units, their start, log, start, end], as Python has noted it; returns as take_newest. */
static int take_noted(PyObject *noted, Place *place)
{
    if (!PyList_Check(noted) || PyList_GET_SIZE(noted) != 5)
        return 0;
    if (!fits_int64(PyList_GET_ITEM(noted, 1), &place->units_start)
        || !fits_int64(PyList_GET_ITEM(noted, 3), &place->base)
        || !fits_int64(PyList_GET_ITEM(noted, 4), &place->end))
        return PyErr_Occurred() ? -1 : 0;
    int held = hold(PyList_GET_ITEM(noted, 0), &place->units);
    if (held <= 0)
        return held;
    held = hold(PyList_GET_ITEM(noted, 2), &place->records);
    if (held > 0 && place->end - place->base > place->records.len) {
        PyBuffer_Release(&place->records);
        held = 0;
    }
    if (held <= 0)
        PyBuffer_Release(&place->units);
    return held;
}

static int serve_at(Pass *pass, const PullHeader *pull, PyObject *entry, int64_t low, int64_t high)
{
    Place place;
    Wanted wanted;
    int is_tested = PyTuple_GET_ITEM(entry, 6) != Py_None;
    int done = take_newest(pass, PyTuple_GET_ITEM(entry, 0), &place);
    if (done < 0)
        return -1;
    if (done > 0) {
        int is_there = find_units(pass, pull, high, &place, is_tested, &wanted);
        if (is_there)
            done = answer_from(pass, pull, entry, low, high, wanted);
        PyBuffer_Release(&place.units);
        if (is_there)
            return done;
    }
    done = take_noted(PyTuple_GET_ITEM(entry, 5), &place);
    if (done < 0)
        return -1;
    if (done > 0) {
        int is_there = find_units(pass, pull, high, &place, is_tested, &wanted);
        if (is_there)
            done = answer_from(pass, pull, entry, low, high, wanted);
        PyBuffer_Release(&place.records);
        PyBuffer_Release(&place.units);
        if (is_there)
            return done;
    }
    Py_XSETREF(pass->misplaced, Py_NewRef(entry));
    pass->misplaced_offset = pull->offset;
    return 0;
}

/* Registers a pull that waits for the next message of its queue. */
static int park(Pass *pass, const PullHeader *pull, PyObject *entry)
{
    PyObject *parked = Py_BuildValue("nOLL", pass->at, entry, (long long)pull->offset,
                                     (long long)pull->suspend_ms);
    int is_noted = parked != NULL && PyList_Append(pass->parked, parked) == 0
                   && note_commit(pass, pull, entry);
    Py_XDECREF(parked);
    return is_noted ? 1 : -1;
}

static int serve_entry(Pass *pass, const PullHeader *pull, PyObject *entry)
{
    PyObject *queue = PyTuple_GET_ITEM(entry, 0);
    int64_t low, high;
    if (!number_of(queue, min_offset, &low) || !number_of(queue, max_offset, &high))
        return PyErr_Occurred() ? -1 : 0;
    if (pass->may_park && pull->offset == high && low < high && (pull->sys_flag & PULL_FLAG_SUSPEND))
        return park(pass, pull, entry);
    if (pull->offset < low || pull->offset >= high)
        return 0;
    return serve_at(pass, pull, entry, low, high);
}

static int serve(Pass *pass, Span header)
{
    PullHeader pull;
    if (!read_header(header, &pull))
        return 0;
    PyObject *entry = entry_of(pass, &pull);
    if (entry == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int done = serve_entry(pass, &pull, entry);
    Py_DECREF(entry);
    return done;
}

static int serve_frame(Pass *pass, PyObject *frame)
{
    int64_t serialize_type;
    Span header;
    if (!PyTuple_Check(frame) || PyTuple_GET_SIZE(frame) != 3) {
        PyErr_SetString(PyExc_TypeError, "a frame is a tuple of three");
        return -1;
    }
    if (!fits_int64(PyTuple_GET_ITEM(frame, 0), &serialize_type)
        || !take_bytes(PyTuple_GET_ITEM(frame, 1), &header.data, &header.size))
        return PyErr_Occurred() ? -1 : 0;
    return serialize_type == 0 ? serve(pass, header) : 0;
}

/* Whether one more pull may be served. */
static int has_room(const Pass *pass)
{
    return pass->size_before + pass->size <= pass->answers_size_max && pass->scanned <= SCANNED_MAX;
}

/* Serves the pulls at the front; returns how many, -1 with an exception. Tests are Python code, so
   each frame is held meanwhile. */
static Py_ssize_t serve_all(Pass *pass, PyObject *frames, Py_ssize_t first)
{
    Py_ssize_t at = first;
    for (; at < PyList_GET_SIZE(frames) && has_room(pass); at++) {
        PyObject *frame = Py_NewRef(PyList_GET_ITEM(frames, at));
        pass->at = at;
        int done = serve_frame(pass, frame);
        Py_DECREF(frame);
        if (done < 0)
            return -1;
        if (done == 0)
            break;
    }
    return at - first;
}

static void free_front(Pass *pass)
{
    Py_CLEAR(pass->answers);
    Py_CLEAR(pass->parked);
    Py_CLEAR(pass->missing_key);
    Py_CLEAR(pass->misplaced);
}

/* Serves (frames, first, readable, may_park); returns (count, answers, key, misplaced, offset,
   parked), or NULL with an exception. */
static PyObject *serve_front(Pass *pass, PyObject *front)
{
    int64_t first;
    PyObject *result = NULL;
    if (!PyTuple_Check(front) || PyTuple_GET_SIZE(front) != 4
        || !PyList_Check(PyTuple_GET_ITEM(front, 0)) || !PyDict_Check(PyTuple_GET_ITEM(front, 2)))
        return PyErr_Format(PyExc_TypeError, "a front is a list, a number, a dict and a bool");
    if (!fits_int64(PyTuple_GET_ITEM(front, 1), &first) || first < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "the number of a frame is too large, or negative");
        return NULL;
    }
    pass->readable = PyTuple_GET_ITEM(front, 2);
    pass->may_park = PyTuple_GET_ITEM(front, 3) == Py_True;
    pass->size = 0;
    pass->misplaced_offset = 0;
    pass->parked = PyList_New(0);
    Py_ssize_t taken =
        pass->parked == NULL ? -1 : serve_all(pass, PyTuple_GET_ITEM(front, 0), (Py_ssize_t)first);
    if (taken >= 0 && (pass->answers == NULL || _PyBytes_Resize(&pass->answers, pass->size) == 0)) {
        PyObject *answers = pass->answers != NULL ? pass->answers : Py_None;
        PyObject *key = pass->missing_key != NULL ? pass->missing_key : Py_None;
        PyObject *misplaced = pass->misplaced != NULL ? pass->misplaced : Py_None;
        result = Py_BuildValue("nOOOLO", taken, answers, key, misplaced,
                               (long long)pass->misplaced_offset, pass->parked);
    }
    pass->size_before += pass->size;
    pass->size = 0;
    free_front(pass);
    return result;
}

/* Serves the fronts while there is room; returns the list of their results, at least that of the
   first one, or NULL with an exception. */
static PyObject *serve_fronts(Pass *pass, PyObject *fronts)
{
    PyObject *served = PyList_New(0);
    for (Py_ssize_t i = 0;
         served != NULL && i < PyList_GET_SIZE(fronts) && (i == 0 || has_room(pass)); i++) {
        PyObject *front = Py_NewRef(PyList_GET_ITEM(fronts, i));
        PyObject *one = serve_front(pass, front);
        Py_DECREF(front);
        if (one == NULL || PyList_Append(served, one) < 0)
            Py_CLEAR(served);
        Py_XDECREF(one);
    }
    return served;
}

static PyObject *counted_list_of(const Pass *pass)
{
    PyObject *counted = PyList_New(pass->counted_count);
    for (Py_ssize_t i = 0; counted != NULL && i < pass->counted_count; i++) {
        const Counted *one = &pass->counted[i];
        PyObject *tuple = Py_BuildValue("OLLLLLL", one->entry, (long long)one->pulls,
                                        (long long)one->messages, (long long)one->size,
                                        (long long)one->next_offset,
                                        (long long)one->furthest_offset, (long long)one->scanned);
        if (tuple == NULL)
            Py_CLEAR(counted);
        else
            PyList_SET_ITEM(counted, i, tuple);
    }
    return counted;
}

/* (results of the fronts, counted, commits); takes over *served*. */
static PyObject *result_of(const Pass *pass, PyObject *served)
{
    PyObject *counted = counted_list_of(pass);
    if (counted != NULL)
        return Py_BuildValue("NNO", served, counted, pass->commits);
    Py_DECREF(served);
    return NULL;
}

static int take_common(PyObject *common, Pass *pass)
{
    if (!PyTuple_Check(common) || PyTuple_GET_SIZE(common) != ANSWER_PIECES) {
        PyErr_SetString(PyExc_TypeError, "the pieces of an answer are needed");
        return 0;
    }
    for (int i = 0; i < ANSWER_PIECES; i++)
        if (!take_bytes(PyTuple_GET_ITEM(common, i), &pass->pieces[i].data, &pass->pieces[i].size))
            return 0;
    return 1;
}

/* take_pulls(fronts, pieces, (count_max, size_max, memory_size, scan_count), answers_size_max, log,
   base_offset, end_offset, unchecked_from) */
static PyObject *take_pulls(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Pass pass = {0};
    if (nargs != 8 || !PyList_Check(args[0]) || !PyTuple_Check(args[2])
        || PyTuple_GET_SIZE(args[2]) != 4) {
        PyErr_SetString(PyExc_TypeError, "a list of fronts and seven more are needed");
        return NULL;
    }
    PyObject *const *limits = &PyTuple_GET_ITEM(args[2], 0);
    if (!take_common(args[1], &pass)
        || !fits_int64(limits[0], &pass.count_max) || !fits_int64(limits[1], &pass.size_max)
        || !fits_int64(limits[2], &pass.memory_size) || !fits_int64(limits[3], &pass.scan_count)
        || !fits_int64(args[3], &pass.answers_size_max) || !fits_int64(args[5], &pass.base)
        || !fits_int64(args[6], &pass.end) || !fits_int64(args[7], &pass.unchecked_from)
        || pass.base < 0 || pass.end < pass.base || pass.memory_size < 0 || pass.count_max < 1) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large, or negative");
        return NULL;
    }
    Py_buffer log;
    if (PyObject_GetBuffer(args[4], &log, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    int collects = PyGC_Disable(); /* Up to Python 3.11, an allocation may run finalizers. */
    pass.log = log.buf;
    pass.commits = PyList_New(0);
    if (pass.end - pass.base > log.len) {
        PyErr_SetString(PyExc_ValueError, "the log does not reach so far");
    } else if (pass.commits != NULL) {
        PyObject *served = serve_fronts(&pass, args[0]);
        result = served == NULL ? NULL : result_of(&pass, served);
    }
    PyBuffer_Release(&log);
    for (Py_ssize_t i = 0; i < pass.counted_count; i++)
        Py_DECREF(pass.counted[i].entry);
    PyMem_Free(pass.counted);
    PyMem_Free(pass.chosen);
    Py_XDECREF(pass.commits);
    if (collects)
        PyGC_Enable();
    return result;
}

static PyMethodDef methods[] = {
    {"take_pulls", (PyCFunction)(void (*)(void))take_pulls, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.hot._pulls", "The compiled part of the hot pass.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__pulls(void)
{
    prepare_crc();
    min_offset = PyUnicode_InternFromString("min_offset");
    max_offset = PyUnicode_InternFromString("max_offset");
    mapping_start_name = PyUnicode_InternFromString("mapping_start");
    mapping_name = PyUnicode_InternFromString("mapping");
    topic_field = PyUnicode_InternFromString("topic_field");
    if (min_offset == NULL || max_offset == NULL || mapping_start_name == NULL
        || mapping_name == NULL || topic_field == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
