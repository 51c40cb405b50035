#include "_records.h"

#define PROPERTIES_SIZE_MAX 32767
#define BATCH_COUNT_MAX 290000
#define BATCH_HEAD_SIZE 20
#define WAIT_TRUE "WAIT\1true"
#define WAIT_SIZE 9

int take_constants(PyObject *constants, Shared *shared)
{
    int64_t magic, seed;
    if (!PyTuple_Check(constants) || PyTuple_GET_SIZE(constants) != 4) {
        PyErr_SetString(PyExc_TypeError, "constants must be a tuple of four");
        return 0;
    }
    if (!fits_int64(PyTuple_GET_ITEM(constants, 0), &magic)
        || !take_bytes(PyTuple_GET_ITEM(constants, 1), &shared->topic_field,
                       &shared->topic_field_size)
        || !fits_int32(PyTuple_GET_ITEM(constants, 2), &shared->queue_id)
        || !fits_int64(PyTuple_GET_ITEM(constants, 3), &seed))
        return 0;
    shared->magic = (uint32_t)magic;
    shared->seed = (uint32_t)seed;
    return 1;
}

void set_host_flags(Shared *shared)
{
    shared->sys_flag &= ~HOST_FLAGS;
    if (shared->born_host_size == 20)
        shared->sys_flag |= BORN_HOST_V6;
    if (shared->store_host_size == 20)
        shared->sys_flag |= STORE_HOST_V6;
}

Py_ssize_t copy_size(const Shared *shared, Py_ssize_t body, Py_ssize_t properties)
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

static int is_alnum(Span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++) {
        char c = span.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
            return 0;
    }
    return span.size > 0;
}

/* Returns where WAIT=true is a property of its own, or NULL; the last one may lack its \2. */
static const char *find_wait(const char *data, Py_ssize_t size)
{
    const char *p = data, *end = data + size;
    while (end - p >= WAIT_SIZE) {
        if (memcmp(p, WAIT_TRUE, WAIT_SIZE) == 0 && (end - p == WAIT_SIZE || p[WAIT_SIZE] == 2))
            return p;
        p = memchr(p, 2, (size_t)(end - p));
        if (p == NULL)
            break;
        p++;
    }
    return NULL;
}

Plainness plan_plain(const Shared *shared, Py_ssize_t body_size, Span properties, Span suffix,
                     PlainRecord *record)
{
    record->found = read_properties(properties.data, properties.size);
    if (record->found.special)
        return NOT_PLAIN;
    return plan_record(shared, body_size, properties, suffix, record);
}

Plainness plan_record(const Shared *shared, Py_ssize_t body_size, Span properties, Span suffix,
                      PlainRecord *record)
{
    Properties found = record->found;
    if (!is_alnum(found.unique_key))
        return NOT_PLAIN;
    if (!is_ascii(found.tags) || !is_ascii(found.keys))
        return PLAIN_IN_PYTHON;
    record->tags_code = tags_code(found.tags);
    record->waits = !is_text(found.wait, "false");
    Span front = properties, back = {properties.data + properties.size, 0};
    const char *wait = record->waits && found.wait.size >= 0
                           ? find_wait(properties.data, properties.size)
                           : NULL;
    if (wait != NULL) {
        const char *end = properties.data + properties.size;
        back.data = wait + WAIT_SIZE < end ? wait + WAIT_SIZE + 1 : end;
        back.size = end - back.data;
        front.size = wait - properties.data;
    }
    Span last = back.size > 0 ? back : front;
    record->front = front;
    record->back = back;
    record->is_closed = last.size == 0 || last.data[last.size - 1] == 2;
    record->properties_size = front.size + back.size + !record->is_closed + suffix.size;
    record->size = copy_size(shared, body_size, record->properties_size);
    return record->properties_size > PROPERTIES_SIZE_MAX ? NOT_PLAIN : PLAIN;
}

int write_plain(unsigned char *p, const Shared *shared, Span body, Span suffix, int32_t flag,
                int32_t reconsume_times, const PlainRecord *record, unsigned char *unit, Keys *keys)
{
    p = put_head(p, shared, record->size, body.data, body.size, flag, reconsume_times,
                 record->properties_size);
    p = put_bytes(p, record->front.data, record->front.size);
    p = put_bytes(p, record->back.data, record->back.size);
    if (!record->is_closed)
        *p++ = 2;
    put_bytes(p, suffix.data, suffix.size);
    put_unit(unit, shared->position, record->size, record->tags_code);
    return append_keys(keys, shared->seed, record->found.unique_key, record->found.keys,
                       shared->position)
           == 0;
}

int write_copy(unsigned char *p, const Shared *shared, Span body, Span properties,
               const Properties *found, int32_t flag, int32_t reconsume_times, unsigned char *unit,
               Keys *keys)
{
    Py_ssize_t size = copy_size(shared, body.size, properties.size);
    p = put_head(p, shared, size, body.data, body.size, flag, reconsume_times, properties.size);
    put_span(p, properties);
    put_unit(unit, shared->position, size, tags_code(found->tags));
    return append_keys(keys, shared->seed, found->unique_key, found->keys, shared->position) == 0;
}

/* The parts of one message of a batch body. */
typedef struct {
    int32_t flag;
    Span body, properties;
} Inner;

/* Reads the message at *p*; returns 0, and leaves *p*, if the lengths do not add up. */
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

Py_ssize_t count_batch(const Shared *shared, Span body, Py_ssize_t *size)
{
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    Py_ssize_t count = 0;
    *size = 0;
    while (next < end) {
        Inner inner;
        if (!next_inner(&next, end, &inner) || ++count > BATCH_COUNT_MAX)
            return 0;
        *size += copy_size(shared, inner.body.size, inner.properties.size);
    }
    return count;
}

int write_batch(unsigned char *p, Shared *shared, Span body, Py_ssize_t count, unsigned char *units,
                Keys *keys)
{
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    for (Py_ssize_t i = 0; i < count; i++) {
        Inner inner;
        next_inner(&next, end, &inner);
        Properties found = read_properties(inner.properties.data, inner.properties.size);
        if (!is_ascii(found.tags) || !is_ascii(found.unique_key) || !is_ascii(found.keys))
            return PLAIN_IN_PYTHON;
        if (found.barred)
            return NOT_PLAIN;
        Py_ssize_t size = copy_size(shared, inner.body.size, inner.properties.size);
        if (!write_copy(p, shared, inner.body, inner.properties, &found, inner.flag, 0, units, keys))
            return -1;
        p += size;
        units += UNIT_SIZE;
        shared->position += size;
        shared->queue_offset++;
    }
    return PLAIN;
}

/* Whether *text* is UTF-8; the messages of a batch have not been decoded before. */
static int is_utf8(Span text)
{
    const unsigned char *p = (const unsigned char *)text.data, *end = p + text.size;
    while (p < end && *p < 0x80)
        p++;
    if (p == end)
        return 1;
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)p, end - p, NULL);
    if (decoded == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(decoded);
    return 1;
}

Plainness plan_run(const Shared *shared, Span body, Span suffix, Py_ssize_t *count, Py_ssize_t *size)
{
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    *count = *size = 0;
    while (next < end) {
        Inner inner;
        PlainRecord plan;
        if (!next_inner(&next, end, &inner) || ++*count > BATCH_COUNT_MAX
            || !is_utf8(inner.properties))
            return NOT_PLAIN;
        Plainness plainness = plan_plain(shared, inner.body.size, inner.properties, suffix, &plan);
        if (plainness != PLAIN)
            return plainness;
        *size += plan.size;
    }
    return *count > 0 ? PLAIN : NOT_PLAIN;
}

int write_run(unsigned char *p, Shared *shared, Span body, Span suffix, Py_ssize_t count,
              unsigned char *units, Keys *keys)
{
    const unsigned char *next = (const unsigned char *)body.data, *end = next + body.size;
    for (Py_ssize_t i = 0; i < count; i++) {
        Inner inner;
        PlainRecord plan;
        next_inner(&next, end, &inner);
        plan_plain(shared, inner.body.size, inner.properties, suffix, &plan);
        if (!write_plain(p, shared, inner.body, suffix, inner.flag, 0, &plan, units, keys))
            return 0;
        p += plan.size;
        units += UNIT_SIZE;
        shared->position += plan.size;
        shared->queue_offset++;
    }
    return 1;
}
