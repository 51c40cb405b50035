/* Compiled twins of encode_plain, encode_batch, message_ids and put_entries of encoding.py, and of
   count_sound and side_by_side of checking.py.

   The Python functions say what these have to do, and the tests compare them; here is only how.
   Whatever takes more than ASCII to decide is handed over to them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define HOST_FLAGS 0x30
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define PROPERTIES_SIZE_MAX 32767
#define BATCH_COUNT_MAX 290000
#define BATCH_HEAD_SIZE 20
#define UNIT_SIZE 20
#define INDEX_KEY_SIZE 12

static PyObject *plain_in_python, *batch_in_python;

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int t = 1; t < 8; t++)
            crc_table[t][n] = crc_table[0][crc_table[t - 1][n] & 0xFF] ^ (crc_table[t - 1][n] >> 8);
}

/* The register after *p went through it byte by byte. */
static uint32_t crc_on(uint32_t c, const unsigned char *p, Py_ssize_t size)
{
    while (size >= 8) {
        uint32_t low = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                            | (uint32_t)p[3] << 24);
        c = crc_table[7][low & 0xFF] ^ crc_table[6][(low >> 8) & 0xFF]
            ^ crc_table[5][(low >> 16) & 0xFF] ^ crc_table[4][low >> 24]
            ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
        p += 8;
        size -= 8;
    }
    while (size-- > 0)
        c = crc_table[0][(c ^ *p++) & 0xFF] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CAN_FOLD 1

/* Two polynomials of 64 bits, each times what moves it over the bits that follow, and those bits. */
__attribute__((target("pclmul,sse4.1")))
static inline __m128i fold(__m128i value, __m128i movers, __m128i following)
{
    __m128i low = _mm_clmulepi64_si128(value, movers, 0x00);
    __m128i high = _mm_clmulepi64_si128(value, movers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), following);
}

/* Folds all whole blocks of 16 bytes, at least 64 bytes, into the last one, which then takes the
   place of them all: x^n mod P, bits reflected, moves a block on by n bits. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_folded(uint32_t c, const unsigned char *p, Py_ssize_t size)
{
    const __m128i over_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i over_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i *block = (const __m128i *)p;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(block), _mm_cvtsi32_si128((int)c));
    __m128i b = _mm_loadu_si128(block + 1);
    __m128i d = _mm_loadu_si128(block + 2);
    __m128i e = _mm_loadu_si128(block + 3);
    for (block += 4, size -= 64; size >= 64; block += 4, size -= 64) {
        a = fold(a, over_64_bytes, _mm_loadu_si128(block));
        b = fold(b, over_64_bytes, _mm_loadu_si128(block + 1));
        d = fold(d, over_64_bytes, _mm_loadu_si128(block + 2));
        e = fold(e, over_64_bytes, _mm_loadu_si128(block + 3));
    }
    a = fold(a, over_16_bytes, b);
    a = fold(a, over_16_bytes, d);
    a = fold(a, over_16_bytes, e);
    for (; size >= 16; block++, size -= 16)
        a = fold(a, over_16_bytes, _mm_loadu_si128(block));
    unsigned char last[16];
    _mm_storeu_si128((__m128i *)last, a);
    return crc_on(crc_on(0, last, 16), (const unsigned char *)block, size);
}

static int can_fold;
#endif

static uint32_t crc32_of(const unsigned char *p, Py_ssize_t size)
{
#ifdef CAN_FOLD
    if (size >= 64 && can_fold)
        return ~crc_folded(0xFFFFFFFFu, p, size);
#endif
    return ~crc_on(0xFFFFFFFFu, p, size);
}

static unsigned char *put16(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
    return p + 2;
}

static unsigned char *put32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
    return p + 4;
}

static unsigned char *put64(unsigned char *p, uint64_t v)
{
    return put32(put32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

static unsigned char *put_bytes(unsigned char *p, const void *data, Py_ssize_t size)
{
    memcpy(p, data, (size_t)size);
    return p + size;
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* What all records of one call share. */
typedef struct {
    uint32_t magic, seed;
    int32_t queue_id, sys_flag;
    int64_t position, queue_offset, store_time_ms, born_time_ms;
    const char *topic_field, *born_host, *store_host;
    Py_ssize_t topic_field_size, born_host_size, store_host_size;
} Shared;

/* A stretch of bytes; size < 0 means that it is not there. */
typedef struct {
    const char *data;
    Py_ssize_t size;
} Span;

/* Numbers that do not fit are for the general way to refuse: 0 then, and no exception. */
static int fits_int64(PyObject *object, int64_t *value)
{
    int overflow = 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && !(*value == -1 && PyErr_Occurred());
}

static int fits_int32(PyObject *object, int32_t *value)
{
    int64_t wide;
    if (!fits_int64(object, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return 0;
    *value = (int32_t)wide;
    return 1;
}

static int take_bytes(PyObject *object, const char **data, Py_ssize_t *size)
{
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "bytes expected, not %.100s", Py_TYPE(object)->tp_name);
        return 0;
    }
    *data = PyBytes_AS_STRING(object);
    *size = PyBytes_GET_SIZE(object);
    return 1;
}

/* constants, position, queue_offset, store_time_ms, store_host: what both functions start with. */
static int take_shared(PyObject *const *args, Shared *shared)
{
    PyObject *constants = args[0];
    int64_t magic, seed;
    if (!PyTuple_Check(constants) || PyTuple_GET_SIZE(constants) != 4) {
        PyErr_SetString(PyExc_TypeError, "constants must be a tuple of four");
        return 0;
    }
    if (!fits_int64(PyTuple_GET_ITEM(constants, 0), &magic)
        || !take_bytes(PyTuple_GET_ITEM(constants, 1), &shared->topic_field,
                       &shared->topic_field_size)
        || !fits_int32(PyTuple_GET_ITEM(constants, 2), &shared->queue_id)
        || !fits_int64(PyTuple_GET_ITEM(constants, 3), &seed)
        || !fits_int64(args[1], &shared->position) || !fits_int64(args[2], &shared->queue_offset)
        || !fits_int64(args[3], &shared->store_time_ms)
        || !take_bytes(args[4], &shared->store_host, &shared->store_host_size))
        return 0;
    shared->magic = (uint32_t)magic;
    shared->seed = (uint32_t)seed;
    return 1;
}

static void set_host_flags(Shared *shared)
{
    shared->sys_flag &= ~HOST_FLAGS;
    if (shared->born_host_size == 20)
        shared->sys_flag |= BORN_HOST_V6;
    if (shared->store_host_size == 20)
        shared->sys_flag |= STORE_HOST_V6;
}

static Py_ssize_t record_size(const Shared *shared, Py_ssize_t body, Py_ssize_t properties)
{
    return 74 + shared->born_host_size + shared->store_host_size + body + shared->topic_field_size
           + properties;
}

static unsigned char *put_head(unsigned char *p, const Shared *shared, Py_ssize_t size,
                               const char *body, Py_ssize_t body_size, int32_t flag,
                               int32_t reconsume_times, Py_ssize_t properties_size)
{
    p = put32(p, (uint32_t)size);
    p = put32(p, shared->magic);
    p = put32(p, crc32_of((const unsigned char *)body, body_size) & 0x7FFFFFFFu);
    p = put32(p, (uint32_t)shared->queue_id);
    p = put32(p, (uint32_t)flag);
    p = put64(p, (uint64_t)shared->queue_offset);
    p = put64(p, (uint64_t)shared->position);
    p = put32(p, (uint32_t)shared->sys_flag);
    p = put64(p, (uint64_t)shared->born_time_ms);
    p = put_bytes(p, shared->born_host, shared->born_host_size);
    p = put64(p, (uint64_t)shared->store_time_ms);
    p = put_bytes(p, shared->store_host, shared->store_host_size);
    p = put32(p, (uint32_t)reconsume_times);
    p = put64(p, 0); /* prepared transaction offset */
    p = put32(p, (uint32_t)body_size);
    p = put_bytes(p, body, body_size);
    p = put_bytes(p, shared->topic_field, shared->topic_field_size);
    return put16(p, (uint32_t)properties_size);
}

static unsigned char *put_unit(unsigned char *p, int64_t position, Py_ssize_t size, int64_t code)
{
    return put64(put32(put64(p, (uint64_t)position), (uint32_t)size), (uint64_t)code);
}

static int is_ascii(Span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++)
        if ((unsigned char)span.data[i] >= 0x80)
            return 0;
    return 1;
}

/* Java's String.hashCode going on from *value*. */
static uint32_t hash_on(uint32_t value, Span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++)
        value = value * 31u + (unsigned char)span.data[i];
    return value;
}

static uint32_t index_hash(uint32_t seed, Span key)
{
    uint32_t value = hash_on(seed, key);
    if (value < 0x80000000u)
        return value;
    return value == 0x80000000u ? 0 : (uint32_t)(0u - value);
}

/* Packed index keys under construction; few enough, they need no memory of their own. */
typedef struct {
    unsigned char *data;
    Py_ssize_t size, room;
    unsigned char first[64 * INDEX_KEY_SIZE];
} Keys;

static void start_keys(Keys *keys)
{
    keys->data = keys->first;
    keys->size = 0;
    keys->room = sizeof keys->first;
}

static void free_keys(Keys *keys)
{
    if (keys->data != keys->first)
        PyMem_Free(keys->data);
}

static int append_key(Keys *keys, uint32_t hash, int64_t position)
{
    if (keys->size + INDEX_KEY_SIZE > keys->room) {
        unsigned char *data = PyMem_Malloc((size_t)keys->room * 2);
        if (data == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(data, keys->data, (size_t)keys->size);
        free_keys(keys);
        keys->data = data;
        keys->room *= 2;
    }
    put64(put32(keys->data + keys->size, hash), (uint64_t)position);
    keys->size += INDEX_KEY_SIZE;
    return 0;
}

static PyObject *packed_keys(const Keys *keys)
{
    return PyBytes_FromStringAndSize((const char *)keys->data, keys->size);
}

static int append_keys(Keys *packed, uint32_t seed, Span unique_key, Span keys, int64_t position)
{
    if (unique_key.size > 0 && append_key(packed, index_hash(seed, unique_key), position) < 0)
        return -1;
    const char *p = keys.data, *end = keys.size > 0 ? keys.data + keys.size : keys.data;
    while (p < end) {
        const char *blank = memchr(p, ' ', (size_t)(end - p));
        Span key = {p, (blank == NULL ? end : blank) - p};
        if (key.size > 0 && append_key(packed, index_hash(seed, key), position) < 0)
            return -1;
        p += key.size + 1;
    }
    return 0;
}

static int64_t tags_code(Span tags)
{
    return tags.size > 0 ? (int64_t)(int32_t)hash_on(0, tags) : 0;
}

static int is_text(Span span, const char *text)
{
    size_t size = strlen(text);
    return span.size == (Py_ssize_t)size && memcmp(span.data, text, size) == 0;
}

static const char *const special_names[] = {
    "CLUSTER", "DELAY", "DUP_INFO", "INNER_BASE", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "MSG_REGION", "POP_CK", "REAL_QID", "REAL_TOPIC",
    "RH_FINAL", "RH_SINK",
    "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_ORIGIN", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_ON", "TRAN_MSG",
    "_SYS_MSG_PRIORITY_", "__CRC32#", "__LITE_TOPIC", "__STARTDELIVERTIME", NULL};

static int is_special(Span item)
{
    if (item.size < 5 || item.size > 24 || strchr("CDIMPRT_", item.data[0]) == NULL)
        return 0;
    for (const char *const *name = special_names; *name != NULL; name++)
        if ((*name)[0] == item.data[0] && is_text(item, *name))
            return 1;
    return 0;
}

static int is_delaying(Span name)
{
    return is_text(name, "DELAY") || is_text(name, "TIMER_DELIVER_MS")
           || is_text(name, "TIMER_DELAY_MS") || is_text(name, "TIMER_DELAY_SEC")
           || is_text(name, "__STARTDELIVERTIME");
}

static int is_own(Span name)
{
    return is_text(name, "INNER_MULTI_QUEUE_OFFSET") || is_text(name, "RH_FINAL")
           || is_text(name, "RH_SINK") || is_text(name, "TIMER_ORIGIN")
           || is_text(name, "__CRC32#");
}

/* What a properties string says to the broker; of two with one name the last one counts, and a pair
   without a name or a value is none. */
typedef struct {
    Span unique_key, tags, keys, wait;
    int special, barred;
} Properties;

static Properties read_properties(const char *data, Py_ssize_t size)
{
    Properties found = {{data, -1}, {data, -1}, {data, -1}, {data, -1}, 0, 0};
    const char *p = data, *end = data + size;
    while (p < end) {
        const char *stop = memchr(p, 2, (size_t)(end - p));
        if (stop == NULL)
            stop = end;
        const char *separator = memchr(p, 1, (size_t)(stop - p));
        if (separator != NULL && separator > p && separator + 1 < stop) {
            Span name = {p, separator - p}, value = {separator + 1, stop - separator - 1};
            if (is_text(name, "UNIQ_KEY"))
                found.unique_key = value;
            else if (is_text(name, "TAGS"))
                found.tags = value;
            else if (is_text(name, "KEYS"))
                found.keys = value;
            else if (is_text(name, "WAIT"))
                found.wait = value;
            else if (is_special(name)) {
                found.special = 1;
                found.barred |= is_delaying(name) || is_own(name);
            }
        }
        p = stop + 1;
    }
    return found;
}

static int is_alnum(Span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++) {
        char c = span.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
            return 0;
    }
    return span.size > 0;
}

/* Where WAIT=true stands as a property of its own, or NULL. */
static const char *find_wait(const char *data, Py_ssize_t size)
{
    static const char text[] = "WAIT\1true\2";
    const Py_ssize_t length = sizeof text - 1;
    const char *p = data;
    while (data + size - p >= length) {
        if (memcmp(p, text, (size_t)length) == 0)
            return p;
        p = memchr(p, 2, (size_t)(data + size - p));
        if (p == NULL)
            break;
        p++;
    }
    return NULL;
}

static PyObject *plain_result(const Shared *shared, Span body, Span properties, Span suffix,
                              int32_t flag, int32_t reconsume_times)
{
    Properties found = read_properties(properties.data, properties.size);
    if (found.special || !is_alnum(found.unique_key))
        Py_RETURN_NONE;
    if (!is_ascii(found.tags) || !is_ascii(found.keys))
        Py_RETURN_NOTIMPLEMENTED;
    int waits = !is_text(found.wait, "false");
    Span front = properties, back = {properties.data + properties.size, 0};
    const char *wait = waits && found.wait.size >= 0 ? find_wait(properties.data, properties.size)
                                                     : NULL;
    if (wait != NULL) {
        back.data = wait + 10;
        back.size = properties.data + properties.size - back.data;
        front.size = wait - properties.data;
    }
    Span last = back.size > 0 ? back : front;
    int closed = last.size > 0 && last.data[last.size - 1] == 2;
    Py_ssize_t properties_size = front.size + back.size + !closed + suffix.size;
    if (properties_size > PROPERTIES_SIZE_MAX)
        Py_RETURN_NONE;

    Py_ssize_t size = record_size(shared, body.size, properties_size);
    PyObject *record = PyBytes_FromStringAndSize(NULL, size);
    PyObject *unit = PyBytes_FromStringAndSize(NULL, UNIT_SIZE);
    PyObject *unique_key = PyUnicode_FromStringAndSize(found.unique_key.data, found.unique_key.size);
    PyObject *keys = NULL;
    PyObject *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (append_keys(&packed, shared->seed, found.unique_key, found.keys, shared->position) == 0)
        keys = packed_keys(&packed);
    free_keys(&packed);
    if (record != NULL && unit != NULL && unique_key != NULL && keys != NULL) {
        unsigned char *p = put_head((unsigned char *)PyBytes_AS_STRING(record), shared, size,
                                    body.data, body.size, flag, reconsume_times, properties_size);
        p = put_bytes(p, front.data, front.size);
        p = put_bytes(p, back.data, back.size);
        if (!closed)
            *p++ = 2;
        put_bytes(p, suffix.data, suffix.size);
        put_unit((unsigned char *)PyBytes_AS_STRING(unit), shared->position, size,
                 tags_code(found.tags));
        result = PyTuple_Pack(5, record, unit, keys, unique_key, waits ? Py_True : Py_False);
    }
    Py_XDECREF(record);
    Py_XDECREF(unit);
    Py_XDECREF(keys);
    Py_XDECREF(unique_key);
    return result;
}

static PyObject *in_python(PyObject *function, PyObject *const *args, Py_ssize_t count,
                           PyObject *not_implemented)
{
    if (function == NULL)
        return not_implemented;
    Py_DECREF(not_implemented);
    return PyObject_Vectorcall(function, args, (size_t)count, NULL);
}

static PyObject *set_fallbacks(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *plain, *batch;
    if (!PyArg_ParseTuple(args, "OO", &plain, &batch))
        return NULL;
    Py_XSETREF(plain_in_python, Py_NewRef(plain));
    Py_XSETREF(batch_in_python, Py_NewRef(batch));
    Py_RETURN_NONE;
}

static PyObject *none_unless_wrong_type(void)
{
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Shared shared;
    Span body, properties, suffix;
    int32_t flag, reconsume_times;
    if (count != 13) {
        PyErr_SetString(PyExc_TypeError, "encode_plain takes 13 arguments");
        return NULL;
    }
    if (!take_shared(args, &shared) || !take_bytes(args[5], &body.data, &body.size)
        || !take_bytes(args[7], &suffix.data, &suffix.size) || !fits_int32(args[8], &flag)
        || !fits_int32(args[9], &shared.sys_flag) || !fits_int64(args[10], &shared.born_time_ms)
        || !take_bytes(args[11], &shared.born_host, &shared.born_host_size)
        || !fits_int32(args[12], &reconsume_times))
        return none_unless_wrong_type();
    properties.data = PyUnicode_AsUTF8AndSize(args[6], &properties.size);
    if (properties.data == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    set_host_flags(&shared);
    PyObject *result = plain_result(&shared, body, properties, suffix, flag, reconsume_times);
    return result == Py_NotImplemented ? in_python(plain_in_python, args, count, result) : result;
}

/* One message of a batch body: where its parts are. */
typedef struct {
    int32_t flag;
    Span body, properties;
} Inner;

/* The message at *p*, or 0 if the lengths do not add up; *p* then stays. */
static int next_inner(const unsigned char **p, const unsigned char *end, Inner *inner)
{
    const unsigned char *start = *p;
    if (end - start < BATCH_HEAD_SIZE + 2)
        return 0;
    int32_t size = (int32_t)get32(start), body_size = (int32_t)get32(start + 16);
    inner->flag = (int32_t)get32(start + 12);
    if (body_size < 0 || body_size > end - start - BATCH_HEAD_SIZE - 2)
        return 0;
    const unsigned char *after = start + BATCH_HEAD_SIZE + body_size;
    int properties_size = after[0] << 8 | after[1];
    if (properties_size > PROPERTIES_SIZE_MAX || properties_size > end - after - 2
        || size != after + 2 + properties_size - start)
        return 0;
    inner->body = (Span){(const char *)start + BATCH_HEAD_SIZE, body_size};
    inner->properties = (Span){(const char *)after + 2, properties_size};
    *p = after + 2 + properties_size;
    return 1;
}

static PyObject *batch_result(Shared *shared, Span body, Py_ssize_t count, Py_ssize_t size_all)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, size_all);
    PyObject *units = PyBytes_FromStringAndSize(NULL, count * UNIT_SIZE);
    PyObject *keys = NULL;
    PyObject *result = NULL;
    Keys packed;
    start_keys(&packed);
    if (records == NULL || units == NULL)
        goto done;
    unsigned char *p = (unsigned char *)PyBytes_AS_STRING(records);
    unsigned char *unit = (unsigned char *)PyBytes_AS_STRING(units);
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    for (Py_ssize_t i = 0; i < count; i++) {
        Inner inner;
        next_inner(&next, end, &inner);
        Properties found = read_properties(inner.properties.data, inner.properties.size);
        if (!is_ascii(found.tags) || !is_ascii(found.unique_key) || !is_ascii(found.keys)) {
            result = Py_NewRef(Py_NotImplemented);
            goto done;
        }
        if (found.barred) {
            result = Py_NewRef(Py_None);
            goto done;
        }
        Py_ssize_t size = record_size(shared, inner.body.size, inner.properties.size);
        p = put_head(p, shared, size, inner.body.data, inner.body.size, inner.flag, 0,
                     inner.properties.size);
        p = put_bytes(p, inner.properties.data, inner.properties.size);
        unit = put_unit(unit, shared->position, size, tags_code(found.tags));
        if (append_keys(&packed, shared->seed, found.unique_key, found.keys, shared->position) < 0)
            goto done;
        shared->position += size;
        shared->queue_offset++;
    }
    keys = packed_keys(&packed);
    if (keys != NULL)
        result = PyTuple_Pack(3, records, units, keys);
done:
    free_keys(&packed);
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(keys);
    return result;
}

static PyObject *encode_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Shared shared;
    Span body;
    if (nargs != 9) {
        PyErr_SetString(PyExc_TypeError, "encode_batch takes 9 arguments");
        return NULL;
    }
    if (!take_shared(args, &shared) || !take_bytes(args[5], &body.data, &body.size)
        || !fits_int32(args[6], &shared.sys_flag) || !fits_int64(args[7], &shared.born_time_ms)
        || !take_bytes(args[8], &shared.born_host, &shared.born_host_size))
        return none_unless_wrong_type();
    set_host_flags(&shared);
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    Py_ssize_t count = 0, size_all = 0;
    while (next < end) {
        Inner inner;
        if (!next_inner(&next, end, &inner) || ++count > BATCH_COUNT_MAX)
            Py_RETURN_NONE;
        size_all += record_size(&shared, inner.body.size, inner.properties.size);
    }
    if (count == 0)
        Py_RETURN_NONE;
    PyObject *result = batch_result(&shared, body, count, size_all);
    return result == Py_NotImplemented ? in_python(batch_in_python, args, nargs, result) : result;
}

/* message_ids(host, units) -> sixteen hex digits of each unit's offset behind the host, with , between */
static PyObject *message_ids(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    static const char digits[] = "0123456789ABCDEF";
    const char *units;
    Py_ssize_t size, host_size;
    if (nargs != 2 || !PyUnicode_Check(args[0]) || !PyUnicode_IS_ASCII(args[0])
        || !take_bytes(args[1], &units, &size)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "message_ids takes ASCII text and bytes");
        return NULL;
    }
    const char *host = PyUnicode_AsUTF8AndSize(args[0], &host_size);
    Py_ssize_t count = size / UNIT_SIZE;
    PyObject *ids = PyUnicode_New(count > 0 ? count * (host_size + 17) - 1 : 0, 127);
    if (host == NULL || ids == NULL) {
        Py_XDECREF(ids);
        return NULL;
    }
    unsigned char *p = (unsigned char *)PyUnicode_1BYTE_DATA(ids);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i > 0)
            *p++ = ',';
        p = put_bytes(p, host, host_size);
        const unsigned char *offset = (const unsigned char *)units + i * UNIT_SIZE;
        for (int k = 0; k < 8; k++) {
            *p++ = (unsigned char)digits[offset[k] >> 4];
            *p++ = (unsigned char)digits[offset[k] & 15];
        }
    }
    return ids;
}

/* put_entries(mapping, slot_count, entries_at, number, seconds, packed_keys) -> new slots in use */
static PyObject *put_entries(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t slot_count, entries_at, number;
    int32_t seconds;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "put_entries takes 6 arguments");
        return NULL;
    }
    if (!fits_int64(args[1], &slot_count) || !fits_int64(args[2], &entries_at)
        || !fits_int64(args[3], &number) || !fits_int32(args[4], &seconds)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large");
        return NULL;
    }
    Py_buffer mapping, keys;
    if (PyObject_GetBuffer(args[0], &mapping, PyBUF_WRITABLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[5], &keys, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&mapping);
        return NULL;
    }
    Py_ssize_t count = keys.len / INDEX_KEY_SIZE;
    const unsigned char *key = keys.buf;
    long used = 0;
    PyObject *result = NULL;
    if (slot_count <= 0 || number < 1 || entries_at < 40 + 4 * slot_count
        || entries_at + (number + count) * 20 > mapping.len) {
        PyErr_SetString(PyExc_ValueError, "the entries do not fit the index file");
        goto done;
    }
    unsigned char *base = mapping.buf;
    for (Py_ssize_t i = 0; i < count; i++, number++, key += INDEX_KEY_SIZE) {
        uint32_t hash = get32(key);
        unsigned char *slot = base + 40 + hash % slot_count * 4;
        int32_t previous = (int32_t)get32(slot);
        if (previous <= 0 || previous >= number) {
            previous = 0;
            used++;
        }
        unsigned char *p = base + entries_at + number * 20;
        p = put_bytes(p, key, INDEX_KEY_SIZE);
        put32(put32(p, (uint32_t)seconds), (uint32_t)previous);
        put32(slot, (uint32_t)number);
    }
    result = PyLong_FromLong(used);
done:
    PyBuffer_Release(&keys);
    PyBuffer_Release(&mapping);
    return result;
}

static int64_t get64(const unsigned char *p)
{
    return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4));
}

#define HEAD_SIZE 88
#define RECORD_SIZE_MIN 91
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

/* What all records of one queue have in common. */
typedef struct {
    const char *topic_field;
    Py_ssize_t topic_field_size;
    int32_t queue_id;
} Owner;

/* Whether the record at *p* is the one of *unit*, of message *queue_offset* (any for -1). */
static int is_sound(const unsigned char *p, const unsigned char *unit, const Owner *owner,
                    int64_t queue_offset, int64_t unchecked_from)
{
    int64_t position = get64(unit), size = get32(unit + 8);
    uint32_t magic = get32(p + 4);
    if (get32(p) != size || get64(p + 28) != position || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return 0;
    uint32_t sys_flag = get32(p + 36);
    int64_t body_at = HEAD_SIZE + (sys_flag & BORN_HOST_V6 ? 12 : 0)
                      + (sys_flag & STORE_HOST_V6 ? 12 : 0);
    if (body_at + 3 > size)
        return 0;
    int32_t body_size = (int32_t)get32(p + body_at - 4);
    int64_t at = body_at + body_size;
    if (body_size < 0 || at + 3 > size)
        return 0;
    if (queue_offset >= 0
        && ((int32_t)get32(p + 12) != owner->queue_id || get64(p + 20) != queue_offset
            || at + owner->topic_field_size + 2 > size
            || memcmp(p + at, owner->topic_field, (size_t)owner->topic_field_size) != 0))
        return 0;
    at += magic == MAGIC_V1 ? 1 + p[at] : 2 + (p[at] << 8 | p[at + 1]);
    if (at + 2 > size || at + 2 + (p[at] << 8 | p[at + 1]) != size)
        return 0;
    return position >= unchecked_from || body_size == 0
           || (crc32_of(p + body_at, body_size) & 0x7FFFFFFFu) == get32(p + 8);
}

/* side_by_side(units) -> the size of all their records if nothing stands between them, or -1 */
static PyObject *side_by_side(PyObject *module, PyObject *units)
{
    (void)module;
    const char *data;
    Py_ssize_t size;
    if (!take_bytes(units, &data, &size))
        return NULL;
    const unsigned char *unit = (const unsigned char *)data, *end = unit + size;
    int64_t size_all = 0, next = size >= UNIT_SIZE ? get64(unit) : 0;
    for (; end - unit >= UNIT_SIZE; unit += UNIT_SIZE) {
        int32_t record_size = (int32_t)get32(unit + 8);
        if (record_size < RECORD_SIZE_MIN || get64(unit) != next || next > INT64_MAX - record_size)
            return PyLong_FromLong(-1);
        next += record_size;
        size_all += record_size;
    }
    return PyLong_FromLongLong(size_all);
}

/* count_sound(topic_field, queue_id, queue_offset, units, count, records, unchecked_from) */
static PyObject *count_sound(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Owner owner;
    int64_t queue_offset, count, unchecked_from;
    const char *units, *records;
    Py_ssize_t units_size, size;
    if (nargs != 7) {
        PyErr_SetString(PyExc_TypeError, "count_sound takes 7 arguments");
        return NULL;
    }
    if (!take_bytes(args[0], &owner.topic_field, &owner.topic_field_size)
        || !fits_int32(args[1], &owner.queue_id) || !fits_int64(args[2], &queue_offset)
        || !take_bytes(args[3], &units, &units_size) || !fits_int64(args[4], &count)
        || !take_bytes(args[5], &records, &size) || !fits_int64(args[6], &unchecked_from)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a number is too large");
        return NULL;
    }
    const unsigned char *unit = (const unsigned char *)units;
    const unsigned char *p = (const unsigned char *)records, *end = p + size;
    int64_t sound = 0;
    for (; sound < count && (sound + 1) * UNIT_SIZE <= units_size; sound++, unit += UNIT_SIZE) {
        int64_t record_size = (int32_t)get32(unit + 8);
        if (record_size < RECORD_SIZE_MIN || record_size > end - p
            || !is_sound(p, unit, &owner, queue_offset < 0 ? -1 : queue_offset + sound,
                         unchecked_from))
            break;
        p += record_size;
    }
    return PyLong_FromLongLong(sound);
}

static PyMethodDef methods[] = {
    {"set_fallbacks", set_fallbacks, METH_VARARGS, NULL},
    {"encode_plain", (PyCFunction)(void (*)(void))encode_plain, METH_FASTCALL, NULL},
    {"encode_batch", (PyCFunction)(void (*)(void))encode_batch, METH_FASTCALL, NULL},
    {"message_ids", (PyCFunction)(void (*)(void))message_ids, METH_FASTCALL, NULL},
    {"count_sound", (PyCFunction)(void (*)(void))count_sound, METH_FASTCALL, NULL},
    {"side_by_side", side_by_side, METH_O, NULL},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.store.log._encoding",
    "Compiled twins of the functions that a message costs most time in.", 0, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__encoding(void)
{
    make_crc_table();
#ifdef CAN_FOLD
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    return PyModule_Create(&definition);
}
