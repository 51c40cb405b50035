/* Compiled: reads SendMessage requests with one plain message, encodes their replies, and encodes
   plain messages for consumers. activities/producing.py and converting.py define what must be done
   with each, and call this code. Python reads every other request, valid or not: this code refuses nothing, and returns None for what it does not
   know.

   A protobuf message is a sequence of fields, each a key, which is number << 3 | type, and

       type 0   a varint: seven bits an octet, lowest first, the highest bit set but in the last
       type 2   a varint with the size, and as many octets

   Fields with numbers under 16 have keys of one octet. Those above are read by Python. */

#include "../../store/log/_bytes.h"

#define KEY_OF_VARINT(number) ((number) << 3)
#define KEY_OF_BYTES(number) ((number) << 3 | 2)
#define PAIRS_MAX 16
#define KEYS_MAX 16
/* The limit of RocketMQ for user properties, tag and keys together. */
#define PROPERTIES_SIZE_MAX (16 << 10)
#define ENUM_SIMPLE_MAX 0x7F
#define ENCODING_IDENTITY 1
#define ENCODING_GZIP 2
#define TYPE_NORMAL 1
#define TYPE_TRANSACTION 4
#define DIGEST_MD5 2
/* The digits of an MD5. */
#define DIGEST_SIZE_MAX 32
#define SECONDS_MAX 253402300799
#define NANOS_MAX 999999999
#define FRAME_HEAD_SIZE 5

/* The rest of a protobuf message. */
typedef struct {
    const unsigned char *p, *end;
} Reader;

typedef struct {
    Span name, value;
} Pair;

typedef struct {
    Span space, topic, body, tag, message_id, born_host;
    Pair pairs[PAIRS_MAX];
    Span keys[KEYS_MAX];
    int pair_count, key_count;
    int64_t born_time_ms;
} Message;

static const Span missing = {NULL, -1};

static int read_varint(Reader *reader, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 63 && reader->p < reader->end; shift += 7) {
        unsigned char octet = *reader->p++;
        *value |= (uint64_t)(octet & 0x7F) << shift;
        if (octet < 0x80)
            return 1;
    }
    return 0;
}

static int read_bytes(Reader *reader, Span *span)
{
    uint64_t size;
    if (!read_varint(reader, &size) || size > (uint64_t)(reader->end - reader->p))
        return 0;
    *span = (Span){(const char *)reader->p, (Py_ssize_t)size};
    reader->p += size;
    return 1;
}

/* Reads a field that must occur once. */
static int read_once(Reader *reader, Span *span)
{
    return span->size < 0 && read_bytes(reader, span);
}

static Reader reader_of(Span span)
{
    const unsigned char *p = (const unsigned char *)span.data;
    return (Reader){p, p + span.size};
}

/* Whether a text has only printable characters of ASCII. */
static int is_printable(Span text)
{
    for (Py_ssize_t i = 0; i < text.size; i++)
        if (text.data[i] < 0x20 || text.data[i] > 0x7E)
            return 0;
    return 1;
}

static int is_blank(Span text)
{
    for (Py_ssize_t i = 0; i < text.size; i++)
        if (text.data[i] != ' ')
            return 0;
    return 1;
}

static int read_text(Reader *reader, Span *text)
{
    return read_once(reader, text) && is_printable(*text);
}

/* Resource: resource_namespace = 1, name = 2. */
static int read_topic(Span span, Message *message)
{
    Reader reader = reader_of(span);
    while (reader.p < reader.end) {
        unsigned char key = *reader.p++;
        Span *text = key == KEY_OF_BYTES(1) ? &message->space
                     : key == KEY_OF_BYTES(2) ? &message->topic : NULL;
        if (text == NULL || !read_text(&reader, text))
            return 0;
    }
    return message->topic.size > 0;
}

/* An entry of a map: key = 1, value = 2. */
static int read_pair(Span span, Message *message)
{
    Reader reader = reader_of(span);
    if (message->pair_count == PAIRS_MAX)
        return 0;
    Pair *pair = &message->pairs[message->pair_count];
    *pair = (Pair){missing, missing};
    while (reader.p < reader.end) {
        unsigned char key = *reader.p++;
        Span *text = key == KEY_OF_BYTES(1) ? &pair->name
                     : key == KEY_OF_BYTES(2) ? &pair->value : NULL;
        if (text == NULL || !read_text(&reader, text))
            return 0;
    }
    if (pair->name.size <= 0 || pair->value.size < 0)
        return 0;
    for (int i = 0; i < message->pair_count; i++)
        if (message->pairs[i].name.size == pair->name.size
            && memcmp(message->pairs[i].name.data, pair->name.data, (size_t)pair->name.size) == 0)
            return 0;
    message->pair_count++;
    return 1;
}

/* Timestamp: seconds = 1, nanos = 2. */
static int read_born_time(Span span, Message *message)
{
    Reader reader = reader_of(span);
    uint64_t seconds = 0, nanos = 0;
    while (reader.p < reader.end) {
        unsigned char key = *reader.p++;
        uint64_t *value = key == KEY_OF_VARINT(1) ? &seconds
                          : key == KEY_OF_VARINT(2) ? &nanos : NULL;
        if (value == NULL || !read_varint(&reader, value))
            return 0;
    }
    if (seconds > SECONDS_MAX || nanos > NANOS_MAX)
        return 0;
    message->born_time_ms = (int64_t)(seconds * 1000 + nanos / 1000000);
    return 1;
}

/* Digest: type = 1, checksum = 2. It is not checked, as by RocketMQ. */
static int skip_digest(Span span)
{
    Reader reader = reader_of(span);
    uint64_t type;
    Span checksum = missing;
    while (reader.p < reader.end) {
        unsigned char key = *reader.p++;
        if (key == KEY_OF_VARINT(1) ? !read_varint(&reader, &type)
                                    : key != KEY_OF_BYTES(2) || !read_text(&reader, &checksum))
            return 0;
    }
    return 1;
}

/* The next field of SystemProperties. Those of other numbers make a message special. */
static int read_system_field(Reader *reader, Message *message, Span *digest, Span *born_time)
{
    uint64_t number;
    Span key;
    switch (*reader->p++) {
    case KEY_OF_BYTES(1):
        return read_text(reader, &message->tag);
    case KEY_OF_BYTES(2):
        if (message->key_count == KEYS_MAX || !read_bytes(reader, &key) || !is_printable(key)
            || is_blank(key))
            return 0;
        message->keys[message->key_count++] = key;
        return 1;
    case KEY_OF_BYTES(3):
        return read_text(reader, &message->message_id);
    case KEY_OF_BYTES(4):
        return read_once(reader, digest) && skip_digest(*digest);
    case KEY_OF_VARINT(5):
        return read_varint(reader, &number) && number <= ENUM_SIMPLE_MAX && number != ENCODING_GZIP;
    case KEY_OF_VARINT(6):
        return read_varint(reader, &number) && number <= ENUM_SIMPLE_MAX
               && number != TYPE_TRANSACTION;
    case KEY_OF_BYTES(7):
        return read_once(reader, born_time) && read_born_time(*born_time, message);
    case KEY_OF_BYTES(8):
        return read_text(reader, &message->born_host);
    case KEY_OF_VARINT(13): /* The queue that the client has chosen; the broker chooses. */
        return read_varint(reader, &number);
    default:
        return 0;
    }
}

static int read_system(Span span, Message *message)
{
    Reader reader = reader_of(span);
    Span digest = missing, born_time = missing;
    while (reader.p < reader.end)
        if (!read_system_field(&reader, message, &digest, &born_time))
            return 0;
    Span tag = message->tag;
    if (tag.size == 0 || (tag.size > 0 && (is_blank(tag) || contains(tag, "|"))))
        return 0;
    return message->message_id.size > 0 && !is_blank(message->message_id);
}

/* Message: topic = 1, user_properties = 2, system_properties = 3, body = 4. */
static int read_message(Span span, Message *message)
{
    Reader reader = reader_of(span);
    Span topic = missing, system = missing, pair;
    while (reader.p < reader.end) {
        int is_known;
        switch (*reader.p++) {
        case KEY_OF_BYTES(1):
            is_known = read_once(&reader, &topic) && read_topic(topic, message);
            break;
        case KEY_OF_BYTES(2):
            is_known = read_bytes(&reader, &pair) && read_pair(pair, message);
            break;
        case KEY_OF_BYTES(3):
            is_known = read_once(&reader, &system) && read_system(system, message);
            break;
        case KEY_OF_BYTES(4):
            is_known = read_once(&reader, &message->body);
            break;
        default:
            is_known = 0;
        }
        if (!is_known)
            return 0;
    }
    return topic.size >= 0 && system.size >= 0 && message->body.size > 0;
}

/* SendMessageRequest: messages = 1, here one. */
static int read_request(Span span, Message *message)
{
    Reader reader = reader_of(span);
    Span only = missing;
    *message = (Message){.space = missing, .topic = missing, .body = missing, .tag = missing,
                         .message_id = missing, .born_host = missing};
    return reader.p < reader.end && *reader.p++ == KEY_OF_BYTES(1) && read_once(&reader, &only)
           && reader.p == reader.end && read_message(only, message);
}

/* Returns 1 if no user property has a name of RocketMQ's, and together they are not too large; -1
   with an exception. */
static int are_user_properties(const Message *message, PyObject *system_names)
{
    Py_ssize_t size = message->tag.size > 0 ? message->tag.size : 0;
    for (int i = 0; i < message->key_count; i++)
        size += message->keys[i].size;
    for (int i = 0; i < message->pair_count; i++) {
        const Pair *pair = &message->pairs[i];
        size += pair->name.size + pair->value.size;
        PyObject *name = PyUnicode_DecodeASCII(pair->name.data, pair->name.size, NULL);
        int is_system = name == NULL ? -1 : PySet_Contains(system_names, name);
        Py_XDECREF(name);
        if (is_system != 0)
            return is_system < 0 ? -1 : 0;
    }
    return size <= PROPERTIES_SIZE_MAX;
}

static int has_namespace(const Message *message)
{
    return message->space.size > 0;
}

static Py_ssize_t topic_size(const Message *message)
{
    return message->topic.size + (has_namespace(message) ? message->space.size + 1 : 0);
}

static unsigned char *put_topic(unsigned char *p, const Message *message)
{
    if (has_namespace(message)) {
        p = put_span(p, message->space);
        *p++ = '%';
    }
    return put_span(p, message->topic);
}

static unsigned char *put_name(unsigned char *p, const char *name)
{
    p = put_bytes(p, name, (Py_ssize_t)strlen(name));
    *p++ = 1;
    return p;
}

static unsigned char *put_property(unsigned char *p, const char *name, Span value)
{
    p = put_span(put_name(p, name), value);
    *p++ = 2;
    return p;
}

static unsigned char *put_keys(unsigned char *p, const Message *message)
{
    p = put_name(p, "KEYS");
    for (int i = 0; i < message->key_count; i++) {
        if (i > 0)
            *p++ = ' ';
        p = put_span(p, message->keys[i]);
    }
    *p++ = 2;
    return p;
}

/* The names of all properties with their separators, and the digits of a number. */
#define NAMES_SIZE_MAX 128

/* The properties as they are stored, in the order of build_properties. */
static PyObject *properties_of(const Message *message, Span born_host)
{
    Py_ssize_t size = NAMES_SIZE_MAX + message->message_id.size + born_host.size
                      + topic_size(message) + (message->tag.size > 0 ? message->tag.size : 0);
    for (int i = 0; i < message->pair_count; i++)
        size += message->pairs[i].name.size + message->pairs[i].value.size + 2;
    for (int i = 0; i < message->key_count; i++)
        size += message->keys[i].size + 1;
    unsigned char *data = PyMem_Malloc((size_t)size), *p = data;
    if (data == NULL)
        return PyErr_NoMemory();
    for (int i = 0; i < message->pair_count; i++) {
        p = put_span(p, message->pairs[i].name);
        *p++ = 1;
        p = put_span(p, message->pairs[i].value);
        *p++ = 2;
    }
    p = put_property(p, "UNIQ_KEY", message->message_id);
    if (message->tag.size > 0)
        p = put_property(p, "TAGS", message->tag);
    if (message->key_count > 0)
        p = put_keys(p, message);
    p = put_property(p, "__BORNHOST", born_host);
    p = put_number(put_name(p, "BORN_TIMESTAMP"), message->born_time_ms);
    *p++ = 2;
    p = put_topic(put_name(p, "PGROUP"), message);
    *p++ = 2;
    PyObject *text = PyUnicode_DecodeASCII((const char *)data, p - data, NULL);
    PyMem_Free(data);
    return text;
}

static PyObject *topic_of(const Message *message)
{
    if (!has_namespace(message))
        return PyUnicode_DecodeASCII(message->topic.data, message->topic.size, NULL);
    PyObject *text = PyUnicode_New(topic_size(message), 0x7F);
    if (text != NULL)
        put_topic(PyUnicode_1BYTE_DATA(text), message);
    return text;
}

/* (topic, message_id, body, properties, born_time_ms) */
static PyObject *result_of(const Message *message, Span born_host)
{
    PyObject *topic = topic_of(message), *properties = properties_of(message, born_host);
    PyObject *result = NULL;
    if (topic != NULL && properties != NULL)
        result = Py_BuildValue("Os#y#OL", topic, message->message_id.data,
                               message->message_id.size, message->body.data, message->body.size,
                               properties, (long long)message->born_time_ms);
    Py_XDECREF(topic);
    Py_XDECREF(properties);
    return result;
}

/* read_send(request, host, body_size_max, system_names) */
static PyObject *read_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Span request, host;
    int64_t body_size_max;
    Message message;
    if (nargs != 4 || !PyUnicode_Check(args[1]) || !PyAnySet_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "a request, a host, a number and a set are needed");
    if (!take_bytes(args[0], &request.data, &request.size))
        return NULL;
    if (!fits_int64(args[2], &body_size_max)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    host.data = PyUnicode_AsUTF8AndSize(args[1], &host.size);
    if (host.data == NULL)
        return NULL;
    if (!is_printable(host) || !read_request(request, &message)
        || message.body.size > body_size_max)
        Py_RETURN_NONE;
    int are_theirs = are_user_properties(&message, args[3]);
    if (are_theirs <= 0)
        return are_theirs < 0 ? NULL : Py_NewRef(Py_None);
    return result_of(&message, message.born_host.size > 0 ? message.born_host : host);
}

static int varint_size(uint64_t value)
{
    int size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

static unsigned char *put_varint(unsigned char *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *p++ = (unsigned char)(value | 0x80);
    *p++ = (unsigned char)value;
    return p;
}

/* encode_sent(status, message_id, offset): a frame with a SendMessageResponse.
   status = 1, entries = 2; of an entry: status = 1, message_id = 2, offset = 4. */
static PyObject *encode_sent(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Span status, id;
    int64_t offset;
    if (nargs != 3 || !PyUnicode_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "a status, a message id and an offset are needed");
    if (!take_bytes(args[0], &status.data, &status.size))
        return NULL;
    id.data = PyUnicode_AsUTF8AndSize(args[1], &id.size);
    if (id.data == NULL)
        return NULL;
    if (!fits_int64(args[2], &offset) || offset < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "an offset is too large, or negative");
        return NULL;
    }
    Py_ssize_t status_size = 1 + varint_size((uint64_t)status.size) + status.size;
    Py_ssize_t entry_size = status_size;
    if (id.size > 0)
        entry_size += 1 + varint_size((uint64_t)id.size) + id.size;
    if (offset > 0)
        entry_size += 1 + varint_size((uint64_t)offset);
    Py_ssize_t size = status_size + 1 + varint_size((uint64_t)entry_size) + entry_size;
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a message id is too long");
        return NULL;
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, FRAME_HEAD_SIZE + size);
    if (frame == NULL)
        return NULL;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(frame);
    *p++ = 0;
    p = put32(p, (uint32_t)size);
    *p++ = KEY_OF_BYTES(1);
    p = put_span(put_varint(p, (uint64_t)status.size), status);
    *p++ = KEY_OF_BYTES(2);
    p = put_varint(p, (uint64_t)entry_size);
    *p++ = KEY_OF_BYTES(1);
    p = put_span(put_varint(p, (uint64_t)status.size), status);
    if (id.size > 0) {
        *p++ = KEY_OF_BYTES(2);
        p = put_span(put_varint(p, (uint64_t)id.size), id);
    }
    if (offset > 0) {
        *p++ = KEY_OF_VARINT(4);
        put_varint(p, (uint64_t)offset);
    }
    return frame;
}

/* The offsets of fields in the head of a record with IPv4 hosts. */
#define RECORD_QUEUE_ID 12
#define RECORD_QUEUE_OFFSET 20
#define RECORD_SYS_FLAG 36
#define RECORD_BORN_TIME 40
#define RECORD_BORN_HOST 48
#define RECORD_STORE_TIME 56
#define RECORD_STORE_HOST 64
#define RECORD_RECONSUME_TIMES 72
#define RECORD_BODY_SIZE 84
#define COMPRESSED_FLAG 1
#define STORED_PAIRS_MAX 32
/* The limit of calendar_times.py. */
#define TIME_MS_MAX 253402128000000
#define HOST_TEXT_SIZE 32
#define PORT_MAX 65535
/* The fields of system properties other than texts, and the heads of all. */
#define SYSTEM_SIZE_MAX 256

/* A record, and what its consumer gets besides. */
typedef struct {
    const unsigned char *head;
    Span body, born_host;
    Span topic, space, digest, handle;
    Span unique_key, tag, keys;
    Pair pairs[STORED_PAIRS_MAX];
    int pair_count;
    Py_ssize_t user_size;
    int64_t invisible_ms, attempts;
    unsigned char born_text[HOST_TEXT_SIZE], store_text[HOST_TEXT_SIZE];
} Received;

static int32_t get_int32(const unsigned char *p)
{
    return (int32_t)get32(p);
}

static Py_ssize_t field_size(Py_ssize_t size)
{
    return 1 + varint_size((uint64_t)size) + size;
}

static unsigned char *put_field(unsigned char *p, int key, Span span)
{
    *p++ = (unsigned char)key;
    return put_span(put_varint(p, (uint64_t)span.size), span);
}

static unsigned char *put_varint_field(unsigned char *p, int key, uint64_t value)
{
    if (value == 0)
        return p;
    *p++ = (unsigned char)key;
    return put_varint(p, value);
}

/* Timestamp, or Duration: seconds = 1, nanos = 2. */
static unsigned char *put_time(unsigned char *p, int key, int64_t time_ms)
{
    unsigned char value[2 * (1 + 10)], *end = value;
    end = put_varint_field(end, KEY_OF_VARINT(1), (uint64_t)(time_ms / 1000));
    end = put_varint_field(end, KEY_OF_VARINT(2), (uint64_t)(time_ms % 1000 * 1000000));
    return put_field(p, key, (Span){(const char *)value, end - value});
}

/* Writes the four numbers of an IPv4 address. */
static unsigned char *put_host(unsigned char *p, const unsigned char *host)
{
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            *p++ = '.';
        p = put_number(p, host[i]);
    }
    return p;
}

/* Finds the parts of a record of version 1 or 2 with IPv4 hosts and a plain body. */
static int read_record(Span record, Received *found, Span *properties)
{
    const unsigned char *p = (const unsigned char *)record.data;
    if (record.size < RECORD_SIZE_MIN || get32(p) != (uint64_t)record.size)
        return 0;
    uint32_t magic = get32(p + 4), sys_flag = get32(p + RECORD_SYS_FLAG);
    uint32_t body_size = get32(p + RECORD_BODY_SIZE);
    Py_ssize_t size_size = magic == MAGIC_V2 ? 2 : 1;
    /* Below zero, too, if the sizes of topic and properties have no room. */
    Py_ssize_t left = record.size - HEAD_SIZE - (Py_ssize_t)body_size - size_size - 2;
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || (sys_flag & (HOST_FLAGS | COMPRESSED_FLAG)) != 0
        || left < 0)
        return 0;
    const unsigned char *at = p + HEAD_SIZE + body_size;
    Py_ssize_t topic_size = size_size == 2 ? at[0] << 8 | at[1] : at[0];
    if (topic_size > left || !is_ascii((Span){(const char *)at + size_size, topic_size}))
        return 0;
    at += size_size + topic_size;
    if ((at[0] << 8 | at[1]) != left - topic_size)
        return 0;
    found->head = p;
    found->body = (Span){(const char *)p + HEAD_SIZE, (Py_ssize_t)body_size};
    *properties = (Span){(const char *)at + 2, left - topic_size};
    return 1;
}

/* Whether a property of RocketMQ's has no field of its own. */
static int is_silent(Span name)
{
    static const char *const names[] = {"MSG_REGION", "TRACE_ON", "CLUSTER", "PGROUP",
                                        "BORN_TIMESTAMP", "WAIT", NULL};
    for (int i = 0; names[i] != NULL; i++)
        if (is_text(name, names[i]))
            return 1;
    return 0;
}

/* Reads one property: one with a field, or one of the user. Returns 0 if Python must read all, -1
   with an exception. */
static int read_property(Received *found, Span name, Span value, PyObject *system_names)
{
    Span *field = is_text(name, "UNIQ_KEY") ? &found->unique_key
                  : is_text(name, "TAGS") ? &found->tag
                  : is_text(name, "KEYS") ? &found->keys
                  : is_text(name, "__BORNHOST") ? &found->born_host : NULL;
    if (field != NULL) {
        int is_first = field->size < 0;
        *field = value;
        return is_first;
    }
    if (is_silent(name))
        return 1;
    PyObject *text = PyUnicode_DecodeASCII(name.data, name.size, NULL);
    int is_system = text == NULL ? -1 : PySet_Contains(system_names, text);
    Py_XDECREF(text);
    if (is_system != 0 || found->pair_count == STORED_PAIRS_MAX)
        return is_system < 0 ? -1 : 0;
    for (int i = 0; i < found->pair_count; i++)
        if (found->pairs[i].name.size == name.size
            && memcmp(found->pairs[i].name.data, name.data, (size_t)name.size) == 0)
            return 0;
    found->pairs[found->pair_count++] = (Pair){name, value};
    found->user_size += field_size(field_size(name.size) + field_size(value.size));
    return 1;
}

/* Reads the properties of a record; the same results as of read_property. */
static int read_properties(Received *found, Span properties, PyObject *system_names)
{
    const char *p = properties.data, *end = p + properties.size;
    while (p < end) {
        const char *stop = memchr(p, 2, (size_t)(end - p));
        const char *last = stop == NULL ? end : stop;
        const char *middle = memchr(p, 1, (size_t)(last - p));
        if (middle == NULL || middle == p || middle + 1 == last)
            return 0;
        Span name = {p, middle - p}, value = {middle + 1, last - middle - 1};
        if (!is_ascii(name) || !is_ascii(value))
            return 0;
        int is_read = read_property(found, name, value, system_names);
        if (is_read <= 0)
            return is_read;
        p = last + 1;
    }
    return found->unique_key.size > 0;
}

static int are_numbers_usual(const Received *found)
{
    int64_t born = get64(found->head + RECORD_BORN_TIME);
    int64_t stored = get64(found->head + RECORD_STORE_TIME);
    return born >= 0 && born <= TIME_MS_MAX && stored >= 0 && stored <= TIME_MS_MAX
           && found->invisible_ms >= 0 && found->invisible_ms <= TIME_MS_MAX
           && found->attempts >= 0 && found->attempts < INT32_MAX
           && get64(found->head + RECORD_QUEUE_OFFSET) >= 0
           && get_int32(found->head + RECORD_QUEUE_ID) >= 0
           && get32(found->head + RECORD_STORE_HOST + 4) <= PORT_MAX;
}

/* The keys are separated by blanks. */
static unsigned char *put_stored_keys(unsigned char *p, Span keys)
{
    if (keys.size <= 0)
        return p;
    const char *at = keys.data, *end = keys.data + keys.size;
    while (at < end) {
        const char *stop = memchr(at, ' ', (size_t)(end - at));
        const char *last = stop == NULL ? end : stop;
        if (last > at)
            p = put_field(p, KEY_OF_BYTES(2), (Span){at, last - at});
        at = last + 1;
    }
    return p;
}

/* SystemProperties, in the order of their numbers; those from 16 on have keys of two octets. */
static unsigned char *put_system(unsigned char *p, Received *found)
{
    const unsigned char *head = found->head;
    unsigned char digest[DIGEST_SIZE_MAX + 8], *end = digest;
    if (found->tag.size > 0)
        p = put_field(p, KEY_OF_BYTES(1), found->tag);
    p = put_stored_keys(p, found->keys);
    p = put_field(p, KEY_OF_BYTES(3), found->unique_key);
    end = put_varint_field(end, KEY_OF_VARINT(1), DIGEST_MD5);
    end = put_field(end, KEY_OF_BYTES(2), found->digest);
    p = put_field(p, KEY_OF_BYTES(4), (Span){(const char *)digest, end - digest});
    p = put_varint_field(p, KEY_OF_VARINT(5), ENCODING_IDENTITY);
    p = put_varint_field(p, KEY_OF_VARINT(6), TYPE_NORMAL);
    p = put_time(p, KEY_OF_BYTES(7), get64(head + RECORD_BORN_TIME));
    if (found->born_host.size < 0) {
        end = put_host(found->born_text, head + RECORD_BORN_HOST);
        found->born_host = (Span){(const char *)found->born_text, end - found->born_text};
    }
    p = put_field(p, KEY_OF_BYTES(8), found->born_host);
    p = put_time(p, KEY_OF_BYTES(9), get64(head + RECORD_STORE_TIME));
    end = put_host(found->store_text, head + RECORD_STORE_HOST);
    *end++ = ':';
    end = put_number(end, get32(head + RECORD_STORE_HOST + 4));
    p = put_field(p, KEY_OF_BYTES(10), (Span){(const char *)found->store_text, end - found->store_text});
    p = put_field(p, KEY_OF_BYTES(12), found->handle);
    p = put_varint_field(p, KEY_OF_VARINT(13), (uint64_t)get_int32(head + RECORD_QUEUE_ID));
    *p++ = KEY_OF_VARINT(14);
    p = put_varint(p, (uint64_t)get64(head + RECORD_QUEUE_OFFSET));
    p = put_time(p, KEY_OF_BYTES(15), found->invisible_ms);
    p = put_varint(p, KEY_OF_VARINT(16));
    return put_varint(p, (uint64_t)(found->attempts + 1));
}

static unsigned char *put_pairs(unsigned char *p, const Received *found)
{
    for (int i = 0; i < found->pair_count; i++) {
        Span name = found->pairs[i].name, value = found->pairs[i].value;
        *p++ = KEY_OF_BYTES(2);
        p = put_varint(p, (uint64_t)(field_size(name.size) + field_size(value.size)));
        p = put_field(put_field(p, KEY_OF_BYTES(1), name), KEY_OF_BYTES(2), value);
    }
    return p;
}

/* A frame with ReceiveMessageResponse: message = 2. *system* are the encoded SystemProperties. */
static PyObject *frame_of(const Received *found, Span system)
{
    Py_ssize_t topic_size = field_size(found->topic.size);
    if (found->space.size > 0)
        topic_size += field_size(found->space.size);
    Py_ssize_t size = field_size(topic_size) + found->user_size + field_size(system.size);
    if (found->body.size > 0)
        size += field_size(found->body.size);
    if (field_size(size) > INT32_MAX)
        Py_RETURN_NONE;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, FRAME_HEAD_SIZE + field_size(size));
    if (frame == NULL)
        return NULL;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(frame);
    *p++ = 0;
    p = put32(p, (uint32_t)field_size(size));
    *p++ = KEY_OF_BYTES(2);
    p = put_varint(p, (uint64_t)size);
    *p++ = KEY_OF_BYTES(1);
    p = put_varint(p, (uint64_t)topic_size);
    if (found->space.size > 0)
        p = put_field(p, KEY_OF_BYTES(1), found->space);
    p = put_field(p, KEY_OF_BYTES(2), found->topic);
    p = put_field(put_pairs(p, found), KEY_OF_BYTES(3), system);
    if (found->body.size > 0)
        put_field(p, KEY_OF_BYTES(4), found->body);
    return frame;
}

static PyObject *received_of(Received *found)
{
    Py_ssize_t keys_size = found->keys.size > 0 ? found->keys.size : 0;
    /* A key of one character takes three bytes. */
    Py_ssize_t size = SYSTEM_SIZE_MAX + 2 * keys_size + found->unique_key.size + found->digest.size
                      + found->handle.size + (found->tag.size > 0 ? found->tag.size : 0)
                      + (found->born_host.size > 0 ? found->born_host.size : HOST_TEXT_SIZE);
    unsigned char *system = PyMem_Malloc((size_t)size);
    if (system == NULL)
        return PyErr_NoMemory();
    unsigned char *end = put_system(system, found);
    PyObject *frame = frame_of(found, (Span){(const char *)system, end - system});
    PyMem_Free(system);
    return frame;
}

static int take_text(PyObject *object, Span *span)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a text is needed");
        return 0;
    }
    span->data = PyUnicode_AsUTF8AndSize(object, &span->size);
    return span->data != NULL;
}

/* encode_received(record, topic, namespace, digest, handle, invisible_ms, attempts, system_names),
   see converting.py. */
static PyObject *encode_received(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Received found = {.born_host = missing, .unique_key = missing, .tag = missing, .keys = missing};
    Span record, properties;
    if (nargs != 8 || !PyAnySet_Check(args[7]))
        return PyErr_Format(PyExc_TypeError, "encode_received takes 8 arguments, a set last");
    if (!take_bytes(args[0], &record.data, &record.size) || !take_text(args[1], &found.topic)
        || !take_text(args[2], &found.space) || !take_text(args[3], &found.digest)
        || !take_text(args[4], &found.handle))
        return NULL;
    if (!fits_int64(args[5], &found.invisible_ms) || !fits_int64(args[6], &found.attempts)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (found.digest.size > DIGEST_SIZE_MAX || found.topic.size == 0
        || !read_record(record, &found, &properties))
        Py_RETURN_NONE;
    if (found.attempts < 0)
        found.attempts = get_int32(found.head + RECORD_RECONSUME_TIMES);
    if (!are_numbers_usual(&found))
        Py_RETURN_NONE;
    int are_read = read_properties(&found, properties, args[7]);
    if (are_read <= 0)
        return are_read < 0 ? NULL : Py_NewRef(Py_None);
    return received_of(&found);
}

static PyMethodDef methods[] = {
    {"read_send", (PyCFunction)(void (*)(void))read_send, METH_FASTCALL, NULL},
    {"encode_received", (PyCFunction)(void (*)(void))encode_received, METH_FASTCALL, NULL},
    {"encode_sent", (PyCFunction)(void (*)(void))encode_sent, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.gateways.grpc._plain_calls",
    "The compiled part of plain calls.", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plain_calls(void)
{
    return PyModule_Create(&definition);
}
