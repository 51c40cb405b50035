/* Bytes of records, units and index entries: numbers, spans of text, hashes and CRCs. Big-endian
   throughout, as Java writes them. */

#ifndef ROCKHOPPER_BYTES_H
#define ROCKHOPPER_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define HOST_FLAGS 0x30
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define HEAD_SIZE 88
#define RECORD_SIZE_MIN 91
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define MAGIC_BLANK 0xCBD43194u
#define BLANK_SIZE 8
#define UNIT_SIZE 20

/* Call it once, before crc32_of. */
void prepare_crc(void);
uint32_t crc32_of(const unsigned char *p, Py_ssize_t size);

static inline unsigned char *put16(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
    return p + 2;
}

static inline unsigned char *put32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
    return p + 4;
}

static inline unsigned char *put64(unsigned char *p, uint64_t v)
{
    return put32(put32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

static inline unsigned char *put_bytes(unsigned char *p, const void *data, Py_ssize_t size)
{
    memcpy(p, data, (size_t)size);
    return p + size;
}

static inline uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline int64_t get64(const unsigned char *p)
{
    return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4));
}

/* A span of bytes; size < 0 means that it is missing. */
typedef struct {
    const char *data;
    Py_ssize_t size;
} Span;

/* Returns 0, without an exception, for a number that does not fit; the general path refuses it. */
static inline int fits_int64(PyObject *object, int64_t *value)
{
    int overflow = 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && !(*value == -1 && PyErr_Occurred());
}

static inline int fits_int32(PyObject *object, int32_t *value)
{
    int64_t wide;
    if (!fits_int64(object, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return 0;
    *value = (int32_t)wide;
    return 1;
}

static inline int take_bytes(PyObject *object, const char **data, Py_ssize_t *size)
{
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "bytes expected, not %.100s", Py_TYPE(object)->tp_name);
        return 0;
    }
    *data = PyBytes_AS_STRING(object);
    *size = PyBytes_GET_SIZE(object);
    return 1;
}

static inline int is_ascii(Span span)
{
    uint64_t seen = 0, eight;
    Py_ssize_t i = 0;
    for (; i + 8 <= span.size; i += 8) {
        memcpy(&eight, span.data + i, 8);
        seen |= eight;
    }
    for (; i < span.size; i++)
        seen |= (unsigned char)span.data[i];
    return (seen & 0x8080808080808080u) == 0;
}

/* Continues Java's String.hashCode from *value*, by fours, because each step depends on the last. */
static inline uint32_t hash_on(uint32_t value, Span span)
{
    const unsigned char *p = (const unsigned char *)span.data;
    Py_ssize_t left = span.size;
    for (; left >= 4; left -= 4, p += 4)
        value = value * 923521u + p[0] * 29791u + p[1] * 961u + p[2] * 31u + p[3];
    for (; left > 0; left--)
        value = value * 31u + *p++;
    return value;
}

static inline uint32_t index_hash(uint32_t seed, Span key)
{
    uint32_t value = hash_on(seed, key);
    if (value < 0x80000000u)
        return value;
    return value == 0x80000000u ? 0 : (uint32_t)(0u - value);
}

static inline int64_t tags_code(Span tags)
{
    return tags.size > 0 ? (int64_t)(int32_t)hash_on(0, tags) : 0;
}

static inline int is_text(Span span, const char *text)
{
    size_t size = strlen(text);
    return span.size == (Py_ssize_t)size && memcmp(span.data, text, size) == 0;
}

static inline int contains(Span span, const char *text)
{
    Py_ssize_t size = (Py_ssize_t)strlen(text);
    if (span.size < size)
        return 0;
    const char *p = span.data, *end = span.data + span.size - size;
    while (p <= end) {
        p = memchr(p, text[0], (size_t)(end - p + 1));
        if (p == NULL)
            return 0;
        if (memcmp(p, text, (size_t)size) == 0)
            return 1;
        p++;
    }
    return 0;
}

/* Grows *data* to at least *size* bytes, by doubling; returns 0 with an exception without memory. */
static inline int make_room(void **data, Py_ssize_t *room, Py_ssize_t size)
{
    if (size <= *room)
        return 1;
    Py_ssize_t wanted = *room > 0 ? *room * 2 : 256;
    while (wanted < size)
        wanted *= 2;
    void *larger = PyMem_Realloc(*data, (size_t)wanted);
    if (larger == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    *data = larger;
    *room = wanted;
    return 1;
}

#define NUMBER_SIZE_MAX 20

static inline unsigned char *put_span(unsigned char *p, Span span)
{
    return put_bytes(p, span.data, span.size);
}

/* Writes at most NUMBER_SIZE_MAX bytes. */
static inline unsigned char *put_number(unsigned char *p, int64_t value)
{
    char digits[NUMBER_SIZE_MAX];
    int at = NUMBER_SIZE_MAX;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        *p++ = '-';
    return put_bytes(p, digits + at, NUMBER_SIZE_MAX - at);
}

#endif
