/* Compiled twins of receive_in_python (received.py), encode_in_python (sending/plain_batches.py) and
   read_answer_in_python (network/plain_answers.py). The Python functions define the behaviour, and
   the tests compare them. The functions here take only what is plain: the first other record ends an
   answer, the first other message refuses a batch, and another header is not read; Python continues
   there.

   The bytes of an answer come from the network: each size is checked before it is used. Objects of
   our own slotted classes are read and filled in place, at the offsets of their descriptors. Exact
   type only: a subclass may have a different layout. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../protocol/_slots.h"

#define HEAD_SIZE 88
#define QUEUE_OFFSET_AT 20
#define SYS_FLAG_AT 36
#define BODY_SIZE_AT 84
#define MAGIC_V1 0xDAA320A7u
/* IPv6 hosts, and bodies that are compressed or a batch. */
#define UNUSUAL_FLAGS (0x30u | 0x1u | 0x40u | 0x80u)
#define TOPIC_SIZE_MAX 127
#define PROPERTIES_SIZE_MAX 0x7FFF

#define BATCHED_SIZE 22
#define ID_NUMBER_SIZE 4
#define ID_SIZE_MAX 256

static uint32_t get16(const unsigned char *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const unsigned char *p)
{
    return get16(p) << 16 | get16(p + 2);
}

static unsigned char *put16(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
    return p + 2;
}

static unsigned char *put32(unsigned char *p, uint32_t v)
{
    return put16(put16(p, v >> 16), v & 0xFFFF);
}

static unsigned char *put_bytes(unsigned char *p, const void *data, Py_ssize_t size)
{
    memcpy(p, data, (size_t)size);
    return p + size;
}

enum { QUEUE, QUEUE_OFFSET, SIZE, DESERIALIZER, BODY, REST };
static const char *const received_names[SLOTS_MAX] = {"queue",        "queue_offset", "size_bytes",
                                                      "deserializer", "_body",        "_rest"};
/* From FIRST_NONE on, those of a plain message are None. */
enum { TOPIC, OUTGOING_BODY, FLAG, WAITS, PROPERTIES, KEYS, FIRST_NONE };
static const char *const message_names[SLOTS_MAX] = {
    "topic", "body",         "flag",     "wait_stored", "properties", "_keys",
    "tags",  "sharding_key", "priority", "delay_level", "delay_s",    "deliver_at_ms"};
static Slots received, message;

/* set_received(ReceivedMessage), before `receive` is used */
static PyObject *set_received(PyObject *module, PyObject *type)
{
    (void)module;
    if (!find_slots(type, received_names, &received))
        return NULL;
    Py_RETURN_NONE;
}

/* set_message(Message), before `encode_plain` is used */
static PyObject *set_message(PyObject *module, PyObject *type)
{
    (void)module;
    if (!find_slots(type, message_names, &message))
        return NULL;
    Py_RETURN_NONE;
}

/* The object of a plain record of *size* bytes, whose head and body are in it. */
static PyObject *new_received(PyObject *queue, const unsigned char *record, Py_ssize_t size,
                              Py_ssize_t body_size)
{
    PyObject *object = received.type->tp_alloc(received.type, 0);
    if (object == NULL)
        return NULL;
    int64_t queue_offset = (int64_t)((uint64_t)get32(record + QUEUE_OFFSET_AT) << 32
                                     | get32(record + QUEUE_OFFSET_AT + 4));
    PyObject *number = PyLong_FromLongLong(queue_offset), *all = PyLong_FromSsize_t(size);
    PyObject *body = PyBytes_FromStringAndSize((const char *)record + HEAD_SIZE, body_size);
    PyObject *rest = PyBytes_FromStringAndSize(NULL, size - body_size);
    *slot(object, &received, QUEUE) = Py_NewRef(queue);
    *slot(object, &received, DESERIALIZER) = Py_NewRef(Py_None);
    *slot(object, &received, QUEUE_OFFSET) = number;
    *slot(object, &received, SIZE) = all;
    *slot(object, &received, BODY) = body;
    *slot(object, &received, REST) = rest;
    if (number == NULL || all == NULL || body == NULL || rest == NULL) {
        Py_DECREF(object);
        return NULL;
    }
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(rest);
    p = put_bytes(p, record, HEAD_SIZE);
    put_bytes(p, record + HEAD_SIZE + body_size, size - HEAD_SIZE - body_size);
    return object;
}

/* The size of the body of the plain record at *record*, of which *available* bytes are there, or
   -1: *topic* starts with its size, as in a record. */
static int64_t plain_body_size(const unsigned char *record, int64_t available,
                               const unsigned char *topic, int64_t topic_size, int64_t *size)
{
    int64_t overhead = HEAD_SIZE + topic_size + 2;
    if (available < overhead)
        return -1;
    int64_t body_size = (int32_t)get32(record + BODY_SIZE_AT);
    *size = get32(record);
    if (get32(record + 4) != MAGIC_V1 || get32(record + SYS_FLAG_AT) & UNUSUAL_FLAGS
        || body_size < 0 || *size < overhead + body_size || *size > available)
        return -1;
    const unsigned char *named = record + HEAD_SIZE + body_size;
    int64_t properties_size = *size - overhead - body_size;
    if (memcmp(named, topic, (size_t)topic_size) != 0 || properties_size > PROPERTIES_SIZE_MAX
        || get16(named + topic_size) != properties_size)
        return -1;
    return body_size;
}

/* receive(queue, buffer, start, topic) */
static PyObject *receive(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyBytes_Check(args[1]) || !PyBytes_Check(args[3]) || received.type == NULL) {
        PyErr_SetString(PyExc_TypeError, "receive takes a queue, bytes, a number and bytes");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[2]);
    if (start == -1 && PyErr_Occurred())
        return NULL;
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(args[1]);
    Py_ssize_t end = PyBytes_GET_SIZE(args[1]), topic_size = PyBytes_GET_SIZE(args[3]);
    if (start < 0 || start > end) {
        PyErr_SetString(PyExc_ValueError, "the start is not in the bytes");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    unsigned char topic[1 + TOPIC_SIZE_MAX];
    if (topic_size <= TOPIC_SIZE_MAX) {
        topic[0] = (unsigned char)topic_size;
        memcpy(topic + 1, PyBytes_AS_STRING(args[3]), (size_t)topic_size);
        int64_t size = 0, body_size;
        while ((body_size = plain_body_size(bytes + start, end - start, topic, 1 + topic_size,
                                            &size)) >= 0) {
            PyObject *one = new_received(args[0], bytes + start, (Py_ssize_t)size,
                                         (Py_ssize_t)body_size);
            if (one == NULL || PyList_Append(found, one) < 0) {
                Py_XDECREF(one);
                Py_DECREF(found);
                return NULL;
            }
            Py_DECREF(one);
            start += (Py_ssize_t)size;
        }
    }
    return Py_BuildValue("(Nn)", found, start);
}

/* Whether a message is plain and of *topic*; *size* grows by the bytes of its body. */
static int is_plain(PyObject *object, PyObject *topic, int64_t *size)
{
    if (!Py_IS_TYPE(object, message.type))
        return 0;
    PyObject *own = *slot(object, &message, TOPIC), *body = *slot(object, &message, OUTGOING_BODY);
    PyObject *flag = *slot(object, &message, FLAG);
    PyObject *properties = *slot(object, &message, PROPERTIES);
    PyObject *keys = *slot(object, &message, KEYS);
    if (own == NULL || body == NULL || flag == NULL || properties == NULL || keys == NULL
        || !PyBytes_CheckExact(body) || !PyDict_CheckExact(properties)
        || PyDict_GET_SIZE(properties) != 0 || !PyTuple_CheckExact(keys)
        || PyTuple_GET_SIZE(keys) != 0 || *slot(object, &message, WAITS) != Py_True)
        return 0;
    if (own != topic && (!PyUnicode_CheckExact(own) || PyUnicode_Compare(own, topic) != 0))
        return 0;
    for (int name = FIRST_NONE; name < SLOTS_MAX; name++)
        if (*slot(object, &message, name) != Py_None)
            return 0;
    if (!PyLong_CheckExact(flag))
        return 0;
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(flag, &overflow);
    *size += PyBytes_GET_SIZE(body);
    return !overflow && number >= INT32_MIN && number <= INT32_MAX;
}

/* The room for the texts around an id, and the id itself, without its number. */
typedef struct {
    const char *before, *start, *after;
    Py_ssize_t before_size, start_size, after_size;
} Id;

/* Takes the arguments of an id; returns 0, perhaps with an exception, if one is not plain. */
static int take_id(PyObject *const *args, Id *id)
{
    if (!PyBytes_Check(args[0]) || !PyUnicode_Check(args[1]) || !PyBytes_Check(args[2])
        || !PyUnicode_IS_COMPACT_ASCII(args[1])) {
        PyErr_SetString(PyExc_TypeError, "bytes, ASCII text and bytes are needed");
        return 0;
    }
    id->before = PyBytes_AS_STRING(args[0]);
    id->before_size = PyBytes_GET_SIZE(args[0]);
    id->start = (const char *)PyUnicode_DATA(args[1]);
    id->start_size = PyUnicode_GET_LENGTH(args[1]);
    id->after = PyBytes_AS_STRING(args[2]);
    id->after_size = PyBytes_GET_SIZE(args[2]);
    if (id->before_size > ID_SIZE_MAX || id->start_size > ID_SIZE_MAX
        || id->after_size > ID_SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "an id is too long");
        return 0;
    }
    return 1;
}

/* Writes a message of a batch; returns its id, or NULL without memory. */
static PyObject *write_batched(unsigned char **place, PyObject *object, const Id *id,
                               unsigned number)
{
    static const char digits[] = "0123456789ABCDEF";
    PyObject *body = *slot(object, &message, OUTGOING_BODY);
    Py_ssize_t body_size = PyBytes_GET_SIZE(body);
    Py_ssize_t id_size = id->start_size + ID_NUMBER_SIZE;
    Py_ssize_t properties_size = id->before_size + id_size + id->after_size;
    PyObject *text = PyUnicode_New(id_size, 127);
    if (text == NULL)
        return NULL;
    unsigned char *written = (unsigned char *)PyUnicode_DATA(text);
    written = put_bytes(written, id->start, id->start_size);
    for (int shift = 12; shift >= 0; shift -= 4)
        *written++ = (unsigned char)digits[number >> shift & 0xF];
    unsigned char *p = *place;
    p = put32(p, (uint32_t)(BATCHED_SIZE + body_size + properties_size));
    p = put32(put32(p, 0), 0);
    p = put32(p, (uint32_t)PyLong_AsLong(*slot(object, &message, FLAG)));
    p = put32(p, (uint32_t)body_size);
    p = put_bytes(p, PyBytes_AS_STRING(body), body_size);
    p = put16(p, (uint32_t)properties_size);
    p = put_bytes(p, id->before, id->before_size);
    p = put_bytes(p, PyUnicode_DATA(text), id_size);
    *place = put_bytes(p, id->after, id->after_size);
    return text;
}

/* encode_plain(messages, topic, size_max, before, id_start, after, number) */
static PyObject *encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Id id;
    if (count != 7 || !PyList_CheckExact(args[0]) || !PyUnicode_CheckExact(args[1])
        || message.type == NULL) {
        PyErr_SetString(PyExc_TypeError, "encode_plain takes a list, a topic and five more");
        return NULL;
    }
    Py_ssize_t size_max = PyLong_AsSsize_t(args[2]);
    long number = PyLong_AsLong(args[6]);
    if (PyErr_Occurred() || !take_id(args + 3, &id))
        return NULL;
    /* Allocated first: a collection of garbage may run code of the application. Nothing below does,
       so messages stay as they were checked. */
    Py_ssize_t length = PyList_GET_SIZE(args[0]);
    PyObject *ids = PyList_New(length), *body = NULL;
    if (ids == NULL)
        return NULL;
    if (length != PyList_GET_SIZE(args[0]) || size_max < 0 || size_max > INT32_MAX)
        goto refused;
    Py_ssize_t own_size = BATCHED_SIZE + id.before_size + id.start_size + ID_NUMBER_SIZE
                          + id.after_size;
    int64_t size = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        size += own_size;
        if (!is_plain(PyList_GET_ITEM(args[0], i), args[1], &size) || size > size_max)
            goto refused;
    }
    body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (body == NULL)
        goto failed;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(body);
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *text = write_batched(&p, PyList_GET_ITEM(args[0], i), &id,
                                       (unsigned)((uint64_t)number + (uint64_t)i) & 0xFFFF);
        if (text == NULL)
            goto failed;
        PyList_SET_ITEM(ids, i, text);
    }
    return Py_BuildValue("(NN)", body, ids);
refused:
    Py_DECREF(ids);
    Py_RETURN_NONE;
failed:
    Py_XDECREF(body);
    Py_DECREF(ids);
    return NULL;
}

enum { CODE, OPAQUE, HEADER_FLAG, REMARK, EXT, ANSWER_BODY, LANGUAGE, VERSION, SERIALIZE_TYPE };
static const char *const command_names[SLOTS_MAX] = {
    "code", "opaque", "flag", "remark", "ext", "body", "language", "version", "serialize_type"};
static Slots command;
/* Name of a language -> its number. */
static PyObject *languages;

/* set_command(Command, languages), before `read_answer` is used */
static PyObject *set_command(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "set_command takes a class and a dict");
        return NULL;
    }
    if (!find_slots(args[0], command_names, &command))
        return NULL;
    Py_XSETREF(languages, Py_NewRef(args[1]));
    Py_RETURN_NONE;
}

/* The rest of a JSON header. */
typedef struct {
    const char *p, *end;
} Rest;

static int take_char(Rest *rest, char expected)
{
    if (rest->p == rest->end || *rest->p != expected)
        return 0;
    rest->p++;
    return 1;
}

/* Takes a string of printable ASCII without escapes. */
static int take_text(Rest *rest, const char **text, Py_ssize_t *size)
{
    if (!take_char(rest, '"'))
        return 0;
    *text = rest->p;
    while (rest->p < rest->end && *rest->p >= ' ' && *rest->p < 0x7F && *rest->p != '\\') {
        if (*rest->p == '"') {
            *size = rest->p++ - *text;
            return 1;
        }
        rest->p++;
    }
    return 0;
}

/* Takes a number from 0 to the maximum of 32 bits. */
static int take_number(Rest *rest, long long *number)
{
    const char *start = rest->p;
    *number = 0;
    while (rest->p < rest->end && *rest->p >= '0' && *rest->p <= '9' && rest->p - start < 10)
        *number = *number * 10 + (*rest->p++ - '0');
    return rest->p > start && (*start != '0' || rest->p == start + 1) && *number <= INT32_MAX;
}

static PyObject *ascii_text(const char *text, Py_ssize_t size)
{
    PyObject *object = PyUnicode_New(size, 127);
    if (object != NULL)
        memcpy(PyUnicode_DATA(object), text, (size_t)size);
    return object;
}

#define NAMES_MAX 64
#define NAME_SIZE_MAX 32
/* The names of fields that were read before: most answers have the same few. Each has one place, where
   the next name replaces it, so no peer can fill more. */
static PyObject *names[NAMES_MAX];

static PyObject *field_name(const char *text, Py_ssize_t size)
{
    if (size == 0 || size > NAME_SIZE_MAX)
        return ascii_text(text, size);
    size_t place = ((size_t)size * 31 + (size_t)text[0] * 7 + (size_t)text[size - 1]) % NAMES_MAX;
    PyObject *name = names[place];
    if (name != NULL && PyUnicode_GET_LENGTH(name) == size
        && memcmp(PyUnicode_DATA(name), text, (size_t)size) == 0)
        return Py_NewRef(name);
    name = ascii_text(text, size);
    if (name != NULL)
        Py_XSETREF(names[place], Py_NewRef(name));
    return name;
}

#define EXT_FIELDS_MAX 256

/* Takes an object of strings into *ext*; returns 0, with an exception only without memory. */
static int take_ext(Rest *rest, PyObject *ext)
{
    if (!take_char(rest, '{'))
        return 0;
    if (take_char(rest, '}'))
        return 1;
    do {
        const char *name, *value;
        Py_ssize_t name_size, value_size;
        if (!take_text(rest, &name, &name_size) || !take_char(rest, ':')
            || !take_text(rest, &value, &value_size) || PyDict_GET_SIZE(ext) >= EXT_FIELDS_MAX)
            return 0;
        PyObject *key = field_name(name, name_size), *text = ascii_text(value, value_size);
        int is_set = key != NULL && text != NULL && PyDict_SetItem(ext, key, text) == 0;
        Py_XDECREF(key);
        Py_XDECREF(text);
        if (!is_set)
            return 0;
    } while (take_char(rest, ','));
    return take_char(rest, '}');
}

/* Which slot the header's field *name* fills; -1 for one that a plain header does not have. */
static int header_slot(const char *name, Py_ssize_t size)
{
    static const struct {
        const char *name;
        int slot;
    } fields[] = {{"code", CODE},         {"extFields", EXT}, {"flag", HEADER_FLAG},
                  {"language", LANGUAGE}, {"opaque", OPAQUE}, {"remark", REMARK},
                  {"version", VERSION},   {"serializeTypeCurrentRPC", SERIALIZE_TYPE}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strlen(fields[i].name) == (size_t)size && memcmp(fields[i].name, name, (size_t)size) == 0)
            return fields[i].slot;
    return -1;
}

/* Takes the value of a field; NULL, with an exception only without memory, if it is not plain. */
static PyObject *take_value(Rest *rest, int name)
{
    const char *text;
    Py_ssize_t size;
    long long number;
    if (name == EXT) {
        PyObject *ext = PyDict_New();
        if (ext != NULL && !take_ext(rest, ext))
            Py_CLEAR(ext);
        return ext;
    }
    if (name != LANGUAGE && name != REMARK && name != SERIALIZE_TYPE)
        return take_number(rest, &number) ? PyLong_FromLongLong(number) : NULL;
    if (!take_text(rest, &text, &size))
        return NULL;
    if (name == SERIALIZE_TYPE)
        return PyLong_FromLong(0);
    PyObject *value = ascii_text(text, size);
    if (name == REMARK || value == NULL)
        return value;
    PyObject *language = PyDict_GetItemWithError(languages, value);
    Py_DECREF(value);
    return Py_XNewRef(language);
}

/* Takes a header into the slots of *object*; returns 0 if it is not plain, or without memory. */
static int take_header(Rest *rest, PyObject *object)
{
    if (!take_char(rest, '{'))
        return 0;
    do {
        const char *field;
        Py_ssize_t size;
        if (!take_text(rest, &field, &size) || !take_char(rest, ':'))
            return 0;
        int name = header_slot(field, size);
        if (name < 0 || *slot(object, &command, name) != NULL)
            return 0;
        PyObject *value = take_value(rest, name);
        if (value == NULL)
            return 0;
        *slot(object, &command, name) = value;
    } while (take_char(rest, ','));
    return take_char(rest, '}') && rest->p == rest->end
           && *slot(object, &command, LANGUAGE) != NULL;
}

/* read_answer(header, body) */
static PyObject *read_answer(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]) || command.type == NULL) {
        PyErr_SetString(PyExc_TypeError, "read_answer takes two times bytes");
        return NULL;
    }
    PyObject *object = command.type->tp_alloc(command.type, 0);
    if (object == NULL)
        return NULL;
    Rest rest = {PyBytes_AS_STRING(args[0]), NULL};
    rest.end = rest.p + PyBytes_GET_SIZE(args[0]);
    if (!take_header(&rest, object)) {
        Py_DECREF(object);
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    *slot(object, &command, ANSWER_BODY) = Py_NewRef(args[1]);
    for (int name = 0; command_names[name] != NULL; name++) {
        PyObject **place = slot(object, &command, name);
        if (*place == NULL)
            *place = name == REMARK || name == EXT ? Py_NewRef(Py_None) : PyLong_FromLong(0);
        if (*place == NULL) {
            Py_DECREF(object);
            return NULL;
        }
    }
    return object;
}

static PyMethodDef methods[] = {
    {"set_received", set_received, METH_O, NULL},
    {"set_message", set_message, METH_O, NULL},
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, NULL},
    {"set_command", (PyCFunction)(void (*)(void))set_command, METH_FASTCALL, NULL},
    {"read_answer", (PyCFunction)(void (*)(void))read_answer, METH_FASTCALL, NULL},
    {"encode_plain", (PyCFunction)(void (*)(void))encode_plain, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.client._messages",
    "The compiled parts of received.py, plain_batches.py and plain_answers.py.", 0, methods, NULL, NULL, NULL,
    NULL};

PyMODINIT_FUNC PyInit__messages(void)
{
    return PyModule_Create(&definition);
}
