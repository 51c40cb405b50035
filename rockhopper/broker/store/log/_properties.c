#include "_properties.h"

void start_keys(Keys *keys)
{
    keys->data = keys->first;
    keys->size = 0;
    keys->room = sizeof keys->first;
}

void free_keys(Keys *keys)
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

PyObject *packed_keys(const Keys *keys)
{
    return PyBytes_FromStringAndSize((const char *)keys->data, keys->size);
}

int append_keys(Keys *packed, uint32_t seed, Span unique_key, Span keys, int64_t position)
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

#define PAIRS_MAX 32

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

/* The broker adds these to a half message, or checks half messages with them more closely. */
static int is_of_transactions(Span name)
{
    return is_text(name, "CHECK_IMMUNITY_TIME_IN_SECONDS") || is_text(name, "__transactionId__")
           || is_text(name, "TRAN_PREPARED_QUEUE_OFFSET") || is_text(name, "TRANSACTION_CHECK_TIMES");
}

static int is_among(Span name, const Span *names, int count)
{
    for (int i = 0; i < count; i++)
        if (names[i].size == name.size
            && memcmp(names[i].data, name.data, (size_t)name.size) == 0)
            return 1;
    return 0;
}

/* The rest of the properties, and the names read before. */
typedef struct {
    const char *p, *end;
    Span names[PAIRS_MAX];
    int count;
} Pairs;

/* Reads the next pair; returns 0 if decoding and encoding would change it. */
static int take_pair(Pairs *pairs, Span *name, Span *value)
{
    const char *p = pairs->p, *stop = memchr(p, 2, (size_t)(pairs->end - p));
    if (stop == NULL)
        stop = pairs->end;
    const char *separator = memchr(p, 1, (size_t)(stop - p));
    if (separator == NULL || separator == p || separator + 1 == stop || pairs->count == PAIRS_MAX)
        return 0;
    *name = (Span){p, separator - p};
    *value = (Span){separator + 1, stop - separator - 1};
    if (is_among(*name, pairs->names, pairs->count))
        return 0;
    pairs->names[pairs->count++] = *name;
    pairs->p = stop + 1;
    return 1;
}

int are_regular(Span properties)
{
    Pairs pairs = {.p = properties.data, .end = properties.data + properties.size};
    Span name, value;
    while (pairs.p < pairs.end)
        if (!take_pair(&pairs, &name, &value))
            return 0;
    return 1;
}

int read_waiting(Span properties, Waiting *found)
{
    Pairs pairs = {.p = properties.data, .end = properties.data + properties.size};
    Span name, value;
    *found = (Waiting){{pairs.p, -1}, {pairs.p, -1}, {pairs.p, -1}};
    while (pairs.p < pairs.end) {
        if (!take_pair(&pairs, &name, &value))
            return 0;
        if (is_text(name, "DELAY"))
            found->delay = value;
        else if (is_text(name, "TRAN_MSG"))
            found->prepared = value;
        else if (is_text(name, "PGROUP"))
            found->group = value;
        else if (is_special(name) || is_of_transactions(name))
            return 0;
    }
    return 1;
}

static int is_of_any_half(Span name)
{
    return is_text(name, "TRAN_MSG") || is_text(name, "__transactionId__")
           || is_text(name, "MSG_REGION") || is_text(name, "TRACE_ON") || is_text(name, "CLUSTER");
}

int is_plain_half(Span properties)
{
    const char *p = properties.data, *end = p + properties.size;
    while (p < end) {
        const char *stop = memchr(p, 2, (size_t)(end - p));
        const char *separator = stop == NULL ? NULL : memchr(p, 1, (size_t)(stop - p));
        if (separator == NULL || separator == p || separator + 1 == stop)
            return 0;
        Span name = {p, separator - p};
        if (!is_of_any_half(name) && (is_special(name) || is_of_transactions(name)))
            return 0;
        p = stop + 1;
    }
    return 1;
}

Properties read_properties(const char *data, Py_ssize_t size)
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
