/* Requests that follow each other and differ only in numbers; similar_requests.py says what they are
   for, has an example, and the twins of both functions. Headers are read as known clients write them
   (_json_text.h); a run ends before any other. */

#include "_json_text.h"

#define SERIALIZE_JSON 0
#define NAMES_MAX 8
#define FIELDS_MAX 64
#define DIGITS_MAX 12

/* The fields of a kind of request: texts, of which one may count up to its last blank only, and
   numbers. */
typedef struct {
    int64_t code;
    Span texts[NAMES_MAX], numbers[NAMES_MAX];
    Py_ssize_t text_count, number_count;
    int64_t cut;
} Shape;

typedef struct {
    Span texts[NAMES_MAX];
    int64_t numbers[NAMES_MAX];
    int32_t opaque, flag;
} Request;

typedef struct {
    const Shape *shape;
    Request *request;
} Reading;

static int take_names(PyObject *object, Span *names, Py_ssize_t *count)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) > NAMES_MAX)
        return 0;
    *count = PyTuple_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *name = PyTuple_GET_ITEM(object, i);
        if (!PyBytes_Check(name))
            return 0;
        names[i] = (Span){PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)};
    }
    return 1;
}

static int take_shape(PyObject *object, Shape *shape)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 4
           && fits_int64(PyTuple_GET_ITEM(object, 0), &shape->code)
           && take_names(PyTuple_GET_ITEM(object, 1), shape->texts, &shape->text_count)
           && take_names(PyTuple_GET_ITEM(object, 2), shape->numbers, &shape->number_count)
           && fits_int64(PyTuple_GET_ITEM(object, 3), &shape->cut);
}

static int are_equal(Span a, Span b)
{
    return a.size == b.size && memcmp(a.data, b.data, (size_t)a.size) == 0;
}

static int index_of(const Span *names, Py_ssize_t count, Span name)
{
    for (int i = 0; i < (int)count; i++)
        if (are_equal(names[i], name))
            return i;
    return -1;
}

static Span before_last_blank(Span text)
{
    Py_ssize_t size = text.size;
    while (size > 0 && text.data[size - 1] != ' ')
        size--;
    return (Span){text.data, size > 0 ? size - 1 : 0};
}

static int take_fields(Cursor *cursor, void *reading)
{
    const Shape *shape = ((Reading *)reading)->shape;
    Request *request = ((Reading *)reading)->request;
    unsigned seen = 0;
    int count = 0;
    if (!take_char(cursor, '{'))
        return 0;
    do {
        Span name, value;
        int64_t number_value;
        if (++count > FIELDS_MAX || !take_plain_string(cursor, &name) || !take_separator(cursor, ':'))
            return 0;
        int text = index_of(shape->texts, shape->text_count, name), number = -1;
        if (text < 0)
            number = index_of(shape->numbers, shape->number_count, name);
        if (text < 0 && number < 0) {
            if (is_text(name, "rh") || !pass_over(cursor))
                return 0;
            continue;
        }
        unsigned bit = 1u << (text < 0 ? NAMES_MAX + number : text);
        if (seen & bit)
            return 0;
        seen |= bit;
        int is_number = number >= 0 || is_bare(cursor);
        if (is_bare(cursor) ? !take_word(cursor, &value) : !take_plain_string(cursor, &value))
            return 0;
        if (is_number && !read_number(value, &number_value))
            return 0;
        if (number >= 0)
            request->numbers[number] = number_value;
        else
            request->texts[text] = text == shape->cut ? before_last_blank(value) : value;
    } while (take_separator(cursor, ','));
    unsigned needed = ((1u << shape->text_count) - 1)
                      | ((1u << shape->number_count) - 1) << NAMES_MAX;
    return take_char(cursor, '}') && seen == needed;
}

/* Reads a header; returns 0 if Python must read it. */
static int read_header(Span header, const Shape *shape, Request *request)
{
    Cursor cursor;
    Reading reading = {shape, request};
    int32_t code;
    return begin_header(header, &cursor, &code) && code == shape->code
           && take_parts(&cursor, take_fields, &reading, &request->opaque, &request->flag)
           && !(request->flag & FLAG_RESPONSE);
}

/* Returns the header of a frame in JSON; NULL, without an exception, for any other. */
static PyObject *json_header_of(PyObject *frame)
{
    int64_t serialize_type;
    if (!PyTuple_Check(frame) || PyTuple_GET_SIZE(frame) != 3
        || !PyBytes_Check(PyTuple_GET_ITEM(frame, 1))
        || !fits_int64(PyTuple_GET_ITEM(frame, 0), &serialize_type)
        || serialize_type != SERIALIZE_JSON)
        return NULL;
    return PyTuple_GET_ITEM(frame, 1);
}

static PyObject *row_of(const Shape *shape, const Request *request)
{
    PyObject *row = PyTuple_New(2 + shape->number_count);
    if (row == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < 2 + shape->number_count; i++) {
        int64_t value = i == 0 ? request->opaque : i == 1 ? request->flag
                                                          : request->numbers[i - 2];
        PyObject *number = PyLong_FromLongLong(value);
        if (number == NULL) {
            Py_DECREF(row);
            return NULL;
        }
        PyTuple_SET_ITEM(row, i, number);
    }
    return row;
}

static PyObject *texts_of(const Shape *shape, const Request *request)
{
    PyObject *texts = PyTuple_New(shape->text_count);
    for (Py_ssize_t i = 0; texts != NULL && i < shape->text_count; i++) {
        Span span = request->texts[i];
        PyObject *text = PyUnicode_DecodeASCII(span.data, span.size, NULL);
        if (text == NULL)
            Py_CLEAR(texts);
        else
            PyTuple_SET_ITEM(texts, i, text);
    }
    return texts;
}

static int has_texts(const Shape *shape, const Request *request, const Request *first)
{
    for (Py_ssize_t i = 0; i < shape->text_count; i++)
        if (!are_equal(request->texts[i], first->texts[i]))
            return 0;
    return 1;
}

/* Appends the rows; returns -1 with an exception. *kept* keeps the first header alive. */
static int read_rows(PyObject *frames, Py_ssize_t at, const Shape *shape, PyObject *rows,
                     Request *first, PyObject **kept)
{
    for (; at < PyList_GET_SIZE(frames); at++) {
        Request request;
        PyObject *header = json_header_of(PyList_GET_ITEM(frames, at));
        if (header == NULL)
            return PyErr_Occurred() ? -1 : 0;
        if (!read_header((Span){PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)}, shape,
                         &request))
            return 0;
        if (*kept == NULL) {
            *first = request;
            *kept = Py_NewRef(header);
        } else if (!has_texts(shape, &request, first)) {
            return 0;
        }
        PyObject *row = row_of(shape, &request);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            return -1;
        }
        Py_DECREF(row);
    }
    return 0;
}

static PyObject *read_similar(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Shape shape;
    Request first;
    int64_t at;
    if (nargs != 3 || !PyList_Check(args[0]) || !fits_int64(args[1], &at) || at < 0
        || !take_shape(args[2], &shape)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a list, a number and a shape are needed");
        return NULL;
    }
    PyObject *rows = PyList_New(0), *kept = NULL, *texts = NULL, *result = NULL;
    if (rows != NULL && read_rows(args[0], (Py_ssize_t)at, &shape, rows, &first, &kept) == 0) {
        texts = kept == NULL ? PyTuple_New(0) : texts_of(&shape, &first);
        if (texts != NULL)
            result = PyTuple_Pack(2, texts, rows);
    }
    Py_XDECREF(texts);
    Py_XDECREF(kept);
    Py_XDECREF(rows);
    return result;
}

static unsigned char *put_digits(unsigned char *p, int64_t number)
{
    char digits[DIGITS_MAX];
    int count = snprintf(digits, sizeof digits, "%lld", (long long)number);
    return put_bytes(p, digits, count);
}

static PyObject *encode_similar(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 3 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]) || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "the two ends of a header and a list are needed");
        return NULL;
    }
    Py_ssize_t head = PyBytes_GET_SIZE(args[0]), tail = PyBytes_GET_SIZE(args[1]);
    Py_ssize_t count = PyList_GET_SIZE(args[2]);
    if (head > INT16_MAX || tail > INT16_MAX || count > INT16_MAX) {
        PyErr_SetString(PyExc_OverflowError, "too many responses, or too long ones");
        return NULL;
    }
    PyObject *frames = PyBytes_FromStringAndSize(NULL, count * (8 + head + DIGITS_MAX + tail));
    if (frames == NULL)
        return NULL;
    unsigned char *start = (unsigned char *)PyBytes_AS_STRING(frames), *p = start;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t opaque;
        if (!fits_int32(PyList_GET_ITEM(args[2], i), &opaque)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_OverflowError, "an opaque has 32 bits");
            Py_DECREF(frames);
            return NULL;
        }
        unsigned char *header = p + 8;
        unsigned char *end = put_digits(put_bytes(header, PyBytes_AS_STRING(args[0]), head), opaque);
        end = put_bytes(end, PyBytes_AS_STRING(args[1]), tail);
        put32(put32(p, (uint32_t)(end - header + 4)), (uint32_t)(end - header));
        p = end;
    }
    _PyBytes_Resize(&frames, p - start);
    return frames;
}

static PyMethodDef methods[] = {
    {"encode_similar", (PyCFunction)(void (*)(void))encode_similar, METH_FASTCALL, NULL},
    {"read_similar", (PyCFunction)(void (*)(void))read_similar, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.hot._requests", "Requests that differ in numbers.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__requests(void)
{
    return PyModule_Create(&definition);
}
