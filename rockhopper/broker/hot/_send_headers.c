#include "_json_text.h"
#include "_send_headers.h"

#define CODE_SEND 10
#define CODE_SEND_V2 310
#define CODE_BATCH 320
/* The size of the binary header before the remark, which is empty, and the fields. */
#define BINARY_HEAD_SIZE 17
#define FIELDS_MAX 64

/* The letters of fields in SEND_MESSAGE_V2, as bits. */
#define BIT(letter) (1u << ((letter) - 'a'))
/* All up to 'h'. */
#define NEEDED (BIT('i') - 1)

static const struct {
    const char *name;
    char letter;
} names_v1[] = {
    {"producerGroup", 'a'}, {"topic", 'b'}, {"defaultTopic", 'c'}, {"defaultTopicQueueNums", 'd'},
    {"queueId", 'e'}, {"sysFlag", 'f'}, {"bornTimestamp", 'g'}, {"flag", 'h'}, {"properties", 'i'},
    {"reconsumeTimes", 'j'}, {"unitMode", 'k'}, {"maxReconsumeTimes", 'l'}, {"batch", 'm'},
    {NULL, 0}};

/* Whether a field is a text, not a number or a boolean. */
static int is_name(int letter)
{
    return letter <= 0 || strchr("defghjklm", letter) == NULL;
}

static int is_of_signature(Span name)
{
    return is_text(name, "AccessKey") || is_text(name, "Signature")
           || is_text(name, "SecurityToken");
}

/* The letter of a field; 0 if it does not matter, -1 if Python must read it. */
static int letter_of(int32_t code, Span name)
{
    if (code == CODE_SEND) {
        for (int i = 0; names_v1[i].name != NULL; i++)
            if (is_text(name, names_v1[i].name))
                return names_v1[i].letter;
        return is_of_signature(name) ? 0 : -1;
    }
    if (name.size == 1 && name.data[0] >= 'a' && name.data[0] <= 'z')
        return name.data[0];
    return name.size == 0 || is_text(name, "rh") ? -1 : 0;
}

/* Reads one field; returns 0 if Python must read it. *seen* has the letters so far. */
static int take_field(int32_t code, int letter, Span value, uint32_t *seen, SendHeader *read)
{
    int32_t ignored;
    if (letter <= 0)
        return letter == 0;
    if (*seen & BIT(letter))
        return 0;
    *seen |= BIT(letter);
    switch (letter) {
    case 'a':
        read->group = value;
        return 1;
    case 'b':
        read->topic = value;
        return 1;
    case 'd':
    case 'l':
        return read_int32(value, &ignored);
    case 'e':
        return read_int32(value, &read->queue_id);
    case 'f':
        return read_int32(value, &read->sys_flag);
    case 'g':
        return read_number(value, &read->born_time_ms);
    case 'h':
        return read_int32(value, &read->flag);
    case 'i':
        read->properties = value;
        return 1;
    case 'j':
        return read_int32(value, &read->reconsume_times);
    case 'k':
        return is_boolean(value);
    case 'm':
        return is_text(value, "false") || (code == CODE_BATCH && is_text(value, "true"));
    default:
        return 1;
    }
}

static int start(SendHeader *read, int64_t code)
{
    *read = (SendHeader){.topic = {NULL, 0}, .properties = {"", 0}};
    read->is_batch = code == CODE_BATCH;
    return code == CODE_SEND || code == CODE_SEND_V2 || code == CODE_BATCH;
}

static int finish(SendHeader *read, int32_t flag, uint32_t seen)
{
    read->is_oneway = (flag & FLAG_ONEWAY) != 0;
    return (flag & FLAG_RESPONSE) == 0 && (seen & NEEDED) == NEEDED;
}

/* Whether *span* is UTF-8, without surrogates and overlong forms. */
static int is_utf8(Span span)
{
    const unsigned char *p = (const unsigned char *)span.data, *end = p + span.size;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        int more = *p >= 0xC2 && *p <= 0xDF ? 1 : (*p & 0xF0) == 0xE0 ? 2
                   : *p >= 0xF0 && *p <= 0xF4 ? 3 : 0;
        if (more == 0 || end - p <= more)
            return 0;
        if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)
            || (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
            return 0;
        for (int i = 1; i <= more; i++)
            if ((p[i] & 0xC0) != 0x80)
                return 0;
        p += more + 1;
    }
    return 1;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Writes the escaped character to *out*; one of a pair of surrogates does not make UTF-8. */
static int take_escape(Cursor *cursor, unsigned char **out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (cursor->end - cursor->p < 2)
        return 0;
    char c = cursor->p[1];
    const char *simple = c == 0 ? NULL : strchr(letters, c);
    if (simple != NULL) {
        *(*out)++ = (unsigned char)meanings[simple - letters];
        cursor->p += 2;
        return 1;
    }
    if (c != 'u' || cursor->end - cursor->p < 6)
        return 0;
    int value = 0;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(cursor->p[i]);
        if (digit < 0)
            return 0;
        value = value << 4 | digit;
    }
    if (value >= 0x800) {
        *(*out)++ = (unsigned char)(0xE0 | value >> 12);
        *(*out)++ = (unsigned char)(0x80 | (value >> 6 & 0x3F));
        *(*out)++ = (unsigned char)(0x80 | (value & 0x3F));
    } else if (value >= 0x80) {
        *(*out)++ = (unsigned char)(0xC0 | value >> 6);
        *(*out)++ = (unsigned char)(0x80 | (value & 0x3F));
    } else {
        *(*out)++ = (unsigned char)value;
    }
    cursor->p += 6;
    return 1;
}

/* Reads any string; decoding never makes it longer. Returns -1 without memory. */
static int take_string(Cursor *cursor, Scratch *scratch, Span *text)
{
    Cursor whole = *cursor;
    if (take_plain_string(cursor, text))
        return 1;
    *cursor = whole;
    if (!take_char(cursor, '"'))
        return 0;
    if (!make_room((void **)&scratch->data, &scratch->room, cursor->end - cursor->p))
        return -1;
    unsigned char *out = scratch->data;
    while (cursor->p < cursor->end && *cursor->p != '"') {
        if (*cursor->p == '\\') {
            if (!take_escape(cursor, &out))
                return 0;
        } else if ((unsigned char)*cursor->p < 0x20) {
            return 0;
        } else {
            *out++ = (unsigned char)*cursor->p++;
        }
    }
    *text = (Span){(const char *)scratch->data, (const char *)out - (const char *)scratch->data};
    return take_char(cursor, '"') && is_utf8(*text);
}

typedef struct {
    int32_t code;
    Scratch *scratch;
    SignedFields *fields;
    SendHeader *read;
    uint32_t seen;
} Reading;

static int take_fields(Cursor *cursor, void *request)
{
    Reading *reading = request;
    int32_t code = reading->code;
    if (!take_char(cursor, '{'))
        return 0;
    do {
        Span name, value;
        if (!take_plain_string(cursor, &name) || !take_separator(cursor, ':'))
            return 0;
        int letter = letter_of(code, name);
        int taken = letter == 'i' ? take_string(cursor, reading->scratch, &value)
                    : is_bare(cursor) ? !is_name(letter) && take_word(cursor, &value)
                                      : take_plain_string(cursor, &value);
        if (taken <= 0 || !take_field(code, letter, value, &reading->seen, reading->read)
            || (reading->fields != NULL && !add_field(reading->fields, name, value)))
            return taken < 0 ? -1 : 0;
    } while (take_separator(cursor, ','));
    return take_char(cursor, '}');
}

static int read_json(Span header, Scratch *scratch, SignedFields *fields, SendHeader *read)
{
    Cursor cursor;
    Reading reading = {.scratch = scratch, .fields = fields, .read = read};
    int32_t flag;
    if (!begin_header(header, &cursor, &reading.code) || !start(read, reading.code))
        return 0;
    int taken = take_parts(&cursor, take_fields, &reading, &read->opaque, &flag);
    if (taken <= 0)
        return taken;
    return finish(read, flag, reading.seen);
}

static int take_all_fields(Cursor *cursor, SignedFields *fields)
{
    if (!take_char(cursor, '{'))
        return 0;
    do {
        Span name, value;
        if (!take_plain_string(cursor, &name) || !take_separator(cursor, ':'))
            return 0;
        int taken = is_bare(cursor) ? take_word(cursor, &value) && !is_text(value, "null")
                                    : take_plain_string(cursor, &value);
        if (!taken || !add_field(fields, name, value))
            return 0;
    } while (take_separator(cursor, ','));
    return take_char(cursor, '}');
}

int read_json_fields(Span header, SignedFields *fields)
{
    Cursor cursor = {header.data, header.data + header.size};
    Span name;
    int has_fields = 0;
    fields->count = 0;
    if (!take_char(&cursor, '{'))
        return 0;
    do {
        if (!take_plain_string(&cursor, &name) || !take_separator(&cursor, ':'))
            return 0;
        int is_ext = is_text(name, "extFields");
        if (is_ext ? has_fields++ || !take_all_fields(&cursor, fields) : !pass_over(&cursor))
            return 0;
    } while (take_separator(&cursor, ','));
    return has_fields && take_char(&cursor, '}') && cursor.p == cursor.end;
}

/* Takes the next *size* bytes at *p*; returns 0 if they are not all there. */
static int take_span(const unsigned char **p, const unsigned char *end, uint32_t size, Span *span)
{
    if (size > (uint64_t)(end - *p))
        return 0;
    *span = (Span){(const char *)*p, (Py_ssize_t)size};
    *p += size;
    return 1;
}

static int read_binary(Span header, SignedFields *fields, SendHeader *read)
{
    const unsigned char *p = (const unsigned char *)header.data, *end = p + header.size;
    if (header.size < BINARY_HEAD_SIZE + 4)
        return 0;
    int32_t code = p[0] << 8 | p[1], flag = (int32_t)get32(p + 9);
    if (!start(read, code) || get32(p + 13) != 0
        || get32(p + BINARY_HEAD_SIZE) != (uint64_t)header.size - BINARY_HEAD_SIZE - 4)
        return 0;
    read->opaque = (int32_t)get32(p + 5);
    uint32_t seen = 0;
    int count = 0;
    for (p += BINARY_HEAD_SIZE + 4; p < end;) {
        Span name, value;
        if (end - p < 2)
            return 0;
        uint32_t name_size = (uint32_t)(p[0] << 8 | p[1]);
        p += 2;
        if (!take_span(&p, end, name_size, &name) || end - p < 4)
            return 0;
        uint32_t value_size = get32(p);
        p += 4;
        if (!take_span(&p, end, value_size, &value) || value.size == 0 || ++count > FIELDS_MAX)
            return 0;
        int letter = letter_of(code, name);
        if (!is_ascii(name) || !(letter == 'i' ? is_utf8(value) : is_ascii(value))
            || !take_field(code, letter, value, &seen, read)
            || (fields != NULL && !add_field(fields, name, value)))
            return 0;
    }
    return finish(read, flag, seen);
}

int read_send_header(int64_t serialize_type, Span header, Scratch *scratch, SignedFields *fields,
                     SendHeader *read)
{
    if (fields != NULL)
        fields->count = 0;
    if (serialize_type == SERIALIZE_JSON)
        return read_json(header, scratch, fields, read);
    return serialize_type == SERIALIZE_BINARY ? read_binary(header, fields, read) : 0;
}
