/* JSON as known clients print it: no blanks, or one after each separator, as Python's json does;
   ASCII strings without escapes, canonical numbers. Each function returns 0 for anything else,
   whether invalid or only unusual. */

#ifndef ROCKHOPPER_JSON_TEXT_H
#define ROCKHOPPER_JSON_TEXT_H

#include "../store/log/_bytes.h"

#define FLAG_RESPONSE 1
#define FLAG_ONEWAY 2

/* The rest of a text. */
typedef struct {
    const char *p, *end;
} Cursor;

/* Reads a number in its canonical form; returns 0 for any other form. */
static inline int read_number(Span text, int64_t *value)
{
    const char *p = text.data, *end = text.data + text.size;
    int is_negative = p < end && *p == '-';
    p += is_negative;
    if (p >= end || end - p > 18 || (*p == '0' && (end - p > 1 || is_negative)))
        return 0;
    int64_t number = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        number = number * 10 + (*p - '0');
    }
    *value = is_negative ? -number : number;
    return 1;
}

static inline int read_int32(Span text, int32_t *value)
{
    int64_t wide;
    if (!read_number(text, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return 0;
    *value = (int32_t)wide;
    return 1;
}

static inline int is_boolean(Span text)
{
    return is_text(text, "true") || is_text(text, "false");
}

static inline int take_char(Cursor *cursor, char c)
{
    if (cursor->p >= cursor->end || *cursor->p != c)
        return 0;
    cursor->p++;
    return 1;
}

/* Reads a colon or a comma, and a blank after it. */
static inline int take_separator(Cursor *cursor, char c)
{
    if (!take_char(cursor, c))
        return 0;
    take_char(cursor, ' ');
    return 1;
}

static inline int is_usual(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* Whether eight characters are usual; may return 0 for some that are. */
static inline int are_usual(const char *p)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t eight;
    memcpy(&eight, p, 8);
    uint64_t quote = eight ^ '"' * ones, backslash = eight ^ '\\' * ones;
    return ((eight | (eight - 0x20 * ones) | (quote - ones) | (backslash - ones)) & tops) == 0;
}

/* Reads an ASCII string without escapes. */
static inline int take_plain_string(Cursor *cursor, Span *text)
{
    if (!take_char(cursor, '"'))
        return 0;
    const char *p = cursor->p;
    while (cursor->end - p >= 8 && are_usual(p))
        p += 8;
    while (p < cursor->end && is_usual(*p))
        p++;
    *text = (Span){cursor->p, p - cursor->p};
    cursor->p = p;
    return take_char(cursor, '"');
}

/* Reads a bare number, true, false or null. */
static inline int take_word(Cursor *cursor, Span *text)
{
    const char *p = cursor->p;
    while (p < cursor->end && (*p == '-' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z')))
        p++;
    *text = (Span){cursor->p, p - cursor->p};
    cursor->p = p;
    return text->size > 0;
}

static inline int is_bare(const Cursor *cursor)
{
    return cursor->p < cursor->end && *cursor->p != '"';
}

/* Skips a value that does not matter. */
static inline int pass_over(Cursor *cursor)
{
    Span text;
    int64_t number;
    if (cursor->p < cursor->end && *cursor->p == '"')
        return take_plain_string(cursor, &text);
    return take_word(cursor, &text)
           && (read_number(text, &number) || is_boolean(text) || is_text(text, "null"));
}

/* Begins to read a header, which begins with its code. */
static inline int begin_header(Span header, Cursor *cursor, int32_t *code)
{
    static const char beginning[] = "{\"code\"";
    Span text;
    *cursor = (Cursor){header.data, header.data + header.size};
    if (header.size < (Py_ssize_t)sizeof beginning
        || memcmp(cursor->p, beginning, sizeof beginning - 1) != 0)
        return 0;
    cursor->p += sizeof beginning - 1;
    return take_separator(cursor, ':') && take_word(cursor, &text) && read_int32(text, code);
}

/* Reads the object extFields into *request*; may also return -1, with an exception. */
typedef int (*TakeFields)(Cursor *cursor, void *request);

#define HAS_OPAQUE 1
#define HAS_FLAG 2
#define HAS_FIELDS 4

/* Reads the other parts of a header, to its end: opaque, flag (0 if missing), and the fields. */
static inline int take_parts(Cursor *cursor, TakeFields take_fields, void *request,
                             int32_t *opaque, int32_t *flag)
{
    Span name, text;
    int parts = 0;
    *flag = 0;
    while (take_separator(cursor, ',')) {
        if (!take_plain_string(cursor, &name) || !take_separator(cursor, ':'))
            return 0;
        int part = is_text(name, "opaque") ? HAS_OPAQUE : is_text(name, "flag") ? HAS_FLAG
                   : is_text(name, "extFields") ? HAS_FIELDS : 0;
        if (parts & part || is_text(name, "code"))
            return 0;
        parts |= part;
        int taken = part == HAS_FIELDS ? take_fields(cursor, request)
                    : part == 0 ? pass_over(cursor)
                                : take_word(cursor, &text)
                                      && read_int32(text, part == HAS_FLAG ? flag : opaque);
        if (taken <= 0)
            return taken;
    }
    return take_char(cursor, '}') && cursor->p == cursor->end
           && (parts & (HAS_OPAQUE | HAS_FIELDS)) == (HAS_OPAQUE | HAS_FIELDS);
}

#endif
