/* Compiled: reads the requests of ordinary clients from a connection's bytes, and encodes answers.

   An ordinary request is a HEADERS frame with all header fields, and a DATA frame with the whole
   body. Frames of several requests may be mixed. connection.py and hpack.py define what must be done
   with each frame; they read every other one, valid or not. This code refuses nothing: it ends
   before the first frame that it does not know, and leaves nothing of it behind. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define HEAD_SIZE 9
#define PAYLOAD_SIZE_MAX 16384
#define DATA 0
#define HEADERS 1
#define END_STREAM 1
#define END_HEADERS 4
#define STREAM_ID_MAX 0x7FFFFFFF
/* Python measures blocks with more fields, or of more bytes. */
#define FIELDS_MAX 32
#define BLOCK_SIZE_MAX 8192
#define ENTRY_OVERHEAD 32
#define NUMBER_OCTETS_MAX 5
#define PSEUDO_FIELDS 4
#define SYMBOLS 257
#define END_OF_STRING 256
#define CODE_BITS_MAX 30
/* The shortest code has five bits. */
#define HUFFMAN_SIZE_MAX(size) ((size) * 8 / 5 + 1)
#define TEXT_SIZE_MAX 1024

/* The static table of RFC 7541, a tuple of pairs; the names that are valid, a set. */
static PyObject *static_table, *sound_names;
static PyObject *te_name, *te_value, *path_name, *length_name;

/* Huffman's code: the symbols by their codes; of each length in bits the first code, where its
   symbol is, and how many there are. */
static uint16_t symbols[SYMBOLS];
static uint32_t first_code[CODE_BITS_MAX + 1];
static uint16_t first_symbol[CODE_BITS_MAX + 1], code_count[CODE_BITS_MAX + 1];

typedef struct {
    PyObject *name, *value;
} Field;

/* The fields of a block. The table has the entries that *evicted* leaves, and after them *added*. */
typedef struct {
    Field fields[FIELDS_MAX];
    PyObject *added[FIELDS_MAX];
    PyObject *entries;
    int field_count, added_count;
    Py_ssize_t evicted;
    int64_t size, size_max;
} Block;

typedef struct {
    const unsigned char *p, *end;
} Reader;

static void free_block(Block *block)
{
    for (int i = 0; i < block->field_count; i++) {
        Py_DECREF(block->fields[i].name);
        Py_DECREF(block->fields[i].value);
    }
    for (int i = 0; i < block->added_count; i++)
        Py_DECREF(block->added[i]);
}

/* Reads the rest of a number that began with *value*. */
static int read_number(Reader *reader, uint64_t *value)
{
    for (int place = 0; place < NUMBER_OCTETS_MAX && reader->p < reader->end; place++) {
        unsigned char octet = *reader->p++;
        *value += (uint64_t)(octet & 0x7F) << 7 * place;
        if (octet < 0x80)
            return 1;
    }
    return 0;
}

/* Decodes Huffman's code; returns the size of the text, -1 if the code is not valid. */
static Py_ssize_t decode_huffman(const unsigned char *p, Py_ssize_t size, char *text)
{
    char *out = text;
    uint32_t code = 0;
    int bits = 0, are_ones = 1;
    for (Py_ssize_t i = 0; i < size; i++)
        for (int shift = 7; shift >= 0; shift--) {
            uint32_t bit = p[i] >> shift & 1;
            code = code << 1 | bit;
            are_ones &= (int)bit;
            if (++bits > CODE_BITS_MAX)
                return -1;
            uint32_t at = code - first_code[bits];
            if (code < first_code[bits] || at >= code_count[bits])
                continue;
            uint16_t symbol = symbols[first_symbol[bits] + at];
            if (symbol == END_OF_STRING)
                return -1;
            *out++ = (char)symbol;
            code = 0;
            bits = 0;
            are_ones = 1;
        }
    /* The padding is the front of the code that ends a string: ones. */
    return bits > 7 || !are_ones ? -1 : out - text;
}

/* Returns a text; NULL with an exception, or without one if Python must read it. */
static PyObject *read_text(Reader *reader)
{
    char text[HUFFMAN_SIZE_MAX(TEXT_SIZE_MAX)];
    if (reader->p >= reader->end)
        return NULL;
    int is_huffman = *reader->p >= 0x80;
    uint64_t size = *reader->p++ & 0x7F;
    if ((size == 0x7F && !read_number(reader, &size)) || size > TEXT_SIZE_MAX
        || size > (uint64_t)(reader->end - reader->p))
        return NULL;
    const unsigned char *octets = reader->p;
    reader->p += size;
    if (!is_huffman)
        return PyUnicode_DecodeLatin1((const char *)octets, (Py_ssize_t)size, NULL);
    Py_ssize_t length = decode_huffman(octets, (Py_ssize_t)size, text);
    return length < 0 ? NULL : PyUnicode_DecodeLatin1(text, length, NULL);
}

/* Entry *place* of the table, counted from the oldest one. */
static PyObject *entry_at(const Block *block, Py_ssize_t place)
{
    Py_ssize_t before = PyList_GET_SIZE(block->entries);
    return place < before ? PyList_GET_ITEM(block->entries, place) : block->added[place - before];
}

static int is_pair(PyObject *object)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2
           && PyUnicode_Check(PyTuple_GET_ITEM(object, 0))
           && PyUnicode_Check(PyTuple_GET_ITEM(object, 1));
}

/* Finds the entry of an index; returns NULL if there is none. */
static PyObject *find_entry(const Block *block, uint64_t index)
{
    uint64_t static_count = (uint64_t)PyTuple_GET_SIZE(static_table);
    if (index < static_count)
        return index == 0 ? NULL : PyTuple_GET_ITEM(static_table, (Py_ssize_t)index);
    Py_ssize_t total = PyList_GET_SIZE(block->entries) + block->added_count;
    index -= static_count;
    if (index >= (uint64_t)(total - block->evicted))
        return NULL;
    PyObject *entry = entry_at(block, total - 1 - (Py_ssize_t)index);
    return is_pair(entry) ? entry : NULL;
}

static int64_t entry_size(PyObject *entry)
{
    return PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(entry, 0))
           + PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(entry, 1)) + ENTRY_OVERHEAD;
}

/* Adds a field to the table; returns 0 with an exception, or without one if Python must do it. */
static int add_entry(Block *block, const Field *field)
{
    PyObject *entry = PyTuple_Pack(2, field->name, field->value);
    if (entry == NULL)
        return 0;
    block->added[block->added_count++] = entry;
    block->size += entry_size(entry);
    Py_ssize_t total = PyList_GET_SIZE(block->entries) + block->added_count;
    while (block->size > block->size_max && block->evicted < total) {
        PyObject *oldest = entry_at(block, block->evicted);
        if (!is_pair(oldest))
            return 0;
        block->size -= entry_size(oldest);
        block->evicted++;
    }
    return 1;
}

static int take_entry(const Block *block, uint64_t index, Field *field)
{
    PyObject *entry = find_entry(block, index);
    if (entry == NULL)
        return 0;
    field->name = Py_NewRef(PyTuple_GET_ITEM(entry, 0));
    field->value = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    return 1;
}

static int read_literal(Block *block, Reader *reader, unsigned char octet, Field *field)
{
    uint64_t mask = octet & 0x40 ? 0x3F : 0x0F, index = octet & mask;
    if (index == mask && !read_number(reader, &index))
        return 0;
    if (index > 0) {
        PyObject *entry = find_entry(block, index);
        field->name = entry == NULL ? NULL : Py_NewRef(PyTuple_GET_ITEM(entry, 0));
    } else {
        field->name = read_text(reader);
    }
    if (field->name == NULL)
        return 0;
    field->value = read_text(reader);
    if (field->value == NULL) {
        Py_DECREF(field->name);
        return 0;
    }
    return 1;
}

/* Reads the next field; returns 0 with an exception, or without one if Python must read it. */
static int read_field(Block *block, Reader *reader)
{
    if (block->field_count == FIELDS_MAX)
        return 0;
    Field *field = &block->fields[block->field_count];
    unsigned char octet = *reader->p++;
    int is_indexed = octet >= 0x80;
    if (is_indexed) {
        uint64_t index = octet & 0x7F;
        if ((index == 0x7F && !read_number(reader, &index)) || !take_entry(block, index, field))
            return 0;
    } else if ((octet & 0xE0) == 0x20 || !read_literal(block, reader, octet, field)) {
        return 0;
    }
    block->field_count++;
    return is_indexed || (octet & 0x40) == 0 || add_entry(block, field);
}

static int is_equal(PyObject *text, PyObject *other)
{
    return text == other
           || (PyUnicode_GET_LENGTH(text) == PyUnicode_GET_LENGTH(other)
               && PyUnicode_Compare(text, other) == 0);
}

static int is_pseudo(PyObject *name)
{
    return PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == ':';
}

/* Returns the fields of a request by name, as check_fields of semantics.py; NULL with an exception,
   or without one if Python must check them. */
static PyObject *fields_of(const Block *block)
{
    PyObject *found = PyDict_New();
    for (int i = 0; found != NULL && i < block->field_count; i++) {
        const Field *field = &block->fields[i];
        int is_sound = PySet_Contains(sound_names, field->name);
        if (is_sound > 0)
            is_sound = is_pseudo(field->name) == (i < PSEUDO_FIELDS)
                       && !is_equal(field->name, length_name)
                       && (!is_equal(field->name, te_name) || is_equal(field->value, te_value))
                       && (!is_equal(field->name, path_name)
                           || PyUnicode_GET_LENGTH(field->value) > 0);
        if (is_sound <= 0 || PyDict_SetItem(found, field->name, field->value) < 0)
            Py_CLEAR(found);
    }
    /* Without repeated names, the first four are the four pseudo fields that are valid. */
    if (found != NULL
        && (block->field_count < PSEUDO_FIELDS || PyDict_GET_SIZE(found) != block->field_count))
        Py_CLEAR(found);
    return found;
}

/* Changes the table as the block says; returns 0 with an exception. */
static int update_table(Block *block)
{
    for (int i = 0; i < block->added_count; i++)
        if (PyList_Append(block->entries, block->added[i]) < 0)
            return 0;
    return block->evicted == 0 || PyList_SetSlice(block->entries, 0, block->evicted, NULL) == 0;
}

/* Returns the fields of a header block, and changes the table; NULL with an exception, or without
   one if Python must read the block: then the table is as before. */
static PyObject *read_block(const unsigned char *p, Py_ssize_t size, PyObject *entries,
                            int64_t *table_size, int64_t table_size_max)
{
    Block block = {.entries = entries, .size = *table_size, .size_max = table_size_max};
    Reader reader = {p, p + size};
    PyObject *found = NULL;
    int is_read = size <= BLOCK_SIZE_MAX;
    while (is_read && reader.p < reader.end)
        is_read = read_field(&block, &reader);
    if (is_read)
        found = fields_of(&block);
    if (found != NULL && !update_table(&block))
        Py_CLEAR(found);
    if (found != NULL)
        *table_size = block.size;
    free_block(&block);
    return found;
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A request whose body has not come; *fields* is NULL once it has. */
typedef struct {
    uint32_t stream_id;
    PyObject *fields;
} Started;

typedef struct {
    const unsigned char *data;
    Py_ssize_t position, size;
    uint32_t last_stream_id;
    PyObject *entries;
    int64_t table_size, table_size_max, received;
    Started *started;
    Py_ssize_t started_count, room, ended_front;
    PyObject *requests;
} Reading;

/* Adds (stream_id, fields, body) to the requests, and releases the fields; 0 with an exception. */
static int add_request(Reading *reading, Started *started, const unsigned char *p, Py_ssize_t size)
{
    PyObject *request = p == NULL
        ? Py_BuildValue("kOO", (unsigned long)started->stream_id, started->fields, Py_None)
        : Py_BuildValue("kOy#", (unsigned long)started->stream_id, started->fields, p, size);
    int is_added = request != NULL && PyList_Append(reading->requests, request) == 0;
    Py_XDECREF(request);
    if (is_added)
        Py_CLEAR(started->fields);
    return is_added;
}

static int read_headers(Reading *reading, uint32_t stream_id, const unsigned char *p, Py_ssize_t size)
{
    if (stream_id % 2 == 0 || stream_id <= reading->last_stream_id
        || reading->started_count == reading->room)
        return 0;
    PyObject *fields = read_block(p, size, reading->entries, &reading->table_size,
                                  reading->table_size_max);
    if (fields == NULL)
        return 0;
    reading->started[reading->started_count++] = (Started){stream_id, fields};
    reading->last_stream_id = stream_id;
    return 1;
}

static int read_data(Reading *reading, uint32_t stream_id, const unsigned char *p, Py_ssize_t size)
{
    Py_ssize_t at = reading->ended_front;
    while (at < reading->started_count
           && (reading->started[at].fields == NULL || reading->started[at].stream_id != stream_id))
        at++;
    if (at == reading->started_count || !add_request(reading, &reading->started[at], p, size))
        return 0;
    while (reading->ended_front < reading->started_count
           && reading->started[reading->ended_front].fields == NULL)
        reading->ended_front++;
    reading->received += size;
    return 1;
}

/* Reads one frame; returns 0 with an exception, or without one if Python must read it. */
static int read_frame(Reading *reading)
{
    const unsigned char *p = reading->data + reading->position;
    Py_ssize_t left = reading->size - reading->position;
    if (left < HEAD_SIZE)
        return 0;
    Py_ssize_t size = (Py_ssize_t)(get32(p) >> 8);
    uint32_t stream_id = get32(p + 5) & STREAM_ID_MAX;
    if (size > PAYLOAD_SIZE_MAX || size > left - HEAD_SIZE)
        return 0;
    int is_read = 0;
    if (p[3] == HEADERS && p[4] == END_HEADERS)
        is_read = read_headers(reading, stream_id, p + HEAD_SIZE, size);
    else if (p[3] == DATA && p[4] == END_STREAM)
        is_read = read_data(reading, stream_id, p + HEAD_SIZE, size);
    if (is_read)
        reading->position += HEAD_SIZE + size;
    return is_read;
}

/* The requests whose bodies have come in the order of their ends, then the others; NULL with an
   exception. */
static PyObject *result_of(Reading *reading)
{
    for (Py_ssize_t i = 0; i < reading->started_count; i++)
        if (reading->started[i].fields != NULL && !add_request(reading, &reading->started[i], NULL, 0))
            return NULL;
    return Py_BuildValue("OnkLL", reading->requests, reading->position,
                         (unsigned long)reading->last_stream_id, (long long)reading->table_size,
                         (long long)reading->received);
}

static PyObject *read_all(Reading *reading)
{
    reading->requests = PyList_New(0);
    reading->started = PyMem_Malloc((size_t)(reading->room + 1) * sizeof(Started));
    PyObject *result = NULL;
    if (reading->started == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    if (reading->requests != NULL && reading->started != NULL) {
        while (read_frame(reading))
            continue;
        if (!PyErr_Occurred())
            result = result_of(reading);
        for (Py_ssize_t i = 0; i < reading->started_count; i++)
            Py_XDECREF(reading->started[i].fields);
    }
    PyMem_Free(reading->started);
    Py_XDECREF(reading->requests);
    return result;
}

/* read_requests(data, position, last_stream_id, room, entries, table_size, table_size_max), see
   hpack.py. */
static PyObject *read_requests(PyObject *module, PyObject *args)
{
    (void)module;
    Reading reading = {0};
    const char *data;
    unsigned long last_stream_id;
    long long table_size, table_size_max;
    if (!PyArg_ParseTuple(args, "y#nknO!LL", &data, &reading.size, &reading.position,
                          &last_stream_id, &reading.room, &PyList_Type, &reading.entries,
                          &table_size, &table_size_max))
        return NULL;
    /* A request takes more bytes than two heads, so there are never more. */
    if (static_table == NULL || reading.position < 0 || reading.position > reading.size
        || last_stream_id > STREAM_ID_MAX || reading.room < 0 || table_size < 0)
        return PyErr_Format(PyExc_ValueError, "a number is out of range, or set_tables was not called");
    if (reading.room > reading.size / HEAD_SIZE)
        reading.room = reading.size / HEAD_SIZE;
    reading.data = (const unsigned char *)data;
    reading.last_stream_id = (uint32_t)last_stream_id;
    reading.table_size = table_size;
    reading.table_size_max = table_size_max;
    return read_all(&reading);
}

static unsigned char *put_head(unsigned char *p, Py_ssize_t size, int kind, int flags,
                               uint32_t stream_id)
{
    const unsigned char head[HEAD_SIZE] = {
        (unsigned char)(size >> 16), (unsigned char)(size >> 8), (unsigned char)size,
        (unsigned char)kind, (unsigned char)flags, (unsigned char)(stream_id >> 24),
        (unsigned char)(stream_id >> 16), (unsigned char)(stream_id >> 8), (unsigned char)stream_id};
    memcpy(p, head, HEAD_SIZE);
    return p + HEAD_SIZE;
}

/* encode_answer(stream_id, block, data, trailers), see frames.py. */
static PyObject *encode_answer(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    static const int kinds[] = {HEADERS, DATA, HEADERS};
    static const int flags[] = {END_HEADERS, 0, END_HEADERS | END_STREAM};
    if (nargs != 4)
        return PyErr_Format(PyExc_TypeError, "encode_answer takes 4 arguments");
    unsigned long stream_id = PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t size = 0;
    for (int i = 1; i < 4; i++) {
        if (!PyBytes_Check(args[i]))
            return PyErr_Format(PyExc_TypeError, "bytes are needed");
        if (PyBytes_GET_SIZE(args[i]) > PAYLOAD_SIZE_MAX || stream_id > STREAM_ID_MAX)
            return PyErr_Format(PyExc_ValueError, "a part does not fit into a frame");
        size += HEAD_SIZE + PyBytes_GET_SIZE(args[i]);
    }
    PyObject *frames = PyBytes_FromStringAndSize(NULL, size);
    if (frames == NULL)
        return NULL;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(frames);
    for (int i = 0; i < 3; i++) {
        PyObject *part = args[i + 1];
        p = put_head(p, PyBytes_GET_SIZE(part), kinds[i], flags[i], (uint32_t)stream_id);
        memcpy(p, PyBytes_AS_STRING(part), (size_t)PyBytes_GET_SIZE(part));
        p += PyBytes_GET_SIZE(part);
    }
    return frames;
}

/* Makes Huffman's code from the lengths of the symbols: codes of one length follow each other in the
   order of the symbols, and shorter ones come before longer ones. Returns 0 if a length is not valid. */
static int make_code(const unsigned char *lengths)
{
    uint16_t at = 0;
    uint32_t code = 0;
    for (int bits = 1; bits <= CODE_BITS_MAX; bits++) {
        code <<= 1;
        first_code[bits] = code;
        first_symbol[bits] = at;
        for (int symbol = 0; symbol < SYMBOLS; symbol++)
            if (lengths[symbol] == bits)
                symbols[at++] = (uint16_t)symbol;
        code_count[bits] = (uint16_t)(at - first_symbol[bits]);
        code += code_count[bits];
    }
    return at == SYMBOLS;
}

/* set_tables(static_table, sound_names, lengths) */
static PyObject *set_tables(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *table, *names;
    const char *lengths;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!O!y#", &PyTuple_Type, &table, &PySet_Type, &names, &lengths, &size))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(table); i++)
        if (!is_pair(PyTuple_GET_ITEM(table, i)))
            return PyErr_Format(PyExc_TypeError, "a table of pairs of texts is needed");
    if (size != SYMBOLS || !make_code((const unsigned char *)lengths))
        return PyErr_Format(PyExc_ValueError, "the lengths of 257 codes are needed");
    Py_XSETREF(static_table, Py_NewRef(table));
    Py_XSETREF(sound_names, Py_NewRef(names));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"read_requests", read_requests, METH_VARARGS, NULL},
    {"encode_answer", (PyCFunction)(void (*)(void))encode_answer, METH_FASTCALL, NULL},
    {"set_tables", set_tables, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.protocol.http2._frames", "The compiled part of HTTP/2.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__frames(void)
{
    te_name = PyUnicode_InternFromString("te");
    te_value = PyUnicode_InternFromString("trailers");
    path_name = PyUnicode_InternFromString(":path");
    length_name = PyUnicode_InternFromString("content-length");
    if (te_name == NULL || te_value == NULL || path_name == NULL || length_name == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
